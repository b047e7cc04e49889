/* boxes.c - making, listing, changing, stopping, removing boxes */
#include "api/api_internal.h"
#include "base/clock.h"
#include "base/text.h"

enum {
	LIST_MAX = 1000,
	LIST_BYTES = 4 << 20, /* a page ends here too: one box may take 300 KiB */
	MEMORY_MIN = 4 * 1024 * 1024,
	DISK_MIN = 1024 * 1024,
	PIDS_MAX = 4 * 1024 * 1024,
	STOP_MS = 10000,
	STOP_MS_MAX = 3600000,
	KEY_MAX = 128,
};

/* ---- verbs that take time ------------------------------------------------------------------------ */

/* The verb goes on when its client has gone; only the answer falls away. */
struct verb {
	struct http_request *request;
	int status;
	char asked_at[CLOCK_RFC3339_MAX]; /* of a creation with a key */
};

static void verb_gone(struct http_request *request, void *arg)
{
	struct verb *verb = arg;

	(void)request;
	verb->request = NULL;
}

static struct verb *verb_new(struct call *call, int status)
{
	struct verb *verb = xnew(struct verb);

	verb->request = call->request;
	verb->status = status;
	http_request_on_gone(call->request, verb_gone, verb);
	return verb;
}

static void verb_done(struct box *box, const struct err *err, void *arg)
{
	struct verb *verb = arg;
	struct http_request *request = verb->request;
	int status = verb->status;
	json_t *value;

	if (!request) {
		free(verb);
		return;
	}
	if (err) {
		http_reply_error(request, err);
	} else if (!box) {
		http_reply(request, 204, NULL, NULL, 0);
	} else {
		value = box_json(box);
		/* A box that is older than the request was made by an earlier one with the same key. */
		if (*verb->asked_at &&
			strcmp(json_string_value(json_object_get(value, "created_at")),
				verb->asked_at) < 0)
			status = 200;
		http_reply_json(request, status, value);
	}
	free(verb);
}

/* ---- creating ------------------------------------------------------------------------------------ */

static json_t *take_key(json_t *body, const char *key)
{
	json_t *value = json_incref(json_object_get(body, key));

	json_object_del(body, key);
	return value;
}

/* Figures come as numbers or as text, which json_read does not know; they are taken out before it looks. */
static int read_limits(json_t *body, struct limits *ret, struct err *err)
{
	_cleanup_json_ json_t *cpu = take_key(body, "cpu");
	_cleanup_json_ json_t *memory = take_key(body, "memory");
	_cleanup_json_ json_t *disk = take_key(body, "disk");

	if (input_cpu(cpu, &ret->cpu_milli, err) < 0 ||
		input_size("memory", memory, MEMORY_MIN, &ret->memory_bytes, err) < 0)
		return -1;
	return input_size("disk", disk, DISK_MIN, &ret->disk_bytes, err);
}

static int read_spec(json_t *body, struct box_spec *ret, struct err *err)
{
	json_int_t pids = -1;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &ret->name, false },
		{ "image", JSON_WANT_STRING, &ret->image, false },
		{ "driver", JSON_WANT_STRING, &ret->driver, false },
		{ "profile", JSON_WANT_STRING, &ret->profile, false },
		{ "pids", JSON_WANT_INT, &pids, false },
		{ "env", JSON_WANT_MAP, &ret->env, false },
		{ "labels", JSON_WANT_MAP, &ret->labels, false },
		{ "command", JSON_WANT_STRINGS, &ret->command, false },
		{ "remove_on_exit", JSON_WANT_BOOL, &ret->remove_on_exit, false },
	};

	ret->limits = (struct limits){ BOX_LIMIT_DEFAULT, BOX_LIMIT_DEFAULT, BOX_LIMIT_DEFAULT,
		BOX_LIMIT_DEFAULT };
	if (read_limits(body, &ret->limits, err) < 0 ||
		json_read(body, keys, ARRAY_LEN(keys), err) < 0)
		return -1;
	if (pids > PIDS_MAX)
		return err_set(err, ERR_INVALID, "'pids' is at most %d, or 0 for none", PIDS_MAX);
	if (pids >= 0)
		ret->limits.pids = (uint64_t)pids;
	if (ret->name && name_check("name", ret->name, err) < 0)
		return -1;
	if (input_env(ret->env, err) < 0 || input_labels(ret->labels, err) < 0)
		return -1;
	return ret->command ? input_argv("command", ret->command, err) : 0;
}

static int read_key(struct call *call, const char **ret, struct err *err)
{
	const char *key = http_request_header(call->request, "Idempotency-Key");

	if (key && (!*key || strlen(key) > KEY_MAX || !text_is_utf8(key, strlen(key))))
		return err_set(
			err, ERR_INVALID, "Idempotency-Key must have 1 to %d characters", KEY_MAX);
	*ret = key;
	return 0;
}

void api_boxes_create(struct call *call)
{
	struct box_spec spec = { 0 };
	struct err err = ERR_INIT;
	struct verb *verb;

	if (read_spec(call->body, &spec, &err) < 0 || read_key(call, &spec.idempotency, &err) < 0)
		return call_error(call, &err);
	verb = verb_new(call, 201);
	if (spec.idempotency)
		clock_rfc3339(clock_wall_us(), verb->asked_at);
	box_create(call->yard, &spec, verb_done, verb);
}

/* ---- listing ------------------------------------------------------------------------------------- */

struct listing {
	struct call *call;
	const char *state;
	const char *after; /* skip up to this one */
	uint64_t limit;
	struct buf out;
	uint64_t count;
	const char *last;
	bool more;
	struct box *box; /* being looked at */
	bool wanted;
};

static bool check_label(const char *key, const char *value, void *arg)
{
	struct listing *listing = arg;

	if (!strcmp(key, "label") && !box_has_label(listing->box, value))
		listing->wanted = false;
	return listing->wanted;
}

static bool list_one(struct box *box, void *arg)
{
	struct listing *listing = arg;
	_cleanup_json_ json_t *value = NULL;

	if (listing->after) {
		if (!strcmp(listing->after, box_get_id(box)))
			listing->after = NULL;
		return true;
	}
	if (listing->state && strcmp(listing->state, box_state_name(box_get_state(box))))
		return true;
	listing->box = box;
	listing->wanted = true;
	http_request_each_query(listing->call->request, check_label, listing);
	if (!listing->wanted)
		return true;
	listing->more = listing->count == listing->limit || listing->out.len > LIST_BYTES;
	if (listing->more)
		return false;
	value = box_json(box);
	if (listing->count++)
		buf_add(&listing->out, ",", 1);
	ndjson_add(&listing->out, value);
	listing->out.len--; /* its newline */
	listing->last = box_get_id(box);
	return true;
}

static int check_state(const char *state, struct err *err)
{
	for (unsigned i = 0; state && i < BOX_STATE_COUNT; i++)
		if (!strcmp(state, box_state_name(i)))
			return 0;
	return state ? err_set(err, ERR_INVALID,
			       "unknown state '%.40s': creating, starting, running, stopping, "
			       "stopped or removing",
			       state)
		     : 0;
}

/* Written box by box: a tree of all of them first would double the time. */
void api_boxes_list(struct call *call)
{
	struct listing listing = {
		.call = call,
		.state = call_query(call, "state"),
		.after = call_query(call, "after"),
		.limit = LIST_MAX,
	};
	struct err err = ERR_INIT;

	if (check_state(listing.state, &err) < 0 ||
		input_query_u64(call, "limit", 1, LIST_MAX, &listing.limit, &err) < 0)
		return call_error(call, &err);
	buf_add_str(&listing.out, "{\"boxes\":[");
	box_each(call->yard, list_one, &listing);
	if (listing.after) {
		err_set(&err, ERR_NOT_FOUND, "no box '%.80s' to go on after", listing.after);
		err_hint(&err, "it was removed; list again from the start");
		buf_done(&listing.out);
		return call_error(call, &err);
	}
	if (listing.more)
		buf_addf(&listing.out, "],\"next\":\"%s\"}", listing.last);
	else
		buf_add_str(&listing.out, "],\"next\":null}");
	http_reply(call->request, 200, "application/json", buf_head(&listing.out), listing.out.len);
	buf_done(&listing.out);
}

/* ---- one box ------------------------------------------------------------------------------------- */

void api_box_show(struct call *call)
{
	struct box *box = call_box(call);

	if (box)
		call_json(call, 200, box_json(box));
}

void api_box_change(struct call *call)
{
	const char *name = NULL;
	const struct json_key keys[] = { { "name", JSON_WANT_STRING, &name, true } };
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0)
		return call_error(call, &err);
	if (!name)
		err_set(&err, ERR_INVALID, "'name' must be a string");
	if (err.kind || name_check("name", name, &err) < 0 || box_rename(box, name, &err) < 0)
		return call_error(call, &err);
	call_json(call, 200, box_json(box));
}

void api_box_remove(struct call *call)
{
	bool force = false;
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (input_query_bool(call, "force", &force, &err) < 0)
		return call_error(call, &err);
	box_remove(box, force, verb_done, verb_new(call, 204));
}

void api_box_start(struct call *call)
{
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (json_read(call->body, NULL, 0, &err) < 0)
		return call_error(call, &err);
	box_start(box, verb_done, verb_new(call, 200));
}

void api_box_stop(struct call *call)
{
	json_int_t timeout_ms = STOP_MS;
	const struct json_key keys[] = { { "timeout_ms", JSON_WANT_INT, &timeout_ms, false } };
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0)
		return call_error(call, &err);
	if (timeout_ms > STOP_MS_MAX) {
		err_set(&err, ERR_INVALID, "'timeout_ms' is at most %d", STOP_MS_MAX);
		return call_error(call, &err);
	}
	box_stop(box, (uint64_t)timeout_ms, verb_done, verb_new(call, 200));
}

/* ---- figures ------------------------------------------------------------------------------------- */

/* The host's figures and box-init's together. */
static json_t *render_stats(struct wire_reader *reply, json_t *extra, struct err *err)
{
	struct wire_stats stats;

	wire_get_stats(reply, &stats);
	if (wire_get_done(reply, err) < 0)
		return NULL;
	json_object_set_new(extra, "uptime_us", json_from_u64(stats.uptime_us));
	json_object_set_new(extra, "execs_running", json_integer(stats.execs_running));
	json_object_set_new(extra, "disk_used_bytes", json_from_u64(stats.disk_used));
	json_object_set_new(extra, "disk_total_bytes", json_from_u64(stats.disk_total));
	json_object_set_new(extra, "journal_bytes", json_from_u64(stats.journal_bytes));
	return json_incref(extra);
}

void api_box_stats(struct call *call)
{
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;
	struct box *box = call_box(call);
	json_t *stats;

	if (!box)
		return;
	stats = box_stats_json(box, &err);
	if (!stats)
		return call_error(call, &err);
	ask(call, WIRE_OP_STATS, &request, render_stats, stats);
}

static json_t *process_json(const struct wire_process *process)
{
	char state[2] = { process->state, '\0' };
	json_t *value = json_object();

	json_object_set_new(value, "pid", json_integer(process->pid));
	json_object_set_new(value, "ppid", json_integer(process->ppid));
	json_object_set_new(value, "uid", json_integer(process->uid));
	json_object_set_new(value, "state", json_from_box(state));
	json_object_set_new(value, "rss_bytes", json_from_u64(process->rss_bytes));
	json_object_set_new(value, "cpu_us", json_from_u64(process->cpu_us));
	json_object_set_new(value, "started_us", json_from_u64(process->started_us));
	json_object_set_new(
		value, "exec", *process->exec ? json_from_box(process->exec) : json_null());
	json_object_set_new(value, "command", json_from_box(process->command));
	return value;
}

static json_t *render_processes(struct wire_reader *reply, json_t *extra, struct err *err)
{
	uint32_t total = wire_get_u32(reply);
	uint32_t count = wire_get_u32(reply);
	_cleanup_json_ json_t *list = json_array();

	(void)extra;
	for (uint32_t i = 0; i < count && !reply->bad; i++) {
		struct wire_process process;

		wire_get_process(reply, &process);
		if (!reply->bad)
			json_array_append_new(list, process_json(&process));
	}
	if (wire_get_done(reply, err) < 0)
		return NULL;
	return json_pack("{s:O,s:I}", "processes", list, "total", (json_int_t)total);
}

void api_box_processes(struct call *call)
{
	struct buf request = BUF_INIT;

	ask(call, WIRE_OP_PROCESSES, &request, render_processes, NULL);
}
