/* suite.h - what is tried, and how it is judged
 *
 * suite.c         runs groups of checks in boxes, one box for each group and profile
 * judge.c         runs one check and judges its result
 * checks_reach.c  addresses, ranges, hosts, protocols, packets, the box's own network
 * checks_speak.c  DNS, names, rebinding, TLS
 * checks_http.c   HTTP
 * scenes.c        attacks of several steps: other boxes, a policy that changes, a daemon that is
 *                 killed, floods
 * scenes_copies.c  what forks and saved images inherit
 * scenes_disk.c   more disk than the limit
 * scenes_files.c  files copied out of a box
 * scenes_kernel.c more kernel memory and kernel objects than the limit
 * scenes_tree.c   more boxes than the limit
 * scenes_share.c  shares of forks at the gate, and captures without end
 * neighbour.c     the other box, which must not be disturbed
 * audit_look.c    the audit log, read from outside
 * report.c        the report */
#pragma once
#include "attack/rig.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum check_flag {
	CHECK_WORKS = 1,     /* must get through: with a dead network all other checks would pass */
	CHECK_EITHER = 2,    /* may be answered; what the world received decides */
	CHECK_SILENT = 4,    /* no answer counts as a refusal */
	CHECK_NO_LOG = 8,    /* never leaves the box's own kernel: nobody can log it */
	CHECK_LOG_ANY = 16,  /* must be logged, with any verdict */
	CHECK_NO_PROOF = 32, /* would not arrive from outside a box either */
	CHECK_STANDARD = 64, /* not in profile nested */
	CHECK_NESTED = 128,
};

enum { CHECK_WORDS = 12, PROBLEM_SIZE = 400, HOW_SIZE = 200 };

struct check {
	const char *name;
	unsigned flags;			/* enum check_flag */
	const char *words[CHECK_WORDS]; /* of box-attacker; ends with NULL */
	const char *log; /* must occur in a line of the audit log; NULL: the second word */
	const char *
		/* endpoints of the world that may be reached during the check, separated by
		 * blanks */
		may;
	const char *never; /* must not arrive anywhere; NULL: "evil" */
	unsigned most;	   /* maximum of connections to the endpoints in may; 0: any number */
};

struct suite;
struct group {
	const char *name;
	const char *text;   /* one line for users */
	const char *policy; /* of the box, as JSON */
	/* names that the world's DNS may be asked for: "allowed.test *.wild.test" */
	const char *names;
	const struct check *checks;
	size_t count;
	bool no_proof; /* CHECK_NO_PROOF for all of them */
	bool alone;    /* the neighbour is not running */
	/* why it does not apply to boxes with their own kernel; NULL: it does */
	const char *not_vm;
	/* Runs instead of, or after, the checks; the box is running. May be NULL. */
	void (*scene)(struct suite *suite, const struct group *group, const char *box);
};

extern const struct group reach_groups[], speak_groups[], http_groups[], scene_groups[],
	disk_groups[], file_groups[], kernel_groups[], tree_groups[], share_groups[],
	copy_groups[]; /* each ends with a row without name */

/* The result of one attempt. */
struct outcome {
	bool ran; /* else how says why not */
	bool refused, silent;
	char how[HOW_SIZE];
	char detail[512];
};

struct result {
	const char *group, *check, *profile;
	char *own_check; /* owned; the check of a scene */
	bool passed;
	char how[HOW_SIZE];
	char problem[PROBLEM_SIZE];
};

struct neighbour;
struct suite {
	struct rig rig;
	const char *profile; /* the current one; "vm": that driver */
	/* first profile: each attack must be shown to arrive when nothing blocks it */
	bool unproven;
	struct neighbour *neighbour;
	struct result *results; /* owned */
	size_t count;
	bool quiet, json;
};

/* The option of `box new` whose value is suite->profile: boxes of the driver vm have no
 * profiles, so there it is the driver. */
const char *suite_flag(const struct suite *suite);
/* boxes of the current profile have their own kernel */
bool suite_is_vm(const struct suite *suite);
/* Runs box-attacker in a box. */
struct outcome suite_attack(struct suite *suite, const char *box, const char *const *words);
/* Runs box-attacker in the site, where nothing blocks it. */
struct outcome suite_unguarded(struct suite *suite, const char *const *words);
struct result *suite_add(struct suite *suite, const struct group *group, const char *check,
	bool passed, const char *how);
void suite_problem(struct result *result, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Runs one check: attack, world, host. The log is checked at the end of the group. */
void suite_check(
	struct suite *suite, const struct group *group, const char *box, const struct check *check);
/* Runs the attack where nothing blocks it; it must arrive. In the first profile only. */
void suite_prove(struct suite *suite, const struct group *group, const struct check *check,
	struct result *result);
/* What the witnesses received that the check does not allow, as a sentence; yours to free, NULL:
 * nothing. */
char *suite_look(struct suite *suite, const struct group *group, const struct check *check);
/* Runs a `box` command that must succeed; false, with the error in the results, when it fails. */
bool suite_box(struct suite *suite, const struct group *group, const char *const *words);
/* Writes a policy into a file of the rig and returns its path; yours to free. */
char *suite_policy_file(struct suite *suite, const char *name, const char *policy);
bool suite_new_box(
	struct suite *suite, const struct group *group, const char *name, const char *policy);
void suite_remove_box(struct suite *suite, const char *name);

/* scenes_tree.c: whether boxes can be captured on this machine. */
bool suite_can_fork(struct suite *suite);

/* neighbour.c */
int neighbour_start(struct rig *rig, struct neighbour **ret, struct err *err);
void neighbour_stop(struct rig *rig, struct neighbour *neighbour); /* accepts NULL */
struct neighbour_look {
	unsigned visits, failed;
	double worst_ms, middle_ms;
	char first_failure[HOW_SIZE];
};
/* The visits since the last call; waits for one more visit. */
struct neighbour_look neighbour_look(struct neighbour *neighbour);

/* A detached `box exec` whose lines are read as they come; for neighbours and scenes. */
struct stay {
	pid_t pid;
	int fd;
	struct buf text; /* received and not yet returned */
};
bool stay_start(struct rig *rig, const char *box, const char *const *words, struct stay *ret);
/* The next line as JSON, a new reference; NULL when none comes within ms. */
json_t *stay_line(struct stay *stay, int ms);
void stay_stop(struct stay *stay);

/* audit_look.c: all lines of a box so far, as text; yours to free. Waits until they are on disk. */
char *audit_look(const struct rig *rig, const char *box);
/* Whether a line contains word and, unless any, a verdict other than "allowed". */
bool audit_has(const char *lines, const char *word, bool any);

/* report.c */
void report_group(
	const struct suite *suite, const struct group *group, size_t from, double seconds);
void report_end(const struct suite *suite, double seconds);
