/* execs.c - the programs of a box: list, one, signal */
#include "api/api_internal.h"
#include <stdio.h>

bool call_exec_id(struct call *call)
{
	const char *id = call->params[1];
	struct err err = ERR_INIT;

	if (strlen(id) <= EXEC_ID_MAX &&
		id[strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789")] == '\0')
		return true;
	err_set(&err, ERR_NOT_FOUND, "no exec '%.80s'", id);
	call_error(call, &err);
	return false;
}

struct listing {
	struct exchange x;
	json_t *execs;
};

static void listing_free(struct exchange *x)
{
	struct listing *listing = (struct listing *)x;

	json_decref(listing->execs);
	free(listing);
}

static void on_exec(const struct exec_info *info, void *arg)
{
	struct listing *listing = arg;

	json_array_append_new(listing->execs, exec_json(info));
}

static void on_listed(const struct err *err, void *arg)
{
	struct listing *listing = arg;
	_cleanup_json_ json_t *answer = json_pack("{s:O}", "execs", listing->execs);

	ask_answer(answer, err, &listing->x);
}

static const struct exec_list_ops list_ops = { .on_exec = on_exec, .on_done = on_listed };

void api_execs_list(struct call *call)
{
	struct box *box = call_box_awake(call);
	struct listing *listing;
	struct err err = ERR_INIT;

	if (!box)
		return;
	listing = xnew(struct listing);
	listing->execs = json_array();
	exchange_init(&listing->x, call, listing_free);
	ask_started(&listing->x, exec_list(box, &list_ops, listing, &listing->x.task, &err), &err);
}

static void on_started(struct exec *exec, const struct exec_info *info, void *arg)
{
	(void)exec;
	exchange_json(arg, 200, exec_json(info));
}

static void on_done(struct exec *exec, const struct exec_end *end, const struct err *err, void *arg)
{
	(void)exec;
	(void)end;
	ask_answer(NULL, err, arg);
}

/* One exec is looked up by attaching to it without output. */
void api_exec_show(struct call *call)
{
	static const struct exec_ops ops = { .on_started = on_started, .on_done = on_done };
	const struct exec_attach_spec spec = { .id = call->params[1], .offset = EXEC_OFFSET_END };
	struct box *box = call_exec_id(call) ? call_box_awake(call) : NULL;
	struct exchange *x;
	struct err err = ERR_INIT;

	if (!box)
		return;
	x = ask_new(call);
	ask_started(x, exec_attach(box, &spec, &ops, x, &x->exec, &err), &err);
}

static void on_signalled(const struct err *err, void *arg)
{
	ask_answer(NULL, err, arg);
}

void api_exec_signal(struct call *call)
{
	_cleanup_json_ json_t *value = json_incref(json_object_get(call->body, "signal"));
	struct exchange *x;
	struct box *box;
	struct err err = ERR_INIT;
	char text[24];
	uint32_t number = 0;

	if (!call_exec_id(call))
		return;
	json_object_del(call->body, "signal");
	snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
	if (json_read(call->body, NULL, 0, &err) < 0)
		return call_error(call, &err);
	if (!json_is_string(value) && !json_is_integer(value))
		err_set(&err, ERR_INVALID, "'signal' must be a name like TERM or a number");
	else
		input_signal(
			json_is_string(value) ? json_string_value(value) : text, &number, &err);
	if (err.kind)
		return call_error(call, &err);
	box = call_box(call);
	if (!box)
		return;
	x = ask_new(call);
	ask_started(x,
		exec_signal_by_id(box, call->params[1], number, on_signalled, x, &x->task, &err),
		&err);
}
