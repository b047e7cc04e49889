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

static json_t *list_json(struct wire_reader *reply,
	json_t *(*render)(const struct wire_exec_info *info), struct err *err)
{
	uint32_t count = wire_get_u32(reply);
	_cleanup_json_ json_t *list = json_array();

	for (uint32_t i = 0; i < count && !reply->bad; i++) {
		struct wire_exec_info info;

		wire_get_exec_info(reply, &info);
		if (!reply->bad)
			json_array_append_new(list, render(&info));
		free((void *)info.argv);
	}
	if (wire_get_done(reply, err) < 0)
		return NULL;
	return steal_ptr(&list);
}

json_t *execs_json(struct wire_reader *reply, struct err *err)
{
	return list_json(reply, exec_json, err);
}

static json_t *render_list(struct wire_reader *reply, json_t *extra, struct err *err)
{
	json_t *list = execs_json(reply, err);

	(void)extra;
	return list ? json_pack("{s:o}", "execs", list) : NULL;
}

/* Of a box that has stopped; NULL with err. */
static json_t *kept_json(const struct box *box, struct err *err)
{
	struct buf kept = BUF_INIT;
	json_t *list = NULL;

	if (box_output_list(box, &kept, err) == 0) {
		struct wire_reader reply = { buf_head(&kept), buf_head(&kept) + kept.len, false };

		list = list_json(&reply, exec_ended_json, err);
	}
	buf_done(&kept);
	return list;
}

static void list_kept(struct call *call, const struct box *box)
{
	struct err err = ERR_INIT;
	json_t *list = kept_json(box, &err);

	if (list)
		call_json(call, 200, json_pack("{s:o}", "execs", list));
	else
		call_error(call, &err);
}

static void show_kept(struct call *call, const struct box *box)
{
	struct err err = ERR_INIT;
	_cleanup_json_ json_t *list = kept_json(box, &err);
	json_t *exec;
	size_t i;

	if (!list)
		return call_error(call, &err);
	json_array_foreach (list, i, exec)
		if (!strcmp(json_string_value(json_object_get(exec, "id")), call->params[1]))
			return call_json(call, 200, json_incref(exec));
	err_set(&err, ERR_NOT_FOUND, "no exec '%s' was kept when box '%s' stopped", call->params[1],
		box_get_name(box));
	call_error(call, &err);
}

/* NULL when it has to be asked itself, or is not there: that is told by whoever asks. */
static const struct box *stopped_box(struct call *call)
{
	struct box *box = box_find(call->api->yard, call->params[0], NULL);

	return box && box_get_state(box) == BOX_STOPPED ? call_box(call) : NULL;
}

void api_execs_list(struct call *call)
{
	struct buf request = BUF_INIT;
	const struct box *stopped = stopped_box(call);

	if (stopped)
		return list_kept(call, stopped);

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
	const struct box *stopped;

	if (!call_exec_id(call))
		return;
	stopped = stopped_box(call);
	if (stopped)
		return show_kept(call, stopped);
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
