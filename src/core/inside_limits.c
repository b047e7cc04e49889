/* inside_limits.c - how deep, how many, how often; see inside.h
 *
 * Whatever a box may do is asked of all boxes it descends from as well: the limits of the first one bound the whole
 * tree below it, however its members share the work. */
#include "core/inside_internal.h"
#include "base/clock.h"
#include "base/log.h"

enum {
	DEPTH_MAX = 64, /* of origins that are followed */
	LIMIT_MAX = 1000000,
	MINUTE_US = 60 * 1000000,
};

/* ---- what was set ---------------------------------------------------------------------------------- */

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

/* ---- who descends from whom ------------------------------------------------------------------------ */

static struct box *origin_of(const struct box *box)
{
	return *box->row.origin_box ? box_find(box->yard, box->row.origin_box, NULL) : NULL;
}

bool inside_is_below(const struct box *box, const struct box *ancestor)
{
	for (int i = 0; i < DEPTH_MAX && box; i++) {
		box = origin_of(box);
		if (box == ancestor)
			return true;
	}
	return false;
}

/* One pass is enough: boxes are listed oldest first, and a fork is younger than its origin. */
json_t *inside_below(const struct box *box)
{
	struct yard *yard = box->yard;
	json_t *below = json_object();

	for (size_t i = 0; i < yard->box_count; i++) {
		const struct box_row *row = &yard->boxes[i]->row;

		if (!yard->boxes[i]->gone && *row->origin_box &&
			(!strcmp(row->origin_box, box->row.id) ||
				json_object_get(below, row->origin_box)))
			json_object_set_new(below, row->id, json_true());
	}
	return below;
}

static uint64_t count_below(const struct box *box)
{
	_cleanup_json_ json_t *below = inside_below(box);

	return json_object_size(below);
}

/* ---- may it? --------------------------------------------------------------------------------------- */

const struct box *inside_forbidden_by(const struct box *box)
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

int inside_check_fork(struct box *box, unsigned count, struct err *err)
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

static void refill(struct inside *inside, uint64_t rate)
{
	int64_t now = clock_mono_us(), most = (int64_t)rate * 1000;
	int64_t passed = MIN(now - inside->refill_us, (int64_t)MINUTE_US);

	inside->tokens += passed * most / MINUTE_US;
	if (inside->tokens > most || !inside->refill_us)
		inside->tokens = most;
	inside->refill_us = now;
}

int inside_charge(struct box *box, struct err *err)
{
	int depth = 0;

	for (struct box *at = box; at && depth < DEPTH_MAX; at = origin_of(at), depth++) {
		uint64_t rate = box_inside_limits(at).rate;

		refill(box_inside(at), rate);
		if (at->inside->tokens < 1000)
			return refuse(box, at, "rate", rate,
				"too many forks, snapshots and rollbacks a minute", err);
	}
	depth = 0;
	for (struct box *at = box; at && depth < DEPTH_MAX; at = origin_of(at), depth++)
		at->inside->tokens -= 1000;
	return 0;
}
