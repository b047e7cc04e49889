/* timeline.c - a box in time: sleep and wake, snapshots, rollback, forks
 *
 * Bodies are checked whole before core is called. The work continues when its client disconnects;
 * only the answer is dropped. */
#include "api/api_internal.h"
#include "base/text.h"

/* ---- answers that come later ---------------------------------------------------------------- */

static void on_box(struct box *box, const struct err *err, void *arg)
{
	struct http_request *request = later_end(arg);

	if (request && err)
		http_reply_error(request, err);
	else if (request)
		http_reply_json(request, 200, box_json(box));
}

static void answer(struct later *later, int status, json_t *result, const struct err *err)
{
	struct http_request *request = later_end(later);

	if (request && err)
		http_reply_error(request, err);
	else if (request)
		http_reply_json(request, status, json_incref(result));
}

static void on_done(json_t *result, const struct err *err, void *arg)
{
	answer(arg, 200, result, err);
}

static void on_made(json_t *result, const struct err *err, void *arg)
{
	answer(arg, 201, result, err);
}

/* ---- sleep ---------------------------------------------------------------------------------- */

/* The box of a call without a body; NULL after answering. */
static struct box *plain_call(struct call *call)
{
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (box && json_read(call->body, NULL, 0, &err) < 0) {
		call_error(call, &err);
		return NULL;
	}
	return box;
}

void api_box_hibernate(struct call *call)
{
	struct box *box = plain_call(call);

	if (box)
		box_hibernate(box, "request", on_box, later_new(call));
}

void api_box_wake(struct call *call)
{
	struct box *box = plain_call(call);

	if (box)
		box_wake(box, on_box, later_new(call));
}

/* ---- snapshots ------------------------------------------------------------------------------ */

/* An id or a name; core checks whether it exists. */
static int check_reference(const char *text, struct err *err)
{
	size_t len = strlen(text);

	if (!len || len > NAME_MAX_LEN ||
		strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != len) {
		err_set(err, ERR_INVALID, "'%.80s' is not the id or name of a snapshot", text);
		return err_hint(err, "'box timeline' lists them");
	}
	return 0;
}

int snapshot_body_read(json_t *body, struct snapshot_spec *ret, struct err *err)
{
	const char *cause = NULL;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &ret->name, false },
		{ "disk_only", JSON_WANT_BOOL, &ret->disk_only, false },
		{ "cause", JSON_WANT_STRING, &cause, false },
	};

	*ret = (struct snapshot_spec){ .cause = "request", .wait_safe = true };
	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0)
		return -1;
	if (ret->name && name_check("name", ret->name, err) < 0)
		return -1;
	if (cause && !strcmp(cause, "try"))
		ret->cause = "try"; /* core keeps the pointer */
	else if (cause && strcmp(cause, "request"))
		return err_set(err, ERR_INVALID, "'cause' is request or try, not '%.40s'", cause);
	return 0;
}

void api_box_snapshot(struct call *call)
{
	struct snapshot_spec spec;
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (snapshot_body_read(call->body, &spec, &err) < 0)
		return call_error(call, &err);
	box_snapshot(box, &spec, on_made, later_new(call));
}

void api_box_timeline(struct call *call)
{
	struct box *box = call_box(call);

	if (box)
		call_json(call, 200, box_timeline_json(box));
}

void api_snapshot_remove(struct call *call)
{
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (check_reference(call->params[1], &err) < 0 ||
		box_snapshot_remove(box, call->params[1], &err) < 0)
		return call_error(call, &err);
	call_none(call);
}

/* ---- rollback ------------------------------------------------------------------------------- */

int rollback_body_read(json_t *body, struct rollback_spec *ret, struct err *err)
{
	const struct json_key keys[] = {
		{ "snapshot", JSON_WANT_STRING, &ret->snapshot, false },
		{ "disk_only", JSON_WANT_BOOL, &ret->disk_only, false },
		{ "forget", JSON_WANT_BOOL, &ret->forget, false },
	};

	*ret = (struct rollback_spec){ 0 };
	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0)
		return -1;
	return ret->snapshot ? check_reference(ret->snapshot, err) : 0;
}

void api_box_rollback(struct call *call)
{
	struct rollback_spec spec;
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (rollback_body_read(call->body, &spec, &err) < 0 ||
		yard_check_stays(call->yard, &err) < 0)
		return call_error(call, &err);
	box_rollback(box, &spec, on_done, later_new(call));
}

/* ---- forks ---------------------------------------------------------------------------------- */

static int check_names(json_t *names, struct err *err)
{
	size_t count = json_array_size(names), i, k;
	json_t *name;

	if (count > FORKS_MAX)
		return err_set(err, ERR_INVALID, "at most %d children at once", FORKS_MAX);
	json_array_foreach (names, i, name) {
		const char *text = json_string_value(name);

		if (name_check("name", text, err) < 0)
			return -1;
		for (k = 0; k < i; k++)
			if (!strcmp(text, json_string_value(json_array_get(names, k))))
				return err_set(
					err, ERR_INVALID, "'%s' occurs twice in 'names'", text);
	}
	return 0;
}

/* count is -1 when it was not given. */
static int set_count(json_int_t count, struct fork_spec *spec, struct err *err)
{
	size_t names = json_array_size(spec->names);

	if (count < 0)
		return 0;
	if (count < 1 || count > FORKS_MAX)
		return err_set(err, ERR_INVALID, "'count' is from 1 to %d", FORKS_MAX);
	if ((size_t)count < names)
		return err_set(err, ERR_INVALID, "'count' is %lld, but there are %zu names",
			(long long)count, names);
	spec->count = (unsigned)count;
	return 0;
}

int fork_body_read(json_t *body, struct fork_body *ret, struct err *err)
{
	struct fork_spec *spec = &ret->spec;
	json_int_t count = -1;
	const struct json_key keys[] = {
		{ "names", JSON_WANT_STRINGS, &spec->names, false },
		{ "count", JSON_WANT_INT, &count, false },
		{ "snapshot", JSON_WANT_STRING, &spec->snapshot, false },
		{ "env", JSON_WANT_MAP, &spec->env, false },
		{ "labels", JSON_WANT_MAP, &spec->labels, false },
		{ "disk_only", JSON_WANT_BOOL, &spec->disk_only, false },
		{ "remove_on_exit", JSON_WANT_BOOL, &spec->remove_on_exit, false },
	};

	*ret = (struct fork_body){ .policy = input_take(body, "policy") };
	spec->policy = json_is_null(ret->policy) ? NULL : ret->policy;
	if (spec->policy && input_policy(spec->policy, err) < 0)
		return -1;
	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0 || check_names(spec->names, err) < 0 ||
		set_count(count, spec, err) < 0)
		return -1;
	if (spec->snapshot && check_reference(spec->snapshot, err) < 0)
		return -1;
	return input_env(spec->env, err) < 0 ? -1 : input_labels(spec->labels, err);
}

void fork_body_done(struct fork_body *body)
{
	json_decref(body->policy);
	*body = (struct fork_body){ 0 };
}

void api_box_fork(struct call *call)
{
	struct fork_body body;
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (fork_body_read(call->body, &body, &err) < 0 || yard_check_stays(call->yard, &err) < 0)
		call_error(call, &err);
	else
		box_fork(box, &body.spec, on_made, later_new(call));
	fork_body_done(&body);
}

void api_box_promote(struct call *call)
{
	struct promote_spec spec = { 0 };
	const struct json_key keys[] = {
		{ "keep_labels", JSON_WANT_BOOL, &spec.keep_labels, false },
		{ "keep_limits", JSON_WANT_BOOL, &spec.keep_limits, false },
	};
	struct err err = ERR_INIT;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		yard_check_stays(call->yard, &err) < 0)
		return call_error(call, &err);
	box_promote(box, &spec, on_done, later_new(call));
}

/* ---- golden images -------------------------------------------------------------------------- */

void api_box_save_full(struct call *call, struct box *box, const char *name)
{
	box_save_full(box, name, on_made, later_new(call));
}
