/* limit.h - a box that reached a limit; see limit.c */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct box;

/* What this daemon knows of a box and its limits. */
struct box_limits {
	uint64_t oom_kills;    /* since this start */
	uint64_t pids_refused; /* the part that was already reported */
	const char *stops;     /* name of the limit that stops the box, or NULL; a literal */
	bool holds;	       /* processes wait at the memory limit instead of being killed */
	/* when the box was resumed at its memory limit, so that the kernel may kill once; 0:
	 * never */
	int64_t let_kill_us;
	uint64_t disk_used;	 /* as of the last look (every second) */
	uint64_t tree_used;	 /* all disks of the tree, likewise; see budget.c */
	bool disk_full;		 /* the event was raised, and no room was made since */
	uint64_t disk_seen;	 /* usage at the last close look */
	int64_t disk_changed_us; /* when disk_seen last changed */
	int64_t look_us;	 /* when the next close look is due */
};

/* "memory" "disk" "pids" "network" if the box is paused at that limit, else NULL. */
const char *box_limit_reached(const struct box *box);
/* Fails with ERR_LIMIT, the limit and how to resume; returns -1. */
int box_refuse_paused(const struct box *box, struct err *err);

/* Updates whether processes wait at the memory limit; call it after the instance, the limits or the
 * policy changed. */
void limit_arm(struct box *box);
/* Resets what was noticed before a pause; call it when the box is resumed. */
void limit_resumed(struct box *box);
/* kills 0: a process is about to be killed; see instance_ops.on_oom. */
void limit_memory(struct box *box, uint64_t kills);
/* Looks whether forks were refused since the last look. */
void limit_processes(struct box *box);
