/* test_timeline_tree.c - a time line as people see it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "cli/timeline_tree.h"

/* The first column, line by line, without its head. */
static char *draw(const char *timeline, const char *boxes)
{
	_cleanup_json_ json_t *line = json_loads(timeline, 0, NULL);
	_cleanup_json_ json_t *list = json_loads(boxes, 0, NULL);
	struct buf whole = BUF_INIT, first = BUF_INIT;
	struct table *table;
	char *text, *rest, *row, *out;

	assert_non_null(line);
	assert_non_null(list);
	table = timeline_tree(line, list);
	table_render(table, 0, false, &whole);
	table_free(table);
	rest = text = xstrdup(buf_str(&whole));
	strsep(&rest, "\n");
	while ((row = strsep(&rest, "\n"))) {
		char *end = strstr(row, "  2026") ? strstr(row, "  2026") : strstr(row, "  - ");

		if (!*row)
			continue;
		if (end)
			*end = '\0';
		for (end = row + strlen(row); end > row && end[-1] == ' ';)
			*--end = '\0';
		buf_addf(&first, "%s\n", row);
	}
	out = xstrdup(buf_str(&first));
	free(text);
	buf_done(&whole);
	buf_done(&first);
	return out;
}

#define SNAP(id, name, parent)                                    \
	"{\"id\":\"" id "\",\"name\":" name ",\"parent\":" parent \
	",\"cause\":\"request\",\"kind\":\"full\",\"created_at\":\"2026-01-02T03:04:05.678Z\"}"

static void expect(const char *timeline, const char *boxes, const char *wanted)
{
	_cleanup_free_ char *got = draw(timeline, boxes);

	if (strcmp(got, wanted))
		fail_msg("wanted\n%s\ngot\n%s", wanted, got);
}

static void test_tree_of_nothing_is_now(void **state)
{
	(void)state;
	expect("{\"box\":\"b1\",\"position\":null,\"snapshots\":[]}", "[]", "└─ ● now\n");
}

static void test_tree_is_straight_where_nothing_branches(void **state)
{
	(void)state;
	expect("{\"box\":\"b1\",\"position\":\"c\",\"snapshots\":[" SNAP("a", "\"base\"",
		       "null") "," SNAP("b", "null", "\"a\"") "," SNAP("c", "null", "\"b\"") "]}",
		"[]",
		"├─ base\n"
		"├─ b\n"
		"├─ c\n"
		"└─ ● now\n");
}

static void test_tree_branches_where_it_was_rolled_back(void **state)
{
	(void)state;
	/* a <- b <- c, then back to a, and d from there. */
	expect("{\"box\":\"b1\",\"position\":\"d\",\"snapshots\":[" SNAP(
		       "a", "null", "null") "," SNAP("b", "null", "\"a\"") "," SNAP("c", "null",
		       "\"b\"") "," SNAP("d", "null", "\"a\"") "]}",
		"[]",
		"├─ a\n"
		"│  ├─ b\n"
		"│  └─ c\n"
		"├─ d\n"
		"└─ ● now\n");
	/* Back at a, with nothing since. */
	expect("{\"box\":\"b1\",\"position\":\"a\",\"snapshots\":[" SNAP(
		       "a", "null", "null") "," SNAP("b", "null", "\"a\"") "]}",
		"[]",
		"├─ a\n"
		"│  └─ b\n"
		"└─ ● now\n");
}

static void test_tree_shows_boxes_where_they_were_forked(void **state)
{
	(void)state;
	expect("{\"box\":\"b1\",\"position\":\"a\",\"snapshots\":[" SNAP(
		       "a", "null", "null") "," SNAP("b", "null", "\"a\"") "]}",
		"[{\"name\":\"eve\",\"origin\":{\"box\":\"b1\",\"snapshot\":\"a\"}},"
		"{\"name\":\"bob\",\"origin\":{\"box\":\"b1\",\"snapshot\":null}},"
		"{\"name\":\"else\",\"origin\":{\"box\":\"b2\",\"snapshot\":\"a\"}},"
		"{\"name\":\"ada\",\"origin\":null}]",
		"├─ ⑂ bob\n"
		"├─ a\n"
		"│  ├─ b\n"
		"│  └─ ⑂ eve\n"
		"└─ ● now\n");
	/* A fork of the present is where its box was then. */
	expect("{\"box\":\"b1\",\"position\":\"b\",\"snapshots\":[" SNAP(
		       "a", "null", "null") "," SNAP("b", "null", "\"a\"") "]}",
		"[{\"name\":\"eve\",\"origin\":{\"box\":\"b1\",\"snapshot\":null,\"position\":"
		"\"b\"}},"
		"{\"name\":\"bob\",\"origin\":{\"box\":\"b1\",\"snapshot\":null,\"position\":\"a\"}"
		"},"
		"{\"name\":\"lost\",\"origin\":{\"box\":\"b1\",\"snapshot\":null,\"position\":"
		"\"z\"}}]",
		"├─ ⑂ lost\n"
		"├─ a\n"
		"│  └─ ⑂ bob\n"
		"├─ b\n"
		"│  └─ ⑂ eve\n"
		"└─ ● now\n");
}

static void test_tree_has_one_corner_a_level(void **state)
{
	(void)state;
	/* Of a: b <- c, d and a box; the last thing alone ends the level. */
	expect("{\"box\":\"b1\",\"position\":\"a\",\"snapshots\":[" SNAP(
		       "a", "null", "null") "," SNAP("b", "null", "\"a\"") "," SNAP("c", "null",
		       "\"b\"") "," SNAP("d", "null", "\"a\"") "]}",
		"[{\"name\":\"eve\",\"origin\":{\"box\":\"b1\",\"snapshot\":\"a\"}}]",
		"├─ a\n"
		"│  ├─ b\n"
		"│  │  └─ c\n"
		"│  ├─ d\n"
		"│  └─ ⑂ eve\n"
		"└─ ● now\n");
	/* A time line of before that begins apart. */
	expect("{\"box\":\"b1\",\"position\":\"c\",\"snapshots\":[" SNAP("a", "null",
		       "null") "," SNAP("b", "null", "\"a\"") "," SNAP("c", "null", "null") "]}",
		"[]",
		"├─ a\n"
		"│  └─ b\n"
		"├─ c\n"
		"└─ ● now\n");
}

/* Parents that are unknown, newer or themselves: everything is drawn once, and it ends. */
static void test_tree_survives_what_makes_no_sense(void **state)
{
	_cleanup_free_ char *got = draw("{\"box\":\"b1\",\"position\":\"b\",\"snapshots\":[" SNAP(
						"a", "null", "\"b\"") "," SNAP("b", "null",
						"\"b\"") "," SNAP("c", "null", "\"gone\"") "]}",
		"[]");
	const char *at;

	(void)state;
	for (const char *id = "abc"; *id; id++) {
		char line[16];

		snprintf(line, sizeof line, "─ %c\n", *id);
		at = strstr(got, line);
		assert_non_null(at);
		assert_null(strstr(at + 1, line));
	}
	assert_non_null(strstr(got, "● now"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tree_of_nothing_is_now),
		cmocka_unit_test(test_tree_is_straight_where_nothing_branches),
		cmocka_unit_test(test_tree_branches_where_it_was_rolled_back),
		cmocka_unit_test(test_tree_shows_boxes_where_they_were_forked),
		cmocka_unit_test(test_tree_has_one_corner_a_level),
		cmocka_unit_test(test_tree_survives_what_makes_no_sense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
