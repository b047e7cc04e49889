/* udp.c - see udp.h
 *
 * Datagrams are read in batches into memory that all flows share, and written from there;
 * nothing is kept. An ICMP error about the server (a closed port, no route) does not end a flow,
 * because the server may come back; an error about the client does. */
#include "gate/relay/udp.h"
#include "base/clock.h"
#include "loop/loop.h"
#include "gate/relay/relay_internal.h"
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
	DATAGRAM_ROOM = 64 * 1024,
	ERRORS_MAX = 64, /* in a row, without a datagram between them */
};

struct udp_relay {
	struct udp_relay_options options;
	struct loop_fd *client_watch, *server_watch;
	struct loop_timer *idle;
	int64_t began_at, active_at;
	unsigned errors;
	bool ending;
	struct relay_report report;
};

/* One thread runs the loop, and the content is not needed between two calls. */
static uint8_t room[UDP_RELAY_BATCH][DATAGRAM_ROOM];

/* ---- endings -------------------------------------------------------------------------------- */

static void finish(void *arg)
{
	struct udp_relay *relay = arg;
	struct relay_report report = relay->report;
	void (*ended)(void *, const struct relay_report *) = relay->options.ended;
	void *owner = relay->options.arg;

	report.duration_us = clock_mono_us() - relay->began_at;
	udp_relay_free(relay);
	ended(owner, &report);
}

static void relay_ends(struct udp_relay *relay, enum relay_end end, const char *why)
{
	if (relay->ending)
		return;
	relay->ending = true;
	relay->report.end = end;
	snprintf(relay->report.why, sizeof relay->report.why, "%s", why);
	loop_fd_set(relay->client_watch, 0);
	loop_fd_set(relay->server_watch, 0);
	loop_defer(relay->options.loop, finish, relay);
}

static void on_idle(void *arg)
{
	struct udp_relay *relay = arg;
	int64_t left = relay->active_at + relay->options.idle_ms * INT64_C(1000) - clock_mono_us();

	/* A flow of datagrams ends normally by silence. */
	if (left <= 0)
		relay_ends(relay, RELAY_END_DONE, "");
	else
		loop_timer_start(relay->idle, (uint64_t)left / 1000 + 1);
}

/* ---- datagrams ------------------------------------------------------------------------------ */

static bool has_budget(const struct udp_relay *relay, size_t len)
{
	for (size_t i = 0; i < RELAY_QUOTAS; i++) {
		const struct quota *quota = relay->options.quotas[i];

		if (quota && quota->budget &&
			(quota->spent >= quota->budget || quota->budget - quota->spent < len))
			return false;
	}
	return true;
}

/* Whether a datagram may pass: it passes whole if the rate allows a part of it (later ones wait
 * longer), and never beyond a budget. */
static bool pay(struct udp_relay *relay, size_t len, int64_t now)
{
	unsigned wait_ms;

	if (!has_budget(relay, len)) {
		relay_ends(relay, RELAY_END_BUDGET, "the budget is spent");
		return false;
	}
	if (len && !relay_quotas_allow(relay->options.quotas, len, now, &wait_ms))
		return false;
	relay_quotas_spend(relay->options.quotas, len, now);
	return true;
}

static void note_error(struct udp_relay *relay, bool of_client, int errno_value)
{
	if (errno_value == EAGAIN || errno_value == EINTR)
		return;
	if (of_client && errno_value == ECONNREFUSED)
		relay_ends(relay, RELAY_END_RESET, "the client's socket is gone");
	else if (++relay->errors >= ERRORS_MAX)
		relay_ends(relay, RELAY_END_RESET, strerror(errno_value));
}

static void pass(struct udp_relay *relay, bool out, const void *data, size_t len, int64_t now)
{
	int to = out ? relay->options.server : relay->options.client;
	uint64_t *bytes = out ? &relay->report.bytes_out : &relay->report.bytes_in;

	if (!pay(relay, len, now))
		return;
	if (send(to, data, len, MSG_NOSIGNAL) < 0) {
		note_error(relay, !out, errno);
		return;
	}
	relay->errors = 0;
	*bytes += len;
	if (relay->options.moved)
		relay->options.moved(relay->options.arg, out);
}

static void move(struct udp_relay *relay, bool out)
{
	struct mmsghdr messages[UDP_RELAY_BATCH] = { 0 };
	struct iovec parts[UDP_RELAY_BATCH];
	int from = out ? relay->options.client : relay->options.server, count;
	int64_t now = clock_mono_us();

	for (size_t i = 0; i < UDP_RELAY_BATCH; i++) {
		parts[i] = (struct iovec){ room[i], DATAGRAM_ROOM };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &parts[i], .msg_iovlen = 1 };
	}
	count = recvmmsg(from, messages, UDP_RELAY_BATCH, MSG_DONTWAIT, NULL);
	if (count < 0) {
		note_error(relay, out, errno);
		return;
	}
	relay->active_at = now;
	for (int i = 0; i < count && !relay->ending; i++)
		pass(relay, out, room[i], messages[i].msg_len, now);
}

static void on_client(void *arg, unsigned ready)
{
	(void)ready;
	move(arg, true);
}

static void on_server(void *arg, unsigned ready)
{
	(void)ready;
	move(arg, false);
}

/* ---- the contract --------------------------------------------------------------------------- */

struct udp_relay *udp_relay_new(const struct udp_relay_options *options)
{
	struct udp_relay *relay = xnew(struct udp_relay);

	relay->options = *options;
	if (!relay->options.idle_ms)
		relay->options.idle_ms = UDP_RELAY_IDLE_MS;
	relay->began_at = relay->active_at = clock_mono_us();
	relay->client_watch =
		loop_fd_new(options->loop, options->client, LOOP_READ, on_client, relay);
	relay->server_watch =
		loop_fd_new(options->loop, options->server, LOOP_READ, on_server, relay);
	relay->idle = loop_timer_new(options->loop, on_idle, relay);
	loop_timer_start(relay->idle, relay->options.idle_ms);
	return relay;
}

void udp_relay_send(struct udp_relay *relay, const void *data, size_t len)
{
	if (!relay->ending)
		pass(relay, true, data, len, clock_mono_us());
}

void udp_relay_cut(struct udp_relay *relay, const char *why)
{
	relay_ends(relay, RELAY_END_CUT, why);
}

void udp_relay_figures(const struct udp_relay *relay, uint64_t *ret_out, uint64_t *ret_in)
{
	*ret_out = relay->report.bytes_out;
	*ret_in = relay->report.bytes_in;
}

void udp_relay_free(struct udp_relay *relay)
{
	if (!relay)
		return;
	loop_undefer(relay->options.loop, finish, relay);
	loop_fd_free(relay->client_watch);
	loop_fd_free(relay->server_watch);
	loop_timer_free(relay->idle);
	close(relay->options.client);
	close(relay->options.server);
	free(relay);
}
