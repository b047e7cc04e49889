/* group.h - the cgroups of all programs of a box in a VM
 *
 *     /                  box-init and its workers; invisible to programs
 *     /box               the root that programs see in their cgroup namespace
 *     /box/programs      what box-init starts; podman and others make groups beside it
 *
 * Outside a VM there are none, and all of these do nothing. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* Makes them; programs see /box mounted at path. */
int group_open(const char *path, struct err *err);
/* Moves the calling process among the programs; in the child. */
void group_join(void);
int group_set_pids(uint64_t limit, struct err *err); /* 0: any number */
/* All programs stand still (or go on) when it returns. ERR_TIMEOUT: some could not, and all go
 * on. */
int group_freeze(struct err *err);
/* As group_freeze, without waiting for those that take longer than a moment: false, they will stand
 * still, or cannot. */
bool group_freeze_soon(void);
int group_thaw(struct err *err);

struct group_stats {
	uint64_t processes, threads, oom_kills, pids_refused, cpu_us;
};
void group_get_stats(struct group_stats *ret);
/* Readable when a program was killed for lack of memory or a fork was refused; -1: there is
 * none. Borrowed. */
int group_get_limits_watch(void);
bool group_is_running(void); /* a thread of a program runs, or waits for a CPU, now */
