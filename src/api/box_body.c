/* box_body.c - the description of a box, and of a change to one
 *
 * Types, names and bounds are checked here, all of them before anything happens; whether an image,
 * a volume or a folder is there is core's to say. */
#include "api/api_internal.h"
#include "base/text.h"
#include "core/time/auto.h"
#include "core/lineage.h"

enum {
	MEMORY_MIN = 4 * 1024 * 1024,
	DISK_MIN = 1024 * 1024,
	PIDS_MAX = 4 * 1024 * 1024,
};

static const struct limits limits_unset = { BOX_LIMIT_DEFAULT, BOX_LIMIT_DEFAULT, BOX_LIMIT_DEFAULT,
	BOX_LIMIT_DEFAULT };

/* Takes out figures, which may be numbers or text: json_read does not know that. */
static int take_figures(json_t *body, struct limits *ret, struct err *err)
{
	_cleanup_json_ json_t *cpu = input_take(body, "cpu");
	_cleanup_json_ json_t *memory = input_take(body, "memory");
	_cleanup_json_ json_t *disk = input_take(body, "disk");

	if (input_cpu(cpu, &ret->cpu_milli, err) < 0 ||
		input_size("memory", memory, MEMORY_MIN, &ret->memory_bytes, err) < 0)
		return -1;
	return input_size("disk", disk, DISK_MIN, &ret->disk_bytes, err);
}

/* pids is -1 when it was not given. */
static int set_pids(json_int_t pids, struct limits *ret, struct err *err)
{
	if (pids > PIDS_MAX)
		return err_set(
			err, ERR_INVALID, "'pids' is at most %d, or 0 for no limit", PIDS_MAX);
	if (pids >= 0)
		ret->pids = (uint64_t)pids;
	return 0;
}

/* Takes "tree" out of the body: {"cpu","memory","pids"}, or null. */
static int take_tree(
	json_t *body, struct limits *ret, bool *ret_given, bool *ret_null, struct err *err)
{
	_cleanup_json_ json_t *tree = input_take(body, "tree");
	json_int_t pids = -1;
	const struct json_key keys[] = { { "pids", JSON_WANT_INT, &pids, false } };

	*ret = limits_unset;
	*ret_given = json_is_object(tree);
	*ret_null = json_is_null(tree);
	if (!tree || *ret_null)
		return 0;
	if (!*ret_given)
		return err_set(err, ERR_INVALID, "'tree' must be an object, or null");
	if (json_object_get(tree, "disk"))
		return err_set(
			err, ERR_INVALID, "tree: unknown key 'disk': use cpu, memory or pids");
	if (take_figures(tree, ret, err) < 0 || json_read(tree, keys, ARRAY_LEN(keys), err) < 0 ||
		set_pids(pids, ret, err) < 0)
		return err_wrap(err, "tree");
	return 0;
}

/* "30s", "off", "default"; absent: otherwise. */
static int read_sleep(
	const char *what, const char *text, int64_t otherwise, int64_t *ret, struct err *err)
{
	uint64_t ms;

	*ret = otherwise;
	if (!text)
		return 0;
	if (!strcmp(text, "off") || !strcmp(text, "default")) {
		*ret = *text == 'o' ? 0 : BOX_SLEEP_DEFAULT;
		return 0;
	}
	if (parse_duration(what, text, BOX_SLEEP_MIN_MS, BOX_SLEEP_MAX_MS, &ms, err) < 0)
		return err_hint(err, "a duration like 30s or 15m, off, or default");
	*ret = (int64_t)ms;
	return 0;
}

/* Takes "idle" out of the body. *ret_given: it was there. */
static int take_sleep(
	json_t *body, int64_t otherwise, struct box_sleep *ret, bool *ret_given, struct err *err)
{
	_cleanup_json_ json_t *idle = input_take(body, "idle");
	const char *suspend = NULL, *hibernate = NULL;
	const struct json_key keys[] = {
		{ "suspend", JSON_WANT_STRING, &suspend, false },
		{ "hibernate", JSON_WANT_STRING, &hibernate, false },
	};

	*ret_given = idle && !json_is_null(idle);
	if (!*ret_given)
		return 0;
	if (!json_is_object(idle))
		return err_set(err, ERR_INVALID, "'idle' must be an object");
	if (json_read(idle, keys, ARRAY_LEN(keys), err) < 0)
		return err_wrap(err, "idle");
	if (read_sleep("idle.suspend", suspend, otherwise, &ret->suspend_ms, err) < 0)
		return -1;
	return read_sleep("idle.hibernate", hibernate, otherwise, &ret->hibernate_ms, err);
}

/* An empty list is an entrypoint too: it means none. */
static int check_programs(const struct box_spec *spec, struct err *err)
{
	if (spec->command && input_argv("command", spec->command, err) < 0)
		return -1;
	if (json_array_size(spec->entrypoint) == 0)
		return 0;
	return input_argv("entrypoint", spec->entrypoint, err);
}

static int take_attached(json_t *body, struct box_body *ret, struct err *err)
{
	ret->volumes = input_take(body, "volumes");
	ret->mounts = input_take(body, "mounts");
	if (input_volumes(ret->volumes, err) < 0 || input_mounts(ret->mounts, err) < 0)
		return -1;
	ret->policy = input_take(body, "policy");
	if (ret->policy && !json_is_null(ret->policy) && input_policy(ret->policy, err) < 0)
		return -1;
	ret->spec.policy = json_is_null(ret->policy) ? NULL : ret->policy;
	ret->inside = input_take(body, "inside");
	ret->spec.inside = ret->inside;
	ret->spec.volumes = json_is_array(ret->volumes) ? ret->volumes : NULL;
	ret->spec.mounts = json_is_array(ret->mounts) ? ret->mounts : NULL;
	return 0;
}

static int check_auto_snapshot(const char *text, struct err *err)
{
	struct auto_snapshot when;

	return text ? auto_snapshot_parse(text, &when, err) : 0;
}

int box_body_read(json_t *body, struct box_body *ret, struct err *err)
{
	struct box_spec *spec = &ret->spec;
	const char *on_limit = NULL;
	json_int_t pids = -1;
	bool sleeps = false, has_tree = false, ignored;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &spec->name, false },
		{ "owner", JSON_WANT_STRING, &spec->owner, false },
		{ "image", JSON_WANT_STRING, &spec->image, false },
		{ "driver", JSON_WANT_STRING, &spec->driver, false },
		{ "profile", JSON_WANT_STRING, &spec->profile, false },
		{ "pids", JSON_WANT_INT, &pids, false },
		{ "on_limit", JSON_WANT_STRING, &on_limit, false },
		{ "env", JSON_WANT_MAP, &spec->env, false },
		{ "labels", JSON_WANT_MAP, &spec->labels, false },
		{ "command", JSON_WANT_STRINGS, &spec->command, false },
		{ "entrypoint", JSON_WANT_STRINGS, &spec->entrypoint, false },
		{ "no_main", JSON_WANT_BOOL, &spec->no_main, false },
		{ "hold", JSON_WANT_BOOL, &spec->hold, false },
		{ "auto_snapshot", JSON_WANT_STRING, &spec->auto_snapshot, false },
		{ "remove_on_exit", JSON_WANT_BOOL, &spec->remove_on_exit, false },
	};

	*ret = (struct box_body){ .spec.limits = limits_unset };
	if (take_figures(body, &spec->limits, err) < 0 || take_attached(body, ret, err) < 0 ||
		take_sleep(body, BOX_SLEEP_DEFAULT, &ret->sleep, &sleeps, err) < 0 ||
		take_tree(body, &ret->tree, &has_tree, &ignored, err) < 0 ||
		json_read(body, keys, ARRAY_LEN(keys), err) < 0 ||
		set_pids(pids, &spec->limits, err) < 0)
		return -1;
	spec->sleep = sleeps ? &ret->sleep : NULL;
	spec->tree = has_tree ? &ret->tree : NULL;
	if (spec->name && name_check("name", spec->name, err) < 0)
		return -1;
	if (spec->image && strlen(spec->image) > IMAGE_NAME_MAX)
		return err_set(err, ERR_INVALID, "'image' is longer than %d bytes", IMAGE_NAME_MAX);
	if (on_limit && on_limit_from_name(on_limit, &spec->on_limit, err) < 0)
		return -1;
	if (check_auto_snapshot(spec->auto_snapshot, err) < 0)
		return -1;
	if (input_env(spec->env, err) < 0 || input_labels(spec->labels, err) < 0)
		return -1;
	return check_programs(spec, err);
}

void box_body_done(struct box_body *body)
{
	json_decref(body->volumes);
	json_decref(body->mounts);
	json_decref(body->policy);
	json_decref(body->inside);
	*body = (struct box_body){ 0 };
}

/* Checked before anything is changed. */
static int inside_check(json_t *inside, struct err *err)
{
	_cleanup_json_ json_t *copy = json_deep_copy(inside);
	_cleanup_free_ char *text = NULL;

	return inside_limits_read(copy, &text, err);
}

int box_change_read(json_t *body, struct box_change *ret, struct err *err)
{
	const char *on_limit = NULL;
	json_int_t pids = -1;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &ret->name, false },
		{ "pids", JSON_WANT_INT, &pids, false },
		{ "on_limit", JSON_WANT_STRING, &on_limit, false },
		{ "auto_snapshot", JSON_WANT_STRING, &ret->auto_snapshot, false },
	};

	*ret = (struct box_change){ .limits = limits_unset };
	ret->inside = input_take(body, "inside");
	if (take_figures(body, &ret->limits, err) < 0 ||
		take_sleep(body, BOX_SLEEP_LEAVE, &ret->sleep, &ret->has_sleep, err) < 0 ||
		take_tree(body, &ret->tree, &ret->has_tree, &ret->tree_as_head, err) < 0 ||
		json_read(body, keys, ARRAY_LEN(keys), err) < 0 ||
		set_pids(pids, &ret->limits, err) < 0)
		return -1;
	if (ret->name && name_check("name", ret->name, err) < 0)
		return -1;
	if (on_limit && on_limit_from_name(on_limit, &ret->on_limit, err) < 0)
		return -1;
	ret->has_on_limit = on_limit != NULL;
	ret->has_limits = memcmp(&ret->limits, &limits_unset, sizeof limits_unset) != 0;
	if (!ret->name && !ret->has_limits && !ret->has_on_limit && !ret->inside &&
		!ret->auto_snapshot && !ret->has_sleep && !ret->has_tree && !ret->tree_as_head)
		return err_set(err, ERR_INVALID,
			"nothing to change: name, cpu, memory, disk, pids, tree, on_limit, inside, "
			"idle or auto_snapshot");
	if (ret->inside && inside_check(ret->inside, err) < 0)
		return -1;
	return check_auto_snapshot(ret->auto_snapshot, err);
}

void box_change_done(struct box_change *change)
{
	json_decref(change->inside);
	*change = (struct box_change){ 0 };
}
