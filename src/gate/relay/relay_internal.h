/* relay_internal.h - what the files of the relay share
 *
 *   relay.c        life: begin, connect, end; which of the two sockets is watched for what
 *   first.c  the client's first bytes, and HTTP requests: may they go on?
 *   flow.c   bytes of one direction, from socket to socket
 *   hub.c    what all share: pipes, those who wait for their rate
 */
#pragma once
#include "base/buf.h"
#include "loop/loop.h"
#include "gate/relay/dial.h"
#include "gate/relay/http_guard.h"
#include "gate/relay/quota.h"
#include "gate/relay/relay.h"

enum {
	RELAY_COPY =
		16 * 1024, /* read at once of what must be looked at, or when there is no pipe */
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
	struct relay_queue waiting; /* for their rate; first come, first served */
	struct relay_queue served;  /* while the ring goes round: those who got something */
	uint64_t turns;		    /* that flows have had */
	bool turning;
	struct loop_timer *timer;
	int64_t wake_at; /* when the timer rings; INT64_MAX: it does not */
	unsigned first_ms, half_ms;
	uint8_t scratch[RELAY_COPY];
};

/* An empty pipe, or NULL when there are enough of them or no descriptors left. */
struct relay_pipe *relay_hub_lend(struct relay_hub *hub);
/* Takes it back; one that has something in it is closed. */
void relay_hub_return(struct relay_hub *hub, struct relay_pipe *pipe, bool is_empty);
/* Calls relay_resume in about ms. served: it got something since the last call, and goes behind the
 * others. */
void relay_hub_wait(struct relay *relay, unsigned ms, bool served);
void relay_hub_forget(struct relay *relay);
/* For tests: other times than RELAY_FIRST_MS and RELAY_HALF_MS. */
void relay_hub_set_times(struct relay_hub *hub, unsigned first_ms, unsigned half_ms);

/* ---- one relay ------------------------------------------------------------------------------ */

struct relay_side {
	int fd; /* -1: not there yet */
	struct loop_fd *watch;
	bool connected;
};

/* One direction. What is inside was taken from one side and not given to the other yet: first what
 * is in the pipe, then what is held. Nothing is taken while something is inside. */
struct relay_flow {
	struct relay_side *from, *to;
	struct relay_pipe *pipe; /* NULL: none lent */
	size_t in_pipe;
	struct buf held;
	uint64_t bytes; /* given */
	uint64_t last_turn;
	bool ended;  /* from sends no more */
	bool closed; /* and to was told */
	bool full;   /* to takes no more now */
	bool waits;  /* for its rate */
};

enum relay_look {
	LOOK_NOT,   /* everything passes */
	LOOK_FIRST, /* the first bytes are gathered */
	LOOK_HTTP,  /* the guard sees each request */
};

struct relay {
	struct relay_hub *hub;
	const struct relay_ops *ops;
	void *arg;
	struct quota *quotas[RELAY_QUOTAS];
	enum relay_check check;
	enum relay_look look;

	struct relay_side client, server;
	struct relay_flow out, in; /* of the box, into the box */

	const struct dial_settings *dial_settings;
	struct dial_target target; /* its name is ours */
	bool has_target, wants_server;
	struct dial *dial;

	struct buf first;    /* LOOK_FIRST: what came and is not judged yet */
	size_t first_given;  /* of it, passed on already: a few letters that somebody waited with */
	uint64_t first_seen; /* bytes of the client so far */
	bool scans;	     /* it began as neither of the two: a hello may follow */
	bool in_hello;	     /* one is there, not whole yet */
	struct http_guard *guard;

	struct loop_timer *timer; /* NULL: none needed yet */
	int64_t first_by;  /* the first bytes must be whole by then; 0: they are, or nobody waits */
	int64_t active_at; /* bytes moved; kept once a side has ended */
	int64_t settle_by; /* a budget is spent and the end must come by then; 0: not so */
	int64_t began_at;

	struct relay *prev, *next; /* in queue */
	struct relay_queue *queue;
	bool ending;
	struct relay_report report;
};

/* The first call counts. The relay is freed from the loop a little later, so that callers can still
 * use it. why is cut to fit. */
void relay_end(struct relay *relay, enum relay_end end, const char *why);
/* One of its sides broke, with errno_value. */
void relay_broke(struct relay *relay, const struct relay_side *side, int errno_value);
/* The server is needed now: dials, or uses the given one. */
void relay_want_server(struct relay *relay);
/* The first bytes must be whole in first_ms from now. */
void relay_start_first(struct relay *relay, unsigned ms);
/* One side has ended; the other may be silent for half_ms at most. */
void relay_start_half(struct relay *relay);
/* A budget is spent: nothing more is taken; the end comes when what was charged has arrived, or
 * soon anyway. */
void relay_settle(struct relay *relay);
/* Watches for what can come next. */
void relay_watch(struct relay *relay);
/* From the hub: its rate may allow something again. */
void relay_resume(struct relay *relay, int64_t now_us);

/* ---- looking --------------------------------------------------------------------------------- */

void relay_first_begin(struct relay *relay);
/* The client's bytes; what may go on is put into out.held. */
void relay_first_client(struct relay *relay, const uint8_t *data, size_t len);
/* The client has ended and sends no more. */
void relay_first_ended(struct relay *relay);
/* They did not come in time. */
void relay_first_late(struct relay *relay);
/* The server's, which are passed on by the caller. */
void relay_first_server(struct relay *relay, const uint8_t *data, size_t len);

/* ---- moving ---------------------------------------------------------------------------------- */

void relay_flow_init(struct relay_flow *flow, struct relay_side *from, struct relay_side *to);
void relay_flow_done(struct relay *relay, struct relay_flow *flow);
/* Moves what can be moved, RELAY_CHUNK at most. */
void relay_flow_move(struct relay *relay, struct relay_flow *flow);
/* Whether its source should be watched for more. */
bool relay_flow_wants(const struct relay *relay, const struct relay_flow *flow);

/* ---- quotas, for datagrams too -------------------------------------------------------------- */

/* How many of want bytes all of them allow; 0 with *ret_wait_ms: later; 0 with *ret_wait_ms 0:
 * never, a budget is spent. */
size_t relay_quotas_allow(struct quota *const quotas[RELAY_QUOTAS], size_t want, int64_t now_us,
	unsigned *ret_wait_ms);
void relay_quotas_spend(struct quota *const quotas[RELAY_QUOTAS], uint64_t bytes, int64_t now_us);
