/* test_ssh_control.c - commands over SSH: our own command line, which asks the API as its
 * principal */
#include "ssh_control_fixture.h"

/* ---- words ---------------------------------------------------------------------------------- */

static void test_logins_are_words(void **state)
{
	static const struct {
		const char *login, *command;
		bool tty;
		const char *words[10];
	} cases[] = {
		{ "box", NULL, true, { NULL } },
		{ "box", "ls --json", false, { "ls", "--json" } },
		{ "box", "exec ada -- sh -c 'a b'", false,
			{ "exec", "ada", "--", "sh", "-c", "a b" } },
		{ "new", NULL, true, { "enter", "new" } },
		{ "new", "make 'x y'", false, { "enter", "new", "--", "make 'x y'" } },
		{ "fork+ada", NULL, true, { "enter", "fork", "ada" } },
		{ "fork+ada", "--json", false, { "enter", "fork", "ada", "--", "--json" } },
		{ "try+ada", "a; b", false, { "try", "-i", "ada", "--", "/bin/sh", "-c", "a; b" } },
		{ "try+ada", "a", true, { "try", "-it", "ada", "--", "/bin/sh", "-c", "a" } },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		_cleanup_strv_ char **words = NULL;
		struct login_name name;
		struct err err = ERR_INIT;

		assert_int_equal(
			login_name_parse(cases[i].login, strlen(cases[i].login), &name, &err), 0);
		assert_int_equal(
			control_words(&name, cases[i].command, cases[i].tty, &words, &err), 0);
		for (size_t j = 0; cases[i].words[j]; j++) {
			assert_non_null(words[j]);
			assert_string_equal(words[j], cases[i].words[j]);
		}
		assert_int_equal(strv_len((const char *const *)words),
			strv_len((const char *const *)cases[i].words));
	}
}

static void test_logins_without_meaning_are_refused(void **state)
{
	const struct login_name box = { .kind = LOGIN_BOX, .box = "ada" };
	const struct login_name try = { .kind = LOGIN_TRY, .box = "ada" };
	const struct login_name control = { .kind = LOGIN_CONTROL };
	char **words = NULL;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(control_words(&box, "ls", false, &words, &err), -1);
	assert_int_equal(control_words(&try, NULL, true, &words, &err), -1);
	assert_int_equal(control_words(&control, "ls 'a", false, &words, &err), -1);
	assert_null(words);
}

/* ---- commands ------------------------------------------------------------------------------- */

static void test_commands_work_as_the_principal(void **state)
{
	struct principal ann = login("create", "");

	(void)state;
	make_box("ours"); /* the daemon's own */
	expect(&ann, "ls --names", NULL, 0, "");
	expect(&ann, "new ada", NULL, 0, "ada");
	expect(&ann, "box ls --names", NULL, 0, "ada");
	expect(&ann, "show ours", NULL, 66, "no box 'ours'");
	expect(&ann, "show ada --json", NULL, 0, "\"owner\":\"ann\"");
	expect(&ann, "token create x", NULL, 77, "role");
	expect(&ann, "frok ada", NULL, 64, "did you mean 'fork'");
	expect(&ann, "rm -f ada", NULL, 0, "ada");
}

static void test_help_lists_what_works_over_ssh(void **state)
{
	struct principal ann = login("create", "");
	struct run run;

	(void)state;
	start(&run, &ann, NULL, false);
	shutdown(run.ends.data, SHUT_WR);
	wait_for_end(&run);
	assert_int_equal(run.code, 0);
	assert_non_null(strstr(buf_str(&run.out), "\n  snapshot "));
	assert_null(strstr(buf_str(&run.out), "\n  serve "));
	assert_null(strstr(buf_str(&run.out), "\n  context "));
	run_done(&run);
}

static void test_a_role_is_enforced(void **state)
{
	struct principal ann = login("read", "");

	(void)state;
	expect(&ann, "ls", NULL, 0, "");
	expect(&ann, "new ada", NULL, 77, "the role of the key laptop does not allow this");
}

static void test_a_bound_key_sees_its_box_alone(void **state)
{
	struct principal ann = login("create", ""), bound = ann;

	(void)state;
	expect(&ann, "new ada", NULL, 0, "ada");
	expect(&ann, "new bob", NULL, 0, "bob");
	{
		_cleanup_json_ json_t *removed = NULL;

		assert_int_equal(store_key_remove(yard_get_store(test.yard), SAMPLE_FINGERPRINT,
					 &removed, NULL),
			0);
	}
	/* A removed key opens nothing, whatever is still attached to it. */
	expect(&ann, "ls", NULL, 77, "not valid any more");
	bound = login("exec", "ada");
	expect(&bound, "ls --names", NULL, 0, "ada\n");
	expect(&bound, "show bob", NULL, 66, "no box 'bob'");
	expect(&bound, "new eve", NULL, 77, "role");
	expect(&bound, "rm -f ada", NULL, 77, "role");
}

static void test_files_come_by_stdin_and_others_are_refused(void **state)
{
	static const char *const refused[] = { "cp /etc/passwd ada:/x", "cp ada:/x .",
		"new --copy . eve", "new --mount /etc:/x eve", "image import /x.tar", "up", "down",
		"attack", "bench", "serve", "context ls", "policy edit ada",
		"policy check /etc/passwd", "policy set ada x.yaml", "workspace get ada",
		"image export debian -o x", "gate", "control", "audit --verify --folder /",
		"image build -f Boxfile" };
	struct principal ann = login("create", "");

	(void)state;
	expect(&ann, "new ada", NULL, 0, "ada");
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		expect(&ann, refused[i], NULL, 69, "over ssh");
	expect(&ann, "policy check -", "version: 1\nallow: x\n", 64, "");
	expect(&ann, "policy set ada -", "preset: none\n", 0, "");
	expect(&ann, "policy show ada", NULL, 0, "none");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_logins_are_words),
		cmocka_unit_test(test_logins_without_meaning_are_refused),
		CONTROL_TEST(test_commands_work_as_the_principal),
		CONTROL_TEST(test_help_lists_what_works_over_ssh),
		CONTROL_TEST(test_a_role_is_enforced),
		CONTROL_TEST(test_a_bound_key_sees_its_box_alone),
		CONTROL_TEST(test_files_come_by_stdin_and_others_are_refused),
	};
	int code;

	if (yard_is_gate(argc, argv, &code))
		return code;
	return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
