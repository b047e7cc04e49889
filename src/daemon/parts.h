/* parts.h - the parts of the daemon, started in the order of one table and closed in reverse */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct http_server;

/* A part: something that keeps state, or a front door. Functions it does not need are NULL; arg is
 * the daemon. */
struct part {
	const char *name;
	int (*start)(void *arg, struct err *err);
	/* An HTTP front adds itself to the server that all fronts share (http/pass.h), once that is
	 * up. */
	void (*attach)(void *arg, struct http_server *server);
	/* Where the part listens, for the log; NULL: nowhere. Borrowed, until the next call. */
	const char *(*listens)(void *arg);
	/* Reads its files again, on SIGHUP. */
	void (*reload)(void *arg);
	/* A front door accepts nothing new, gives running requests a moment to end, then calls done
	 * once. */
	void (*stop)(void *arg, void (*done)(void *done_arg), void *done_arg);
	void (*close)(void *arg); /* releases everything; called only for a part that was started */
};

struct parts {
	const struct part *table;
	size_t count;
	void *arg;
	size_t started;	 /* how many parts were started, from the first */
	size_t stopping; /* front doors that have not ended yet */
	void (*stopped)(void *arg);
};

/* Starts all parts in order. When one fails, those before it are closed in reverse. */
int parts_start(struct parts *parts, struct err *err);
void parts_attach(struct parts *parts, struct http_server *server); /* in order */
void parts_reload(struct parts *parts);
/* Stops all front doors at once; calls stopped(arg) when the last one has ended. */
void parts_stop(struct parts *parts, void (*stopped)(void *arg));
/* Closes the parts that were started, in reverse. */
void parts_close(struct parts *parts);
