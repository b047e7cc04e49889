/* relay_internal.h - shared by the files of the relay
 *
 *   relay.c  the life of a relay: start, connect, end; which socket is watched for what
 *   first.c  examines the client's first bytes, and HTTP requests
 *   flow.c   bytes of one direction, from socket to socket
 *   hub.c    shared by all relays: pipes, and the queue of those that wait for their rate */
#pragma once
#include "base/buf.h"
#include "loop/loop.h"
#include "gate/relay/dial.h"
#include "gate/relay/http_guard.h"
#include "gate/relay/quota.h"
#include "gate/relay/relay.h"

enum {
	RELAY_COPY =
		/* read at once when the bytes must be examined, or when there is no pipe */
	16 * 1024,
	RELAY_RATED = 64 * 1024, /* moved at once under a rate: more would be a burst */
};

/* ---- the hub -------------------------------------------------------------------------------- */

struct relay_pipe {
	int in, out; /* the ends: written to, read from */
	struct relay_pipe *next;
};

struct relay_queue {
	struct relay *first, *last;
	size_t count;
};

struct relay_hub {
	struct loop *loop;
	struct relay_pipe *idle; /* empty ones */
	unsigned idle_count, pipe_count;
	struct relay_queue waiting; /* waiting for their rate; first come, first served */
	struct relay_queue served;  /* while the queue is processed: those that moved something */
	uint64_t turns;		    /* number of turns that flows have had */
	bool turning;
	struct loop_timer *timer;
	int64_t wake_at; /* when the timer fires; INT64_MAX: it is off */
	unsigned first_ms, half_ms;
	uint8_t scratch[RELAY_COPY];
};

/* Returns an empty pipe, or NULL when there are too many of them or no descriptors left. */
struct relay_pipe *relay_hub_lend(struct relay_hub *hub);
/* Takes it back; a pipe that is not empty is closed. */
void relay_hub_return(struct relay_hub *hub, struct relay_pipe *pipe, bool is_empty);
/* Calls relay_resume in about ms. served: the relay moved something since the last call, and
 * goes behind the others. */
void relay_hub_wait(struct relay *relay, unsigned ms, bool served);
void relay_hub_forget(struct relay *relay);
/* For tests: other times than RELAY_FIRST_MS and RELAY_HALF_MS. */
void relay_hub_set_times(struct relay_hub *hub, unsigned first_ms, unsigned half_ms);

/* ---- one relay ------------------------------------------------------------------------------ */

struct relay_side {
	int fd; /* -1: not connected yet */
	struct loop_fd *watch;
	bool connected;
};

/* One direction. What is inside was read from one side and not written to the other yet: first
 * the content of the pipe, then what is held. Nothing is read while something is inside. */
struct relay_flow {
	struct relay_side *from, *to;
	struct relay_pipe *pipe; /* NULL: none */
	size_t in_pipe;
	struct buf held;
	uint64_t bytes; /* written */
	uint64_t last_turn;
	bool ended;  /* from has sent its end */
	bool closed; /* the end was passed on to to */
	bool full;   /* to accepts no more now */
	bool waits;  /* waits for its rate */
};

enum relay_look {
	LOOK_NOT,   /* everything passes */
	LOOK_FIRST, /* the first bytes are collected */
	LOOK_HTTP,  /* the guard checks each request */
};

struct relay {
	struct relay_hub *hub;
	const struct relay_ops *ops;
	void *arg;
	struct quota *quotas[RELAY_QUOTAS];
	enum relay_check check;
	enum relay_look look;

	struct relay_side client, server;
	struct relay_flow out, in; /* from the box, into the box */

	const struct dial_settings *dial_settings;
	struct dial_target target; /* its name is owned */
	bool has_target, wants_server;
	struct dial *dial;

	struct buf first; /* LOOK_FIRST: received, not judged yet */
	/* of these, already passed on: a few letters after which the client paused */
	size_t first_given;
	uint64_t first_seen; /* bytes of the client so far */
	bool scans;	     /* it began as neither TLS nor HTTP: a hello may follow */
	bool in_hello;	     /* a hello has begun, but is not complete */
	struct http_guard *guard;

	struct loop_timer *timer; /* NULL: none needed yet */
	int64_t first_by;  /* deadline of the first bytes; 0: they are complete, or nobody waits */
	int64_t active_at; /* when bytes moved; recorded once a side has ended */
	int64_t settle_by; /* deadline of the end after a budget is spent; 0: none */
	int64_t began_at;

	struct relay *prev, *next; /* in queue */
	struct relay_queue *queue;
	bool ending;
	struct relay_report report;
};

/* Only the first call counts. The relay is freed from the loop a little later, so that callers
 * can still use it. why is cut to fit. */
void relay_end(struct relay *relay, enum relay_end end, const char *why);
/* One of its sides failed with errno_value. */
void relay_broke(struct relay *relay, const struct relay_side *side, int errno_value);
/* The server is needed now: dials, or uses the given socket. */
void relay_want_server(struct relay *relay);
/* The first bytes must be complete within ms. */
void relay_start_first(struct relay *relay, unsigned ms);
/* One side has ended; the other may be silent for half_ms at most. */
void relay_start_half(struct relay *relay);
/* A budget is spent: nothing more is read; the relay ends when what was charged has arrived, or
 * soon in any case. */
void relay_settle(struct relay *relay);
/* Watches both sockets for what can happen next. */
void relay_watch(struct relay *relay);
/* Called by the hub: the rate may allow something again. */
void relay_resume(struct relay *relay, int64_t now_us);

/* ---- first.c: examining --------------------------------------------------------------------- */

void relay_first_begin(struct relay *relay);
/* Handles bytes of the client; what may pass is put into out.held. */
void relay_first_client(struct relay *relay, const uint8_t *data, size_t len);
/* The client has ended. */
void relay_first_ended(struct relay *relay);
/* The first bytes did not come in time. */
void relay_first_late(struct relay *relay);
/* Sees bytes of the server, which the caller passes on. */
void relay_first_server(struct relay *relay, const uint8_t *data, size_t len);

/* ---- flow.c: moving ------------------------------------------------------------------------- */

void relay_flow_init(struct relay_flow *flow, struct relay_side *from, struct relay_side *to);
void relay_flow_done(struct relay *relay, struct relay_flow *flow);
/* Moves what can be moved, at most RELAY_CHUNK. */
void relay_flow_move(struct relay *relay, struct relay_flow *flow);
/* Whether its source should be watched. */
bool relay_flow_wants(const struct relay *relay, const struct relay_flow *flow);

/* ---- quotas, for datagrams too -------------------------------------------------------------- */

/* How many of want bytes all quotas allow; 0 with *ret_wait_ms: later; 0 with *ret_wait_ms 0:
 * never, a budget is spent. */
size_t relay_quotas_allow(struct quota *const quotas[RELAY_QUOTAS], size_t want, int64_t now_us,
	unsigned *ret_wait_ms);
void relay_quotas_spend(struct quota *const quotas[RELAY_QUOTAS], uint64_t bytes, int64_t now_us);
