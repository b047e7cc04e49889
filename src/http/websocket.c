/* websocket.c - see websocket.h
 *
 * wslay reads: frames, masks, fragments, UTF-8, pings, the closing handshake. What it wants to say
 * itself (pongs, closes) it hands to send_callback, which queues it. Messages are framed here: a
 * server's frame is a header of at most ten bytes before the data, so they go out without wslay's
 * copy of them. Both ways queue whole frames, so they never mix.
 *
 * The end: once both sides have closed, or the client broke the rules, ws_is_over() is true and the
 * connection takes the WebSocket off itself, tells its owner, and goes on to flush and linger. */
#include "http/websocket.h"
#include "base/text.h"
#include "http/http_internal.h"
#include <openssl/sha.h>
#include <wslay/wslay.h>

enum { LOW_MARK = 64 * 1024, REASON_MAX = 123 };

struct websocket {
	struct http_conn *conn;
	wslay_event_context_ptr wslay;
	const struct websocket_ops *ops;
	void *arg;
	const char *input; /* while wslay reads */
	size_t input_len;
	bool receiving;
	bool paused;
	bool closing; /* one side has closed: no more messages */
	bool failed;
	bool gone; /* freed while wslay was reading */
	bool above;
	int64_t closing_since;
	int64_t pinged;
};

/* ---- wslay's side --------------------------------------------------------------------------- */

static ssize_t recv_callback(
	wslay_event_context_ptr wslay, uint8_t *buf, size_t len, int flags, void *arg)
{
	struct websocket *ws = arg;

	(void)flags;
	if (!ws->input_len || ws->paused || ws->gone) {
		wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	len = MIN(len, ws->input_len);
	memcpy(buf, ws->input, len);
	ws->input += len;
	ws->input_len -= len;
	return (ssize_t)len;
}

static ssize_t send_callback(
	wslay_event_context_ptr wslay, const uint8_t *data, size_t len, int flags, void *arg)
{
	struct websocket *ws = arg;

	(void)wslay;
	(void)flags;
	conn_write(ws->conn, &(struct iovec){ (void *)data, len }, 1, false);
	return (ssize_t)len;
}

static void on_msg_recv(
	wslay_event_context_ptr wslay, const struct wslay_event_on_msg_recv_arg *message, void *arg)
{
	struct websocket *ws = arg;

	(void)wslay;
	if (message->opcode == WSLAY_CONNECTION_CLOSE)
		ws->closing = true;
	if (ws->closing || wslay_is_ctrl_frame(message->opcode))
		return;
	ws->ops->on_message(ws, message->opcode == WSLAY_BINARY_FRAME, message->msg,
		message->msg_length, ws->arg);
}

static const struct wslay_event_callbacks callbacks = {
	.recv_callback = recv_callback,
	.send_callback = send_callback,
	.on_msg_recv_callback = on_msg_recv,
};

static void ws_free(struct websocket *ws)
{
	wslay_event_context_free(ws->wslay);
	free(ws);
}

/* ---- the connection's side ------------------------------------------------------------------ */

size_t ws_take(struct websocket *ws, const char *data, size_t len)
{
	size_t left;

	if (!len)
		return 0;
	ws->input = data;
	ws->input_len = len;
	ws->receiving = true;
	ws->failed |= wslay_event_recv(ws->wslay) < 0;
	ws->receiving = false;
	left = ws->input_len;
	if (ws->gone) {
		ws_free(ws);
		return len;
	}
	ws->failed |= wslay_event_send(ws->wslay) < 0;
	return wslay_event_get_read_enabled(ws->wslay) ? len - left : len;
}

bool ws_wants_read(const struct websocket *ws)
{
	return !ws->paused && !ws_is_over(ws) && ws->conn->out.len < HTTP_SOCKET_OUT_MAX;
}

bool ws_tell_drain(struct websocket *ws)
{
	if (!ws->above || ws->conn->out.len >= LOW_MARK || ws->closing)
		return false;
	ws->above = false;
	if (ws->ops->on_drain)
		ws->ops->on_drain(ws, ws->arg);
	return true;
}

bool ws_is_over(const struct websocket *ws)
{
	return ws->failed || (wslay_event_get_close_sent(ws->wslay) &&
				     (wslay_event_get_close_received(ws->wslay) ||
					     !wslay_event_get_read_enabled(ws->wslay)));
}

void ws_tick(struct websocket *ws, int64_t now)
{
	const struct http_limits *limits = &ws->conn->server->limits;
	struct http_conn *conn = ws->conn;

	if (ws->closing) {
		if (!conn->out.len &&
			now - MAX(ws->closing_since, conn->out_since) > limits->linger)
			conn_end(conn);
		return;
	}
	if (!ws_wants_read(ws))
		return; /* the reader has paused, so the silence is not the client's */
	if (now - conn->in_since > limits->silence) {
		conn_end(conn);
	} else if (now - MAX(conn->in_since, ws->pinged) > limits->ping) {
		ws->pinged = now;
		wslay_event_queue_msg(ws->wslay, &(struct wslay_event_msg){ .opcode = WSLAY_PING });
		wslay_event_send(ws->wslay);
	}
}

void ws_gone(struct websocket *ws)
{
	ws->conn->ws = NULL;
	ws->closing = true;
	ws->ops->on_close(ws, ws->arg);
	if (ws->receiving)
		ws->gone = true;
	else
		ws_free(ws);
}

/* ---- the handshake -------------------------------------------------------------------------- */

static void accept_value(const char *key, char **ret)
{
	static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	_cleanup_free_ char *text = xasprintf("%s%s", key, guid);
	uint8_t digest[SHA_DIGEST_LENGTH];

	SHA1((const uint8_t *)text, strlen(text), digest);
	*ret = base64_encode(digest, sizeof digest);
}

static bool is_key(const char *text)
{
	_cleanup_free_ uint8_t *key = NULL;
	size_t len = 0;

	return text && strlen(text) == 24 && base64_decode(text, 24, &key, &len, NULL) == 0 &&
	       len == 16;
}

/* 0, or the HTTP status to answer. */
static int check_handshake(struct http_request *request, struct err *err)
{
	const struct http_head *head = &request->conn->parse.head;
	const char *version = http_head_get(head, "Sec-WebSocket-Version");

	if (!http_request_wants_websocket(request)) {
		err_set(err, ERR_INVALID, "this needs a WebSocket");
		err_hint(err, "send Connection: Upgrade and Upgrade: websocket");
		http_reply_header(request, "Upgrade", "websocket");
		return 426;
	}
	if (!version || strcmp(version, "13")) {
		err_set(err, ERR_INVALID, "the WebSocket version must be 13");
		http_reply_header(request, "Sec-WebSocket-Version", "13");
		return 426;
	}
	if (strcmp(head->method, "GET") || !head->minor || http_head_has_body(head)) {
		err_set(err, ERR_INVALID, "a WebSocket begins with GET, HTTP/1.1 and no body");
		return 400;
	}
	if (!is_key(http_head_get(head, "Sec-WebSocket-Key"))) {
		err_set(err, ERR_INVALID, "Sec-WebSocket-Key must be 16 bytes in base64");
		return 400;
	}
	return 0;
}

static void put_101(struct http_request *request)
{
	_cleanup_free_ char *accept = NULL;
	_cleanup_free_ char *head = NULL;

	accept_value(http_request_header(request, "Sec-WebSocket-Key"), &accept);
	head = xasprintf(
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		"Sec-WebSocket-Accept: %s\r\n%s\r\n",
		accept, request->headers.len ? buf_str(&request->headers) : "");
	conn_write(request->conn, &(struct iovec){ head, strlen(head) }, 1, true);
}

struct websocket *ws_accept(struct http_request *request, size_t max_message,
	const struct websocket_ops *ops, void *arg)
{
	struct http_conn *conn = request->conn;
	struct websocket *ws;
	struct err err = ERR_INIT;
	int refused;

	if (request->finished)
		return NULL;
	refused = check_handshake(request, &err);
	if (refused) {
		reply_error_as(request, refused, &err);
		return NULL;
	}
	put_101(request);
	conn->request = NULL;
	request_free(request);
	ws = xnew(struct websocket);
	ws->conn = conn;
	ws->ops = ops;
	ws->arg = arg;
	if (wslay_event_context_server_init(&ws->wslay, &callbacks, ws) < 0)
		abort(); /* out of memory */
	wslay_event_config_set_max_recv_msg_length(ws->wslay, max_message);
	conn->ws = ws;
	conn->stage = CONN_SOCKET;
	conn->in_since = http_now_ms();
	if (!conn->depth)
		conn_schedule(conn);
	return ws;
}

/* ---- the owner's side ----------------------------------------------------------------------- */

static void send_frame(struct websocket *ws, uint8_t opcode, struct iovec tag, struct iovec data)
{
	uint64_t len = tag.iov_len + data.iov_len;
	uint8_t head[10] = { (uint8_t)(0x80 | opcode) };
	size_t head_len = 2;

	if (ws->closing)
		return;
	if (len < 126) {
		head[1] = (uint8_t)len;
	} else {
		unsigned bytes = len < 65536 ? 2 : 8;

		head[1] = bytes == 2 ? 126 : 127;
		head_len += bytes;
		for (unsigned i = 0; i < bytes; i++)
			head[2 + i] = (uint8_t)(len >> (8 * (bytes - 1 - i)));
	}
	conn_write(ws->conn, (struct iovec[]){ { head, head_len }, tag, data }, 3, false);
	ws->above |= ws->conn->out.len >= LOW_MARK;
}

void ws_send(struct websocket *ws, bool binary, const void *data, size_t len)
{
	send_frame(ws, binary ? WSLAY_BINARY_FRAME : WSLAY_TEXT_FRAME, (struct iovec){ 0 },
		(struct iovec){ (void *)data, len });
}

void ws_send_tagged(struct websocket *ws, uint8_t tag, const void *data, size_t len)
{
	send_frame(ws, WSLAY_BINARY_FRAME, (struct iovec){ &tag, 1 },
		(struct iovec){ (void *)data, len });
}

size_t ws_pending(const struct websocket *ws)
{
	return ws->conn->out.len;
}

void ws_pause(struct websocket *ws)
{
	ws->paused = true;
}

void ws_resume(struct websocket *ws)
{
	if (!ws->paused)
		return;
	ws->paused = false;
	ws->conn->in_since = http_now_ms();
	if (!ws->conn->depth)
		conn_schedule(ws->conn);
}

void ws_close(struct websocket *ws, uint16_t code, const char *reason)
{
	size_t len = reason ? strlen(reason) : 0;

	if (ws->closing)
		return;
	for (len = MIN(len, REASON_MAX); len && ((uint8_t)reason[len] & 0xc0) == 0x80;)
		len--; /* cut at the beginning of a character */
	ws->closing = true;
	ws->paused = false; /* so that the client's own close is seen */
	ws->closing_since = http_now_ms();
	wslay_event_queue_close(ws->wslay, code, (const uint8_t *)reason, len);
	if (ws->receiving)
		return;
	ws->failed |= wslay_event_send(ws->wslay) < 0;
	if (!ws->conn->depth)
		conn_schedule(ws->conn);
}
