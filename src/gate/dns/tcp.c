/* tcp.c - DNS queries over TCP: a length, then a message; many on one connection
 *
 * A connection is read only as far as its box's rate, its pending queries and its unsent answers
 * allow; so it holds one query and a few answers at most. The idle timer restarts only with each
 * complete query: single bytes do not keep a connection open. */
#include "base/file.h"
#include "loop/loop.h"
#include "gate/dns/server_internal.h"
#include "gate/dns/wire_internal.h"
#include <errno.h>

enum {
	ACCEPTS_MAX = 8,       /* per wake-up */
	OUT_HIGH = 16 * 1024,  /* unsent answers */
	PENDING_MAX = 16,      /* pending queries of one connection */
	SCARCE_PAUSE_MS = 100, /* no descriptors left: try again after this */
};

struct dns_conn {
	struct dns_box *box;
	struct dns_conn *next, **at;
	int fd;
	struct loop_fd *watch;
	struct loop_timer *idle;
	struct buf in, out;
	unsigned pending_count;
	bool ended; /* the client has closed its sending side */
};

/* ---- life ----------------------------------------------------------------------------------- */

static void drop_pendings(struct dns_conn *conn)
{
	for (struct dns_pending *pending = conn->box->pendings, *next; pending; pending = next) {
		next = pending->next;
		if (pending->conn == conn)
			dns_pending_cancel(pending);
	}
}

void dns_conn_free(struct dns_conn *conn)
{
	if (conn->pending_count)
		drop_pendings(conn);
	loop_fd_free(conn->watch);
	loop_timer_free(conn->idle);
	close(conn->fd);
	buf_done(&conn->in);
	buf_done(&conn->out);
	*conn->at = conn->next;
	if (conn->next)
		conn->next->at = conn->at;
	conn->box->conn_count--;
	free(conn);
}

static void restart_idle(struct dns_conn *conn)
{
	loop_timer_start(conn->idle, conn->box->server->options.idle_ms);
}

static void on_idle(void *arg)
{
	struct dns_conn *conn = arg;

	if (conn->pending_count)
		restart_idle(conn); /* it waits for us, not we for it */
	else
		dns_conn_free(conn);
}

/* ---- queries and answers -------------------------------------------------------------------- */

static bool has_question(const struct dns_conn *conn)
{
	const uint8_t *head = buf_head(&conn->in);

	return head && conn->in.len >= 2 && conn->in.len - 2 >= dns_get16(head);
}

static bool is_held_up(const struct dns_conn *conn)
{
	return conn->box->paused || conn->out.len >= OUT_HIGH || conn->pending_count >= PENDING_MAX;
}

static void add_reply(struct dns_conn *conn, const uint8_t *reply, size_t len)
{
	uint8_t head[2];

	dns_put16(head, len);
	buf_add(&conn->out, head, sizeof head);
	buf_add(&conn->out, reply, len);
}

static void answer_one(struct dns_conn *conn)
{
	struct dns_origin origin = { .conn = conn };
	uint8_t out[DNS_REPLY_MAX];
	size_t size = dns_get16(buf_head(&conn->in)), len;
	unsigned before = conn->box->pending_count;

	dns_box_spend(conn->box, 1);
	len = dns_box_answer(conn->box, &origin, buf_head(&conn->in) + 2, size, out);
	conn->pending_count += conn->box->pending_count - before;
	buf_eat(&conn->in, 2 + size);
	if (len)
		add_reply(conn, out, len);
	restart_idle(conn);
}

/* False when the connection failed. */
static bool flush(struct dns_conn *conn)
{
	while (conn->out.len) {
		ssize_t sent = send(
			conn->fd, buf_head(&conn->out), conn->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN;
		buf_eat(&conn->out, (size_t)sent);
	}
	return true;
}

/* Does what is possible now: answers what is there, sends what is ready, and watches for what
 * can come next. May end the connection. */
static void conn_go_on(struct dns_conn *conn)
{
	unsigned ready = 0;

	while (has_question(conn) && !is_held_up(conn) && dns_box_allowance(conn->box, 1))
		answer_one(conn);
	if (!flush(conn) ||
		(conn->in.len >= 2 && dns_get16(buf_head(&conn->in)) > DNS_TCP_QUESTION_MAX) ||
		(conn->ended && !has_question(conn) && !conn->out.len && !conn->pending_count)) {
		dns_conn_free(conn);
		return;
	}
	if (!conn->ended && !has_question(conn) && !is_held_up(conn))
		ready |= LOOP_READ;
	if (conn->out.len)
		ready |= LOOP_WRITE;
	loop_fd_set(conn->watch, ready);
}

static void on_conn(void *arg, unsigned ready)
{
	struct dns_conn *conn = arg;
	ssize_t got;

	if (ready & LOOP_READ) {
		size_t want = 2 + DNS_TCP_QUESTION_MAX;

		got = recv(conn->fd, buf_room(&conn->in, want), want, MSG_DONTWAIT);
		if (got < 0 && errno != EAGAIN && errno != EINTR) {
			dns_conn_free(conn);
			return;
		}
		if (got == 0)
			conn->ended = true;
		if (got > 0)
			buf_grew(&conn->in, (size_t)got);
	}
	conn_go_on(conn);
}

void dns_conn_answered(struct dns_conn *conn, const uint8_t *reply, size_t len)
{
	conn->pending_count--;
	if (len)
		add_reply(conn, reply, len);
	restart_idle(conn);
	conn_go_on(conn);
}

void dns_conns_resume(struct dns_box *box)
{
	for (struct dns_conn *conn = box->conns, *next; conn && !box->paused; conn = next) {
		next = conn->next;
		conn_go_on(conn);
	}
}

/* ---- connecting ----------------------------------------------------------------------------- */

static void conn_new(struct dns_box *box, int fd)
{
	struct dns_conn *conn = xnew(struct dns_conn);

	conn->box = box;
	conn->fd = fd;
	conn->watch = loop_fd_new(box->server->loop, fd, LOOP_READ, on_conn, conn);
	conn->idle = loop_timer_new(box->server->loop, on_idle, conn);
	restart_idle(conn);
	conn->next = box->conns;
	conn->at = &box->conns;
	if (conn->next)
		conn->next->at = &conn->next;
	box->conns = conn;
	box->conn_count++;
}

/* With a reset, so that nothing of a refused connection stays in the kernel. */
static void refuse(int fd)
{
	setsockopt(
		fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger));
	close(fd);
}

void dns_tcp_ready(void *arg, unsigned ready)
{
	struct dns_door *door = arg;
	struct dns_box *box = door->box;

	(void)ready;
	for (int i = 0; i < ACCEPTS_MAX; i++) {
		int fd = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			/* No descriptors left; or root of the box has broken the socket, which
			 * then stays readable for ever. */
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				dns_box_pause(box, SCARCE_PAUSE_MS);
			return;
		}
		if (box->conn_count >= box->server->options.conns_max || fd_is_scarce(fd))
			refuse(fd);
		else
			conn_new(box, fd);
	}
}
