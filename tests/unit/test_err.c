/* test_err.c - errors carry their story */
#include "base/err.h"
#include "base/alloc.h"
#include <errno.h>
#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_err_grows_a_prefix_at_each_level(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(err_sys(&err, ENOENT, "open '%s'", "x"), -1);
	assert_int_equal(err_wrap(&err, "start box '%s'", "ada"), -1);
	assert_string_equal(err.message, "start box 'ada': open 'x': No such file or directory");
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_int_equal(err.errno_value, ENOENT);
}

static void test_err_set_forgets_an_earlier_error(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	err_sys(&err, EACCES, "open");
	err_hint(&err, "ask root");
	err_set(&err, ERR_INVALID, "bad");
	assert_int_equal(err.errno_value, 0);
	assert_string_equal(err.hint, "");
	assert_string_equal(err.message, "bad");
}

static void test_err_hint_leaves_the_message_alone(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	err_set(&err, ERR_STATE, "box 'ada' is stopped");
	err_hint(&err, "box start %s", "ada");
	err_wrap(&err, "exec");
	assert_string_equal(err.message, "exec: box 'ada' is stopped");
	assert_string_equal(err.hint, "box start ada");
}

static void test_err_cuts_what_is_too_long(void **state)
{
	struct err err = ERR_INIT;
	char long_text[2000];

	(void)state;
	memset(long_text, 'x', sizeof long_text - 1);
	long_text[sizeof long_text - 1] = '\0';
	err_sys(&err, EIO, "%s", long_text);
	assert_int_equal(strlen(err.message), sizeof err.message - 1);
	err_wrap(&err, "%s", long_text);
	assert_int_equal(strlen(err.message), sizeof err.message - 1);
	err_hint(&err, "%s", long_text);
	assert_int_equal(strlen(err.hint), sizeof err.hint - 1);
}

static void test_err_may_be_null(void **state)
{
	(void)state;
	assert_int_equal(err_set(NULL, ERR_LIMIT, "x"), -1);
	assert_int_equal(err_sys(NULL, EIO, "x"), -1);
	assert_int_equal(err_wrap(NULL, "x"), -1);
	assert_int_equal(err_hint(NULL, "x"), -1);
}

static void test_err_kind_follows_the_errno(void **state)
{
	static const struct {
		int number;
		enum err_kind kind;
	} rows[] = { { ENOENT, ERR_NOT_FOUND }, { ESRCH, ERR_NOT_FOUND }, { EEXIST, ERR_EXISTS },
		{ ENOTEMPTY, ERR_EXISTS }, { EINVAL, ERR_INVALID }, { ELOOP, ERR_INVALID },
		{ EACCES, ERR_FORBIDDEN }, { EPERM, ERR_FORBIDDEN }, { EROFS, ERR_FORBIDDEN },
		{ ENOSPC, ERR_LIMIT }, { EMFILE, ERR_LIMIT }, { ENOMEM, ERR_LIMIT },
		{ ETIMEDOUT, ERR_TIMEOUT }, { ENOSYS, ERR_UNSUPPORTED },
		{ ECONNREFUSED, ERR_UNAVAILABLE }, { EPIPE, ERR_UNAVAILABLE },
		{ EIO, ERR_SYSTEM } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err err = ERR_INIT;

		err_sys(&err, rows[i].number, "x");
		assert_int_equal(err.kind, rows[i].kind);
	}
}

static void test_err_every_kind_has_code_status_and_exit_code(void **state)
{
	(void)state;
	for (int kind = ERR_NONE + 1; kind < ERR_KIND_COUNT; kind++) {
		assert_int_equal(err_kind_from_code(err_kind_code(kind)), kind);
		assert_in_range(err_kind_http_status(kind), 400, 599);
		assert_in_range(err_kind_exit_code(kind), 64, 79);
	}
	assert_string_equal(err_kind_code(ERR_NOT_FOUND), "not_found");
	assert_int_equal(err_kind_http_status(ERR_NOT_FOUND), 404);
}

static void test_err_unknown_kinds_and_codes_are_system_errors(void **state)
{
	(void)state;
	assert_int_equal(err_kind_from_code("no such code"), ERR_SYSTEM);
	assert_int_equal(err_kind_from_code(""), ERR_SYSTEM);
	assert_string_equal(err_kind_code(ERR_KIND_COUNT), "system");
	assert_string_equal(err_kind_code((enum err_kind) - 1), "system");
	assert_int_equal(err_kind_http_status(999), 500);
	assert_int_equal(err_kind_exit_code(999), 71);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_err_grows_a_prefix_at_each_level),
		cmocka_unit_test(test_err_set_forgets_an_earlier_error),
		cmocka_unit_test(test_err_hint_leaves_the_message_alone),
		cmocka_unit_test(test_err_cuts_what_is_too_long),
		cmocka_unit_test(test_err_may_be_null),
		cmocka_unit_test(test_err_kind_follows_the_errno),
		cmocka_unit_test(test_err_every_kind_has_code_status_and_exit_code),
		cmocka_unit_test(test_err_unknown_kinds_and_codes_are_system_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
