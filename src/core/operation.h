/* operation.h - what a box is busy with, one at a time
 *
 * A snapshot, a fork, a rollback, a hibernation: each has the box to itself. Who comes meanwhile
 * waits in the box's queue. An operation is an object of its file with this as its first member;
 * what happens to the box in the meantime is told to the one that has its turn, by its table. A
 * function that is NULL has nothing to say: the box goes its ordinary way. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct box;
struct link;
struct operation;

struct operation_ops {
	const char *name; /* for people: "rollback" */
	/* It is its turn, perhaps at once; operation_end must follow. Or box NULL: that will never
	 * be, for that reason. */
	void (*begin)(struct operation *op, struct box *box, const struct err *gone);
	/* The instance of the box has ended, or did not come up. True: the operation sees to it. */
	bool (*ended)(struct operation *op, struct box *box);
	bool (*launch_failed)(struct operation *op, struct box *box, const struct err *why);
	/* What the instance is made upon while another one of the box still stands; NULL: upon the
	 * box's own disk. */
	const char *(*disk)(struct operation *op);
	/* The instance runs, and the network of the box is to be its own. */
	void (*ready)(struct operation *op, struct box *box);
	/* box-init has been told who it is. False: that is not the end of it, and the box's is on
	 * its way. */
	bool (*commit)(struct operation *op, struct box *box);
	void (*came_up)(struct operation *op, struct box *box); /* the box runs */
	/* True: it was a link of the operation's own. */
	bool (*lost_link)(struct operation *op, struct link *link);
	/* The instance was killed and does not end: whoever waits hears it. */
	void (*late)(struct operation *op, struct box *box, const struct err *err);
	/* The box goes, or the daemon does. */
	void (*cancel)(struct operation *op, struct box *box, const struct err *why);
};

struct operation {
	const struct operation_ops *ops;
	struct operation *next; /* in the queue */
};

/* begin is called when it is its turn, or will never be. */
void operation_queue(struct box *box, struct operation *op);
void operation_end(struct box *box);
/* A new daemon goes on with one. */
void operation_resume(struct box *box, struct operation *op);
/* Whether somebody has the box, or is about to. */
bool operation_is_on(const struct box *box);
/* The operation of the box if it is one of these, or NULL. */
struct operation *operation_find(const struct box *box, const struct operation_ops *ops);

/* What the one that has its turn says; all accept a box without. */
bool operation_ended(struct box *box);
bool operation_launch_failed(struct box *box, const struct err *why);
const char *operation_disk(const struct box *box);
void operation_ready(struct box *box);
bool operation_commit(struct box *box);
void operation_came_up(struct box *box);
bool operation_lost_link(struct box *box, struct link *link);
void operation_late(struct box *box, const struct err *err);
void operation_cancel(struct box *box, const struct err *why); /* and all that wait */
