/* conn.h - connections of the daemon and the channels on them
 *
 * A channel belongs to its owner (an exec's reader, a file worker, a dialled port) from ops_open()
 * until channel_close(), channel_error() or the cancel callback, whichever comes first; then it is
 * freed. Broken connections are freed between two turns of the loop, never inside a caller. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "wire/wire.h"
#include <sys/uio.h>

struct conn;
struct channel;

/* Any may be NULL. */
struct channel_ops {
	/* frame is the whole DATA frame with its header; data lies in it. Give the window back with
	 * channel_consumed() when the bytes were passed on. */
	void (*data)(struct channel *channel, const struct wire_frame *frame, const uint8_t *data,
		size_t len);
	void (*end)(struct channel *channel);
	void (*signal)(struct channel *channel, uint32_t signal);
	void (*resize)(struct channel *channel, uint16_t rows, uint16_t cols);
	void (*room)(struct channel *channel);	 /* channel_room() may be positive again */
	void (*cancel)(struct channel *channel); /* the channel is being freed; forget it */
};

struct channel {
	struct conn *conn;
	uint32_t id;
	size_t send_room; /* DATA payload the daemon still lets us send */
	size_t recv_room; /* DATA payload we still let the daemon send */
	size_t owed;	  /* consumed, but not yet given back */
	bool end_seen;
	const struct channel_ops *ops;
	void *owner;
};

/* Serves the listening socket fd, which it takes. */
int conn_listen(int fd, struct err *err);
/* Sends what waits and frees broken connections; called after each turn of the loop. */
void conn_settle(void);
bool conn_has_unsent(void); /* something waits for a daemon that is slow to read */
void conn_event(enum wire_event event, const struct wire_exec_info *info);

/* Sends to the newest daemon that knows requests. False: there is none. */
bool conn_request(const struct wire_request *request);
/* After a restore: drops connections to the daemon of another box, or of another time. */
void conn_drop_others(const struct channel *channel);

/* One frame: wire_put_* into the returned buffer, then channel_end. */
struct buf *channel_begin(struct channel *channel, enum wire_type type);
void channel_end(struct channel *channel);
/* CLOSE; and ERROR, CLOSE. Both free the channel. */
void channel_close(struct channel *channel);
void channel_error(struct channel *channel, const struct err *err);

unsigned channel_version(const struct channel *channel); /* spoken by both sides */
/* Bytes that channel_send may be given now; 0: wait for the room callback. */
size_t channel_room(struct channel *channel);
/* Sends a DATA frame of the two pieces without a copy. False: nothing was taken, wait for room. */
bool channel_send(struct channel *channel, enum wire_stream stream, uint64_t offset,
	const struct iovec data[2]);
/* Sends a frame made elsewhere unchanged; false as above. DATA must fit channel->send_room. */
bool channel_forward(struct channel *channel, const struct wire_frame *frame);
/* len bytes of DATA payload were passed on (conn.c accounts for headers). */
void channel_consumed(struct channel *channel, size_t len);
