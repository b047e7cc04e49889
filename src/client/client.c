/* client.c - see client.h
 *
 * One exchange at a time on one connection. The request head and a small body are sent in one
 * write. While an upload is sent, the socket is watched for an early response: a daemon that
 * refuses an upload says so at once and must not have to read gigabytes first. The body of the
 * response is passed on from the receive buffer, so that a download is copied once. */
#include "client/client.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "client/given.h"
#include "client/remote.h"
#include <errno.h>
#include <http_parser.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	RECEIVE_SIZE = 256 * 1024,
	SEND_SIZE = 256 * 1024,
	ERROR_BODY_MAX = 64 * 1024,
	ANSWER_MAX = 64 * 1024 * 1024,
	LINE_MAX_LEN = 4 * 1024 * 1024,
};

volatile bool client_interrupted;

struct client {
	const char *socket_path;
	int fd;
	uint8_t *in; /* RECEIVE_SIZE */
	bool reused; /* the connection has carried an exchange before */
};

struct exchange {
	const struct client_request *request;
	struct err *err;
	bool begun, complete, failed, keep_alive;
	int status;
	struct buf error_body;
};

struct client *client_new(const char *socket_path)
{
	struct client *client = xnew(struct client);

	client->socket_path = socket_path;
	client->fd = -1;
	return client;
}

static void hang_up(struct client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
	client->reused = false;
}

void client_free(struct client *client)
{
	if (!client)
		return;
	hang_up(client);
	free(client->in);
	free(client);
}

/* ---- paths ----------------------------------------------------------------------------------- */

static void add_escaped(struct buf *out, const char *text)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";

	for (const char *p = text; *p; p++)
		if (strchr(plain, *p))
			buf_add(out, p, 1);
		else
			buf_addf(out, "%%%02X", (unsigned char)*p);
}

char *client_path(const char *fmt, ...)
{
	struct buf out = BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	for (const char *p = fmt; *p; p++) {
		if (*p != '%') {
			buf_add(&out, p, 1);
		} else if (p[1] == 's') {
			add_escaped(&out, va_arg(ap, const char *));
			p++;
		} else if (!strncmp(p, "%llu", 4)) {
			buf_addf(&out, "%llu", va_arg(ap, unsigned long long));
			p += 3;
		} else {
			buf_add(&out, "%", 1);
			p += p[1] == '%';
		}
	}
	va_end(ap);
	buf_str(&out);
	return (char *)out.data;
}

/* ---- connecting ------------------------------------------------------------------------------ */

int client_dial(const char *socket_path, int *ret_fd, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;

	if (given_is(socket_path))
		return given_dial(socket_path, ret_fd, err);
	if (remote_is(socket_path))
		return remote_dial(socket_path, ret_fd, err);
	if (strlen(socket_path) >= sizeof address.sun_path)
		return err_set(err, ERR_INVALID, "socket path '%s' is too long", socket_path);
	strcpy(address.sun_path, socket_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(err, errno, "socket");
	while (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		if (errno == EINTR && !client_interrupted)
			continue;
		if (errno == ENOENT || errno == ECONNREFUSED) {
			err_set(err, ERR_UNAVAILABLE, "the daemon is not running");
			return err_hint(err, "start it with 'box up'");
		}
		if (errno == EACCES || errno == EPERM) {
			err_set(err, ERR_FORBIDDEN, "no permission to use '%s'", socket_path);
			return err_hint(err, "run as root or as a member of the group boxyard");
		}
		return err_sys(err, errno, "connect to '%s'", socket_path);
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* Replaces a kept connection that the daemon has closed meanwhile. */
static int ensure_connected(struct client *client, struct err *err)
{
	if (client->fd >= 0) {
		struct pollfd watch = { .fd = client->fd, .events = POLLIN };

		if (poll(&watch, 1, 0) == 0)
			return 0;
		hang_up(client);
	}
	return client_dial(client->socket_path, &client->fd, err);
}

/* ---- the response --------------------------------------------------------------------------- */

int client_api_error(int status, const char *body, size_t len, struct err *err)
{
	_cleanup_json_ json_t *root = json_loadb(body, len, 0, NULL);
	json_t *error = json_object_get(root, "error");
	const char *code = json_string_value(json_object_get(error, "code"));
	const char *message = json_string_value(json_object_get(error, "message"));
	const char *hint = json_string_value(json_object_get(error, "hint"));

	if (!code || !message)
		return err_set(err, ERR_PROTOCOL, "the daemon answered with status %d", status);
	err_set(err, err_kind_from_code(code), "%s", message);
	if (hint && *hint)
		err_hint(err, "%s", hint);
	return -1;
}

static int on_headers_complete(http_parser *parser)
{
	struct exchange *exchange = parser->data;
	int64_t length =
		parser->content_length == UINT64_MAX ? -1 : (int64_t)parser->content_length;

	exchange->status = parser->status_code;
	if (exchange->status >= 200 && exchange->status < 400 && exchange->request->head &&
		exchange->request->head(length, exchange->request->arg, exchange->err) < 0)
		exchange->failed = true;
	/* 1: no body follows, whatever the headers say. */
	return !strcmp(exchange->request->method, "HEAD") ? 1 : exchange->failed ? -1 : 0;
}

static int on_body(http_parser *parser, const char *data, size_t len)
{
	struct exchange *exchange = parser->data;

	if (exchange->status >= 400) {
		if (exchange->error_body.len + len <= ERROR_BODY_MAX)
			buf_add(&exchange->error_body, data, len);
		return 0;
	}
	if (exchange->request->data &&
		exchange->request->data(data, len, exchange->request->arg, exchange->err) < 0)
		exchange->failed = true;
	return exchange->failed ? -1 : 0;
}

static int on_message_complete(http_parser *parser)
{
	struct exchange *exchange = parser->data;

	if (parser->status_code < 200) /* 100 Continue: the real response follows */
		return 0;
	exchange->complete = true;
	exchange->keep_alive = http_should_keep_alive(parser);
	http_parser_pause(parser, 1);
	return 0;
}

static const http_parser_settings parser_settings = {
	.on_headers_complete = on_headers_complete,
	.on_body = on_body,
	.on_message_complete = on_message_complete,
};

static int cut_off(const struct client *client, struct exchange *exchange)
{
	err_set(exchange->err, ERR_UNAVAILABLE, "the daemon closed the connection%s",
		exchange->begun ? " in the middle of its answer" : "");
	err_hint(exchange->err, "'box info' shows whether it runs");
	if (!exchange->begun)
		remote_hint(client->socket_path, exchange->err);
	return -1;
}

static int receive_answer(struct client *client, struct exchange *exchange)
{
	http_parser parser;

	if (!client->in)
		client->in = xrealloc(NULL, RECEIVE_SIZE);
	http_parser_init(&parser, HTTP_RESPONSE);
	parser.data = exchange;
	while (!exchange->complete) {
		ssize_t got = recv(client->fd, client->in, RECEIVE_SIZE, 0);

		if (got < 0 && errno == EINTR && !client_interrupted)
			continue;
		if (got < 0 && errno == EINTR)
			return err_set(exchange->err, ERR_CANCELLED, "interrupted");
		if (got < 0 && errno != ECONNRESET)
			return err_sys(exchange->err, errno, "read from the daemon");
		if (got <= 0) {
			/* A response without a length ends with the connection. */
			if (exchange->begun &&
				!http_parser_execute(&parser, &parser_settings, NULL, 0) &&
				exchange->complete)
				return 0;
			return cut_off(client, exchange);
		}
		exchange->begun = true;
		http_parser_execute(&parser, &parser_settings, (char *)client->in, (size_t)got);
		if (exchange->failed)
			return -1;
		if (!exchange->complete && HTTP_PARSER_ERRNO(&parser) != HPE_OK)
			return err_set(exchange->err, ERR_PROTOCOL,
				"the daemon's answer is not HTTP: %s",
				http_errno_description(HTTP_PARSER_ERRNO(&parser)));
	}
	return 0;
}

/* ---- the request ---------------------------------------------------------------------------- */

/* 1: the daemon has sent something (or closed), stop sending; 0: all sent; -1 with err. */
static int send_bytes(struct client *client, const void *data, size_t len, struct err *err)
{
	const uint8_t *p = data;

	while (len) {
		ssize_t put = send(client->fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		struct pollfd watch = { .fd = client->fd, .events = POLLIN | POLLOUT };

		if (put >= 0) {
			p += put;
			len -= (size_t)put;
			continue;
		}
		if (errno == EPIPE || errno == ECONNRESET)
			return 1;
		if (errno != EAGAIN && errno != EINTR)
			return err_sys(err, errno, "write to the daemon");
		if (poll(&watch, 1, -1) < 0 && errno == EINTR && client_interrupted)
			return err_set(err, ERR_CANCELLED, "interrupted");
		if (watch.revents & POLLIN)
			return 1;
	}
	return 0;
}

static int send_head(struct client *client, const struct client_request *request, struct err *err)
{
	struct buf head = BUF_INIT;
	int ret;

	buf_addf(&head, "%s %s HTTP/1.1\r\n", request->method, request->path);
	remote_add_head(&head, client->socket_path);
	if (request->header)
		buf_add_str(&head, request->header);
	if (request->body || request->read)
		buf_addf(&head, "Content-Type: %s\r\n",
			request->body_type ? request->body_type : "application/json");
	if (request->read && request->read_size < 0)
		buf_add_str(&head, "Transfer-Encoding: chunked\r\n\r\n");
	else if (request->read)
		buf_addf(&head, "Content-Length: %lld\r\n\r\n", (long long)request->read_size);
	else if (request->body || strcmp(request->method, "GET"))
		buf_addf(&head, "Content-Length: %zu\r\n\r\n",
			request->body ? request->body_len : 0);
	else
		buf_add_str(&head, "\r\n");
	if (request->body)
		buf_add(&head, request->body, request->body_len);
	ret = send_bytes(client, buf_head(&head), head.len, err);
	buf_done(&head);
	return ret;
}

/* Sends the upload; head and tail of a chunk are put around the data in one buffer. */
static int send_upload(struct client *client, const struct client_request *request, struct err *err)
{
	enum { CHUNK_HEAD = 10 };
	_cleanup_free_ char *buffer = xrealloc(NULL, CHUNK_HEAD + SEND_SIZE + 8);
	bool chunked = request->read_size < 0;
	int64_t left = request->read_size;
	char size[CHUNK_HEAD + 1];
	int ret = 0;

	while (ret == 0 && left) {
		size_t want = chunked ? SEND_SIZE : (size_t)MIN(left, SEND_SIZE);
		int64_t got = request->read(buffer + CHUNK_HEAD, want, request->arg, err);

		if (got < 0)
			return -1;
		if (!chunked && got == 0)
			return err_set(
				err, ERR_SYSTEM, "the file became shorter while it was sent");
		if (!chunked) {
			left -= got;
			ret = send_bytes(client, buffer + CHUNK_HEAD, (size_t)got, err);
			continue;
		}
		if (got == 0)
			return send_bytes(client, "0\r\n\r\n", 5, err);
		snprintf(size, sizeof size, "%08x\r\n", (unsigned)got);
		memcpy(buffer, size, CHUNK_HEAD);
		memcpy(buffer + CHUNK_HEAD + got, "\r\n", 2);
		ret = send_bytes(client, buffer, CHUNK_HEAD + (size_t)got + 2, err);
	}
	return ret;
}

static int exchange_once(struct client *client, struct exchange *exchange)
{
	const struct client_request *request = exchange->request;
	int sent;

	if (ensure_connected(client, exchange->err) < 0)
		return -1;
	sent = send_head(client, request, exchange->err);
	if (sent == 0 && request->read)
		sent = send_upload(client, request, exchange->err);
	if (sent < 0 || receive_answer(client, exchange) < 0) {
		hang_up(client);
		return -1;
	}
	/* After an incomplete upload the rest of it would be taken for a request. */
	if (sent || !exchange->keep_alive)
		hang_up(client);
	else
		client->reused = true;
	return 0;
}

int client_do(struct client *client, const struct client_request *request, int *ret_status,
	struct err *err)
{
	struct err unwanted = ERR_INIT;
	struct exchange exchange = { .request = request, .err = err ? err : &unwanted };
	bool reused = client->fd >= 0 && client->reused;
	int ret = exchange_once(client, &exchange);

	/* The daemon may close a kept connection just as we write to it; a GET can safely be
	 * repeated. */
	if (ret < 0 && reused && !exchange.begun && !strcmp(request->method, "GET") &&
		exchange.err->kind == ERR_UNAVAILABLE) {
		exchange = (struct exchange){ .request = request, .err = exchange.err };
		ret = exchange_once(client, &exchange);
	}
	if (ret == 0 && exchange.status >= 400)
		ret = client_api_error(exchange.status, buf_str(&exchange.error_body),
			exchange.error_body.len, err);
	buf_done(&exchange.error_body);
	if (ret == 0 && ret_status)
		*ret_status = exchange.status;
	return ret;
}

/* ---- complete responses and lines ----------------------------------------------------------- */

static int collect(const void *data, size_t len, void *arg, struct err *err)
{
	struct buf *body = arg;

	if (body->len + len > ANSWER_MAX)
		return err_set(err, ERR_PROTOCOL, "the daemon's answer is larger than 64 MiB");
	buf_add(body, data, len);
	return 0;
}

int client_call(struct client *client, const char *method, const char *path, json_t *body,
	json_t **ret, struct err *err)
{
	_cleanup_free_ char *text = body ? json_text(body) : NULL;
	struct buf answer = BUF_INIT;
	struct client_request request = {
		.method = method,
		.path = path,
		.body = text,
		.body_len = text ? strlen(text) : 0,
		.data = collect,
		.arg = &answer,
	};
	int result;

	json_decref(body);
	result = client_do(client, &request, NULL, err);
	if (result == 0 && ret && !answer.len) {
		*ret = json_null();
	} else if (result == 0 && ret) {
		json_t *value = json_loadb((char *)buf_head(&answer), answer.len, 0, NULL);

		if (value)
			*ret = value;
		else
			result = err_set(err, ERR_PROTOCOL, "the daemon's answer is not JSON");
	}
	buf_done(&answer);
	return result;
}

int client_get(struct client *client, const char *path, json_t **ret, struct err *err)
{
	return client_call(client, "GET", path, NULL, ret, err);
}

struct line_reader {
	client_line_fn line;
	void *arg;
	struct buf rest; /* the beginning of a line whose end has not come yet */
};

static int give_line(struct line_reader *reader, const char *text, size_t len, struct err *err)
{
	_cleanup_json_ json_t *object = NULL;

	if (!len)
		return 0;
	object = json_loadb(text, len, 0, NULL);
	if (!json_is_object(object))
		return err_set(
			err, ERR_PROTOCOL, "the daemon sent a line that is not a JSON object");
	return reader->line(object, text, len, reader->arg, err);
}

static int split_lines(const void *data, size_t len, void *arg, struct err *err)
{
	struct line_reader *reader = arg;
	const char *p = data, *end = p + len, *newline;

	while ((newline = memchr(p, '\n', (size_t)(end - p)))) {
		if (reader->rest.len) {
			int result;

			buf_add(&reader->rest, p, (size_t)(newline - p));
			result = give_line(
				reader, (char *)buf_head(&reader->rest), reader->rest.len, err);
			reader->rest.len = reader->rest.head = 0;
			if (result < 0)
				return -1;
		} else if (give_line(reader, p, (size_t)(newline - p), err) < 0) {
			return -1;
		}
		p = newline + 1;
	}
	if (reader->rest.len + (size_t)(end - p) > LINE_MAX_LEN)
		return err_set(err, ERR_PROTOCOL, "the daemon sent a line of more than 4 MiB");
	buf_add(&reader->rest, p, (size_t)(end - p));
	return 0;
}

int client_lines(struct client *client, const char *method, const char *path, json_t *body,
	client_line_fn line, void *arg, struct err *err)
{
	_cleanup_free_ char *text = body ? json_text(body) : NULL;
	struct line_reader reader = { .line = line, .arg = arg };
	struct client_request request = {
		.method = method,
		.path = path,
		.body = text,
		.body_len = text ? strlen(text) : 0,
		.data = split_lines,
		.arg = &reader,
	};
	int result;

	json_decref(body);
	result = client_do(client, &request, NULL, err);
	buf_done(&reader.rest);
	return result;
}
