/* pump.c - streams bytes from a helper as an answer
 *
 *   helper -> pipe -> disk_stream -> http -> client
 *
 * Each step is bounded: above API_PENDING_MAX bytes that the client has not read, the stream is
 * paused, the pipe fills up and the helper waits. The answer begins with the first byte, so that an
 * earlier failure is an ordinary error answer; after that bytes cannot carry an error, and the
 * connection is closed. */
#include "api/api_internal.h"
#include "base/log.h"

enum { READ_SIZE = 128 * 1024 };

static void pump_free(struct pump *pump)
{
	disk_stream_free(pump->stream);
	free(pump);
}

static void begin(struct pump *pump)
{
	if (pump->begun)
		return;
	pump->begun = true;
	http_reply_begin(pump->request, 200, pump->content_type);
}

/* Reads once per round of the loop, so that other clients have their turn. */
static void on_readable(struct disk_stream *stream, void *arg)
{
	struct pump *pump = arg;
	struct buf *bytes = &pump->api->scratch;
	size_t len;

	bytes->len = bytes->head = 0;
	len = disk_stream_read(stream, buf_room(bytes, READ_SIZE), READ_SIZE);
	if (!len)
		return;
	begin(pump);
	http_reply_write(pump->request, bytes->data, len);
	if (http_reply_pending(pump->request) > API_PENDING_MAX)
		disk_stream_pause(stream, true);
}

static void on_done(struct disk_stream *stream, const struct err *err, void *arg)
{
	struct pump *pump = arg;

	(void)stream;
	if (err) {
		if (pump->begun)
			log_warn("a stream was cut short", kv_err(err),
				kv_int("request", http_request_id(pump->request)));
		http_reply_error(pump->request, err);
	} else {
		begin(pump);
		http_reply_end(pump->request);
	}
	pump_free(pump);
}

const struct disk_stream_ops pump_ops = { .on_readable = on_readable, .on_done = on_done };

static void on_drain(struct http_request *request, void *arg)
{
	struct pump *pump = arg;

	(void)request;
	disk_stream_pause(pump->stream, false);
}

static void on_gone(struct http_request *request, void *arg)
{
	(void)request;
	pump_free(arg);
}

struct pump *pump_new(struct call *call, const char *content_type)
{
	struct pump *pump = xnew(struct pump);

	*pump = (struct pump){
		.api = call->api, .request = call->request, .content_type = content_type
	};
	return pump;
}

void pump_started(struct pump *pump, int started, const struct err *err)
{
	if (started < 0) {
		http_reply_error(pump->request, err);
		return pump_free(pump);
	}
	http_request_on_gone(pump->request, on_gone, pump);
	http_reply_on_drain(pump->request, API_PENDING_MAX, on_drain, pump);
}
