/* waking.c - a hibernated box runs again; who waits for that is wake.c's business
 *
 *   row with intent "wake" ─► restored ─► its programs run (intent "woken", safe) ─► running ─► the
 *   state is thrown away
 *
 * The wake has the turn until the box runs, or is hibernated again: what comes meanwhile, such as a
 * stop, a snapshot or a hibernation, follows it. Until the programs run the state is valid, and a
 * wake that fails changes nothing. */
#include "core/core_internal.h"
#include "core/time/idle.h"
#include "core/time/timeline.h"
#include "base/alloc.h"
#include "checkpoint/checkpoints.h"

struct waking {
	struct operation op;
	bool paused_too; /* also a box that was paused at a limit */
	box_done done;
	void *arg;
};

static void wake_as(struct box *box, bool paused_too, box_done done, void *arg);

void wake_forget_state(struct box *box)
{
	if (*box->row.state_id)
		checkpoints_discard(box->yard->checkpoints, box->row.state_id, NULL);
	text_replace(&box->row.state_id, "");
	text_replace(&box->row.asleep_for, "");
}

static int check_wakes(const struct box *box, bool paused_too, struct err *err)
{
	bool asleep = box->state == BOX_SUSPENDED || box->state == BOX_HIBERNATED;

	if (yard_check_stays(box->yard, err) < 0)
		return -1;
	return asleep && box_is_paused(box) && !paused_too ? box_refuse_touch(box, err) : 0;
}

/* ---- the operation -------------------------------------------------------------------------- */

static void begin(struct operation *op, struct box *box, const struct err *gone)
{
	struct waking *waking = (struct waking *)op;
	struct err err = ERR_INIT;

	if (!box) {
		waking->done(NULL, gone, waking->arg);
		free(waking);
		return;
	}
	/* What had the turn before has changed the box. */
	if (box->state != BOX_HIBERNATED || check_wakes(box, waking->paused_too, &err) < 0) {
		operation_end(box);
		wake_as(box, waking->paused_too, waking->done, waking->arg);
		free(waking);
		return;
	}
	box_wait(box, waking->done, waking->arg);
	box_set_state(box, BOX_STARTING, INTENT_WAKE);
	text_replace(&box->row.boot, box->yard->boot);
	box_save(box, STORE_KEPT);
	box_restore_from(box, box->row.state_id, RESTORE_WAKE);
	if (box_launch(box, &err) < 0)
		box_launch_failed(box, &err);
}

static void finish(struct operation *op, struct box *box)
{
	operation_end(box);
	free(op);
}

/* From here on the disk changes: the hibernated memory must never be restored upon it again. */
static void going(struct operation *op, struct box *box)
{
	(void)op;
	box_set_state(box, BOX_STARTING, INTENT_WOKEN);
	box_save(box, STORE_SAFE);
}

/* The restore was held back before anything ran: the hibernated memory is still valid. */
static void held(struct operation *op, struct box *box)
{
	(void)op;
	if (box->intent != INTENT_WOKEN)
		return;
	box_set_state(box, BOX_STARTING, INTENT_WAKE);
	box_save(box, STORE_SAFE);
}

static void hint_at_others(const struct box *box, struct err *err)
{
	struct engine *engine;
	const char *problem = box_engine(box, &engine, &(struct err)ERR_INIT) < 0
				      ? NULL
				      : engine_capture_problem(engine);

	if (problem && err->kind != ERR_LIMIT)
		err_hint(err, "%s; 'make criu' builds the one that belongs to it", problem);
	else if (!*err->hint)
		err_hint(err,
			"if a limit is too low for it, 'box set %s' raises it; 'box stop %s' gives "
			"its processes up, and 'box start %s' then starts it from its disk",
			box->row.name, box->row.name, box->row.name);
}

/* The box stays hibernated, as its state is still valid; unless its programs had begun to run. */
static bool launch_failed(struct operation *op, struct box *box, const struct err *why)
{
	struct err err = *why;

	restore_done(box);
	if (box->intent == INTENT_WOKEN)
		wake_forget_state(box);
	if (box->intent == INTENT_WOKEN || box->remove_wanted) {
		finish(op, box);
		return false;
	}
	box_let_go(box);
	box_set_state(box, BOX_HIBERNATED, INTENT_NONE);
	box_save(box, STORE_KEPT);
	err_wrap(&err, "wake '%s'", box->row.name);
	hint_at_others(box, &err);
	yard_event(box->yard, "box.failed", box, json_pack("{s:s}", "message", err.message));
	finish(op, box);
	box_notify(box, &err);
	return true;
}

/* The box or the daemon goes; those who wait are waiters of the box. */
static void cancel(struct operation *op, struct box *box, const struct err *why)
{
	(void)box;
	(void)why;
	free(op);
}

static const struct operation_ops waking_ops = {
	.name = "wake",
	.begin = begin,
	.going = going,
	.held = held,
	.launch_failed = launch_failed,
	.came_up = finish,
	.cancel = cancel,
};

void wake_recover(struct box *box)
{
	struct waking *waking = xnew(struct waking);

	waking->op.ops = &waking_ops;
	operation_resume(box, &waking->op);
	box_restore_from(box, box->row.state_id, RESTORE_WAKE);
}

/* ---- the wish ------------------------------------------------------------------------------- */

static void nobody(struct box *box, const struct err *err, void *arg)
{
	(void)box;
	(void)err;
	(void)arg;
}

static void wake_as(struct box *box, bool paused_too, box_done done, void *arg)
{
	struct waking *waking;
	struct err err = ERR_INIT;

	if (!done)
		done = nobody;
	if (box->state != BOX_RUNNING && check_wakes(box, paused_too, &err) < 0) {
		done(box, &err, arg);
		return;
	}
	switch (box->state) {
	case BOX_HIBERNATED:
	case BOX_HIBERNATING:
	case BOX_ROLLING_BACK:
		waking = xnew(struct waking);
		*waking = (struct waking){ { .ops = &waking_ops }, paused_too, done, arg };
		operation_queue(box, &waking->op);
		return;
	case BOX_SUSPENDED:
		done(box, box_resume(box, &err) < 0 ? &err : NULL, arg);
		return;
	default:
		box_start(box, done, arg);
	}
}

void box_wake(struct box *box, box_done done, void *arg)
{
	wake_as(box, false, done, arg);
}

void box_resume_deep(struct box *box, box_done done, void *arg)
{
	struct err err = ERR_INIT;

	if (box_is_paused(box) && (box->state == BOX_HIBERNATED || box->state == BOX_HIBERNATING))
		wake_as(box, true, done, arg);
	else if (box->state == BOX_SUSPENDED && yard_check_stays(box->yard, &err) < 0)
		done(box, &err, arg);
	else
		done(box, box_resume(box, &err) < 0 ? &err : NULL, arg);
}
