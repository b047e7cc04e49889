/* test_login_name.c - what the user name of an SSH login means */
#include "core/login_name.h"
#include "base/alloc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_login_names_mean_what_they_say(void **state)
{
	static const struct {
		const char *text;
		enum login_kind kind;
		const char *box, *user;
	} names[] = {
		{ "ada", LOGIN_BOX, "ada", "" },
		{ "ada+root", LOGIN_BOX, "ada", "root" },
		{ "a-1+www-data", LOGIN_BOX, "a-1", "www-data" },
		{ "ada+1000", LOGIN_BOX, "ada", "1000" },
		{ "box", LOGIN_CONTROL, "", "" },
		{ "new", LOGIN_NEW, "", "" },
		{ "fork+ada", LOGIN_FORK, "ada", "" },
		{ "try+ada", LOGIN_TRY, "ada", "" },
		{ "boxer", LOGIN_BOX, "boxer", "" },
		/* boxes of old homes with names that are reserved now */
		{ "fork+new", LOGIN_FORK, "new", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct login_name name = { 0 };
		struct err err = ERR_INIT;

		if (login_name_parse(names[i].text, strlen(names[i].text), &name, &err) < 0)
			fail_msg("%s: %s", names[i].text, err.message);
		assert_int_equal(name.kind, names[i].kind);
		assert_string_equal(name.box, names[i].box);
		assert_string_equal(name.user, names[i].user);
	}
}

static void test_login_names_with_odd_bytes_are_refused(void **state)
{
	static const char *const names[] = { "", "+", "ada+", "+root", "ada+root+x", "fork", "try",
		"fork+", "box+ada", "new+ada", "Ada", "../ada", "ada\n", "ada root", "ada+ro ot",
		"ada+-x", "ada+..", "-ada", "ada-", "ada;id", "$(id)", "ada+root;id", "ad\xc3\xa4",
		"ada+\xff", "0", "ada/b", "ada:b", "fork+ada+root", "%n", "ada@b",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"ada+aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	char nul[] = "ada\0b", longest[4096];
	struct login_name name;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct err err = ERR_INIT;

		if (login_name_parse(names[i], strlen(names[i]), &name, &err) == 0)
			fail_msg("'%s' was taken", names[i]);
		assert_int_equal(err.kind, ERR_INVALID);
	}
	assert_int_equal(login_name_parse(nul, sizeof nul - 1, &name, NULL), -1);
	memset(longest, 'a', sizeof longest);
	assert_int_equal(login_name_parse(longest, sizeof longest, &name, NULL), -1);
}

static void test_names_of_logins_are_no_names_of_boxes(void **state)
{
	(void)state;
	assert_true(login_name_is_reserved("box"));
	assert_true(login_name_is_reserved("new"));
	assert_true(login_name_is_reserved("fork"));
	assert_true(login_name_is_reserved("try"));
	assert_false(login_name_is_reserved("ada"));
	assert_false(login_name_is_reserved("boxes"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_login_names_mean_what_they_say),
		cmocka_unit_test(test_login_names_with_odd_bytes_are_refused),
		cmocka_unit_test(test_names_of_logins_are_no_names_of_boxes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
