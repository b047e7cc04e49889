/* members.h - QEMU processes started ahead of need, that wait for a state
 *
 * A member (-incoming defer) has RAM, processors and a network card; state, RAM layers and disks
 * are put into it when it is taken, whether for a new box, a fork, a wake or a rollback. Kept are
 * `count` of each machine somebody took lately; ones nobody takes are ended after a while. Members
 * are bounded in number. Those of a daemon that is gone are ended by a watcher of its own, or else
 * by the next daemon. */
#pragma once
#include "base/err.h"
#include "engine/vm/qemu.h"
#include <stddef.h>

struct cgroup_tree;
struct loop;
struct members;

struct members_config {
	struct loop *loop;
	const char *run;     /* BOX_RUN/vm; made if it is missing */
	const char *preload; /* as in qemu_spec */
	unsigned count;	     /* conf vm_spares: that wait, of each machine in use; 0: none */
	/* Where they wait: the group MEMBERS_GROUP in it; NULL: in the daemon's own. */
	struct cgroup_tree *cgroups;
	/* The network of a new one: a namespace with a tap, both the members' from then on.
	 * *ret_tap -1: without. NULL: none. */
	int (*make_net)(int *ret_netns, int *ret_tap, void *arg, struct err *err);
	void *net_arg;
};
#define MEMBERS_GROUP "members"
enum { MEMBERS_MAX = 16, MEMBERS_MACHINES_MAX = 4, MEMBERS_UNUSED_MS = 10 * 60 * 1000 };

/* Sweeps what an earlier daemon left in run. */
int members_open(const struct members_config *config, struct members **ret, struct err *err);
/* Ends all that wait. No callback comes any more: takes that wait are forgotten. */
void members_close(struct members *members); /* accepts NULL */

/* The taken one is ready, has no ops (qemu_set_ops) and is the caller's, who moves it into the
 * box's folder (qemu_rename) and its groups; netns is its network namespace, the caller's too (-1:
 * it has an empty one). On failure qemu is NULL. From the loop. */
typedef void (*members_taken)(struct qemu *qemu, int netns, const struct err *err, void *arg);
struct members_take; /* one that is waited for */
/* machine->program is copied. *ret is valid until done is called. */
void members_take(struct members *members, const struct qemu_machine *machine, members_taken done,
	void *arg, struct members_take **ret);
void members_cancel(struct members_take *take); /* accepts NULL; done is not called */
/* Makes members of this machine, without one being taken. */
void members_prepare(struct members *members, const struct qemu_machine *machine);
/* How many are ready for this machine. */
unsigned members_ready(const struct members *members, const struct qemu_machine *machine);
