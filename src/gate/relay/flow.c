/* flow.c - bytes of one direction, from socket to socket
 *
 *   take ──► inside: a lent pipe (splice), or held (copied: it must be examined, or there is no
 *   pipe) ──► give
 *
 * A flow reads only when nothing is inside, so what it keeps is bounded by a pipe, or by one
 * copy plus what the guard held back. While its target is full, only the target wakes it; while
 * it waits for its rate, only the hub does. The source is not read meanwhile, so TCP itself
 * slows the sender down.
 *
 * Bytes are charged when they are read: connections that share a budget cannot spend the same
 * byte twice. They count as moved when they are written. */
#include "gate/relay/relay_internal.h"
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

enum { TURN_MIN = 32 * 1024 };

/* ---- writing -------------------------------------------------------------------------------- */

/* Handles a call that moved n of want bytes to the target. False: it accepts no more now, or
 * failed. */
static bool was_given(struct relay *relay, struct relay_flow *flow, ssize_t n, size_t want)
{
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno != EAGAIN) {
		relay_broke(relay, flow->to, errno);
		return false;
	}
	if (n > 0)
		flow->bytes += (uint64_t)n;
	flow->full = n < 0 || (size_t)n < want;
	return !flow->full;
}

/* True when nothing is left inside. */
static bool give(struct relay *relay, struct relay_flow *flow)
{
	if (!flow->to->connected)
		return !flow->in_pipe && !flow->held.len;
	while (flow->in_pipe) {
		size_t want = flow->in_pipe;
		ssize_t n = splice(flow->pipe->out, NULL, flow->to->fd, NULL, want,
			SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

		if (n > 0)
			flow->in_pipe -= (size_t)n;
		if (!was_given(relay, flow, n, want))
			return false;
	}
	while (flow->held.len) {
		size_t want = flow->held.len;
		ssize_t n = send(flow->to->fd, buf_head(&flow->held), want, MSG_NOSIGNAL);

		if (n > 0)
			buf_eat(&flow->held, (size_t)n);
		if (!was_given(relay, flow, n, want))
			return false;
	}
	buf_done(&flow->held);
	return true;
}

static void give_end(struct relay *relay, struct relay_flow *flow)
{
	if (!flow->to->connected || flow->closed)
		return;
	/* Fails only when the other side has gone, which its next read or write reports. */
	shutdown(flow->to->fd, SHUT_WR);
	flow->closed = true;
	if (relay->in.closed && relay->out.closed)
		relay_end(relay, RELAY_END_DONE, "");
	else
		relay_start_half(relay);
}

/* ---- reading -------------------------------------------------------------------------------- */

enum way {
	WAY_NONE, /* not now */
	WAY_LOOK, /* copied and examined */
	WAY_PASS, /* unchanged, up to a limit */
};

static enum way choose_way(const struct relay *relay, const struct relay_flow *flow, size_t *limit)
{
	uint64_t plain;

	*limit = RELAY_CHUNK;
	if (flow == &relay->in)
		return relay->guard && http_guard_watches_server(relay->guard) ? WAY_LOOK
									       : WAY_PASS;
	if (relay->look == LOOK_FIRST)
		return WAY_LOOK;
	if (relay->look == LOOK_HTTP) {
		plain = http_guard_plain(relay->guard);
		if (!plain)
			return http_guard_wants(relay->guard) ? WAY_LOOK : WAY_NONE;
		*limit = (size_t)MIN(plain, (uint64_t)*limit);
	}
	return flow->to->connected ? WAY_PASS : WAY_NONE;
}

static ssize_t take_by_pipe(struct relay_flow *flow, size_t want)
{
	ssize_t n = splice(flow->from->fd, NULL, flow->pipe->in, NULL, want,
		SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

	if (n > 0)
		flow->in_pipe += (size_t)n;
	return n;
}

static ssize_t take_by_copy(struct relay *relay, struct relay_flow *flow, enum way way, size_t want)
{
	uint8_t *scratch = relay->hub->scratch;
	ssize_t n = recv(flow->from->fd, scratch, MIN(want, (size_t)RELAY_COPY), 0);

	if (n <= 0)
		return n;
	if (way == WAY_PASS || flow == &relay->in)
		buf_add(&flow->held, scratch, (size_t)n);
	if (way == WAY_LOOK && flow == &relay->in)
		relay_first_server(relay, scratch, (size_t)n);
	else if (way == WAY_LOOK)
		relay_first_client(relay, scratch, (size_t)n);
	return n;
}

static void take_end(struct relay *relay, struct relay_flow *flow)
{
	flow->ended = true;
	if (flow == &relay->out)
		relay_first_ended(relay);
}

/* The budget is spent: the end of the stream may still pass, bytes may not. */
static void take_nothing(struct relay *relay, struct relay_flow *flow)
{
	char byte;
	ssize_t n = recv(flow->from->fd, &byte, 1, MSG_PEEK);

	if (n == 0)
		take_end(relay, flow);
	else if (n > 0)
		relay_settle(relay);
	else if (errno != EAGAIN && errno != EINTR)
		relay_broke(relay, flow->from, errno);
}

/* Returns how much was read; 0: nothing now, or end of file, or the relay has ended. */
static size_t take(struct relay *relay, struct relay_flow *flow, size_t most, bool served)
{
	size_t limit, want;
	enum way way = choose_way(relay, flow, &limit);
	unsigned wait_ms;
	int64_t now = clock_mono_us();
	ssize_t n;

	if (way == WAY_NONE)
		return 0;
	want = relay_quotas_allow(relay->quotas, MIN(limit, most), now, &wait_ms);
	if (!want && wait_ms) {
		flow->waits = true;
		relay_hub_wait(relay, wait_ms, served);
		return 0;
	}
	if (!want) {
		take_nothing(relay, flow);
		return 0;
	}
	if (way == WAY_PASS && !flow->pipe)
		flow->pipe = relay_hub_lend(relay->hub);
	n = way == WAY_PASS && flow->pipe ? take_by_pipe(flow, want)
					  : take_by_copy(relay, flow, way, want);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		relay_broke(relay, flow->from, errno);
	if (n == 0)
		take_end(relay, flow);
	if (n <= 0)
		return 0;
	if (flow == &relay->out && relay->look == LOOK_HTTP && way == WAY_PASS)
		http_guard_skip(relay->guard, (uint64_t)n);
	relay_quotas_spend(relay->quotas, (uint64_t)n, now);
	return (size_t)n;
}

/* ---- the contract --------------------------------------------------------------------------- */

void relay_flow_init(struct relay_flow *flow, struct relay_side *from, struct relay_side *to)
{
	flow->from = from;
	flow->to = to;
}

static void return_pipe(struct relay *relay, struct relay_flow *flow)
{
	if (flow->pipe)
		relay_hub_return(relay->hub, flow->pipe, !flow->in_pipe);
	flow->pipe = NULL;
}

void relay_flow_done(struct relay *relay, struct relay_flow *flow)
{
	return_pipe(relay, flow);
	buf_done(&flow->held);
}

bool relay_flow_wants(const struct relay *relay, const struct relay_flow *flow)
{
	size_t limit;

	return flow->from->connected && !relay->settle_by && !flow->ended && !flow->waits &&
	       !flow->in_pipe && !flow->held.len && choose_way(relay, flow, &limit) != WAY_NONE;
}

/* How much this turn may move: the more turns others had since the last one, the less. Alone, a
 * connection has the whole machine; among a hundred busy ones, a new connection must not wait
 * for a hundred large turns. */
static size_t begin_turn(struct relay *relay, struct relay_flow *flow)
{
	uint64_t others = relay->hub->turns - flow->last_turn;

	flow->last_turn = ++relay->hub->turns;
	return others > 1 ? MAX((size_t)(RELAY_CHUNK / others), (size_t)TURN_MIN) : RELAY_CHUNK;
}

void relay_flow_move(struct relay *relay, struct relay_flow *flow)
{
	uint64_t before = flow->bytes;
	size_t turn = begin_turn(relay, flow), taken = 0;

	if (relay->ending || !flow->from->connected)
		return;
	flow->full = flow->waits = false;
	while (give(relay, flow) && !relay->ending) {
		size_t n;

		if (flow->ended) {
			give_end(relay, flow);
			break;
		}
		if (taken >= turn || relay->settle_by)
			break;
		n = take(relay, flow, turn - taken, taken > 0);
		if (!n && !flow->ended)
			break;
		taken += n;
	}
	if (!flow->in_pipe)
		return_pipe(relay, flow);
	if (flow->bytes != before && relay->ops->moved)
		relay->ops->moved(relay->arg, flow == &relay->out);
	if (flow->bytes != before && (relay->in.closed || relay->out.closed))
		relay->active_at = clock_mono_us();
	/* The server's answer may have released what the guard held back. */
	if (flow == &relay->in && relay->out.held.len && !relay->out.full)
		relay_flow_move(relay, &relay->out);
	relay_watch(relay);
}
