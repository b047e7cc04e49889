/* task_internal.h - tasks as core makes them; others embed struct task as their first member */
#pragma once
#include "core/core_internal.h"
#include "core/task.h"
#include "link/sender.h"

struct task_kind {
	enum wire_op op;
	/* box-init's reply; -1: it makes no sense. NULL: it says nothing. */
	int (*reply)(struct task *task, struct wire_reader *reply, struct err *err);
	/* Bytes from the box, at most until its END, which is the end of the task then. NULL: none
	 * are expected, and the reply is the end. */
	int (*data)(struct task *task, const void *data, size_t len, struct err *err);
	void (*writable)(struct task *task); /* or NULL */
	void (*done)(struct task *task, const struct err *err);
};

struct task {
	const struct task_kind *kind;
	struct loop *loop;
	struct sender out; /* with the channel */
	size_t owed;	   /* bytes given to the caller, not yet back */
	bool finished;	   /* done was called, or nobody wants to hear it */
	bool replied;
	unsigned depth; /* callbacks that use it afterwards */
	bool over;	/* free it when depth is 0 */
	/* Some was given back; or NULL. */
	void (*consumed)(struct task *task);
	/* Instead of a channel: what is known without asking the box. */
	void (*later)(void *arg);
	void (*release)(struct task *task); /* what is around it, but not itself; or NULL */
};

/* Opens the channel; -1: the task is freed, done is not called. */
int task_open(struct task *task, struct box *box, const struct buf *request, struct err *err);
/* Calls later(task) from the loop instead. */
void task_defer(struct task *task, struct box *box, void (*later)(void *arg));
void task_enter(struct task *task);
bool task_leave(struct task *task); /* false: it is gone */
/* The caller hears the end, if he has not; without a channel the task is freed. */
void task_finish(struct task *task, const struct err *err);
void task_free(struct task *task);
