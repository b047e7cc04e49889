/* operation.c - what a box is busy with, one at a time */
#include "core/core_internal.h"
#include "core/operation.h"
#include "loop/loop.h"

enum { QUEUE_MAX = 64 };

bool operation_is_on(const struct box *box)
{
	return box->operation || box->queue;
}

struct operation *operation_find(const struct box *box, const struct operation_ops *ops)
{
	return box->operation && box->operation->ops == ops ? box->operation : NULL;
}

/* ---- one after another ---------------------------------------------------------------------- */

static void begin(struct box *box, struct operation *op)
{
	box->operation = op;
	op->ops->begin(op, box, NULL);
}

void operation_queue(struct box *box, struct operation *op)
{
	struct operation **end = &box->queue;
	struct err err = ERR_INIT;
	unsigned count = 0;

	if (!operation_is_on(box)) {
		begin(box, op);
		return;
	}
	for (; *end; end = &(*end)->next)
		count++;
	if (count >= QUEUE_MAX) {
		err_set(&err, ERR_STATE, "box '%s' has %u operations waiting already",
			box->row.name, count);
		err_hint(&err, "wait for them, then try again");
		op->ops->begin(op, NULL, &err);
		return;
	}
	*end = op;
}

static void begin_next(void *arg)
{
	struct box *box = arg;
	struct operation *op = box->queue;

	box->queue = op->next;
	op->next = NULL;
	begin(box, op);
}

/* The next operation begins from the loop: operation_end is often called in the middle of a change
 * of the box. */
void operation_end(struct box *box)
{
	box_forget_asker(box);
	box->operation = NULL;
	if (box->queue)
		loop_defer(box->yard->loop, begin_next, box);
}

void operation_resume(struct box *box, struct operation *op)
{
	box->operation = op;
}

static void drop_queue(struct box *box, const struct err *why)
{
	loop_undefer(box->yard->loop, begin_next, box);
	while (box->queue) {
		struct operation *op = box->queue;

		box->queue = op->next;
		op->ops->begin(op, NULL, why);
	}
}

/* ---- what happens to the box ---------------------------------------------------------------- */

bool operation_ended(struct box *box)
{
	struct operation *op = box->operation;

	return op && op->ops->ended && op->ops->ended(op, box);
}

bool operation_launch_failed(struct box *box, const struct err *why)
{
	struct operation *op = box->operation;

	return op && op->ops->launch_failed && op->ops->launch_failed(op, box, why);
}

const char *operation_disk(const struct box *box)
{
	struct operation *op = box->operation;

	return op && op->ops->disk ? op->ops->disk(op) : NULL;
}

void operation_going(struct box *box)
{
	struct operation *op = box->operation;

	if (op && op->ops->going)
		op->ops->going(op, box);
}

void operation_held(struct box *box)
{
	struct operation *op = box->operation;

	if (op && op->ops->held)
		op->ops->held(op, box);
}

void operation_ready(struct box *box)
{
	struct operation *op = box->operation;

	if (op && op->ops->ready)
		op->ops->ready(op, box);
}

bool operation_commit(struct box *box)
{
	struct operation *op = box->operation;

	return !op || !op->ops->commit || op->ops->commit(op, box);
}

void operation_came_up(struct box *box)
{
	struct operation *op = box->operation;

	if (op && op->ops->came_up)
		op->ops->came_up(op, box);
}

bool operation_lost_link(struct box *box, struct link *link)
{
	struct operation *op = box->operation;

	return op && op->ops->lost_link && op->ops->lost_link(op, link);
}

void operation_late(struct box *box, const struct err *err)
{
	struct operation *op = box->operation;

	if (op && op->ops->late)
		op->ops->late(op, box, err);
	drop_queue(box, err);
}

void operation_cancel(struct box *box, const struct err *why)
{
	struct operation *op = box->operation;
	struct err gone = ERR_INIT;

	if (op && op->ops->cancel)
		op->ops->cancel(op, box, why);
	box->operation = NULL;
	err_set(&gone, ERR_STATE, "box '%s' was removed meanwhile", box->row.name);
	drop_queue(box, &gone);
}
