/* transfer.c - bytes of files and archives, both ways, and lists of folders
 *
 * Downloads: nothing is answered before box-init's reply, so that a missing file is a plain error;
 * an error after that cuts the connection, since bytes have no place for it. Uploads: the body goes
 * into the channel as fast as the box takes it, and box-init replies when all of it is safely
 * there. A client that goes away cancels: box-init leaves the old file as it was. */
#include "api/api_internal.h"
#include <stdio.h>

struct transfer {
	struct exchange x;
	enum wire_op op;
	bool begun;
	bool some; /* entries of a list were written */
};

static void transfer_done(struct exchange *x)
{
	free((struct transfer *)x);
}

/* ---- from the box to the client ------------------------------------------------------------- */

static void begin_read(struct transfer *transfer, struct wire_reader *reply, struct err *err)
{
	struct wire_stat stat;
	char text[32];

	wire_get_stat(reply, &stat);
	if (wire_get_done(reply, err) < 0)
		return;
	snprintf(text, sizeof text, "%llu", (unsigned long long)stat.size);
	http_reply_header(transfer->x.request, "Box-File-Size", text);
	snprintf(text, sizeof text, "%04o", stat.mode & 07777);
	http_reply_header(transfer->x.request, "Box-File-Mode", text);
	http_reply_begin(transfer->x.request, 200, "application/octet-stream");
}

static void on_down_reply(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct transfer *transfer = arg;
	struct err err = ERR_INIT;

	(void)chan;
	if (!transfer->x.request)
		return;
	transfer->begun = true;
	if (transfer->op == WIRE_OP_READ) {
		begin_read(transfer, reply, &err);
	} else if (transfer->op == WIRE_OP_LIST) {
		http_reply_begin(transfer->x.request, 200, "application/json");
		exchange_write(&transfer->x, "{\"entries\":[", 12);
	} else {
		http_reply_begin(transfer->x.request, 200, "application/x-tar");
	}
	if (err.kind) {
		exchange_error(&transfer->x, &err);
		exchange_close(&transfer->x);
		exchange_settle(&transfer->x);
	}
}

static int write_entries(struct transfer *transfer, const void *data, size_t len, struct err *err)
{
	struct wire_reader in = { data, (const uint8_t *)data + len, false };
	struct buf *out = &transfer->x.api->scratch;

	out->len = out->head = 0;
	while (in.at < in.end && !in.bad) {
		_cleanup_json_ json_t *entry = NULL;
		struct wire_stat stat;

		wire_get_stat(&in, &stat);
		if (in.bad)
			break;
		entry = stat_json(&stat);
		if (transfer->some)
			buf_add(out, ",", 1);
		ndjson_add(out, entry);
		transfer->some = true;
	}
	exchange_write(&transfer->x, buf_head(out), out->len);
	return wire_get_done(&in, err);
}

static void on_down_data(struct chan *chan, enum wire_stream stream, uint64_t offset,
	const void *data, size_t len, void *arg)
{
	struct transfer *transfer = arg;
	struct err err = ERR_INIT;

	(void)chan;
	(void)stream;
	(void)offset;
	if (!transfer->begun)
		err_set(&err, ERR_PROTOCOL, "box-init sent data before its reply");
	else if (transfer->op == WIRE_OP_LIST)
		write_entries(transfer, data, len, &err);
	else
		exchange_write(&transfer->x, data, len);
	exchange_passed(&transfer->x, len);
	if (err.kind) {
		exchange_error(&transfer->x, &err);
		exchange_close(&transfer->x);
		exchange_settle(&transfer->x);
	}
}

static void on_down_end(struct chan *chan, void *arg)
{
	struct transfer *transfer = arg;

	(void)chan;
	if (!transfer->begun)
		return; /* CLOSE follows and tells */
	if (transfer->op == WIRE_OP_LIST)
		exchange_write(&transfer->x, "]}", 2);
	exchange_end(&transfer->x);
}

static void on_error(struct chan *chan, const struct err *err, void *arg)
{
	struct transfer *transfer = arg;

	(void)chan;
	transfer->x.chan = NULL;
	exchange_error(&transfer->x, err);
	exchange_settle(&transfer->x);
}

static void on_closed(struct chan *chan, void *arg)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_PROTOCOL, "box-init ended the transfer early");
	on_error(chan, &err, arg); /* says nothing when all was told */
}

static void download(struct call *call, enum wire_op op, struct buf *request)
{
	static const struct chan_ops ops = {
		.on_reply = on_down_reply,
		.on_data = on_down_data,
		.on_end = on_down_end,
		.on_error = on_error,
		.on_closed = on_closed,
	};
	struct box *box = call_box(call);
	struct err err = ERR_INIT;
	struct transfer *transfer;

	if (box) {
		transfer = xnew(struct transfer);
		transfer->op = op;
		exchange_init(&transfer->x, call, transfer_done);
		if (box_chan_open(box, op, request, &ops, transfer, &transfer->x.chan, &err) < 0)
			exchange_error(&transfer->x, &err);
		exchange_settle(&transfer->x);
	}
	buf_done(request);
}

/* ---- from the client to the box ------------------------------------------------------------- */

static void on_up_reply(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct transfer *transfer = arg;
	struct err err = ERR_INIT;
	json_t *value;

	(void)chan;
	if (transfer->op == WIRE_OP_WRITE) {
		struct wire_stat stat;

		wire_get_stat(reply, &stat);
		value = wire_get_done(reply, &err) < 0 ? NULL : stat_json(&stat);
	} else {
		uint64_t files = wire_get_u64(reply);
		uint64_t bytes = wire_get_u64(reply);

		value = wire_get_done(reply, &err) < 0
				? NULL
				: json_pack("{s:o,s:o}", "files", json_from_u64(files), "bytes",
					  json_from_u64(bytes));
	}
	if (value)
		exchange_json(&transfer->x, 200, value);
	else
		exchange_error(&transfer->x, &err);
	/* CLOSE follows and settles. */
}

static void on_up_writable(struct chan *chan, void *arg)
{
	(void)chan;
	exchange_flush(arg);
}

static void on_body_data(struct http_request *request, const void *data, size_t len, void *arg)
{
	(void)request;
	exchange_send(arg, data, len);
}

static void on_body_end(struct http_request *request, void *arg)
{
	(void)request;
	exchange_send_eof(arg);
}

static void upload(struct call *call, enum wire_op op, struct buf *request)
{
	static const struct chan_ops ops = {
		.on_reply = on_up_reply,
		.on_writable = on_up_writable,
		.on_error = on_error,
		.on_closed = on_closed,
	};
	struct box *box = call_box(call);
	struct err err = ERR_INIT;
	struct transfer *transfer;

	if (box) {
		transfer = xnew(struct transfer);
		transfer->op = op;
		transfer->x.reading = true;
		exchange_init(&transfer->x, call, transfer_done);
		if (box_chan_open(box, op, request, &ops, transfer, &transfer->x.chan, &err) < 0)
			exchange_error(&transfer->x, &err);
		else
			http_request_stream_body(
				call->request, on_body_data, on_body_end, &transfer->x);
		exchange_settle(&transfer->x);
	}
	buf_done(request);
}

/* ---- the calls ------------------------------------------------------------------------------ */

void api_file_read(struct call *call)
{
	const char *path = call_query(call, "path");
	uint64_t offset = 0, length = 0;
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (input_path("path", path, &err) < 0 ||
		input_query_u64(call, "offset", 0, INT64_MAX, &offset, &err) < 0 ||
		input_query_u64(call, "length", 0, INT64_MAX, &length, &err) < 0)
		return call_error(call, &err);
	if (look(call,
		    &(struct look_spec){
			    .op = WIRE_OP_READ, .path = path, .offset = offset, .length = length }))
		return;
	wire_put_str(&request, path);
	wire_put_u64(&request, offset);
	wire_put_u64(&request, length);
	download(call, WIRE_OP_READ, &request);
}

void api_file_write(struct call *call)
{
	const char *path = call_query(call, "path");
	const char *mode_text = call_query(call, "mode");
	uint32_t mode = 0;
	bool parents = false;
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (input_path("path", path, &err) < 0 ||
		(mode_text && input_mode("mode", mode_text, &mode, &err) < 0) ||
		input_query_bool(call, "parents", &parents, &err) < 0)
		return call_error(call, &err);
	wire_put_str(&request, path);
	wire_put_u32(&request, mode);
	wire_put_u8(&request, parents);
	upload(call, WIRE_OP_WRITE, &request);
}

void api_file_list(struct call *call)
{
	const char *path = call_query(call, "path");
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (input_path("path", path, &err) < 0)
		return call_error(call, &err);
	if (look(call, &(struct look_spec){ .op = WIRE_OP_LIST, .path = path }))
		return;
	wire_put_str(&request, path);
	download(call, WIRE_OP_LIST, &request);
}

void api_archive_read(struct call *call)
{
	const char *path = call_query(call, "path");
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (input_path("path", path, &err) < 0)
		return call_error(call, &err);
	if (look(call, &(struct look_spec){ .op = WIRE_OP_TAR_OUT, .path = path }))
		return;
	wire_put_str(&request, path);
	download(call, WIRE_OP_TAR_OUT, &request);
}

void api_archive_write(struct call *call)
{
	const char *path = call_query(call, "path");
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (input_path("path", path, &err) < 0)
		return call_error(call, &err);
	wire_put_str(&request, path);
	upload(call, WIRE_OP_TAR_IN, &request);
}
