/* transfer.c - work on files of a box as an answer: bytes and archives both ways, lists, one file
 *
 * Downloads: the answer begins with the first byte, so that a missing file is an ordinary error
 * answer; a later error closes the connection, since bytes cannot carry it. Uploads: the body goes
 * into the box as fast as it takes it, and the answer comes when all of it is safely written. A
 * client that disconnects cancels the work. */
#include "api/api_internal.h"
#include <stdio.h>

struct transfer {
	struct exchange x;
	enum file_verb verb;
	bool begun;
	bool some; /* entries of a list were written */
	struct buf entries;
};

static void transfer_done(struct exchange *x)
{
	struct transfer *transfer = (struct transfer *)x;

	buf_done(&transfer->entries);
	free(transfer);
}

/* ---- from the box to the client ------------------------------------------------------------- */

static void begin(struct transfer *transfer)
{
	static const char *const types[FILE_VERB_COUNT] = {
		[FILE_READ] = "application/octet-stream",
		[FILE_LIST] = "application/json",
		[FILE_TAR_OUT] = "application/x-tar",
	};

	if (transfer->begun)
		return;
	transfer->begun = true;
	http_reply_begin(transfer->x.request, 200, types[transfer->verb]);
	if (transfer->verb == FILE_LIST)
		exchange_write(&transfer->x, "{\"entries\":[", 12);
}

static void add_entry(struct transfer *transfer, const struct file_info *info)
{
	_cleanup_json_ json_t *entry = file_json(info);

	if (transfer->some)
		buf_add(&transfer->entries, ",", 1);
	transfer->some = true;
	ndjson_add(&transfer->entries, entry);
}

static void begin_read(struct transfer *transfer, const struct file_info *info)
{
	char text[32];

	snprintf(text, sizeof text, "%llu", (unsigned long long)info->size);
	http_reply_header(transfer->x.request, "Box-File-Size", text);
	snprintf(text, sizeof text, "%04o", info->mode & 07777);
	http_reply_header(transfer->x.request, "Box-File-Mode", text);
	begin(transfer);
}

static void on_info(const struct file_info *info, void *arg)
{
	struct transfer *transfer = arg;

	if (transfer->verb == FILE_LIST)
		add_entry(transfer, info);
	else if (transfer->verb == FILE_READ)
		begin_read(transfer, info);
	else
		exchange_json(&transfer->x, 200, file_json(info));
}

static void on_data(const void *data, size_t len, void *arg)
{
	struct transfer *transfer = arg;
	struct buf *entries = &transfer->entries;

	begin(transfer);
	if (data) {
		exchange_write(&transfer->x, data, len);
	} else {
		exchange_write(&transfer->x, buf_head(entries), entries->len);
		buf_eat(entries, entries->len);
	}
	exchange_passed(&transfer->x, len);
}

static void on_unpacked(uint64_t files, uint64_t bytes, void *arg)
{
	struct transfer *transfer = arg;

	exchange_json(&transfer->x, 200,
		json_pack(
			"{s:o,s:o}", "files", json_from_u64(files), "bytes", json_from_u64(bytes)));
}

static void on_done(const struct err *err, void *arg)
{
	struct transfer *transfer = arg;
	bool streamed = transfer->verb == FILE_READ || transfer->verb == FILE_LIST ||
			transfer->verb == FILE_TAR_OUT;

	transfer->x.task = NULL;
	if (err) {
		exchange_error(&transfer->x, err);
	} else if (streamed) {
		begin(transfer);
		if (transfer->verb == FILE_LIST)
			exchange_write(&transfer->x, "]}", 2);
		exchange_end(&transfer->x);
	} else {
		exchange_none(&transfer->x); /* does nothing when all was sent */
	}
	exchange_settle(&transfer->x);
}

/* ---- from the client to the box ------------------------------------------------------------- */

static void on_writable(void *arg)
{
	struct transfer *transfer = arg;

	if (transfer->x.request)
		http_request_body_resume(transfer->x.request);
}

static void on_body_data(struct http_request *request, const void *data, size_t len, void *arg)
{
	struct transfer *transfer = arg;

	if (transfer->x.task && !task_write(transfer->x.task, data, len))
		http_request_body_pause(request);
}

static void on_body_end(struct http_request *request, void *arg)
{
	struct transfer *transfer = arg;

	(void)request;
	if (transfer->x.task)
		task_write_end(transfer->x.task);
}

void transfer(struct call *call, const struct file_spec *spec)
{
	static const struct file_ops ops = {
		.on_info = on_info,
		.on_data = on_data,
		.on_unpacked = on_unpacked,
		.on_writable = on_writable,
		.on_done = on_done,
	};
	struct box *box = call_box(call);
	struct err err = ERR_INIT;
	struct transfer *transfer;

	if (!box)
		return;
	transfer = xnew(struct transfer);
	transfer->verb = spec->verb;
	exchange_init(&transfer->x, call, transfer_done);
	if (file_start(box, spec, &ops, transfer, &transfer->x.task, &err) < 0)
		exchange_error(&transfer->x, &err);
	else if (spec->verb == FILE_WRITE || spec->verb == FILE_TAR_IN)
		http_request_stream_body(call->request, on_body_data, on_body_end, transfer);
	exchange_settle(&transfer->x);
}
