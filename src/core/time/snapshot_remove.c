/* snapshot_remove.c - snapshots that go: on request, with their box, and as time passes */
#include "core/time/snapshot_internal.h"
#include "core/time/thin.h"
#include "core/time/timeline.h"
#include "base/clock.h"
#include "base/log.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"

/* Whether a box is hibernated in this state: after a crash during a rollback from hibernation, both
 * have it. */
bool snapshot_is_slept_in(const struct yard *yard, const char *state)
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
			snapshot_write(yard, yard->snapshots[i], STORE_KEPT);
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
		snapshot_write(yard, snapshot, STORE_KEPT);
		return;
	}
	if (store_snapshot_delete(yard->store, snapshot->row.id, STORE_KEPT, &err) < 0 ||
		(with_state &&
			checkpoints_discard(yard->checkpoints, snapshot->row.id, &err) < 0) ||
		pool_disk_discard(yard->pool, SNAPSHOT_DISKS, snapshot->row.id, &err) < 0)
		log_warn("parts of a snapshot were not removed",
			kv_str("snapshot", snapshot->row.id), kv_err(&err));
	snapshot_unlist(yard, snapshot);
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
		if (snapshot_is_of(yard->snapshots[i], box))
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

/* Of the unnamed snapshots made from inside, only the last ones are kept. */
static void thin_inside(struct box *box)
{
	struct yard *yard = box->yard;
	size_t newer = 0;

	for (size_t i = yard->snapshot_count; i-- > 0;) {
		struct snapshot *snapshot = yard->snapshots[i];

		if (snapshot_is_of(snapshot, box) && snapshot_is_from_inside(snapshot) &&
			!*snapshot->row.name && ++newer > SNAPSHOTS_INSIDE_MAX &&
			!snapshot->packing && strcmp(snapshot->row.id, box->row.position))
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

		if (!snapshot_is_of(snapshot, box) || strcmp(snapshot->row.status, "ready"))
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
		log_info("removing an automatic snapshot", kv_str("box", box->row.id),
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
