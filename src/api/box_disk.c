/* box_disk.c - the disk of a box: an image of it, what changed on it */
#include "api/api_internal.h"

enum { CONFIG_BYTES_MAX = 256 * 1024 };

/* ---- save ----------------------------------------------------------------------------------- */

/* null means the same as absent. */
static void drop_nulls(json_t *object)
{
	void *next = json_object_iter(object);

	while (next) {
		void *at = next;

		next = json_object_iter_next(object, at);
		if (json_is_null(json_object_iter_value(at)))
			json_object_del(object, json_object_iter_key(at));
	}
}

/* Checks types and size; the meaning is checked where the image is made. */
static int check_config(json_t *config, struct err *err)
{
	const char *text;
	json_t *list;
	const struct json_key keys[] = {
		{ "entrypoint", JSON_WANT_STRINGS, &list, false },
		{ "cmd", JSON_WANT_STRINGS, &list, false },
		{ "env", JSON_WANT_STRINGS, &list, false },
		{ "user", JSON_WANT_STRING, &text, false },
		{ "workdir", JSON_WANT_STRING, &text, false },
		{ "ports", JSON_WANT_STRINGS, &list, false },
		{ "labels", JSON_WANT_MAP, &list, false },
	};

	if (json_read(config, keys, ARRAY_LEN(keys), err) < 0)
		return err_wrap(err, "config");
	drop_nulls(config);
	if (json_dumpb(config, NULL, 0, JSON_COMPACT) > CONFIG_BYTES_MAX)
		return err_set(
			err, ERR_TOO_LARGE, "'config' is larger than %d bytes", CONFIG_BYTES_MAX);
	return 0;
}

static int read_save(json_t *body, struct box_save_spec *ret, bool *ret_full, struct err *err)
{
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &ret->name, false },
		{ "config", JSON_WANT_OBJECT, &ret->config, false },
		{ "cache_key", JSON_WANT_STRING, &ret->cache_key, false },
		{ "full", JSON_WANT_BOOL, ret_full, false },
		{ "learn_hosts", JSON_WANT_BOOL, &ret->learn_hosts, false },
	};

	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0)
		return -1;
	if (ret->name && *ret->name && image_name_check(ret->name, err) < 0)
		return -1;
	if (*ret_full && (ret->config || ret->cache_key || ret->learn_hosts))
		return err_set(err, ERR_INVALID,
			"'full' excludes 'config', 'cache_key' and 'learn_hosts'");
	if (*ret_full && (!ret->name || !*ret->name))
		return err_set(err, ERR_INVALID, "'full' needs a 'name'");
	if (ret->cache_key && input_cache_key(ret->cache_key, err) < 0)
		return -1;
	return ret->config ? check_config(ret->config, err) : 0;
}

static void free_job(struct job *job)
{
	free(job);
}

void api_box_save(struct call *call)
{
	struct box_save_spec spec = { 0 };
	struct box *box = call_box(call);
	struct err err = ERR_INIT;
	struct job *job;
	bool full = false;

	if (!box)
		return;
	if (read_save(call->body, &spec, &full, &err) < 0)
		return call_error(call, &err);
	if (full)
		return api_box_save_full(call, box, spec.name);
	job = xnew(struct job);
	job_init(job, call, "image.saved", false, free_job);
	job->box = xstrdup(box_get_id(box));
	job_started(job, box_save_image(box, &spec, &job_ops, job, &job->run, &err), &err);
}

/* ---- diff ----------------------------------------------------------------------------------- */

void api_box_diff(struct call *call)
{
	const char *other = call_query(call, "other");
	const char *format = call_query(call, "format");
	bool tar = format && !strcmp(format, "tar");
	struct box *box = call_box(call);
	struct err err = ERR_INIT;
	struct pump *pump;

	if (!box)
		return;
	if (format && !tar && strcmp(format, "list")) {
		err_set(&err, ERR_INVALID, "unknown format '%.20s': list or tar", format);
		return call_error(call, &err);
	}
	pump = pump_new(call, tar ? "application/x-tar" : "application/x-ndjson");
	pump_started(
		pump, box_diff_start(box, other, tar, &pump_ops, pump, &pump->stream, &err), &err);
}
