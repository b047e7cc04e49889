/* tcp.c - the connections of a box: accepted, checked, given to a relay */
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "gate/gate_internal.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

enum { BATCH = 32, PAUSE_MS = 100 };

static struct doors_endpoint endpoint_of(const struct sockaddr_storage *from)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
	const struct sockaddr_in *four = (const struct sockaddr_in *)from;
	struct doors_endpoint endpoint = { 0 };

	if (from->ss_family == AF_INET) {
		endpoint.address = address_v4((const uint8_t *)&four->sin_addr);
		endpoint.port = ntohs(four->sin_port);
	} else if (from->ss_family == AF_INET6) {
		endpoint.address = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)
					   ? address_v4(six->sin6_addr.s6_addr + 12)
					   : address_v6(six->sin6_addr.s6_addr);
		endpoint.port = ntohs(six->sin6_port);
	}
	return endpoint;
}

/* ---- callbacks of the relay ----------------------------------------------------------------- */

static void tell_request(
	struct flow *flow, const struct relay_seen *seen, const struct policy_verdict *verdict)
{
	json_t *event = json_pack("{s:s, s:s, s:s, s:i}", "type", "http", "verdict", "refused",
		"protocol", "tcp", "port", (int)flow->port);

	if (*flow->name)
		json_object_set_new(event, "name", json_string(flow->name));
	json_object_set_new(event, "host", event_text(seen->name));
	json_object_set_new(event, "method", event_text(seen->method));
	json_object_set_new(event, "path", event_text(seen->path));
	json_object_set_new(event, "reason", event_text(flow->reason));
	event_put_rule(event, verdict->rule);
	event_send(flow->tenant, event);
}

/* Remembers the current request, to be checked again when the policy changes. */
static void keep_request(struct flow *flow, const struct relay_seen *seen)
{
	free(flow->host);
	free(flow->method);
	free(flow->path);
	flow->host = xstrdup(seen->name);
	flow->method = xstrdup(seen->method);
	flow->path = xstrdup(seen->path);
}

static bool on_seen(void *arg, const struct relay_seen *seen)
{
	struct flow *flow = arg;
	struct policy_flow question = flow_question(flow);
	struct policy_verdict verdict;
	char reason[EVENT_TEXT_MAX];

	/* On other ports there are protocols whose clients send no SNI; the dialled name is
	 * right in any case. */
	if (seen->kind == RELAY_SEEN_NO_SNI && flow->check == RELAY_TLS)
		return flow_refuse(flow, "TLS without the name of the server"), false;
	question.seen = seen->name;
	if (seen->kind == RELAY_SEEN_REQUEST) {
		question.kind = POLICY_FLOW_HTTP;
		question.method = seen->method;
		question.path = seen->path;
	}
	verdict = policy_match(flow->tenant->matcher, &question);
	if (verdict.allowed && !(verdict.needs_http && seen->kind != RELAY_SEEN_REQUEST)) {
		if (seen->kind == RELAY_SEEN_REQUEST)
			keep_request(flow, seen);
		return true;
	}
	flow_refuse(flow, verdict.allowed
				  ? "only plain HTTP may go there"
				  : event_reason(&verdict, seen->name ? seen->name : "", reason));
	if (seen->kind == RELAY_SEEN_REQUEST)
		tell_request(flow, seen, &verdict);
	return false;
}

static bool on_may(void *arg, const struct address *address)
{
	return flow_may(arg, address);
}

static void on_dialled(void *arg, const struct address *address)
{
	flow_connected(arg, address);
}

static void on_ended(void *arg, const struct relay_report *report)
{
	struct flow *flow = arg;

	flow->relay = NULL;
	flow_end(flow, report);
}

static void on_moved(void *arg, bool out)
{
	flow_moved(arg, out);
}

static const struct relay_ops relay_ops = {
	.seen = on_seen, .may = on_may, .dialled = on_dialled, .moved = on_moved, .ended = on_ended
};

/* ---- accepting ------------------------------------------------------------------------------ */

static void ask_for_box(struct flow *flow)
{
	struct tenant *tenant = flow->tenant;
	json_t *message = tenant_message(tenant, "dial_box");

	flow_wait(flow);
	json_object_set_new(
		message, "name", json_stringn(flow->name, strlen(flow->name) - strlen(".box")));
	json_object_set_new(message, "port", json_integer(flow->port));
	json_object_set_new(message, "ticket", json_integer((json_int_t)flow->ticket));
	channel_send(tenant->process->channel, message, NULL, 0);
}

void tcp_answered(struct flow *flow, int fd, const struct err *err)
{
	static const struct address none;

	if (fd < 0 && err->kind == ERR_FORBIDDEN)
		flow_refuse(flow, err->message);
	else if (fd >= 0)
		flow_connected(flow, &none);
	relay_connect(flow->relay, fd, err);
}

static void start(struct flow *flow, int fd)
{
	struct process *process = flow->tenant->process;
	/* Private addresses are included: flow_may knows which names may lead there, and the log
	 * must show them. */
	struct dial_target target = {
		.name = flow->name, .port = flow->port, .allow_private = true
	};

	if (!*flow->name)
		target.address = flow->aim;
	flow->relay = relay_new(&(struct relay_options){ .hub = process->hub,
		.client = fd,
		.check = flow->check,
		.dial = &flow->tenant->dial,
		.target = flow->is_box ? NULL : &target,
		.quotas = { &flow->tenant->quota, &flow->allotment->quota,
			&flow->tenant->tree->quota },
		.ops = &relay_ops,
		.arg = flow });
	if (flow->is_box)
		ask_for_box(flow);
}

static void reset(int fd)
{
	const struct linger at_once = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(fd);
}

static void take(struct tenant *tenant, int fd, const struct sockaddr_storage *peer)
{
	struct sockaddr_storage own = { 0 };
	struct doors_endpoint aim, from = endpoint_of(peer);
	socklen_t len = sizeof own;
	struct flow *flow;

	if (getsockname(fd, (struct sockaddr *)&own, &len) < 0 || fd_is_scarce(fd)) {
		reset(fd);
		return;
	}
	aim = endpoint_of(&own);
	flow = flow_admit(tenant, false, &aim, &from);
	if (flow)
		start(flow, fd);
	else
		reset(fd);
}

void tcp_ready(void *arg, unsigned ready)
{
	struct tenant *tenant = arg;

	(void)ready;
	for (int i = 0; i < BATCH; i++) {
		struct sockaddr_storage peer = { 0 };
		socklen_t len = sizeof peer;
		int fd = accept4(tenant->doors[DOOR_TCP], (struct sockaddr *)&peer, &len,
			SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
			take(tenant, fd, &peer);
		else if (errno == EAGAIN)
			return;
		else if (errno != ECONNABORTED && errno != EINTR) {
			tenant_pause_door(tenant, DOOR_TCP, PAUSE_MS); /* out of fds or memory */
			return;
		}
	}
}
