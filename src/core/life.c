/* life.c - start and stop: one path in, one path out; create.c comes before it, removal.c after it
 *
 * Each change is written as an intent before its side effects and as a fact after them:
 *
 *   create   row with intent "create" (kept) -> folder, instance -> mark in the row (safe; the
 *            fsync runs while the child sets itself up) -> box-init answers -> running (kept)
 *   start    the same from the instance on, with intent "start"
 *   stop     intent "stop" -> box-init asked, or killed -> everything gone -> stopped
 *   remove   see removal.c
 *
 * An intent is kept, not safe: a dead daemon finds it, and what it guards (processes, mounts,
 * cgroups) does not outlive a dead machine. recover.c reads the same words. */
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "core/output_internal.h"
#include "core/time/timeline.h"
#include "base/clock.h"
#include "base/log.h"
#include "loop/loop.h"
#include "checkpoint/checkpoints.h"

enum {
	KILL_AGAIN_MS = 5000,
	KILLS_LATE = 4, /* after this many kills, those who wait are told */
};

/* ---- the end of an instance ----------------------------------------------------------------- */

/* Tells everybody who waits for the end of the instance; the killing goes on. */
static void tell_late(struct box *box)
{
	struct waiter *removers = steal_ptr(&box->removers);
	struct err err = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "box '%s' was killed but does not end", box->row.name);
	err_hint(&err,
		"a process in it is stuck in the kernel; the daemon tries again until it ends");
	log_error("a box does not end", kv_str("box", box->row.id));
	operation_late(box, &err);
	box_notify(box, &err);
	waiters_notify(removers, box, &err);
}

void box_kill(struct box *box)
{
	struct err err = ERR_INIT;

	if (instance_kill(box->instance, &err) < 0)
		log_warn("a box cannot be killed", kv_str("box", box->row.id), kv_err(&err));
	box_timer_start(box, KILL_AGAIN_MS);
}

static void on_timer(void *arg)
{
	struct box *box = arg;

	if ((box->state == BOX_CREATING || box->state == BOX_STARTING) && box->link &&
		!box->link_ready && !box->restore.problem.kind)
		err_set(&box->restore.problem, ERR_TIMEOUT, "box-init of '%s' does not answer",
			box->row.name);
	if (box->state == BOX_RUNNING) {
		box_reconnect(box);
	} else if (box->instance) {
		box_kill(box);
		if (++box->kills % KILLS_LATE == 0)
			tell_late(box);
	} else if (box->state == BOX_REMOVING) {
		box_finish_removal(box);
	}
}

void box_timer_start(struct box *box, uint64_t ms)
{
	if (!box->timer)
		box->timer = loop_timer_new(box->yard->loop, on_timer, box);
	loop_timer_start(box->timer, ms);
}

void box_let_go(struct box *box)
{
	box_disconnect(box);
	network_detach(box);
	instance_free(steal_ptr(&box->instance));
	if (box->timer)
		loop_timer_stop(box->timer);
	box->row.pid = 0;
}

void box_ended(struct box *box, const char *reason, const char *detail)
{
	bool not_kept = !strcmp(reason, "lost") && *box->row.sleep_failure;
	_cleanup_free_ char *whole =
		not_kept ? xasprintf("%s; it could not be hibernated before: %s", detail,
				   box->row.sleep_failure)
			 : xstrdup(detail);
	struct err gone = ERR_INIT;

	/* Copied first: detail may belong to the instance. */
	text_replace(&box->row.end_reason, reason);
	text_replace(&box->row.end_detail, whole);
	text_replace(&box->row.sleep_failure, "");
	err_set(&gone, ERR_STATE, "box '%s' ended meanwhile: %s", box->row.name,
		box->row.end_detail);
	box_capture_cancel(box, &gone);
	output_write(box);
	asks_forget(box);
	box_let_go(box);
	box->limits.stops = NULL;
	box->row.ended_us = clock_wall_us();
	if (box->remove_wanted || box->row.remove_on_exit) {
		/* The stop has succeeded. */
		if (box->state == BOX_STOPPING)
			box_notify(box, NULL);
		if (box->state != BOX_REMOVING) {
			box_set_state(box, BOX_REMOVING, box_removal_intent(box));
			box_save(box, STORE_KEPT);
		}
		box_finish_removal(box);
		return;
	}
	box_set_state(box, BOX_STOPPED, INTENT_NONE);
	box_save(box, STORE_KEPT);
	yard_event(box->yard, "box.stopped", box,
		json_pack(
			"{s:s,s:s}", "reason", box->row.end_reason, "detail", box->row.end_detail));
	box_notify(box, NULL);
	box_forget_asker(box);
	box_forget_exec(box, NULL);
}

/* ---- start ---------------------------------------------------------------------------------- */

int box_refuse_busy(struct box *box, struct err *err)
{
	err_set(err, ERR_STATE, "box '%s' is %s", box->row.name, box_state_name(box->state));
	return err_hint(err, "wait for it, then try again");
}

/* Somebody who waits for the turn with a box. */
struct caller {
	struct operation op;
	uint64_t grace_ms;
	box_done done;
	void *arg;
};

static void queue_caller(struct box *box, const struct operation_ops *ops, uint64_t grace_ms,
	box_done done, void *arg)
{
	struct caller *caller = xnew(struct caller);

	*caller = (struct caller){ { .ops = ops }, grace_ms, done, arg };
	operation_queue(box, &caller->op);
}

static void nobody(struct box *box, const struct err *err, void *arg)
{
	(void)box;
	(void)err;
	(void)arg;
}

static void start_now(struct box *box, box_done done, void *arg)
{
	struct err err = ERR_INIT;

	if (yard_check_stays(box->yard, &err) < 0) {
		done(box, &err, arg);
		return;
	}
	box_wait(box, done, arg);
	box->row.held = false;
	box_set_state(box, BOX_STARTING, INTENT_START);
	text_replace(&box->row.boot, box->yard->boot);
	box_save(box, STORE_KEPT);
	if (box_launch(box, &err) < 0)
		box_launch_failed(box, &err);
}

static void begin_start(struct operation *op, struct box *box, const struct err *gone)
{
	_cleanup_free_ struct caller *caller = (struct caller *)op;

	if (!box) {
		caller->done(NULL, gone, caller->arg);
		return;
	}
	operation_end(box);
	if (box->state == BOX_STOPPED)
		start_now(box, caller->done, caller->arg);
	else
		box_start(box, caller->done, caller->arg);
}

static const struct operation_ops start_ops = { .name = "start", .begin = begin_start };

void box_start(struct box *box, box_done done, void *arg)
{
	struct err err = ERR_INIT;

	if (box->state == BOX_RUNNING && box->row.held) {
		box->row.held = false;
		box_save(box, STORE_KEPT);
		box_wait(box, done, arg);
		if (!box_run_command(box))
			box_notify(box, NULL);
		return;
	}
	if (box->state == BOX_RUNNING) {
		done(box, NULL, arg);
		return;
	}
	if (box->state == BOX_STARTING || box->state == BOX_CREATING) {
		box_wait(box, done, arg);
		return;
	}
	if (box->state == BOX_SUSPENDED || box->state == BOX_HIBERNATED) {
		box_wake(box, done, arg);
		return;
	}
	if (box->state != BOX_STOPPED) {
		box_refuse_busy(box, &err);
		done(box, &err, arg);
		return;
	}
	/* The disk is being copied, which needs a moment without writes. */
	if (operation_is_on(box))
		queue_caller(box, &start_ops, 0, done, arg);
	else
		start_now(box, done, arg);
}

/* ---- stop ----------------------------------------------------------------------------------- */

void box_ask_shutdown(struct box *box, uint64_t grace_ms)
{
	static const struct chan_ops ops = { 0 };
	struct buf request = BUF_INIT;

	wire_put_u32(&request, (uint32_t)grace_ms);
	/* box-init may not answer; then the timer kills the box. */
	if (!grace_ms || !box->link ||
		!chan_open(box->link, WIRE_OP_SHUTDOWN, &request, &ops, NULL, NULL))
		box_kill(box);
	else
		box_timer_start(box, grace_ms + 1500);
	buf_done(&request);
}

/* Ends a hibernated box: there are no processes to ask. */
static void give_processes_up(struct box *box)
{
	_cleanup_free_ char *state = xstrdup(box->row.state_id);

	text_replace(&box->row.state_id, "");
	text_replace(&box->row.end_reason, "stopped");
	text_replace(&box->row.end_detail, "stopped on request while it was hibernated");
	box->row.ended_us = clock_wall_us();
	box_set_state(box, BOX_STOPPED, INTENT_NONE);
	box_save(box, STORE_SAFE);
	checkpoints_discard(box->yard->checkpoints, state, NULL);
	yard_event(box->yard, "box.stopped", box,
		json_pack(
			"{s:s,s:s}", "reason", box->row.end_reason, "detail", box->row.end_detail));
}

static void stop_now(struct box *box, uint64_t grace_ms, box_done done, void *arg)
{
	struct err err = ERR_INIT;
	bool asks = grace_ms || box->state == BOX_RUNNING; /* a suspended box cannot be asked */

	if (box->state == BOX_STOPPED) {
		done(box, NULL, arg);
		return;
	}
	if (box->state == BOX_STOPPING) {
		box_wait(box, done, arg);
		if (!grace_ms)
			box_kill(box);
		return;
	}
	if (box->state == BOX_HIBERNATED) {
		give_processes_up(box);
		done(box, NULL, arg);
		return;
	}
	/* The programs must run to react to TERM. */
	if (box->state == BOX_SUSPENDED && grace_ms && box_resume(box, &err) < 0) {
		done(box, &err, arg);
		return;
	}
	if (box->state != BOX_RUNNING && box->state != BOX_SUSPENDED) {
		box_refuse_busy(box, &err);
		done(box, &err, arg);
		return;
	}
	box_wait(box, done, arg);
	box_set_state(box, BOX_STOPPING, INTENT_STOP);
	box_save(box, STORE_KEPT);
	if (!asks || !output_save(box, grace_ms))
		box_ask_shutdown(box, grace_ms);
}

static void begin_stop(struct operation *op, struct box *box, const struct err *gone)
{
	_cleanup_free_ struct caller *caller = (struct caller *)op;

	if (!box) {
		caller->done(NULL, gone, caller->arg);
		return;
	}
	operation_end(box);
	stop_now(box, caller->grace_ms, caller->done, caller->arg);
}

static const struct operation_ops stop_ops = { .name = "stop", .begin = begin_stop };

/* Whether a stop must wait for the current operation: captured programs are frozen and cannot be
 * asked to end, but they can be killed. A box between two states is always waited for. */
static bool stop_waits(const struct box *box, uint64_t grace_ms)
{
	switch (box->state) {
	case BOX_RUNNING:
	case BOX_SUSPENDED:
		return operation_is_on(box) && grace_ms;
	case BOX_HIBERNATING:
	case BOX_ROLLING_BACK:
		return true;
	case BOX_STARTING:
		return operation_is_on(box);
	default:
		return false;
	}
}

void box_stop(struct box *box, uint64_t grace_ms, box_done done, void *arg)
{
	if (!done)
		done = nobody;
	if (stop_waits(box, grace_ms))
		queue_caller(box, &stop_ops, grace_ms, done, arg);
	else
		stop_now(box, grace_ms, done, arg);
}
