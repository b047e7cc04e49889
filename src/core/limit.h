/* limit.h - a box that reached a limit; see limit.c */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct box;

/* "memory" "disk" "pids" "network" of one that is paused for it, else NULL. */
const char *box_limit_reached(const struct box *box);
/* ERR_LIMIT: what it reached and how it goes on; -1. */
int box_refuse_paused(const struct box *box, struct err *err);

/* Its instance, its limits or its policy is another: it holds at its limit of memory, or not. */
void limit_arm(struct box *box);
/* It goes on after a pause. What it had run into before is over. */
void limit_resumed(struct box *box);
/* kills 0: it is about to lose a process; see instance_ops.on_oom. */
void limit_memory(struct box *box, uint64_t kills);
/* Looks whether forks were refused since the last look. */
void limit_processes(struct box *box);
