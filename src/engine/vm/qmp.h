/* qmp.h - QEMU's monitor (QMP): commands out, answers and events in
 *
 * A guest may have broken into its QEMU, which can then send anything: lines are bounded in
 * length and nesting, parsed strictly, and an unexpected answer ends the connection.
 *
 * Commands are sent one at a time, in the order they were given: QEMU loses file descriptors
 * that come while an earlier command waits. A round trip takes a tenth of a millisecond. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stddef.h>
#include <stdint.h>

struct loop;
struct qmp;

enum {
	QMP_LINE_MAX = 256 * 1024, /* of one answer or event */
	QMP_DEPTH_MAX = 16,	   /* objects and lists inside each other */
	QMP_QUEUE_MAX = 128,	   /* queued commands; more fail with ERR_LIMIT */
	QMP_LIMIT_MS = 10000,	   /* time-out of an answer, from the call; see qmp_set_limit */
};

/* All from the loop. Each may free the qmp. */
struct qmp_ops {
	/* QEMU has greeted and takes commands. May be NULL. */
	void (*on_ready)(struct qmp *qmp, void *arg);
	/* data is an object, borrowed; empty for an event without data. May be NULL. */
	void (*on_event)(struct qmp *qmp, const char *name, json_t *data, void *arg);
	/* The connection has ended: all calls got the error before. Nothing follows; free it. */
	void (*on_lost)(struct qmp *qmp, const struct err *err, void *arg);
};

/* Exactly one of the two is NULL; result is borrowed. From the loop, never from inside qmp_call.
 * ERR_STATE with QEMU's description: QEMU refused the command; ERR_TIMEOUT: no answer in time,
 * and whether the command was carried out is unknown; ERR_UNAVAILABLE: the connection was lost. */
typedef void (*qmp_done)(json_t *result, const struct err *err, void *arg);

/* Takes fd, a connected socket. Negotiates automatically; calls made before on_ready wait. */
struct qmp *qmp_new(struct loop *loop, int fd, const struct qmp_ops *ops, void *arg);
void qmp_free(struct qmp *qmp); /* accepts NULL; nobody is called any more */

void qmp_set_limit(struct qmp *qmp, uint64_t ms); /* for calls from now on */

/* arguments: taken; NULL: none. fd: sent with the command (for getfd, add-fd); -1: none; the
 * caller keeps it and may close it at once. done may be NULL. */
void qmp_call(
	struct qmp *qmp, const char *command, json_t *arguments, int fd, qmp_done done, void *arg);

/* Commands in sequence, each after the previous one has succeeded. */
struct qmp_step {
	const char *command; /* a literal: not copied */
	json_t *arguments;   /* taken; NULL: none */
	int fd;		     /* as above */
};
/* At most QMP_STEPS_MAX. done gets the result of the last one, or the first error with the
 * command's name before it; later steps are not sent. */
enum { QMP_STEPS_MAX = 8 };
void qmp_run(struct qmp *qmp, const struct qmp_step *steps, size_t count, qmp_done done, void *arg);
