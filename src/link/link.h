/* link.h - the daemon's end of the connection to a box-init; everything from it is hostile
 *
 * A link multiplexes channels (see wire/wire.h). A channel is one piece of work: an exec's output,
 * a file being read, a dialled port. Data is handed to the reader as it comes; the reader gives the
 * window back with chan_consumed() when it has passed the bytes on, so that a slow client slows the
 * box instead of filling the daemon's memory. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "wire/wire.h"

struct loop;
struct link;
struct chan;

struct link_ops {
	void (*on_ready)(struct link *link, void *arg); /* hello exchanged */
	void (*on_event)(struct link *link, enum wire_event event,
		const struct wire_exec_info *info, void *arg);
	/* The box asks for something; request is borrowed. */
	void (*on_request)(struct link *link, const struct wire_request *request, void *arg);
	/* The connection has ended; all channels got on_error before. Free the link. */
	void (*on_lost)(struct link *link, const struct err *err, void *arg);
};

/* Takes fd (non-blocking). -1: there is no connection yet; channels can be opened, and what is sent
 * waits for link_attach, as far as chan_send_room and chan_open allow. */
struct link *link_new(struct loop *loop, int fd, const struct link_ops *ops, void *arg);
/* The version both sides speak; 0 before on_ready. Ops of a later version must not be sent. */
unsigned link_version(const struct link *link);
/* Its connection has ended: on_lost follows, if it was not called yet. */
bool link_is_lost(const struct link *link);
void link_attach(struct link *link, int fd); /* for a link without a connection; takes fd */
/* The same over a port of a VM, where box-init cannot tell one connection from the next (see
 * guest/port.h): nothing is sent before its hello was read, and what is before that is dropped.
 * Without a hello the connection is made again by connect, as long as the link lives; when that
 * fails, the link is lost. connect gives a new descriptor, non-blocking. */
typedef int (*link_connect_fn)(void *arg, int *ret, struct err *err);
void link_attach_port(struct link *link, int fd, link_connect_fn connect, void *arg);
/* Reads what has already come, after the box has ended. May call on_lost. */
void link_drain(struct link *link);
/* No connection will come: all channels get err, then on_lost is called. */
void link_fail(struct link *link, const struct err *err);
/* Number of channels that somebody waits for, without background ones; and total bytes of data in
 * both directions. */
unsigned link_open_work(const struct link *link);
uint64_t link_traffic(const struct link *link);
void link_free(struct link *link); /* accepts NULL; channels get on_error(ERR_UNAVAILABLE) */

/* All may be NULL. Exactly one of on_closed and on_error ends the channel, which is freed
 * afterwards. A callback may call chan_close() on its own channel. */
struct chan_ops {
	/* Comes before on_data, on_end, on_gap and on_exit. */
	void (*on_reply)(struct chan *chan, struct wire_reader *reply, void *arg);
	void (*on_data)(struct chan *chan, enum wire_stream stream, uint64_t offset,
		const void *data, size_t len, void *arg);
	/* Time of the data that follows, by the box's wall clock. A box-init before
	 * WIRE_VERSION_TIMES sends none. */
	void (*on_time)(struct chan *chan, uint64_t time_us, void *arg);
	void (*on_end)(struct chan *chan, void *arg);
	void (*on_gap)(struct chan *chan, uint64_t offset, uint64_t lost, void *arg);
	void (*on_exit)(struct chan *chan, const struct wire_exit *exit, void *arg);
	void (*on_writable)(
		struct chan *chan, void *arg); /* chan_send_room() has become positive again */
	void (*on_error)(struct chan *chan, const struct err *err, void *arg);
	void (*on_closed)(struct chan *chan, void *arg);
};

/* request is the op's request (wire_put_*); it is copied. NULL with err: the link is lost or has
 * WIRE_CHANNELS_MAX channels open. */
struct chan *chan_open(struct link *link, enum wire_op op, const struct buf *request,
	const struct chan_ops *ops, void *arg, struct err *err);
/* Marks a channel that nobody waits for: a followed log, the box's own main program. */
void chan_set_background(struct chan *chan);
size_t chan_send_room(const struct chan *chan); /* bytes chan_send takes now */
/* Sends at most chan_send_room() bytes; returns how many were taken. */
size_t chan_send(struct chan *chan, const void *data, size_t len);
void chan_send_end(struct chan *chan);
/* Both are dropped while more than a MiB is unread by the box: clients may send any number of
 * them. */
void chan_signal(struct chan *chan, uint32_t signal);
void chan_resize(struct chan *chan, uint16_t rows, uint16_t cols);
void chan_consumed(struct chan *chan, size_t len); /* bytes of on_data passed on */
/* Closes our side: no callback comes after this. The exec itself goes on. */
void chan_close(struct chan *chan);
