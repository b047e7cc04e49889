/* test_words.c - a line becomes the words a shell would make of it */
#include "base/words.h"
#include "base/strv.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const struct {
	const char *line;
	const char *words[6];
} lines[] = {
	{ "", { NULL } },
	{ " \t\n ", { NULL } },
	{ "ls --json", { "ls", "--json" } },
	{ "  exec\tada  --  ls\n-l ", { "exec", "ada", "--", "ls", "-l" } },
	{ "a 'b c' \"d e\"", { "a", "b c", "d e" } },
	{ "'' \"\" x", { "", "", "x" } },
	{ "a'b'\"c\"d\\ e", { "abcd e" } },
	{ "'a\"b\\c' \"a'b\"", { "a\"b\\c", "a'b" } },
	{ "\"\\\"\\\\\\$\\`\\n\"", { "\"\\$`\\n" } },
	{ "\\'\\\"\\\\\\n", { "'\"\\n" } },
	{ "a\\\nb \"c\\\nd\"", { "ab", "cd" } },
	{ "\\\n", { NULL } },
	/* nothing is expanded */
	{ "$HOME ${X} $(id) `id` *", { "$HOME", "${X}", "$(id)", "`id`", "*" } },
	{ "a;b|c&d>e #f", { "a;b|c&d>e", "#f" } },
	{ "~ \xc3\xa4\xff", { "~", "\xc3\xa4\xff" } },
};

static void test_lines_become_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		_cleanup_strv_ char **words = NULL;
		struct err err = ERR_INIT;

		if (words_split(lines[i].line, &words, &err) < 0)
			fail_msg("'%s': %s", lines[i].line, err.message);
		for (size_t j = 0; lines[i].words[j]; j++) {
			assert_non_null(words[j]);
			assert_string_equal(words[j], lines[i].words[j]);
		}
		assert_int_equal(strv_len((const char *const *)words),
			strv_len((const char *const *)lines[i].words));
	}
}

static void test_a_line_that_does_not_end_is_refused(void **state)
{
	static const char *const wrong[] = { "'", "\"", "a 'b", "a \"b", "\"\\\"", "a\\", "'a'\"" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		char **words = NULL;
		struct err err = ERR_INIT;

		assert_int_equal(words_split(wrong[i], &words, &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
		assert_null(words);
	}
}

static void test_words_are_counted(void **state)
{
	_cleanup_free_ char *line = xcalloc(1, 2 * WORDS_MAX + 3);
	_cleanup_strv_ char **words = NULL;
	struct err err = ERR_INIT;

	(void)state;
	for (int i = 0; i < WORDS_MAX; i++)
		memcpy(line + 2 * i, "a ", 2);
	assert_int_equal(words_split(line, &words, &err), 0);
	assert_int_equal(strv_len((const char *const *)words), WORDS_MAX);
	strv_free(steal_ptr(&words));
	line[2 * WORDS_MAX] = 'a';
	assert_int_equal(words_split(line, &words, &err), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_become_words),
		cmocka_unit_test(test_a_line_that_does_not_end_is_refused),
		cmocka_unit_test(test_words_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
