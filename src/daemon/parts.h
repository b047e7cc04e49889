/* parts.h - what the daemon is made of, started in the order of one table and ended in reverse */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct http_server;

/* A part: a store of state, or a front door. Functions it does not need are NULL; arg is the
 * daemon. */
struct part {
	const char *name;
	int (*start)(void *arg, struct err *err);
	/* A front adds itself to the server that HTTP fronts share (http/pass.h), once it is up. */
	void (*attach)(void *arg, struct http_server *server);
	/* Where it listens, for the log; NULL: nowhere. Borrowed, until the next call. */
	const char *(*listens)(void *arg);
	/* Reads its files again, on SIGHUP. */
	void (*reload)(void *arg);
	/* A door: takes nothing new, lets what runs end for a while, then calls done once. */
	void (*stop)(void *arg, void (*done)(void *done_arg), void *done_arg);
	void (*close)(void *arg); /* lets go of everything; only of a part that was started */
};

struct parts {
	const struct part *table;
	size_t count;
	void *arg;
	size_t started;	 /* the first so many */
	size_t stopping; /* doors that have not ended yet */
	void (*stopped)(void *arg);
};

/* Starts all, in order. When one fails, those before it are closed in reverse. */
int parts_start(struct parts *parts, struct err *err);
void parts_attach(struct parts *parts, struct http_server *server); /* in order */
void parts_reload(struct parts *parts);
/* Stops all doors at once; stopped (with arg) is called when the last one has ended. */
void parts_stop(struct parts *parts, void (*stopped)(void *arg));
/* Closes what was started, in reverse. */
void parts_close(struct parts *parts);
