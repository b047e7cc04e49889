/* scenes_share.c - what forks made from inside share, besides memory and processes
 * (scenes_tree.c)
 *
 * A box forks itself twice. All three flood the gate at once: together they get as much as one
 * box, in connections, queries and lines of the log. A fork may not take a name that the policy
 * of another box waits for, and a box may not block the machine with captures that never end.
 * Gate and daemon are the same in both profiles, so the first is enough. */
#include "attack/suite.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include <stdio.h>
#include <string.h>

#define SHARER "sharer"
#define OTHER  "sharer-other"
#define FRIEND "sharer-friend"
#define INSIDE "/.boxyard/box"
#define POLICY                                                                            \
	"{\"version\":1,\"preset\":\"none\",\"limits\":{\"connections\":100},\"allow\":[" \
	"\"allowed.test:8080\"]}"

enum {
	BOXES = 3,
	CONNECTIONS = 100, /* as the policy has it */
	/* What one box gets: the burst of one second, then two seconds of its rate. Three
	 * separate boxes would get three times that. */
	ANSWERS = 3000,
	LINES = 1000 + 3 * 200,
	LINE_MS = 15000,
	QUICK_US = 5 * 1000 * 1000,
};

static const char *const names[BOXES] = { SHARER, SHARER "-1", SHARER "-2" };
static const struct check anything = { .name = "", .never = "nothing" };

/* Adds up the figures before word in the attackers' output; -1: one of them has no output. */
static long flood_in_all(struct suite *suite, const struct group *group,
	const char *const words[CHECK_WORDS], const char *word)
{
	struct stay stays[BOXES];
	long sum = 0;

	for (size_t i = 0; i < BOXES; i++) {
		stays[i] = (struct stay){ .fd = -1 };
		stay_start(&suite->rig, names[i], words, &stays[i]);
	}
	for (size_t i = 0; i < BOXES; i++) {
		json_t *line = stays[i].fd >= 0 ? stay_line(&stays[i], LINE_MS) : NULL;
		const char *how = json_string_value(json_object_get(line, "how"));
		const char *at = how ? strstr(how, word) : NULL;

		while (at && at > how && at[-1] != ',')
			at--;
		sum = at && sum >= 0 ? sum + strtol(at, NULL, 10) : -1;
		json_decref(line);
		stay_stop(&stays[i]);
	}
	/* Allowed arrivals are not reported. */
	free(suite_look(suite, group, &anything));
	return sum;
}

static void judge_sum(
	struct suite *suite, const struct group *group, const char *check, long got, long most)
{
	char how[HOW_SIZE];
	struct result *result;

	snprintf(how, sizeof how, "%ld in %d boxes", got, BOXES);
	result = suite_add(suite, group, check, true, how);
	if (got <= 0)
		suite_problem(result, "it did not begin in all of them");
	else if (got > most)
		suite_problem(result, "forks get more than one box would: at most %ld", most);
}

static void flood_gate(struct suite *suite, const struct group *group)
{
	static const char *const hold[CHECK_WORDS] = { "flood", "hold", "allowed.test", "8080",
		"80" };
	static const char *const ask[CHECK_WORDS] = { "flood", "questions", "198.18.0.1",
		"evil.test", "20000" };

	judge_sum(suite, group, "connections-multiplied-by-forks",
		flood_in_all(suite, group, hold, " answered"), CONNECTIONS);
	judge_sum(suite, group, "questions-multiplied-by-forks",
		flood_in_all(suite, group, ask, " answered"), ANSWERS);
}

static long count_lines(struct suite *suite, const char *box)
{
	_cleanup_free_ char *text = audit_look(&suite->rig, box);
	long count = 0;

	for (const char *at = text; (at = strchr(at, '\n')); at++)
		count++;
	return count;
}

/* Many different refusals; the refusal of another box must be logged all the same. */
static void flood_log(struct suite *suite, const struct group *group)
{
	static const char *const knock[CHECK_WORDS] = { "flood", "knock", "10.0.0.1", "80",
		"3000" };
	static const char *const once[CHECK_WORDS] = { "connect", "10.9.9.9", "80" };
	_cleanup_free_ char *lines = NULL;
	long before = 0, after = 0;

	for (size_t i = 0; i < BOXES; i++)
		before += count_lines(suite, names[i]);
	if (flood_in_all(suite, group, knock, " refused") < LINES + LINES / 2)
		suite_add(suite, group, "flood-of-the-log", true, "skipped: too slow for a flood");
	suite_attack(suite, OTHER, once);
	for (size_t i = 0; i < BOXES; i++)
		after += count_lines(suite, names[i]);
	judge_sum(suite, group, "lines-multiplied-by-forks", after - before, LINES);
	lines = audit_look(&suite->rig, OTHER);
	suite_add(suite, group, "lines-of-others", audit_has(lines, "10.9.9.9", false), "");
	free(suite_look(suite, group, &anything));
}

/* Runs a `box` command that must be refused, quickly, with this text. */
static void check_refused(struct suite *suite, const struct group *group, const char *check,
	const char *const *words, const char *said)
{
	int64_t since = clock_mono_us(), took;
	struct buf out = BUF_INIT;
	char how[HOW_SIZE];
	struct result *result;
	int code = -1;

	rig_box(&suite->rig, words, &out, &code, NULL);
	took = clock_mono_us() - since;
	snprintf(how, sizeof how, "exit code %d after %.1f ms", code, (double)took / 1000);
	result = suite_add(suite, group, check, true, how);
	if (code <= 0)
		suite_problem(result, "it was not refused");
	else if (!strstr(buf_str(&out), said))
		suite_problem(result, "refused for another reason: %.200s", buf_str(&out));
	else if (took > QUICK_US)
		suite_problem(result, "the refusal took too long");
	buf_done(&out);
}

/* A box with its own kernel is captured page by page, whatever its programs hold: that must be
 * quick. */
static void check_captured(struct suite *suite, const struct group *group, const char *check)
{
	static const char *const snapshot[] = { "snapshot", OTHER, NULL };
	int64_t since = clock_mono_us(), took;
	struct buf out = BUF_INIT;
	char how[HOW_SIZE];
	struct result *result;
	int code = -1;

	rig_box(&suite->rig, snapshot, &out, &code, NULL);
	took = clock_mono_us() - since;
	snprintf(how, sizeof how, "captured in %.1f ms", (double)took / 1000);
	result = suite_add(suite, group, check, true, how);
	if (code)
		suite_problem(result, "exit code %d: %.200s", code, buf_str(&out));
	else if (took > QUICK_US)
		suite_problem(result, "the capture took too long");
	buf_done(&out);
}

/* Terabytes of sparse memory: a naive capture would walk through all of it. */
static void capture_holes(struct suite *suite, const struct group *group)
{
	static const char *const sparse[CHECK_WORDS] = { "hoard", "sparse", "8", "8000" };
	static const char *const segment[CHECK_WORDS] = { "hoard", "segment", "4" };
	static const char *const snapshot[] = { "snapshot", OTHER, NULL };
	struct outcome outcome = suite_attack(suite, OTHER, segment);
	struct stay stay = { .fd = -1 };
	json_t *line;

	if (outcome.ran && outcome.refused)
		suite_add(suite, group, "endless-segment", true, outcome.how);
	else if (suite_is_vm(suite))
		check_captured(suite, group, "endless-segment");
	else
		check_refused(suite, group, "endless-segment", snapshot, "shared memory");
	line = stay_start(&suite->rig, OTHER, sparse, &stay) ? stay_line(&stay, LINE_MS) : NULL;
	if (json_object_get(line, "held") && suite_is_vm(suite))
		check_captured(suite, group, "endless-memory-file");
	else if (json_object_get(line, "held"))
		check_refused(suite, group, "endless-memory-file", snapshot, "memory file");
	else
		suite_problem(suite_add(suite, group, "endless-memory-file", false, ""),
			"it cannot be made");
	json_decref(line);
	stay_stop(&stay);
}

static void scene_share(struct suite *suite, const struct group *group, const char *box)
{
	static const char *const fork[] = { "exec", SHARER, "--", INSIDE, "fork", "-n", "2", NULL };
	static const char *const take[] = { "exec", SHARER, "--", INSIDE, "fork", "friend", NULL };

	(void)box;
	if (!suite->unproven)
		return;
	if (!suite_is_vm(suite) && !suite_can_fork(suite)) {
		suite_add(suite, group, "forks", true, "skipped: this machine has no CRIU");
		return;
	}
	if (suite_new_box(suite, group, SHARER, POLICY) &&
		suite_new_box(suite, group, OTHER,
			"{\"version\":1,\"preset\":\"none\",\"boxes\":[\"" FRIEND "\"]}") &&
		suite_box(suite, group, fork)) {
		check_refused(suite, group, "name-that-a-policy-waits-for", take,
			"reserved for another box");
		flood_log(suite, group); /* first: the others write log lines, too */
		flood_gate(suite, group);
		capture_holes(suite, group);
	}
	for (size_t i = 0; i < BOXES; i++)
		suite_remove_box(suite, names[i]);
	suite_remove_box(suite, FRIEND);
	suite_remove_box(suite, OTHER);
}

const struct group share_groups[] = {
	{ "shares",
		"shares of forks from inside: connections, queries, lines of the log, names; endless captures",
		"{\"version\":1,\"preset\":\"none\"}", "allowed.test", .scene = scene_share },
	{ .name = NULL },
};
