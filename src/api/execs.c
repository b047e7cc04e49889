/* execs.c - the programs of a box: list, one, signal */
#include "api/api_internal.h"
#include <stdio.h>

bool call_exec_id(struct call *call)
{
	const char *id = call->params[1];
	struct err err = ERR_INIT;

	if (strlen(id) <= WIRE_EXEC_ID_MAX &&
		id[strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789")] == '\0')
		return true;
	err_set(&err, ERR_NOT_FOUND, "no exec '%.80s'", id);
	call_error(call, &err);
	return false;
}

json_t *execs_json(struct wire_reader *reply, struct err *err)
{
	uint32_t count = wire_get_u32(reply);
	_cleanup_json_ json_t *list = json_array();

	for (uint32_t i = 0; i < count && !reply->bad; i++) {
		struct wire_exec_info info;

		wire_get_exec_info(reply, &info);
		if (!reply->bad)
			json_array_append_new(list, exec_json(&info));
		free((void *)info.argv);
	}
	if (wire_get_done(reply, err) < 0)
		return NULL;
	return steal_ptr(&list);
}

static json_t *render_list(struct wire_reader *reply, json_t *extra, struct err *err)
{
	json_t *list = execs_json(reply, err);

	(void)extra;
	return list ? json_pack("{s:o}", "execs", list) : NULL;
}

void api_execs_list(struct call *call)
{
	struct buf request = BUF_INIT;

	ask(call, WIRE_OP_EXEC_LIST, &request, render_list, NULL);
}

static json_t *render_one(struct wire_reader *reply, json_t *extra, struct err *err)
{
	struct wire_exec_info info;
	json_t *value = NULL;

	(void)extra;
	wire_get_exec_info(reply, &info);
	if (wire_get_done(reply, err) == 0)
		value = exec_json(&info);
	free((void *)info.argv);
	return value;
}

/* Attaching without wanting any output is how one exec is asked about. */
void api_exec_show(struct call *call)
{
	struct wire_attach_spec spec = { .id = call->params[1], .offset = WIRE_OFFSET_END };
	struct buf request = BUF_INIT;

	if (!call_exec_id(call))
		return;
	wire_put_attach_spec(&request, &spec);
	ask(call, WIRE_OP_EXEC_ATTACH, &request, render_one, NULL);
}

void api_exec_signal(struct call *call)
{
	_cleanup_json_ json_t *value = json_incref(json_object_get(call->body, "signal"));
	struct buf request = BUF_INIT;
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
	wire_put_str(&request, call->params[1]);
	wire_put_u32(&request, number);
	ask(call, WIRE_OP_EXEC_SIGNAL, &request, NULL, NULL);
}
