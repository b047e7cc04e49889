/* report.c - a line for each group as it ends, all failures, and the totals; or all of it as
 * JSON */
#include "attack/suite.h"
#include "base/alloc.h"
#include <stdio.h>

void report_group(const struct suite *suite, const struct group *group, size_t from, double seconds)
{
	size_t good = 0, bad = 0;
	const char *neighbour = "";

	for (size_t i = from; i < suite->count; i++) {
		*(suite->results[i].passed ? &good : &bad) += 1;
		if (!strcmp(suite->results[i].check, "neighbour"))
			neighbour = suite->results[i].how;
	}
	if (suite->json || (suite->quiet && !bad))
		return;
	if (suite->count - from == 1 && !strcmp(suite->results[from].check, "not-run")) {
		printf("%-12s %-9s not run: %s\n", group->name, suite->profile,
			suite->results[from].how);
		return;
	}
	printf("%-12s %-9s %3zu good, %zu bad (%.1f s)%s%s\n", group->name, suite->profile, good,
		bad, seconds, *neighbour ? "   neighbour: " : "", neighbour);
	for (size_t i = from; i < suite->count; i++)
		if (!suite->results[i].passed)
			printf("    BAD %s: %s\n", suite->results[i].check,
				suite->results[i].problem);
	fflush(stdout);
}

static void print_json(const struct suite *suite, size_t bad, double seconds)
{
	_cleanup_json_ json_t *list = json_array(), *all = NULL;
	_cleanup_free_ char *text = NULL;

	for (size_t i = 0; i < suite->count; i++) {
		const struct result *result = &suite->results[i];

		json_array_append_new(list,
			json_pack("{s:s, s:s, s:s, s:b, s:s, s:s}", "group", result->group,
				"profile", result->profile, "check", result->check, "passed",
				result->passed, "how", result->how, "problem", result->problem));
	}
	all = json_pack("{s:b, s:I, s:I, s:f, s:O}", "passed", !bad, "checks",
		(json_int_t)suite->count, "bad", (json_int_t)bad, "seconds", seconds, "results",
		list);
	text = json_text(all);
	puts(text);
}

void report_end(const struct suite *suite, double seconds)
{
	size_t bad = 0;

	for (size_t i = 0; i < suite->count; i++)
		bad += !suite->results[i].passed;
	if (suite->json) {
		print_json(suite, bad, seconds);
		return;
	}
	if (bad)
		printf("%zu of %zu checks are bad (%.0f s)\n", bad, suite->count, seconds);
	else
		printf("%zu checks: everything was refused and written down, and nobody else was "
		       "disturbed (%.0f s)\n",
			suite->count, seconds);
}
