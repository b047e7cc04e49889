/* test_table.c - columns line up, narrow terminals cut, and nothing from a box reaches the terminal
 * raw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "cli/table.h"

static const char *const heads[] = { "NAME", ">SIZE", "COMMAND", NULL };

static struct table *make_table(void)
{
	struct table *table = table_new(heads);

	table_add(table, "ada");
	table_add(table, "5");
	table_add(table, "make test");
	table_add(table, "bob-the-box");
	table_addf(table, "%d", 1234);
	table_add(table, "sh");
	return table;
}

static void assert_rendered(struct table *table, unsigned width, bool colour, const char *expected)
{
	struct buf out = BUF_INIT;

	table_render(table, width, colour, &out);
	assert_string_equal(buf_str(&out), expected);
	buf_done(&out);
	table_free(table);
}

static void test_table_aligns_columns(void **state)
{
	(void)state;
	assert_rendered(make_table(), 0, false,
		"NAME         SIZE  COMMAND\n"
		"ada             5  make test\n"
		"bob-the-box  1234  sh\n");
}

static void test_table_cuts_the_widest_columns(void **state)
{
	(void)state;
	assert_rendered(make_table(), 22, false,
		"NAME     SIZE  COMMAND\n"
		"ada         5  make t…\n"
		"bob-th…  1234  sh\n");
}

static void test_table_never_cuts_below_what_can_be_read(void **state)
{
	(void)state;
	assert_rendered(make_table(), 3, false,
		"NAME    SIZE  COMMA…\n"
		"ada        5  make …\n"
		"bob-t…  1234  sh\n");
}

static void test_table_paints_only_when_asked(void **state)
{
	static const char *const one[] = { "S", NULL };
	struct table *table = table_new(one);

	(void)state;
	table_add(table, "ok");
	table_paint(table, PAINT_GOOD);
	assert_rendered(table, 0, true, "\033[2mS\033[0m\n\033[32mok\033[0m\n");
}

static void test_table_counts_characters_not_bytes(void **state)
{
	static const char *const two[] = { "A", "B", NULL };
	struct table *table = table_new(two);

	(void)state;
	table_add(table, "äöü");
	table_add(table, "x");
	table_add(table, "abc");
	table_add(table, "y");
	assert_rendered(table, 0, false, "A    B\näöü  x\nabc  y\n");
}

static void assert_printable(const char *text, const char *expected)
{
	_cleanup_free_ char *safe = text_printable(text);

	assert_string_equal(safe, expected);
}

static void test_text_from_outside_cannot_drive_the_terminal(void **state)
{
	(void)state;
	assert_printable("plain äöü €", "plain äöü €");
	assert_printable("\033[31mred\a\n", "?[31mred??");
	assert_printable("c1 \xc2\x9b"
			 "31m",
		"c1 ??31m");
	assert_printable("bad \xff\xc3", "bad ??");
	assert_printable("exe\u202egpj.sh", "exe???gpj.sh");
	assert_printable("a\u200bb\u2066c\ufeff", "a???b???c???");
	assert_printable("family \U0001f468\u200d\U0001f469", "family \U0001f468\u200d\U0001f469");
	assert_printable("cut \xe2\x82", "cut ??");
}

static void test_age_of_no_time_is_a_dash(void **state)
{
	char age[16];

	(void)state;
	assert_string_equal(age_since(NULL, age), "-");
	assert_string_equal(age_since("", age), "-");
	assert_string_equal(age_since("2999-01-01T00:00:00.000Z", age), "0s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table_aligns_columns),
		cmocka_unit_test(test_table_cuts_the_widest_columns),
		cmocka_unit_test(test_table_never_cuts_below_what_can_be_read),
		cmocka_unit_test(test_table_paints_only_when_asked),
		cmocka_unit_test(test_table_counts_characters_not_bytes),
		cmocka_unit_test(test_text_from_outside_cannot_drive_the_terminal),
		cmocka_unit_test(test_age_of_no_time_is_a_dash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
