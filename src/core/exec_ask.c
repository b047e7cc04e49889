/* exec_ask.c - questions about programs: which there are; and a signal to one */
#include "core/exec_internal.h"
#include "core/output_internal.h"
#include "core/task_internal.h"

struct listing {
	struct task task;
	const struct exec_list_ops *ops;
	void *arg;
	struct buf kept; /* of a box that has stopped */
};

/* As WIRE_OP_EXEC_LIST answers. */
static int tell_execs(
	struct listing *listing, struct wire_reader *reply, bool stopped, struct err *err)
{
	uint32_t count = wire_get_u32(reply);

	for (uint32_t i = 0; i < count && !reply->bad && !listing->task.finished; i++) {
		struct wire_exec_info wire;
		struct exec_info info;

		wire_get_exec_info(reply, &wire);
		exec_info_from(&wire, stopped, &info);
		if (!reply->bad)
			listing->ops->on_exec(&info, listing->arg);
		free((void *)wire.argv);
	}
	return listing->task.finished ? 0 : wire_get_done(reply, err);
}

static int on_reply(struct task *task, struct wire_reader *reply, struct err *err)
{
	return tell_execs((struct listing *)task, reply, false, err);
}

static void list_done(struct task *task, const struct err *err)
{
	struct listing *listing = (struct listing *)task;

	listing->ops->on_done(err, listing->arg);
}

static void list_release(struct task *task)
{
	buf_done(&((struct listing *)task)->kept);
}

static void tell_kept(void *arg)
{
	struct listing *listing = arg;
	struct wire_reader reply = { buf_head(&listing->kept),
		buf_head(&listing->kept) + listing->kept.len, false };
	struct err err = ERR_INIT;

	task_enter(&listing->task);
	task_finish(&listing->task, tell_execs(listing, &reply, true, &err) < 0 ? &err : NULL);
	task_leave(&listing->task);
}

int exec_list(struct box *box, const struct exec_list_ops *ops, void *arg, struct task **ret,
	struct err *err)
{
	static const struct task_kind kind = {
		.op = WIRE_OP_EXEC_LIST, .reply = on_reply, .done = list_done
	};
	struct listing *listing = xnew(struct listing);

	*listing = (struct listing){
		.task = { .kind = &kind, .release = list_release }, .ops = ops, .arg = arg
	};
	if (box->state == BOX_STOPPED) {
		if (box_output_list(box, &listing->kept, err) < 0) {
			task_free(&listing->task);
			return -1;
		}
		task_defer(&listing->task, box, tell_kept);
	} else if (task_open(&listing->task, box, NULL, err) < 0) {
		return -1;
	}
	*ret = &listing->task;
	return 0;
}

/* ---- a signal ------------------------------------------------------------------------------- */

struct signalling {
	struct task task;
	task_done done;
	void *arg;
};

static void signal_done(struct task *task, const struct err *err)
{
	struct signalling *signalling = (struct signalling *)task;

	signalling->done(err, signalling->arg);
}

int exec_signal_by_id(struct box *box, const char *id, uint32_t signal, task_done done, void *arg,
	struct task **ret, struct err *err)
{
	static const struct task_kind kind = { .op = WIRE_OP_EXEC_SIGNAL, .done = signal_done };
	struct signalling *signalling = xnew(struct signalling);
	struct buf request = BUF_INIT;
	int opened;

	*signalling = (struct signalling){ { .kind = &kind }, done, arg };
	wire_put_str(&request, id);
	wire_put_u32(&request, signal);
	opened = task_open(&signalling->task, box, &request, err);
	buf_done(&request);
	if (opened == 0)
		*ret = &signalling->task;
	return opened;
}
