/* test_boxfile.c - recipes: what each line becomes, and every line that is refused */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/buf.h"
#include "base/strv.h"
#include "cli/boxfile.h"

static struct boxfile parse(const char *text)
{
	struct boxfile boxfile = { 0 };
	struct err err = ERR_INIT;

	if (boxfile_parse(text, strlen(text), &boxfile, &err) < 0)
		fail_msg("'%s': %s", text, err.message);
	return boxfile;
}

static void assert_refused(const char *text, const char *message)
{
	struct boxfile boxfile = { 0 };
	struct err err = ERR_INIT;

	assert_int_equal(boxfile_parse(text, strlen(text), &boxfile, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	if (!strstr(err.message, message))
		fail_msg("'%s' instead of '%s'", err.message, message);
	assert_null(boxfile.steps);
}

static void assert_words(const struct boxfile_step *step, const char *const *words)
{
	assert_int_equal(strv_len((const char *const *)step->words), strv_len(words));
	for (size_t i = 0; words[i]; i++)
		assert_string_equal(step->words[i], words[i]);
}

#define ASSERT_WORDS(step, ...) \
	assert_words((step), (const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL })

static void test_boxfile_reads_every_step(void **state)
{
	struct boxfile boxfile = parse("# a tool\n"
				       "from debian\n"
				       "\n"
				       "packages git gcc-12 git=1:2.39~x libc6:arm64\n"
				       "  env A=1 B='two words'\n"
				       "workdir /srv\n"
				       "copy a b /srv/\n"
				       "user nobody\n"
				       "run echo \"$A\" > x   \n"
				       "expose 80 53/udp\n"
				       "label team=core\n"
				       "entrypoint [\"/bin/tool\", \"-v\"]\n"
				       "cmd serve --port 80");

	(void)state;
	assert_int_equal(boxfile.count, 11);
	for (size_t i = 0; i < boxfile.count; i++)
		assert_int_equal(boxfile.steps[i].line, i ? i + 3 : 2);
	assert_int_equal(boxfile.steps[0].kind, BOXFILE_FROM);
	ASSERT_WORDS(&boxfile.steps[0], "debian");
	ASSERT_WORDS(&boxfile.steps[1], "git", "gcc-12", "git=1:2.39~x", "libc6:arm64");
	ASSERT_WORDS(&boxfile.steps[2], "A=1", "B=two words");
	ASSERT_WORDS(&boxfile.steps[4], "a", "b", "/srv/");
	assert_int_equal(boxfile.steps[6].kind, BOXFILE_RUN);
	assert_string_equal(boxfile.steps[6].rest, "echo \"$A\" > x");
	ASSERT_WORDS(&boxfile.steps[6], "echo \"$A\" > x");
	ASSERT_WORDS(&boxfile.steps[7], "80", "53/udp");
	ASSERT_WORDS(&boxfile.steps[9], "/bin/tool", "-v");
	ASSERT_WORDS(&boxfile.steps[10], "serve", "--port", "80");
	boxfile_done(&boxfile);
	boxfile_done(&boxfile);
}

static void test_boxfile_takes_keywords_in_capitals(void **state)
{
	struct boxfile boxfile = parse("FROM python:3.11\r\nRun true\r\n");

	(void)state;
	assert_int_equal(boxfile.count, 2);
	ASSERT_WORDS(&boxfile.steps[0], "python:3.11");
	assert_int_equal(boxfile.steps[1].kind, BOXFILE_RUN);
	assert_string_equal(boxfile.steps[1].rest, "true");
	boxfile_done(&boxfile);
}

static void test_boxfile_joins_continued_lines(void **state)
{
	struct boxfile boxfile = parse("from a\n"
				       "run one && \\\n"
				       "# why two\n"
				       "    two && \\\r\n"
				       "three\n"
				       "run four \\");

	(void)state;
	assert_int_equal(boxfile.count, 3);
	assert_string_equal(boxfile.steps[1].rest, "one &&     two && three");
	assert_int_equal(boxfile.steps[1].line, 2);
	assert_string_equal(boxfile.steps[2].rest, "four");
	assert_int_equal(boxfile.steps[2].line, 6);
	boxfile_done(&boxfile);
}

static void test_boxfile_leaves_hashes_inside_a_line_alone(void **state)
{
	struct boxfile boxfile = parse("from a\nrun echo '# no comment' # the shell's own\n");

	(void)state;
	assert_string_equal(boxfile.steps[1].rest, "echo '# no comment' # the shell's own");
	boxfile_done(&boxfile);
}

static void test_boxfile_has_steps_that_empty_what_the_image_runs(void **state)
{
	struct boxfile boxfile = parse("from a\nentrypoint []\ncmd\n");

	(void)state;
	ASSERT_WORDS(&boxfile.steps[1]);
	ASSERT_WORDS(&boxfile.steps[2]);
	boxfile_done(&boxfile);
}

static void test_boxfile_refuses_wrong_lines_and_names_them(void **state)
{
	static const struct {
		const char *text, *message;
	} wrong[] = {
		{ "", "it is empty" },
		{ "# nothing\n\n", "it is empty" },
		{ "run true\n", "line 1: the first step must be 'from IMAGE'" },
		{ "from a\nfrom b\n", "line 2: only the first step can be 'from'" },
		{ "from a b\n", "line 1: it is 'from IMAGE'" },
		{ "from\n", "line 1: it is 'from IMAGE'" },
		{ "\nfrom a\n\nrum true\n", "line 4: unknown step 'rum', did you mean 'run'?" },
		{ "from a\nvolume /x\n", "line 2: unknown step 'volume'" },
		{ "from a\nrun\n", "it is 'run COMMAND'" },
		{ "from a\nrun \\\n", "it is 'run COMMAND'" },
		{ "from a\ncopy x\n", "it is 'copy SOURCE... TARGET'" },
		{ "from a\ncopy ../x /y\n", "'../x' must not hold '..'" },
		{ "from a\ncopy x /y/..\n", "must not hold '..'" },
		{ "from a\ncopy '' /y\n", "an empty path" },
		{ "from a\nenv 1A=x\n", "line 2" },
		{ "from a\nenv A\n", "line 2" },
		{ "from a\nenv A='x\n", "a ' is not closed" },
		{ "from a\nenv A=\"x\n", "a \" is not closed" },
		{ "from a\npackages -o=x\n", "'-o=x' is not the name of a package" },
		{ "from a\npackages git;reboot\n", "is not the name of a package" },
		{ "from a\nexpose 0\n", "port" },
		{ "from a\nexpose 65536\n", "port" },
		{ "from a\nexpose 80/sctp\n", "is not PORT" },
		{ "from a\nlabel =x\n", "is not KEY=VALUE" },
		{ "from a\ncmd [\"x\"\n", "must be a list of strings" },
		{ "from a\ncmd [1]\n", "item 1 of the list is not a string" },
		{ "from a\nrun \xff\n", "UTF-8" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_refused(wrong[i].text, wrong[i].message);
}

static void test_boxfile_bounds_what_it_reads(void **state)
{
	size_t len = BOXFILE_SIZE_MAX + 1;
	_cleanup_free_ char *text = xnewn(char, len + 1);
	struct boxfile boxfile = { 0 };
	struct err err = ERR_INIT;
	struct buf many = BUF_INIT;

	(void)state;
	memset(text, '\n', len);
	assert_int_equal(boxfile_parse(text, len, &boxfile, &err), -1);
	assert_int_equal(err.kind, ERR_TOO_LARGE);
	buf_add_str(&many, "from a\n");
	for (int i = 0; i < BOXFILE_STEPS_MAX; i++)
		buf_add_str(&many, "cmd x\n");
	assert_refused(buf_str(&many), "more than 500 steps");
	buf_done(&many);
	assert_int_equal(boxfile_parse("from a\n\0run x", 13, &boxfile, &err), -1);
}

static const char *lookup(const char *name, void *arg)
{
	(void)arg;
	return !strcmp(name, "PATH") ? "/bin:/x y" : !strcmp(name, "A_1") ? "one" : NULL;
}

static void test_boxfile_words_know_variables_where_they_are_wanted(void **state)
{
	struct boxfile_step step = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(
		boxfile_words("P=/opt:$PATH \"${A_1}$none\"z '$PATH' \\$PATH 5$ \"\\$A_1\"", lookup,
			NULL, &step.words, &err),
		0);
	ASSERT_WORDS(&step, "P=/opt:/bin:/x y", "onez", "$PATH", "$PATH", "5$", "$A_1");
	strv_free(step.words);
	assert_int_equal(boxfile_words("$PATH ''", NULL, NULL, &step.words, &err), 0);
	ASSERT_WORDS(&step, "$PATH", "");
	strv_free(step.words);
	assert_int_equal(boxfile_words("${PATH", lookup, NULL, &step.words, &err), -1);
	assert_int_equal(boxfile_words("a\\", lookup, NULL, &step.words, &err), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_boxfile_reads_every_step),
		cmocka_unit_test(test_boxfile_takes_keywords_in_capitals),
		cmocka_unit_test(test_boxfile_joins_continued_lines),
		cmocka_unit_test(test_boxfile_leaves_hashes_inside_a_line_alone),
		cmocka_unit_test(test_boxfile_has_steps_that_empty_what_the_image_runs),
		cmocka_unit_test(test_boxfile_refuses_wrong_lines_and_names_them),
		cmocka_unit_test(test_boxfile_bounds_what_it_reads),
		cmocka_unit_test(test_boxfile_words_know_variables_where_they_are_wanted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
