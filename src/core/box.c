/* box.c - a box as the daemon holds it: its row, its place in the list, its JSON */
#include "core/core_internal.h"
#include "core/limit.h"
#include "core/boxnet/meters.h"
#include "core/boxnet/network_internal.h"
#include "core/output_internal.h"
#include "core/tree_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "image/image.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include <assert.h>

static const char *const state_names[] = {
	[BOX_CREATING] = "creating",
	[BOX_STARTING] = "starting",
	[BOX_RUNNING] = "running",
	[BOX_SUSPENDED] = "suspended",
	[BOX_HIBERNATING] = "hibernating",
	[BOX_HIBERNATED] = "hibernated",
	[BOX_ROLLING_BACK] = "rolling-back",
	[BOX_STOPPING] = "stopping",
	[BOX_STOPPED] = "stopped",
	[BOX_REMOVING] = "removing",
};
static_assert(ARRAY_LEN(state_names) == BOX_STATE_COUNT, "every state has a name");

static const char *const on_limit_names[] = {
	[ON_LIMIT_NOTIFY] = "notify",
	[ON_LIMIT_PAUSE] = "pause",
	[ON_LIMIT_STOP] = "stop",
};
static_assert(ARRAY_LEN(on_limit_names) == ON_LIMIT_COUNT, "every policy has a name");

const char *on_limit_name(enum on_limit policy)
{
	return on_limit_names[policy];
}

int on_limit_from_name(const char *name, enum on_limit *ret, struct err *err)
{
	for (unsigned i = 0; i < ON_LIMIT_COUNT; i++)
		if (!strcmp(on_limit_names[i], name)) {
			*ret = i;
			return 0;
		}
	return err_set(err, ERR_INVALID, "on_limit is notify, pause or stop, not '%.40s'", name);
}

const char *box_state_name(enum box_state state)
{
	return state_names[state];
}

static enum box_state state_from_name(const char *name)
{
	for (unsigned i = 0; i < BOX_STATE_COUNT; i++)
		if (!strcmp(state_names[i], name))
			return i;
	return BOX_STOPPED;
}

struct box *box_new(struct yard *yard, const struct box_row *row)
{
	struct box *box = xnew(struct box);

	box->yard = yard;
	box->row = *row;
	box->state = state_from_name(row->state);
	box->intent = intent_from_name(row->intent);
	box_list(box);
	return box;
}

void box_list(struct box *box)
{
	struct yard *yard = box->yard;

	xgrow(yard->boxes, yard->box_count + 1);
	yard->boxes[yard->box_count++] = box;
	box_join_tree(box);
}

/* Cancels everything that waits for the box to reach a state it can no longer reach. */
static void end_states(struct box *box)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_STATE, "box '%s' was removed meanwhile", box->row.name);
	box_capture_cancel(box, &err);
	operation_cancel(box, &err);
	restore_done(box);
}

void box_free(struct box *box)
{
	struct yard *yard = box->yard;

	for (size_t i = 0; i < yard->box_count; i++)
		if (yard->boxes[i] == box) {
			memmove(&yard->boxes[i], &yard->boxes[i + 1],
				(yard->box_count - i - 1) * sizeof yard->boxes[0]);
			yard->box_count--;
			break;
		}
	seed_cancel(box);
	image_file_leave(box);
	free(box->waits_for);
	end_states(box);
	output_forget(box);
	identity_drop(box);
	asks_free(box);
	wake_done(box);
	idle_done(box);
	box_disconnect(box);
	network_free(box);
	instance_free(box->instance);
	loop_timer_free(box->timer);
	loop_timer_free(box->command_timer);
	box_leave_tree(box);
	box_forget_exec(box, NULL);
	box_row_done(&box->row);
	free(box);
}

void box_set_state(struct box *box, enum box_state state, enum intent intent)
{
	/* The timer of a running box reconnects it; in another state it would end the box. */
	if (box->state == BOX_RUNNING && state != BOX_RUNNING && box->timer)
		loop_timer_stop(box->timer);
	box->state = state;
	box->intent = intent;
	text_replace(&box->row.intent, intent_name(intent));
	text_replace(&box->row.target, "");
	text_replace(&box->row.state, state_names[state]);
	if (state == BOX_RUNNING || state == BOX_STOPPED) {
		text_replace(&box->row.asleep_for, "");
		box->row.wake_us = 0;
	}
}

void box_set_target(struct box *box, enum box_state state, const char *target)
{
	box_set_state(box, state, INTENT_ROLLBACK_TO);
	text_replace(&box->row.target, target);
}

bool box_is_gone(const struct box *box)
{
	return box->intent == INTENT_GONE;
}

void box_save(struct box *box, enum store_grade grade)
{
	struct err err = ERR_INIT;

	box->unsaved = store_box_update(box->yard->store, &box->row, grade, &err) < 0;
	if (box->unsaved)
		log_error("cannot record the state of a box; it is tried again",
			kv_str("box", box->row.id), kv_err(&err));
}

void boxes_save_again(struct yard *yard)
{
	for (size_t i = 0; i < yard->box_count; i++)
		if (yard->boxes[i]->unsaved)
			box_save(yard->boxes[i], STORE_SAFE);
}

bool box_is_busy(const struct box *box)
{
	return box->state != BOX_RUNNING && box->state != BOX_STOPPED &&
	       box->state != BOX_SUSPENDED && box->state != BOX_HIBERNATED;
}

int box_engine(const struct box *box, struct engine **ret, struct err *err)
{
	return drivers_find(box->yard->drivers, box->row.driver, ret, err);
}

bool box_has_disk(const struct box *box)
{
	return pool_disk_exists(box->yard->pool, BOX_DISKS, box->row.id);
}

void text_replace(char **slot, const char *text)
{
	char *copy = xstrdup(text); /* the text may be the one in the slot */

	free(*slot);
	*slot = copy;
}

const struct image *box_image(const struct box *box)
{
	return images_get(box->yard->images, box->row.image, NULL);
}

struct box *box_lookup(struct yard *yard, const char *id_or_name)
{
	for (size_t i = 0; i < yard->box_count; i++)
		if (!box_is_gone(yard->boxes[i]) &&
			(!strcmp(yard->boxes[i]->row.name, id_or_name) ||
				!strcmp(yard->boxes[i]->row.id, id_or_name)))
			return yard->boxes[i];
	return NULL;
}

struct box *box_find(struct yard *yard, const char *id_or_name, struct err *err)
{
	struct box *box = box_lookup(yard, id_or_name);

	if (box && yard_may_see_box(yard, box))
		return box;
	err_set(err, ERR_NOT_FOUND, "no box '%.80s'", id_or_name);
	err_hint(err, "'box ls' lists them");
	return NULL;
}

void box_each(struct yard *yard, bool (*fn)(struct box *box, void *arg), void *arg)
{
	for (size_t i = 0; i < yard->box_count; i++)
		if (!box_is_gone(yard->boxes[i]) && yard_may_see_box(yard, yard->boxes[i]) &&
			!fn(yard->boxes[i], arg))
			return;
}

const char *box_get_id(const struct box *box)
{
	return box->row.id;
}

const char *box_get_owner(const struct box *box)
{
	return box->row.owner;
}

bool box_name_is_taken(struct yard *yard, const char *name)
{
	return box_lookup(yard, name) != NULL;
}

const char *box_get_name(const struct box *box)
{
	return box->row.name;
}

enum box_state box_get_state(const struct box *box)
{
	return box->state;
}

struct yard *box_get_yard(const struct box *box)
{
	return box->yard;
}

/* Most boxes have none of most settings: an empty text is not parsed. */
static json_t *stored_json(const char *text, json_t *otherwise)
{
	bool empty = !*text || !strcmp(text, "[]") || !strcmp(text, "{}");
	json_t *value = empty ? NULL : json_loads(text, 0, NULL);

	if (!value)
		return otherwise;
	json_decref(otherwise);
	return value;
}

bool box_has_label(const struct box *box, const char *key_value)
{
	_cleanup_json_ json_t *labels = stored_json(box->row.labels, json_object());
	const char *equals = strchr(key_value, '=');
	_cleanup_free_ char *key =
		equals ? xstrndup(key_value, (size_t)(equals - key_value)) : xstrdup(key_value);
	const char *value = json_string_value(json_object_get(labels, key));

	return value && (!equals || !strcmp(value, equals + 1));
}

static json_t *time_json(int64_t wall_us)
{
	char text[CLOCK_RFC3339_MAX];

	return wall_us ? json_string(clock_rfc3339(wall_us, text)) : json_null();
}

static json_t *limits_json(const struct box_row *row)
{
	json_t *cpu = row->cpu_milli % 1000 ? json_real((double)row->cpu_milli / 1000.0)
					    : json_integer((json_int_t)(row->cpu_milli / 1000));

	return json_pack("{s:o,s:I,s:I,s:I}", "cpu", cpu, "memory", (json_int_t)row->memory_bytes,
		"disk", (json_int_t)row->disk_bytes, "pids", (json_int_t)row->pids);
}

/* Settings that the box was promised and does not get; they are always shown. */
static json_t *warnings_json(const struct box *box)
{
	json_t *warnings = json_array();

	if (box->row.disk_bytes && !pool_has_quota(box->yard->pool))
		json_array_append_new(
			warnings, json_string("the disk limit is recorded but not enforced: the "
					      "pool has no quota here, see 'box doctor'"));
	return warnings;
}

static json_t *ports_json(const struct box *box)
{
	const struct image *image = box_image(box);
	json_t *ports = image ? json_object_get(image->config, "ports") : NULL;

	return ports ? json_incref(ports) : json_array();
}

/* The snapshot or box that the box was forked from, or null. */
static json_t *origin_json(const struct box_row *row)
{
	if (!*row->origin_box)
		return json_null();
	return json_pack("{s:s,s:o,s:o}", "box", row->origin_box, "snapshot",
		*row->origin_snapshot ? json_string(row->origin_snapshot) : json_null(), "position",
		*row->origin_position ? json_string(row->origin_position) : json_null());
}

/* What runs the kernel of the box, or null: it has none of its own. */
static json_t *accelerator_json(const struct box *box)
{
	struct engine *engine;
	const char *name = NULL;

	if (drivers_find(box->yard->drivers, box->row.driver, &engine, NULL) == 0)
		name = engine_get_accelerator(engine);
	return name ? json_string(name) : json_null();
}

json_t *box_json(const struct box *box)
{
	const struct box_row *row = &box->row;
	json_t *json = json_object();

	json_object_set_new(json, "id", json_string(row->id));
	json_object_set_new(json, "name", json_string(row->name));
	json_object_set_new(json, "owner", json_string(row->owner));
	json_object_set_new(json, "state", json_string(state_names[box->state]));
	json_object_set_new(
		json, "waits_for", box->waits_for ? json_string(box->waits_for) : json_null());
	json_object_set_new(json, "image", json_string(row->image_name));
	json_object_set_new(json, "image_id", json_string(row->image));
	json_object_set_new(json, "driver", json_string(row->driver));
	json_object_set_new(json, "accelerator", accelerator_json(box));
	json_object_set_new(json, "profile", json_string(row->profile));
	json_object_set_new(json, "limits", limits_json(row));
	json_object_set_new(json, "env", stored_json(row->env, json_object()));
	json_object_set_new(json, "labels", stored_json(row->labels, json_object()));
	json_object_set_new(json, "command", stored_json(row->command, json_null()));
	json_object_set_new(json, "remove_on_exit", json_boolean(row->remove_on_exit));
	json_object_set_new(json, "held", json_boolean(row->held));
	json_object_set_new(json, "main", stored_json(row->main, json_null()));
	json_object_set_new(json, "on_limit", json_string(row->on_limit));
	json_object_set_new(json, "inside", box_inside_json(box));
	json_object_set_new(json, "tree", box_tree_json(box));
	json_object_set_new(json, "volumes", stored_json(row->volumes, json_array()));
	json_object_set_new(json, "mounts", stored_json(row->mounts, json_array()));
	json_object_set_new(json, "ports", ports_json(box));
	json_object_set_new(json, "disk", box_disk_json((struct box *)box));
	json_object_set_new(json, "created_at", time_json(row->created_us));
	json_object_set_new(json, "started_at", time_json(row->started_us));
	json_object_set_new(json, "ended_at", time_json(row->ended_us));
	json_object_set_new(json, "end",
		json_pack("{s:s,s:s}", "reason", row->end_reason, "detail", row->end_detail));
	json_object_set_new(
		json, "reachable", json_boolean(box->state == BOX_RUNNING && box->link_ready));
	json_object_set_new(json, "auto_snapshot",
		json_string(*row->auto_snapshot ? row->auto_snapshot : "off"));
	json_object_set_new(json, "origin", origin_json(row));
	json_object_set_new(
		json, "position", *row->position ? json_string(row->position) : json_null());
	json_object_set_new(json, "asleep_for", box_asleep_for_json(box));
	json_object_set_new(json, "limit_reached",
		box_limit_reached(box) ? json_string(box_limit_reached(box)) : json_null());
	json_object_set_new(json, "idle", idle_json(box));
	json_object_set_new(json, "warnings", warnings_json(box));
	return json;
}

void box_refresh(struct box *box)
{
	uint64_t used, limit;

	if (!pool_has_quota(box->yard->pool))
		return;
	if (pool_usage(box->yard->pool, BOX_DISKS, box->row.id, &used, &limit, NULL) == 0)
		box->limits.disk_used = used;
	if (pool_budget_usage(box->yard->pool, BOX_DISKS, box->row.id, &used, &limit, NULL) == 0)
		box->limits.tree_used = used;
}

/* Figures of all boxes of the box's tree together; NULL when the box is alone in it. */
static json_t *tree_stats_json(const struct box *box)
{
	struct limits limits = tree_limits(box->tree);
	size_t count = box->tree->users > 1 ? tree_count(box->tree, box->yard) : 1;
	const struct box *head;
	struct instance_stats stats;

	if (count < 2 || groups_tree_stats(box->yard->groups, box_get_tree(box), &stats, NULL) < 0)
		return NULL;
	head = tree_get_head(box->tree, box->yard);
	return json_pack("{s:s,s:s?,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "id", box_get_tree(box),
		"head", head ? head->row.name : NULL, "boxes", (json_int_t)count, "cpu_us",
		(json_int_t)stats.cpu_us, "cpu_limit_milli", (json_int_t)limits.cpu_milli,
		"throttled_us", (json_int_t)stats.throttled_us, "memory_bytes",
		(json_int_t)stats.memory_bytes, "memory_limit_bytes",
		(json_int_t)limits.memory_bytes, "processes", (json_int_t)stats.processes,
		"threads", (json_int_t)stats.threads, "processes_limit", (json_int_t)limits.pids);
}

json_t *box_stats_json(struct box *box, struct err *err)
{
	struct instance_stats stats = { 0 };
	json_t *json, *tree;

	if ((box->state != BOX_RUNNING && box->state != BOX_SUSPENDED) || !box->instance) {
		err_set(err, ERR_STATE, "box '%s' is %s", box->row.name, state_names[box->state]);
		err_hint(err, "'box start %s' starts it", box->row.name);
		return NULL;
	}
	if (instance_stats(box->instance, &stats, err) < 0)
		return NULL;
	json = json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "box",
		box->row.id, "name", box->row.name, "cpu_us", (json_int_t)stats.cpu_us,
		"throttled_us", (json_int_t)stats.throttled_us, "memory_bytes",
		(json_int_t)stats.memory_bytes, "memory_peak_bytes",
		(json_int_t)stats.memory_peak_bytes, "memory_limit_bytes",
		(json_int_t)box->row.memory_bytes, "processes", (json_int_t)stats.processes,
		"threads", (json_int_t)stats.threads, "processes_limit", (json_int_t)box->row.pids,
		"oom_kills", (json_int_t)MAX(stats.oom_kills, box->limits.oom_kills),
		"pids_refused", (json_int_t)stats.pids_refused, "disk_bytes",
		(json_int_t)box->limits.disk_used, "disk_limit_bytes",
		(json_int_t)box->row.disk_bytes, "uptime_us",
		(json_int_t)(clock_wall_us() - box->row.started_us));
	if (box->net)
		json_object_set_new(json, "network", meters_totals_json(box->net->meters));
	tree = tree_stats_json(box);
	if (tree)
		json_object_set_new(json, "tree", tree);
	return json;
}
