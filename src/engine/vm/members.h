/* members.h - QEMU processes started ahead of need, that wait for a state
 *
 * A member (-incoming defer) has RAM, processors and a network card. Device state, RAM layers
 * and disks are added when it is taken, for a new box, a fork, a wake or a rollback. `count`
 * members are kept for each machine type that was used lately; unused ones are ended after a
 * while. A member with the preload library ends with its daemon unless it was taken; the next
 * daemon ends what is left, and members without the library. */
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
	unsigned count;	       /* members kept for each machine in use; 0: none */
	struct groups *groups; /* they wait in MEMBERS_GROUP there; NULL: in the daemon's group */
	/* The network of each: a namespace with a tap; NULL: an empty one. */
	const struct doors_plan *doors;
};
#define MEMBERS_GROUP "members" GROUPS_WORK_SUFFIX
enum {
	MEMBERS_MAX = 32, /* waiting or starting, in all */
	MEMBERS_MACHINES_MAX = 4,
	MEMBERS_UNUSED_MS = 10 * 60 * 1000,
};

/* Removes what an earlier daemon left in run: folders of members, not those of boxes. */
int members_open(const struct members_config *config, struct members **ret, struct err *err);
/* Ends all waiting members. No callback afterwards: pending takes are dropped. */
void members_close(struct members *members); /* accepts NULL */

/* A taken member: all of it belongs to the caller. It is ready and has no ops (call qemu_set_ops
 * at once); qemu_rename moves it into the box's folder, qemu_move into its groups. */
struct member {
	struct qemu *qemu;
	int netns; /* -1: an empty one without a descriptor */
	/* A connection to the library (ram_link_new). Closing it ends QEMU, unless the library
	 * was told to keep its process (ram_link_keep). -1: without a preload. */
	int ram;
};
/* On failure member is NULL; it is borrowed, its parts are not. From the loop. */
typedef void (*members_taken)(const struct member *member, const struct err *err, void *arg);
struct members_take; /* a pending take */
/* program is copied. *ret is valid until done is called. */
void members_take(struct members *members, const struct qemu_machine *machine, members_taken done,
	void *arg, struct members_take **ret);
void members_cancel(struct members_take *take); /* accepts NULL; done is not called */
/* Starts members of this machine although none was taken yet. */
void members_prepare(struct members *members, const struct qemu_machine *machine);
/* How many ready members there are. */
unsigned members_ready(const struct members *members, const struct qemu_machine *machine);
