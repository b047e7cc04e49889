/* udp.c - the datagrams of a box: the first of each flow comes by the door, the rest by the flow's
 * own socket
 *
 * Two things are needed before datagrams can pass: the flow's socket inside the namespace, which
 * the daemon opens, and an address for its name. Both are requested at once; a few datagrams are
 * kept meanwhile. The sender of a refused datagram is told by ICMP. */
#include "base/alloc.h"
#include "base/clock.h"
#include "gate/gate_internal.h"
#include "gate/relay/udp.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

enum { BATCH = 32, PAUSE_MS = 20, KEPT = 4, KEPT_BYTES = 2048, WAIT_US = 15 * 1000 * 1000 };

struct udp_pending {
	int client, server;
	struct upstream_ask *ask;
	bool asked_six;
	size_t count;
	struct {
		size_t len;
		uint8_t bytes[KEPT_BYTES];
	} kept[KEPT];
};

/* ---- ends ----------------------------------------------------------------------------------- */

void udp_pending_free(struct flow *flow)
{
	struct udp_pending *pending = flow->pending;

	if (!pending)
		return;
	upstream_cancel(pending->ask);
	if (pending->client >= 0)
		close(pending->client);
	if (pending->server >= 0)
		close(pending->server);
	free(pending);
	flow->pending = NULL;
}

static void refuse(const struct tenant *tenant, const struct doors_endpoint *aim,
	const struct doors_endpoint *from)
{
	doors_refuse_udp(
		tenant->doors[aim->address.family == 4 ? DOOR_RAW4 : DOOR_RAW6], aim, from);
}

static void end_unreached(struct flow *flow, const char *why)
{
	struct relay_report report = { .end = RELAY_END_UNREACHED };
	const struct doors_endpoint aim = { flow->aim, flow->port };

	refuse(flow->tenant, &aim, &flow->from);
	snprintf(report.why, sizeof report.why, "%s", why);
	flow_end(flow, &report);
}

void udp_cut(struct flow *flow, const char *why)
{
	if (flow->udp_relay)
		udp_relay_cut(flow->udp_relay, why);
	else
		flow_break(flow, why);
}

void udp_tick(struct flow *flow, int64_t now)
{
	if (flow->pending && now - flow->since_us > WAIT_US)
		end_unreached(flow, "no answer in time");
}

static void on_ended(void *arg, const struct relay_report *report)
{
	struct flow *flow = arg;

	flow->udp_relay = NULL;
	flow_end(flow, report);
}

/* ---- both ends of a flow -------------------------------------------------------------------- */

static void on_moved(void *arg, bool out)
{
	flow_moved(arg, out);
}

static void go_if_ready(struct flow *flow)
{
	struct udp_pending *pending = flow->pending;
	struct tenant *tenant = flow->tenant;

	if (pending->client < 0 || pending->server < 0)
		return;
	flow->udp_relay = udp_relay_new(&(struct udp_relay_options){ .loop = tenant->process->loop,
		.client = steal_fd(&pending->client),
		.server = steal_fd(&pending->server),
		.quotas = { &tenant->quota, &flow->allotment->quota, &tenant->tree->quota },
		.moved = on_moved,
		.ended = on_ended,
		.arg = flow });
	flow_connected(flow, &flow->address);
	for (size_t i = 0; i < pending->count; i++)
		udp_relay_send(flow->udp_relay, pending->kept[i].bytes, pending->kept[i].len);
	udp_pending_free(flow);
}

static int open_server(const struct address *address, uint16_t port)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
	bool is_six = address->family == 6;
	_cleanup_close_ int fd =
		socket(is_six ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	memcpy(is_six ? (void *)&six.sin6_addr : &four.sin_addr, address->bytes, is_six ? 16 : 4);
	if (fd < 0 || connect(fd, is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four,
			      is_six ? sizeof six : sizeof four) < 0)
		return -1;
	return steal_fd(&fd);
}

/* False: not reachable. The flow stays in any case. */
static bool try_address(struct flow *flow, const struct address *address)
{
	struct udp_pending *pending = flow->pending;

	if (!flow_may(flow, address))
		return false;
	pending->server = open_server(address, flow->port);
	if (pending->server < 0)
		return false;
	flow->address = *address;
	return true;
}

static void on_resolved(void *arg, const struct upstream_result *result);

static bool resolve(struct flow *flow, uint16_t type)
{
	struct upstream *upstream = flow->tenant->process->upstream;

	return upstream_ask_as(upstream, &flow->tenant->tree->share, flow->name, type,
		       UPSTREAM_ALLOW_PRIVATE, on_resolved, flow, &flow->pending->ask, NULL) == 0;
}

static void on_resolved(void *arg, const struct upstream_result *result)
{
	struct flow *flow = arg;
	struct udp_pending *pending = flow->pending;

	pending->ask = NULL;
	for (size_t i = 0; i < result->count; i++)
		if (try_address(flow, &result->addresses[i])) {
			go_if_ready(flow);
			return;
		}
	if (!pending->asked_six) {
		pending->asked_six = true;
		if (resolve(flow, DNS_TYPE_AAAA))
			return;
	}
	end_unreached(flow, "no address that it may go to");
}

void udp_answered(struct flow *flow, int fd, const struct err *err)
{
	if (fd < 0) {
		end_unreached(flow, err->message);
		return;
	}
	flow->pending->client = fd;
	go_if_ready(flow);
}

/* ---- the door ------------------------------------------------------------------------------- */

static json_t *endpoint_json(const struct doors_endpoint *endpoint)
{
	char text[ADDRESS_TEXT_MAX];

	return json_pack("{s:s, s:i}", "address", address_format(&endpoint->address, text), "port",
		(int)endpoint->port);
}

static void ask_for_socket(struct flow *flow, const struct doors_endpoint *aim)
{
	json_t *message = tenant_message(flow->tenant, "open_udp");

	flow_wait(flow);
	json_object_set_new(message, "aim", endpoint_json(aim));
	json_object_set_new(message, "client", endpoint_json(&flow->from));
	json_object_set_new(message, "ticket", json_integer((json_int_t)flow->ticket));
	channel_send(flow->tenant->process->channel, message, NULL, 0);
}

static struct flow *start(
	struct tenant *tenant, const struct doors_endpoint *aim, const struct doors_endpoint *from)
{
	struct flow *flow = flow_admit(tenant, true, aim, from);

	if (!flow) {
		refuse(tenant, aim, from);
		return NULL;
	}
	flow->pending = xnew(struct udp_pending);
	flow->pending->client = flow->pending->server = -1;
	if (*flow->name ? !resolve(flow, DNS_TYPE_A) : !try_address(flow, &flow->aim)) {
		end_unreached(flow, "cannot be reached now");
		return NULL;
	}
	ask_for_socket(flow, aim);
	return flow;
}

static struct flow *find(const struct tenant *tenant, const struct doors_endpoint *aim,
	const struct doors_endpoint *from)
{
	for (struct flow *flow = tenant->flows; flow; flow = flow->next)
		if (flow->udp && flow->from.port == from->port && flow->port == aim->port &&
			address_equal(&flow->aim, &aim->address) &&
			address_equal(&flow->from.address, &from->address))
			return flow;
	return NULL;
}

static void keep(struct flow *flow, const uint8_t *data, size_t len)
{
	struct udp_pending *pending = flow->pending;

	if (!pending) {
		udp_relay_send(flow->udp_relay, data, len);
		return;
	}
	if (pending->count == KEPT || len > KEPT_BYTES)
		return;
	memcpy(pending->kept[pending->count].bytes, data, len);
	pending->kept[pending->count++].len = len;
}

static void put_sockaddr(struct doors_endpoint *endpoint, const void *data, size_t len)
{
	const struct sockaddr_in6 *six = data;
	const struct sockaddr_in *four = data;

	if (len >= sizeof *six && six->sin6_family == AF_INET6) {
		endpoint->port = ntohs(six->sin6_port);
		endpoint->address = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)
					    ? address_v4(six->sin6_addr.s6_addr + 12)
					    : address_v6(six->sin6_addr.s6_addr);
	} else if (len >= sizeof *four && four->sin_family == AF_INET) {
		endpoint->port = ntohs(four->sin_port);
		endpoint->address = address_v4((const uint8_t *)&four->sin_addr);
	}
}

/* Where the box sent it. False when the kernel did not report it. */
static bool read_aim(struct msghdr *header, struct doors_endpoint *ret)
{
	struct cmsghdr *note;

	*ret = (struct doors_endpoint){ 0 };
	for (note = CMSG_FIRSTHDR(header); note; note = CMSG_NXTHDR(header, note))
		if ((note->cmsg_level == IPPROTO_IPV6 && note->cmsg_type == IPV6_ORIGDSTADDR) ||
			(note->cmsg_level == IPPROTO_IP && note->cmsg_type == IP_ORIGDSTADDR)) {
			struct sockaddr_storage address = { 0 };
			size_t len = MIN(note->cmsg_len - CMSG_LEN(0), sizeof address);

			memcpy(&address, CMSG_DATA(note), len);
			put_sockaddr(ret, &address, len);
		}
	return ret->address.family != 0;
}

static bool receive(struct tenant *tenant)
{
	static uint8_t data[UDP_DATAGRAM_MAX];
	uint8_t control[256] __attribute__((aligned(8)));
	struct sockaddr_storage peer = { 0 };
	struct iovec part = { data, sizeof data };
	struct msghdr header = { .msg_name = &peer,
		.msg_namelen = sizeof peer,
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof control };
	ssize_t len = recvmsg(tenant->doors[DOOR_UDP], &header, MSG_DONTWAIT);
	struct doors_endpoint aim, from = { 0 };
	struct flow *flow;

	if (len < 0)
		return errno != EAGAIN;
	put_sockaddr(&from, &peer, header.msg_namelen);
	if ((header.msg_flags & MSG_CTRUNC) || !from.address.family || !read_aim(&header, &aim))
		return true;
	flow = find(tenant, &aim, &from);
	if (!flow)
		flow = start(tenant, &aim, &from);
	if (flow)
		keep(flow, data, (size_t)len);
	return true;
}

void udp_ready(void *arg, unsigned ready)
{
	struct tenant *tenant = arg;
	int count = 0;

	(void)ready;
	while (count < BATCH && receive(tenant))
		count++;
	/* New flows are expensive, and no program needs so many. */
	if (count == BATCH)
		tenant_pause_door(tenant, DOOR_UDP, PAUSE_MS);
}
