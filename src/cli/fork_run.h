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

/* Runs all in parallel until the last has ended. Returns the exit code of the first in the list
 * that failed. named: each line of output begins with the name of its box, and failures are
 * reported; else there is at most one program. guard: of the boxes; started processes leave it. */
int fork_run(struct cli *cli, const struct fork_program *programs, size_t count, bool named,
	struct guard *guard);
/* Removes a box whatever runs in it. Returns whether it is gone; if not, the reason is reported. */
bool fork_remove(struct cli *cli, const char *box);
