/* test_drivers.c - which driver a box gets, and what is said of one it cannot have */
#include "core/drivers.h"
#include "base/alloc.h"
#include "engine/engine_internal.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static unsigned open_count;

static int open_well(const struct engine_ops *ops, unsigned can, struct engine **ret)
{
	struct engine *engine = xnew(struct engine);

	*engine = (struct engine){ .ops = ops, .can = can, .fds = can ? 2 : 7 };
	open_count++;
	*ret = engine;
	return 0;
}

static void close_engine(struct engine *engine)
{
	open_count--;
	free(engine);
}

static json_t *describe(struct engine *engine)
{
	return json_pack("{s:s}", "kind", engine->ops->name);
}

static int probe(struct engine *engine, json_t *checks, struct err *err)
{
	(void)err;
	json_array_append_new(checks, json_string(engine->ops->name));
	return 0;
}

static char swept[64];

static int sweep(struct engine *engine, const char *id, struct err *err)
{
	(void)err;
	snprintf(swept + strlen(swept), sizeof swept - strlen(swept), "%s:%s ", engine->ops->name,
		id);
	return 0;
}

static int open_a(const struct engine_config *config, struct engine **ret, struct err *err);
static int open_b(const struct engine_config *config, struct engine **ret, struct err *err);

static int open_broken(const struct engine_config *config, struct engine **ret, struct err *err)
{
	(void)config;
	(void)ret;
	return err_set(err, ERR_UNSUPPORTED, "/dev/kvm is not there");
}

#define TABLE(the_name, the_open)                                                                \
	{                                                                                        \
		.name = the_name, .open = the_open, .close = close_engine, .describe = describe, \
		.probe = probe, .sweep = sweep,                                                  \
	}
static const struct engine_ops a = TABLE("a", open_a), b = TABLE("b", open_b),
			       broken = TABLE("broken", open_broken);

static int open_a(const struct engine_config *config, struct engine **ret, struct err *err)
{
	(void)config;
	(void)err;
	return open_well(&a, 1U << ENGINE_CAN_SUSPEND | 1U << ENGINE_CAN_HIBERNATE, ret);
}

static int open_b(const struct engine_config *config, struct engine **ret, struct err *err)
{
	(void)config;
	(void)err;
	return open_well(&b, 0, ret);
}

static const struct engine_ops *const all[] = { &broken, &a, &b, NULL };
static const struct engine_config config;

static struct drivers *open_all(const char *demanded)
{
	struct drivers *drivers = NULL;
	struct err err = ERR_INIT;

	if (drivers_open(all, &config, demanded, &drivers, &err) < 0)
		fail_msg("%s", err.message);
	return drivers;
}

static const char *choose(struct drivers *drivers, const char *asked, struct err *err)
{
	struct engine *engine;

	err_clear(err);
	return drivers_choose(drivers, asked, &engine, err) < 0 ? NULL : engine_get_name(engine);
}

static void test_the_first_that_works_is_the_default(void **state)
{
	struct drivers *drivers = open_all("");
	struct err err = ERR_INIT;

	(void)state;
	assert_string_equal(choose(drivers, NULL, &err), "a");
	assert_string_equal(choose(drivers, "b", &err), "b");
	drivers_close(drivers);
	assert_int_equal(open_count, 0);
}

static void test_who_asks_for_a_broken_driver_hears_why(void **state)
{
	struct drivers *drivers = open_all("");
	struct engine *engine;
	struct err err = ERR_INIT;

	(void)state;
	assert_null(choose(drivers, "broken", &err));
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(err.message, "/dev/kvm is not there"));
	assert_null(choose(drivers, "c", &err));
	assert_int_equal(err.kind, ERR_INVALID);
	assert_string_equal(err.hint, "drivers: broken, a, b");
	assert_int_equal(drivers_find(drivers, "broken", &engine, &err), -1);
	drivers_close(drivers);
}

static void test_a_demanded_driver_is_the_only_one_for_new_boxes(void **state)
{
	struct drivers *drivers = open_all("b");
	struct engine *engine = NULL;
	struct err err = ERR_INIT;

	(void)state;
	assert_string_equal(choose(drivers, NULL, &err), "b");
	assert_null(choose(drivers, "a", &err));
	assert_int_equal(err.kind, ERR_INVALID);
	assert_non_null(strstr(err.hint, "boxyard.conf"));
	/* A box that has it already goes on. */
	assert_int_equal(drivers_find(drivers, "a", &engine, &err), 0);
	drivers_close(drivers);
}

static void test_a_demanded_driver_that_does_not_work_is_an_error(void **state)
{
	const char *const demanded[] = { "broken", "c" };
	struct drivers *drivers;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(demanded); i++) {
		struct err err = ERR_INIT;

		assert_int_equal(drivers_open(all, &config, demanded[i], &drivers, &err), -1);
		assert_non_null(strstr(err.message, demanded[i]));
		assert_int_equal(open_count, 0);
	}
}

static void test_no_driver_at_all_is_an_error_with_its_reason(void **state)
{
	const struct engine_ops *const list[] = { &broken, NULL };
	struct drivers *drivers;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(drivers_open(list, &config, "", &drivers, &err), -1);
	assert_non_null(strstr(err.message, "/dev/kvm is not there"));
}

static void test_what_each_can_do_is_told(void **state)
{
	struct drivers *drivers = open_all("");
	json_t *json = drivers_json(drivers), *of_a = json_object_get(json, "a"),
	       *of_broken = json_object_get(json, "broken"), *checks = json_array();

	(void)state;
	assert_true(json_is_true(json_object_get(of_a, "available")));
	assert_true(json_is_true(json_object_get(of_a, "default")));
	assert_int_equal(json_array_size(json_object_get(of_a, "can")), 2);
	assert_string_equal(json_string_value(json_object_get(of_a, "kind")), "a");
	assert_true(json_is_false(json_object_get(of_broken, "available")));
	assert_string_equal(json_string_value(json_object_get(of_broken, "why")),
		"driver 'broken': /dev/kvm is not there");
	assert_true(drivers_probe(drivers, checks));
	assert_int_equal(json_array_size(checks), 3);
	assert_int_equal(drivers_fds(drivers), 7);
	json_decref(checks);
	json_decref(json);
	drivers_close(drivers);
}

static void test_orphans_are_swept_by_all(void **state)
{
	struct drivers *drivers = open_all("b");

	(void)state;
	assert_int_equal(drivers_sweep(drivers, "x", NULL), 0);
	assert_string_equal(swept, "a:x b:x ");
	drivers_close(drivers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_first_that_works_is_the_default),
		cmocka_unit_test(test_who_asks_for_a_broken_driver_hears_why),
		cmocka_unit_test(test_a_demanded_driver_is_the_only_one_for_new_boxes),
		cmocka_unit_test(test_a_demanded_driver_that_does_not_work_is_an_error),
		cmocka_unit_test(test_no_driver_at_all_is_an_error_with_its_reason),
		cmocka_unit_test(test_what_each_can_do_is_told),
		cmocka_unit_test(test_orphans_are_swept_by_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
