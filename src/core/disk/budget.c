/* budget.c - disk space that a tree of boxes uses, against one limit
 *
 * --disk of the first box of a tree (tree.h) limits everything the tree keeps because its boxes
 * wrote it or asked for it: their disks, the disks from before rollbacks, snapshots, and the
 * captured memory (states) of snapshots asked for from inside. The kernel counts the first three
 * (pool_budget_limit) and refuses writes. States lie outside the pool, where no quota counts; so
 * their size is subtracted from the limit that the kernel gets, and a state that does not fit is
 * not made.
 *
 * What somebody outside asked for (snapshots by hand, 'box auto', hibernation) does not count: its
 * states are shown in `box df` and bounded by what the host keeps free. */
#include "core/core_internal.h"
#include "core/disk/upper.h"
#include "core/tree.h"
#include "base/log.h"
#include "base/text.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"

#define GUARD_SLACK (UINT64_C(64) << 20)

/* ---- the tree ------------------------------------------------------------------------------- */

struct box *budget_get_first(const struct box *box)
{
	struct yard *yard = box->yard;
	struct box *first = box_find(yard, box_get_tree(box), NULL);

	if (first && box_is_akin(first, box))
		return first;
	for (size_t i = 0; i < yard->box_count; i++)
		if (!box_is_gone(yard->boxes[i]) && box_is_akin(yard->boxes[i], box))
			return yard->boxes[i];
	return (struct box *)box;
}

static struct box *owner_of(const struct yard *yard, const struct snapshot *snapshot)
{
	for (size_t i = 0; i < yard->box_count; i++)
		if (!strcmp(yard->boxes[i]->row.id, snapshot->row.box))
			return yard->boxes[i];
	return NULL;
}

static bool is_of_tree(const struct snapshot *snapshot, const struct box *box)
{
	const struct box *owner = owner_of(box->yard, snapshot);

	return owner && box_is_akin(owner, box);
}

/* ---- states --------------------------------------------------------------------------------- */

/* An unpacked state beside a packed one is a cache, and not counted. */
static uint64_t state_bytes(const struct snapshot *snapshot)
{
	if (strcmp(snapshot->row.kind, "full"))
		return 0;
	return snapshot->safe ? snapshot->row.stored_bytes : snapshot->row.plain_bytes;
}

static uint64_t inside_states(const struct box *box)
{
	struct yard *yard = box->yard;
	uint64_t sum = 0;

	for (size_t i = 0; i < yard->snapshot_count; i++)
		if (snapshot_is_from_inside(yard->snapshots[i]) &&
			is_of_tree(yard->snapshots[i], box))
			sum += state_bytes(yard->snapshots[i]);
	return sum;
}

/* States of its time line, and the one it is hibernated in. */
uint64_t box_states_bytes(struct box *box)
{
	struct yard *yard = box->yard;
	uint64_t sum = 0, plain = 0, packed = 0;

	for (size_t i = 0; i < yard->snapshot_count; i++)
		if (!strcmp(yard->snapshots[i]->row.box, box->row.id))
			sum += state_bytes(yard->snapshots[i]);
	if (*box->row.state_id && !snapshot_by_id(yard, box->row.state_id))
		checkpoints_sizes(yard->checkpoints, box->row.state_id, &plain, &packed);
	return sum + (packed ? packed : plain);
}

/* What is left of a limit; 0 means unlimited. */
static uint64_t less(uint64_t limit, uint64_t used)
{
	return limit ? limit - MIN(limit, used) : UINT64_MAX;
}

/* ---- limits --------------------------------------------------------------------------------- */

/* At least 1: 0 would mean unlimited. */
static uint64_t left_for_disks(uint64_t limit, uint64_t states)
{
	return limit ? MAX(limit - MIN(limit, states), UINT64_C(1)) : 0;
}

/* ---- disks of boxes with a kernel of their own ---------------------------------------------- */

/* Such a box sees a disk of its limit's size, and its own kernel says when that is full. The limit
 * of the subvolume is a guard that should never be met: meeting it pauses the box. Copies of the
 * disk keep what the box overwrites, and that stays charged to the box: so after each copy the
 * guard is set anew, as if the box were to write its whole disk once more. For the same reason the
 * tree has no limit in the kernel; what is asked for from inside is checked in budget_make_room. */

static uint64_t size_seen(uint64_t limit)
{
	return limit ? limit : ENGINE_DISK_DEFAULT;
}

uint64_t box_disk_guard(struct box *box, uint64_t bytes)
{
	uint64_t size = size_seen(bytes), used = 0, limit;

	if (!box_has_own_kernel(box))
		return bytes;
	pool_usage(box->yard->pool, BOX_DISKS, box->row.id, &used, &limit, NULL);
	return used + size + size / 20 + GUARD_SLACK;
}

void budget_disk_copied(struct box *box)
{
	struct err err = ERR_INIT;

	if (box_has_own_kernel(box) && box_limit_disk(box, box->row.disk_bytes, &err) < 0)
		log_warn("the limit of a disk is not raised", kv_str("box", box->row.id),
			kv_err(&err));
}

int box_check_shrink(struct box *box, uint64_t bytes, struct err *err)
{
	char now[16];

	if (!box_has_own_kernel(box) || size_seen(bytes) >= size_seen(box->row.disk_bytes))
		return 0;
	err_set(err, ERR_INVALID,
		"the disk of box '%s' has %s and can only grow: its file system is the box's own",
		box->row.name, format_size(size_seen(box->row.disk_bytes), now));
	return err_hint(err, "'box save' and 'box new --disk SIZE' make a box with a smaller one");
}

static int limit_tree(struct box *box, uint64_t bytes, struct err *err)
{
	if (box_has_own_kernel(box))
		return pool_budget_limit(box->yard->pool, BOX_DISKS, box->row.id, 0, err);
	return pool_budget_limit(box->yard->pool, BOX_DISKS, box->row.id,
		left_for_disks(bytes, inside_states(box)), err);
}

int box_limit_disk(struct box *box, uint64_t bytes, struct err *err)
{
	struct pool *pool = box->yard->pool;

	if (!pool_has_quota(pool))
		return 0;
	if (pool_disk_limit(pool, BOX_DISKS, box->row.id, box_disk_guard(box, bytes), err) < 0)
		return -1;
	return budget_get_first(box) == box ? limit_tree(box, bytes, err) : 0;
}

void budget_states_changed(struct yard *yard, const char *id)
{
	struct box *box = *id ? box_find(yard, id, NULL) : NULL, *first;
	struct err err = ERR_INIT;

	if (!box || !pool_has_quota(yard->pool) || !box_has_disk(box))
		return;
	first = budget_get_first(box);
	if (first->row.disk_bytes && limit_tree(box, first->row.disk_bytes, &err) < 0)
		log_warn("what a tree of boxes keeps is not counted anew",
			kv_str("box", box->row.id), kv_err(&err));
}

bool budget_nearest(const struct pool_figures *figures, uint64_t *ret_used, uint64_t *ret_limit)
{
	bool tree = figures->budget_limit &&
		    (!figures->limit || less(figures->budget_limit, figures->budget_used) <
						less(figures->limit, figures->used));

	*ret_used = tree ? figures->budget_used : figures->used;
	*ret_limit = tree ? figures->budget_limit : figures->limit;
	return tree;
}

int box_disk_nearest(struct box *box, uint64_t *ret_used, uint64_t *ret_limit, bool *ret_tree)
{
	struct pool *pool = box->yard->pool;
	struct pool_figures now;

	if (pool_usage(pool, BOX_DISKS, box->row.id, &now.used, &now.limit, NULL) < 0 ||
		pool_budget_usage(pool, BOX_DISKS, box->row.id, &now.budget_used, &now.budget_limit,
			NULL) < 0)
		return -1;
	*ret_tree = budget_nearest(&now, ret_used, ret_limit);
	return 0;
}

/* ---- room ----------------------------------------------------------------------------------- */

static bool may_go(const struct yard *yard, const struct snapshot *snapshot)
{
	const struct box *owner = owner_of(yard, snapshot);

	return !*snapshot->row.name && !strcmp(snapshot->row.status, "ready") &&
	       !snapshot->packing && !snapshot->users && owner &&
	       !(owner->operation && box_is_busy(owner)) &&
	       strcmp(owner->row.position, snapshot->row.id) != 0;
}

/* Snapshots are listed in the order they were made. */
static struct snapshot *oldest_from_inside(const struct box *box)
{
	struct yard *yard = box->yard;

	for (size_t i = 0; i < yard->snapshot_count; i++) {
		struct snapshot *snapshot = yard->snapshots[i];

		if (snapshot_is_from_inside(snapshot) && state_bytes(snapshot) &&
			is_of_tree(snapshot, box) && may_go(yard, snapshot))
			return snapshot;
	}
	return NULL;
}

static int refuse(
	const struct box *first, uint64_t disks, uint64_t states, uint64_t need, struct err *err)
{
	char text[4][16];

	err_set(err, ERR_LIMIT,
		"this would keep %s more; of %s allowed, disks and snapshots take %s and captured "
		"memory %s",
		format_size(need, text[0]), format_size(first->row.disk_bytes, text[1]),
		format_size(disks, text[2]), format_size(states, text[3]));
	return err_hint(err,
		"--disk-only keeps no memory; from outside, 'box forget %s SNAPSHOT' makes room "
		"and 'box set %s --disk SIZE' allows more",
		first->row.name, first->row.name);
}

int budget_make_room(struct box *box, uint64_t need, struct err *err)
{
	struct yard *yard = box->yard;
	const struct box *first = budget_get_first(box);
	uint64_t limit = first->row.disk_bytes, disks, unused, states;
	struct snapshot *oldest;

	if (!limit || !need ||
		pool_budget_usage(yard->pool, BOX_DISKS, box->row.id, &disks, &unused, NULL) < 0)
		return 0;
	while ((states = inside_states(box)) + disks + need > limit) {
		oldest = disks + need <= limit ? oldest_from_inside(box) : NULL;
		if (!oldest)
			return refuse(first, disks, states, need, err);
		log_info("a snapshot from inside makes room for a newer one",
			kv_str("box", oldest->row.box), kv_str("snapshot", oldest->row.id));
		snapshot_discard(yard, oldest);
	}
	return 0;
}

/* The newest stays: it is the way back from the last change. */
void budget_pressed(struct box *box)
{
	struct yard *yard = box->yard;
	struct snapshot *oldest = NULL;
	size_t count = 0;

	for (size_t i = 0; i < yard->snapshot_count; i++) {
		struct snapshot *snapshot = yard->snapshots[i];

		if (!(snapshot_is_automatic(snapshot) || snapshot_is_from_inside(snapshot)) ||
			!is_of_tree(snapshot, box) || !may_go(yard, snapshot))
			continue;
		if (!oldest)
			oldest = snapshot;
		count++;
	}
	if (count < 2)
		return;
	log_info("removing an automatic snapshot: the disk is nearly full",
		kv_str("box", oldest->row.box), kv_str("snapshot", oldest->row.id));
	snapshot_discard(yard, oldest);
}

/* ---- information ---------------------------------------------------------------------------- */

/* What the box may still write by its own and its tree's limit; UINT64_MAX: neither has one. */
static uint64_t left_of(const struct box *box, uint64_t states)
{
	return MIN(less(box->row.disk_bytes, box->limits.disk_used),
		less(budget_get_first(box)->row.disk_bytes, box->limits.tree_used + states));
}

json_t *box_disk_json(struct box *box)
{
	bool counted = pool_has_quota(box->yard->pool);
	uint64_t states = inside_states(box), left = left_of(box, states);

	return json_pack("{s:o,s:I,s:o,s:I,s:I,s:o}", "used_bytes",
		counted ? json_integer((json_int_t)box->limits.disk_used) : json_null(),
		"limit_bytes", (json_int_t)box->row.disk_bytes, "tree_bytes",
		counted ? json_integer((json_int_t)box->limits.tree_used) : json_null(),
		"states_bytes", (json_int_t)box_states_bytes(box), "inside_states_bytes",
		(json_int_t)states, "free_bytes",
		counted && left < UINT64_MAX ? json_integer((json_int_t)left) : json_null());
}
