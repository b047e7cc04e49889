/* conn_internal.h - a connection, shared by conn.c (its life and bytes) and channel.c (its
 * channels) */
#pragma once
#include "guest/conn.h"
#include "guest/watch.h"

struct conn {
	struct watch watch; /* not of a port: that is watched by port.c for ever */
	int fd;
	bool port;
	bool more; /* of a port: there may be more to read */
	struct timer hello_timer;
	bool hello, blocked, dead, hurry; /* hurry: the last read filled its buffer */
	struct buf in, out;
	size_t mark; /* of the frame being written */
	uint32_t last_id;
	unsigned version;    /* that both sides speak */
	unsigned next_first; /* which channel gets room first the next time */
	struct channel *channels[WIRE_CHANNELS_MAX];
	struct conn *next;
};

/* conn.c */
/* Sends everything, or nothing: then wait for room. */
bool conn_send(struct conn *conn, struct iovec *iov, size_t count);

/* The connection over a port. It begins with our hello. */
struct conn *conn_start_port(int fd);
void conn_ready(struct conn *conn, uint32_t ready);
void conn_kill(struct conn *conn, const char *why); /* it goes in conn_settle() */
bool conn_is_paused(const struct conn *conn);	    /* it is not read: it does not read itself */

/* port.c */
void port_conn_gone(struct conn *conn);
void port_settle(void);

/* channel.c */
/* Handles any frame after the hello. -1: it breaks the protocol. */
int channel_take(struct conn *conn, const struct wire_frame *frame, struct err *err);
void channel_free(struct channel *channel); /* without a frame */
