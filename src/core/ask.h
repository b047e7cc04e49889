/* ask.h - what programs inside a box ask of the daemon, and what they are answered
 *
 * `box` in a box reaches the daemon through box-init (guest/self.h). A request is an `ask`: words
 * in; output, errors and an exit code out. What the words mean is the business of the front door
 * that serves them (src/inside); core knows which box asks, carries the answers, and lets the door
 * work as that box (asker.h).
 *
 * An ask outlives the link to box-init. It goes when its answer was taken to the end, or when
 * whoever asked, or the box, is gone; a pointer to it is valid until ask_ops.gone. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "core/exec.h"

struct ask;
struct box;
struct yard;

enum ask_end {
	ASK_OVER,      /* its answer was taken, or its box or the daemon goes */
	ASK_CANCELLED, /* whoever asked has gone: what is done for him alone ends */
};

struct ask_ops {
	/* A request. again: a daemon before this one may have done it already. ask_done or
	 * ask_fail follows, now or later. */
	void (*begin)(struct ask *ask, bool again, void *arg);
	/* So many bytes of ask_relay have been taken. */
	void (*relayed)(struct ask *ask, size_t len, void *arg);
	/* The door lets go of what it has for it. */
	void (*gone)(struct ask *ask, enum ask_end end, void *arg);
};

/* The door for all asks of the yard. ops NULL: there is none any more, and asks that are not over
 * go. Without a door all are refused. */
void asks_serve(struct yard *yard, const struct ask_ops *ops, void *arg);

struct box *ask_get_box(const struct ask *ask);
char **ask_get_words(const struct ask *ask);	/* at least one, NULL at the end; borrowed */
void ask_set_data(struct ask *ask, void *data); /* the door's own */
void *ask_get_data(const struct ask *ask);
/* For verbs that go on when the ask, or its box, is gone. ask_find: NULL when it is. */
uint64_t ask_get_serial(const struct ask *ask);
struct ask *ask_find(struct yard *yard, uint64_t serial);

void ask_out(struct ask *ask, const void *data, size_t len);
/* Output of a program, whose window is given back as relayed says. */
void ask_relay(struct ask *ask, enum exec_stream stream, const void *data, size_t len);
/* The end: nothing is added to it any more. */
void ask_done(struct ask *ask, int exit_code);
void ask_fail(struct ask *ask, const struct err *err); /* "box: MESSAGE (HINT)", and its code */
/* Records an event of the box, unless its tree has had too many; takes data. */
void ask_event(struct ask *ask, const char *type, json_t *data);
