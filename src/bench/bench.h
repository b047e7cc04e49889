/* bench.h - the measurements of `box bench`, without its command line
 *
 * Blocking; catches SIGINT, SIGTERM and SIGHUP for the rest of the process's life: on a signal
 * the running measurement is finished, everything that was made is removed, and the results so
 * far are printed. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>

struct client;

enum { BENCH_RUNS = 200, BENCH_RUNS_MAX = 100000, BENCH_BOXES = 500, BENCH_BOXES_MAX = 1000 };

struct bench_options {
	struct client *client; /* borrowed, as all of it */
	const char *target;    /* the socket or address behind client */
	const char *const *names;
	size_t name_count; /* 0: everything */
	size_t runs;	   /* runs of each row at most, 1 to BENCH_RUNS_MAX */
	size_t boxes;	   /* for the rows with many boxes, 1 to BENCH_BOXES_MAX */
	bool with_peers;   /* measures other sandboxes too; a named one is measured anyway */
	bool json;	   /* report as JSON */
	/* for the rows of disks; see options.h. NULL: a default, or the row is skipped */
	const char *tar, *host_dir, *npm_project;
	/* Called during the run; what NULL: nothing to show. */
	void (*progress)(const char *what, size_t done, size_t total, void *arg);
	void *arg;
};

/* [{"name","unit","summary"}] of all rows; a new reference. */
json_t *bench_list(void);
/* Checks the name of a row or group; ERR_INVALID, with the nearest name, when there is none. */
int bench_check_name(const char *name, struct err *err);
/* Measures and prints the report. *ret: the exit code; 130 when a signal ended it, that of the
 * first of our rows that failed, or 0. Fails when the daemon cannot be used. The names were
 * checked. */
int bench_run(const struct bench_options *options, int *ret, struct err *err);
