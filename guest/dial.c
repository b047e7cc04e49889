/* dial.c - see dial.h
 *
 * First 127.0.0.1, then ::1: servers listen on either. Each direction ends on its own: END from the
 * daemon shuts our sending side when all is written, end of file from the server becomes END; when
 * both have ended the channel closes. */
#include "guest/dial.h"
#include "guest/conn.h"
#include "guest/watch.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { CONNECT_MS = 10 * 1000 };

struct dial {
	struct channel *channel;
	struct watch watch;
	struct timer timer;
	uint16_t port;
	bool tried_v6, connected;
	bool they_ended; /* end of file from the server */
	bool we_ended;	 /* END from the daemon */
	bool we_shut;	 /* passed on to the server */
	struct buf to;	 /* for the server; bounded by the window */
};

static uint8_t scratch[WIRE_DATA_MAX];

static void dial_free(struct dial *dial)
{
	timer_disarm(&dial->timer);
	watch_close(&dial->watch);
	buf_done(&dial->to);
	free(dial);
}

static void dial_fail(struct dial *dial, enum err_kind kind, const char *what)
{
	struct err err = ERR_INIT;

	err_set(&err, kind, "%s on port %u in the box", what, dial->port);
	channel_error(dial->channel, &err);
	dial_free(dial);
}

static void dial_update(struct dial *dial)
{
	uint32_t events = 0;

	if (!dial->connected || dial->to.len)
		events |= EPOLLOUT;
	if (dial->connected && !dial->they_ended && channel_room(dial->channel))
		events |= EPOLLIN;
	watch_set(&dial->watch, events);
}

/* Closes the dial when both directions have ended. False: it was freed. */
static bool dial_goes_on(struct dial *dial)
{
	if (dial->we_ended && !dial->to.len && !dial->we_shut && dial->connected) {
		shutdown(dial->watch.fd, SHUT_WR);
		dial->we_shut = true;
	}
	if (!dial->we_shut || !dial->they_ended) {
		dial_update(dial);
		return true;
	}
	channel_close(dial->channel);
	dial_free(dial);
	return false;
}

static void write_more(struct dial *dial)
{
	ssize_t put = send(
		dial->watch.fd, buf_head(&dial->to), dial->to.len, MSG_DONTWAIT | MSG_NOSIGNAL);

	/* A broken connection is noticed when reading, after the last bytes. */
	if (put < 0 && errno != EAGAIN && errno != EINTR)
		put = (ssize_t)dial->to.len;
	if (put <= 0)
		return;
	buf_eat(&dial->to, (size_t)put);
	channel_consumed(dial->channel, (size_t)put);
}

/* False: the connection broke, and the dial was freed. */
static bool read_more(struct dial *dial)
{
	size_t room = channel_room(dial->channel);
	struct iovec data[2] = { { scratch, 0 }, { scratch, 0 } };
	ssize_t got;

	if (!room || dial->they_ended)
		return true;
	/* Peeked first, and taken only when it could be sent: there is no buffer to keep it. */
	got = recv(dial->watch.fd, scratch, room, MSG_DONTWAIT | MSG_PEEK);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (got < 0) {
		dial_fail(dial, ERR_UNAVAILABLE, "connection broken");
		return false;
	}
	if (!got) {
		dial->they_ended = true;
		channel_begin(dial->channel, WIRE_END);
		channel_end(dial->channel);
		return true;
	}
	data[0].iov_len = (size_t)got;
	if (channel_send(dial->channel, WIRE_STREAM_MAIN, 0, data) &&
		recv(dial->watch.fd, scratch, (size_t)got, MSG_DONTWAIT | MSG_TRUNC) < 0) {
		dial_fail(dial, ERR_UNAVAILABLE, "connection broken");
		return false;
	}
	return true;
}

static void on_dial(struct watch *watch, uint32_t ready)
{
	struct dial *dial = owner_of(watch, struct dial, watch);

	if (ready & EPOLLOUT && dial->to.len)
		write_more(dial);
	if (ready & (EPOLLIN | EPOLLHUP | EPOLLERR) && !read_more(dial))
		return;
	/* A hang-up is reported repeatedly; without room to read it has to wait. */
	if (ready & (EPOLLHUP | EPOLLERR) && !channel_room(dial->channel))
		buf_done(&dial->to);
	dial_goes_on(dial);
}

/* ---- connecting ----------------------------------------------------------------------------- */

static void dial_connected(struct dial *dial)
{
	int on = 1;

	timer_disarm(&dial->timer);
	dial->connected = true;
	dial->watch.fn = on_dial;
	setsockopt(dial->watch.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	channel_begin(dial->channel, WIRE_REPLY);
	channel_end(dial->channel);
	if (dial->to.len)
		write_more(dial);
	dial_goes_on(dial);
}

static void dial_try(struct dial *dial);

static void try_next(struct dial *dial)
{
	watch_close(&dial->watch);
	if (dial->tried_v6) {
		dial_fail(dial, ERR_UNAVAILABLE, "nothing listens");
		return;
	}
	dial->tried_v6 = true;
	dial_try(dial);
}

static void on_connecting(struct watch *watch, uint32_t ready)
{
	struct dial *dial = owner_of(watch, struct dial, watch);
	int status = 0;

	(void)ready;
	if (getsockopt(watch->fd, SOL_SOCKET, SO_ERROR, &status, &(socklen_t){ sizeof status }) <
			0 ||
		status)
		try_next(dial);
	else
		dial_connected(dial);
}

static void dial_try(struct dial *dial)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(dial->port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(dial->port) };
	const void *address = dial->tried_v6 ? (void *)&v6 : (void *)&v4;
	socklen_t len = dial->tried_v6 ? sizeof v6 : sizeof v4;
	int fd = socket(
		dial->tried_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	v6.sin6_addr = in6addr_loopback;
	watch_open(&dial->watch, fd, on_connecting);
	if (fd < 0)
		try_next(dial);
	else if (connect(fd, address, len) == 0)
		dial_connected(dial);
	else if (errno == EINPROGRESS)
		dial_update(dial);
	else
		try_next(dial);
}

static void on_slow(struct timer *timer)
{
	dial_fail(owner_of(timer, struct dial, timer), ERR_TIMEOUT, "no answer");
}

/* ---- the channel's side --------------------------------------------------------------------- */

static void dial_data(
	struct channel *channel, const struct wire_frame *frame, const uint8_t *data, size_t len)
{
	struct dial *dial = channel->owner;

	(void)frame;
	buf_add(&dial->to, data, len);
	if (dial->connected)
		write_more(dial);
	dial_update(dial);
}

static void dial_end(struct channel *channel)
{
	struct dial *dial = channel->owner;

	dial->we_ended = true;
	dial_goes_on(dial);
}

static void dial_room(struct channel *channel)
{
	dial_update(channel->owner);
}

static void dial_cancel(struct channel *channel)
{
	dial_free(channel->owner);
}

static const struct channel_ops dial_ops = {
	.data = dial_data,
	.end = dial_end,
	.room = dial_room,
	.cancel = dial_cancel,
};

int dial_open(struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	uint16_t port = wire_get_u16(in);
	struct dial *dial;

	(void)op;
	if (wire_get_done(in, err) < 0)
		return -1;
	if (!port)
		return err_set(err, ERR_INVALID, "a port is 1 to 65535");
	dial = xnew(struct dial);
	dial->watch.fd = -1;
	dial->channel = channel;
	dial->port = port;
	channel->ops = &dial_ops;
	channel->owner = dial;
	timer_arm(&dial->timer, CONNECT_MS, on_slow);
	dial_try(dial);
	return 0;
}
