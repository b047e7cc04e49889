/* port_dial.c - connections to servers on the loopback of a box with a kernel of its own
 *
 * Only box-init can open them (WIRE_OP_DIAL). The caller gets one end of a socket pair, and this
 * file carries bytes between the other end and the channel to box-init. Whoever connects to a box
 * waits for its socket to become writable and then asks for its error. So the pair is filled up
 * with bytes that nobody will see until box-init has answered: then they are taken out, and the
 * caller's end is writable; or our end is closed with these bytes unread, which is an error at the
 * caller's. */
#include "base/buf.h"
#include "core/boxnet/network_internal.h"
#include "core/boxnet/port_internal.h"
#include "core/core_internal.h"
#include "link/link.h"
#include "loop/loop.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

enum {
	DIALS_MAX = WIRE_CHANNELS_MAX / 2, /* of a box; the rest is for programs and files */
	PIECE = 32 * 1024,
	FILLER_MAX = 64 * PIECE,
};

struct port_dial {
	struct port_dial *next;
	struct network *net;
	int fd; /* our end */
	struct loop_fd *watch;
	unsigned watched;
	struct chan *chan; /* NULL: box-init has closed it */
	size_t filler;	   /* bytes in the pair that are not the caller's; 0: it is connected */
	struct buf out;	   /* for the caller; at most the channel's window */
	bool caller_ended, box_ended, shut;
};

static char scratch[PIECE]; /* one thread runs the loop */

static void port_dial_free(struct port_dial *dial)
{
	struct port_dial **slot = &dial->net->dials;

	while (*slot != dial)
		slot = &(*slot)->next;
	*slot = dial->next;
	dial->net->dial_count--;
	if (dial->chan)
		chan_close(dial->chan);
	loop_fd_free(dial->watch);
	close(dial->fd);
	buf_done(&dial->out);
	free(dial);
}

void port_dials_free(struct network *net)
{
	while (net->dials)
		port_dial_free(net->dials);
}

static void update(struct port_dial *dial)
{
	unsigned want = 0;

	if (!dial->filler && !dial->caller_ended && dial->chan && chan_send_room(dial->chan))
		want |= LOOP_READ;
	if (dial->out.len)
		want |= LOOP_WRITE;
	if (!want)
		want = LOOP_HANGUP;
	if (want != dial->watched)
		loop_fd_set(dial->watch, want);
	dial->watched = want;
}

/* False: the caller is gone. */
static bool send_out(struct port_dial *dial)
{
	while (dial->out.len) {
		ssize_t sent = send(
			dial->fd, buf_head(&dial->out), dial->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN;
		buf_eat(&dial->out, (size_t)sent);
		if (dial->chan)
			chan_consumed(dial->chan, (size_t)sent);
	}
	if (dial->box_ended && !dial->shut) {
		dial->shut = true;
		shutdown(dial->fd, SHUT_WR);
	}
	return true;
}

/* Sends what there is; frees the dial when it is over. */
static void go_on(struct port_dial *dial)
{
	if (!send_out(dial) || (!dial->chan && !dial->out.len))
		port_dial_free(dial);
	else
		update(dial);
}

/* ---- the caller ----------------------------------------------------------------------------- */

/* False: the caller is gone. */
static bool take(struct port_dial *dial)
{
	size_t room = MIN(chan_send_room(dial->chan), sizeof scratch);
	ssize_t got = room ? recv(dial->fd, scratch, room, MSG_DONTWAIT) : -1;

	if (!room)
		return true;
	if (got < 0)
		return errno == EAGAIN || errno == EINTR;
	if (got > 0) {
		chan_send(dial->chan, scratch, (size_t)got);
	} else {
		dial->caller_ended = true;
		chan_send_end(dial->chan);
	}
	return true;
}

static void on_ready(void *arg, unsigned ready)
{
	struct port_dial *dial = arg;

	if (ready & LOOP_HANGUP || (ready & LOOP_READ && dial->chan && !take(dial)))
		port_dial_free(dial);
	else
		go_on(dial);
}

/* ---- box-init ------------------------------------------------------------------------------- */

static void on_reply(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct port_dial *dial = arg;

	(void)chan;
	(void)reply;
	while (dial->filler) {
		ssize_t got =
			recv(dial->fd, scratch, MIN(dial->filler, sizeof scratch), MSG_DONTWAIT);

		if (got <= 0)
			break;
		dial->filler -= (size_t)got;
	}
	update(dial);
}

static void on_data(struct chan *chan, enum wire_stream stream, uint64_t offset, const void *data,
	size_t len, void *arg)
{
	struct port_dial *dial = arg;

	(void)chan;
	(void)stream;
	(void)offset;
	buf_add(&dial->out, data, len);
	go_on(dial);
}

static void on_end(struct chan *chan, void *arg)
{
	struct port_dial *dial = arg;

	(void)chan;
	dial->box_ended = true;
	go_on(dial);
}

static void on_writable(struct chan *chan, void *arg)
{
	(void)chan;
	update(arg);
}

static void on_closed(struct chan *chan, void *arg)
{
	struct port_dial *dial = arg;

	(void)chan;
	dial->chan = NULL;
	go_on(dial);
}

static void on_error(struct chan *chan, const struct err *err, void *arg)
{
	(void)err;
	on_closed(chan, arg);
}

static const struct chan_ops chan_ops = {
	.on_reply = on_reply,
	.on_data = on_data,
	.on_end = on_end,
	.on_writable = on_writable,
	.on_closed = on_closed,
	.on_error = on_error,
};

/* ---- opening -------------------------------------------------------------------------------- */

/* Until the caller's end takes nothing more. */
static int fill(int fd, size_t *ret, struct err *err)
{
	struct pollfd poller = { .fd = fd, .events = POLLOUT };

	/* Not more than usual, whatever the machine's default is. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ 4 * PIECE }, sizeof(int));
	*ret = 0;
	while (poll(&poller, 1, 0) > 0) {
		ssize_t sent = send(fd, scratch, sizeof scratch, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0 && errno == EAGAIN)
			break;
		if (sent < 0 || *ret > FILLER_MAX)
			return err_sys(err, sent < 0 ? errno : EFBIG, "fill a pair of sockets");
		*ret += (size_t)sent;
	}
	return 0;
}

static int open_channel(struct port_dial *dial, struct box *box, uint16_t port, struct err *err)
{
	struct buf request = BUF_INIT;
	int status;

	wire_put_u16(&request, port);
	status = box_chan_open(box, WIRE_OP_DIAL, &request, &chan_ops, dial, &dial->chan, err);
	buf_done(&request);
	/* A connection without traffic does not keep a box awake; port_pipe and ingress tell when
	 * there is some. */
	if (status == 0)
		chan_set_background(dial->chan);
	return status;
}

int port_dial(struct box *box, uint16_t port, int *ret_fd, struct err *err)
{
	struct port_dial *dial;
	int pair[2];

	if (box->net->dial_count >= DIALS_MAX)
		return err_set(err, ERR_LIMIT, "box '%s' has %d connections to its loopback",
			box->row.name, DIALS_MAX);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	dial = xnew(struct port_dial);
	dial->net = box->net;
	dial->fd = pair[1];
	dial->watched = LOOP_HANGUP;
	dial->watch = loop_fd_new(box->yard->loop, dial->fd, LOOP_HANGUP, on_ready, dial);
	dial->next = box->net->dials;
	box->net->dials = dial;
	box->net->dial_count++;
	if (fill(pair[0], &dial->filler, err) < 0 || open_channel(dial, box, port, err) < 0) {
		port_dial_free(dial);
		close(pair[0]);
		return -1;
	}
	*ret_fd = pair[0];
	return 0;
}
