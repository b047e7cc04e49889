/* rollback.c - takes a box back to an earlier moment
 *
 *   capture the present as a snapshot, copy the target's disk meanwhile ─► the target comes up
 *   while the present is frozen (rollback_ahead.c) ─► the present is killed
 *
 * Until then every failure leaves the box as it was, with its processes. Where two instances do not
 * fit beside each other (ahead_is_possible) the present is killed first:
 *
 *   ─► instance killed ─► disks swapped ─► launched from the target's state ─► running
 *
 * The row then has the intent "rollback-to" and the target: after a crash the next daemon continues
 * from there (recover.c). When the target does not come up, the captured present is put back. A
 * present whose processes cannot be captured is kept as a disk, unless there is no other way back:
 * then the rollback is refused.
 *
 * Id, name, addresses, URL, policy, budgets and the ids of execs are not part of a state and
 * stay. */
#include "core/boxnet/network_internal.h"
#include "core/time/rollback_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"
#include <stdio.h>
#include <sys/socket.h>

static void rolling_free(struct rolling *rolling)
{
	if (rolling->used)
		snapshot_unuse(rolling->yard, rolling->wanted);
	free(rolling->wanted);
	free(rolling->from);
	free(rolling->disk);
	loop_timer_free(rolling->patience);
	free(rolling);
}

static json_t *told(struct yard *yard, const char *id)
{
	struct snapshot *snapshot = id ? snapshot_by_id(yard, id) : NULL;

	return snapshot ? snapshot_json(yard, snapshot) : json_null();
}

/* Gives the turn back and answers the caller. */
void rolling_finish(struct rolling *rolling, const struct err *err)
{
	struct box *box = rolling->box;
	struct yard *yard = rolling->yard;
	_cleanup_json_ json_t *result = NULL;

	helper_free(rolling->helper);
	pool_disk_discard(yard->pool, BOX_DISKS, rolling->disk, NULL);
	if (rolling->from && snapshot_by_id(yard, rolling->from)) {
		if (rolling->forget && !err)
			snapshot_discard(yard, snapshot_by_id(yard, rolling->from));
		else
			snapshot_pack(yard, snapshot_by_id(yard, rolling->from));
	}
	if (!err)
		result = json_pack("{s:o,s:o,s:o,s:I}", "box", box_json(box), "to",
			told(yard, rolling->wanted), "from", told(yard, rolling->from), "took_us",
			(json_int_t)(clock_mono_us() - rolling->started_us));
	if (box)
		operation_end(box);
	if (rolling->done)
		rolling->done(result, err, rolling->arg);
	rolling_free(rolling);
}

/* Deletes the snapshot of the present after a failure. */
static void drop_from(struct rolling *rolling)
{
	struct snapshot *snapshot =
		rolling->from ? snapshot_by_id(rolling->yard, rolling->from) : NULL;

	free(steal_ptr(&rolling->from));
	if (!snapshot)
		return;
	if (rolling->adopted && rolling->box) {
		text_replace(&rolling->box->row.state_id, snapshot->row.id);
		snapshot_forget_state(rolling->yard, snapshot);
	} else {
		snapshot_discard(rolling->yard, snapshot);
	}
}

/* Gives up before anything was changed. */
void rolling_give_up(struct rolling *rolling, const struct err *why)
{
	struct box *box = rolling->box;
	struct err err = *why, problem = ERR_INIT;

	drop_from(rolling);
	if (box && box->state == BOX_ROLLING_BACK) {
		box_set_state(box,
			rolling->was_suspended ? BOX_SUSPENDED
			: box->instance	       ? BOX_RUNNING
			: *box->row.state_id   ? BOX_HIBERNATED
					       : BOX_STOPPED,
			INTENT_NONE);
		if (box->state == BOX_RUNNING &&
			instance_freeze(box->instance, false, &problem) < 0)
			log_error(
				"a box stays frozen", kv_str("box", box->row.id), kv_err(&problem));
		box_save(box, STORE_KEPT);
		if (box->state == BOX_RUNNING)
			box_reconnect(box);
	}
	err_wrap(&err, "roll back '%s'", box ? box->row.name : "");
	rolling_finish(rolling, &err);
	if (box)
		box_notify(box, NULL); /* those who came meanwhile */
}

/* ---- the switch ----------------------------------------------------------------------------- */

static int change_disks(struct rolling *rolling, struct err *err)
{
	struct box *box = rolling->box;
	struct pool *pool = rolling->yard->pool;
	_cleanup_free_ char *past = xasprintf(PAST_DISK_PREFIX "%s", box->row.id);

	/* The old disk is replaced only if the new one exists. */
	if (!pool_disk_exists(pool, BOX_DISKS, rolling->disk))
		return err_set(err, ERR_NOT_FOUND, "the copy of the snapshot's disk is gone");
	/* A daemon that died between the two renames has moved it away already. */
	if (box_has_disk(box) && pool_disk_rename(pool, BOX_DISKS, box->row.id, past, err) < 0)
		return -1;
	if (pool_disk_rename(pool, BOX_DISKS, rolling->disk, box->row.id, err) < 0) {
		pool_disk_rename(pool, BOX_DISKS, past, box->row.id, NULL);
		return -1;
	}
	pool_disk_discard(pool, BOX_DISKS, past, NULL);
	return box_limit_disk(box, box->row.disk_bytes, err);
}

/* Launches the target: no instance exists, and the target's disk is ready. */
static void go(struct rolling *rolling)
{
	struct box *box = rolling->box;
	const char *target = rolling->returning ? rolling->from : rolling->wanted;
	struct snapshot *snapshot = snapshot_by_id(rolling->yard, target);
	struct err err = ERR_INIT;

	if (!snapshot)
		err_set(&err, ERR_NOT_FOUND, "the snapshot was removed meanwhile");
	if (snapshot && change_disks(rolling, &err) == 0) {
		if (*box->row.state_id)
			checkpoints_discard(rolling->yard->checkpoints, box->row.state_id, NULL);
		text_replace(&box->row.state_id, "");
		text_replace(&box->row.position, target);
		text_replace(&box->row.boot, rolling->yard->boot);
		box->row.pid = 0;
		box_save(box, STORE_KEPT);
		if (!strcmp(snapshot->row.kind, "full") && !rolling->disk_only)
			box_restore_from(box, target, RESTORE_ROLLBACK);
		else
			restore_done(box);
		if (box_launch(box, &err) == 0)
			return;
	}
	box_launch_failed(box, &err);
}

/* The instance has ended: for this rollback, or by itself before anything was changed. */
static bool ended(struct operation *op, struct box *box)
{
	struct rolling *rolling = (struct rolling *)op;
	struct err err = ERR_INIT;

	if (box->state != BOX_ROLLING_BACK)
		return false;
	if (!rolling->copied || !rolling->captured) {
		err_set(&err, ERR_STATE, "box '%s' ended meanwhile", box->row.name);
		drop_from(rolling);
		rolling_finish(rolling, &err);
		return false;
	}
	box_let_go(box);
	box_set_target(box, BOX_STARTING, rolling->wanted);
	go(rolling);
	return true;
}

static void on_exit_copy(int code, void *arg);
static void change_over(struct rolling *rolling);

static int run_copy(int sock, void *arg)
{
	struct rolling *rolling = arg;
	struct err err = ERR_INIT;

	if (pool_disk_copy(rolling->yard->pool, SNAPSHOT_DISKS,
		    rolling->returning ? rolling->from : rolling->wanted, BOX_DISKS, rolling->disk,
		    NULL, POOL_BUDGET_SAME, &err) == 0)
		return 0;
	send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return 1;
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct rolling *rolling = arg;

	if (len == sizeof rolling->err)
		memcpy(&rolling->err, message, len);
}

static int copy_disk(struct rolling *rolling, struct err *err)
{
	static const struct helper_ops ops = {
		.run = run_copy, .on_message = on_message, .on_exit = on_exit_copy, .light = true
	};

	err_clear(&rolling->err);
	return helper_start(rolling->yard->loop, &ops, rolling, NULL, 0, &rolling->helper, err);
}

static bool is_full(const struct rolling *rolling, const char *id)
{
	const struct snapshot *snapshot = snapshot_by_id(rolling->yard, id);

	return snapshot && !strcmp(snapshot->row.kind, "full");
}

/* Ends the present: the target's disk is ready and the present is captured. */
static void change_over(struct rolling *rolling)
{
	struct box *box = rolling->box;
	struct err err = ERR_INIT;

	if (!rolling->copied || !rolling->captured)
		return;
	/* The box is being removed. */
	if (box->state != BOX_ROLLING_BACK) {
		err_set(&err, ERR_STATE, "box '%s' is %s", box->row.name,
			box_state_name(box->state));
		rolling_give_up(rolling, &err);
		return;
	}
	if (ahead_is_possible(rolling)) {
		ahead_begin(rolling);
		return;
	}
	/* Processes that could not be captured could not be brought back. */
	if (box->instance && rolling->from && !rolling->disk_only &&
		!is_full(rolling, rolling->from)) {
		err_set(&err, ERR_STATE,
			"its processes cannot be captured, and there is not enough memory for both");
		err_hint(&err, "'box rollback --disk-only' gives its processes up");
		rolling_give_up(rolling, &err);
		return;
	}
	box_set_target(box, BOX_ROLLING_BACK, rolling->wanted);
	/* The hibernated state belongs to the snapshot from here on. */
	if (rolling->adopted)
		text_replace(&box->row.state_id, "");
	box_save(box, STORE_SAFE);
	if (box->instance) {
		box_hang_up(box, "went back in time",
			"what it was doing is kept in the snapshot of before, unless that was not "
			"wanted");
		box_kill(box); /* ended follows */
		return;
	}
	box_set_target(box, BOX_STARTING, rolling->wanted);
	go(rolling);
}

static void on_exit_copy(int code, void *arg)
{
	struct rolling *rolling = arg;
	struct box *box = rolling->box;
	struct err err = rolling->err;

	rolling->helper = NULL;
	if (code && !err.kind)
		err_set(&err, ERR_SYSTEM, "the helper that copies the disk ended with code %d",
			code);
	if (rolling->returning) {
		if (err.kind)
			box_launch_failed(box, &err);
		else
			go(rolling);
		return;
	}
	/* A capture of a living box is never cancelled: the box could be left frozen. */
	if (err.kind && box && box->capturing) {
		rolling->failure = err; /* on_taken gives up */
		return;
	}
	if (err.kind) {
		rolling_give_up(rolling, &err);
		return;
	}
	rolling->copied = true;
	change_over(rolling);
}

/* ---- it comes up, or not -------------------------------------------------------------------- */

static void came_up(struct operation *op, struct box *box)
{
	struct rolling *rolling = (struct rolling *)op;
	struct err err = ERR_INIT;

	if (rolling->returning) {
		err = rolling->failure;
		err_wrap(&err, "roll back '%s' (it is as it was before)", box->row.name);
		rolling_finish(rolling, &err);
		return;
	}
	yard_event(box->yard, "box.rolled_back", box,
		json_pack("{s:s,s:s,s:I}", "to", rolling->wanted, "from",
			rolling->from ? rolling->from : "", "took_us",
			(json_int_t)(clock_mono_us() - rolling->started_us)));
	/* The instance ids are free for the next rollback once the old instance has ended. */
	rolling->came_up = true;
	if (!rolling->present)
		rolling_finish(rolling, NULL);
}

/* Goes back to the captured present; if that fails too the box is stopped, with that disk. */
static bool launch_failed(struct operation *op, struct box *box, const struct err *why)
{
	struct rolling *rolling = (struct rolling *)op;
	struct err err = *why;

	if (rolling->ahead)
		return ahead_failed(rolling, why);
	restore_done(box);
	box_let_go(box);
	if (!rolling->returning && rolling->from && !box->remove_wanted) {
		log_warn("a rollback failed; the box goes back to where it was",
			kv_str("box", box->row.id), kv_err(why));
		rolling->returning = true;
		rolling->failure = *why;
		rolling->disk_only = false;
		if (copy_disk(rolling, &err) == 0)
			return true;
	}
	if (rolling->returning)
		err = rolling->failure;
	rolling_finish(rolling, &err);
	return false;
}

/* ---- the way there -------------------------------------------------------------------------- */

static void capture_present(struct rolling *rolling, bool full);

static void on_taken(
	struct box *box, const struct box_capture_result *result, const struct err *err, void *arg)
{
	struct rolling *rolling = arg;
	struct snapshot *snapshot = snapshot_by_id(rolling->yard, rolling->from);
	struct err why = ERR_INIT;
	char *position;

	if (err || rolling->failure.kind) {
		/* The time line may already be gone. */
		bool was_full = snapshot && !strcmp(snapshot->row.kind, "full");

		why = rolling->failure.kind ? rolling->failure : *err;
		drop_from(rolling);
		if (!rolling->failure.kind && was_full && !rolling->adopted && !result->cancelled &&
			box->state == BOX_ROLLING_BACK && box->instance) {
			log_info("the present of a box is kept without its processes",
				kv_str("box", box->row.id), kv_err(&why));
			capture_present(rolling, false);
			return;
		}
		rolling_give_up(rolling, &why);
		return;
	}
	/* The present becomes a branch; the box itself goes elsewhere. */
	position = xstrdup(box->row.position);
	snapshot_ready(box, snapshot, result);
	text_replace(&box->row.position, position);
	free(position);
	box_save(box, STORE_KEPT);
	rolling->captured = true;
	change_over(rolling);
}

static void capture_present(struct rolling *rolling, bool full)
{
	static const struct box_capture_ops ops = { .on_done = on_taken };
	struct box *box = rolling->box;
	_cleanup_free_ char *detail = NULL;
	struct snapshot *target = snapshot_by_id(rolling->yard, rolling->wanted), *snapshot;
	struct err err = ERR_INIT;

	detail = xasprintf("before going back to %s",
		target && *target->row.name ? target->row.name : rolling->wanted);
	rolling->adopted = box->state == BOX_ROLLING_BACK && *box->row.state_id;
	snapshot = snapshot_new(box, rolling->from_inside ? "inside" : "rollback", detail,
		full || rolling->adopted ? "full" : "disk");
	/* The processes of a hibernated box are already captured. */
	if (rolling->adopted)
		text_replace(&snapshot->row.id, box->row.state_id);
	rolling->from = xstrdup(snapshot->row.id);
	if (snapshot_record(rolling->yard, snapshot, STORE_KEPT, &err) < 0) {
		rolling_give_up(rolling, &err);
		return;
	}
	box_capture(box,
		&(struct box_capture_spec){ .state = full ? rolling->from : NULL,
			.disk_place = SNAPSHOT_DISKS,
			.disk = rolling->from,
			.quick = true,
			.frozen = rolling->was_suspended,
			.stay_frozen = true },
		&ops, rolling);
}

/* The newest snapshot on the way back from the present. */
static struct snapshot *newest(struct box *box, struct err *err)
{
	struct snapshot *snapshot = snapshot_by_id(box->yard, box->row.position);

	if (snapshot)
		return snapshot;
	err_set(err, ERR_NOT_FOUND, "box '%s' has no snapshot to go back to", box->row.name);
	err_hint(err, "'box snapshot %s' makes one", box->row.name);
	return NULL;
}

static int check(struct box *box, struct rolling *rolling, struct err *err)
{
	struct snapshot *target =
		rolling->wanted ? snapshot_find(box, rolling->wanted, err) : newest(box, err);

	if (!target)
		return -1;
	if (box_is_busy(box))
		return box_refuse_busy(box, err);
	if (strcmp(target->row.image, box->row.image))
		return err_set(err, ERR_STATE, "the snapshot belongs to another image");
	if (pool_check_room(box->yard->pool, 0, err) < 0)
		return -1;
	free(rolling->wanted);
	rolling->wanted = xstrdup(target->row.id);
	rolling->used = snapshot_use(box->yard, rolling->wanted);
	rolling->was_suspended = box->state == BOX_SUSPENDED;
	return 0;
}

static void begin(struct operation *op, struct box *box, const struct err *gone)
{
	struct rolling *rolling = (struct rolling *)op;
	struct err err = ERR_INIT;
	bool full;

	if (!box) {
		if (rolling->done)
			rolling->done(NULL, gone, rolling->arg);
		rolling_free(rolling);
		return;
	}
	if (check(box, rolling, &err) < 0) {
		operation_end(box);
		if (rolling->done)
			rolling->done(NULL, &err, rolling->arg);
		rolling_free(rolling);
		return;
	}
	rolling->box = box;
	rolling->disk = xasprintf(ROLL_DISK_PREFIX "%s", box->row.id);
	/* A box without room for a capture of its processes is still rolled back. */
	full = box->instance &&
	       !(rolling->from_inside && budget_make_room(box, box_capture_need(box), NULL) < 0);
	box_set_state(box, BOX_ROLLING_BACK, INTENT_ROLLBACK);
	box_save(box, STORE_KEPT);
	pool_disk_discard(rolling->yard->pool, BOX_DISKS, rolling->disk, NULL);
	/* A box that lost its disk has no present to keep. */
	rolling->captured =
		(rolling->forget && rolling->disk_only) || (!box->instance && !box_has_disk(box));
	if (copy_disk(rolling, &err) < 0)
		rolling_give_up(rolling, &err);
	else if (!rolling->captured)
		capture_present(rolling, full);
}

static void late(struct operation *op, struct box *box, const struct err *err)
{
	struct rolling *rolling = (struct rolling *)op;
	json_done done = rolling->done;

	(void)box;
	rolling->done = NULL;
	if (done)
		done(NULL, err, rolling->arg);
}

static void cancel(struct operation *op, struct box *box, const struct err *why)
{
	struct rolling *rolling = (struct rolling *)op;

	if (rolling->ahead || rolling->committed) {
		ahead_cancel(rolling, why);
		return;
	}
	/* The daemon ends: the box goes on, unless its present has already ended. */
	if (box->state == BOX_ROLLING_BACK && box->intent == INTENT_ROLLBACK) {
		rolling_give_up(rolling, why);
		return;
	}
	rolling->box = NULL;
	rolling_finish(rolling, why);
}

static const struct operation_ops rollback = {
	.name = "rollback",
	.begin = begin,
	.ended = ended,
	.launch_failed = launch_failed,
	.disk = ahead_disk,
	.ready = ahead_ready,
	.commit = ahead_commit,
	.came_up = came_up,
	.lost_link = ahead_lost_link,
	.late = late,
	.cancel = cancel,
};

void box_rollback(struct box *box, const struct rollback_spec *spec, json_done done, void *arg)
{
	struct rolling *rolling = xnew(struct rolling);

	*rolling = (struct rolling){ .op = { .ops = &rollback },
		.yard = box->yard,
		.wanted = xstrdup(spec->snapshot),
		.disk_only = spec->disk_only,
		.forget = spec->forget,
		.from_inside = spec->from_inside,
		.started_us = clock_mono_us(),
		.done = done,
		.arg = arg };
	operation_queue(box, &rolling->op);
}

void rollback_recover(struct box *box)
{
	struct rolling *rolling = xnew(struct rolling);
	struct err err = ERR_INIT;

	*rolling = (struct rolling){ .op = { .ops = &rollback },
		.box = box,
		.yard = box->yard,
		.wanted = xstrdup(box->row.target),
		.disk = xasprintf(ROLL_DISK_PREFIX "%s", box->row.id),
		.started_us = clock_mono_us() };
	rolling->used = snapshot_use(box->yard, rolling->wanted);
	operation_resume(box, &rolling->op);
	box_set_target(box, BOX_ROLLING_BACK, rolling->wanted);
	rolling->captured = true;
	/* The disk may be half copied. */
	pool_disk_discard(rolling->yard->pool, BOX_DISKS, rolling->disk, NULL);
	if (copy_disk(rolling, &err) < 0)
		box_launch_failed(box, &err);
}
