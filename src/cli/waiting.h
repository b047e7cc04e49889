/* waiting.h - says why the start of a box takes long, while its answer is waited for */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct cli;

/* Before a request that is answered when a box runs: from now on what it waits for is noted. name:
 * of the box; NULL: any that is being made. likely: also where nobody looks (no terminal). */
pid_t waiting_begin(const struct cli *cli, const char *name, bool likely);
void waiting_end(pid_t pid); /* after it */
