/* rollback_ahead.c - starts the target of a rollback beside the frozen present
 *
 *   present frozen ─► target started with its own cgroups and disk ─► it runs, on the network of
 *   the box ─► it has its identity: committed ─► disks swap names, the present is killed
 *
 * Until the commit the row describes the present, with the intent "rollback": after a crash the
 * next daemon lets the present go on (recover.c) and removes what there is of the target. When the
 * target does not come up, the present goes on with its processes, links and, unless the network
 * had been handed over, its connections.
 *
 * The cgroups of both need different names: instances of a box use its id and its id with "b"
 * appended, in turn. */
#include "core/time/rollback_internal.h"
#include "core/boxnet/network_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	ROOM_LEFT = 64 << 20, /* memory of the machine left for everybody else */
	KILL_AGAIN_MS = 5000,
	KILLS_MAX = 3,
};

bool box_has_mounts(const struct box *box)
{
	return (*box->row.volumes && strcmp(box->row.volumes, "[]")) ||
	       (*box->row.mounts && strcmp(box->row.mounts, "[]"));
}

struct look {
	struct engine *engine;
	bool held, locks;
};

static void on_plain(int dir, const struct err *err, void *arg)
{
	struct look *look = arg;

	if (err)
		return;
	look->held = true;
	look->locks = engine_look_at_state(look->engine, dir).locks;
	close(dir);
}

/* Whether the processes hold file locks; if that is unknown, yes. */
static bool has_locks(struct rolling *rolling)
{
	struct checkpoints *checkpoints = rolling->yard->checkpoints;
	struct look look = { .locks = true };

	if (!rolling->from || !checkpoints_exists(checkpoints, rolling->from) ||
		box_engine(rolling->box, &look.engine, NULL) < 0)
		return true;
	/* The state was just written, so the callback comes at once. */
	checkpoints_plain(checkpoints, rolling->from, on_plain, &look);
	checkpoints_forget(checkpoints, &look);
	if (look.held)
		checkpoints_release(checkpoints, rolling->from);
	return look.locks;
}

/* The limits of the tree apply to both instances together. */
static bool fits_tree(struct box *box, uint64_t bytes, uint64_t processes)
{
	struct instance_spec spec;
	struct instance_stats stats;

	box_instance_spec(box, NULL, &spec);
	if ((!spec.tree_limits.memory_bytes && !spec.tree_limits.pids) ||
		groups_tree_stats(box->yard->groups, spec.tree, &stats, NULL) < 0)
		return true;
	return (!spec.tree_limits.memory_bytes ||
		       stats.memory_bytes + bytes < spec.tree_limits.memory_bytes) &&
	       (!spec.tree_limits.pids || stats.threads + processes < spec.tree_limits.pids);
}

bool box_fits_twice(struct box *box, uint64_t bytes, uint64_t processes)
{
	return fits_tree(box, bytes, processes) &&
	       bytes + ROOM_LEFT < checkpoints_memory_available();
}

/* Both instances are in memory for a moment. And both see volumes and folders of the host, where
 * only one can hold a lock. */
bool ahead_is_possible(struct rolling *rolling)
{
	const struct snapshot *target = snapshot_by_id(rolling->yard, rolling->wanted);

	if (!rolling->box->instance)
		return true;
	if (box_has_mounts(rolling->box) && has_locks(rolling))
		return false;
	return !target || rolling->disk_only ||
	       box_fits_twice(rolling->box, (uint64_t)target->row.plain_bytes,
		       (uint64_t)target->row.processes);
}

const char *ahead_disk(struct operation *op)
{
	const struct rolling *rolling = (struct rolling *)op;

	return rolling->ahead ? rolling->disk : NULL;
}

/* ---- the present ---------------------------------------------------------------------------- */

static void discard_past(struct rolling *rolling)
{
	_cleanup_free_ char *past = xasprintf(PAST_DISK_PREFIX "%s", rolling->box->row.id);

	pool_disk_discard(rolling->yard->pool, BOX_DISKS, past, NULL);
}

static void present_is_gone(struct rolling *rolling)
{
	instance_free(steal_ptr(&rolling->present));
	if (!rolling->committed)
		return;
	discard_past(rolling);
	if (rolling->came_up)
		rolling_finish(rolling, NULL);
}

/* The present has ended: killed by us, or by somebody else before, which does not affect the
 * target. */
static void on_present_ended(
	struct instance *instance, enum instance_end end, const char *detail, void *arg)
{
	(void)instance;
	(void)end;
	(void)detail;
	present_is_gone(arg);
}

/* The instance id that the target does not use. */
static char *other_id(const struct box *box)
{
	return xasprintf("%s%s", box->row.id, box->second ? "" : SECOND_SUFFIX);
}

static const struct instance_ops present_ops = { .on_ended = on_present_ended };

static void put_aside(struct rolling *rolling)
{
	struct box *box = rolling->box;

	rolling->ahead = true;
	rolling->present = steal_ptr(&box->instance);
	rolling->link = steal_ptr(&box->link);
	rolling->link_ready = box->link_ready;
	box->link_ready = false;
	box->second = !box->second;
	if (rolling->present)
		instance_hand_over(rolling->present, &present_ops, rolling);
}

static void put_back(struct rolling *rolling)
{
	struct box *box = rolling->box;

	restore_done(box);
	box_disconnect(box);
	if (rolling->switched)
		network_detach(box);
	instance_free(steal_ptr(&box->instance));
	if (box->timer)
		loop_timer_stop(box->timer);
	box->second = !box->second;
	box->instance = steal_ptr(&rolling->present);
	if (box->instance)
		instance_hand_over(box->instance, &box_instance_ops, box);
	box->link = steal_ptr(&rolling->link);
	box->link_ready = rolling->link_ready;
	rolling->ahead = false;
}

bool ahead_lost_link(struct operation *op, struct link *link)
{
	struct rolling *rolling = (struct rolling *)op;

	if (!link || rolling->link != link)
		return false;
	rolling->link = NULL;
	return true;
}

/* ---- the target ----------------------------------------------------------------------------- */

static int launch(struct rolling *rolling, struct err *err)
{
	struct box *box = rolling->box;
	struct pool *pool = rolling->yard->pool;
	const struct snapshot *target = snapshot_by_id(rolling->yard, rolling->wanted);

	if (!target)
		return err_set(err, ERR_NOT_FOUND, "the snapshot was removed meanwhile");
	if (!pool_disk_exists(pool, BOX_DISKS, rolling->disk))
		return err_set(err, ERR_NOT_FOUND, "the copy of the snapshot's disk is gone");
	if (box->row.disk_bytes && pool_has_quota(pool) &&
		pool_disk_limit(pool, BOX_DISKS, rolling->disk, box->row.disk_bytes, err) < 0)
		return -1;
	if (!strcmp(target->row.kind, "full") && !rolling->disk_only)
		box_restore_from(box, rolling->wanted, RESTORE_ROLLBACK);
	else
		restore_done(box);
	return box_launch(box, err);
}

void ahead_begin(struct rolling *rolling)
{
	struct box *box = rolling->box;
	struct err err = ERR_INIT;

	put_aside(rolling);
	box_set_state(box, BOX_STARTING, INTENT_ROLLBACK);
	if (launch(rolling, &err) < 0)
		box_launch_failed(box, &err);
}

void ahead_ready(struct operation *op, struct box *box)
{
	struct rolling *rolling = (struct rolling *)op;

	if (!rolling->ahead || rolling->switched)
		return;
	rolling->switched = true;
	network_detach(box);
}

/* ---- success -------------------------------------------------------------------------------- */

static int change_disks(struct rolling *rolling, struct err *err)
{
	struct pool *pool = rolling->yard->pool;
	const char *id = rolling->box->row.id;
	_cleanup_free_ char *past = xasprintf(PAST_DISK_PREFIX "%s", id);
	bool had = pool_disk_exists(pool, BOX_DISKS, id);

	pool_disk_discard(pool, BOX_DISKS, past, NULL);
	if (had && pool_disk_rename(pool, BOX_DISKS, id, past, err) < 0)
		return -1;
	if (pool_disk_rename(pool, BOX_DISKS, rolling->disk, id, err) == 0)
		return 0;
	if (had)
		pool_disk_rename(pool, BOX_DISKS, past, id, NULL);
	return -1;
}

/* The box is the target already, so the wait for the end of the present is limited. */
static void kill_present(void *arg)
{
	struct rolling *rolling = arg;
	struct box *box = rolling->box;
	_cleanup_free_ char *id = NULL;
	struct err err = ERR_INIT;

	if (rolling->kills++ < KILLS_MAX) {
		instance_kill(rolling->present, NULL); /* on_present_ended follows */
		loop_timer_start(rolling->patience, KILL_AGAIN_MS);
		return;
	}
	id = other_id(box);
	instance_free(steal_ptr(&rolling->present));
	if (drivers_sweep(rolling->yard->drivers, id, &err) < 0)
		log_error("what a box was before a rollback does not end",
			kv_str("box", box->row.id), kv_err(&err));
	present_is_gone(rolling);
}

static void end_present(struct rolling *rolling)
{
	struct err err = ERR_INIT;

	if (rolling->link) {
		err_set(&err, ERR_STATE, "box '%s' went back in time meanwhile",
			rolling->box->row.name);
		err_hint(&err, "what it was doing is kept in the snapshot of before, unless that "
			       "was not wanted");
		link_fail(rolling->link, &err); /* ahead_lost_link follows */
	}
	if (!rolling->present) {
		discard_past(rolling);
		return;
	}
	rolling->patience = loop_timer_new(rolling->yard->loop, kill_present, rolling);
	kill_present(rolling);
}

/* Stores the row first: after a crash from here on the next daemon goes to the target again. */
bool ahead_commit(struct operation *op, struct box *box)
{
	struct rolling *rolling = (struct rolling *)op;
	_cleanup_free_ char *slept_in = NULL, *position = NULL;
	struct box_row before = box->row;
	struct err err = ERR_INIT;

	if (!rolling->ahead)
		return true;
	slept_in = xstrdup(box->row.state_id);
	position = xstrdup(box->row.position);
	box_set_target(box, BOX_STARTING, rolling->wanted);
	text_replace(&box->row.state_id, "");
	text_replace(&box->row.position, rolling->wanted);
	box_keep_mark(box);
	box_save(box, STORE_SAFE);
	if (change_disks(rolling, &err) < 0) {
		text_replace(&box->row.state_id, slept_in);
		text_replace(&box->row.position, position);
		box->row.pid = before.pid;
		box->row.start_time = before.start_time;
		box_set_state(box, BOX_STARTING, INTENT_ROLLBACK);
		box_save(box, STORE_SAFE);
		box->restore.problem = err;
		box_kill(box); /* ahead_failed follows */
		return false;
	}
	if (box_limit_disk(box, box->row.disk_bytes, &err) < 0)
		log_warn(
			"the disk of a box has no limit", kv_str("box", box->row.id), kv_err(&err));
	rolling->ahead = false;
	rolling->committed = true;
	/* Otherwise the state belongs to the snapshot. */
	if (*slept_in && !rolling->adopted)
		checkpoints_discard(rolling->yard->checkpoints, slept_in, NULL);
	end_present(rolling);
	return true;
}

/* ---- failure -------------------------------------------------------------------------------- */

/* Gives the network back to the present. */
static void take_network_back(struct box *box)
{
	if (!box->instance || !box->net)
		return;
	box_disconnect(box);
	if (box->net->leaving)
		box->net->waited_for = true;
	else
		box_open_up(box);
}

/* The removal of the box was asked for meanwhile. */
static bool remove_present(struct rolling *rolling, const struct err *why)
{
	struct box *box = rolling->box;

	if (!box->instance) {
		rolling_finish(rolling, why);
		return false;
	}
	box_set_state(box, BOX_REMOVING, box_removal_intent(box));
	box_save(box, STORE_KEPT);
	rolling_finish(rolling, why);
	box_kill(box); /* box_ended continues the removal */
	return true;
}

bool ahead_failed(struct rolling *rolling, const struct err *why)
{
	struct box *box = rolling->box;
	struct err err = *why;
	bool switched = rolling->switched;

	put_back(rolling);
	if (box->remove_wanted)
		return remove_present(rolling, &err);
	log_warn("a rollback failed; the box goes on as it was", kv_str("box", box->row.id),
		kv_err(why));
	err_wrap(&err, "it is as it was before");
	box_set_state(box, BOX_ROLLING_BACK, INTENT_ROLLBACK);
	rolling_give_up(rolling, &err);
	if (switched)
		take_network_back(box);
	return true;
}

void ahead_cancel(struct rolling *rolling, const struct err *why)
{
	struct box *box = rolling->box;
	_cleanup_free_ char *other = NULL;

	if (rolling->ahead) {
		if (box->instance)
			instance_kill(box->instance, NULL);
		put_back(rolling);
		box_set_state(box, BOX_ROLLING_BACK, INTENT_ROLLBACK);
		rolling_give_up(rolling, why);
		return;
	}
	/* Only the end of the present is missing. */
	other = other_id(box);
	instance_free(steal_ptr(&rolling->present));
	if (!rolling->yard->closing)
		drivers_sweep(rolling->yard->drivers, other, NULL);
	discard_past(rolling);
	rolling->box = NULL;
	rolling_finish(rolling, why);
}
