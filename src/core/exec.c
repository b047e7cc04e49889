/* exec.c - a caller's hold of a program; see exec.h
 *
 *   exec_start ── snapshot, waking (auto.c) ──► begin ──► channel ──► on_reply … on_exit, on_closed
 *   exec_attach ──────────────────────────────────────────┘
 *   exec_attach, the box has stopped ── play ─────────────┘ (the same callbacks, without a channel)
 *
 * An exec lives as long as its channel. `ops` is NULL once the caller has let go or has heard the
 * end; what is left then goes on without a word. */
#include "core/exec_internal.h"
#include "core/output_internal.h"
#include "link/sender.h"
#include "loop/loop.h"
#include <stdio.h>

enum { TIME_LOOK_MS = 250 }; /* between looks at a box whose program has reached its limit */

struct exec {
	struct yard *yard;
	char box[BOX_ID_LEN + 1];
	char asked_by[ASKER_WHO_SIZE];
	const struct exec_ops *ops;
	void *arg;
	struct sender in;      /* holds the channel */
	struct exec_spec spec; /* until the request is sent; a copy while waiting is set */
	bool waiting;	       /* for the snapshot and the wake before the start */
	bool detach, follow;
	bool started;
	struct err *failed; /* set while exec_start runs: where to put the error; else NULL */
	uint32_t signal;    /* to be sent once the program runs; 0: none */
	uint64_t timeout_ms;
	struct loop_timer *timer;
	uint64_t time_us; /* of the output that follows */
	size_t owed;	  /* bytes given to the caller, not yet returned to the window */
	unsigned depth;	  /* callbacks in progress that still use it */
	bool over;	  /* free it when depth is 0 */
	char *kept;	  /* id of the program whose kept output is played, for a stopped box */
	uint64_t kept_from;
};

static const char *const reason_names[] = {
	[EXEC_RUNNING] = "running",
	[EXEC_EXITED] = "exited",
	[EXEC_SIGNALED] = "signaled",
	[EXEC_TIMEOUT] = "timeout",
	[EXEC_UNKNOWN] = "unknown",
};
static_assert(ARRAY_LEN(reason_names) == EXEC_REASON_COUNT, "every reason has a name");
static_assert((int)EXEC_TIMEOUT == (int)WIRE_EXIT_TIMEOUT &&
		      (int)EXEC_UNKNOWN == (int)WIRE_EXIT_REASON_COUNT &&
		      (int)EXEC_STDERR == (int)WIRE_STREAM_STDERR,
	"box-init's words are ours");

const char *exec_reason_name(enum exec_reason reason)
{
	return reason_names[reason];
}

static void play(void *arg);

static void exec_free(struct exec *exec)
{
	exec->over = true;
	if (exec->depth)
		return;
	loop_timer_free(exec->timer);
	if (exec->kept)
		loop_undefer(exec->yard->loop, play, exec);
	if (exec->waiting)
		exec_spec_free(&exec->spec);
	sender_done(&exec->in);
	free(exec->kept);
	free(exec);
}

static void enter(struct exec *exec)
{
	exec->depth++;
}

static bool leave(struct exec *exec) /* false: it is gone */
{
	if (--exec->depth || !exec->over)
		return true;
	exec_free(exec);
	return false;
}

/* Calls on_done, unless it was called before. */
static void tell(struct exec *exec, const struct exec_end *end, const struct err *err)
{
	const struct exec_ops *ops = steal_ptr(&exec->ops);

	loop_timer_free(steal_ptr(&exec->timer));
	if (ops)
		ops->on_done(exec, end, err, exec->arg);
}

static void fail(struct exec *exec, const struct err *err)
{
	tell(exec, NULL, err);
	exec_free(exec);
}

void exec_close(struct exec *exec)
{
	if (!exec)
		return;
	exec->ops = NULL;
	loop_timer_free(steal_ptr(&exec->timer));
	if (exec->waiting)
		return; /* begin() goes on */
	if (!exec->in.chan || (!exec->in.eof && !exec->in.left.len))
		return exec_free(exec);
	/* The channel stays open only for the rest of the input. */
	chan_set_background(exec->in.chan);
	exec_consumed(exec, exec->owed);
}

/* ---- from the box --------------------------------------------------------------------------- */

static uint32_t shell_code(uint32_t code, uint32_t signal)
{
	return signal ? 128 + (signal & 127) : code & 255;
}

void exec_info_from(const struct wire_exec_info *info, bool stopped, struct exec_info *ret)
{
	*ret = (struct exec_info){
		.id = info->id,
		.pid = info->pid,
		.tty = info->tty,
		.reason = stopped && info->reason == WIRE_EXIT_RUNNING ? EXEC_UNKNOWN
								       : (int)info->reason,
		.signal = info->signal & 127,
		.started_us = info->started_us,
		.ended_us = info->ended_us,
		.cpu_us = info->cpu_us,
		.oldest = info->oldest,
		.newest = info->newest,
		.argv = info->argv,
	};
	if (info->reason != WIRE_EXIT_RUNNING)
		ret->exit_code = shell_code(info->code, info->signal);
}

static void on_writable(struct chan *chan, void *arg)
{
	struct exec *exec = arg;

	(void)chan;
	if (!sender_flush(&exec->in))
		return;
	if (!exec->ops && !exec->in.eof)
		exec_free(exec); /* nobody listens, and all input has been sent */
	else if (exec->ops && exec->ops->on_writable)
		exec->ops->on_writable(exec, exec->arg);
}

static void on_reply(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct exec *exec = arg;
	struct wire_exec_info wire;
	struct exec_info info;
	struct err err = ERR_INIT;

	wire_get_exec_info(reply, &wire);
	exec_info_from(&wire, exec->kept, &info);
	enter(exec);
	if (wire_get_done(reply, &err) < 0) {
		fail(exec, &err);
	} else {
		exec->started = true;
		if (exec->ops && exec->ops->on_started)
			exec->ops->on_started(exec, &info, exec->arg);
	}
	free((void *)wire.argv);
	if (!leave(exec))
		return;
	exec->in.hold = false;
	if (exec->detach && exec->follow) {
		sender_flush(&exec->in);
		tell(exec, NULL, NULL);
		exec_close(exec);
	} else {
		on_writable(chan, exec);
	}
}

static void on_data(struct chan *chan, enum wire_stream stream, uint64_t offset, const void *data,
	size_t len, void *arg)
{
	struct exec *exec = arg;

	(void)chan;
	exec->owed += len;
	if (exec->ops && exec->ops->on_output)
		exec->ops->on_output(exec, stream == WIRE_STREAM_STDERR ? EXEC_STDERR : EXEC_STDOUT,
			offset, exec->time_us, data, len, exec->arg);
	else
		exec_consumed(exec, len);
}

static void on_time(struct chan *chan, uint64_t time_us, void *arg)
{
	struct exec *exec = arg;

	(void)chan;
	exec->time_us = time_us;
}

static void on_gap(struct chan *chan, uint64_t offset, uint64_t lost, void *arg)
{
	struct exec *exec = arg;

	(void)chan;
	if (exec->ops && exec->ops->on_gap)
		exec->ops->on_gap(exec, offset, lost, exec->arg);
}

/* CLOSE follows and frees. */
static void on_exited(struct chan *chan, const struct wire_exit *exit, void *arg)
{
	const struct exec_end end = {
		.reason = (int)exit->reason,
		.exit_code = shell_code(exit->code, exit->signal),
		.signal = exit->signal & 127,
		.duration_us = exit->duration_us,
		.cpu_us = exit->cpu_us,
		.newest = exit->newest,
	};

	(void)chan;
	tell(arg, &end, NULL);
}

static void on_error(struct chan *chan, const struct err *err, void *arg)
{
	struct exec *exec = arg;

	(void)chan;
	exec->in.chan = NULL;
	fail(exec, err);
}

/* Without follow, the channel closes after all kept output was sent. */
static void on_closed(struct chan *chan, void *arg)
{
	struct exec *exec = arg;
	struct err err = ERR_INIT;

	if (!exec->started)
		err_set(&err, ERR_PROTOCOL, "box-init gave no answer");
	else if (exec->follow)
		err_set(&err, ERR_PROTOCOL,
			"box-init ended the program's channel without its exit");
	if (err.kind)
		return on_error(chan, &err, arg);
	exec->in.chan = NULL;
	tell(exec, NULL, NULL);
	exec_free(exec);
}

static const struct chan_ops chan_ops = {
	.on_reply = on_reply,
	.on_data = on_data,
	.on_time = on_time,
	.on_gap = on_gap,
	.on_exit = on_exited,
	.on_writable = on_writable,
	.on_error = on_error,
	.on_closed = on_closed,
};

/* ---- the time limit ------------------------------------------------------------------------- */

/* box-init keeps the time limit and ends the program. No time passes in a suspended box, so a
 * caller would wait for as long: he is told at once here, and the program ends when its box is
 * resumed. A running box reports by itself, later if the program ignores TERM; as it may be
 * suspended meanwhile, it is checked again. */
static void on_timer(void *arg)
{
	struct exec *exec = arg;
	struct box *box = box_find(exec->yard, exec->box, NULL);
	struct err err = ERR_INIT;

	if (!box) /* the caller is told of the removal elsewhere */
		return;
	if (box->state != BOX_SUSPENDED) {
		loop_timer_start(exec->timer, TIME_LOOK_MS);
		return;
	}
	err_set(&err, ERR_TIMEOUT, "the program reached its time limit; box '%s' is %s",
		box->row.name, box_state_name(box->state));
	err_hint(&err, "it is ended when the box goes on: 'box resume %s'", box->row.name);
	tell(exec, NULL, &err);
	exec_close(exec);
}

static void watch_time(struct exec *exec, uint64_t timeout_ms)
{
	if (!timeout_ms || !exec->ops || exec->detach)
		return;
	exec->timer = loop_timer_new(exec->yard->loop, on_timer, exec);
	loop_timer_start(exec->timer, timeout_ms);
}

/* ---- start ---------------------------------------------------------------------------------- */

static struct exec *exec_new(struct box *box, const struct exec_ops *ops, void *arg)
{
	struct exec *exec = xnew(struct exec);

	exec->yard = box->yard;
	snprintf(exec->box, sizeof exec->box, "%s", box->row.id);
	snprintf(exec->asked_by, sizeof exec->asked_by, "%s", yard_get_who(box->yard));
	exec->ops = ops;
	exec->arg = arg;
	exec->in.hold = true; /* until the program runs */
	return exec;
}

/* The box is ready. A caller who has closed the exec meanwhile is not told. */
static void begin(struct box *box, const struct err *why, void *arg)
{
	struct exec *exec = arg;
	struct err err = ERR_INIT;

	if (why)
		err = *why;
	if (why || exec_open(box, &exec->spec, exec->asked_by, &chan_ops, exec, &exec->in.chan,
			   &err) < 0) {
		if (exec->failed)
			*exec->failed = err;
		else
			fail(exec, &err);
		return;
	}
	watch_time(exec, exec->spec.timeout_ms);
	if (exec->waiting)
		exec_spec_free(&exec->spec);
	exec->waiting = false;
	if (exec->signal)
		chan_signal(exec->in.chan, exec->signal);
	if (!exec->ops)
		exec_close(exec);
}

/* What the automatic snapshot is told to come before. */
static const char *const *words_of(const struct exec_spec *spec)
{
	static const char *const sftp[] = { "sftp", NULL };

	return spec->builtin == EXEC_SFTP ? sftp : spec->argv;
}

int exec_start(struct box *box, const struct exec_spec *spec, const struct exec_ops *ops, void *arg,
	struct exec **ret, struct err *err)
{
	struct err failed = ERR_INIT;
	struct exec *exec;

	if (exec_spec_check(spec, err) < 0)
		return -1;
	exec = exec_new(box, ops, arg);
	exec->spec = *spec;
	exec->detach = spec->detach;
	exec->follow = !spec->detach || spec->input;
	exec->failed = &failed;
	if (spec->no_snapshot)
		begin(box, NULL, exec);
	else
		box_before_exec(box, words_of(spec), begin, exec);
	exec->failed = NULL;
	if (failed.kind) {
		exec_free(exec);
		if (err)
			*err = failed;
		return -1;
	}
	if (!exec->in.chan) {
		exec->waiting = true;
		exec->spec = exec_spec_copy(spec);
	}
	*ret = exec;
	return 0;
}

/* ---- attach --------------------------------------------------------------------------------- */

/* Plays the kept output of a stopped box as if box-init sent it. */
static void play(void *arg)
{
	struct exec *exec = arg;
	struct err err = ERR_INIT;
	struct box *box = box_find(exec->yard, exec->box, &err);
	const struct wire_attach_spec spec = { .id = exec->kept, .offset = exec->kept_from };

	enter(exec);
	if (!box || box_output_play(box, &spec, &chan_ops, exec, &err) < 0)
		fail(exec, &err);
	leave(exec);
}

int exec_attach(struct box *box, const struct exec_attach_spec *spec, const struct exec_ops *ops,
	void *arg, struct exec **ret, struct err *err)
{
	struct exec *exec = exec_new(box, ops, arg);
	struct buf request = BUF_INIT;

	if (box->state == BOX_STOPPED && !spec->input) {
		exec->kept = xstrdup(spec->id);
		exec->kept_from = spec->offset;
		loop_defer(box->yard->loop, play, exec);
		*ret = exec;
		return 0;
	}
	exec->follow = spec->follow;
	wire_put_attach_spec(&request, &(struct wire_attach_spec){ .id = spec->id,
					       .offset = spec->offset,
					       .follow = spec->follow,
					       .lossless = spec->lossless,
					       .input = spec->input });
	if (box_chan_open(
		    box, WIRE_OP_EXEC_ATTACH, &request, &chan_ops, exec, &exec->in.chan, err) < 0) {
		buf_done(&request);
		exec_free(exec);
		return -1;
	}
	buf_done(&request);
	if (spec->follow && !spec->input)
		chan_set_background(exec->in.chan);
	*ret = exec;
	return 0;
}

/* ---- to the box ----------------------------------------------------------------------------- */

/* The client sends something: a suspended box is resumed. */
static void touch(struct exec *exec)
{
	struct box *box = exec->in.chan ? box_find(exec->yard, exec->box, NULL) : NULL;

	if (box)
		box_is_used(box);
}

bool exec_write(struct exec *exec, const void *data, size_t len)
{
	touch(exec);
	return sender_write(&exec->in, data, len);
}

void exec_write_end(struct exec *exec)
{
	sender_write_end(&exec->in);
}

void exec_signal(struct exec *exec, uint32_t signal)
{
	touch(exec);
	if (exec->in.chan)
		chan_signal(exec->in.chan, signal);
	else
		exec->signal = signal;
}

void exec_resize(struct exec *exec, uint16_t rows, uint16_t cols)
{
	if (exec->in.chan)
		chan_resize(exec->in.chan, rows, cols);
	exec->spec.rows = rows; /* used if the program has not started yet */
	exec->spec.cols = cols;
}

void exec_consumed(struct exec *exec, size_t len)
{
	size_t given = MIN(len, exec->owed);

	exec->owed -= given;
	if (exec->in.chan && given)
		chan_consumed(exec->in.chan, given);
}
