/* operation.h - what a box is busy with, one operation at a time
 *
 * Snapshot, fork, rollback, hibernation: each has the box to itself, and others wait in the box's
 * queue. An operation is a struct of its own file with struct operation as its first member. What
 * happens to the box meanwhile is passed to the current operation through its table; where a
 * function is NULL, the box does what it does without an operation. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct box;
struct link;
struct operation;

struct operation_ops {
	const char *name; /* for people: "rollback" */
	/* The operation has the turn; operation_end must follow. With box NULL it never gets the
	 * turn, for the reason gone. */
	void (*begin)(struct operation *op, struct box *box, const struct err *gone);
	/* The instance has ended, or did not come up. True: the operation has handled it. */
	bool (*ended)(struct operation *op, struct box *box);
	bool (*launch_failed)(struct operation *op, struct box *box, const struct err *why);
	/* Name of the disk for the new instance while the old instance still exists; NULL: the
	 * box's own disk. */
	const char *(*disk)(struct operation *op);
	/* Of an instance from a state: its programs go on when this returns. Then held: none of
	 * them has run after all, and launch_failed follows. */
	void (*going)(struct operation *op, struct box *box);
	void (*held)(struct operation *op, struct box *box);
	/* The instance runs and now gets the network of the box. */
	void (*ready)(struct operation *op, struct box *box);
	/* box-init has its identity. False: the operation is not finished, and will finish the
	 * start of the box. */
	bool (*commit)(struct operation *op, struct box *box);
	void (*came_up)(struct operation *op, struct box *box); /* the box runs */
	/* True: the link belonged to the operation. */
	bool (*lost_link)(struct operation *op, struct link *link);
	/* The instance was killed but does not end: the operation tells those who wait. */
	void (*late)(struct operation *op, struct box *box, const struct err *err);
	/* The box is being removed, or the daemon ends. */
	void (*cancel)(struct operation *op, struct box *box, const struct err *why);
};

struct operation {
	const struct operation_ops *ops;
	struct operation *next; /* in the queue */
};

/* Puts the operation into the queue; begin is called when it has the turn, or never gets it. */
void operation_queue(struct box *box, struct operation *op);
void operation_end(struct box *box);
/* Continues an operation after a restart of the daemon. */
void operation_resume(struct box *box, struct operation *op);
/* Whether an operation is running or waiting. */
bool operation_is_on(const struct box *box);
/* The current operation if it has this table, else NULL. */
struct operation *operation_find(const struct box *box, const struct operation_ops *ops);

/* These call the current operation's function; all accept a box without an operation. */
bool operation_ended(struct box *box);
bool operation_launch_failed(struct box *box, const struct err *why);
const char *operation_disk(const struct box *box);
void operation_going(struct box *box);
void operation_held(struct box *box);
void operation_ready(struct box *box);
bool operation_commit(struct box *box);
void operation_came_up(struct box *box);
bool operation_lost_link(struct box *box, struct link *link);
void operation_late(struct box *box, const struct err *err);   /* those in the queue hear it too */
void operation_cancel(struct box *box, const struct err *why); /* also those in the queue */
