/* limit.h - a box that reached a limit; see limit.c */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct box;

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
