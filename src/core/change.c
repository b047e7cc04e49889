/* change.c - changes of a living box: suspend and resume, limits, name */
#include "core/core_internal.h"
#include "core/limit.h"
#include "core/boxnet/network_internal.h"
#include "core/tree_internal.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include "pool/pool.h"

/* ---- suspend, resume ------------------------------------------------------------------------ */

/* While CRIU works, its code inside the processes must run: only capture.c freezes or thaws then,
 * and applies the state of the box when it is done. */
static int freeze(struct box *box, bool frozen, struct err *err)
{
	return box->capturing ? 0 : instance_freeze(box->instance, frozen, err);
}

/* A box at a limit is frozen without waiting for programs that are inside a system call: they may
 * be stuck there because of the limit. */
static int freeze_for(struct box *box, const char *reason, struct err *err)
{
	if (!text_has_prefix(reason, "limit.") || box->capturing)
		return freeze(box, true, err);
	return instance_pause(box->instance, err);
}

/* wanted: the state the box would have to be in. */
static int refuse_state(const struct box *box, const char *wanted, struct err *err)
{
	bool paused = box_is_paused(box);

	err_set(err, ERR_STATE, "box '%s' is %s, not %s", box->row.name, box_state_name(box->state),
		wanted);
	if (box->state == BOX_HIBERNATED || box->state == BOX_STOPPED)
		err_hint(
			err, "'box %s %s' makes it run", paused ? "resume" : "wake", box->row.name);
	return -1;
}

int box_suspend(struct box *box, const char *reason, struct err *err)
{
	if (box->state == BOX_SUSPENDED)
		return 0;
	if (box->state != BOX_RUNNING) {
		if (box_is_busy(box))
			return box_refuse_busy(box, err);
		return refuse_state(box, "running", err);
	}
	if (freeze_for(box, reason, err) < 0)
		return err_wrap(err, "suspend '%s'", box->row.name);
	if (box->timer)
		loop_timer_stop(box->timer);
	text_replace(&box->row.asleep_for,
		text_has_prefix(reason, "limit.") || !strcmp(reason, "idle") ? reason : "request");
	box_set_state(box, BOX_SUSPENDED, INTENT_NONE);
	network_asleep(box);
	idle_asleep(box);
	box_save(box, STORE_KEPT);
	yard_event(box->yard, "box.suspended", box, json_pack("{s:s}", "reason", reason));
	return 0;
}

int box_resume_for(struct box *box, const char *reason, struct err *err)
{
	if (box->state == BOX_RUNNING)
		return 0;
	if (box->state != BOX_SUSPENDED)
		return refuse_state(box, "suspended", err);
	if (box_is_paused(box))
		limit_resumed(box);
	if (freeze(box, false, err) < 0)
		return err_wrap(err, "resume '%s'", box->row.name);
	box_set_state(box, BOX_RUNNING, INTENT_NONE);
	network_asleep(box);
	idle_awake(box);
	box_reconnect(box);
	box_save(box, STORE_KEPT);
	yard_event(box->yard, "box.resumed", box, json_pack("{s:s}", "reason", reason));
	return 0;
}

int box_resume(struct box *box, struct err *err)
{
	return box_resume_for(box, "request", err);
}

/* ---- sleep settings ------------------------------------------------------------------------- */

static void keep_or_set(json_t *kept, const char *key, int64_t ms)
{
	if (ms == BOX_SLEEP_DEFAULT)
		json_object_del(kept, key);
	else if (ms != BOX_SLEEP_LEAVE)
		json_object_set_new(kept, key, json_integer(ms));
}

char *box_sleep_text(const char *before, const struct box_sleep *sleep)
{
	json_t *kept = *before ? json_loads(before, 0, NULL) : NULL;
	char *text;

	if (!json_is_object(kept)) {
		json_decref(kept);
		kept = json_object();
	}
	if (sleep) {
		keep_or_set(kept, "suspend_ms", sleep->suspend_ms);
		keep_or_set(kept, "hibernate_ms", sleep->hibernate_ms);
	}
	text = json_object_size(kept) ? json_text(kept) : xstrdup("");
	json_decref(kept);
	return text;
}

int box_set_sleep(struct box *box, const struct box_sleep *sleep, struct err *err)
{
	char *before = box->row.sleep;

	if (box_is_busy(box))
		return box_refuse_busy(box, err);
	box->row.sleep = box_sleep_text(before, sleep);
	if (store_box_update(box->yard->store, &box->row, STORE_SAFE, err) < 0) {
		free(box->row.sleep);
		box->row.sleep = before;
		return err_wrap(err, "record when '%s' is put to sleep", box->row.name);
	}
	free(before);
	idle_settings_changed(box);
	yard_event(box->yard, "box.changed", box,
		json_pack("{s:I,s:I}", "suspend_ms", (json_int_t)box->idle.suspend_ms,
			"hibernate_ms", (json_int_t)box->idle.hibernate_ms));
	return 0;
}

/* ---- limits and name ------------------------------------------------------------------------ */

static void change_limit(uint64_t *limit, uint64_t wanted)
{
	if (wanted != BOX_LIMIT_DEFAULT)
		*limit = wanted;
}

static int apply_limits(struct box *box, const struct limits *limits, struct err *err)
{
	struct limits bound = tree_bound(box, limits);

	if (box_check_shrink(box, limits->disk_bytes, err) < 0)
		return -1;
	if (limits->disk_bytes != box->row.disk_bytes &&
		box_limit_disk(box, limits->disk_bytes, err) < 0)
		return err_wrap(err, "set the disk limit");
	if (box->instance && instance_set_limits(box->instance, &bound, err) < 0) {
		box_limit_disk(box, box->row.disk_bytes, NULL);
		return -1;
	}
	return 0;
}

static void keep_limits(struct box_row *row, const struct limits *limits)
{
	row->cpu_milli = limits->cpu_milli;
	row->memory_bytes = limits->memory_bytes;
	row->disk_bytes = limits->disk_bytes;
	row->pids = limits->pids;
}

/* A tree follows the limits of its head. The CPU limit of a tree must never be below that of a box
 * in it, not even between two steps. */
static int apply_with_tree(
	struct box *box, const struct limits *limits, const struct limits *wanted, struct err *err)
{
	struct limits before = tree_limits(box->tree), after = tree_followed(box, wanted), between;
	bool changes = box->tree->recorded && tree_is_head(box);

	between = after;
	if (!before.cpu_milli || (after.cpu_milli && before.cpu_milli > after.cpu_milli))
		between.cpu_milli = before.cpu_milli;
	if (changes && tree_apply(box->yard, box->tree, &between, err) < 0)
		return -1;
	if (apply_limits(box, limits, err) < 0) {
		if (changes)
			tree_apply(box->yard, box->tree, &before, NULL);
		return -1;
	}
	keep_limits(&box->row, limits);
	if (!changes)
		return 0;
	if (tree_apply(box->yard, box->tree, &after, err) < 0)
		return -1;
	return tree_record(box->yard, box->tree, STORE_KEPT, err);
}

int box_set(struct box *box, const struct limits *limits, const enum on_limit *on_limit,
	struct err *err)
{
	struct box_row *row = &box->row;
	struct limits whole = { row->cpu_milli, row->memory_bytes, row->disk_bytes, row->pids };

	if (box_is_busy(box))
		return box_refuse_busy(box, err);
	change_limit(&whole.cpu_milli, limits->cpu_milli);
	change_limit(&whole.memory_bytes, limits->memory_bytes);
	change_limit(&whole.disk_bytes, limits->disk_bytes);
	change_limit(&whole.pids, limits->pids);
	if (tree_check_own(box, limits, err) < 0)
		return -1;
	if (limits_check(&whole, err) < 0 || apply_with_tree(box, &whole, limits, err) < 0)
		return err_wrap(err, "box '%s'", row->name);
	if (on_limit)
		text_replace(&row->on_limit, on_limit_name(*on_limit));
	if (limits->disk_bytes != BOX_LIMIT_DEFAULT)
		box->limits.disk_full = false;
	limit_arm(box);
	if (store_box_update(box->yard->store, row, STORE_SAFE, err) < 0)
		return err_wrap(err, "record the limits of '%s'", row->name);
	yard_event(box->yard, "box.changed", box,
		json_pack("{s:I,s:I,s:I,s:I,s:s}", "cpu_milli", (json_int_t)row->cpu_milli,
			"memory", (json_int_t)row->memory_bytes, "disk",
			(json_int_t)row->disk_bytes, "pids", (json_int_t)row->pids, "on_limit",
			row->on_limit));
	return 0;
}

void box_renamed(struct box *box, const char *old)
{
	const char *name = box->row.name;
	struct err err = ERR_INIT;

	if (box->instance) {
		if (instance_set_hostname(box->instance, name, &err) < 0)
			log_warn("the hostname stays as it was", kv_str("box", box->row.id),
				kv_err(&err));
		box_tell_name(box);
	}
	network_renamed(box);
	yard_event(box->yard, "box.renamed", box, json_pack("{s:s,s:s}", "from", old, "to", name));
}

int box_rename(struct box *box, const char *name, struct err *err)
{
	_cleanup_free_ char *old = xstrdup(box->row.name);

	if (name_check("box name", name, err) < 0)
		return -1;
	if (box_lookup(box->yard, name) == box)
		return 0;
	if (box_refuse_taken(box->yard, name, err) < 0)
		return -1;
	if (box_is_busy(box))
		return box_refuse_busy(box, err);
	text_replace(&box->row.name, name);
	if (store_box_update(box->yard->store, &box->row, STORE_SAFE, err) < 0) {
		text_replace(&box->row.name, old);
		return err_wrap(err, "rename '%s'", old);
	}
	box_renamed(box, old);
	return 0;
}
