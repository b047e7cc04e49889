/* relay.c - see relay.h
 *
 * The life of a relay: which socket is watched for what, when the server is dialled, and how it
 * ends.
 *
 * Each direction (flow.c) moves when its source is readable or its target is writable again. A
 * socket that is needed for neither now is watched for errors only, so that a relay ends when
 * its client has gone, even if it waits for a server that never reads.
 *
 * An end is recorded at once and carried out from the loop: the function that recorded it may be
 * called by code that still uses the relay. */
#include "gate/relay/relay_internal.h"
#include "base/clock.h"
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
	SETTLE_MS = 1000,
	SETTLE_STEP_MS = 5,
};

static const char *const end_names[] = {
	[RELAY_END_DONE] = "done",
	[RELAY_END_RESET] = "reset",
	[RELAY_END_REFUSED] = "refused",
	[RELAY_END_UNREACHED] = "unreached",
	[RELAY_END_BUDGET] = "budget",
	[RELAY_END_TIMEOUT] = "timeout",
	[RELAY_END_CUT] = "cut",
};
static_assert(ARRAY_LEN(end_names) == RELAY_END_COUNT, "every end has a name");

const char *relay_end_name(enum relay_end end)
{
	return (unsigned)end < RELAY_END_COUNT ? end_names[end] : "unknown";
}

/* ---- sockets -------------------------------------------------------------------------------- */

/* Sends small messages at once, and detects a vanished peer after some minutes. A failure is
 * ignored. */
static void tune(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 120 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 30 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 4 },
	};

	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

static void side_close(struct relay_side *side, bool in_order)
{
	const struct linger reset = { .l_onoff = 1 };

	loop_fd_free(side->watch);
	side->watch = NULL;
	if (side->fd < 0)
		return;
	if (!in_order)
		setsockopt(side->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	close(steal_fd(&side->fd));
}

static int side_error(const struct relay_side *side)
{
	int error = 0;
	socklen_t len = sizeof error;

	return getsockopt(side->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ? errno : error;
}

void relay_watch(struct relay *relay)
{
	unsigned client = 0, server = 0;

	if (relay->ending)
		return;
	if (relay_flow_wants(relay, &relay->out))
		client |= LOOP_READ;
	if (relay->in.full)
		client |= LOOP_WRITE;
	loop_fd_set(relay->client.watch, client ? client : LOOP_HANGUP);
	if (!relay->server.connected)
		return;
	if (relay_flow_wants(relay, &relay->in))
		server |= LOOP_READ;
	if (relay->out.full)
		server |= LOOP_WRITE;
	loop_fd_set(relay->server.watch, server ? server : LOOP_HANGUP);
}

/* ---- endings -------------------------------------------------------------------------------- */

static void relay_destroy(struct relay *relay, bool in_order)
{
	relay_hub_forget(relay);
	dial_cancel(relay->dial);
	relay_flow_done(relay, &relay->out);
	relay_flow_done(relay, &relay->in);
	side_close(&relay->client, in_order);
	side_close(&relay->server, in_order);
	loop_timer_free(relay->timer);
	http_guard_free(relay->guard);
	buf_done(&relay->first);
	free((char *)relay->target.name);
	free(relay);
}

static void finish(void *arg)
{
	struct relay *relay = arg;
	struct relay_report report = relay->report;
	const struct relay_ops *ops = relay->ops;
	void *owner = relay->arg;

	report.bytes_out = relay->out.bytes;
	report.bytes_in = relay->in.bytes;
	report.duration_us = clock_mono_us() - relay->began_at;
	relay_destroy(relay, report.end == RELAY_END_DONE);
	ops->ended(owner, &report);
}

void relay_end(struct relay *relay, enum relay_end end, const char *why)
{
	if (relay->ending)
		return;
	relay->ending = true;
	relay->report.end = end;
	snprintf(relay->report.why, sizeof relay->report.why, "%s", why);
	loop_fd_set(relay->client.watch, 0);
	if (relay->server.watch)
		loop_fd_set(relay->server.watch, 0);
	loop_defer(relay->hub->loop, finish, relay);
}

void relay_broke(struct relay *relay, const struct relay_side *side, int errno_value)
{
	char why[sizeof relay->report.why];

	snprintf(why, sizeof why, "%s: %s", side == &relay->client ? "client" : "server",
		strerror(errno_value));
	relay_end(relay, RELAY_END_RESET, why);
}

/* ---- time ----------------------------------------------------------------------------------- */

static bool is_half(const struct relay *relay)
{
	return relay->in.closed || relay->out.closed;
}

/* The next deadline; 0: none. */
static int64_t next_deadline(const struct relay *relay)
{
	int64_t half = is_half(relay) ? relay->active_at + relay->hub->half_ms * INT64_C(1000) : 0;

	if (!relay->first_by || !half)
		return relay->first_by ? relay->first_by : half;
	return MIN(relay->first_by, half);
}

static void start_timer(struct relay *relay);
static void settle(struct relay *relay);

static void on_time(void *arg)
{
	struct relay *relay = arg;
	int64_t by = next_deadline(relay);

	if (relay->ending || (!by && !relay->settle_by))
		return;
	if (relay->settle_by)
		settle(relay);
	else if (by > clock_mono_us())
		start_timer(relay);
	else if (by == relay->first_by)
		relay_first_late(relay);
	else
		relay_end(relay, RELAY_END_TIMEOUT, "silent after one side had ended");
}

static void start_timer(struct relay *relay)
{
	int64_t left = next_deadline(relay) - clock_mono_us();

	if (!relay->timer)
		relay->timer = loop_timer_new(relay->hub->loop, on_time, relay);
	loop_timer_start(relay->timer, left > 0 ? (uint64_t)left / 1000 + 1 : 0);
}

void relay_start_first(struct relay *relay, unsigned ms)
{
	relay->first_by = clock_mono_us() + ms * INT64_C(1000);
	start_timer(relay);
}

void relay_start_half(struct relay *relay)
{
	relay->active_at = clock_mono_us();
	start_timer(relay);
}

/* ---- a spent budget ------------------------------------------------------------------------- */

/* A reset would discard what the peer has not acknowledged yet. */
static bool has_unsent(const struct relay_side *side)
{
	int left = 0;

	return side->connected && ioctl(side->fd, SIOCOUTQ, &left) == 0 && left;
}

static void settle(struct relay *relay)
{
	bool is_empty = !relay->out.in_pipe && !relay->out.held.len && !relay->in.in_pipe &&
			!relay->in.held.len;

	if ((is_empty && !has_unsent(&relay->client) && !has_unsent(&relay->server)) ||
		clock_mono_us() >= relay->settle_by)
		relay_end(relay, RELAY_END_BUDGET, "the budget is spent");
	else
		loop_timer_start(relay->timer, SETTLE_STEP_MS);
}

void relay_settle(struct relay *relay)
{
	if (relay->settle_by || relay->ending)
		return;
	relay->settle_by = clock_mono_us() + SETTLE_MS * INT64_C(1000);
	if (!relay->timer)
		relay->timer = loop_timer_new(relay->hub->loop, on_time, relay);
	settle(relay);
}

void relay_resume(struct relay *relay, int64_t now_us)
{
	unsigned wait_ms;
	bool out = relay->out.waits, in = relay->in.waits;

	if (!relay_quotas_allow(relay->quotas, RELAY_CHUNK, now_us, &wait_ms) && wait_ms) {
		relay_hub_wait(relay, wait_ms, false);
		return;
	}
	if (out)
		relay_flow_move(relay, &relay->out);
	if (in)
		relay_flow_move(relay, &relay->in);
}

/* ---- events --------------------------------------------------------------------------------- */

/* An error, or only the end of both directions? In the second case the bytes sent before must
 * still be read. */
static void on_hangup(struct relay *relay, const struct relay_side *side)
{
	int error = side_error(side);

	if (error)
		relay_broke(relay, side, error);
}

static void on_client(void *arg, unsigned ready)
{
	struct relay *relay = arg;

	if (ready == LOOP_HANGUP)
		on_hangup(relay, &relay->client);
	else
		relay_flow_move(relay, ready == LOOP_READ ? &relay->out : &relay->in);
}

static void on_server(void *arg, unsigned ready)
{
	struct relay *relay = arg;

	if (ready == LOOP_HANGUP)
		on_hangup(relay, &relay->server);
	else
		relay_flow_move(relay, ready == LOOP_READ ? &relay->in : &relay->out);
}

/* ---- the server ----------------------------------------------------------------------------- */

static void server_is_there(struct relay *relay)
{
	relay->server.connected = true;
	tune(relay->server.fd);
	if (relay->ops->dialled)
		relay->ops->dialled(relay->arg, &relay->report.address);
	relay_flow_move(relay, &relay->out);
	relay_flow_move(relay, &relay->in);
}

static void on_dialled(void *arg, int fd, const struct address *address, const struct err *err)
{
	struct relay *relay = arg;

	relay->dial = NULL;
	if (relay->ending) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (fd < 0) {
		relay_end(relay, RELAY_END_UNREACHED, err->message);
		return;
	}
	relay->server.fd = fd;
	relay->report.address = *address;
	relay->server.watch = loop_fd_new(relay->hub->loop, fd, 0, on_server, relay);
	server_is_there(relay);
}

static bool on_may(void *arg, const struct address *address)
{
	struct relay *relay = arg;

	return !relay->ending && relay->ops->may(relay->arg, address);
}

static const struct dial_ops dial_ops = { .may = on_may, .done = on_dialled };

/* For a server that was given while it was still connecting. */
static void on_connected(void *arg, unsigned ready)
{
	struct relay *relay = arg;
	int error = side_error(&relay->server);

	(void)ready;
	if (error) {
		relay_end(relay, RELAY_END_UNREACHED, strerror(error));
		return;
	}
	loop_fd_free(relay->server.watch);
	relay->server.watch = loop_fd_new(relay->hub->loop, relay->server.fd, 0, on_server, relay);
	server_is_there(relay);
}

static void watch_given(struct relay *relay)
{
	relay->server.watch =
		loop_fd_new(relay->hub->loop, relay->server.fd, LOOP_WRITE, on_connected, relay);
}

void relay_want_server(struct relay *relay)
{
	if (relay->wants_server || relay->ending)
		return;
	relay->wants_server = true;
	if (relay->has_target)
		relay->dial = dial_start(relay->dial_settings, &relay->target, &dial_ops, relay);
	else if (relay->server.fd >= 0)
		watch_given(relay);
}

void relay_connect(struct relay *relay, int server, const struct err *err)
{
	assert(!relay->has_target && relay->server.fd < 0);
	if (server < 0) {
		relay_end(relay, RELAY_END_UNREACHED, err ? err->message : "");
		return;
	}
	relay->server.fd = server;
	if (relay->wants_server && !relay->ending)
		watch_given(relay);
}

/* ---- the contract --------------------------------------------------------------------------- */

struct relay *relay_new(const struct relay_options *options)
{
	struct relay *relay = xnew(struct relay);

	relay->hub = options->hub;
	relay->ops = options->ops;
	relay->arg = options->arg;
	memcpy(relay->quotas, options->quotas, sizeof relay->quotas);
	relay->check = options->check;
	relay->client.fd = options->client;
	relay->client.connected = true;
	relay->server.fd = -1;
	relay_flow_init(&relay->out, &relay->client, &relay->server);
	relay_flow_init(&relay->in, &relay->server, &relay->client);
	relay->dial_settings = options->dial;
	if (options->target) {
		relay->has_target = true;
		relay->target = *options->target;
		relay->target.name = xstrdup(options->target->name);
	}
	relay->began_at = clock_mono_us();
	tune(relay->client.fd);
	relay->client.watch = loop_fd_new(relay->hub->loop, relay->client.fd, 0, on_client, relay);
	relay_first_begin(relay);
	relay_watch(relay);
	return relay;
}

void relay_cut(struct relay *relay, const char *why)
{
	relay_end(relay, RELAY_END_CUT, why);
}

void relay_figures(const struct relay *relay, uint64_t *ret_out, uint64_t *ret_in)
{
	*ret_out = relay->out.bytes;
	*ret_in = relay->in.bytes;
}

void relay_free(struct relay *relay)
{
	if (!relay)
		return;
	loop_undefer(relay->hub->loop, finish, relay);
	relay_destroy(relay, false);
}
