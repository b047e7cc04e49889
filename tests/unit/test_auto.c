/* test_auto.c - when snapshots are taken by themselves: what may be said, and how it is kept */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "core/time/auto.h"

static void expect(const char *text, enum auto_kind kind, uint64_t seconds, const char *kept)
{
	struct auto_snapshot when = { AUTO_OFF, 99 };
	_cleanup_free_ char *again = NULL;
	struct err err = ERR_INIT;

	if (auto_snapshot_parse(text, &when, &err) < 0)
		fail_msg("refused '%s': %s", text, err.message);
	assert_int_equal(when.kind, kind);
	assert_int_equal(when.interval_s, seconds);
	again = auto_snapshot_text(&when);
	assert_string_equal(again, kept);
}

static void test_auto_takes_off_exec_and_intervals(void **state)
{
	(void)state;
	expect("", AUTO_OFF, 0, "off");
	expect("off", AUTO_OFF, 0, "off");
	expect("exec", AUTO_EXEC, 0, "exec");
	expect("interval=5m", AUTO_INTERVAL, 300, "interval=300");
	expect("interval=300", AUTO_INTERVAL, 300, "interval=300");
	expect("interval=10", AUTO_INTERVAL, 10, "interval=10");
	expect("interval=10500ms", AUTO_INTERVAL, 10, "interval=10");
	expect("interval=30d", AUTO_INTERVAL, 30 * 86400, "interval=2592000");
}

static void test_auto_refuses_the_rest_and_says_what_there_is(void **state)
{
	static const char *const bad[] = { "on", "Exec", "exec ", " off", "interval",
		"interval=", "interval=9", "interval=9s", "interval=9999ms", "interval=0",
		"interval=-5", "interval=31d", "interval=2592001", "interval=5x", "interval=5m ",
		"interval=1e9", "interval=99999999999999999999", "interval= 60",
		"exec,interval=60" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct auto_snapshot when = { AUTO_EXEC, 7 };
		struct err err = ERR_INIT;

		if (auto_snapshot_parse(bad[i], &when, &err) == 0)
			fail_msg("taken: '%s'", bad[i]);
		assert_int_equal(err.kind, ERR_INVALID);
		assert_non_null(strstr(err.message, "auto_snapshot"));
		/* Nothing is written on failure. */
		assert_int_equal(when.kind, AUTO_EXEC);
		assert_int_equal(when.interval_s, 7);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_auto_takes_off_exec_and_intervals),
		cmocka_unit_test(test_auto_refuses_the_rest_and_says_what_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
