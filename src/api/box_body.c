/* box_body.c - the description of a box, and of a change to one
 *
 * Types, names and bounds are checked here, all of them before anything happens; whether an image, a volume or a
 * folder is there is core's to say. */
#include "api/api_internal.h"
#include "base/text.h"

enum {
	MEMORY_MIN = 4 * 1024 * 1024,
	DISK_MIN = 1024 * 1024,
	PIDS_MAX = 4 * 1024 * 1024,
};

static const struct limits limits_unset = { BOX_LIMIT_DEFAULT, BOX_LIMIT_DEFAULT, BOX_LIMIT_DEFAULT,
	BOX_LIMIT_DEFAULT };

/* Figures come as numbers or as text, which json_read does not know; they are taken out before it looks. */
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
		return err_set(err, ERR_INVALID, "'pids' is at most %d, or 0 for none", PIDS_MAX);
	if (pids >= 0)
		ret->pids = (uint64_t)pids;
	return 0;
}

/* An empty list is an entrypoint too: none. */
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
	ret->spec.volumes = json_is_array(ret->volumes) ? ret->volumes : NULL;
	ret->spec.mounts = json_is_array(ret->mounts) ? ret->mounts : NULL;
	return 0;
}

int box_body_read(json_t *body, struct box_body *ret, struct err *err)
{
	struct box_spec *spec = &ret->spec;
	const char *on_limit = NULL;
	json_int_t pids = -1;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &spec->name, false },
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
		{ "remove_on_exit", JSON_WANT_BOOL, &spec->remove_on_exit, false },
	};

	*ret = (struct box_body){ .spec.limits = limits_unset };
	if (take_figures(body, &spec->limits, err) < 0 || take_attached(body, ret, err) < 0 ||
		json_read(body, keys, ARRAY_LEN(keys), err) < 0 ||
		set_pids(pids, &spec->limits, err) < 0)
		return -1;
	if (spec->name && name_check("name", spec->name, err) < 0)
		return -1;
	if (spec->image && strlen(spec->image) > IMAGE_NAME_MAX)
		return err_set(err, ERR_INVALID, "'image' is longer than %d bytes", IMAGE_NAME_MAX);
	if (on_limit && on_limit_from_name(on_limit, &spec->on_limit, err) < 0)
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
	*body = (struct box_body){ 0 };
}

int box_change_read(json_t *body, struct box_change *ret, struct err *err)
{
	const char *on_limit = NULL;
	json_int_t pids = -1;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &ret->name, false },
		{ "pids", JSON_WANT_INT, &pids, false },
		{ "on_limit", JSON_WANT_STRING, &on_limit, false },
	};

	*ret = (struct box_change){ .limits = limits_unset };
	if (take_figures(body, &ret->limits, err) < 0 ||
		json_read(body, keys, ARRAY_LEN(keys), err) < 0 ||
		set_pids(pids, &ret->limits, err) < 0)
		return -1;
	if (ret->name && name_check("name", ret->name, err) < 0)
		return -1;
	if (on_limit && on_limit_from_name(on_limit, &ret->on_limit, err) < 0)
		return -1;
	ret->has_on_limit = on_limit != NULL;
	ret->has_limits = memcmp(&ret->limits, &limits_unset, sizeof limits_unset) != 0;
	if (!ret->name && !ret->has_limits && !ret->has_on_limit)
		return err_set(err, ERR_INVALID,
			"nothing to change: name, cpu, memory, disk, pids or on_limit");
	return 0;
}
