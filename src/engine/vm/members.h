/* members.h - QEMU processes started ahead of need, that wait for a state
 *
 * A member (-incoming defer) has RAM, processors and a network card; state, RAM layers and disks
 * are put into it when it is taken, whether for a new box, a fork, a wake or a rollback. Kept are
 * `count` of each machine somebody took lately; ones nobody takes are ended after a while. A member
 * with the preload library ends when its daemon does, as long as nobody has taken it; what is left
 * all the same, or runs without the library, the next daemon ends. */
#pragma once
#include "base/err.h"
#include "engine/groups.h"
#include "engine/vm/qemu.h"
#include <stddef.h>

struct doors_plan;
struct loop;
struct members;

struct members_config {
	struct loop *loop;
	const char *run;       /* BOX_RUN/vm; made if it is missing */
	const char *preload;   /* as in qemu_spec */
	unsigned count;	       /* conf vm_spares: that wait, of each machine in use; 0: none */
	struct groups *groups; /* they wait in MEMBERS_GROUP there; NULL: where the daemon is */
	/* The network of each: a namespace with a tap; NULL: an empty one. */
	const struct doors_plan *doors;
};
#define MEMBERS_GROUP "members" GROUPS_WORK_SUFFIX
enum {
	MEMBERS_MAX = 32, /* that wait or start, all together */
	MEMBERS_MACHINES_MAX = 4,
	MEMBERS_UNUSED_MS = 10 * 60 * 1000,
};

/* Sweeps what an earlier daemon left in run: folders of members, not those of boxes. */
int members_open(const struct members_config *config, struct members **ret, struct err *err);
/* Ends all that wait. No callback comes any more: takes that wait are forgotten. */
void members_close(struct members *members); /* accepts NULL */

/* One that was taken: all of it is the taker's. It is ready and has no ops any more
 * (qemu_set_ops at once); moved into the box's folder by qemu_rename, into its groups by
 * qemu_move. */
struct member {
	struct qemu *qemu;
	int netns; /* -1: an empty one that nobody holds */
	/* A connection to the library (ram_link_new). As long as it was not told to keep its
	 * process (ram_link_keep), closing it ends QEMU. -1: without a preload. */
	int ram;
};
/* On failure member is NULL; it is borrowed, its parts are not. From the loop. */
typedef void (*members_taken)(const struct member *member, const struct err *err, void *arg);
struct members_take; /* one that is waited for */
/* program is copied. *ret is valid until done is called. */
void members_take(struct members *members, const struct qemu_machine *machine, members_taken done,
	void *arg, struct members_take **ret);
void members_cancel(struct members_take *take); /* accepts NULL; done is not called */
/* Makes members of this machine although none was taken. */
void members_prepare(struct members *members, const struct qemu_machine *machine);
/* How many wait for a taker, ready. */
unsigned members_ready(const struct members *members, const struct qemu_machine *machine);
