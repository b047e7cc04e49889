/* pass.c - see pass.h
 *
 * A tunnel is a connection in the stage CONN_SOCKET without a WebSocket: bytes are passed on
 * unchanged, and each direction ends on its own. The tunnel ends when both directions have ended or
 * when the client aborts; its owner is told in either case. */
#include "http/pass.h"
#include "http/http_internal.h"
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

enum { LOW_MARK = 64 * 1024, STATUS_LINE_MAX = 192, REASON_MAX = 100 };

struct http_tunnel {
	struct http_conn *conn;
	const struct http_tunnel_ops *ops;
	void *arg;
	bool paused;
	bool above;
	bool in_ended;	/* the client sends no more, and the owner was told */
	bool out_ended; /* the owner writes no more */
	bool shut;	/* and the client was told */
};

/* ---- the request ---------------------------------------------------------------------------- */

void http_server_add_front(struct http_server *server, const struct http_front *front, void *arg)
{
	assert(server->front_count < HTTP_FRONTS_MAX);
	server->fronts[server->front_count].front = front;
	server->fronts[server->front_count++].arg = arg;
}

bool fronts_take(struct http_server *server, struct http_request *request)
{
	for (unsigned i = 0; i < server->front_count; i++)
		if (server->fronts[i].front->wants(request, server->fronts[i].arg)) {
			server->fronts[i].front->handle(request, server->fronts[i].arg);
			return true;
		}
	return false;
}

const struct http_head *http_request_head(const struct http_request *request)
{
	return &request->conn->parse.head;
}

const char *http_request_peer(struct http_request *request)
{
	struct http_conn *conn = request->conn;
	struct sockaddr_storage address = { 0 };
	socklen_t len = sizeof address;

	if (*conn->peer || conn->transport == HTTP_TRANSPORT_UNIX || conn->fd < 0 ||
		getpeername(conn->fd, (struct sockaddr *)&address, &len) < 0)
		return conn->peer;
	if (address.ss_family == AF_INET)
		inet_ntop(AF_INET, &((struct sockaddr_in *)&address)->sin_addr, conn->peer,
			sizeof conn->peer);
	else if (address.ss_family == AF_INET6)
		inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&address)->sin6_addr, conn->peer,
			sizeof conn->peer);
	return conn->peer;
}

/* ---- the answer ----------------------------------------------------------------------------- */

static struct iovec part(const void *data, size_t len)
{
	return (struct iovec){ (void *)data, len };
}

static size_t put_framing(
	const struct http_request *request, const struct http_pass *pass, char *out, size_t size)
{
	const struct http_conn *conn = request->conn;
	const char *close = conn->keep ? "" : "Connection: close\r\n";
	int len;

	if (pass->length >= 0)
		len = snprintf(out, size, "Content-Length: %lld\r\n%s\r\n", (long long)pass->length,
			close);
	else
		len = snprintf(out, size, "%s%s\r\n",
			request->chunked ? "Transfer-Encoding: chunked\r\n" : "", close);
	return (size_t)len;
}

void http_pass_begin(struct http_request *request, const struct http_pass *pass)
{
	struct http_conn *conn = request->conn;
	char status[STATUS_LINE_MAX], framing[128];
	int len;

	if (request->finished)
		return;
	assert(!request->begun);
	conn->keep = reply_keeps(conn);
	request->chunked = pass->length == HTTP_LENGTH_UNKNOWN && conn->parse.head.minor > 0;
	len = snprintf(status, sizeof status, "HTTP/1.1 %03d %.*s\r\n", pass->status, REASON_MAX,
		pass->reason);
	conn_write(conn,
		(struct iovec[]){ part(status, (size_t)len),
			part(buf_head(pass->headers), pass->headers->len),
			part(framing, put_framing(request, pass, framing, sizeof framing)) },
		3, false);
	request->begun = true;
}

void http_pass_trailers(struct http_request *request, const struct buf *lines)
{
	struct http_conn *conn = request->conn;

	if (request->finished)
		return;
	if (request->chunked && lines->len && strcmp(conn->parse.head.method, "HEAD")) {
		conn_write(conn,
			(struct iovec[]){ part("0\r\n", 3), part(buf_head(lines), lines->len),
				part("\r\n", 2) },
			3, false);
		request->chunked = false; /* its last chunk is written */
	}
	http_reply_end(request);
}

/* ---- tunnels: the owner's side -------------------------------------------------------------- */

struct http_tunnel *http_tunnel_accept(struct http_request *request, const struct buf *headers,
	const struct http_tunnel_ops *ops, void *arg)
{
	static const char line[] = "HTTP/1.1 101 Switching Protocols\r\n";
	struct http_conn *conn = request->conn;
	struct http_tunnel *tunnel;

	if (request->finished)
		return NULL;
	assert(!request->begun && !http_head_has_body(&conn->parse.head));
	tunnel = xnew(struct http_tunnel);
	tunnel->conn = conn;
	tunnel->ops = ops;
	tunnel->arg = arg;
	conn->request = NULL;
	request_free(request);
	conn->tunnel = tunnel;
	conn->stage = CONN_SOCKET;
	conn_write(conn,
		(struct iovec[]){ part(line, sizeof line - 1),
			part(buf_head(headers), headers->len), part("\r\n", 2) },
		3, true);
	if (!conn->depth)
		conn_schedule(conn);
	return tunnel;
}

void http_tunnel_write(struct http_tunnel *tunnel, const void *data, size_t len)
{
	if (!tunnel->conn || tunnel->out_ended)
		return;
	conn_write(tunnel->conn, &(struct iovec){ (void *)data, len }, 1, true);
	tunnel->above |= tunnel->conn->out.len >= LOW_MARK;
}

size_t http_tunnel_pending(const struct http_tunnel *tunnel)
{
	return tunnel->conn ? tunnel->conn->out.len : 0;
}

void http_tunnel_pause(struct http_tunnel *tunnel)
{
	tunnel->paused = true;
}

void http_tunnel_resume(struct http_tunnel *tunnel)
{
	if (!tunnel->paused)
		return;
	tunnel->paused = false;
	if (tunnel->conn && !tunnel->conn->depth)
		conn_schedule(tunnel->conn);
}

void http_tunnel_shut(struct http_tunnel *tunnel)
{
	tunnel->out_ended = true;
	if (tunnel->conn)
		conn_schedule(tunnel->conn);
}

void http_tunnel_cut(struct http_tunnel *tunnel)
{
	if (!tunnel->conn)
		return;
	tunnel->conn->broken = true;
	conn_schedule(tunnel->conn);
}

/* ---- tunnels: the connection's side --------------------------------------------------------- */

size_t tunnel_take(struct http_tunnel *tunnel, const char *data, size_t len)
{
	if (len)
		tunnel->ops->on_data(tunnel, data, len, tunnel->arg);
	return len;
}

bool tunnel_wants_read(const struct http_tunnel *tunnel)
{
	return !tunnel->paused && !tunnel->in_ended;
}

bool tunnel_tell_drain(struct http_tunnel *tunnel)
{
	if (!tunnel->above || tunnel->conn->out.len >= LOW_MARK)
		return false;
	tunnel->above = false;
	tunnel->ops->on_drain(tunnel, tunnel->arg);
	return true;
}

void tunnel_tell_eof(struct http_tunnel *tunnel)
{
	if (tunnel->in_ended)
		return;
	tunnel->in_ended = true;
	tunnel->ops->on_eof(tunnel, tunnel->arg);
}

bool tunnel_wants_shut(struct http_tunnel *tunnel)
{
	if (!tunnel->out_ended || tunnel->shut || tunnel->conn->out.len)
		return false;
	tunnel->shut = true;
	return true;
}

bool tunnel_is_over(const struct http_tunnel *tunnel)
{
	return tunnel->in_ended && tunnel->shut;
}

void tunnel_gone(struct http_tunnel *tunnel)
{
	tunnel->conn->tunnel = NULL;
	tunnel->conn = NULL;
	tunnel->ops->on_gone(tunnel, tunnel->arg);
	free(tunnel);
}
