/* snapshot_make.c - a snapshot that somebody asks for: the wish, its turn, the answer */
#include "core/time/snapshot_internal.h"
#include "core/time/timeline.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoints.h"

enum { SNAPSHOTS_MAX = 1000 }; /* per box */

struct wish {
	struct operation op;
	char *name, *detail;
	const char *cause;
	bool disk_only, adopt, wait_safe;
	bool in_turn; /* the turn is the caller's, and stays so */
	bool adopted; /* the state is the hibernated box's own */
	char *id;     /* of the snapshot, once it exists */
	int64_t started_us;
	struct box_capture_result result;
	json_done done;
	void *arg;
	struct wish *next; /* in yard->snapshot_wishes while waiting until it is safe */
	struct yard *yard;
};

static void wish_free(struct wish *wish)
{
	free(wish->name);
	free(wish->detail);
	free(wish->id);
	free(wish);
}

static void end_turn(const struct wish *wish, struct box *box)
{
	if (!wish->in_turn)
		operation_end(box);
}

static void answer(struct wish *wish, const struct err *err)
{
	struct snapshot *snapshot = wish->id ? snapshot_by_id(wish->yard, wish->id) : NULL;
	_cleanup_json_ json_t *result = snapshot ? snapshot_json(wish->yard, snapshot) : NULL;

	if (result) {
		json_object_set_new(
			result, "paused_us", json_integer((json_int_t)wish->result.paused_us));
		json_object_set_new(
			result, "took_us", json_integer(clock_mono_us() - wish->started_us));
	}
	if (wish->done)
		wish->done(result, err, wish->arg);
	wish_free(wish);
}

/* Answers those who wait until a snapshot is safe. One that could not be made safe still exists. */
void snapshot_waiters_tell(struct yard *yard, const char *id, const struct err *err)
{
	struct wish **at = &yard->snapshot_wishes;

	while (*at) {
		struct wish *wish = *at;

		if (strcmp(wish->id, id)) {
			at = &wish->next;
			continue;
		}
		*at = wish->next;
		answer(wish, err);
		/* start over: the callback may have changed the list */
		at = &yard->snapshot_wishes;
	}
}

static void on_taken(
	struct box *box, const struct box_capture_result *result, const struct err *err, void *arg)
{
	struct wish *wish = arg;
	struct yard *yard = wish->yard;
	struct snapshot *snapshot = snapshot_by_id(yard, wish->id);
	bool in_turn;

	if (err) {
		struct err why = *err;

		if (snapshot)
			(wish->adopted ? snapshot_forget_state : snapshot_discard)(yard, snapshot);
		end_turn(wish, box);
		answer(wish, &why);
		return;
	}
	wish->result = *result;
	/* The state was packed when the box was hibernated. */
	if (wish->adopted)
		snapshot->safe = checkpoints_is_packed(yard->checkpoints, wish->id);
	snapshot_ready(box, snapshot, result);
	in_turn = wish->in_turn;
	if (wish->wait_safe && !snapshot->safe) {
		wish->next = yard->snapshot_wishes;
		yard->snapshot_wishes = wish;
		wish = NULL;
	}
	snapshot_pack(yard, snapshot);
	snapshots_thin(box);
	if (!in_turn)
		operation_end(box);
	/* Last, because the callback may remove the box. */
	if (wish)
		answer(wish, NULL);
}

static int check(struct box *box, const struct wish *wish, struct err *err)
{
	size_t count = 0, inside = 0;

	for (size_t i = 0; i < box->yard->snapshot_count; i++) {
		struct snapshot *one = box->yard->snapshots[i];

		count += snapshot_is_of(one, box);
		inside +=
			snapshot_is_of(one, box) && snapshot_is_from_inside(one) && *one->row.name;
		if (snapshot_is_of(one, box) && wish->name && !strcmp(one->row.name, wish->name)) {
			err_set(err, ERR_EXISTS, "box '%s' has a snapshot '%s' already",
				box->row.name, wish->name);
			return err_hint(err, "choose another name, or 'box forget %s %s'",
				box->row.name, wish->name);
		}
	}
	if (wish->name && !strcmp(wish->cause, "inside") && inside >= SNAPSHOTS_INSIDE_MAX) {
		err_set(err, ERR_LIMIT, "a box may keep %d snapshots by names it gives itself",
			SNAPSHOTS_INSIDE_MAX);
		return err_hint(err,
			"without a name the oldest make room; from outside, 'box forget %s "
			"SNAPSHOT' removes one",
			box->row.name);
	}
	if (count >= SNAPSHOTS_MAX) {
		err_set(err, ERR_LIMIT, "box '%s' has %zu snapshots, the most allowed",
			box->row.name, count);
		return err_hint(err, "'box forget %s SNAPSHOT' removes one", box->row.name);
	}
	if (box->state == BOX_HIBERNATED && !wish->disk_only && !wish->adopt) {
		err_set(err, ERR_STATE, "box '%s' is hibernated", box->row.name);
		return err_hint(err, "'box wake %s' first, or --disk-only", box->row.name);
	}
	if (box_is_busy(box))
		return box_refuse_busy(box, err);
	if (!strcmp(wish->cause, "inside") && !wish->disk_only && box->instance)
		return budget_make_room(box, box_capture_need(box), err);
	return 0;
}

static void begin(struct operation *op, struct box *box, const struct err *gone)
{
	static const struct box_capture_ops ops = { .on_done = on_taken };
	struct wish *wish = (struct wish *)op;
	struct err err = ERR_INIT;
	struct snapshot *snapshot;
	bool full;

	if (!box) {
		answer(wish, gone);
		return;
	}
	if (check(box, wish, &err) < 0) {
		end_turn(wish, box);
		answer(wish, &err);
		return;
	}
	full = !wish->disk_only && box->state != BOX_STOPPED;
	wish->adopted = full && box->state == BOX_HIBERNATED;
	snapshot = snapshot_new(box, wish->cause, wish->detail, full ? "full" : "disk");
	if (wish->adopted)
		text_replace(&snapshot->row.id, box->row.state_id);
	if (wish->name)
		text_replace(&snapshot->row.name, wish->name);
	if (snapshot_record(box->yard, snapshot, STORE_KEPT, &err) < 0) {
		snapshot_unlist(box->yard, snapshot);
		end_turn(wish, box);
		answer(wish, &err);
		return;
	}
	wish->id = xstrdup(snapshot->row.id);
	box_capture(box,
		&(struct box_capture_spec){ .state = full && !wish->adopted ? wish->id : NULL,
			.disk_place = SNAPSHOT_DISKS,
			.disk = wish->id,
			.quick = true },
		&ops, wish);
}

static const struct operation_ops snapshot_ops = { .name = "snapshot", .begin = begin };

int snapshot_name_check(const char *name, struct err *err)
{
	if (name_check("snapshot name", name, err) < 0)
		return -1;
	if (strcmp(name, "now"))
		return 0;
	err_set(err, ERR_INVALID, "a snapshot cannot be called 'now'");
	return err_hint(
		err, "on a time line that is what the box is at present; choose another name");
}

static struct wish *wish_new(
	struct box *box, const struct snapshot_spec *spec, json_done done, void *arg)
{
	struct wish *wish = xnew(struct wish);

	*wish = (struct wish){ .op = { .ops = &snapshot_ops },
		.name = xstrdup(spec->name),
		.detail = xstrdup(spec->detail),
		.cause = spec->cause,
		.disk_only = spec->disk_only,
		.adopt = spec->adopt,
		.wait_safe = spec->wait_safe,
		.started_us = clock_mono_us(),
		.done = done,
		.arg = arg,
		.yard = box->yard };
	return wish;
}

void box_snapshot(struct box *box, const struct snapshot_spec *spec, json_done done, void *arg)
{
	struct err err = ERR_INIT;

	if (spec->name && snapshot_name_check(spec->name, &err) < 0)
		done(NULL, &err, arg);
	else
		operation_queue(box, &wish_new(box, spec, done, arg)->op);
}

void snapshot_in_turn(struct box *box, const struct snapshot_spec *spec, json_done done, void *arg)
{
	struct wish *wish = wish_new(box, spec, done, arg);

	wish->in_turn = true;
	begin(&wish->op, box, NULL);
}

void snapshot_wishes_end(struct yard *yard, const struct err *err)
{
	while (yard->snapshot_wishes) {
		struct wish *wish = yard->snapshot_wishes;

		yard->snapshot_wishes = wish->next;
		answer(wish, err);
	}
}
