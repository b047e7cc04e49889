/* scenes_tree.c - more boxes than the limit: one that forks itself from inside, and fills all
 * forks
 *
 * A small box makes three forks. All four ask for memory and processes at once, each within its
 * own limit. The daemon is asked how much they hold meanwhile: together no more than the first
 * may have.
 *
 * A box with its own kernel needs more memory for itself, and its processes are counted by that
 * kernel. */
#include "attack/suite.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BREEDER	   "breeder"
#define OTHER	   "breeder-other"
#define INSIDE	   "/.boxyard/box"
#define HOLD_MS	   "2500"
#define HOLD_VM_MS "8000"
#define VM_TREE	   "memory=512M"

enum {
	BOXES = 4,
	LIMIT_MIB = 96,
	VM_TREE_MIB = 512,
	LIMIT_PIDS = 60,
	PIDS_MORE = 64, /* a tree has this many more, for boxes that are restored */
	LINE_MS = 15000,
	RELEASE_US = 3000 * 1000,
	EXIT_LIMIT = 75,
};

static const char *const names[BOXES] = { BREEDER, BREEDER "-1", BREEDER "-2", BREEDER "-3" };

/* NULL: it failed. New reference. */
static json_t *ask(struct suite *suite, const char *const *words)
{
	struct buf out = BUF_INIT;
	json_t *answer = NULL;
	int ignored; /* doctor prints its result also when something is missing */

	if (rig_box(&suite->rig, words, &out, &ignored, NULL) == 0)
		answer = json_loads(buf_str(&out), 0, NULL);
	buf_done(&out);
	return answer;
}

/* The usage of all four together, read from outside because they have no memory left to answer. */
static json_int_t used(struct suite *suite, const char *key)
{
	static const char *const words[] = { "stats", "--once", "--json", NULL };
	_cleanup_json_ json_t *list = ask(suite, words);
	json_t *box;
	size_t i;

	json_array_foreach (list, i, box)
		if (!strcmp(json_string_value(json_object_get(box, "name")), BREEDER))
			return json_integer_value(
				json_object_get(json_object_get(box, "tree"), key));
	return 0;
}

/* All of them hold what they got while the usage is read. */
static void hoard_in_all(struct suite *suite, const struct group *group, const char *check,
	const char *what, const char *each, const char *key, json_int_t most)
{
	static const char *const small[CHECK_WORDS] = { "hoard", "memfd", "30" };
	const char *const words[CHECK_WORDS] = { "hoard", what, each,
		suite_is_vm(suite) ? HOLD_VM_MS : HOLD_MS };
	struct stay stays[BOXES];
	struct outcome other;
	json_int_t together;
	char how[HOW_SIZE];
	size_t begun = 0;

	for (size_t i = 0; i < BOXES; i++) {
		stays[i] = (struct stay){ .fd = -1 };
		begun += stay_start(&suite->rig, names[i], words, &stays[i]);
	}
	for (size_t i = 0; i < BOXES; i++)
		json_decref(stays[i].fd >= 0 ? stay_line(&stays[i], LINE_MS) : NULL);
	together = used(suite, key);
	other = suite_attack(suite, OTHER, small);
	for (size_t i = 0; i < BOXES; i++)
		stay_stop(&stays[i]);
	usleep(RELEASE_US); /* the next one starts with nothing held */
	snprintf(how, sizeof how, "%lld of %lld in %d boxes", (long long)together, (long long)most,
		BOXES);
	if (begun == BOXES && together > 0 && together <= most && other.ran && !other.refused)
		suite_add(suite, group, check, true, how);
	else if (together > most)
		suite_problem(suite_add(suite, group, check, false, how),
			"forks have more than the box that made them may have");
	else
		suite_problem(suite_add(suite, group, check, false, how),
			begun < BOXES || !together ? "it did not begin in all of them"
						   : "another box had nothing left: %.100s",
			other.how);
}

/* A fork of a box that fills more than half of the limit would make the kernel kill something. */
static void fork_what_does_not_fit(struct suite *suite, const struct group *group)
{
	const char *const hold[CHECK_WORDS] = { "hoard", "memfd", suite_is_vm(suite) ? "30" : "60",
		suite_is_vm(suite) ? HOLD_VM_MS : HOLD_MS };
	static const char *const fork[] = { "exec", BREEDER, "--", INSIDE, "fork", "one-more",
		NULL };
	struct stay stay = { .fd = -1 };
	json_t *line =
		stay_start(&suite->rig, BREEDER, hold, &stay) ? stay_line(&stay, LINE_MS) : NULL;
	struct buf out = BUF_INIT;
	char how[HOW_SIZE];
	int code = -1;

	rig_box(&suite->rig, fork, &out, &code, NULL);
	snprintf(how, sizeof how, "exit code %d", code);
	if (json_object_get(line, "held") && code == EXIT_LIMIT)
		suite_add(suite, group, "fork-that-does-not-fit", true, how);
	else
		suite_problem(suite_add(suite, group, "fork-that-does-not-fit", false, how),
			"it was not refused");
	buf_done(&out);
	json_decref(line);
	stay_stop(&stay);
}

static void look_at_reserve(struct suite *suite, const struct group *group)
{
	static const char *const words[] = { "info", "--json", NULL };
	_cleanup_json_ json_t *info = ask(suite, words);
	json_t *all = json_object_get(info, "together");
	json_int_t pids = json_integer_value(json_object_get(all, "processes_limit")),
		   memory = json_integer_value(json_object_get(all, "memory_limit_bytes"));
	_cleanup_free_ char *text = NULL;
	char how[HOW_SIZE];

	if (file_read(AT_FDCWD, "/proc/sys/kernel/pid_max", 32, &text, NULL, NULL) < 0)
		return;
	snprintf(how, sizeof how, "%lld processes, %lld MB", (long long)pids,
		(long long)(memory >> 20));
	if (pids > 0 && pids < atoll(text) && memory > 0)
		suite_add(suite, group, "reserve-of-the-machine", true, how);
	else
		suite_problem(suite_add(suite, group, "reserve-of-the-machine", false, how),
			"all boxes together may use up the machine");
}

bool suite_can_fork(struct suite *suite)
{
	static const char *const words[] = { "doctor", "--json", NULL };
	_cleanup_json_ json_t *answer = ask(suite, words);
	json_t *check;
	size_t i;

	json_array_foreach (json_object_get(answer, "checks"), i, check)
		if (!strcmp(json_string_value(json_object_get(check, "name")), "criu"))
			return json_is_true(json_object_get(check, "ok"));
	return false;
}

static const char *const fork_thrice[] = { "exec", BREEDER, "--", INSIDE, "fork", "-n", "3", NULL };

static void breed_vms(struct suite *suite, const struct group *group)
{
	static const char *const more[] = { "set", BREEDER, "--tree", VM_TREE, NULL };

	fork_what_does_not_fit(suite, group);
	if (suite_box(suite, group, more) && suite_box(suite, group, fork_thrice))
		hoard_in_all(suite, group, "memory-multiplied-by-forks", "memfd", "60",
			"memory_bytes", (json_int_t)VM_TREE_MIB << 20);
	suite_add(suite, group, "processes-multiplied-by-forks", true,
		"not run: they are its own kernel's; QEMU has a fixed number of threads");
}

static void scene_tree(struct suite *suite, const struct group *group, const char *box)
{
	const char *const new[] = { "new", BREEDER, "--image", RIG_IMAGE, suite_flag(suite),
		suite->profile, "--memory", suite_is_vm(suite) ? "128M" : "96M", "--pids", "60",
		NULL };
	static const char *const other[] = { "new", OTHER, "--image", RIG_IMAGE, NULL };

	(void)box;
	look_at_reserve(suite, group);
	if (!suite_is_vm(suite) && !suite_can_fork(suite)) {
		suite_add(suite, group, "forks", true, "skipped: this machine has no CRIU");
		return;
	}
	if (!suite_box(suite, group, new) || !suite_box(suite, group, other)) {
		/* it was reported */
	} else if (suite_is_vm(suite)) {
		breed_vms(suite, group);
	} else if (suite_box(suite, group, fork_thrice)) {
		hoard_in_all(suite, group, "memory-multiplied-by-forks", "memfd", "60",
			"memory_bytes", (json_int_t)LIMIT_MIB << 20);
		hoard_in_all(suite, group, "processes-multiplied-by-forks", "processes", "50",
			"processes", LIMIT_PIDS + PIDS_MORE);
		fork_what_does_not_fit(suite, group);
	}
	for (size_t i = 0; i < BOXES; i++)
		suite_remove_box(suite, names[i]);
	suite_remove_box(suite, OTHER);
}

const struct group tree_groups[] = {
	{ "forks", "more boxes than the limit: memory and processes of all forks from inside",
		"{\"version\":1,\"preset\":\"none\"}", "", .scene = scene_tree },
	{ .name = NULL },
};
