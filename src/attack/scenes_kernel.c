/* scenes_kernel.c - more kernel memory and kernel objects than the limit
 *
 * A small box fills kernel memory that no cgroup counts, and takes objects that the kernel
 * counts per user or for the whole machine. Memory must end at the box's limit plus a share; of
 * counted objects other boxes must still get theirs. In the first profile each memory attack is
 * also run outside a box, where it succeeds. */
#include "attack/suite.h"
#include "base/alloc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALL "kernel-small"
#define OTHER "kernel-other"
#define NEXT  "kernel-next"
#define MIB   "400" /* for a box with a limit of 64 */
enum { PROOF = 100 };

/* Names of attacks; none may get MIB. */
static const struct {
	const char *check, *what;
	bool prove;
} memory[] = {
	{ "packet-rings", "ring", true },
	{ "netlink-queues", "netlink", true },
	{ "netlink-between-programs", "usersock", true },
	{ "udp-queues", "udp", true },
	{ "raw-queues", "raw", true },
	{ "tcp-buffers", "tcp", true },
	{ "returned-packets", "returned", true },
	{ "returned-packets-of-tcp", "returned-tcp", true },
	{ "first-messages", "first", true },
	{ "unaccepted-connections", "unaccepted", true },
	{ "queues-of-unlisted-sockets", "unlisted", true },
	{ "queues-in-a-network-without-processes", "elsewhere", true },
	{ "unix-queues", "unix", false },
	{ "pipes", "pipe", false },
	{ "memory-files", "memfd", false },
};

static const struct {
	const char *check, *what, *most, *few;
	bool nested_only;
} counted[] = {
	{ "inotify-instances", "inotify", "100000", "5", false },
	{ "pending-signals", "signals", "200000", "100", false },
	{ "message-queues", "queues", "1000", "5", false },
	{ "terminals", "terminals", "4000", "2", true },
	{ "neighbours", "neighbours", "4000", "30", true },
};

static void hoard_memory(struct suite *suite, const struct group *group)
{
	for (size_t i = 0; i < ARRAY_LEN(memory) && !rig_is_stopping(); i++) {
		const char *const words[CHECK_WORDS] = { "hoard", memory[i].what, MIB };
		struct outcome outcome = suite_attack(suite, SMALL, words), bare;
		/* The kernel chooses which process it kills for memory. */
		bool killed = !outcome.ran && strstr(outcome.how, "memory limit");
		struct result *result = suite_add(suite, group, memory[i].check,
			killed || (outcome.ran && outcome.refused),
			killed ? "killed" : outcome.how);

		if (!outcome.ran && !killed)
			suite_problem(result, "it did not run: %.200s", outcome.how);
		else if (!outcome.refused)
			suite_problem(result, "a box of 64M holds more than " MIB "M");
		if (!suite->unproven || !memory[i].prove)
			continue;
		bare = suite_unguarded(suite, words);
		/* What it got in its time is enough for a proof. */
		if (bare.refused && atoi(bare.detail) < PROOF)
			suite_problem(
				result, "proves nothing: unguarded it fails too (%s)", bare.how);
	}
}

/* One box holds all it can get while another asks for a few. */
static void take_counted(struct suite *suite, const struct group *group)
{
	for (size_t i = 0; i < ARRAY_LEN(counted) && !rig_is_stopping(); i++) {
		const char *const greedy[CHECK_WORDS] = { "hoard", counted[i].what, counted[i].most,
			"2500" };
		const char *const few[CHECK_WORDS] = { "hoard", counted[i].what, counted[i].few };
		struct stay stay = { .fd = -1 };
		struct outcome outcome = { 0 };
		json_t *line = NULL;

		if (counted[i].nested_only && strcmp(suite->profile, "nested") != 0)
			continue;
		if (stay_start(&suite->rig, SMALL, greedy, &stay))
			line = stay_line(&stay, 4000);
		/* The daemon checks the machine's own counts once a second. */
		for (int tries = 0; line && tries < 25; tries++) {
			outcome = suite_attack(suite, counted[i].nested_only ? NEXT : OTHER, few);
			if (!counted[i].nested_only || !outcome.refused)
				break;
			usleep(100 * 1000);
		}
		if (!line)
			suite_problem(suite_add(suite, group, counted[i].check, false, ""),
				"the greedy box did not begin");
		else if (!outcome.ran || outcome.refused)
			suite_problem(suite_add(suite, group, counted[i].check, false, outcome.how),
				"another box gets none any more");
		else
			suite_add(suite, group, counted[i].check, true, outcome.how);
		json_decref(line);
		stay_stop(&stay);
	}
}

static void look_around(struct suite *suite, const struct group *group)
{
	const char *const words[CHECK_WORDS] = { "told", suite->rig.folder };
	struct outcome outcome = suite_attack(suite, OTHER, words);

	suite_add(suite, group, "where-the-host-keeps-boxes", outcome.ran && outcome.refused,
		outcome.how);
}

static void scene_kernel(struct suite *suite, const struct group *group, const char *box)
{
	const char *const small[] = { "new", SMALL, "--image", RIG_IMAGE, suite_flag(suite),
		suite->profile, "--memory", "64M", NULL };
	const char *const other[] = { "new", OTHER, "--image", RIG_IMAGE, NULL };
	const char *const next[] = { "new", NEXT, "--image", RIG_IMAGE, suite_flag(suite),
		suite->profile, NULL };

	(void)box;
	if (suite_box(suite, group, small) && suite_box(suite, group, other) &&
		suite_box(suite, group, next)) {
		hoard_memory(suite, group);
		take_counted(suite, group);
		look_around(suite, group);
	}
	suite_remove_box(suite, SMALL);
	suite_remove_box(suite, OTHER);
	suite_remove_box(suite, NEXT);
}

const struct group kernel_groups[] = {
	{ "kernel",
		"kernel memory of sockets, per-user counters, terminals, neighbours, paths of the host",
		"{\"version\":1,\"preset\":\"none\"}", "", .scene = scene_kernel,
		.not_vm = "the kernel it hoards is its own; QEMU has the limits of the box" },
	{ .name = NULL },
};
