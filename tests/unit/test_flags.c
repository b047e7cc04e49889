/* test_flags.c - options by a table: every spelling that works, and every one that does not */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/near.h"
#include "cli/flags.h"

static const struct flag table[] = {
	{ "env", 'e', "KEY=VALUE", "" },
	{ "interactive", 'i', NULL, "" },
	{ "tty", 't', NULL, "" },
	{ "memory", 'm', "SIZE", "" },
	{ NULL, 0, NULL, NULL },
};
static const struct flag common[] = { { "json", 0, NULL, "" }, { NULL, 0, NULL, NULL } };

static int parse(
	enum flags_mode mode, struct flags *flags, struct err *err, const char *const *words)
{
	int count = 0;

	while (words[count])
		count++;
	return flags_parse(table, common, mode, 1, count, (char **)words, flags, err);
}

#define PARSE(mode, flags, err, ...) \
	parse((mode), (flags), (err), (const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL })

static void assert_refused(
	const char *message, const char *hint, const char *first, const char *second)
{
	struct flags flags;
	struct err err = ERR_INIT;

	assert_int_equal(PARSE(FLAGS_ANYWHERE, &flags, &err, first, second), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	assert_non_null(strstr(err.message, message));
	assert_string_equal(err.hint, hint);
}

static void test_flags_take_values_in_every_spelling(void **state)
{
	struct flags flags;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(PARSE(FLAGS_ANYWHERE, &flags, &err, "--env", "A=1", "-e", "B=2", "-eC=3",
				 "--env=D=4", "-e=E=5"),
		0);
	assert_string_equal(flags_nth(&flags, "env", 0), "A=1");
	assert_string_equal(flags_nth(&flags, "env", 1), "B=2");
	assert_string_equal(flags_nth(&flags, "env", 2), "C=3");
	assert_string_equal(flags_nth(&flags, "env", 3), "D=4");
	assert_string_equal(flags_nth(&flags, "env", 4), "E=5");
	assert_null(flags_nth(&flags, "env", 5));
	assert_string_equal(flags_get(&flags, "env"), "E=5");
	assert_null(flags_get(&flags, "memory"));
	flags_done(&flags);
}

static void test_flags_bundle_switches(void **state)
{
	struct flags flags;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(PARSE(FLAGS_ANYWHERE, &flags, &err, "-itm", "1G", "box", "--json"), 0);
	assert_true(flags_has(&flags, "interactive"));
	assert_true(flags_has(&flags, "tty"));
	assert_true(flags_has(&flags, "json"));
	assert_string_equal(flags_get(&flags, "memory"), "1G");
	assert_int_equal(flags.word_count, 1);
	assert_string_equal(flags.words[0], "box");
	assert_null(flags.words[1]);
	flags_done(&flags);
}

static void test_flags_end_at_two_dashes(void **state)
{
	struct flags flags;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(
		PARSE(FLAGS_ANYWHERE, &flags, &err, "box", "--", "ls", "-t", "--", "--nope"), 0);
	assert_int_equal(flags.dash_at, 1);
	assert_int_equal(flags.word_count, 5);
	assert_string_equal(flags.words[3], "--");
	assert_false(flags_has(&flags, "tty"));
	flags_done(&flags);
}

static void test_flags_leave_the_program_its_own(void **state)
{
	struct flags flags;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(
		PARSE(FLAGS_STOP, &flags, &err, "-i", "box", "-t", "ls", "-m", "--json", "--"), 0);
	assert_true(flags_has(&flags, "tty"));
	assert_false(flags_has(&flags, "json"));
	assert_int_equal(flags.word_count, 5);
	assert_string_equal(flags.words[4], "--");
	assert_int_equal(flags.dash_at, -1);
	flags_done(&flags);
}

static void test_flags_take_a_lone_dash_for_a_word(void **state)
{
	struct flags flags;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(PARSE(FLAGS_ANYWHERE, &flags, &err, "-", "ada:/x"), 0);
	assert_int_equal(flags.word_count, 2);
	flags_done(&flags);
}

static void test_flags_refuse_what_is_not_in_the_table(void **state)
{
	(void)state;
	assert_refused("'--memroy'", "did you mean '--memory'?", "--memroy=1", NULL);
	assert_refused("'--jsno'", "did you mean '--json'?", "--jsno", NULL);
	assert_refused("'--zzzzzzzz'", "", "--zzzzzzzz", NULL);
	assert_refused("'-x'", "", "-ix", NULL);
	assert_refused("needs a value", "", "--memory", NULL);
	assert_refused("needs a value", "", "-im", NULL);
	assert_refused("takes no value", "", "--tty=yes", NULL);
}

static void test_distance_counts_a_swap_once(void **state)
{
	(void)state;
	assert_int_equal(text_distance("exec", "exec"), 0);
	assert_int_equal(text_distance("exce", "exec"), 1);
	assert_int_equal(text_distance("", "abc"), 3);
	assert_int_equal(text_distance("stp", "stop"), 1);
	assert_true(text_is_near("shwo", "show"));
	assert_false(text_is_near("ls", "ps-all"));
	/* far too long to be near anything, and within the bound of the tables */
	assert_false(text_is_near("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ls"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flags_take_values_in_every_spelling),
		cmocka_unit_test(test_flags_bundle_switches),
		cmocka_unit_test(test_flags_end_at_two_dashes),
		cmocka_unit_test(test_flags_leave_the_program_its_own),
		cmocka_unit_test(test_flags_take_a_lone_dash_for_a_word),
		cmocka_unit_test(test_flags_refuse_what_is_not_in_the_table),
		cmocka_unit_test(test_distance_counts_a_swap_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
