/* guard.h - removes boxes whose maker was killed
 *
 * A client that removes its boxes at its end can be killed before: by kill -9, by SIGPIPE, or with
 * its terminal. A second process waits for that at the other end of a pipe, in its own session. It
 * is told what to remove before that is made, and removes it when the pipe closes without another
 * message. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <sys/types.h>

enum { GUARD_RUN_LEN = 8 };

/* The label that tells which run of a command made a box; the value has GUARD_RUN_LEN
 * characters. */
#define GUARD_LABEL "boxyard.run"

struct guard {
	int pipe; /* -1: there is none, and all functions but guard_start() do nothing */
	pid_t pid;
	bool idle; /* nothing is to be removed */
};

#define GUARD_INIT ((struct guard){ .pipe = -1, .idle = true })

/* target: the daemon's address, as client_new() takes it. */
int guard_start(struct guard *guard, const char *target, struct err *err);
/* From now on remove one box, by its id or a unique name. */
void guard_tell_box(struct guard *guard, const char *name);
/* From now on remove all boxes with the label GUARD_LABEL=id and remove_on_exit. Forks of them that
 * are to stay have the label, but not remove_on_exit. */
void guard_tell_run(struct guard *guard, const char *id);
/* Starts a guard for a new run and puts the run's label into body, of a box or fork to be made. */
int guard_start_run(struct guard *guard, const char *target, json_t *body, struct err *err);
/* From now on remove nothing: it is already gone, or stays on purpose. */
void guard_tell_nothing(struct guard *guard);
/* Call it in a child of the client: its copy of the pipe would keep the guard waiting. */
void guard_leave(struct guard *guard);
/* Lets the guard do its work now. A guard with nothing to do is waited for, a busy one is not. */
void guard_end(struct guard *guard);
