/* wsclient.c - see wsclient.h
 *
 * RFC 6455 without extensions. A frame's head (2 to 10 bytes; frames of a server are not masked) is
 * parsed once it is complete; its payload is then passed on in whatever pieces recv() brings. The
 * handshake's Sec-WebSocket-Accept is not verified: it guards against caches and plain HTTP servers
 * answering by mistake, and this socket belongs to the daemon. */
#include "client/wsclient.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/text.h"
#include "client/client.h"
#include "client/remote.h"
#include <endian.h>
#include <errno.h>
#include <http_parser.h>
#include <poll.h>
#include <sys/socket.h>

enum {
	RECEIVE_SIZE = 256 * 1024,
	TEXT_MAX = 1024 * 1024,
	CONTROL_MAX = 125,
};

enum opcode {
	OP_CONTINUE = 0,
	OP_TEXT = 1,
	OP_BINARY = 2,
	OP_CLOSE = 8,
	OP_PING = 9,
	OP_PONG = 10
};

struct wsclient {
	int fd;
	const struct wsclient_ops *ops;
	void *arg;
	uint8_t *in; /* RECEIVE_SIZE; in[start..end) is not parsed yet */
	size_t start, end;
	struct buf out;

	enum opcode message; /* type of the current message, across its frames */
	enum opcode frame;
	bool fin;
	bool in_frame;
	bool want_tag; /* the next payload byte of a binary message is its tag */
	bool over;     /* a close frame was received */
	uint8_t tag;
	uint64_t left; /* payload bytes of the frame still to come */
	struct buf text;
	uint8_t control[CONTROL_MAX];
	size_t control_len;
};

void wsclient_free(struct wsclient *ws)
{
	if (!ws)
		return;
	close(ws->fd);
	free(ws->in);
	buf_done(&ws->out);
	buf_done(&ws->text);
	free(ws);
}

DEFINE_CLEANUP(wsclient_free, struct wsclient)

/* ---- handshake ------------------------------------------------------------------------------- */

struct handshake {
	struct buf body;
	bool complete;
};

static int on_handshake_body(http_parser *parser, const char *data, size_t len)
{
	struct handshake *handshake = parser->data;

	if (handshake->body.len + len <= TEXT_MAX)
		buf_add(&handshake->body, data, len);
	return 0;
}

static int on_handshake_complete(http_parser *parser)
{
	struct handshake *handshake = parser->data;

	handshake->complete = true;
	http_parser_pause(parser, 1);
	return 0;
}

static const http_parser_settings handshake_settings = {
	.on_body = on_handshake_body,
	.on_message_complete = on_handshake_complete,
};

static int send_handshake(struct wsclient *ws, const char *socket_path, const char *path)
{
	uint8_t nonce[16];
	_cleanup_free_ char *key = NULL;

	random_bytes(nonce, sizeof nonce);
	key = base64_encode(nonce, sizeof nonce);
	buf_addf(&ws->out, "GET %s HTTP/1.1\r\n", path);
	remote_add_head(&ws->out, socket_path);
	buf_addf(&ws->out,
		"Connection: Upgrade\r\nUpgrade: websocket\r\n"
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n",
		key);
	return wsclient_flush(ws);
}

static int lost(struct err *err)
{
	return err_set(err, ERR_UNAVAILABLE, "the daemon closed the connection");
}

static int receive_handshake(struct wsclient *ws, struct handshake *handshake, struct err *err)
{
	http_parser parser;

	http_parser_init(&parser, HTTP_RESPONSE);
	parser.data = handshake;
	while (!handshake->complete) {
		ssize_t got = recv(ws->fd, ws->in, RECEIVE_SIZE, 0);

		if (got < 0 && errno == EINTR && !client_interrupted)
			continue;
		if (got <= 0)
			return lost(err);
		ws->end = (size_t)got;
		ws->start = http_parser_execute(
			&parser, &handshake_settings, (char *)ws->in, (size_t)got);
		if (!handshake->complete && HTTP_PARSER_ERRNO(&parser) != HPE_OK)
			return err_set(err, ERR_PROTOCOL, "the daemon's answer is not HTTP");
	}
	if (parser.status_code != 101) {
		client_api_error((int)parser.status_code, buf_str(&handshake->body),
			handshake->body.len, err);
		return -1;
	}
	return 0;
}

int wsclient_open(const char *socket_path, const char *path, const struct wsclient_ops *ops,
	void *arg, struct wsclient **ret, struct err *err)
{
	_cleanup_(wsclient_freep) struct wsclient *ws = NULL;
	struct handshake handshake = { 0 };
	int fd, result;

	if (client_dial(socket_path, &fd, err) < 0)
		return -1;
	ws = xnew(struct wsclient);
	ws->fd = fd;
	ws->ops = ops;
	ws->arg = arg;
	ws->in = xrealloc(NULL, RECEIVE_SIZE);
	if (send_handshake(ws, socket_path, path) < 0)
		return lost(err);
	result = receive_handshake(ws, &handshake, err);
	buf_done(&handshake.body);
	if (result < 0)
		return -1;
	*ret = steal_ptr(&ws);
	return 0;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void mask_copy(uint8_t *out, const uint8_t *in, size_t len, const uint8_t mask[4])
{
	uint64_t wide, word;
	size_t i = 0;

	memcpy(&wide, mask, 4);
	memcpy((uint8_t *)&wide + 4, mask, 4);
	for (; i + 8 <= len; i += 8) {
		memcpy(&word, in + i, 8);
		word ^= wide;
		memcpy(out + i, &word, 8);
	}
	for (; i < len; i++)
		out[i] = in[i] ^ mask[i % 4];
}

static void add_frame(struct wsclient *ws, enum opcode opcode, const void *data, size_t len)
{
	uint8_t mask[4];
	uint8_t *p = buf_room(&ws->out, len + 14), *begin = p;

	random_bytes(mask, sizeof mask);
	*p++ = (uint8_t)(0x80 | opcode);
	if (len < 126) {
		*p++ = (uint8_t)(0x80 | len);
	} else if (len <= UINT16_MAX) {
		uint16_t size = htobe16((uint16_t)len);

		*p++ = 0x80 | 126;
		memcpy(p, &size, 2);
		p += 2;
	} else {
		uint64_t size = htobe64(len);

		*p++ = 0x80 | 127;
		memcpy(p, &size, 8);
		p += 8;
	}
	memcpy(p, mask, 4);
	mask_copy(p + 4, data, len, mask);
	buf_grew(&ws->out, (size_t)(p + 4 - begin) + len);
}

int wsclient_get_fd(const struct wsclient *ws)
{
	return ws->fd;
}

size_t wsclient_pending(const struct wsclient *ws)
{
	return ws->out.len;
}

void wsclient_send_text(struct wsclient *ws, const char *text)
{
	add_frame(ws, OP_TEXT, text, strlen(text));
}

void wsclient_send_data(struct wsclient *ws, const void *data, size_t len)
{
	add_frame(ws, OP_BINARY, data, len);
}

int wsclient_flush(struct wsclient *ws)
{
	while (ws->out.len) {
		ssize_t put =
			send(ws->fd, buf_head(&ws->out), ws->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return errno == EAGAIN ? 0 : -1;
		buf_eat(&ws->out, (size_t)put);
	}
	return 0;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* 1: a frame has begun; 0: its head is incomplete; -1: a protocol error. */
static int begin_frame(struct wsclient *ws, struct err *err)
{
	const uint8_t *p = ws->in + ws->start;
	size_t have = ws->end - ws->start, need = 2;
	unsigned size;

	if (have < need)
		return 0;
	size = p[1] & 0x7f;
	need += size == 127 ? 8 : size == 126 ? 2 : 0;
	if (have < need)
		return 0;
	ws->frame = p[0] & 0x0f;
	ws->fin = p[0] & 0x80;
	ws->left = size;
	if (size == 126)
		ws->left = (uint64_t)p[2] << 8 | p[3];
	if (size == 127) {
		memcpy(&ws->left, p + 2, 8);
		ws->left = be64toh(ws->left);
	}
	if ((p[0] & 0x70) || (p[1] & 0x80) || ws->left > INT64_MAX || ws->frame > OP_PONG ||
		(ws->frame > OP_BINARY && ws->frame < OP_CLOSE))
		return err_set(err, ERR_PROTOCOL, "the daemon sent a malformed WebSocket frame");
	if (ws->frame >= OP_CLOSE && (ws->left > CONTROL_MAX || !ws->fin))
		return err_set(err, ERR_PROTOCOL, "the daemon sent a malformed control frame");
	ws->start += need;
	ws->in_frame = true;
	ws->control_len = 0;
	if (ws->frame == OP_TEXT || ws->frame == OP_BINARY) {
		ws->message = ws->frame;
		ws->want_tag = ws->frame == OP_BINARY;
		ws->text.len = ws->text.head = 0;
	}
	return 1;
}

static void end_frame(struct wsclient *ws)
{
	ws->in_frame = false;
	if (ws->frame == OP_CLOSE)
		ws->over = true;
	else if (ws->frame == OP_PING)
		add_frame(ws, OP_PONG, ws->control, ws->control_len);
	else if (ws->frame < OP_CLOSE && ws->fin && ws->message == OP_TEXT)
		ws->ops->on_text(buf_str(&ws->text), ws->text.len, ws->arg);
}

static int give_payload(struct wsclient *ws, const uint8_t *data, size_t len, struct err *err)
{
	if (!len)
		return 0;
	if (ws->frame >= OP_CLOSE) {
		memcpy(ws->control + ws->control_len, data, len);
		ws->control_len += len;
		return 0;
	}
	if (ws->message == OP_TEXT) {
		if (ws->text.len + len > TEXT_MAX)
			return err_set(
				err, ERR_PROTOCOL, "the daemon sent a message of more than 1 MiB");
		buf_add(&ws->text, data, len);
		return 0;
	}
	if (ws->want_tag) {
		ws->tag = *data++;
		ws->want_tag = false;
		len--;
	}
	if (len)
		ws->ops->on_data(ws->tag, data, len, ws->arg);
	return 0;
}

static int parse(struct wsclient *ws, struct err *err)
{
	while (!ws->over) {
		size_t take;

		if (!ws->in_frame) {
			int begun = begin_frame(ws, err);

			if (begun <= 0)
				return begun;
		}
		take = MIN(ws->left, ws->end - ws->start);
		ws->start += take;
		ws->left -= take;
		if (give_payload(ws, ws->in + ws->start - take, take, err) < 0)
			return -1;
		if (ws->left)
			return 0;
		end_frame(ws);
	}
	return 0;
}

int wsclient_receive(struct wsclient *ws, struct err *err)
{
	bool ended = false;
	ssize_t got;

	/* Payload is delivered at once, so only the beginning of a frame's head can be left
	 * here, or bytes that came with the handshake. */
	memmove(ws->in, ws->in + ws->start, ws->end - ws->start);
	ws->end -= ws->start;
	ws->start = 0;
	got = recv(ws->fd, ws->in + ws->end, RECEIVE_SIZE - ws->end, MSG_DONTWAIT);
	if (got > 0)
		ws->end += (size_t)got;
	else
		ended = got == 0 || (errno != EAGAIN && errno != EINTR);
	if (parse(ws, err) < 0)
		return -1;
	return ws->over || ended ? 0 : 1;
}
