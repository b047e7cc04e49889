/* hibernate.c - asleep on disk; waking.c brings it back
 *
 *   frozen ─► captured (─► tried; trial.c) ─► packed, safe ─► the row says where its state is
 *   (safe) ─► killed ─► hibernated
 *
 * Until the row says where its state is, whatever fails thaws the box: it goes on as if nothing had
 * been. After that the state is the box; what still runs of it is frozen and is killed, by the next
 * daemon if need be. Its disk stays where it is. */
#include "core/core_internal.h"
#include "core/time/idle.h"
#include "core/boxnet/network_internal.h"
#include "core/time/timeline.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "loop/loop.h"
#include "checkpoint/checkpoints.h"

struct sleeping {
	struct operation op;
	struct box *box;
	char *state;
	char *reason;
	bool was_suspended;
	bool committed; /* the row names the state */
	int64_t started_us;
	struct sleep_waiter {
		box_done done;
		void *arg;
		struct sleep_waiter *next;
	} * askers;
};

static void tell(struct sleeping *sleeping, struct box *box, const struct err *err)
{
	while (sleeping->askers) {
		struct sleep_waiter *asker = sleeping->askers;

		sleeping->askers = asker->next;
		if (asker->done)
			asker->done(box, err, asker->arg);
		free(asker);
	}
}

static void sleeping_free(struct sleeping *sleeping)
{
	free(sleeping->state);
	free(sleeping->reason);
	free(sleeping);
}

static void ask(struct sleeping *sleeping, box_done done, void *arg)
{
	struct sleep_waiter *asker = xnew(struct sleep_waiter);

	*asker = (struct sleep_waiter){ done, arg, sleeping->askers };
	sleeping->askers = asker;
}

/* Returns to the state before the hibernation. */
static void go_on(const struct sleeping *sleeping, struct box *box)
{
	struct err err = ERR_INIT;

	box_set_state(box, sleeping->was_suspended ? BOX_SUSPENDED : BOX_RUNNING, INTENT_NONE);
	if (!sleeping->was_suspended && box->instance &&
		instance_freeze(box->instance, false, &err) < 0)
		log_error("a box stays frozen", kv_str("box", box->row.id), kv_err(&err));
	box_save(box, STORE_KEPT);
}

/* If the machine goes down with the daemon, the next daemon finds the box stopped and reports this
 * reason (box_ended). */
static void note_failure(struct box *box, const struct err *why)
{
	text_replace(&box->row.sleep_failure, why->message);
	box_save(box, STORE_SAFE);
}

void hibernate_recovered(struct yard *yard)
{
	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];

		if (!*box->row.sleep_failure)
			continue;
		text_replace(&box->row.sleep_failure, "");
		box_save(box, STORE_KEPT);
	}
}

static void hint_at_others(const struct box *box, struct err *err)
{
	box_capture_hint(err,
		"'box stop %s' ends its processes, 'box snapshot --disk-only %s' keeps its disk",
		box->row.name, box->row.name);
}

static void give_up(struct sleeping *sleeping, const struct err *why)
{
	struct box *box = sleeping->box;
	struct err err = *why;

	checkpoints_discard(box->yard->checkpoints, sleeping->state, NULL);
	if (box->state == BOX_HIBERNATING) {
		go_on(sleeping, box);
		if (box->state == BOX_RUNNING)
			box_reconnect(box);
		if (box->yard->going_down)
			note_failure(box, &err);
	}
	yard_event(
		box->yard, "box.hibernate_failed", box, json_pack("{s:s}", "message", err.message));
	err_wrap(&err, "hibernate '%s'", box->row.name);
	hint_at_others(box, &err);
	operation_end(box);
	tell(sleeping, box, &err);
	sleeping_free(sleeping);
	box_notify(box, NULL);
}

static void on_packed(const struct err *err, void *arg)
{
	struct sleeping *sleeping = arg;
	struct box *box = sleeping->box;
	struct err why = ERR_INIT;

	/* The box is being removed. */
	if (!err && box->state != BOX_HIBERNATING) {
		err_set(&why, ERR_STATE, "box '%s' is %s", box->row.name,
			box_state_name(box->state));
		err = &why;
	}
	if (err) {
		give_up(sleeping, err);
		return;
	}
	text_replace(&box->row.state_id, sleeping->state);
	if (store_box_update(box->yard->store, &box->row, STORE_SAFE, &why) < 0) {
		text_replace(&box->row.state_id, "");
		give_up(sleeping, &why);
		return;
	}
	sleeping->committed = true;
	box_hang_up(box, "was hibernated", "its programs go on when it wakes; 'box ps' lists them");
	box_kill(box);
}

static void on_tried(struct box *box, const struct err *err, void *arg)
{
	struct sleeping *sleeping = arg;

	if (err)
		give_up(sleeping, err);
	else
		checkpoints_pack(box->yard->checkpoints, sleeping->state, on_packed, sleeping);
}

static void on_taken(
	struct box *box, const struct box_capture_result *result, const struct err *err, void *arg)
{
	struct sleeping *sleeping = arg;

	if (err) {
		give_up(sleeping, err);
		return;
	}
	if (!trial_start(box, sleeping->state, result->processes, on_tried, sleeping))
		checkpoints_pack(box->yard->checkpoints, sleeping->state, on_packed, sleeping);
}

static void cancel(struct operation *op, struct box *box, const struct err *why)
{
	struct sleeping *sleeping = (struct sleeping *)op;

	trial_cancel(box);
	checkpoints_forget(box->yard->checkpoints, sleeping);
	if (!sleeping->committed)
		checkpoints_discard(box->yard->checkpoints, sleeping->state, NULL);
	/* Resume it now: otherwise it would stay frozen until the next daemon starts. */
	if (!sleeping->committed && box->yard->closing && box->state == BOX_HIBERNATING)
		go_on(sleeping, box);
	tell(sleeping, NULL, why);
	sleeping_free(sleeping);
}

/* The instance has ended: as wanted, or by itself during the capture. */
static bool ended(struct operation *op, struct box *box)
{
	struct sleeping *sleeping = (struct sleeping *)op;
	uint64_t plain, packed;

	/* It ended by itself, or the box is being removed. */
	if (!sleeping->committed || box->state != BOX_HIBERNATING) {
		struct err err = ERR_INIT;

		err_set(&err, ERR_STATE, "box '%s' ended meanwhile", box->row.name);
		cancel(op, box, &err);
		operation_end(box);
		return false;
	}
	box_let_go(box);
	box_set_state(box, BOX_HIBERNATED, INTENT_NONE);
	/* A box paused at a limit stays paused, whoever hibernates it. */
	if (!box_is_paused(box))
		text_replace(&box->row.asleep_for, sleeping->reason);
	box_save(box, STORE_KEPT);
	checkpoints_drop_plain(box->yard->checkpoints, sleeping->state);
	checkpoints_sizes(box->yard->checkpoints, sleeping->state, &plain, &packed);
	yard_event(box->yard, "box.hibernated", box,
		json_pack("{s:s,s:I,s:I}", "reason", sleeping->reason, "stored_bytes",
			(json_int_t)packed, "took_us",
			(json_int_t)(clock_mono_us() - sleeping->started_us)));
	idle_asleep(box);
	operation_end(box);
	tell(sleeping, box, NULL);
	sleeping_free(sleeping);
	box_notify(box, NULL); /* those who came meanwhile wake it */
	return true;
}

static void late(struct operation *op, struct box *box, const struct err *err)
{
	tell((struct sleeping *)op, box, err);
}

static void begin(struct operation *op, struct box *box, const struct err *gone)
{
	static const struct box_capture_ops ops = { .on_done = on_taken };
	struct sleeping *sleeping = (struct sleeping *)op;
	struct err err = ERR_INIT;

	if (!box) {
		tell(sleeping, NULL, gone);
		sleeping_free(sleeping);
		return;
	}
	if (box->state == BOX_HIBERNATED) {
		operation_end(box);
		tell(sleeping, box, NULL);
		sleeping_free(sleeping);
		return;
	}
	if (box->state != BOX_RUNNING && box->state != BOX_SUSPENDED) {
		err_set(&err, ERR_STATE, "box '%s' is %s, not running", box->row.name,
			box_state_name(box->state));
	} else {
		sleeping->was_suspended = box->state == BOX_SUSPENDED;
	}
	if (err.kind) {
		operation_end(box);
		tell(sleeping, box, &err);
		sleeping_free(sleeping);
		return;
	}
	sleeping->box = box;
	sleeping->state = state_id_new(box->yard);
	box_set_state(box, BOX_HIBERNATING, INTENT_HIBERNATE);
	box_save(box, STORE_KEPT);
	box_capture(box,
		&(struct box_capture_spec){ .state = sleeping->state,
			.quick = true,
			.to_end = true,
			.frozen = sleeping->was_suspended,
			.stay_frozen = true },
		&ops, sleeping);
}

static const struct operation_ops hibernation = {
	.name = "hibernation",
	.begin = begin,
	.ended = ended,
	.late = late,
	.cancel = cancel,
};

void box_hibernate(struct box *box, const char *reason, box_done done, void *arg)
{
	struct sleeping *sleeping = (struct sleeping *)operation_find(box, &hibernation);
	struct err err = ERR_INIT;

	if (sleeping) {
		ask(sleeping, done, arg);
		return;
	}
	if (box->state == BOX_STOPPED) {
		err_set(&err, ERR_STATE, "box '%s' is stopped: it has no processes to keep",
			box->row.name);
		done(box, &err, arg);
		return;
	}
	sleeping = xnew(struct sleeping);
	sleeping->op.ops = &hibernation;
	sleeping->reason = xstrdup(reason);
	sleeping->started_us = clock_mono_us();
	ask(sleeping, done, arg);
	operation_queue(box, &sleeping->op);
}

/* ---- all of them ---------------------------------------------------------------------------- */

struct bedtime {
	struct yard *yard;
	size_t left;
	bool counting;
	json_t *failed;
	void (*done)(json_t *failed, void *arg);
	void *arg;
};

static void bedtime_go_on(struct bedtime *bedtime);

static void one_is_done(struct bedtime *bedtime)
{
	bedtime->left--;
	bedtime_go_on(bedtime);
}

static bool is_awake(const struct box *box)
{
	return box->state == BOX_RUNNING || box->state == BOX_SUSPENDED;
}

static json_t *failure_json(const struct box *box, const struct err *err)
{
	return json_pack("{s:s,s:s,s:{s:s,s:s,s:s}}", "id", box->row.id, "name", box->row.name,
		"error", "code", err_kind_code(err->kind), "message", err->message, "hint",
		err->hint);
}

static void on_asleep(struct box *box, const struct err *err, void *arg)
{
	struct bedtime *bedtime = arg;

	/* A box that has ended or was removed meanwhile needs no hibernation. */
	if (err && box && is_awake(box)) {
		log_warn("a box does not hibernate and runs on", kv_str("box", box->row.id),
			kv_err(err));
		json_array_append_new(bedtime->failed, failure_json(box, err));
	}
	one_is_done(bedtime);
}

static void on_started(struct box *box, const struct err *err, void *arg)
{
	(void)err;
	if (box && is_awake(box))
		box_hibernate(box, "shutdown", on_asleep, arg);
	else
		one_is_done(arg);
}

/* Hibernates one box. True: it was asked for, and a callback follows. A box between two states is
 * waited for. */
static bool put_to_bed(struct bedtime *bedtime, struct box *box)
{
	bool starting = box->state == BOX_STARTING || box->state == BOX_CREATING;

	if (box_is_gone(box) || box->remove_wanted || box->put_to_bed)
		return false;
	if (!starting && !is_awake(box) && box->state != BOX_HIBERNATING &&
		box->state != BOX_ROLLING_BACK)
		return false;
	box->put_to_bed = true;
	bedtime->left++;
	/* A wake or a rollback has the turn until the box runs. */
	if (starting && !operation_is_on(box))
		box_wait(box, on_started, bedtime);
	else
		box_hibernate(box, "shutdown", on_asleep, bedtime);
	return true;
}

static bool put_all_to_bed(struct bedtime *bedtime)
{
	struct yard *yard = bedtime->yard;
	size_t count = yard->box_count;
	struct box **boxes = xmemdup(yard->boxes, count * sizeof *boxes);
	bool any = false;

	for (size_t i = 0; i < count; i++)
		any = put_to_bed(bedtime, boxes[i]) || any;
	free(boxes);
	return any;
}

/* Repeats until no box is awake: earlier requests, such as a queued fork, may still create
 * boxes. */
static void bedtime_go_on(struct bedtime *bedtime)
{
	if (bedtime->left || bedtime->counting)
		return;
	bedtime->counting = true;
	while (!bedtime->yard->closing && !bedtime->left && put_all_to_bed(bedtime))
		;
	bedtime->counting = false;
	if (bedtime->left)
		return;
	bedtime->done(bedtime->failed, bedtime->arg);
	json_decref(bedtime->failed);
	free(bedtime);
}

void yard_hibernate_all(struct yard *yard, void (*done)(json_t *failed, void *arg), void *arg)
{
	struct bedtime *bedtime = xnew(struct bedtime);

	*bedtime =
		(struct bedtime){ .yard = yard, .failed = json_array(), .done = done, .arg = arg };
	yard->going_down = true;
	bedtime_go_on(bedtime);
}
