/* test_dns_synthetic.c - names and the addresses that stand for them: stable, bounded, stored */
#include "base/clock.h"
#include "net/synthetic.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct address assign(struct synthetic *map, const char *name)
{
	struct address v4, v6;
	struct err err = ERR_INIT;

	if (synthetic_assign(map, name, &v4, &v6, &err) < 0)
		fail_msg("%s: %s", name, err.message);
	return v4;
}

static struct address assign_number(struct synthetic *map, unsigned number)
{
	char name[32];

	snprintf(name, sizeof name, "n%u.test", number);
	return assign(map, name);
}

static void test_name_has_one_address_of_each_family(void **state)
{
	struct synthetic *map = synthetic_new(0);
	struct address v4, v6, again4, again6;
	char text[ADDRESS_TEXT_MAX];

	(void)state;
	assert_int_equal(synthetic_assign(map, "a.test", &v4, &v6, NULL), 0);
	assert_int_equal(synthetic_assign(map, "A.Test.", &again4, &again6, NULL), 0);
	assert_true(address_equal(&v4, &again4) && address_equal(&v6, &again6));
	assert_string_equal(address_format(&v4, text), "198.18.1.0");
	assert_string_equal(address_format(&v6, text), "fd62:6f78:7961:7264::100");
	assert_string_equal(synthetic_name(map, &v4), "a.test");
	assert_string_equal(synthetic_name(map, &v6), "a.test");
	assert_true(address_is_synthetic(&v4) && address_is_synthetic(&v6));
	again4 = assign(map, "b.test");
	assert_false(address_equal(&v4, &again4));
	assert_int_equal(synthetic_count(map), 2);
	synthetic_free(map);
}

static void test_other_addresses_stand_for_nothing(void **state)
{
	static const char *const others[] = { "198.18.0.0", "198.18.0.1", "198.18.1.1",
		"198.19.255.255", "198.20.1.0", "198.17.1.0", "10.18.1.0",
		"fd62:6f78:7961:7264::", "fd62:6f78:7961:7264::101", "fd62:6f78:7961:7264:1::100",
		"fd62:6f78:7961:7265::100", "fd62:6f78:7961:7264::1:0:100",
		"fd62:6f78:7961:7264::100:0", "::ffff:198.18.1.0" };
	struct synthetic *map = synthetic_new(0);
	struct address address;

	(void)state;
	assign(map, "a.test");
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		assert_true(address_parse(others[i], &address));
		if (synthetic_name(map, &address))
			fail_msg("%s stands for a name", others[i]);
		assert_false(synthetic_hold(map, &address));
	}
	address = (struct address){ 0 };
	assert_null(synthetic_name(map, &address));
	synthetic_free(map);
}

static void test_what_is_no_host_name_is_refused(void **state)
{
	struct synthetic *map = synthetic_new(0);
	struct address v4, v6;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(synthetic_assign(map, "a..b", &v4, &v6, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	assert_int_equal(synthetic_assign(map, "a\\046b", &v4, &v6, NULL), -1);
	assert_int_equal(synthetic_count(map), 0);
	synthetic_free(map);
}

static void test_longest_unused_name_goes_and_held_ones_stay(void **state)
{
	struct synthetic *map = synthetic_new(3);
	struct address a = assign(map, "a.test"), b = assign(map, "b.test"), v4, v6;
	struct address c = assign(map, "c.test"), d;
	struct err err = ERR_INIT;

	(void)state;
	assert_true(synthetic_hold(map, &a));
	assert_true(synthetic_hold(map, &a));
	assign(map, "b.test"); /* c is the longest unused that nobody holds */
	d = assign(map, "d.test");
	assert_null(synthetic_name(map, &c));
	assert_string_equal(synthetic_name(map, &a), "a.test");
	assert_string_equal(synthetic_name(map, &b), "b.test");
	assert_false(address_equal(&c, &d)); /* the address rests */
	assert_true(synthetic_hold(map, &b) && synthetic_hold(map, &d));
	assert_int_equal(synthetic_assign(map, "e.test", &v4, &v6, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	assign(map, "a.test"); /* known names are not affected */
	synthetic_release(map, &a);
	assert_int_equal(synthetic_assign(map, "e.test", &v4, &v6, NULL), -1);
	synthetic_release(map, &a); /* the last one */
	assign(map, "e.test");
	assert_null(synthetic_name(map, &a));
	synthetic_free(map);
}

/* Many more names than addresses: no two live names share one, a held one is never given away. */
static void test_addresses_go_round_without_clashes(void **state)
{
	struct synthetic *map = synthetic_new(1000);
	struct address held = assign(map, "held.test"), last = { 0 };

	(void)state;
	assert_true(synthetic_hold(map, &held));
	for (unsigned i = 0; i < 3 * SYNTHETIC_COUNT; i++) {
		last = assign_number(map, i);
		assert_false(address_equal(&held, &last));
	}
	assert_int_equal(synthetic_count(map), 1000);
	assert_string_equal(synthetic_name(map, &held), "held.test");
	for (unsigned i = 3 * SYNTHETIC_COUNT - 999; i < 3 * SYNTHETIC_COUNT; i++) {
		char name[32];

		last = assign_number(map, i);
		snprintf(name, sizeof name, "n%u.test", i);
		assert_string_equal(synthetic_name(map, &last), name);
	}
	synthetic_free(map);
}

static void test_map_survives_being_stored(void **state)
{
	struct synthetic *map = synthetic_new(4), *again = NULL;
	struct address held = assign(map, "held.test"), address, other;
	_cleanup_free_ char *text = NULL;
	_cleanup_free_ char *text_again = NULL;
	struct err err = ERR_INIT;
	json_t *saved, *saved_again;

	(void)state;
	for (unsigned i = 0; i < 10; i++)
		assign_number(map, i);
	synthetic_hold(map, &held);
	held = assign(map, "held.test");
	synthetic_hold(map, &held);
	saved = synthetic_save(map);
	text = json_text(saved);
	json_decref(saved);
	saved = json_parse(text, strlen(text), &err);
	assert_int_equal(synthetic_load(saved, 4, &again, &err), 0);
	saved_again = synthetic_save(again);
	text_again = json_text(saved_again);
	assert_string_equal(text, text_again);
	assert_string_equal(synthetic_name(again, &held), "held.test");
	/* both go on alike */
	for (unsigned i = 5; i < 20; i++) {
		address = assign_number(map, i);
		other = assign_number(again, i);
		if (i < 9)
			assert_true(address_equal(&address, &other));
	}
	json_decref(saved);
	json_decref(saved_again);
	synthetic_free(map);
	synthetic_free(again);
}

/* A gate that died had given out more than it told. Whoever goes on with what is known, and knows
 * how much was reserved, gives none of these to another name; also when all numbers went round
 * already. */
static void test_lost_addresses_are_nobodys(void **state)
{
	static const unsigned before[] = { 3, SYNTHETIC_COUNT + 50 };

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(before); k++) {
		struct synthetic *map = synthetic_new(100), *again = NULL;
		struct address lost[20], known;
		_cleanup_json_ json_t *saved = NULL;
		struct err err = ERR_INIT;
		uint64_t reserved;

		for (unsigned i = 0; i < before[k]; i++)
			assign_number(map, i);
		known = assign(map, "known.test");
		saved = synthetic_save(map);
		reserved = synthetic_given(map) + 20;
		synthetic_reserve(map, reserved);
		for (unsigned i = 0; i < 20; i++)
			lost[i] = assign_number(map, 1000000 + i);
		assert_int_equal(synthetic_assign(map, "more.test", &known, &known, &err), -1);
		assert_int_equal(err.kind, ERR_LIMIT);
		known = assign(map, "known.test"); /* that has one already */

		err = (struct err)ERR_INIT;
		assert_int_equal(synthetic_load(saved, 100, &again, &err), 0);
		synthetic_skip(again, reserved);
		assert_int_equal(synthetic_given(again), reserved);
		assert_string_equal(synthetic_name(again, &known), "known.test");
		for (unsigned i = 0; i < 1000; i++) {
			struct address next = assign_number(again, 2000000 + i);

			for (unsigned j = 0; j < 20; j++)
				assert_false(address_equal(&next, &lost[j]));
		}
		json_decref(saved);
		saved = synthetic_save(again);
		synthetic_free(map);
		map = NULL;
		assert_int_equal(synthetic_load(saved, 100, &map, &err), 0);
		assert_int_equal(synthetic_given(map), reserved + 1000);
		synthetic_free(map);
		synthetic_free(again);
	}
}

static void test_map_of_before_reservations_is_read(void **state)
{
	static const char old[] = "{\"version\":1,\"next\":259,\"names\":[[\"a.test\",257]],"
				  "\"resting\":[258,256]}";
	_cleanup_json_ json_t *saved = json_parse(old, strlen(old), NULL);
	struct synthetic *map = NULL;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(synthetic_load(saved, 0, &map, &err), 0);
	assert_int_equal(synthetic_given(map), 3);
	synthetic_free(map);
}

static void test_bad_maps_are_refused(void **state)
{
	static const char *const bad[] = {
		"[]",
		"{}",
		"{\"version\":2,\"next\":256,\"names\":[],\"resting\":[]}",
		"{\"version\":1,\"next\":255,\"names\":[],\"resting\":[]}",
		"{\"version\":1,\"next\":131073,\"names\":[],\"resting\":[]}",
		"{\"version\":1,\"next\":257,\"names\":[],\"resting\":[]}",
		"{\"version\":1,\"next\":257,\"names\":{},\"resting\":[256]}",
		"{\"version\":1,\"next\":257,\"names\":[],\"resting\":[257]}",
		"{\"version\":1,\"next\":257,\"names\":[],\"resting\":[\"256\"]}",
		"{\"version\":1,\"next\":258,\"names\":[],\"resting\":[256,256]}",
		"{\"version\":1,\"next\":258,\"names\":[[\"a.test\",256]],\"resting\":[256]}",
		"{\"version\":1,\"next\":258,\"names\":[[\"a.test\",256],[\"a.test\",257]],"
		"\"resting\":[]}",
		"{\"version\":1,\"next\":257,\"names\":[[\"A.test\",256]],\"resting\":[]}",
		"{\"version\":1,\"next\":257,\"names\":[[\"a..b\",256]],\"resting\":[]}",
		"{\"version\":1,\"next\":257,\"names\":[[\"a.test\",256,1]],\"resting\":[]}",
		"{\"version\":1,\"next\":257,\"names\":[[\"a.test\",-1]],\"resting\":[]}",
		"{\"version\":1,\"next\":256,\"names\":[],\"resting\":[],\"more\":1}",
		"{\"version\":3,\"given\":0,\"names\":[],\"resting\":[]}",
		"{\"version\":2,\"given\":-1,\"names\":[],\"resting\":[]}",
		"{\"version\":2,\"given\":9007199254740993,\"names\":[],\"resting\":[]}",
		"{\"version\":2,\"given\":1,\"names\":[],\"resting\":[]}",
		"{\"version\":2,\"given\":4,\"names\":[],\"resting\":[[256,3],257]}",
		"{\"version\":2,\"given\":4,\"names\":[],\"resting\":[[256,5]]}",
		"{\"version\":2,\"given\":4,\"names\":[],\"resting\":[[257,4]]}",
		"{\"version\":2,\"given\":4,\"names\":[],\"resting\":[[256,0],[256,4]]}",
		"{\"version\":2,\"given\":4,\"names\":[],\"resting\":[[256,4,0]]}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		_cleanup_json_ json_t *saved = json_parse(bad[i], strlen(bad[i]), NULL);
		struct synthetic *map = NULL;
		struct err err = ERR_INIT;

		assert_non_null(saved);
		if (synthetic_load(saved, 0, &map, &err) == 0)
			fail_msg("%s was taken", bad[i]);
		assert_int_equal(err.kind, ERR_INVALID);
	}
}

static void test_version_tells_when_to_store(void **state)
{
	struct synthetic *map = synthetic_new(0);
	uint64_t before = synthetic_version(map);

	(void)state;
	assign(map, "a.test");
	assert_true(synthetic_version(map) != before);
	before = synthetic_version(map);
	assign(map, "a.test");
	assert_true(synthetic_version(map) == before);
	synthetic_free(map);
}

static void test_figure_full_map(void **state)
{
	struct synthetic *map = synthetic_new(0);
	int64_t start = clock_mono_us();
	struct address address;
	size_t found = 0;
	json_t *saved;

	(void)state;
	for (unsigned i = 0; i < SYNTHETIC_NAMES_MAX; i++)
		assign_number(map, i);
	print_message("assign a new name: %.3f us\n",
		(double)(clock_mono_us() - start) / SYNTHETIC_NAMES_MAX);
	start = clock_mono_us();
	for (unsigned i = 0; i < SYNTHETIC_NAMES_MAX; i++) {
		address = assign_number(map, i);
		found += synthetic_name(map, &address) != NULL;
	}
	assert_int_equal(found, SYNTHETIC_NAMES_MAX);
	print_message("find both ways in a full map: %.3f us\n",
		(double)(clock_mono_us() - start) / SYNTHETIC_NAMES_MAX);
	start = clock_mono_us();
	saved = synthetic_save(map);
	print_message("save a full map: %.1f ms\n", (double)(clock_mono_us() - start) / 1000);
	json_decref(saved);
	synthetic_free(map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name_has_one_address_of_each_family),
		cmocka_unit_test(test_other_addresses_stand_for_nothing),
		cmocka_unit_test(test_what_is_no_host_name_is_refused),
		cmocka_unit_test(test_longest_unused_name_goes_and_held_ones_stay),
		cmocka_unit_test(test_addresses_go_round_without_clashes),
		cmocka_unit_test(test_map_survives_being_stored),
		cmocka_unit_test(test_lost_addresses_are_nobodys),
		cmocka_unit_test(test_map_of_before_reservations_is_read),
		cmocka_unit_test(test_bad_maps_are_refused),
		cmocka_unit_test(test_version_tells_when_to_store),
		cmocka_unit_test(test_figure_full_map),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
