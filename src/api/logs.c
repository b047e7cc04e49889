/* logs.c - output of a program from an offset on, as lines or as plain bytes
 *
 * A reader of logs never makes the program wait: box-init goes on with its journal and tells a slow
 * reader what it missed. */
#include "api/api_internal.h"

enum { TAIL_MAX = 1000000, PIECES_MAX = EXEC_KEPT_MAX / 64 };

/* A piece of output held back until it is known whether it belongs to the last lines. */
struct piece {
	enum exec_stream which;
	uint64_t offset, time_us;
	size_t start, len; /* in held */
};

struct log_stream {
	struct exchange x;
	struct live live;
	bool raw;
	bool begun;
	bool holding;	   /* keeping past output, for tail */
	uint64_t tail;	   /* lines */
	uint64_t since_us; /* earlier output is left out; 0: none is */
	uint64_t past_end; /* offset where the past ends */
	struct buf held;   /* at most as much as the journal holds */
	struct piece *pieces;
	size_t piece_count;
};

static void stream_done(struct exchange *x)
{
	struct log_stream *stream = (struct log_stream *)x;

	live_remove(&stream->live);
	buf_done(&stream->held);
	free(stream->pieces);
	free(stream);
}

static struct buf *scratch(struct log_stream *stream)
{
	stream->x.api->scratch.len = stream->x.api->scratch.head = 0;
	return &stream->x.api->scratch;
}

static void send_line(struct log_stream *stream, const struct buf *line)
{
	if (!stream->raw)
		exchange_write(&stream->x, buf_head(line), line->len);
}

/* Plain bytes cannot carry an error: the connection is closed, so that nobody takes them for
 * complete. */
static void fail(struct log_stream *stream, const struct err *err)
{
	if (stream->begun && !stream->raw && stream->x.request) {
		struct buf *line = scratch(stream);

		ndjson_error(line, err);
		send_line(stream, line);
		exchange_end(&stream->x);
	} else {
		exchange_error(&stream->x, err);
	}
}

static void on_stop(struct live *live)
{
	struct log_stream *stream =
		(struct log_stream *)((char *)live - offsetof(struct log_stream, live));
	struct err err = ERR_INIT;

	err_set(&err, ERR_UNAVAILABLE, "the daemon stops");
	fail(stream, &err);
	exchange_close(&stream->x);
	exchange_settle(&stream->x);
}

static void on_started(struct exec *exec, const struct exec_info *info, void *arg)
{
	struct log_stream *stream = arg;
	struct buf *line = scratch(stream);

	(void)exec;
	http_reply_header(stream->x.request, "Box-Exec", info->id);
	http_reply_begin(stream->x.request, 200,
		stream->raw ? "application/octet-stream" : "application/x-ndjson");
	stream->begun = true;
	stream->past_end = info->newest;
	if (info->newest <= info->oldest)
		stream->holding = false;
	ndjson_start(line, exec_json(info));
	send_line(stream, line);
}

static void send_output(struct log_stream *stream, enum exec_stream which, uint64_t offset,
	uint64_t time_us, const void *data, size_t len)
{
	struct buf *line;

	if (stream->raw) {
		exchange_write(&stream->x, data, len);
		return;
	}
	line = scratch(stream);
	ndjson_output_at(line, which, offset, time_us, data, len);
	send_line(stream, line);
}

/* ---- the last lines ------------------------------------------------------------------------- */

/* Where the last lines begin in held. A last line without its newline counts as one. */
static size_t tail_start(const struct log_stream *stream)
{
	const char *data = (const char *)buf_head(&stream->held);
	size_t at = stream->held.len;
	uint64_t lines = 0;

	if (!stream->tail)
		return at;
	if (at && data[at - 1] == '\n')
		at--;
	while (at && !(data[at - 1] == '\n' && ++lines == stream->tail))
		at--;
	return at;
}

static void let_go(struct log_stream *stream)
{
	size_t from = tail_start(stream);

	stream->holding = false;
	for (size_t i = 0; i < stream->piece_count; i++) {
		const struct piece *piece = &stream->pieces[i];
		size_t skip = MIN(piece->len, from > piece->start ? from - piece->start : 0);

		if (skip < piece->len)
			send_output(stream, piece->which, piece->offset + skip, piece->time_us,
				(const char *)buf_head(&stream->held) + piece->start + skip,
				piece->len - skip);
	}
	buf_done(&stream->held);
}

static void hold(struct log_stream *stream, enum exec_stream which, uint64_t offset,
	uint64_t time_us, const void *data, size_t len)
{
	if (!(stream->piece_count & (stream->piece_count - 1)))
		xgrow(stream->pieces, MAX(stream->piece_count * 2, 64U));
	stream->pieces[stream->piece_count++] =
		(struct piece){ which, offset, time_us, stream->held.len, len };
	buf_add(&stream->held, data, len);
}

static bool holds_all(const struct log_stream *stream, uint64_t end)
{
	/* No journal holds more; a box-init that claims otherwise gets no memory for it. */
	return end >= stream->past_end || stream->held.len > EXEC_KEPT_MAX ||
	       stream->piece_count >= PIECES_MAX;
}

/* ---- callbacks ------------------------------------------------------------------------------ */

static void refuse_since(struct log_stream *stream)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_STATE, "this box was started by an earlier version, which kept no times");
	err_hint(&err, "leave out 'since', or stop and start the box");
	fail(stream, &err);
	exchange_close(&stream->x);
	exchange_settle(&stream->x);
}

static void on_output(struct exec *exec, enum exec_stream which, uint64_t offset, uint64_t time_us,
	const void *data, size_t len, void *arg)
{
	struct log_stream *stream = arg;
	bool wanted = time_us >= stream->since_us;

	(void)exec;
	if (stream->since_us && !time_us) {
		refuse_since(stream);
		return;
	}
	if (wanted && stream->holding)
		hold(stream, which, offset, time_us, data, len);
	else if (wanted)
		send_output(stream, which, offset, time_us, data, len);
	if (stream->holding && holds_all(stream, offset + len))
		let_go(stream);
	exchange_passed(&stream->x, len);
}

static void on_gap(struct exec *exec, uint64_t offset, uint64_t lost, void *arg)
{
	struct log_stream *stream = arg;
	struct buf *line = scratch(stream);

	(void)exec;
	/* A client that asks for the last lines, or the latest, knows that there are others. */
	if (stream->holding || stream->since_us)
		return;
	ndjson_gap(line, offset, lost);
	send_line(stream, line);
}

static void on_done(struct exec *exec, const struct exec_end *end, const struct err *err, void *arg)
{
	struct log_stream *stream = arg;

	(void)exec;
	stream->x.exec = NULL;
	if (err) {
		fail(stream, err);
		return exchange_settle(&stream->x);
	}
	if (stream->holding)
		let_go(stream);
	if (end) {
		struct buf *line = scratch(stream);

		ndjson_exit(line, end);
		send_line(stream, line);
	}
	exchange_end(&stream->x);
	exchange_settle(&stream->x);
}

void api_exec_logs(struct call *call)
{
	static const struct exec_ops ops = {
		.on_started = on_started,
		.on_output = on_output,
		.on_gap = on_gap,
		.on_done = on_done,
	};
	struct exec_attach_spec spec = { .id = call->params[1] };
	struct box *box = call_box(call);
	struct log_stream *stream;
	struct err err = ERR_INIT;
	uint64_t tail = 0, since_us = 0;
	bool raw = false;

	if (!box || !call_exec_id(call))
		return;
	if (input_query_offset(call, &spec.offset, &err) < 0 ||
		input_query_bool(call, "follow", &spec.follow, &err) < 0 ||
		input_query_bool(call, "raw", &raw, &err) < 0 ||
		input_query_u64(call, "tail", 0, TAIL_MAX, &tail, &err) < 0 ||
		input_query_time(call, "since", &since_us, &err) < 0)
		return call_error(call, &err);
	stream = xnew(struct log_stream);
	stream->raw = raw;
	stream->tail = tail;
	stream->since_us = since_us;
	stream->holding = call_query(call, "tail");
	exchange_init(&stream->x, call, stream_done);
	if (spec.follow)
		live_add(call->api, &stream->live, on_stop);
	if (exec_attach(box, &spec, &ops, stream, &stream->x.exec, &err) < 0)
		exchange_error(&stream->x, &err);
	exchange_settle(&stream->x);
}
