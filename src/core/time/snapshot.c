/* snapshot.c - the time line of a box: making, keeping, listing and deleting snapshots
 *
 * A snapshot is a row, a copy of the disk in the pool (snapshots/ID), and for a full one a state
 * (states/ID). The row comes first, as "making"; after a crash such snapshots are removed. Once
 * captured it is "ready" and can be used. Packing follows in the background: it makes the state
 * safe and takes it out of the machine's dirty memory. */
#include "core/core_internal.h"
#include "core/time/thin.h"
#include "core/time/timeline.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"
#include <dirent.h>

enum {
	SNAPSHOTS_MAX = 1000, /* per box */
	INSIDE_MAX = 100, /* made from inside: at most so many with a name, and so many without */
	PLAIN_KEPT = 4,	  /* unpacked states kept beside the packed ones, for fast rollbacks */
};

/* ---- the list ------------------------------------------------------------------------------- */

struct snapshot *snapshot_by_id(struct yard *yard, const char *id)
{
	for (size_t i = 0; *id && i < yard->snapshot_count; i++)
		if (!strcmp(yard->snapshots[i]->row.id, id))
			return yard->snapshots[i];
	return NULL;
}

static struct snapshot *list(struct yard *yard, const struct snapshot_row *row)
{
	struct snapshot *snapshot = xnew(struct snapshot);

	snapshot->row = *row;
	xgrow(yard->snapshots, yard->snapshot_count + 1);
	yard->snapshots[yard->snapshot_count++] = snapshot;
	return snapshot;
}

static void unlist(struct yard *yard, struct snapshot *snapshot)
{
	for (size_t i = 0; i < yard->snapshot_count; i++)
		if (yard->snapshots[i] == snapshot) {
			memmove(&yard->snapshots[i], &yard->snapshots[i + 1],
				(yard->snapshot_count - i - 1) * sizeof *yard->snapshots);
			yard->snapshot_count--;
			break;
		}
	snapshot_row_done(&snapshot->row);
	free(snapshot);
}

static bool is_of(const struct snapshot *snapshot, const struct box *box)
{
	return !strcmp(snapshot->row.box, box->row.id);
}

struct snapshot *snapshot_find(struct box *box, const char *which, struct err *err)
{
	for (size_t i = box->yard->snapshot_count; i-- > 0;) {
		struct snapshot *snapshot = box->yard->snapshots[i];

		if (is_of(snapshot, box) && !strcmp(snapshot->row.status, "ready") &&
			(!strcmp(snapshot->row.id, which) || !strcmp(snapshot->row.name, which)))
			return snapshot;
	}
	err_set(err, ERR_NOT_FOUND, "box '%s' has no snapshot '%.80s'", box->row.name, which);
	err_hint(err, "'box timeline %s' lists them", box->row.name);
	return NULL;
}

char *state_id_new(struct yard *yard)
{
	char id[BOX_ID_LEN + 1];

	do
		random_id(id, BOX_ID_LEN);
	while (snapshot_by_id(yard, id) || checkpoints_exists(yard->checkpoints, id));
	return xstrdup(id);
}

/* ---- making --------------------------------------------------------------------------------- */

/* The settings for making a box from the snapshot: all except what belongs to one box alone. */
static char *config_of(const struct box *box)
{
	_cleanup_json_ json_t *config = json_pack("{s:s,s:s,s:s,s:s}", "profile", box->row.profile,
		"driver", box->row.driver, "volumes", box->row.volumes, "mounts", box->row.mounts);

	return json_text(config);
}

struct snapshot *snapshot_new(
	struct box *box, const char *cause, const char *detail, const char *kind)
{
	char *id = state_id_new(box->yard);
	struct snapshot_row row = {
		.id = id,
		.box = xstrdup(box->row.id),
		.name = xstrdup(""),
		.parent = xstrdup(box->row.position),
		.cause = xstrdup(cause),
		.detail = xstrdup(detail ? detail : ""),
		.kind = xstrdup(kind),
		.status = xstrdup("making"),
		.created_us = clock_wall_us(),
		.image = xstrdup(box->row.image),
		.image_name = xstrdup(box->row.image_name),
		.config = config_of(box),
	};

	return list(box->yard, &row);
}

int snapshot_record(
	struct yard *yard, struct snapshot *snapshot, enum store_grade grade, struct err *err)
{
	return store_snapshot_put(yard->store, &snapshot->row, grade, err);
}

static void record(struct yard *yard, struct snapshot *snapshot, enum store_grade grade)
{
	struct err err = ERR_INIT;

	snapshot->unsaved = snapshot_record(yard, snapshot, grade, &err) < 0;
	if (snapshot->unsaved)
		log_error("a snapshot is not recorded; it is tried again",
			kv_str("snapshot", snapshot->row.id), kv_err(&err));
}

void snapshots_save_again(struct yard *yard)
{
	for (size_t i = 0; i < yard->snapshot_count; i++)
		if (yard->snapshots[i]->unsaved)
			record(yard, yard->snapshots[i], STORE_SAFE);
}

void snapshot_ready_of(
	struct yard *yard, struct snapshot *snapshot, const struct box_capture_result *result)
{
	if (!strcmp(snapshot->row.kind, "full"))
		checkpoints_sizes(yard->checkpoints, snapshot->row.id, &snapshot->row.plain_bytes,
			&snapshot->row.stored_bytes);
	else
		snapshot->safe = true;
	snapshot->row.processes = result->processes;
	text_replace(&snapshot->row.status, "ready");
	record(yard, snapshot, STORE_KEPT);
	budget_states_changed(yard, snapshot->row.box);
}

void snapshot_ready(
	struct box *box, struct snapshot *snapshot, const struct box_capture_result *result)
{
	snapshot_ready_of(box->yard, snapshot, result);
	text_replace(&box->row.position, snapshot->row.id);
	box_save(box, STORE_KEPT);
	yard_event(box->yard, "snapshot.made", box,
		json_pack("{s:s,s:s,s:s,s:s,s:I,s:I}", "snapshot", snapshot->row.id, "name",
			snapshot->row.name, "cause", snapshot->row.cause, "kind",
			snapshot->row.kind, "paused_us", (json_int_t)result->paused_us,
			"state_bytes", (json_int_t)snapshot->row.plain_bytes));
}

/* ---- packing -------------------------------------------------------------------------------- */

struct packing {
	struct yard *yard;
	char *id;
	struct packing *next;
	safe_done done; /* may be NULL */
	void *arg;
};

static void packing_free(struct packing *packing)
{
	struct packing **at = &packing->yard->packings;

	while (*at != packing)
		at = &(*at)->next;
	*at = packing->next;
	free(packing->id);
	free(packing);
}

static void on_packed(const struct err *err, void *arg)
{
	struct packing *packing = arg;
	struct yard *yard = packing->yard;
	struct snapshot *snapshot = snapshot_by_id(yard, packing->id);
	_cleanup_free_ char *id = xstrdup(packing->id);
	safe_done done = packing->done;
	void *done_arg = packing->arg;
	struct err gone = ERR_INIT;
	uint64_t plain;

	packing_free(packing);
	if (!snapshot) {
		err_set(&gone, ERR_NOT_FOUND, "the snapshot was removed meanwhile");
		snapshot_waiters_tell(yard, id, &gone);
		if (done)
			done(&gone, done_arg);
		return;
	}
	snapshot->packing = false;
	if (err) {
		log_warn("a snapshot is not packed", kv_str("snapshot", snapshot->row.id),
			kv_err(err));
	} else {
		snapshot->safe = true;
		checkpoints_sizes(
			yard->checkpoints, snapshot->row.id, &plain, &snapshot->row.stored_bytes);
		record(yard, snapshot, STORE_SAFE);
		budget_states_changed(yard, snapshot->row.box);
		checkpoints_trim(yard->checkpoints, PLAIN_KEPT);
	}
	snapshot_waiters_tell(yard, id, err);
	if (done)
		done(err, done_arg);
}

void snapshot_pack(struct yard *yard, struct snapshot *snapshot)
{
	if (!snapshot->packing && !snapshot->safe)
		snapshot_make_safe(yard, snapshot, NULL, NULL);
}

void snapshot_make_safe(struct yard *yard, struct snapshot *snapshot, safe_done done, void *arg)
{
	struct packing *packing = xnew(struct packing);

	*packing = (struct packing){ yard, xstrdup(snapshot->row.id), yard->packings, done, arg };
	yard->packings = packing;
	snapshot->packing = true;
	checkpoints_pack(yard->checkpoints, snapshot->row.id, on_packed, packing);
}

/* ---- deleting ------------------------------------------------------------------------------- */

/* Whether a box is hibernated in this state: after a crash during a rollback from hibernation, both
 * have it. */
static bool is_slept_in(const struct yard *yard, const char *state)
{
	for (size_t i = 0; i < yard->box_count; i++)
		if (!strcmp(yard->boxes[i]->row.state_id, state))
			return true;
	return false;
}

static void drop(struct yard *yard, struct snapshot *snapshot, bool with_state)
{
	_cleanup_free_ char *box = xstrdup(snapshot->row.box);
	struct err err = ERR_INIT;

	/* Snapshots and forks made from this one are attached to its parent. */
	for (size_t i = 0; i < yard->snapshot_count; i++)
		if (!strcmp(yard->snapshots[i]->row.parent, snapshot->row.id)) {
			text_replace(&yard->snapshots[i]->row.parent, snapshot->row.parent);
			record(yard, yard->snapshots[i], STORE_KEPT);
		}
	for (size_t i = 0; i < yard->box_count; i++)
		if (!strcmp(yard->boxes[i]->row.position, snapshot->row.id)) {
			text_replace(&yard->boxes[i]->row.position, snapshot->row.parent);
			box_save(yard->boxes[i], STORE_KEPT);
		}
	for (size_t i = 0; i < yard->box_count; i++) {
		struct box_row *row = &yard->boxes[i]->row;

		bool stood = !strcmp(row->origin_position, snapshot->row.id);

		/* A box made from an image has no other box as its origin. */
		if (!*row->origin_box || (!stood && strcmp(row->origin_snapshot, snapshot->row.id)))
			continue;
		if (!strcmp(row->origin_snapshot, snapshot->row.id))
			text_replace(&row->origin_snapshot, snapshot->row.parent);
		if (stood)
			text_replace(&row->origin_position, snapshot->row.parent);
		box_save(yard->boxes[i], STORE_KEPT);
	}
	if (snapshot->users) {
		/* To a new daemon it looks unfinished, and is removed. */
		snapshot->doomed = true;
		snapshot->borrowed = !with_state;
		text_replace(&snapshot->row.box, "");
		text_replace(&snapshot->row.detail, "");
		text_replace(&snapshot->row.status, "making");
		record(yard, snapshot, STORE_KEPT);
		return;
	}
	if (store_snapshot_delete(yard->store, snapshot->row.id, STORE_KEPT, &err) < 0 ||
		(with_state &&
			checkpoints_discard(yard->checkpoints, snapshot->row.id, &err) < 0) ||
		pool_disk_discard(yard->pool, SNAPSHOT_DISKS, snapshot->row.id, &err) < 0)
		log_warn("something of a snapshot stays", kv_str("snapshot", snapshot->row.id),
			kv_err(&err));
	unlist(yard, snapshot);
	budget_states_changed(yard, box);
}

void snapshot_discard(struct yard *yard, struct snapshot *snapshot)
{
	drop(yard, snapshot, true);
}

void snapshot_forget_state(struct yard *yard, struct snapshot *snapshot)
{
	drop(yard, snapshot, false);
}

bool snapshot_use(struct yard *yard, const char *id)
{
	struct snapshot *snapshot = snapshot_by_id(yard, id);

	if (snapshot)
		snapshot->users++;
	return snapshot != NULL;
}

void snapshot_unuse(struct yard *yard, const char *id)
{
	struct snapshot *snapshot = snapshot_by_id(yard, id);

	if (snapshot && snapshot->users && !--snapshot->users && snapshot->doomed)
		drop(yard, snapshot, !snapshot->borrowed);
}

void snapshots_box_removed(struct box *box)
{
	struct yard *yard = box->yard;

	for (size_t i = yard->snapshot_count; i-- > 0;)
		if (is_of(yard->snapshots[i], box))
			snapshot_discard(yard, yard->snapshots[i]);
	if (box->row.state_id && *box->row.state_id)
		checkpoints_discard(yard->checkpoints, box->row.state_id, NULL);
}

bool snapshot_is_automatic(const struct snapshot *snapshot)
{
	return !*snapshot->row.name &&
	       (!strcmp(snapshot->row.cause, "exec") || !strcmp(snapshot->row.cause, "interval") ||
		       !strcmp(snapshot->row.cause, "try") ||
		       !strcmp(snapshot->row.cause, "rollback"));
}

bool snapshot_is_from_inside(const struct snapshot *snapshot)
{
	return !strcmp(snapshot->row.cause, "inside");
}

static bool is_from_inside(const struct snapshot *snapshot, bool named)
{
	return snapshot_is_from_inside(snapshot) && !*snapshot->row.name != named;
}

/* Of the unnamed snapshots made from inside, only the last ones are kept. */
static void thin_inside(struct box *box)
{
	struct yard *yard = box->yard;
	size_t newer = 0;

	for (size_t i = yard->snapshot_count; i-- > 0;) {
		struct snapshot *snapshot = yard->snapshots[i];

		if (is_of(snapshot, box) && is_from_inside(snapshot, false) &&
			++newer > INSIDE_MAX && !snapshot->packing &&
			strcmp(snapshot->row.id, box->row.position))
			snapshot_discard(yard, snapshot);
	}
}

void snapshots_thin(struct box *box)
{
	struct yard *yard = box->yard;
	const struct thin_policy policy = { .keep_count = (unsigned)yard->conf->snapshots_keep,
		.keep_age_us = (int64_t)yard->conf->snapshots_keep_age_ms * 1000 };
	struct thin_item *items = xnewn(struct thin_item, yard->snapshot_count + 1);
	bool *drop = xnewn(bool, yard->snapshot_count + 1);
	char **ids = xnewn(char *, yard->snapshot_count + 1);
	size_t count = 0;

	for (size_t i = 0; i < yard->snapshot_count; i++) {
		struct snapshot *snapshot = yard->snapshots[i];

		if (!is_of(snapshot, box) || strcmp(snapshot->row.status, "ready"))
			continue;
		items[count].created_us = snapshot->row.created_us;
		items[count].keep = !snapshot_is_automatic(snapshot) || snapshot->packing ||
				    !strcmp(snapshot->row.id, box->row.position);
		ids[count++] = snapshot->row.id;
	}
	thin_choose(items, count, clock_wall_us(), &policy, drop);
	for (size_t i = 0; i < count; i++) {
		if (!drop[i])
			continue;
		log_info("an automatic snapshot is let go", kv_str("box", box->row.id),
			kv_str("snapshot", ids[i]));
		snapshot_discard(yard, snapshot_by_id(yard, ids[i]));
	}
	free(items);
	free(drop);
	free(ids);
	thin_inside(box);
}

int box_snapshot_remove(struct box *box, const char *which, struct err *err)
{
	struct snapshot *snapshot = snapshot_find(box, which, err);

	if (!snapshot)
		return -1;
	if (box->operation && box_is_busy(box))
		return box_refuse_busy(box, err);
	yard_event(box->yard, "snapshot.removed", box,
		json_pack("{s:s}", "snapshot", snapshot->row.id));
	snapshot_discard(box->yard, snapshot);
	return 0;
}

/* ---- information ---------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

json_t *snapshot_json(struct yard *yard, const struct snapshot *snapshot)
{
	const struct snapshot_row *row = &snapshot->row;
	char at[CLOCK_RFC3339_MAX];
	uint64_t used = 0, limit;

	if (pool_has_quota(yard->pool))
		pool_usage(yard->pool, SNAPSHOT_DISKS, row->id, &used, &limit, NULL);
	return json_pack("{s:s,s:s,s:o,s:s,s:s,s:s,s:o,s:s,s:I,s:I,s:I,s:I,s:b}", "id", row->id,
		"box", row->box, "name", text_or_null(row->name), "cause", row->cause, "detail",
		row->detail, "kind", row->kind, "parent", text_or_null(row->parent), "created_at",
		clock_rfc3339(row->created_us, at), "processes", (json_int_t)row->processes,
		"state_bytes", (json_int_t)row->plain_bytes, "stored_bytes",
		(json_int_t)row->stored_bytes, "disk_bytes", (json_int_t)used, "safe",
		snapshot->safe);
}

static json_t *forks_json(struct yard *yard, const char *snapshot)
{
	json_t *names = json_array();

	for (size_t i = 0; i < yard->box_count; i++)
		if (!box_is_gone(yard->boxes[i]) &&
			!strcmp(yard->boxes[i]->row.origin_snapshot, snapshot))
			json_array_append_new(names, json_string(yard->boxes[i]->row.name));
	return names;
}

json_t *box_timeline_json(struct box *box)
{
	struct yard *yard = box->yard;
	json_t *all = json_array();

	for (size_t i = 0; i < yard->snapshot_count; i++) {
		struct snapshot *snapshot = yard->snapshots[i];
		json_t *one;

		if (!is_of(snapshot, box) || strcmp(snapshot->row.status, "ready"))
			continue;
		one = snapshot_json(yard, snapshot);
		json_object_set_new(
			one, "current", json_boolean(!strcmp(snapshot->row.id, box->row.position)));
		json_object_set_new(one, "forks", forks_json(yard, snapshot->row.id));
		json_array_append_new(all, one);
	}
	return json_pack("{s:s,s:s,s:s,s:o,s:o}", "box", box->row.id, "name", box->row.name,
		"state", box_state_name(box->state), "position", text_or_null(box->row.position),
		"snapshots", all);
}

/* ---- the verb ------------------------------------------------------------------------------- */

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
			drop(yard, snapshot, !wish->adopted);
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

		count += is_of(one, box);
		inside += is_of(one, box) && is_from_inside(one, true);
		if (is_of(one, box) && wish->name && !strcmp(one->row.name, wish->name)) {
			err_set(err, ERR_EXISTS, "box '%s' has a snapshot '%s' already",
				box->row.name, wish->name);
			return err_hint(err, "choose another name, or 'box forget %s %s'",
				box->row.name, wish->name);
		}
	}
	if (wish->name && !strcmp(wish->cause, "inside") && inside >= INSIDE_MAX) {
		err_set(err, ERR_LIMIT, "a box may keep %d snapshots by names it gives itself",
			INSIDE_MAX);
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
		unlist(box->yard, snapshot);
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

/* ---- the daemon starts and ends ------------------------------------------------------------- */

static int load(const struct snapshot_row *row, void *arg, struct err *err)
{
	struct snapshot_row copy = snapshot_row_copy(row);

	(void)err;
	list(arg, &copy);
	return 0;
}

static bool owner_is_there(const struct yard *yard, const char *box)
{
	if (!*box)
		return true; /* belongs to an image */
	for (size_t i = 0; i < yard->box_count; i++)
		if (!strcmp(yard->boxes[i]->row.id, box))
			return true;
	return false;
}

/* Removes unfinished snapshots, and packs ready ones that are not packed. */
static void put_in_order(struct yard *yard)
{
	for (size_t i = yard->snapshot_count; i-- > 0;) {
		struct snapshot *snapshot = yard->snapshots[i];
		bool full = !strcmp(snapshot->row.kind, "full");

		snapshot->safe =
			!full || checkpoints_is_packed(yard->checkpoints, snapshot->row.id);
		if (strcmp(snapshot->row.status, "ready") ||
			(!*snapshot->row.box && !*snapshot->row.detail) ||
			!owner_is_there(yard, snapshot->row.box) ||
			!pool_disk_exists(yard->pool, SNAPSHOT_DISKS, snapshot->row.id) ||
			is_slept_in(yard, snapshot->row.id)) {
			drop(yard, snapshot, !is_slept_in(yard, snapshot->row.id));
			continue;
		}
		/* The state was only in memory when the daemon died. */
		if (full && !checkpoints_exists(yard->checkpoints, snapshot->row.id)) {
			log_warn("of a snapshot the disk alone is left",
				kv_str("snapshot", snapshot->row.id));
			text_replace(&snapshot->row.kind, "disk");
			snapshot->row.plain_bytes = 0;
			snapshot->safe = true;
			record(yard, snapshot, STORE_KEPT);
		}
		snapshot_pack(yard, snapshot);
	}
}

static bool state_is_needed(const struct yard *yard, const char *id)
{
	return is_slept_in(yard, id) || snapshot_by_id((struct yard *)yard, id);
}

static void sweep_state(const char *id, void *arg)
{
	struct yard *yard = arg;

	if (!state_is_needed(yard, id))
		checkpoints_discard(yard->checkpoints, id, NULL);
}

static void sweep_disks(struct yard *yard)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", pool_get_path(yard->pool), SNAPSHOT_DISKS);
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && !snapshot_by_id(yard, entry->d_name))
			pool_disk_discard(yard->pool, SNAPSHOT_DISKS, entry->d_name, NULL);
	if (dir)
		closedir(dir);
}

int snapshots_load(struct yard *yard, struct err *err)
{
	if (store_snapshot_each(yard->store, load, yard, err) < 0)
		return err_wrap(err, "read the snapshots");
	return 0;
}

void snapshots_sweep(struct yard *yard)
{
	put_in_order(yard);
	checkpoints_each(yard->checkpoints, sweep_state, yard);
	sweep_disks(yard);
}

void snapshots_close(struct yard *yard)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_UNAVAILABLE, "the daemon is going down");
	while (yard->snapshot_wishes) {
		struct wish *wish = yard->snapshot_wishes;

		yard->snapshot_wishes = wish->next;
		answer(wish, &err);
	}
	for (struct packing *packing = yard->packings, *next; packing; packing = next) {
		safe_done done = packing->done;
		void *arg = packing->arg;

		next = packing->next;
		checkpoints_forget(yard->checkpoints, packing);
		packing_free(packing);
		if (done)
			done(&err, arg);
	}
	while (yard->snapshot_count)
		unlist(yard, yard->snapshots[yard->snapshot_count - 1]);
	free(yard->snapshots);
	yard->snapshots = NULL;
}
