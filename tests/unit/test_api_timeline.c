/* test_api_timeline.c - bodies of snapshots, rollbacks and forks: what is taken, what is refused
 * before anything happens */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "api/api_internal.h"

static json_t *parse(const char *text)
{
	struct err err = ERR_INIT;
	json_t *body = json_parse(text, strlen(text), &err);

	if (!body)
		fail_msg("bad test: %s: %s", text, err.message);
	return body;
}

/* ---- snapshots ------------------------------------------------------------------------------ */

static void test_snapshot_body_is_by_request_and_safe_unless_told(void **state)
{
	_cleanup_json_ json_t *empty = parse("{}");
	_cleanup_json_ json_t *full =
		parse("{\"name\":\"base\",\"disk_only\":true,\"cause\":\"try\"}");
	struct snapshot_spec spec;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(snapshot_body_read(empty, &spec, &err), 0);
	assert_null(spec.name);
	assert_string_equal(spec.cause, "request");
	assert_true(spec.wait_safe);
	assert_false(spec.disk_only);
	assert_int_equal(snapshot_body_read(full, &spec, &err), 0);
	assert_string_equal(spec.name, "base");
	assert_string_equal(spec.cause, "try");
	assert_true(spec.disk_only);
	assert_true(spec.wait_safe);
}

static void test_snapshot_body_refuses(void **state)
{
	static const char *const bad[] = { "{\"name\":\"\"}", "{\"name\":\"Base\"}",
		"{\"name\":\"a b\"}", "{\"name\":\"../x\"}", "{\"name\":7}", "{\"name\":\"-a\"}",
		"{\"cause\":\"exec\"}", "{\"cause\":\"interval\"}", "{\"cause\":\"\"}",
		"{\"disk_only\":1}", "{\"disk_only\":\"yes\"}", "{\"wait_safe\":false}",
		"{\"detail\":\"x\"}", "{\"nmae\":\"x\"}" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		_cleanup_json_ json_t *body = parse(bad[i]);
		struct snapshot_spec spec;
		struct err err = ERR_INIT;

		if (snapshot_body_read(body, &spec, &err) == 0)
			fail_msg("taken: %s", bad[i]);
		assert_int_equal(err.kind, ERR_INVALID);
	}
}

/* ---- rollback ------------------------------------------------------------------------------- */

static void test_rollback_body_names_a_snapshot_or_none(void **state)
{
	static const char *const bad[] = { "{\"snapshot\":\"\"}", "{\"snapshot\":\"a/b\"}",
		"{\"snapshot\":\"A\"}", "{\"snapshot\":1}", "{\"forget\":\"no\"}", "{\"to\":\"x\"}",
		"{\"snapshot\":"
		"\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}" };
	_cleanup_json_ json_t *empty = parse("{}");
	_cleanup_json_ json_t *full =
		parse("{\"snapshot\":\"9k3v\",\"disk_only\":true,\"forget\":true}");
	struct rollback_spec spec;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(rollback_body_read(empty, &spec, &err), 0);
	assert_null(spec.snapshot);
	assert_false(spec.disk_only || spec.forget);
	assert_int_equal(rollback_body_read(full, &spec, &err), 0);
	assert_string_equal(spec.snapshot, "9k3v");
	assert_true(spec.disk_only && spec.forget);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		_cleanup_json_ json_t *body = parse(bad[i]);

		if (rollback_body_read(body, &spec, &err) == 0)
			fail_msg("taken: %s", bad[i]);
		assert_int_equal(err.kind, ERR_INVALID);
		err_clear(&err);
	}
}

/* ---- forks ---------------------------------------------------------------------------------- */

static void test_fork_body_is_read_whole(void **state)
{
	_cleanup_json_ json_t *empty = parse("{}");
	_cleanup_json_ json_t *full = parse(
		"{\"names\":[\"a\",\"b\"],\"count\":100,\"snapshot\":\"base\","
		"\"env\":{\"K\":\"V\"},\"labels\":{\"k\":\"v\"},\"policy\":{\"preset\":\"none\"},"
		"\"disk_only\":true,\"remove_on_exit\":true}");
	_cleanup_json_ json_t *null = parse("{\"policy\":null,\"count\":null,\"names\":null}");
	struct fork_body body;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(fork_body_read(empty, &body, &err), 0);
	assert_int_equal(body.spec.count, 0);
	assert_null(body.spec.names);
	assert_null(body.spec.policy);
	assert_false(body.spec.from_inside);
	fork_body_done(&body);
	assert_int_equal(fork_body_read(full, &body, &err), 0);
	assert_int_equal(json_array_size(body.spec.names), 2);
	assert_int_equal(body.spec.count, 100);
	assert_string_equal(body.spec.snapshot, "base");
	assert_int_equal(json_object_size(body.spec.env), 1);
	assert_int_equal(json_object_size(body.spec.labels), 1);
	assert_true(json_is_object(body.spec.policy));
	assert_true(body.spec.disk_only && body.spec.remove_on_exit);
	fork_body_done(&body);
	assert_int_equal(fork_body_read(null, &body, &err), 0);
	assert_null(body.spec.policy);
	assert_int_equal(body.spec.count, 0);
	fork_body_done(&body);
}

static void refuse_fork(const char *text, const char *word)
{
	_cleanup_json_ json_t *json = parse(text);
	struct fork_body body;
	struct err err = ERR_INIT;

	if (fork_body_read(json, &body, &err) == 0)
		fail_msg("taken: %s", text);
	fork_body_done(&body);
	assert_int_equal(err.kind, ERR_INVALID);
	if (!strstr(err.message, word))
		fail_msg("%s: '%s' does not say '%s'", text, err.message, word);
}

static void test_fork_body_refuses(void **state)
{
	struct buf many = BUF_INIT;

	(void)state;
	refuse_fork("{\"count\":0}", "1 to 100");
	refuse_fork("{\"count\":101}", "1 to 100");
	refuse_fork("{\"count\":-1}", "count");
	refuse_fork("{\"count\":4294967297}", "1 to 100");
	refuse_fork("{\"count\":\"3\"}", "count");
	refuse_fork("{\"count\":1,\"names\":[\"a\",\"b\"]}", "2 names");
	refuse_fork("{\"names\":[\"a\",\"a\"]}", "twice");
	refuse_fork("{\"names\":[\"a\",\"B\"]}", "B");
	refuse_fork("{\"names\":[\"\"]}", "name");
	refuse_fork("{\"names\":[7]}", "names");
	refuse_fork("{\"names\":\"a\"}", "names");
	refuse_fork("{\"snapshot\":\"../x\"}", "snapshot");
	refuse_fork("{\"env\":{\"A B\":\"x\"}}", "env");
	refuse_fork("{\"env\":{\"A\":1}}", "env");
	refuse_fork("{\"labels\":{\"k\":\"\\u0001\"}}", "label");
	refuse_fork("{\"policy\":7}", "policy");
	refuse_fork("{\"from_inside\":true}", "from_inside");
	refuse_fork("{\"cout\":3}", "cout");
	buf_add_str(&many, "{\"names\":[\"n\"");
	for (int i = 0; i < FORKS_MAX; i++)
		buf_addf(&many, ",\"n%d\"", i);
	buf_add_str(&many, "]}");
	refuse_fork(buf_str(&many), "at most 100");
	buf_done(&many);
}

/* ---- what a box is told about automatic ones ------------------------------------------------ */

static void test_auto_snapshot_is_part_of_a_box_and_of_a_change(void **state)
{
	_cleanup_json_ json_t *spec = parse("{\"auto_snapshot\":\"interval=5m\"}");
	_cleanup_json_ json_t *wrong = parse("{\"auto_snapshot\":\"interval=1s\"}");
	_cleanup_json_ json_t *change = parse("{\"auto_snapshot\":\"exec\"}");
	_cleanup_json_ json_t *wrong_change = parse("{\"auto_snapshot\":\"sometimes\"}");
	struct box_body body;
	struct box_change changed;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(box_body_read(spec, &body, &err), 0);
	assert_string_equal(body.spec.auto_snapshot, "interval=5m");
	box_body_done(&body);
	assert_int_equal(box_body_read(wrong, &body, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	box_body_done(&body);
	err_clear(&err);
	assert_int_equal(box_change_read(change, &changed, &err), 0);
	assert_string_equal(changed.auto_snapshot, "exec");
	assert_false(changed.has_limits);
	assert_int_equal(box_change_read(wrong_change, &changed, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_snapshot_body_is_by_request_and_safe_unless_told),
		cmocka_unit_test(test_snapshot_body_refuses),
		cmocka_unit_test(test_rollback_body_names_a_snapshot_or_none),
		cmocka_unit_test(test_fork_body_is_read_whole),
		cmocka_unit_test(test_fork_body_refuses),
		cmocka_unit_test(test_auto_snapshot_is_part_of_a_box_and_of_a_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
