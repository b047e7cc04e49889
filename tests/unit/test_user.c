/* test_user.c - who a program runs as */
#include "guest/user.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char passwd_text[] = "# comment\n"
				  "root:x:0:0:root:/root:/bin/bash\n"
				  "broken:x:notanumber:1::/:/bin/sh\n"
				  "short:x:1\n"
				  "\n"
				  "ada:x:1000:1000:Ada,,,:/home/ada:/bin/zsh\n"
				  "bare:x:1001:1001:::";
static const char group_text[] = "root:x:0:\n"
				 "tty:x:5:ada\n"
				 "sudo:x:27:bob,ada\n"
				 "adaptive:x:28:adam\n"
				 "ada:x:1000:";

static int look(const char *spec, struct user *ret, struct err *err)
{
	char *passwd = strdup(passwd_text), *group = strdup(group_text);
	int status = user_lookup(passwd, group, spec, ret, err);

	free(passwd);
	free(group);
	return status;
}

static void test_user_defaults_to_root(void **state)
{
	struct user user;
	char none[1] = "", nothing[1] = "";

	(void)state;
	assert_int_equal(look("", &user, NULL), 0);
	assert_int_equal(user.uid, 0);
	assert_string_equal(user.home, "/root");
	assert_string_equal(user.shell, "/bin/bash");
	/* A box without these files still has a root. */
	assert_int_equal(user_lookup(none, nothing, "", &user, NULL), 0);
	assert_string_equal(user.name, "root");
	assert_string_equal(user.home, "/root");
}

static void test_user_by_name_with_groups(void **state)
{
	struct user user;

	(void)state;
	assert_int_equal(look("ada", &user, NULL), 0);
	assert_int_equal(user.uid, 1000);
	assert_int_equal(user.gid, 1000);
	assert_string_equal(user.shell, "/bin/zsh");
	assert_int_equal(user.group_count, 3);
	assert_int_equal(user.groups[0], 5);
	assert_int_equal(user.groups[1], 27);
	assert_int_equal(user.groups[2], 1000);
	assert_int_equal(look("ada:sudo", &user, NULL), 0);
	assert_int_equal(user.gid, 27);
	assert_int_equal(look("ada:4242", &user, NULL), 0);
	assert_int_equal(user.gid, 4242);
}

static void test_user_by_number(void **state)
{
	struct user user;

	(void)state;
	assert_int_equal(look("1000", &user, NULL), 0);
	assert_string_equal(user.name, "ada");
	assert_int_equal(look("7:8", &user, NULL), 0);
	assert_int_equal(user.uid, 7);
	assert_int_equal(user.gid, 8);
	assert_string_equal(user.home, "/");
	assert_int_equal(look("1001", &user, NULL), 0);
	assert_string_equal(user.shell, "/bin/sh");
	assert_string_equal(user.home, "/");
}

static void test_user_that_does_not_exist_is_named(void **state)
{
	const char *const specs[] = { "bob", "broken", "short", "#", "4294967295", "99999999999",
		"-1", "ada:none", ":tty" };
	struct user user;

	(void)state;
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct err err = ERR_INIT;

		assert_int_equal(look(specs[i], &user, &err), -1);
		assert_int_equal(err.kind, ERR_NOT_FOUND);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_user_defaults_to_root),
		cmocka_unit_test(test_user_by_name_with_groups),
		cmocka_unit_test(test_user_by_number),
		cmocka_unit_test(test_user_that_does_not_exist_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
