/* lineage.c - how deep, how many, how often; see lineage.h
 *
 * Whatever a box may do is asked of all boxes it descends from as well: the limits of the first one
 * bound the whole tree below it, however its members share the work. Where one of them goes, what
 * it bounded is not free: a promoted box takes its place, else its forks divide what it had
 * left. */
#include "core/lineage.h"
#include "core/tree_internal.h"
#include "base/clock.h"
#include "base/log.h"

enum {
	DEPTH_MAX = 64, /* of origins that are followed */
	LIMIT_MAX = 1000000,
	MINUTE_US = 60 * 1000000,
};

/* ---- what was set --------------------------------------------------------------------------- */

struct inside_limits box_inside_limits(const struct box *box)
{
	const struct conf *conf = box->yard->conf;
	const char *text = box->row.fork_limits;
	_cleanup_json_ json_t *own = *text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
	struct inside_limits limits = {
		.off = json_is_false(own),
		.depth = conf->inside_fork_depth,
		.count = conf->inside_fork_count,
		.rate = conf->inside_fork_rate,
	};
	const struct {
		const char *key;
		uint64_t *value;
	} fields[] = {
		{ "depth", &limits.depth },
		{ "count", &limits.count },
		{ "rate", &limits.rate },
	};

	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		json_t *value = json_object_get(own, fields[i].key);

		if (json_is_integer(value))
			*fields[i].value = (uint64_t)json_integer_value(value);
	}
	return limits;
}

json_t *box_inside_json(const struct box *box)
{
	struct inside_limits limits = box_inside_limits(box);

	return json_pack("{s:b,s:I,s:I,s:I}", "enabled", !limits.off, "depth",
		(json_int_t)limits.depth, "count", (json_int_t)limits.count, "rate",
		(json_int_t)limits.rate);
}

int inside_limits_read(json_t *given, char **ret_text, struct err *err)
{
	static const char *const names[] = { "depth", "count", "rate" };
	json_int_t values[ARRAY_LEN(names)] = { -1, -1, -1 };
	const struct json_key keys[] = {
		{ names[0], JSON_WANT_INT, &values[0], false },
		{ names[1], JSON_WANT_INT, &values[1], false },
		{ names[2], JSON_WANT_INT, &values[2], false },
	};
	_cleanup_json_ json_t *kept = json_object();

	if (!given || json_is_null(given) || json_is_boolean(given)) {
		*ret_text = xstrdup(json_is_false(given) ? "false" : "");
		return 0;
	}
	if (!json_is_object(given))
		return err_set(err, ERR_INVALID, "'inside' must be an object, true or false");
	if (json_read(given, keys, ARRAY_LEN(keys), err) < 0)
		return err_wrap(err, "inside");
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (values[i] > LIMIT_MAX)
			return err_set(err, ERR_INVALID, "inside: '%s' is at most %d", names[i],
				LIMIT_MAX);
		if (values[i] >= 0)
			json_object_set_new(kept, names[i], json_integer(values[i]));
	}
	*ret_text = json_object_size(kept) ? json_text(kept) : xstrdup("");
	return 0;
}

int box_set_inside(struct box *box, json_t *given, struct err *err)
{
	char *text = NULL, *old = box->row.fork_limits;

	if (inside_limits_read(given, &text, err) < 0)
		return -1;
	box->row.fork_limits = text;
	if (store_box_update(box->yard->store, &box->row, STORE_SAFE, err) < 0) {
		box->row.fork_limits = old;
		free(text);
		return err_wrap(err, "record the limits of '%s'", box->row.name);
	}
	free(old);
	yard_event(
		box->yard, "box.changed", box, json_pack("{s:o}", "inside", box_inside_json(box)));
	return 0;
}

/* ---- who descends from whom ----------------------------------------------------------------- */

static struct box *origin_of(const struct box *box)
{
	return *box->row.origin_box ? box_find(box->yard, box->row.origin_box, NULL) : NULL;
}

bool lineage_is_below(const struct box *box, const struct box *ancestor)
{
	for (int i = 0; i < DEPTH_MAX && box; i++) {
		box = origin_of(box);
		if (box == ancestor)
			return true;
	}
	return false;
}

static bool is_child(const struct box *box, const struct box *parent)
{
	return !box_is_gone(box) && !strcmp(box->row.origin_box, parent->row.id);
}

/* Boxes are listed oldest first, and a fork is younger than its origin; unless that was promoted,
 * and has older ones below it. So it is looked again until nothing is new. */
json_t *lineage_below(const struct box *box)
{
	struct yard *yard = box->yard;
	json_t *below = json_object();
	size_t before;

	do {
		before = json_object_size(below);
		for (size_t i = 0; i < yard->box_count; i++) {
			const struct box *other = yard->boxes[i];

			if (is_child(other, box) ||
				(!box_is_gone(other) &&
					json_object_get(below, other->row.origin_box)))
				json_object_set_new(below, other->row.id, json_true());
		}
	} while (json_object_size(below) > before);
	return below;
}

static uint64_t count_below(const struct box *box)
{
	_cleanup_json_ json_t *below = lineage_below(box);

	return json_object_size(below);
}

/* ---- who descends from whom changes --------------------------------------------------------- */

/* How many forks of forks it and all it descends from leave it. */
static uint64_t depth_left(const struct box *box)
{
	uint64_t left = LIMIT_MAX;

	for (uint64_t i = 0; box && i < DEPTH_MAX; box = origin_of(box), i++) {
		uint64_t depth = box_inside_limits(box).depth;

		left = MIN(left, depth > i ? depth - i : 0);
	}
	return left;
}

/* The text of its limits within most: what it has that is stricter stays. Yours. */
static char *tightened(const struct box *box, const struct inside_limits *most)
{
	struct inside_limits own = box_inside_limits(box);
	const char *text = box->row.fork_limits;
	_cleanup_json_ json_t *kept = *text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;

	if (own.off)
		return xstrdup(text);
	if (most->off)
		return xstrdup("false");
	if (!json_is_object(kept)) {
		json_decref(kept);
		kept = json_object();
	}
	if (most->depth < own.depth)
		json_object_set_new(kept, "depth", json_integer((json_int_t)most->depth));
	if (most->count < own.count)
		json_object_set_new(kept, "count", json_integer((json_int_t)most->count));
	if (most->rate < own.rate)
		json_object_set_new(kept, "rate", json_integer((json_int_t)most->rate));
	return json_object_size(kept) ? json_text(kept) : xstrdup("");
}

static void tighten(struct box *box, const struct inside_limits *most)
{
	_cleanup_free_ char *now = tightened(box, most);

	text_replace(&box->row.fork_limits, now);
}

char *lineage_promoted_limits(const struct box *parent, const struct box *child)
{
	struct inside_limits most = box_inside_limits(parent);

	return tightened(child, &most);
}

int lineage_store_promotion(const struct box *parent, const struct box *child, struct err *err)
{
	struct yard *yard = child->yard;

	for (size_t i = 0; i < yard->box_count; i++) {
		struct box_row after = yard->boxes[i]->row;

		if (yard->boxes[i] == child || !is_child(yard->boxes[i], parent))
			continue;
		after.origin_box = child->row.id;
		if (store_box_update(yard->store, &after, STORE_KEPT, err) < 0)
			return -1;
	}
	return 0;
}

void lineage_promoted(const struct box *parent, const struct box *child)
{
	struct yard *yard = child->yard;

	for (size_t i = 0; i < yard->box_count; i++)
		if (yard->boxes[i] != child && is_child(yard->boxes[i], parent))
			text_replace(&yard->boxes[i]->row.origin_box, child->row.id);
}

static size_t count_children(const struct box *box)
{
	size_t count = 0;

	for (size_t i = 0; i < box->yard->box_count; i++)
		count += is_child(box->yard->boxes[i], box);
	return count;
}

/* What a fork has when its parent is gone: the depth that was left, and its share of what the
 * parent still might have. One made from outside is another box of whoever made it, and keeps its
 * own. */
static struct inside_limits inherited(
	const struct box *child, const struct box *parent, size_t children)
{
	struct inside_limits of = box_inside_limits(parent), most = box_inside_limits(child);
	uint64_t below = count_below(parent), shares = MAX(children, (size_t)1);

	most.off = lineage_forbidden_by(child) != NULL;
	if (child->row.generation > parent->row.generation) {
		most.depth = depth_left(child);
		most.count =
			count_below(child) + (of.count > below ? of.count - below : 0) / shares;
		most.rate = MAX(of.rate / shares, MIN(of.rate, (uint64_t)1));
	}
	return most;
}

void lineage_box_removed(struct box *box)
{
	struct yard *yard = box->yard;
	size_t children = count_children(box);
	const struct box *origin = origin_of(box);
	struct inside_limits *most = xnewn(struct inside_limits, children + 1);
	size_t at = 0;

	/* All are measured before any is changed. */
	for (size_t i = 0; i < yard->box_count; i++)
		if (is_child(yard->boxes[i], box))
			most[at++] = inherited(yard->boxes[i], box, children);
	at = 0;
	for (size_t i = 0; i < yard->box_count && at < children; i++) {
		struct box *child = yard->boxes[i];

		if (!is_child(child, box))
			continue;
		tighten(child, &most[at++]);
		if (origin) {
			text_replace(&child->row.origin_box, origin->row.id);
			text_replace(&child->row.origin_snapshot, box->row.origin_snapshot);
			text_replace(&child->row.origin_position, box->row.origin_position);
		}
		box_save(child, STORE_KEPT);
	}
	free(most);
	tree_box_removed(box);
}

/* ---- what a box may know ------------------------------------------------------------------- */

json_t *lineage_below_json(const struct box *box)
{
	struct yard *yard = box->yard;
	_cleanup_json_ json_t *below = lineage_below(box);
	json_t *list = json_array();

	for (size_t i = 0; i < yard->box_count; i++) {
		const struct box *child = yard->boxes[i];

		if (!json_object_get(below, child->row.id))
			continue;
		json_array_append_new(
			list, json_pack("{s:s,s:s,s:s,s:b}", "id", child->row.id, "name",
				      child->row.name, "state", box_state_name(child->state),
				      "direct", !strcmp(child->row.origin_box, box->row.id)));
	}
	return list;
}

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

json_t *lineage_self_json(const struct box *box)
{
	const struct box_row *row = &box->row;
	const struct box *parent = box_find(box->yard, row->origin_box, NULL);
	struct limits all = tree_limits(box->tree);
	json_t *info = json_pack(
		"{s:s,s:s,s:s,s:s,s:s,s:s,s:{s:I,s:I,s:I,s:I},s:o,s:I,s:o,s:o,s:o}", "id", row->id,
		"name", row->name, "state", box_state_name(box->state), "image", row->image_name,
		"driver", row->driver, "profile", row->profile, "limits", "cpu_milli",
		(json_int_t)row->cpu_milli, "memory", (json_int_t)row->memory_bytes, "disk",
		(json_int_t)row->disk_bytes, "pids", (json_int_t)row->pids, "parent",
		text_or_null(parent ? parent->row.name : ""), "generation",
		(json_int_t)row->generation, "position", text_or_null(row->position), "inside",
		box_inside_json(box), "children", lineage_below_json(box));

	/* What it and all that came out of one box with it may use together. */
	if (box->tree->recorded)
		json_object_set_new(info, "tree",
			json_pack("{s:I,s:I,s:I,s:I}", "boxes",
				(json_int_t)tree_count(box->tree, box->yard), "cpu_milli",
				(json_int_t)all.cpu_milli, "memory", (json_int_t)all.memory_bytes,
				"pids", (json_int_t)all.pids));
	return info;
}

/* ---- may it? -------------------------------------------------------------------------------- */

const struct box *lineage_forbidden_by(const struct box *box)
{
	int depth = 0;

	for (; box && depth < DEPTH_MAX; box = origin_of(box), depth++)
		if (box_inside_limits(box).off)
			return box;
	return NULL;
}

static int refuse(const struct box *asking, const struct box *limited, const char *key,
	uint64_t limit, const char *what, struct err *err)
{
	const char *whose = asking == limited ? "this box" : limited->row.name;

	err_set(err, ERR_LIMIT, "%s: %s may have %llu", what, whose, (unsigned long long)limit);
	return err_hint(err,
		"from outside, 'box set %s --inside %s=N' or inside_fork_%s in boxyard.conf "
		"raises it",
		limited->row.name, key, key);
}

int lineage_check_fork(struct box *box, unsigned count, struct err *err)
{
	uint64_t depth = 1;

	for (struct box *at = box; at && depth <= DEPTH_MAX; at = origin_of(at), depth++) {
		struct inside_limits limits = box_inside_limits(at);
		uint64_t below = count_below(at);

		if (depth > limits.depth)
			return refuse(
				box, at, "depth", limits.depth, "too many forks of forks", err);
		if (below + count > limits.count)
			return refuse(
				box, at, "count", limits.count, "too many forks at once", err);
	}
	return 0;
}

static void refill(struct fork_rate *of, uint64_t rate)
{
	int64_t now = clock_mono_us(), most = (int64_t)rate * 1000;
	int64_t passed = MIN(now - of->refill_us, (int64_t)MINUTE_US);

	of->tokens += passed * most / MINUTE_US;
	if (of->tokens > most || !of->refill_us)
		of->tokens = most;
	of->refill_us = now;
}

int lineage_charge(struct box *box, unsigned count, struct err *err)
{
	int64_t price = (int64_t)count * 1000;
	int depth = 0;

	for (struct box *at = box; at && depth < DEPTH_MAX; at = origin_of(at), depth++) {
		uint64_t rate = box_inside_limits(at).rate;

		refill(&at->fork_rate, rate);
		if (at->fork_rate.tokens < price)
			return refuse(box, at, "rate", rate,
				"too many forks, snapshots and rollbacks a minute", err);
	}
	depth = 0;
	for (struct box *at = box; at && depth < DEPTH_MAX; at = origin_of(at), depth++)
		at->fork_rate.tokens -= price;
	return 0;
}
