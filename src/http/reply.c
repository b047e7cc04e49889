/* reply.c - answers: whole, streamed, errors
 *
 * A whole answer is head and body in one system call. A streamed answer is chunked for HTTP/1.1;
 * for 1.0 it ends with the connection. Bytes go through conn_write(), which calls nothing back. */
#include "http/http_internal.h"
#include "base/log.h"
#include "base/text.h"
#include <assert.h>
#include <stdio.h>
#include <time.h>

enum { HEAD_MAX = 512, STREAMED = -1 };

static struct iovec part(const void *data, size_t len)
{
	return (struct iovec){ (void *)data, len };
}

static const char *date_now(struct http_server *server)
{
	time_t now = time(NULL);
	struct tm utc;

	if (now != server->date_at) {
		server->date_at = now;
		strftime(server->date, sizeof server->date, "%a, %d %b %Y %H:%M:%S GMT",
			gmtime_r(&now, &utc));
	}
	return server->date;
}

/* ---- the head ------------------------------------------------------------------------------- */

bool reply_keeps(const struct http_conn *conn)
{
	const struct http_head *head = &conn->parse.head;

	if (!head->keep_alive || conn->server->stopping)
		return false;
	if (conn->stage != CONN_BODY || !http_head_has_body(head))
		return true;
	/* A client that waits for 100 Continue may send the body or not, so nobody knows where the
	 * next request would begin. */
	if (head->expects_continue && !(conn->request && conn->request->continued))
		return false;
	return head->chunked || conn->parse.left <= HTTP_UNWANTED_MAX;
}

static bool status_has_body(int status)
{
	return status >= 200 && status != 204 && status != 304;
}

/* Fixed part of the head; own headers and the empty line follow. */
static size_t put_head(
	struct http_conn *conn, char *out, int status, const char *content_type, ssize_t length)
{
	char framing[64] = "";
	int len;

	if (length == STREAMED && conn->parse.head.minor)
		strcpy(framing, "Transfer-Encoding: chunked\r\n");
	else if (length != STREAMED && status_has_body(status))
		snprintf(framing, sizeof framing, "Content-Length: %zd\r\n", length);
	len = snprintf(out, HEAD_MAX, "HTTP/1.1 %d %s\r\nDate: %s\r\n%s%.200s%s%s%s", status,
		http_status_text(status), date_now(conn->server),
		content_type ? "Content-Type: " : "", content_type ? content_type : "",
		content_type ? "\r\n" : "", framing, conn->keep ? "" : "Connection: close\r\n");
	assert(len > 0 && len < HEAD_MAX);
	return (size_t)len;
}

static bool is_head_request(const struct http_request *request)
{
	return !strcmp(request->conn->parse.head.method, "HEAD");
}

void http_reply_header(struct http_request *request, const char *name, const char *value)
{
	if (request->finished)
		return;
	assert(!request->begun);
	for (const char *p = value; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f) {
			log_warn("answer header with a control byte left out",
				kv_str("header", name));
			return;
		}
	buf_add_str(&request->headers, name);
	buf_add(&request->headers, ": ", 2);
	buf_add_str(&request->headers, value);
	buf_add(&request->headers, "\r\n", 2);
}

/* ---- whole answers -------------------------------------------------------------------------- */

static void finish(struct http_request *request)
{
	struct http_conn *conn = request->conn;

	conn->request = NULL;
	request_free(request);
	conn_answered(conn);
}

static void put_whole(
	struct http_conn *conn, int status, const char *content_type, const void *body, size_t len)
{
	struct http_request *request = conn->request;
	char head[HEAD_MAX];
	struct iovec parts[4];
	unsigned count = 0;

	parts[count++] = part(head, put_head(conn, head, status, content_type, (ssize_t)len));
	if (request && request->headers.len)
		parts[count++] = part(buf_head(&request->headers), request->headers.len);
	parts[count++] = part("\r\n", 2);
	if (len && status_has_body(status) && !(request && is_head_request(request)))
		parts[count++] = part(body, len);
	conn_write(conn, parts, count, true);
}

void http_reply(struct http_request *request, int status, const char *content_type,
	const void *body, size_t len)
{
	struct http_conn *conn = request->conn;

	if (request->finished)
		return;
	assert(!request->begun);
	conn->keep = reply_keeps(conn);
	put_whole(conn, status, content_type, body, len);
	finish(request);
}

void http_reply_json(struct http_request *request, int status, json_t *value)
{
	_cleanup_json_ json_t *owned = value;
	_cleanup_free_ char *text = NULL;
	struct err err = ERR_INIT;

	http_request_filter(request, owned);
	text = json_text(owned);
	if (text)
		return http_reply(request, status, "application/json", text, strlen(text));
	err_set(&err, ERR_SYSTEM, "the answer cannot be written as JSON");
	http_reply_error(request, &err);
}

/* ---- errors --------------------------------------------------------------------------------- */

/* Messages quote what clients sent, which may not be UTF-8; JSON must be. */
static json_t *text_value(const char *text)
{
	_cleanup_free_ char *clean = NULL;

	if (text_is_utf8(text, strlen(text)))
		return json_string(text);
	clean = xstrdup(text);
	for (char *p = clean; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	return json_string(clean);
}

static char *error_text(const struct err *err)
{
	_cleanup_json_ json_t *value =
		json_pack("{s:{s:s,s:o,s:o}}", "error", "code", err_kind_code(err->kind), "message",
			text_value(err->message), "hint", text_value(err->hint));

	return json_text(value);
}

void reply_put_error(struct http_conn *conn, int status, const struct err *why)
{
	_cleanup_free_ char *text = error_text(why);

	put_whole(conn, status, "application/json", text, strlen(text));
}

void reply_error_as(struct http_request *request, int status, const struct err *err)
{
	struct http_conn *conn = request->conn;

	if (request->finished)
		return;
	if (request->begun) {
		conn->keep = false;
		conn->cut = true;
	} else {
		conn->keep = reply_keeps(conn);
		reply_put_error(conn, status, err);
	}
	finish(request);
}

void http_reply_error(struct http_request *request, const struct err *err)
{
	reply_error_as(request, err_kind_http_status(err->kind), err);
}

/* ---- streamed answers ----------------------------------------------------------------------- */

void http_reply_begin(struct http_request *request, int status, const char *content_type)
{
	struct http_conn *conn = request->conn;
	char head[HEAD_MAX];
	struct iovec parts[3];
	unsigned count = 0;

	if (request->finished)
		return;
	assert(!request->begun);
	conn->keep = reply_keeps(conn);
	request->chunked = conn->parse.head.minor > 0;
	parts[count++] = part(head, put_head(conn, head, status, content_type, STREAMED));
	if (request->headers.len)
		parts[count++] = part(buf_head(&request->headers), request->headers.len);
	parts[count++] = part("\r\n", 2);
	conn_write(conn, parts, count, false);
	request->begun = true;
}

void http_reply_write(struct http_request *request, const void *data, size_t len)
{
	char size[24];

	if (request->finished || !len || is_head_request(request))
		return;
	assert(request->begun);
	if (request->chunked) {
		int size_len = snprintf(size, sizeof size, "%zx\r\n", len);

		conn_write(request->conn,
			(struct iovec[]){
				part(size, (size_t)size_len), part(data, len), part("\r\n", 2) },
			3, false);
	} else {
		conn_write(request->conn, &(struct iovec){ (void *)data, len }, 1, false);
	}
	reply_note_drain(request);
}

void http_reply_end(struct http_request *request)
{
	struct http_conn *conn = request->conn;

	if (request->finished)
		return;
	assert(request->begun);
	if (request->chunked && !is_head_request(request))
		conn_write(conn, &(struct iovec){ (char *)"0\r\n\r\n", 5 }, 1, true);
	else
		conn_write(conn, NULL, 0, true);
	finish(request);
}

size_t http_reply_pending(const struct http_request *request)
{
	return request->finished ? 0 : request->conn->out.len;
}

void reply_note_drain(struct http_request *request)
{
	if (request->on_drain && request->conn->out.len >= request->low)
		request->above = true;
}

bool reply_tell_drain(struct http_request *request)
{
	if (!request->above || request->conn->out.len >= request->low)
		return false;
	request->above = false;
	request->on_drain(request, request->drain_arg);
	return true;
}

void http_reply_on_drain(struct http_request *request, size_t low,
	void (*fn)(struct http_request *request, void *arg), void *arg)
{
	if (request->finished)
		return;
	request->low = MAX(low, 1);
	request->on_drain = fn;
	request->drain_arg = arg;
	request->above = false;
	if (fn)
		reply_note_drain(request);
}
