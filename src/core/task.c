/* task.c - see task.h
 *
 * A task lives as long as its channel, also when its caller has heard the end or does not care. */
#include "core/task_internal.h"
#include "loop/loop.h"

void task_free(struct task *task)
{
	task->over = task->finished = true;
	if (task->depth)
		return;
	if (task->later)
		loop_undefer(task->loop, task->later, task);
	if (task->release)
		task->release(task);
	sender_done(&task->out);
	free(task);
}

void task_enter(struct task *task)
{
	task->depth++;
}

bool task_leave(struct task *task)
{
	if (--task->depth || !task->over)
		return true;
	task_free(task);
	return false;
}

static void tell(struct task *task, const struct err *err)
{
	if (task->finished)
		return;
	task->finished = true;
	task->kind->done(task, err);
}

void task_finish(struct task *task, const struct err *err)
{
	tell(task, err);
	task_free(task);
}

void task_cancel(struct task *task)
{
	if (task)
		task_free(task);
}

/* ---- the channel ---------------------------------------------------------------------------- */

static void on_reply(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct task *task = arg;
	struct err err = ERR_INIT;

	(void)chan;
	task->replied = true;
	task_enter(task);
	if (task->kind->reply && task->kind->reply(task, reply, &err) < 0)
		task_finish(task, &err);
	else if (!task->kind->data)
		tell(task, NULL); /* CLOSE follows and frees */
	task_leave(task);
}

static void on_data(struct chan *chan, enum wire_stream stream, uint64_t offset, const void *data,
	size_t len, void *arg)
{
	struct task *task = arg;
	struct err err = ERR_INIT;

	(void)stream;
	(void)offset;
	if (task->finished || !task->kind->data)
		return chan_consumed(chan, len);
	task->owed += len;
	task_enter(task);
	if (task->kind->data(task, data, len, &err) < 0)
		task_finish(task, &err);
	task_leave(task);
}

static void on_end(struct chan *chan, void *arg)
{
	(void)chan;
	tell(arg, NULL);
}

static void on_writable(struct chan *chan, void *arg)
{
	struct task *task = arg;

	(void)chan;
	if (sender_flush(&task->out) && !task->finished && task->kind->writable)
		task->kind->writable(task);
}

static void on_error(struct chan *chan, const struct err *err, void *arg)
{
	struct task *task = arg;

	(void)chan;
	task->out.chan = NULL;
	task_finish(task, err);
}

/* Nothing is reported when all was told before. */
static void on_closed(struct chan *chan, void *arg)
{
	const struct task *task = arg;
	struct err err = ERR_INIT;

	err_set(&err, ERR_PROTOCOL,
		task->replied ? "box-init ended the work early" : "box-init gave no answer");
	on_error(chan, &err, arg);
}

static const struct chan_ops chan_ops = {
	.on_reply = on_reply,
	.on_data = on_data,
	.on_end = on_end,
	.on_writable = on_writable,
	.on_error = on_error,
	.on_closed = on_closed,
};

int task_open(struct task *task, struct box *box, const struct buf *request, struct err *err)
{
	if (box_chan_open(box, task->kind->op, request, &chan_ops, task, &task->out.chan, err) == 0)
		return 0;
	task_free(task);
	return -1;
}

void task_defer(struct task *task, struct box *box, void (*later)(void *arg))
{
	task->loop = box->yard->loop;
	task->later = later;
	loop_defer(task->loop, later, task);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

bool task_write(struct task *task, const void *data, size_t len)
{
	return sender_write(&task->out, data, len);
}

void task_write_end(struct task *task)
{
	sender_write_end(&task->out);
}

void task_consumed(struct task *task, size_t len)
{
	size_t given = MIN(len, task->owed);

	task->owed -= given;
	if (task->out.chan && given)
		chan_consumed(task->out.chan, given);
	if (task->consumed)
		task->consumed(task);
}
