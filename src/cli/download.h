/* download.h - an archive from the daemon into a file or a pipe */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct cli;

/* GETs path into target: a file, which appears under its name only when it is complete, or "-":
 * stdout, unless that is a terminal (ERR_INVALID). what names it in messages and on the bar.
 * *ret_bytes may be NULL. */
int download(struct cli *cli, const char *what, const char *path, const char *target,
	uint64_t *ret_bytes, struct err *err);
