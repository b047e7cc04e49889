/* bench.h - the measurements of `box bench`, without its command line
 *
 * Blocking; catches SIGINT, SIGTERM and SIGHUP for the rest of the process's life: the measurement
 * under way is finished, everything made is removed, what was measured is printed. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>

struct client;

enum { BENCH_RUNS = 200, BENCH_RUNS_MAX = 100000, BENCH_BOXES = 500, BENCH_BOXES_MAX = 1000 };

struct bench_options {
	struct client *client; /* borrowed, as all of it */
	const char *target;    /* what client speaks to */
	const char *const *names;
	size_t name_count; /* 0: everything */
	size_t runs;	   /* of each row at most, 1 to BENCH_RUNS_MAX */
	size_t boxes;	   /* for the rows with many boxes, 1 to BENCH_BOXES_MAX */
	bool with_peers;   /* the other sandboxes too; one that is named is measured anyway */
	bool json;	   /* report as JSON */
	/* for the rows of disks; see options.h. NULL: each has a default or is skipped */
	const char *tar, *host_dir, *npm_project;
	/* Called as it goes on; what NULL: nothing to show for now. */
	void (*progress)(const char *what, size_t done, size_t total, void *arg);
	void *arg;
};

/* [{"name","unit","summary"}] of all rows; a new reference. */
json_t *bench_list(void);
/* Whether rows are called so; ERR_INVALID, with the nearest name, when there are none. */
int bench_check_name(const char *name, struct err *err);
/* Measures and prints the report. *ret: the exit code, 130 when a signal ended it, that of the
 * first row of ours that failed, or 0. Fails when the daemon cannot be used. The names are
 * good. */
int bench_run(const struct bench_options *options, int *ret, struct err *err);
