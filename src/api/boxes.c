/* boxes.c - making, listing, changing, suspending, stopping, removing boxes */
#include "api/api_internal.h"
#include "base/clock.h"
#include "base/text.h"
#include "core/time/auto.h"
#include "core/lineage.h"
#include "core/tree.h"

enum {
	LIST_MAX = 1000,
	LIST_BYTES = 4 << 20, /* end of a page: one box may take 300 KiB */
	STOP_MS = 10000,
	STOP_MS_MAX = 3600000,
	KEY_MAX = 128,
};

/* ---- verbs that take time ------------------------------------------------------------------- */

/* The verb continues when its client disconnects; only the answer is dropped. */
struct verb {
	struct http_request *request;
	int status;
	char asked_at[CLOCK_RFC3339_MAX]; /* for a creation with a key */
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
		/* A box older than the request was made by an earlier request with the same key. */
		if (*verb->asked_at &&
			strcmp(json_string_value(json_object_get(value, "created_at")),
				verb->asked_at) < 0)
			status = 200;
		http_reply_json(request, status, value);
	}
	free(verb);
}

/* ---- creating ------------------------------------------------------------------------------- */

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
	struct box_body body = { 0 };
	struct err err = ERR_INIT;
	struct verb *verb;

	if (box_body_read(call->body, &body, &err) < 0 ||
		read_key(call, &body.spec.idempotency, &err) < 0) {
		box_body_done(&body);
		return call_error(call, &err);
	}
	body.spec.by_socket = http_request_transport(call->request) == HTTP_TRANSPORT_UNIX;
	body.spec.asked_by = http_request_peer_uid(call->request);
	verb = verb_new(call, 201);
	if (body.spec.idempotency)
		clock_rfc3339(clock_wall_us(), verb->asked_at);
	box_create(call->yard, &body.spec, verb_done, verb);
	box_body_done(&body);
}

/* ---- listing -------------------------------------------------------------------------------- */

struct listing {
	struct call *call;
	const char *state;
	const char *after; /* skip up to this box */
	uint64_t limit;
	struct buf out;
	uint64_t count;
	const char *last;
	bool more;
	struct box *box; /* the current one */
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
	http_request_filter(listing->call->request, value);
	if (listing->count++)
		buf_add(&listing->out, ",", 1);
	ndjson_add(&listing->out, value);
	listing->out.len--; /* without its newline */
	listing->last = box_get_id(box);
	return true;
}

static int check_state(const char *state, struct err *err)
{
	char names[128];
	size_t len = 0;

	for (unsigned i = 0; state && i < BOX_STATE_COUNT; i++) {
		if (!strcmp(state, box_state_name(i)))
			return 0;
		len += (size_t)snprintf(
			names + len, sizeof names - len, "%s%s", i ? ", " : "", box_state_name(i));
	}
	return state ? err_set(err, ERR_INVALID, "unknown state '%.40s': one of %s", state, names)
		     : 0;
}

/* Written box by box: building a tree of all of them first would double the time. */
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
		err_set(&err, ERR_NOT_FOUND, "no box '%.80s' to continue after", listing.after);
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

/* ---- one box -------------------------------------------------------------------------------- */

void api_box_show(struct call *call)
{
	struct box *box = call_box(call);

	if (!box)
		return;
	box_refresh(box);
	call_json(call, 200, box_json(box));
}

/* Checks what can be checked before anything is changed: half a change is worse than none. */
static int check_name_is_free(
	struct yard *yard, const struct box *box, const char *name, struct err *err)
{
	if (box_name_is_taken(yard, name) && box_find(yard, name, NULL) != box)
		return err_set(err, ERR_EXISTS, "there is a box '%s' already", name);
	return 0;
}

static int apply(
	struct call *call, struct box *box, const struct box_change *change, struct err *err)
{
	if (change->name && check_name_is_free(call->yard, box, change->name, err) < 0)
		return -1;
	/* Before the limits of the box, which may not exceed them. */
	if ((change->has_tree || change->tree_as_head) &&
		box_set_tree(box, change->has_tree ? &change->tree : NULL, err) < 0)
		return -1;
	if ((change->has_limits || change->has_on_limit) &&
		box_set(box, &change->limits, change->has_on_limit ? &change->on_limit : NULL,
			err) < 0)
		return -1;
	if (change->inside && box_set_inside(box, change->inside, err) < 0)
		return -1;
	if (change->auto_snapshot && box_set_auto_snapshot(box, change->auto_snapshot, err) < 0)
		return -1;
	if (change->has_sleep && box_set_sleep(box, &change->sleep, err) < 0)
		return -1;
	return change->name ? box_rename(box, change->name, err) : 0;
}

static int change(struct call *call, struct box *box, struct err *err)
{
	struct box_change change;
	int ret = box_change_read(call->body, &change, err);

	if (ret == 0)
		ret = apply(call, box, &change, err);
	box_change_done(&change);
	return ret;
}

void api_box_change(struct call *call)
{
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (change(call, box, &err) < 0)
		return call_error(call, &err);
	call_json(call, 200, box_json(box));
}

void api_box_remove(struct call *call)
{
	bool force = false, keep = false;
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (input_query_bool(call, "force", &force, &err) < 0 ||
		input_query_bool(call, "keep_workspace", &keep, &err) < 0)
		return call_error(call, &err);
	(keep ? box_remove_keeping : box_remove)(box, force, verb_done, verb_new(call, 204));
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

void api_box_suspend(struct call *call)
{
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (json_read(call->body, NULL, 0, &err) < 0 || box_suspend(box, "asked", &err) < 0)
		return call_error(call, &err);
	call_json(call, 200, box_json(box));
}

void api_box_resume(struct call *call)
{
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (json_read(call->body, NULL, 0, &err) < 0)
		return call_error(call, &err);
	box_resume_deep(box, verb_done, verb_new(call, 200));
}

/* ---- figures -------------------------------------------------------------------------------- */

void api_box_stats(struct call *call)
{
	struct err err = ERR_INIT;
	struct box *box = call_box(call);
	struct exchange *x;

	/* For a suspended box only the host's figures are used, so it is not woken. */
	if (box && box_get_state(box) != BOX_SUSPENDED)
		box = call_box_awake(call);
	if (!box)
		return;
	x = ask_new(call);
	ask_started(x, box_stats(box, ask_answer, x, &x->task, &err), &err);
}

void api_box_processes(struct call *call)
{
	struct err err = ERR_INIT;
	struct box *box = call_box_awake(call);
	struct exchange *x;

	if (!box)
		return;
	x = ask_new(call);
	ask_started(x, box_processes(box, ask_answer, x, &x->task, &err), &err);
}
