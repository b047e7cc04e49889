/* task_internal.h - tasks as core makes them; others embed struct task as their first member */
#pragma once
#include "core/core_internal.h"
#include "core/task.h"
#include "link/sender.h"

struct task_kind {
	enum wire_op op;
	/* Parses box-init's reply; -1: it is malformed. NULL: the reply has no content. */
	int (*reply)(struct task *task, struct wire_reader *reply, struct err *err);
	/* Takes bytes from the box, until END at most, which ends the task. NULL: no bytes are
	 * expected, and the reply ends the task. */
	int (*data)(struct task *task, const void *data, size_t len, struct err *err);
	void (*writable)(struct task *task); /* or NULL */
	void (*done)(struct task *task, const struct err *err);
};

struct task {
	const struct task_kind *kind;
	struct loop *loop;
	struct sender out; /* holds the channel */
	size_t owed;	   /* bytes given to the caller, not yet returned */
	bool finished;	   /* done was called, or the caller has cancelled */
	bool replied;
	unsigned depth; /* callbacks in progress that still use it */
	bool over;	/* free it when depth is 0 */
	/* Called when the caller returned bytes; or NULL. */
	void (*consumed)(struct task *task);
	/* Used instead of a channel when the answer is known without the box. */
	void (*later)(void *arg);
	/* frees the enclosing object's fields, but not the object; or NULL */
	void (*release)(struct task *task);
};

/* Opens the channel; -1: the task is freed, done is not called. */
int task_open(struct task *task, struct box *box, const struct buf *request, struct err *err);
/* Calls later(task) from the loop instead of opening a channel. */
void task_defer(struct task *task, struct box *box, void (*later)(void *arg));
void task_enter(struct task *task);
bool task_leave(struct task *task); /* false: it was freed */
/* Calls done, unless it was called; without a channel the task is freed. */
void task_finish(struct task *task, const struct err *err);
void task_free(struct task *task);
