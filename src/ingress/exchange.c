/* exchange.c - one request to a box, and its response
 *
 *   connect ──> head out, body out ──> response head in ──> body in ──> connection kept or closed
 *                                            └── 101 ──> tunnel: bytes both ways until both have
 *                                            ended
 *
 * Bodies are passed on in pieces as they come: a client that sends faster than the box reads is
 * paused, a box that sends faster than the client reads is not read. The response may come
 * before the request's body is complete; then both continue, and if the response ends first the
 * rest of the body is not sent.
 *
 * The box may close an idle connection at the moment a request is sent on it. If no byte of a
 * response has come, an idempotent request without a body is sent again on a new connection;
 * others fail.
 *
 * During an exchange a timer checks again whether it would still be accepted: revoking a token
 * or closing a port ends the exchanges that used it. */
#include "base/text.h"
#include "ingress/ingress_internal.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { TUNNEL_PENDING_MAX = 64 * 1024 }; /* http_tunnel reports a drain not below this */

struct exchange {
	struct ingress *ingress;
	struct exchange *prev, *next; /* of all */
	struct http_request *request; /* NULL once it was answered or aborted */
	struct http_tunnel *tunnel;
	struct backend *backend;
	struct aim aim;
	struct buf head; /* as sent to the box; kept while it may be sent again */
	bool head_request, upgrade, has_body, chunked, safe;
	bool sent; /* the head was */
	bool body_done;
	bool begun; /* the client has received the response head */
	bool retried;
};

static const struct backend_ops backend_ops;

static void exchange_free(struct exchange *exchange)
{
	if (exchange->prev)
		exchange->prev->next = exchange->next;
	else
		exchange->ingress->exchanges = exchange->next;
	if (exchange->next)
		exchange->next->prev = exchange->prev;
	buf_done(&exchange->head);
	free(exchange);
}

/* ---- failing -------------------------------------------------------------------------------- */

static void fail_with(struct exchange *exchange, int status, enum err_kind kind, const char *title,
	const char *text, const char *hint)
{
	struct http_request *request = exchange->request;
	struct err err = ERR_INIT;

	backend_close(exchange->backend);
	if (exchange->begun) {
		err_set(&err, kind, "%s", text);
		http_reply_error(request, &err); /* closes the connection */
	} else {
		page_reply(request, &(struct page){ .status = status,
					    .kind = kind,
					    .title = title,
					    .text = text,
					    .hint = hint });
	}
	exchange_free(exchange);
}

static void fail_bad(struct exchange *exchange, const char *why)
{
	char text[256];

	snprintf(text, sizeof text, "port %u of box '%s' gave no proper answer: %s",
		exchange->aim.port, exchange->aim.box.name, why);
	fail_with(exchange, 502, ERR_PROTOCOL, "No proper answer", text, "");
}

static void fail_connect(struct exchange *exchange, const struct err *err)
{
	const struct aim *aim = &exchange->aim;
	char text[256], hint[160];

	if (err->kind == ERR_LIMIT)
		return fail_with(exchange, 503, ERR_LIMIT, "Too much at once", err->message, "");
	if (err->kind == ERR_STATE || (exchange->backend && backend_problem(exchange->backend)))
		return fail_with(
			exchange, 503, ERR_STATE, "The box does not run", err->message, err->hint);
	snprintf(text, sizeof text,
		err->errno_value == ETIMEDOUT ? "port %u of box '%s' does not answer"
					      : "nothing listens on port %u of box '%s'",
		aim->port, aim->box.name);
	snprintf(hint, sizeof hint, "box exec %s -- ss -ltn", aim->box.name);
	fail_with(exchange, 502, ERR_UNAVAILABLE, "Nothing listens there", text, hint);
}

/* ---- the request, to the box ---------------------------------------------------------------- */

static void on_body_data(struct http_request *request, const void *data, size_t len, void *arg)
{
	struct exchange *exchange = arg;
	char size[24];
	int size_len = snprintf(size, sizeof size, "%zx\r\n", len);

	if (exchange->chunked)
		backend_write(exchange->backend,
			(struct iovec[]){ { size, (size_t)size_len }, { (void *)data, len },
				{ (char *)"\r\n", 2 } },
			3);
	else
		backend_write(exchange->backend, &(struct iovec){ (void *)data, len }, 1);
	if (backend_pending(exchange->backend))
		http_request_body_pause(request);
}

static void on_body_end(struct http_request *request, void *arg)
{
	struct exchange *exchange = arg;

	(void)request;
	exchange->body_done = true;
	if (exchange->chunked)
		backend_write(exchange->backend, &(struct iovec){ (char *)"0\r\n\r\n", 5 }, 1);
}

static void send_request(struct exchange *exchange)
{
	answer_reset(backend_answer(exchange->backend), exchange->head_request, exchange->upgrade);
	exchange->sent = true;
	backend_used(exchange->backend, true);
	backend_write(exchange->backend,
		&(struct iovec){ buf_head(&exchange->head), exchange->head.len }, 1);
	if (exchange->has_body)
		http_request_stream_body(exchange->request, on_body_data, on_body_end, exchange);
}

static int open_backend(struct exchange *exchange, bool fresh, struct err *err)
{
	if (backend_open(exchange->ingress, exchange->aim.box.id, exchange->aim.port, fresh,
		    &backend_ops, exchange, &exchange->backend, err) < 0)
		return -1;
	if (backend_is_connected(exchange->backend))
		send_request(exchange);
	return 0;
}

static void on_connected(struct backend *backend, void *owner)
{
	(void)backend;
	send_request(owner);
}

static void on_backend_drain(struct backend *backend, void *owner)
{
	struct exchange *exchange = owner;

	(void)backend;
	if (exchange->tunnel)
		http_tunnel_resume(exchange->tunnel);
	else if (exchange->request)
		http_request_body_resume(exchange->request);
}

/* ---- the response, to the client ------------------------------------------------------------ */

/* "timeout=5" in the box's Keep-Alive, less a second; 0: there is none. */
static unsigned keep_for(const struct answer *answer)
{
	const char *value = answer_get(answer, "Keep-Alive");
	const char *timeout = value ? strstr(value, "timeout=") : NULL;
	long seconds = timeout ? strtol(timeout + 8, NULL, 10) : 0;

	if (!timeout || seconds <= 0 || seconds > 3600)
		return 0;
	return seconds == 1 ? 500 : (unsigned)(seconds - 1) * 1000;
}

/* extra: the box sent more than its response, so its next bytes could be taken for another
 * response. */
static void finish(struct exchange *exchange, bool extra)
{
	const struct answer *answer = backend_answer(exchange->backend);
	struct buf trailers = BUF_INIT;

	if (answer->body == BODY_CHUNKED && answer->trailers.len)
		headers_put_trailers(answer, &trailers);
	http_pass_trailers(exchange->request, &trailers);
	buf_done(&trailers);
	if (answer->keep && !extra && exchange->body_done)
		backend_keep(exchange->backend, keep_for(answer));
	else
		backend_close(exchange->backend);
	exchange_free(exchange);
}

static void on_client_drain(struct http_request *request, void *arg)
{
	struct exchange *exchange = arg;

	(void)request;
	backend_pause(exchange->backend, false);
}

static void begin(struct exchange *exchange)
{
	const struct answer *answer = backend_answer(exchange->backend);
	struct buf lines = BUF_INIT;
	struct http_pass pass = { .status = answer->status,
		.reason = answer->reason,
		.headers = &lines,
		.length = HTTP_LENGTH_UNKNOWN };

	headers_put_answer(answer, false, &lines);
	if (answer->has_length && answer->status != 204)
		pass.length = (int64_t)answer->length;
	else if (answer->body == BODY_NONE_AT_ALL)
		pass.length = HTTP_LENGTH_NONE;
	exchange->begun = true;
	http_pass_begin(exchange->request, &pass);
	http_reply_on_drain(exchange->request, INGRESS_READ_MIN, on_client_drain, exchange);
	buf_done(&lines);
}

static void begin_tunnel(struct exchange *exchange, const char *data, size_t len);

static void on_data(struct backend *backend, const char *data, size_t len, void *owner)
{
	struct exchange *exchange = owner;
	struct answer_piece piece;
	size_t used = 0;

	if (exchange->tunnel) {
		http_tunnel_write(exchange->tunnel, data, len);
		if (http_tunnel_pending(exchange->tunnel) > TUNNEL_PENDING_MAX)
			backend_pause(backend, true);
		return;
	}
	for (;;) {
		used += answer_next(backend_answer(backend), data + used, len - used, &piece);
		switch (piece.kind) {
		case ANSWER_MORE:
			if (exchange->begun && http_reply_pending(exchange->request) >
						       backends_share(exchange->ingress))
				backend_pause(backend, true);
			return;
		case ANSWER_HEAD:
			if (backend_answer(backend)->status == 101)
				return begin_tunnel(exchange, data + used, len - used);
			begin(exchange);
			break;
		case ANSWER_BODY:
			http_reply_write(exchange->request, piece.data, piece.len);
			break;
		case ANSWER_END:
			return finish(exchange, used < len);
		case ANSWER_BAD:
			return fail_bad(exchange, piece.why);
		}
	}
}

/* ---- ends ----------------------------------------------------------------------------------- */

static bool may_retry(const struct exchange *exchange)
{
	return backend_is_reused(exchange->backend) && !exchange->retried && exchange->safe &&
	       !exchange->has_body && answer_is_untouched(backend_answer(exchange->backend));
}

static void on_end(struct backend *backend, int failed, void *owner)
{
	struct exchange *exchange = owner;
	struct err err = ERR_INIT;

	if (exchange->tunnel) {
		if (failed)
			http_tunnel_cut(exchange->tunnel);
		else
			http_tunnel_shut(exchange->tunnel);
		return;
	}
	if (!exchange->sent) {
		if (backend_problem(backend))
			err = *backend_problem(backend);
		else
			err_sys(&err, failed ? failed : ECONNREFUSED, "connect");
		return fail_connect(exchange, &err);
	}
	if (!failed && answer_ends_by_close(backend_answer(backend)))
		return finish(exchange, true);
	if (may_retry(exchange)) {
		exchange->retried = true;
		exchange->sent = false;
		backend_close(steal_ptr(&exchange->backend));
		if (open_backend(exchange, true, &err) < 0)
			fail_connect(exchange, &err);
		return;
	}
	fail_bad(exchange, failed ? strerror(failed) : "the connection was closed");
}

static const struct backend_ops backend_ops = {
	.on_connected = on_connected,
	.on_data = on_data,
	.on_drain = on_backend_drain,
	.on_end = on_end,
};

static void on_client_gone(struct http_request *request, void *arg)
{
	struct exchange *exchange = arg;

	(void)request;
	backend_close(exchange->backend);
	exchange_free(exchange);
}

/* ---- tunnels -------------------------------------------------------------------------------- */

static void on_tunnel_data(struct http_tunnel *tunnel, const void *data, size_t len, void *arg)
{
	struct exchange *exchange = arg;

	backend_write(exchange->backend, &(struct iovec){ (void *)data, len }, 1);
	if (backend_is_broken(exchange->backend))
		http_tunnel_cut(tunnel);
	else if (backend_pending(exchange->backend))
		http_tunnel_pause(tunnel);
}

static void on_tunnel_eof(struct http_tunnel *tunnel, void *arg)
{
	struct exchange *exchange = arg;

	(void)tunnel;
	backend_shut(exchange->backend);
}

static void on_tunnel_drain(struct http_tunnel *tunnel, void *arg)
{
	struct exchange *exchange = arg;

	(void)tunnel;
	backend_pause(exchange->backend, false);
}

static void on_tunnel_gone(struct http_tunnel *tunnel, void *arg)
{
	struct exchange *exchange = arg;

	(void)tunnel;
	backend_close(exchange->backend);
	exchange_free(exchange);
}

static const struct http_tunnel_ops tunnel_ops = {
	.on_data = on_tunnel_data,
	.on_eof = on_tunnel_eof,
	.on_drain = on_tunnel_drain,
	.on_gone = on_tunnel_gone,
};

/* data: the bytes that the box sent right after its 101. */
static void begin_tunnel(struct exchange *exchange, const char *data, size_t len)
{
	struct buf lines = BUF_INIT;

	headers_put_answer(backend_answer(exchange->backend), true, &lines);
	exchange->tunnel =
		http_tunnel_accept(steal_ptr(&exchange->request), &lines, &tunnel_ops, exchange);
	if (len)
		http_tunnel_write(exchange->tunnel, data, len);
	buf_done(&lines);
}

/* ---- checking access again ------------------------------------------------------------------ */

static bool is_still_let_in(const struct exchange *exchange)
{
	const struct ingress *ingress = exchange->ingress;
	const struct aim *aim = &exchange->aim;

	return *aim->token ? ingress->ops.has_token(aim->box.id, aim->token, ingress->arg)
			   : ingress->ops.is_public(aim->box.id, aim->port, ingress->arg);
}

void exchanges_check(struct ingress *ingress)
{
	for (struct exchange *exchange = ingress->exchanges, *next; exchange; exchange = next) {
		next = exchange->next;
		if (is_still_let_in(exchange))
			continue;
		if (exchange->tunnel)
			http_tunnel_cut(exchange->tunnel);
		else
			fail_with(exchange, 401, ERR_UNAUTHORIZED, "No entry",
				"this port was closed, or the token revoked", "");
	}
}

/* ---- starting ------------------------------------------------------------------------------- */

static bool is_safe(const char *method)
{
	static const char *const safe[] = { "GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE" };

	for (size_t i = 0; i < ARRAY_LEN(safe); i++)
		if (!strcmp(method, safe[i]))
			return true;
	return false;
}

void exchange_start(struct ingress *ingress, struct http_request *request, const struct aim *aim)
{
	const struct http_head *head = http_request_head(request);
	struct exchange *exchange = xnew(struct exchange);
	struct err err = ERR_INIT;

	exchange->ingress = ingress;
	exchange->next = ingress->exchanges;
	if (exchange->next)
		exchange->next->prev = exchange;
	ingress->exchanges = exchange;
	backends_tick(ingress);
	exchange->request = request;
	exchange->aim = *aim;
	exchange->head_request = !strcmp(head->method, "HEAD");
	exchange->has_body = http_head_has_body(head);
	exchange->body_done = !exchange->has_body;
	exchange->chunked = head->chunked;
	exchange->safe = is_safe(head->method);
	exchange->upgrade = !exchange->has_body && head->minor && http_head_get(head, "Upgrade") &&
			    http_head_has_token(head, "Connection", "upgrade");
	headers_put_request(head,
		&(struct headers_from){ .peer = http_request_peer(request),
			.proto = http_request_transport(request) == HTTP_TRANSPORT_TLS ? "https"
										       : "http",
			.upgrade = exchange->upgrade },
		&exchange->head);
	http_request_on_gone(request, on_client_gone, exchange);
	if (open_backend(exchange, false, &err) < 0)
		fail_connect(exchange, &err);
}
