/* look.c - files of a box that is stopped: what core/look.h reads from its disk, said as box-init's
 * answers are (files.c, transfer.c) */
#include "api/api_internal.h"
#include <stdio.h>

enum { RECORD_MAX = 64 * 1024 };

/* The next whole record of what was gathered: 1. 0: there is none yet. It is borrowed until the
 * next call. */
static int next_record(struct pump *pump, struct wire_stat *ret, size_t *ret_len, struct err *err)
{
	const uint8_t *at = buf_head(&pump->gathered);
	struct wire_reader in = { at, at + pump->gathered.len, false };
	uint32_t len;

	if (pump->gathered.len < sizeof len)
		return 0;
	len = wire_get_u32(&in);
	if (len > RECORD_MAX)
		return err_set(err, ERR_PROTOCOL, "a helper said something unknown");
	if (pump->gathered.len < sizeof len + len)
		return 0;
	in.end = in.at + len;
	wire_get_stat(&in, ret);
	*ret_len = sizeof len + len;
	return wire_get_done(&in, err) < 0 ? -1 : 1;
}

static void write_stat(struct pump *pump, const struct wire_stat *stat, bool comma)
{
	_cleanup_json_ json_t *value = stat_json(stat);
	_cleanup_free_ char *text = json_text(value);

	if (comma)
		pump_write(pump, ",", 1);
	pump_write(pump, text, strlen(text));
}

static int take_stats(struct pump *pump, const void *data, size_t len, struct err *err)
{
	struct wire_stat stat;
	size_t used;
	int status;

	buf_add(&pump->gathered, data, len);
	while ((status = next_record(pump, &stat, &used, err)) == 1) {
		if (!pump->begun && pump->finish)
			pump_write(pump, "{\"entries\":[", 12);
		write_stat(pump, &stat, pump->some);
		pump->some = true;
		buf_eat(&pump->gathered, used);
	}
	return status;
}

static void finish_list(struct pump *pump)
{
	if (!pump->begun)
		pump_write(pump, "{\"entries\":[", 12);
	pump_write(pump, "]}", 2);
}

static int take_file(struct pump *pump, const void *data, size_t len, struct err *err)
{
	struct wire_stat stat;
	char text[32];
	size_t used;
	int status;

	if (pump->begun) {
		pump_write(pump, data, len);
		return 0;
	}
	buf_add(&pump->gathered, data, len);
	status = next_record(pump, &stat, &used, err);
	if (status <= 0)
		return status;
	snprintf(text, sizeof text, "%llu", (unsigned long long)stat.size);
	http_reply_header(pump->request, "Box-File-Size", text);
	snprintf(text, sizeof text, "%04o", stat.mode & 07777);
	http_reply_header(pump->request, "Box-File-Mode", text);
	buf_eat(&pump->gathered, used);
	pump_write(pump, buf_head(&pump->gathered), pump->gathered.len);
	return 0;
}

bool look(struct call *call, const struct look_spec *spec)
{
	struct box *box = call_box(call);
	struct err err = ERR_INIT;
	struct pump *pump;

	if (!box)
		return true; /* that was the answer */
	if (!box_is_looked_at(box))
		return false;
	pump = pump_new(call, spec->op == WIRE_OP_READ	    ? "application/octet-stream"
			      : spec->op == WIRE_OP_TAR_OUT ? "application/x-tar"
							    : "application/json");
	if (spec->op == WIRE_OP_READ)
		pump->take = take_file;
	else if (spec->op != WIRE_OP_TAR_OUT)
		pump->take = take_stats;
	if (spec->op == WIRE_OP_LIST)
		pump->finish = finish_list;
	pump_started(pump, box_look_start(box, spec, &pump_ops, pump, &pump->stream, &err), &err);
	return true;
}
