/* snapshot.c - the time line of a box: making, keeping, listing and deleting snapshots
 *
 * A snapshot is a row, a copy of the disk in the pool (snapshots/ID), and for a full one a state
 * (states/ID). The row comes first, as "making"; after a crash such snapshots are removed. Once
 * captured it is "ready" and can be used. Packing follows in the background: it makes the state
 * safe and takes it out of the machine's dirty memory. */
#include "core/core_internal.h"
#include "core/time/snapshot_internal.h"
#include "core/time/timeline.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"
#include <dirent.h>

enum { PLAIN_KEPT = 4 }; /* unpacked states kept beside the packed ones, for fast rollbacks */

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

void snapshot_unlist(struct yard *yard, struct snapshot *snapshot)
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

bool snapshot_is_of(const struct snapshot *snapshot, const struct box *box)
{
	return !strcmp(snapshot->row.box, box->row.id);
}

struct snapshot *snapshot_find(struct box *box, const char *which, struct err *err)
{
	for (size_t i = box->yard->snapshot_count; i-- > 0;) {
		struct snapshot *snapshot = box->yard->snapshots[i];

		if (snapshot_is_of(snapshot, box) && !strcmp(snapshot->row.status, "ready") &&
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

void snapshot_write(struct yard *yard, struct snapshot *snapshot, enum store_grade grade)
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
			snapshot_write(yard, yard->snapshots[i], STORE_SAFE);
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
	snapshot_write(yard, snapshot, STORE_KEPT);
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
		snapshot_write(yard, snapshot, STORE_SAFE);
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

		if (!snapshot_is_of(snapshot, box) || strcmp(snapshot->row.status, "ready"))
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
			snapshot_is_slept_in(yard, snapshot->row.id)) {
			(snapshot_is_slept_in(yard, snapshot->row.id)
					? snapshot_forget_state
					: snapshot_discard)(yard, snapshot);
			continue;
		}
		/* The state was only in memory when the daemon died. */
		if (full && !checkpoints_exists(yard->checkpoints, snapshot->row.id)) {
			log_warn("only the disk of a snapshot is left",
				kv_str("snapshot", snapshot->row.id));
			text_replace(&snapshot->row.kind, "disk");
			snapshot->row.plain_bytes = 0;
			snapshot->safe = true;
			snapshot_write(yard, snapshot, STORE_KEPT);
		}
		snapshot_pack(yard, snapshot);
	}
}

static bool state_is_needed(const struct yard *yard, const char *id)
{
	return snapshot_is_slept_in(yard, id) || snapshot_by_id((struct yard *)yard, id);
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

	err_set(&err, ERR_UNAVAILABLE, "the daemon is shutting down");
	snapshot_wishes_end(yard, &err);
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
		snapshot_unlist(yard, yard->snapshots[yard->snapshot_count - 1]);
	free(yard->snapshots);
	yard->snapshots = NULL;
}
