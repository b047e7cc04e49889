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

/* ---- list, signal --------------------------------------------------------------------------- */

struct asking {
	struct exchange x;
	json_t *execs; /* NULL: there is nothing to answer but that it worked */
};

static void asking_free(struct exchange *x)
{
	struct asking *asking = (struct asking *)x;

	json_decref(asking->execs);
	free(asking);
}

static void on_exec(const struct exec_info *info, void *arg)
{
	struct asking *asking = arg;

	json_array_append_new(asking->execs, exec_json(info));
}

static void on_answer(const struct err *err, void *arg)
{
	struct asking *asking = arg;

	asking->x.task = NULL;
	if (err)
		exchange_error(&asking->x, err);
	else if (asking->execs)
		exchange_json(&asking->x, 200, json_pack("{s:O}", "execs", asking->execs));
	else
		exchange_none(&asking->x);
	exchange_settle(&asking->x);
}

void api_execs_list(struct call *call)
{
	static const struct exec_list_ops ops = { .on_exec = on_exec, .on_done = on_answer };
	struct box *box = call_box_awake(call);
	struct asking *asking;
	struct err err = ERR_INIT;

	if (!box)
		return;
	asking = xnew(struct asking);
	asking->execs = json_array();
	exchange_init(&asking->x, call, asking_free);
	if (exec_list(box, &ops, asking, &asking->x.task, &err) < 0)
		exchange_error(&asking->x, &err);
	exchange_settle(&asking->x);
}

/* ---- one ------------------------------------------------------------------------------------ */

static void showing_free(struct exchange *x)
{
	free(x);
}

static void on_started(struct exec *exec, const struct exec_info *info, void *arg)
{
	(void)exec;
	exchange_json(arg, 200, exec_json(info));
}

static void on_done(struct exec *exec, const struct exec_end *end, const struct err *err, void *arg)
{
	struct exchange *x = arg;

	(void)exec;
	(void)end;
	x->exec = NULL;
	if (err)
		exchange_error(x, err);
	exchange_settle(x);
}

/* Attaching without wanting any output is how one exec is asked about. */
void api_exec_show(struct call *call)
{
	static const struct exec_ops ops = { .on_started = on_started, .on_done = on_done };
	const struct exec_attach_spec spec = { .id = call->params[1], .offset = EXEC_OFFSET_END };
	struct box *box = call_exec_id(call) ? call_box_awake(call) : NULL;
	struct exchange *x;
	struct err err = ERR_INIT;

	if (!box)
		return;
	x = xnew(struct exchange);
	exchange_init(x, call, showing_free);
	if (exec_attach(box, &spec, &ops, x, &x->exec, &err) < 0)
		exchange_error(x, &err);
	exchange_settle(x);
}

void api_exec_signal(struct call *call)
{
	_cleanup_json_ json_t *value = json_incref(json_object_get(call->body, "signal"));
	struct asking *asking;
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
	asking = xnew(struct asking);
	exchange_init(&asking->x, call, asking_free);
	if (exec_signal_by_id(
		    box, call->params[1], number, on_answer, asking, &asking->x.task, &err) < 0)
		exchange_error(&asking->x, &err);
	exchange_settle(&asking->x);
}
