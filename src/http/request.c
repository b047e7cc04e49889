/* request.c - one request: what the handler may ask of it, and its body
 *
 * The head stays in the connection's parser, which does not go on before the answer is complete.
 * The body is handed on as it is parsed, straight from the read buffer; only
 * http_request_read_body() collects it. */
#include "http/http_internal.h"
#include <assert.h>

struct http_request *request_new(struct http_conn *conn)
{
	struct http_request *request = xnew(struct http_request);

	request->conn = conn;
	request->id = ++conn->server->last_request;
	return request;
}

void request_free(struct http_request *request)
{
	url_done(&request->url);
	buf_done(&request->body);
	buf_done(&request->headers);
	if (request->asker)
		request->free_asker(request->asker);
	free(request);
}

void request_gone(struct http_request *request)
{
	request->conn->request = NULL;
	request->finished = true;
	if (request->gone)
		request->gone(request, request->gone_arg);
	request_free(request);
}

/* ---- what it says --------------------------------------------------------------------------- */

static const struct http_head *head_of(const struct http_request *request)
{
	return &request->conn->parse.head;
}

const char *http_request_method(const struct http_request *request)
{
	return head_of(request)->method;
}

const char *http_request_path(const struct http_request *request)
{
	return request->url.path;
}

const char *http_request_header(const struct http_request *request, const char *name)
{
	return http_head_get(head_of(request), name);
}

const char *http_request_query(const struct http_request *request, const char *key)
{
	return url_query(&request->url, key);
}

void http_request_each_query(const struct http_request *request,
	bool (*fn)(const char *key, const char *value, void *arg), void *arg)
{
	for (size_t i = 0; i < request->url.count; i++)
		if (!fn(request->url.pairs[i].key, request->url.pairs[i].value, arg))
			return;
}

enum http_transport http_request_transport(const struct http_request *request)
{
	return request->conn->transport;
}

const void *http_request_inner_who(const struct http_request *request)
{
	return request->conn->who;
}

uid_t http_request_peer_uid(const struct http_request *request)
{
	return request->conn->uid;
}

uint64_t http_request_id(const struct http_request *request)
{
	return request->id;
}

bool http_request_wants_websocket(const struct http_request *request)
{
	return http_head_has_token(head_of(request), "Upgrade", "websocket") &&
	       http_head_has_token(head_of(request), "Connection", "upgrade");
}

void http_request_set_data(struct http_request *request, void *data)
{
	request->data = data;
}

void http_request_set_asker(
	struct http_request *request, void *asker, void (*free_asker)(void *asker))
{
	if (request->asker)
		request->free_asker(request->asker);
	request->asker = asker;
	request->free_asker = free_asker;
}

void *http_request_get_asker(const struct http_request *request)
{
	return request->asker;
}

void http_request_filter_json(struct http_request *request, void (*fn)(json_t *value))
{
	request->filter = fn;
}

void http_request_filter(const struct http_request *request, json_t *value)
{
	if (request->filter)
		request->filter(value);
}

void *http_request_get_data(const struct http_request *request)
{
	return request->data;
}

void http_request_on_gone(struct http_request *request,
	void (*fn)(struct http_request *request, void *arg), void *arg)
{
	request->gone = fn;
	request->gone_arg = arg;
}

/* ---- its body ------------------------------------------------------------------------------- */

static bool is_too_large(const struct http_request *request)
{
	return request->body_mode == BODY_WHOLE && head_of(request)->length > request->body_max;
}

bool request_wants_body(const struct http_request *request)
{
	return request->body_mode != BODY_UNWANTED && !request->paused && !is_too_large(request);
}

static void refuse_large(struct http_request *request)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_TOO_LARGE, "the request's body is larger than %zu bytes",
		request->body_max);
	conn_refuse(request->conn, 413, &err);
}

void request_take_body(struct http_request *request, const char *data, size_t len)
{
	if (request->body_mode == BODY_STREAM)
		return request->on_data(request, data, len, request->body_arg);
	if (len > request->body_max - request->body.len)
		return refuse_large(request);
	buf_add(&request->body, data, len);
}

static void tell_end(struct http_request *request)
{
	struct buf whole = request->body;

	request->body_told = true;
	if (request->body_mode == BODY_STREAM) {
		if (request->on_end)
			request->on_end(request, request->body_arg);
		return;
	}
	request->body = (struct buf)BUF_INIT; /* the request may be freed during the call */
	request->on_whole(request, buf_str(&whole), whole.len, request->body_arg);
	buf_done(&whole);
}

void request_check_body(struct http_request *request)
{
	if (is_too_large(request) && !request->body_told)
		refuse_large(request);
	else if (request->body_ended && !request->body_told && request_wants_body(request))
		tell_end(request);
}

static void want_body(struct http_request *request, enum body_mode mode, void *arg)
{
	static const char continue_text[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct http_conn *conn = request->conn;

	if (request->finished)
		return;
	assert(request->body_mode == BODY_UNWANTED);
	request->body_mode = mode;
	request->body_arg = arg;
	conn->in_since = http_now_ms();
	if (head_of(request)->expects_continue && !request->begun && !is_too_large(request)) {
		request->continued = true;
		conn_write(conn, &(struct iovec){ (char *)continue_text, sizeof continue_text - 1 },
			1, true);
	}
	if (!conn->depth)
		conn_schedule(conn);
}

void http_request_read_body(struct http_request *request, size_t max,
	void (*fn)(struct http_request *request, const char *body, size_t len, void *arg),
	void *arg)
{
	request->body_max = max;
	request->on_whole = fn;
	want_body(request, BODY_WHOLE, arg);
}

void http_request_stream_body(struct http_request *request,
	void (*on_data)(struct http_request *request, const void *data, size_t len, void *arg),
	void (*on_end)(struct http_request *request, void *arg), void *arg)
{
	request->on_data = on_data;
	request->on_end = on_end;
	want_body(request, BODY_STREAM, arg);
}

void http_request_body_pause(struct http_request *request)
{
	request->paused = true;
}

void http_request_body_resume(struct http_request *request)
{
	if (!request->paused || request->finished)
		return;
	request->paused = false;
	request->conn->in_since = http_now_ms();
	if (!request->conn->depth)
		conn_schedule(request->conn);
}
