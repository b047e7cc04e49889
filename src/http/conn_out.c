/* conn_out.c - the sending side of a connection
 *
 * Bytes are sent when there are many of them, when an answer is complete, or at the end of the
 * loop's round, so that what an exchange writes in small pieces leaves in one system call. What the
 * socket does not take is kept in `out` until it is writable. Nothing here calls back: a failed
 * send only marks the connection, and the loop ends it. */
#include "http/http_internal.h"
#include <assert.h>
#include <errno.h>
#include <sys/socket.h>

enum { PARTS_MAX = 8 };

static void add_rest(struct buf *out, const struct iovec *parts, unsigned count, size_t sent)
{
	for (unsigned i = 0; i < count; i++) {
		size_t skip = MIN(sent, parts[i].iov_len);

		buf_add(out, (const char *)parts[i].iov_base + skip, parts[i].iov_len - skip);
		sent -= skip;
	}
}

/* TLS takes one run of bytes at a time: new bytes are appended to those that wait. */
static void send_sealed(struct http_conn *conn, const struct iovec *parts, unsigned count)
{
	add_rest(&conn->out, parts, count, 0);
	while (conn->out.len) {
		ssize_t sent = tls_write(conn, buf_head(&conn->out), conn->out.len);

		if (sent < 0 && errno != EAGAIN) {
			conn->broken = true;
			conn_schedule(conn);
			return;
		}
		if (sent < 0)
			break;
		buf_eat(&conn->out, (size_t)sent);
		conn->out_since = http_now_ms();
	}
	conn->blocked = conn->out.len > 0;
	if (!conn->out.len && conn->out.cap > HTTP_BUFFER_KEPT)
		buf_done(&conn->out);
}

/* Sends waiting and new bytes by one system call. */
static void send_parts(struct http_conn *conn, const struct iovec *parts, unsigned count)
{
	struct iovec all[PARTS_MAX + 1] = { { conn->out.len ? buf_head(&conn->out) : NULL,
		conn->out.len } };
	struct msghdr message = { .msg_iov = all, .msg_iovlen = count + 1 };
	size_t old = conn->out.len;
	ssize_t sent;

	assert(count <= PARTS_MAX);
	if (conn->ssl)
		return send_sealed(conn, parts, count);
	if (count)
		memcpy(all + 1, parts, count * sizeof *parts);
	do
		sent = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno != EAGAIN) {
		conn->broken = true;
		conn_schedule(conn);
		return;
	}
	if (sent > 0 || !old)
		conn->out_since = http_now_ms();
	sent = MAX(sent, 0);
	buf_eat(&conn->out, MIN(old, (size_t)sent));
	add_rest(&conn->out, parts, count, (size_t)sent > old ? (size_t)sent - old : 0);
	conn->blocked = conn->out.len > 0;
	if (!conn->out.len && conn->out.cap > HTTP_BUFFER_KEPT)
		buf_done(&conn->out);
}

void conn_write(struct http_conn *conn, const struct iovec *parts, unsigned count, bool urgent)
{
	size_t total = conn->out.len;

	if (conn->dead || conn->broken)
		return;
	for (unsigned i = 0; i < count; i++)
		total += parts[i].iov_len;
	if (!conn->blocked && (total >= HTTP_SEND_AT_ONCE || (urgent && !conn->depth))) {
		send_parts(conn, parts, count);
		if (!conn->depth)
			conn_update_watch(conn);
		return;
	}
	if (!conn->out.len)
		conn->out_since = http_now_ms();
	add_rest(&conn->out, parts, count, 0);
	if (!conn->blocked && !conn->depth)
		conn_schedule(conn);
}

void conn_flush(struct http_conn *conn)
{
	if (conn->out.len && !conn->blocked && !conn->broken && !conn->dead)
		send_parts(conn, NULL, 0);
}
