/* suite.h - what is tried, and how it is judged
 *
 * suite.c         runs groups of checks in boxes, one box for each group and profile
 * judge.c         one check, and what came of it
 * checks_reach.c  addresses, ranges, hosts, protocols, packets, the box's own network
 * checks_speak.c  DNS, names, rebinding, TLS
 * checks_http.c   HTTP
 * scenes.c        what takes more than one step: other boxes, a policy that changes, a daemon that
 *                 dies, floods
 * scenes_disk.c   more disk than was given
 * scenes_files.c  what is copied out of a box
 * scenes_kernel.c more of the kernel than was given
 * scenes_tree.c   more boxes than were given
 * scenes_share.c  what they share at the gate, and captures without end
 * neighbour.c     the innocent box next door
 * audit_look.c    the audit log, read from outside
 * report.c        what is printed */
#pragma once
#include "attack/rig.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum check_flag {
	CHECK_WORKS = 1,  /* must get through: a dead network would pass all the others */
	CHECK_EITHER = 2, /* may be answered; what the world saw decides */
	CHECK_SILENT = 4, /* no answer at all is as good as a refusal */
	CHECK_NO_LOG =
		8, /* never leaves the box's own kernel: there is nobody who could write it down */
	CHECK_LOG_ANY = 16,  /* written down, whatever the verdict */
	CHECK_NO_PROOF = 32, /* would not arrive from an unguarded place either */
	CHECK_STANDARD = 64, /* not in profile nested */
	CHECK_NESTED = 128,
};

enum { CHECK_WORDS = 12, PROBLEM_SIZE = 400, HOW_SIZE = 200 };

struct check {
	const char *name;
	unsigned flags;			/* enum check_flag */
	const char *words[CHECK_WORDS]; /* of box-attacker; ends with NULL */
	const char *log; /* stands in a line of the audit log; NULL: the second word */
	const char *
		may; /* endpoints of the world that may be reached meanwhile, separated by blanks */
	const char *never; /* must not arrive anywhere; NULL: "evil" */
	unsigned most; /* so many connections may arrive at the endpoints of may; 0: any number */
};

struct suite;
struct group {
	const char *name;
	const char *text;   /* one line for people */
	const char *policy; /* of the box, as JSON */
	const char *names;  /* the world may be asked for these: "allowed.test *.wild.test" */
	const struct check *checks;
	size_t count;
	bool no_proof;	    /* of none of them */
	bool alone;	    /* the neighbour is not there */
	const char *not_vm; /* why it says nothing of boxes with their own kernel; NULL: it does */
	/* Instead of, or after, the checks; the box is running. May be NULL. */
	void (*scene)(struct suite *suite, const struct group *group, const char *box);
};

extern const struct group reach_groups[], speak_groups[], http_groups[], scene_groups[],
	disk_groups[], file_groups[], kernel_groups[], tree_groups[], share_groups[],
	copy_groups[]; /* each ends with a row without name */

/* What one attempt led to. */
struct outcome {
	bool ran; /* else how tells why not */
	bool refused, silent;
	char how[HOW_SIZE];
	char detail[512];
};

struct result {
	const char *group, *check, *profile;
	char *own_check; /* owned; check of a scene */
	bool passed;
	char how[HOW_SIZE];
	char problem[PROBLEM_SIZE];
};

struct neighbour;
struct suite {
	struct rig rig;
	const char *profile; /* the one under way; "vm": that driver */
	bool unproven;	     /* first profile: each attack is shown to arrive where nobody guards */
	struct neighbour *neighbour;
	struct result *results; /* owned */
	size_t count;
	bool quiet, json;
};

/* The name of the flag of `box new` that suite->profile is the value of: a box with a kernel of its
 * own has no profiles, it is of another driver. */
const char *suite_flag(const struct suite *suite);
bool suite_is_vm(const struct suite *suite); /* boxes of the profile under way have own kernels */
/* Runs box-attacker in a box. */
struct outcome suite_attack(struct suite *suite, const char *box, const char *const *words);
/* The same on its own, in the site, guarded by nobody. */
struct outcome suite_unguarded(struct suite *suite, const char *const *words);
struct result *suite_add(struct suite *suite, const struct group *group, const char *check,
	bool passed, const char *how);
void suite_problem(struct result *result, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* One check: attack, world, host. The log is looked at when the group is over. */
void suite_check(
	struct suite *suite, const struct group *group, const char *box, const struct check *check);
/* Runs the attack where nobody guards; it must arrive. In the first profile alone. */
void suite_prove(struct suite *suite, const struct group *group, const struct check *check,
	struct result *result);
/* What the witnesses saw that they should not have, as a sentence; yours to free, NULL: nothing. */
char *suite_look(struct suite *suite, const struct group *group, const struct check *check);
/* A `box` command that must work; false, with the problem in the results, when it does not. */
bool suite_box(struct suite *suite, const struct group *group, const char *const *words);
/* Writes a policy into a file of the rig and gives its path; yours to free. */
char *suite_policy_file(struct suite *suite, const char *name, const char *policy);
bool suite_new_box(
	struct suite *suite, const struct group *group, const char *name, const char *policy);
void suite_remove_box(struct suite *suite, const char *name);

/* scenes_tree.c: whether boxes can be captured here. */
bool suite_can_fork(struct suite *suite);

/* neighbour.c */
int neighbour_start(struct rig *rig, struct neighbour **ret, struct err *err);
void neighbour_stop(struct rig *rig, struct neighbour *neighbour); /* accepts NULL */
struct neighbour_look {
	unsigned visits, failed;
	double worst_ms, middle_ms;
	char first_failure[HOW_SIZE];
};
/* How it went since the last look; waits until there was one more visit. */
struct neighbour_look neighbour_look(struct neighbour *neighbour);

/* A detached `box exec` whose lines are read as they come; for neighbours and scenes. */
struct stay {
	pid_t pid;
	int fd;
	struct buf text; /* what has come and is not taken yet */
};
bool stay_start(struct rig *rig, const char *box, const char *const *words, struct stay *ret);
/* The next line as JSON, a new reference; NULL when none comes within ms. */
json_t *stay_line(struct stay *stay, int ms);
void stay_stop(struct stay *stay);

/* audit_look.c: all lines of a box's so far, as text; yours to free. Waits until they are on
 * disk. */
char *audit_look(const struct rig *rig, const char *box);
/* Whether a line has word in it and, unless any, a verdict that is no "allowed". */
bool audit_has(const char *lines, const char *word, bool any);

/* report.c */
void report_group(
	const struct suite *suite, const struct group *group, size_t from, double seconds);
void report_end(const struct suite *suite, double seconds);
