/* fork_run.h - a program in each of several boxes, with its output here */
#pragma once
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>

struct cli;
struct guard;

struct fork_program {
	const char *box;
	json_t *body; /* of the exec */
};

/* Runs all beside each other until the last has ended. The exit code is that of the first in the
 * list that failed. named: each line of output begins with the name of its box, and what failed is
 * told; else there is one at most. guard: of the boxes; processes that are started leave it. */
int fork_run(struct cli *cli, const struct fork_program *programs, size_t count, bool named,
	struct guard *guard);
/* Whatever runs in it. Returns whether it has gone; if not, the reason is told. */
bool fork_remove(struct cli *cli, const char *box);
