/* link.c - channels over one connection to a box-init; see link.h and wire/wire.h
 *
 * Everything read here may come from an attacker. A frame that breaks the rules (unknown channel,
 * more data than the window allows, a second reply) ends the link; it is never worked around.
 *
 * Lifetimes: callbacks may close channels and free the link. Channels are therefore removed from
 * the table only by the reading code itself (on CLOSE from the box, or when the link ends), and a
 * link freed while it is dispatching is only marked, and freed when the dispatch is over. */
#include "link/link.h"
#include "loop/loop.h"
#include <assert.h>
#include <errno.h>

enum {
	READ_CHUNK = 128 * 1024,
	DRAIN_ROUNDS = 64,
	READ_ROUNDS = 4, /* chunks per wake-up, so that one busy box does not starve the others */
	OUT_HIGH = 1024 * 1024,	       /* a box that does not read: channels may not send more */
	WINDOW_STEP = WIRE_WINDOW / 4, /* credit is given back in portions of this size */
	/* box-init of a VM that runs greets within this, also on a busy machine: a greeting that
	 * is late meets the next connection and is followed by another. Twice as long each
	 * time. */
	PORT_HELLO_MS = 400,
	PORT_HELLO_MAX_MS = 3200,
	PORT_PAUSE_MS = 20, /* for it to see that one connection has ended */
};

struct chan {
	struct link *link;
	uint32_t id;
	bool background;	    /* see chan_set_background */
	const struct chan_ops *ops; /* NULL: our side has closed it and waits for the box's CLOSE */
	void *arg;
	uint32_t send_window;
	uint32_t recv_window;
	uint32_t credit; /* consumed, not yet given back */
	bool replied;
	bool ended;   /* the box has sent END */
	bool starved; /* chan_send_room was 0: on_writable must be called later */
};

struct link {
	struct loop *loop;
	int fd; /* -1, and no watch: there is no connection yet */
	struct loop_fd *watch;
	const struct link_ops *ops;
	void *arg;
	struct buf in, out;
	struct chan *chans[WIRE_CHANNELS_MAX];
	unsigned chan_count;
	uint32_t next_id;
	uint64_t traffic;
	unsigned dispatching;
	bool greeted;
	link_connect_fn connect; /* of a port; NULL: none */
	void *connect_arg;
	struct loop_timer *port_timer;
	unsigned port_hello_ms;
	uint64_t skipped; /* bytes before the hello */
	unsigned version;
	bool over;  /* no more frames in or out */
	bool freed; /* link_free was called while dispatching */
};

/* QEMU keeps as much as a stopped guest has sent, and more comes when it goes on. */
#define PORT_SKIP_MAX (UINT64_C(256) * 1024 * 1024)

static const struct chan_ops no_ops;

/* ---- ending --------------------------------------------------------------------------------- */

static void link_destroy(struct link *link)
{
	loop_timer_free(link->port_timer);
	loop_fd_free(link->watch);
	if (link->fd >= 0)
		close(link->fd);
	buf_done(&link->in);
	buf_done(&link->out);
	for (unsigned i = 0; i < link->chan_count; i++)
		free(link->chans[i]);
	free(link);
}

/* Without a connection, what is to be sent waits for link_attach. */
static void watch_for(struct link *link, unsigned ready)
{
	if (link->watch)
		loop_fd_set(link->watch, ready);
}

static void dispatch_enter(struct link *link)
{
	link->dispatching++;
}

/* Returns false when the link was freed. */
static bool dispatch_leave(struct link *link)
{
	if (--link->dispatching == 0 && link->freed) {
		link_destroy(link);
		return false;
	}
	return true;
}

/* Fails every channel; none is left afterwards. */
static void drop_chans(struct link *link, const struct err *err)
{
	dispatch_enter(link);
	while (link->chan_count) {
		struct chan *chan = link->chans[--link->chan_count];

		if (chan->ops && chan->ops->on_error)
			chan->ops->on_error(chan, err, chan->arg);
		free(chan);
	}
	dispatch_leave(link);
}

static void link_lost(struct link *link, const struct err *why)
{
	struct err err = *why;

	if (link->over)
		return;
	link->over = true;
	watch_for(link, 0);
	dispatch_enter(link);
	drop_chans(link, &err);
	if (!link->freed)
		link->ops->on_lost(link, &err, link->arg);
	dispatch_leave(link);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void tell_writable(struct link *link)
{
	for (unsigned i = 0; i < link->chan_count && !link->over && !link->freed; i++) {
		struct chan *chan = link->chans[i];

		if (chan->starved && chan_send_room(chan)) {
			chan->starved = false;
			if (chan->ops && chan->ops->on_writable)
				chan->ops->on_writable(chan, chan->arg);
		}
	}
}

/* Over a port, what is sent too early is lost, or read as part of something older. */
static bool may_send(const struct link *link)
{
	return link->fd >= 0 && (!link->connect || link->greeted);
}

static void flush(struct link *link)
{
	if (!may_send(link)) {
		watch_for(link, LOOP_READ);
		return;
	}
	while (link->out.len && !link->over) {
		ssize_t put = write(link->fd, buf_head(&link->out), link->out.len);

		if (put > 0) {
			buf_eat(&link->out, (size_t)put);
			continue;
		}
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0 && errno != EAGAIN) {
			struct err err = ERR_INIT;

			err_sys(&err, errno, "write to box-init");
			err.kind = ERR_UNAVAILABLE;
			link_lost(link, &err);
			return;
		}
		break;
	}
	/* A burst leaves a large buffer; with hundreds of boxes that adds up. */
	if (!link->out.len && link->out.cap > 65536)
		buf_done(&link->out);
	if (!link->over)
		watch_for(link, LOOP_READ | (link->out.len ? LOOP_WRITE : 0));
}

/* ---- reading -------------------------------------------------------------------------------- */

static struct chan *chan_find(struct link *link, uint32_t id, unsigned *ret_index)
{
	for (unsigned i = 0; i < link->chan_count; i++)
		if (link->chans[i]->id == id) {
			if (ret_index)
				*ret_index = i;
			return link->chans[i];
		}
	return NULL;
}

static int on_hello(struct link *link, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	struct wire_hello hello;

	wire_get_hello(&in, &hello);
	if (link->greeted && link->connect)
		return err_set(err, ERR_UNAVAILABLE, "box-init began anew");
	if (wire_get_done(&in, err) < 0 || link->greeted)
		return err_set(err, ERR_PROTOCOL, "malformed hello");
	if (hello.magic != WIRE_MAGIC || hello.version_min > WIRE_VERSION ||
		hello.version < WIRE_VERSION_MIN)
		return err_set(err, ERR_PROTOCOL, "box-init speaks version %u, this daemon %d",
			hello.version, WIRE_VERSION);
	link->greeted = true;
	if (link->port_timer)
		loop_timer_stop(link->port_timer);
	link->version = MIN(hello.version, (unsigned)WIRE_VERSION);
	if (link->ops->on_ready)
		link->ops->on_ready(link, link->arg);
	return 0;
}

static int on_event(struct link *link, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	uint8_t event = wire_get_u8(&in);
	struct wire_exec_info info;
	int ret;

	wire_get_exec_info(&in, &info);
	ret = wire_get_done(&in, err);
	if (ret == 0 && event != WIRE_EVENT_EXEC_STARTED && event != WIRE_EVENT_EXEC_EXITED)
		ret = err_set(err, ERR_PROTOCOL, "unknown event %u", event);
	if (ret == 0 && link->ops->on_event)
		link->ops->on_event(link, event, &info, link->arg);
	free((void *)info.argv);
	return ret;
}

static int on_request(struct link *link, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	struct wire_request request;
	int ret;

	wire_get_request(&in, &request);
	ret = wire_get_done(&in, err);
	if (ret == 0 && link->ops->on_request)
		link->ops->on_request(link, &request, link->arg);
	free((void *)request.words);
	return ret;
}

static int on_data(struct chan *chan, const struct wire_frame *frame, struct err *err)
{
	const struct chan_ops *ops = chan->ops ? chan->ops : &no_ops;
	struct wire_reader in = WIRE_READER(frame);
	uint8_t stream = wire_get_u8(&in);
	uint64_t offset = wire_get_u64(&in);

	if (in.bad || stream > WIRE_STREAM_STDERR ||
		frame->len > WIRE_DATA_HEADER + WIRE_DATA_MAX || chan->ended)
		return err_set(err, ERR_PROTOCOL, "malformed data frame");
	if (frame->len > chan->recv_window)
		return err_set(err, ERR_PROTOCOL, "more data than the window allows");
	chan->recv_window -= frame->len;
	chan->link->traffic += frame->len;
	chan->credit += WIRE_DATA_HEADER;
	if (ops->on_data)
		ops->on_data(chan, stream, offset, in.at, (size_t)(in.end - in.at), chan->arg);
	else
		chan_consumed(chan, (size_t)(in.end - in.at));
	return 0;
}

static int on_time(struct chan *chan, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	uint64_t time_us = wire_get_u64(&in);

	if (wire_get_done(&in, err) < 0)
		return -1;
	if (chan->link->version < WIRE_VERSION_TIMES)
		return err_set(err, ERR_PROTOCOL, "a time from a box-init that knows none");
	if (chan->ops && chan->ops->on_time)
		chan->ops->on_time(chan, time_us, chan->arg);
	return 0;
}

static int on_gap(struct chan *chan, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	uint64_t offset = wire_get_u64(&in);
	uint64_t lost = wire_get_u64(&in);

	if (wire_get_done(&in, err) < 0)
		return -1;
	if (chan->ops && chan->ops->on_gap)
		chan->ops->on_gap(chan, offset, lost, chan->arg);
	return 0;
}

static int on_exit_frame(struct chan *chan, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	struct wire_exit exit;

	wire_get_exit(&in, &exit);
	if (wire_get_done(&in, err) < 0)
		return -1;
	if (chan->ops && chan->ops->on_exit)
		chan->ops->on_exit(chan, &exit, chan->arg);
	return 0;
}

static int on_reply(struct chan *chan, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);

	if (chan->replied)
		return err_set(err, ERR_PROTOCOL, "second reply on one channel");
	chan->replied = true;
	if (chan->ops && chan->ops->on_reply)
		chan->ops->on_reply(chan, &in, chan->arg);
	return 0;
}

static int on_error(struct chan *chan, const struct wire_frame *frame, struct err *err)
{
	const struct chan_ops *ops = chan->ops;
	struct wire_reader in = WIRE_READER(frame);
	struct err told = ERR_INIT;

	wire_get_error(&in, &told);
	if (wire_get_done(&in, err) < 0)
		return -1;
	chan->ops = NULL; /* CLOSE follows; on_end was called already */
	if (ops && ops->on_error)
		ops->on_error(chan, &told, chan->arg);
	return 0;
}

static int on_window(struct chan *chan, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	uint32_t add = wire_get_u32(&in);

	if (wire_get_done(&in, err) < 0 || add > WIRE_WINDOW ||
		chan->send_window + add > WIRE_WINDOW)
		return err_set(err, ERR_PROTOCOL, "window larger than allowed");
	chan->send_window += add;
	if (chan->starved && chan_send_room(chan)) {
		chan->starved = false;
		if (chan->ops && chan->ops->on_writable)
			chan->ops->on_writable(chan, chan->arg);
	}
	return 0;
}

static int on_end(struct chan *chan, struct err *err)
{
	if (chan->ended)
		return err_set(err, ERR_PROTOCOL, "second end on one channel");
	chan->ended = true;
	if (chan->ops && chan->ops->on_end)
		chan->ops->on_end(chan, chan->arg);
	return 0;
}

static void on_close(struct link *link, struct chan *chan, unsigned index)
{
	const struct chan_ops *ops = chan->ops;

	link->chans[index] = link->chans[--link->chan_count];
	chan->ops = NULL;
	if (ops && ops->on_closed)
		ops->on_closed(chan, chan->arg);
	free(chan);
}

/* Readers begin their own answer at the reply and rely on it coming first. */
static bool follows_reply(enum wire_type type)
{
	return type == WIRE_DATA || type == WIRE_END || type == WIRE_GAP || type == WIRE_EXIT ||
	       type == WIRE_TIME;
}

static int on_chan_frame(struct link *link, const struct wire_frame *frame, struct err *err)
{
	unsigned index = 0;
	struct chan *chan = chan_find(link, frame->channel, &index);

	if (!chan)
		return err_set(err, ERR_PROTOCOL, "frame for channel %u, which is not open",
			frame->channel);
	if (!chan->replied && follows_reply(frame->type))
		return err_set(err, ERR_PROTOCOL, "frame of type %d before the reply", frame->type);
	switch (frame->type) {
	case WIRE_REPLY:
		return on_reply(chan, frame, err);
	case WIRE_ERROR:
		return on_error(chan, frame, err);
	case WIRE_DATA:
		return on_data(chan, frame, err);
	case WIRE_END:
		return on_end(chan, err);
	case WIRE_WINDOW_ADD:
		return on_window(chan, frame, err);
	case WIRE_TIME:
		return on_time(chan, frame, err);
	case WIRE_GAP:
		return on_gap(chan, frame, err);
	case WIRE_EXIT:
		return on_exit_frame(chan, frame, err);
	case WIRE_CLOSE:
		on_close(link, chan, index);
		return 0;
	default:
		return err_set(err, ERR_PROTOCOL, "frame of type %d from box-init", frame->type);
	}
}

static int on_frame(struct link *link, const struct wire_frame *frame, struct err *err)
{
	if (frame->channel)
		return link->greeted ? on_chan_frame(link, frame, err)
				     : err_set(err, ERR_PROTOCOL, "frame before hello");
	if (frame->type == WIRE_HELLO)
		return on_hello(link, frame, err);
	if (frame->type == WIRE_EVENT && link->greeted)
		return on_event(link, frame, err);
	if (frame->type == WIRE_REQUEST && link->greeted && link->version >= WIRE_VERSION_INSIDE)
		return on_request(link, frame, err);
	return err_set(err, ERR_PROTOCOL, "frame of type %d on channel 0", frame->type);
}

static int eat_frames(struct link *link, struct err *err)
{
	struct wire_frame frame;
	int got;

	if (link->connect && !link->greeted && !wire_find_hello(&link->in, &link->skipped))
		return link->skipped > PORT_SKIP_MAX
			       ? err_set(err, ERR_PROTOCOL, "no hello of box-init")
			       : 0;
	while (!link->over && !link->freed &&
		(got = wire_frame_parse(&link->in, &frame, err)) != 0) {
		if (got < 0 || on_frame(link, &frame, err) < 0)
			return -1;
		buf_eat(&link->in, WIRE_HEADER + frame.len);
	}
	if (!link->in.len && link->in.cap > READ_CHUNK * 2)
		buf_done(&link->in);
	return 0;
}

static int read_some(struct link *link, struct err *err)
{
	for (int round = 0; round < READ_ROUNDS && !link->over && !link->freed; round++) {
		/* A quiet link needs little room; a busy one gets the whole chunk. */
		size_t want = link->in.cap >= READ_CHUNK || round ? READ_CHUNK : 4096;
		ssize_t got = read(link->fd, buf_room(&link->in, want), want);

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (got <= 0) {
			err_set(err, ERR_UNAVAILABLE, "box-init hung up");
			return -1;
		}
		buf_grew(&link->in, (size_t)got);
		if (eat_frames(link, err) < 0)
			return -1;
		if ((size_t)got < want)
			return 0;
	}
	return 0;
}

static void on_fd(void *arg, unsigned ready)
{
	struct link *link = arg;
	struct err err = ERR_INIT;

	dispatch_enter(link);
	if ((ready & LOOP_READ) && read_some(link, &err) < 0)
		link_lost(link, &err);
	if (!link->over && !link->freed) {
		flush(link);
		if (link->out.len < OUT_HIGH)
			tell_writable(link);
		flush(link);
	}
	dispatch_leave(link);
}

/* ---- the public side ------------------------------------------------------------------------- */

struct link *link_new(struct loop *loop, int fd, const struct link_ops *ops, void *arg)
{
	struct wire_hello hello = {
		.magic = WIRE_MAGIC, .version = WIRE_VERSION, .version_min = WIRE_VERSION_MIN
	};
	struct link *link = xnew(struct link);
	size_t mark;

	link->loop = loop;
	link->fd = fd;
	link->ops = ops;
	link->arg = arg;
	link->next_id = 1;
	mark = wire_begin(&link->out, WIRE_HELLO, 0);
	wire_put_hello(&link->out, &hello);
	wire_end(&link->out, mark);
	if (fd >= 0)
		link_attach(link, fd);
	return link;
}

bool link_is_lost(const struct link *link)
{
	return link->over;
}

unsigned link_version(const struct link *link)
{
	return link->version;
}

void link_attach(struct link *link, int fd)
{
	assert(!link->watch);
	link->fd = fd;
	link->watch = loop_fd_new(link->loop, fd, LOOP_READ | LOOP_WRITE, on_fd, link);
}

static void on_port_timer(void *arg)
{
	struct link *link = arg;
	struct err err = ERR_INIT;
	int fd = -1;

	if (link->over || link->greeted)
		return;
	if (link->fd >= 0) {
		loop_fd_free(steal_ptr(&link->watch));
		close(steal_fd(&link->fd));
		buf_done(&link->in);
		loop_timer_start(link->port_timer, PORT_PAUSE_MS);
	} else if (link->connect(link->connect_arg, &fd, &err) == 0) {
		link_attach(link, fd);
		link->port_hello_ms = MIN(link->port_hello_ms * 2, (unsigned)PORT_HELLO_MAX_MS);
		loop_timer_start(link->port_timer, link->port_hello_ms);
	} else {
		link_lost(link, &err);
	}
}

void link_attach_port(struct link *link, int fd, link_connect_fn connect, void *arg)
{
	link->connect = connect;
	link->connect_arg = arg;
	link->port_timer = loop_timer_new(link->loop, on_port_timer, link);
	link->port_hello_ms = PORT_HELLO_MS;
	link_attach(link, fd);
	loop_timer_start(link->port_timer, link->port_hello_ms);
}

void link_drain(struct link *link)
{
	struct err err = ERR_INIT;

	if (link->dispatching)
		return;
	dispatch_enter(link);
	for (int i = 0; i < DRAIN_ROUNDS && link->fd >= 0 && !link->over && !link->freed; i++) {
		uint64_t before = link->traffic;

		if (read_some(link, &err) < 0)
			link_lost(link, &err);
		else if (link->traffic == before)
			break;
	}
	dispatch_leave(link);
}

void link_fail(struct link *link, const struct err *err)
{
	link_lost(link, err);
}

unsigned link_open_work(const struct link *link)
{
	unsigned count = 0;

	for (unsigned i = 0; i < link->chan_count; i++)
		count += link->chans[i]->ops && !link->chans[i]->background;
	return count;
}

uint64_t link_traffic(const struct link *link)
{
	return link->traffic;
}

void link_free(struct link *link)
{
	struct err err = ERR_INIT;

	if (!link || link->freed)
		return;
	link->freed = true;
	link->over = true;
	dispatch_enter(link);
	err_set(&err, ERR_UNAVAILABLE, "the box is no longer reachable");
	drop_chans(link, &err);
	dispatch_leave(link);
}

struct chan *chan_open(struct link *link, enum wire_op op, const struct buf *request,
	const struct chan_ops *ops, void *arg, struct err *err)
{
	struct chan *chan;
	size_t mark;

	if (link->over || link->freed) {
		err_set(err, ERR_UNAVAILABLE, "the box is not reachable");
		return NULL;
	}
	if (link->chan_count == WIRE_CHANNELS_MAX || link->out.len >= OUT_HIGH) {
		err_set(err, ERR_LIMIT, "the box is busy: %u requests are open", link->chan_count);
		return NULL;
	}
	if (request && request->len + 1 > WIRE_PAYLOAD_MAX) {
		err_set(err, ERR_TOO_LARGE, "the request is larger than %d bytes",
			WIRE_PAYLOAD_MAX - 1);
		return NULL;
	}
	chan = xnew(struct chan);
	chan->link = link;
	chan->id = link->next_id++;
	chan->ops = ops ? ops : &no_ops;
	chan->arg = arg;
	chan->send_window = chan->recv_window = WIRE_WINDOW;
	link->chans[link->chan_count++] = chan;
	mark = wire_begin(&link->out, WIRE_OPEN, chan->id);
	wire_put_u8(&link->out, (uint8_t)op);
	if (request)
		buf_add(&link->out, buf_head(request), request->len);
	wire_end(&link->out, mark);
	/* Not flushed inside this call if that would report a loss: the caller has no chan yet. */
	dispatch_enter(link);
	watch_for(link, LOOP_READ | LOOP_WRITE);
	while (link->out.len && may_send(link)) {
		ssize_t put = write(link->fd, buf_head(&link->out), link->out.len);

		if (put <= 0)
			break; /* the watch takes over */
		buf_eat(&link->out, (size_t)put);
	}
	if (!link->out.len)
		watch_for(link, LOOP_READ);
	dispatch_leave(link);
	return chan;
}

void chan_set_background(struct chan *chan)
{
	chan->background = true;
}

size_t chan_send_room(const struct chan *chan)
{
	if (chan->link->over || chan->link->out.len >= OUT_HIGH ||
		chan->send_window <= WIRE_DATA_HEADER)
		return 0;
	/* Each frame of at most WIRE_DATA_MAX pays its header. */
	return chan->send_window - WIRE_DATA_HEADER * (chan->send_window / WIRE_DATA_MAX + 1);
}

size_t chan_send(struct chan *chan, const void *data, size_t len)
{
	struct link *link = chan->link;
	size_t room = chan_send_room(chan);
	size_t sent = 0;

	if (len > room)
		chan->starved = true;
	len = MIN(len, room);
	while (sent < len) {
		size_t part = MIN(len - sent, (size_t)WIRE_DATA_MAX);

		wire_add_data(
			&link->out, chan->id, WIRE_STREAM_MAIN, 0, (const char *)data + sent, part);
		chan->send_window -= (uint32_t)(part + WIRE_DATA_HEADER);
		sent += part;
	}
	link->traffic += sent;
	if (chan_send_room(chan) == 0)
		chan->starved = true;
	if (sent)
		watch_for(link, LOOP_READ | LOOP_WRITE);
	return sent;
}

static void send_control(struct chan *chan, enum wire_type type, const struct buf *payload)
{
	struct link *link = chan->link;
	size_t mark;

	if (link->over)
		return;
	mark = wire_begin(&link->out, type, chan->id);
	if (payload)
		buf_add(&link->out, buf_head(payload), payload->len);
	wire_end(&link->out, mark);
	watch_for(link, LOOP_READ | LOOP_WRITE);
}

void chan_send_end(struct chan *chan)
{
	send_control(chan, WIRE_END, NULL);
}

void chan_signal(struct chan *chan, uint32_t signal)
{
	struct buf payload = BUF_INIT;

	if (chan->link->out.len >= OUT_HIGH)
		return;
	wire_put_u32(&payload, signal);
	send_control(chan, WIRE_SIGNAL, &payload);
	buf_done(&payload);
}

void chan_resize(struct chan *chan, uint16_t rows, uint16_t cols)
{
	struct buf payload = BUF_INIT;

	if (chan->link->out.len >= OUT_HIGH)
		return;
	wire_put_u16(&payload, rows);
	wire_put_u16(&payload, cols);
	send_control(chan, WIRE_RESIZE, &payload);
	buf_done(&payload);
}

void chan_consumed(struct chan *chan, size_t len)
{
	struct buf payload = BUF_INIT;

	chan->credit += (uint32_t)len;
	if (chan->credit < WINDOW_STEP || !chan->ops)
		return;
	wire_put_u32(&payload, chan->credit);
	send_control(chan, WIRE_WINDOW_ADD, &payload);
	buf_done(&payload);
	chan->recv_window += chan->credit;
	chan->credit = 0;
	assert(chan->recv_window <= WIRE_WINDOW);
}

void chan_close(struct chan *chan)
{
	if (!chan->ops)
		return;
	chan->ops = NULL;
	send_control(chan, WIRE_CLOSE, NULL);
}
