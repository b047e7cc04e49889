/* conn.c - see conn.h
 *
 * Output has two ways. Frames about the work (REPLY, EXIT, CLOSE ...) are collected in conn->out
 * and sent when the turn of the loop is over. DATA goes past it, straight from the memory it lies
 * in, but only when out is empty and the socket takes bytes; of a frame that was taken in part, the
 * rest is kept in out. So out holds at most one DATA frame, and order on a channel is the order of
 * the calls.
 *
 * A socket that is full makes the connection `blocked`: DATA is refused until it is writable again,
 * and then every channel gets its room callback, starting with another one each time. A daemon that
 * asks but never reads is no longer listened to over OUT_PAUSE and cut off over OUT_MAX.
 *
 * A frame that breaks the protocol makes the connection `dead`: nothing more is read or sent, and
 * conn_settle() cancels its channels and frees it. */
#include "guest/conn_internal.h"
#include "guest/self.h"
#include "base/log.h"
#include "base/text.h"
#include <errno.h>
#include <sys/socket.h>

enum {
	CONNS_MAX = 8,
	HELLO_MS = 5000,
	ACCEPT_PAUSE_MS = 100,
	OUT_PAUSE = 1024 * 1024,
	OUT_MAX = 8 * 1024 * 1024,
	READ_SMALL = 16 * 1024,
	READ_LARGE = 256 * 1024,
	KEEP_BUFFER = 64 * 1024, /* an empty buffer larger than this is given back */
};

static struct conn *conns; /* oldest first */
static struct watch listener = WATCH_INIT;
static struct timer accept_timer;
static uint64_t boot_id;

void conn_kill(struct conn *conn, const char *why)
{
	if (conn->dead)
		return;
	conn->dead = true;
	watch_set(&conn->watch, 0);
	log_debug("connection dropped", kv_str("why", why));
}

static void update_watch(struct conn *conn)
{
	uint32_t events = 0;

	if (conn->dead)
		return;
	if (conn->out.len < OUT_PAUSE)
		events |= EPOLLIN;
	if (conn->blocked)
		events |= EPOLLOUT;
	watch_set(&conn->watch, events);
}

static void give_back_memory(struct buf *buf)
{
	if (!buf->len && buf->cap > KEEP_BUFFER)
		buf_done(buf);
}

/* ---- sending -------------------------------------------------------------------------------- */

static ssize_t conn_write(struct conn *conn, struct iovec *iov, size_t count)
{
	struct msghdr message = { .msg_iov = iov, .msg_iovlen = count };
	ssize_t put;

	do
		put = conn->port ? writev(conn->fd, iov, (int)count)
				 : sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (put < 0 && errno == EINTR);
	if (put >= 0)
		return put;
	if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
		conn->blocked = true;
	else
		conn_kill(conn, "the other side is gone");
	return 0;
}

static void conn_flush(struct conn *conn)
{
	while (conn->out.len && !conn->blocked && !conn->dead) {
		struct iovec piece = { buf_head(&conn->out), conn->out.len };

		buf_eat(&conn->out, (size_t)conn_write(conn, &piece, 1));
	}
	if (conn->out.len > OUT_MAX)
		conn_kill(conn, "it does not read what it asked for");
	give_back_memory(&conn->out);
	update_watch(conn);
}

/* Sends everything, or nothing and waits for room. */
bool conn_send(struct conn *conn, struct iovec *iov, size_t count)
{
	size_t put;

	if (conn->out.len)
		conn_flush(conn);
	if (conn->out.len || conn->blocked || conn->dead)
		return false;
	put = (size_t)conn_write(conn, iov, count);
	if (!put) {
		update_watch(conn);
		return false;
	}
	for (size_t i = 0; i < count; i++) {
		size_t sent = MIN(put, iov[i].iov_len);

		buf_add(&conn->out, (uint8_t *)iov[i].iov_base + sent, iov[i].iov_len - sent);
		put -= sent;
	}
	if (conn->out.len) {
		conn->blocked = true;
		update_watch(conn);
	}
	return true;
}

void conn_event(enum wire_event event, const struct wire_exec_info *info)
{
	for (struct conn *conn = conns; conn; conn = conn->next) {
		size_t mark;

		if (!conn->hello || conn->dead)
			continue;
		mark = wire_begin(&conn->out, WIRE_EVENT, 0);
		wire_put_u8(&conn->out, (uint8_t)event);
		wire_put_exec_info(&conn->out, info);
		wire_end(&conn->out, mark);
	}
}

bool conn_has_unsent(void)
{
	for (struct conn *conn = conns; conn; conn = conn->next)
		if (conn->out.len && !conn->dead)
			return true;
	return false;
}

static struct conn *conn_newest_daemon(void)
{
	struct conn *found = NULL;

	for (struct conn *conn = conns; conn; conn = conn->next)
		if (conn->hello && !conn->dead && conn->version >= WIRE_VERSION_INSIDE)
			found = conn;
	return found;
}

bool conn_request(const struct wire_request *request)
{
	struct conn *conn = conn_newest_daemon();
	size_t mark;

	if (!conn)
		return false;
	mark = wire_begin(&conn->out, WIRE_REQUEST, 0);
	wire_put_request(&conn->out, request);
	wire_end(&conn->out, mark);
	return true;
}

void conn_drop_others(const struct channel *channel)
{
	for (struct conn *conn = conns; conn; conn = conn->next)
		if (conn != channel->conn)
			conn_kill(conn, "it belongs to what this box was before");
	random_bytes(&boot_id, sizeof boot_id);
}

/* ---- receiving ------------------------------------------------------------------------------ */

static int take_hello(struct conn *conn, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	struct wire_hello hello;

	if (conn->hello || frame->type != WIRE_HELLO || frame->channel)
		return err_set(err, ERR_PROTOCOL, "expected a hello first, and once");
	wire_get_hello(&in, &hello);
	if (wire_get_done(&in, err) < 0)
		return -1;
	if (hello.magic != WIRE_MAGIC || hello.version < WIRE_VERSION_MIN ||
		hello.version_min > WIRE_VERSION)
		return err_set(err, ERR_PROTOCOL, "no common version");
	conn->hello = true;
	conn->version = MIN(hello.version, (unsigned)WIRE_VERSION);
	timer_disarm(&conn->hello_timer);
	if (conn->version >= WIRE_VERSION_INSIDE)
		self_daemon_came();
	return 0;
}

static int take_frame(struct conn *conn, const struct wire_frame *frame, struct err *err)
{
	if (!conn->hello || frame->type == WIRE_HELLO)
		return take_hello(conn, frame, err);
	return channel_take(conn, frame, err);
}

static void conn_process(struct conn *conn)
{
	while (!conn->dead && conn->out.len < OUT_PAUSE) {
		struct wire_frame frame;
		struct err err = ERR_INIT;
		int got;

		/* The daemon says nothing before it has our hello: what comes before its own was
		 * said on an older connection. */
		if (conn->port && !conn->hello && !wire_find_hello(&conn->in, NULL))
			break;
		got = wire_frame_parse(&conn->in, &frame, &err);
		if (got == 0)
			break;
		if (got < 0 || take_frame(conn, &frame, &err) < 0) {
			conn_kill(conn, err.message);
			break;
		}
		buf_eat(&conn->in, WIRE_HEADER + frame.len);
	}
}

static void conn_read(struct conn *conn)
{
	size_t want = conn->hurry ? READ_LARGE : READ_SMALL;
	uint8_t *room = buf_room(&conn->in, want);
	ssize_t got =
		conn->port ? read(conn->fd, room, want) : recv(conn->fd, room, want, MSG_DONTWAIT);

	conn->more = got > 0 || errno == EINTR;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		conn_kill(conn, "end of connection");
		return;
	}
	buf_grew(&conn->in, (size_t)got);
	conn->hurry = (size_t)got >= READ_SMALL;
	conn_process(conn);
	if (!conn->hurry)
		give_back_memory(&conn->in);
}

static void share_room(struct conn *conn)
{
	unsigned first = conn->next_first++;

	for (unsigned i = 0; i < WIRE_CHANNELS_MAX && !conn->blocked && !conn->dead; i++) {
		struct channel *channel = conn->channels[(first + i) % WIRE_CHANNELS_MAX];

		if (channel && channel->ops && channel->ops->room)
			channel->ops->room(channel);
	}
}

bool conn_is_paused(const struct conn *conn)
{
	return conn->out.len >= OUT_PAUSE;
}

void conn_ready(struct conn *conn, uint32_t ready)
{
	if (ready & EPOLLOUT) {
		conn->blocked = false;
		conn_flush(conn);
		conn_process(conn);
		if (!conn->blocked && !conn->dead)
			share_room(conn);
	}
	if (ready & (EPOLLIN | EPOLLHUP | EPOLLERR) && !conn->dead && conn->out.len < OUT_PAUSE)
		conn_read(conn);
}

static void on_conn(struct watch *watch, uint32_t ready)
{
	conn_ready(owner_of(watch, struct conn, watch), ready);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void conn_free(struct conn *conn)
{
	for (size_t i = 0; i < WIRE_CHANNELS_MAX; i++) {
		struct channel *channel = conn->channels[i];

		if (!channel)
			continue;
		if (channel->ops && channel->ops->cancel)
			channel->ops->cancel(channel);
		channel_free(channel);
	}
	timer_disarm(&conn->hello_timer);
	if (conn->port)
		port_conn_gone(conn);
	else
		watch_close(&conn->watch);
	buf_done(&conn->in);
	buf_done(&conn->out);
	free(conn);
}

void conn_settle(void)
{
	/* Freeing one may free an exec's journal, never another connection. */
	for (struct conn **at = &conns; *at;) {
		struct conn *conn = *at;

		if (!conn->dead && conn->out.len && !conn->blocked)
			conn_flush(conn);
		else if (conn->out.len > OUT_MAX)
			conn_kill(conn, "it does not read what it asked for");
		update_watch(conn);
		if (!conn->dead) {
			at = &conn->next;
			continue;
		}
		*at = conn->next;
		conn_free(conn);
		if (!conn_newest_daemon())
			self_daemon_left();
	}
	port_settle();
}

static void on_no_hello(struct timer *timer)
{
	conn_kill(owner_of(timer, struct conn, hello_timer), "no hello");
}

static struct conn *conn_new(int fd)
{
	struct wire_hello hello = { WIRE_MAGIC, WIRE_VERSION, WIRE_VERSION_MIN, boot_id };
	struct conn *conn = xnew(struct conn);
	struct conn **at = &conns;
	size_t mark;

	conn->fd = fd;
	conn->watch = (struct watch)WATCH_INIT;
	mark = wire_begin(&conn->out, WIRE_HELLO, 0);
	wire_put_hello(&conn->out, &hello);
	wire_end(&conn->out, mark);
	while (*at)
		at = &(*at)->next;
	*at = conn;
	return conn;
}

struct conn *conn_start_port(int fd)
{
	struct conn *conn;

	if (!boot_id)
		random_bytes(&boot_id, sizeof boot_id);
	conn = conn_new(fd);
	conn->port = true;
	conn->more = true;
	return conn;
}

static void conn_start_socket(int fd)
{
	struct conn *conn = conn_new(fd);

	watch_open(&conn->watch, fd, on_conn);
	timer_arm(&conn->hello_timer, HELLO_MS, on_no_hello);
	update_watch(conn);
}

static bool make_place(void)
{
	struct conn *silent = NULL;
	unsigned count = 0;

	for (struct conn *conn = conns; conn; conn = conn->next) {
		/* Its hello may be there unread. */
		if (!conn->hello && !conn->dead)
			conn_read(conn);
		if (conn->dead)
			continue;
		count++;
		if (!conn->hello && !silent)
			silent = conn;
	}
	if (count < CONNS_MAX)
		return true;
	if (silent)
		conn_kill(silent, "others wait and it said nothing");
	return silent != NULL;
}

/* The daemon is outside and has no pid in here. Programs of the box may not use this socket: they
 * could keep the daemon out by taking all places. */
static bool comes_from_inside(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof peer;

	return getpid() == 1 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
	       peer.pid != 0;
}

static void on_accept_again(struct timer *timer)
{
	(void)timer;
	watch_set(&listener, EPOLLIN);
}

static void on_accept(struct watch *watch, uint32_t ready)
{
	int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)ready;
	if (fd < 0) {
		/* Out of descriptors: the waiting connection stays readable, which must not become
		 * a busy loop. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			watch_set(&listener, 0);
			timer_arm(&accept_timer, ACCEPT_PAUSE_MS, on_accept_again);
		}
		return;
	}
	if (comes_from_inside(fd) || !make_place()) {
		close(fd);
		return;
	}
	conn_start_socket(fd);
}

int conn_listen(int fd, struct err *err)
{
	int flag = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &flag, &(socklen_t){ sizeof flag }) < 0 ||
		!flag)
		return err_set(err, ERR_INVALID, "descriptor %d is no listening socket", fd);
	random_bytes(&boot_id, sizeof boot_id);
	watch_open(&listener, fd, on_accept);
	watch_set(&listener, EPOLLIN);
	return 0;
}
