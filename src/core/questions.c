/* questions.c - requests to box-init: programs, processes, figures, signals */
#include "core/exec_internal.h"
#include "core/output_internal.h"
#include "core/task_internal.h"

struct listing {
	struct task task;
	const struct exec_list_ops *ops;
	void *arg;
	struct buf kept; /* for a stopped box */
};

/* Parses an answer in the format of WIRE_OP_EXEC_LIST. */
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

/* ---- figures -------------------------------------------------------------------------------- */

struct question {
	struct task task;
	json_t *answer;
	json_done done;
	void *arg;
};

static void question_done(struct task *task, const struct err *err)
{
	struct question *question = (struct question *)task;

	question->done(err ? NULL : question->answer, err, question->arg);
}

static void question_release(struct task *task)
{
	json_decref(((struct question *)task)->answer);
}

static struct question *question_new(const struct task_kind *kind, json_done done, void *arg)
{
	struct question *question = xnew(struct question);

	*question = (struct question){ .task = { .kind = kind, .release = question_release },
		.answer = json_object(),
		.done = done,
		.arg = arg };
	return question;
}

static int on_stats(struct task *task, struct wire_reader *reply, struct err *err)
{
	json_t *answer = ((struct question *)task)->answer;
	struct wire_stats stats;

	wire_get_stats(reply, &stats);
	json_object_set_new(answer, "uptime_us", json_from_u64(stats.uptime_us));
	json_object_set_new(answer, "execs_running", json_integer(stats.execs_running));
	json_object_set_new(answer, "journal_bytes", json_from_u64(stats.journal_bytes));
	return wire_get_done(reply, err);
}

static void tell_figures(void *arg)
{
	task_finish(arg, NULL);
}

int box_stats(struct box *box, json_done done, void *arg, struct task **ret, struct err *err)
{
	static const struct task_kind kind = {
		.op = WIRE_OP_STATS, .reply = on_stats, .done = question_done
	};
	struct question *question;
	json_t *figures;

	box_refresh(box);
	figures = box_stats_json(box, err);
	if (!figures)
		return -1;
	question = question_new(&kind, done, arg);
	json_object_update(question->answer, figures);
	json_decref(figures);
	if (box->state == BOX_SUSPENDED) /* its box-init is frozen */
		task_defer(&question->task, box, tell_figures);
	else if (task_open(&question->task, box, NULL, err) < 0)
		return -1;
	*ret = &question->task;
	return 0;
}

static json_t *process_json(const struct wire_process *process)
{
	char state[2] = { process->state, '\0' };
	json_t *value = json_object();

	json_object_set_new(value, "pid", json_integer(process->pid));
	json_object_set_new(value, "ppid", json_integer(process->ppid));
	json_object_set_new(value, "uid", json_integer(process->uid));
	json_object_set_new(value, "state", json_from_box(state));
	json_object_set_new(value, "rss_bytes", json_from_u64(process->rss_bytes));
	json_object_set_new(value, "cpu_us", json_from_u64(process->cpu_us));
	json_object_set_new(value, "started_us", json_from_u64(process->started_us));
	json_object_set_new(
		value, "exec", *process->exec ? json_from_box(process->exec) : json_null());
	json_object_set_new(value, "command", json_from_box(process->command));
	return value;
}

static int on_processes(struct task *task, struct wire_reader *reply, struct err *err)
{
	json_t *answer = ((struct question *)task)->answer, *list = json_array();
	uint32_t total = wire_get_u32(reply);
	uint32_t count = wire_get_u32(reply);

	json_object_set_new(answer, "processes", list);
	json_object_set_new(answer, "total", json_integer(total));
	for (uint32_t i = 0; i < count && !reply->bad; i++) {
		struct wire_process process;

		wire_get_process(reply, &process);
		if (!reply->bad)
			json_array_append_new(list, process_json(&process));
	}
	return wire_get_done(reply, err);
}

int box_processes(struct box *box, json_done done, void *arg, struct task **ret, struct err *err)
{
	static const struct task_kind kind = {
		.op = WIRE_OP_PROCESSES, .reply = on_processes, .done = question_done
	};
	struct question *question = question_new(&kind, done, arg);

	if (task_open(&question->task, box, NULL, err) < 0)
		return -1;
	*ret = &question->task;
	return 0;
}
