/* doors.c - see doors.h: our sockets in the namespace of a box, opened by the daemon */
#include "net/doors.h"
#include "base/log.h"
#include "net/doors_internal.h"
#include "sys/netns.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 512 };

static socklen_t socket_address(
	const struct address *address, uint16_t port, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof *ret);
	if (address->family == 4) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)ret;

		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, address->bytes, 4);
		return sizeof *v4;
	} else {
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		memcpy(&v6->sin6_addr, address->bytes, 16);
		return sizeof *v6;
	}
}

static int set_on(int fd, int level, int option)
{
	return setsockopt(fd, level, option, &(int){ 1 }, sizeof(int));
}

/* Opens a socket that may use any address as its own. */
static int open_transparent(int family, int type, int *ret, struct err *err)
{
	int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_sys(err, errno, "open a socket in the box's network");
	if (set_on(fd, SOL_SOCKET, SO_REUSEADDR) < 0 || set_on(fd, SOL_IP, IP_TRANSPARENT) < 0 ||
		(family == AF_INET6 && set_on(fd, SOL_IPV6, IPV6_TRANSPARENT) < 0)) {
		err_sys(err, errno, "prepare a socket in the box's network");
		close(fd);
		return -1;
	}
	*ret = fd;
	return 0;
}

static int bind_to(int fd, const struct address *address, uint16_t port, struct err *err)
{
	struct sockaddr_storage to;
	socklen_t len = socket_address(address, port, &to);

	if (bind(fd, (struct sockaddr *)&to, len) < 0)
		return err_sys(err, errno, "bind port %u in the box's network", port);
	return 0;
}

/* Opens the resolver's socket of one family. */
static int open_questions(unsigned family, int type, int *ret, struct err *err)
{
	struct address address = doors_resolver(family);
	int domain = family == 4 ? AF_INET : AF_INET6;

	if (open_transparent(domain, type, ret, err) < 0)
		return -1;
	if (domain == AF_INET6 && set_on(*ret, SOL_IPV6, IPV6_V6ONLY) < 0)
		return err_sys(err, errno, "prepare a socket in the box's network");
	if (bind_to(*ret, &address, DOORS_DNS_PORT, err) < 0)
		return -1;
	if (type == SOCK_STREAM && listen(*ret, BACKLOG) < 0)
		return err_sys(err, errno, "listen in the box's network");
	/* Needed from the first question on: the answer must come from the address that was
	 * asked. */
	if (type == SOCK_DGRAM &&
		(domain == AF_INET ? set_on(*ret, SOL_IP, IP_PKTINFO)
				   : set_on(*ret, SOL_IPV6, IPV6_RECVPKTINFO)) < 0)
		return err_sys(err, errno, "prepare a socket in the box's network");
	return 0;
}

/* One socket for both families, where there is IPv6. */
static int open_any(int type, int *ret, struct err *err)
{
	struct address any = { .family = 6 };

	if (open_transparent(AF_INET6, type, ret, err) < 0) {
		any.family = 4;
		err_clear(err);
		if (open_transparent(AF_INET, type, ret, err) < 0)
			return -1;
	} else if (setsockopt(*ret, SOL_IPV6, IPV6_V6ONLY, &(int){ 0 }, sizeof(int)) < 0) {
		return err_sys(err, errno, "prepare a socket in the box's network");
	}
	if (bind_to(*ret, &any, DOORS_PORT, err) < 0)
		return -1;
	if (type == SOCK_STREAM)
		return listen(*ret, BACKLOG) < 0
			       ? err_sys(err, errno, "listen in the box's network")
			       : 0;
	if (set_on(*ret, SOL_IP, IP_RECVORIGDSTADDR) < 0 ||
		(any.family == 6 && set_on(*ret, SOL_IPV6, IPV6_RECVORIGDSTADDR) < 0))
		return err_sys(err, errno, "prepare a socket in the box's network");
	return 0;
}

static int open_raw(int family, int *ret, struct err *err)
{
	*ret = socket(family, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
	return *ret < 0 ? err_sys(err, errno, "open a raw socket in the box's network") : 0;
}

static void close_door(int *door)
{
	if (*door >= 0)
		close(*door);
	*door = -1;
}

static int open_all(void *arg, struct err *err)
{
	int *doors = arg;
	struct err ignored = ERR_INIT;

	if (open_any(SOCK_STREAM, &doors[DOOR_TCP], err) < 0 ||
		open_any(SOCK_DGRAM, &doors[DOOR_UDP], err) < 0 ||
		open_questions(4, SOCK_DGRAM, &doors[DOOR_DNS_UDP4], err) < 0 ||
		open_questions(4, SOCK_STREAM, &doors[DOOR_DNS_TCP4], err) < 0 ||
		open_raw(AF_INET, &doors[DOOR_RAW4], err) < 0 ||
		doors_refused_open(&doors[DOOR_REFUSED], err) < 0)
		return -1;
	/* A machine without IPv6 has none of these, and no packets for them. */
	if (open_questions(6, SOCK_DGRAM, &doors[DOOR_DNS_UDP6], &ignored) < 0 ||
		open_questions(6, SOCK_STREAM, &doors[DOOR_DNS_TCP6], &ignored) < 0 ||
		open_raw(AF_INET6, &doors[DOOR_RAW6], &ignored) < 0) {
		close_door(&doors[DOOR_DNS_UDP6]);
		close_door(&doors[DOOR_DNS_TCP6]);
		close_door(&doors[DOOR_RAW6]);
	}
	return 0;
}

int doors_open(int netns, int ret[DOOR_COUNT], struct err *err)
{
	for (int i = 0; i < DOOR_COUNT; i++)
		ret[i] = -1;
	if (netns_call(netns, open_all, ret, err) < 0) {
		doors_close(ret);
		return -1;
	}
	return 0;
}

void doors_close(int doors[DOOR_COUNT])
{
	for (int i = 0; i < DOOR_COUNT; i++)
		close_door(&doors[i]);
}

/* ---- for a moment in the namespace ---------------------------------------------------------- */

struct errand {
	const struct netlink_batch *batch;
	const struct doors_endpoint *aim, *client;
	enum doors_side side;
	uint16_t port;
	int fd;
	struct err refusal;
};

static int send_rules(void *arg, struct err *err)
{
	struct errand *errand = arg;

	(void)err;
	(void)netlink_send(NETLINK_NETFILTER, errand->batch, &errand->refusal);
	return 0;
}

int doors_set_aims(
	int netns, const struct address_range *ranges, size_t count, bool udp, struct err *err)
{
	struct netlink_batch batch = NETLINK_BATCH_INIT;
	struct errand errand = { .batch = &batch };
	int status;

	doors_aims_write(&batch, ranges, count, udp);
	status = netns_call(netns, send_rules, &errand, err);
	netlink_batch_done(&batch);
	if (status < 0)
		return err_wrap(err, "set what leads to the gate");
	/* Root of a nested box may have deleted the rules, or may hold them so that nobody else can
	 * change them. That harms only itself and must not make a policy fail. */
	if (errand.refusal.kind != ERR_NONE)
		log_warn("what leads to the gate cannot be set in a box; ranges of its policy stay "
			 "closed",
			kv_err(&errand.refusal));
	return 0;
}

static int open_flow(void *arg, struct err *err)
{
	struct errand *errand = arg;
	struct sockaddr_storage to;
	socklen_t len = socket_address(&errand->client->address, errand->client->port, &to);
	int domain = errand->aim->address.family == 4 ? AF_INET : AF_INET6;

	if (open_transparent(domain, SOCK_DGRAM, &errand->fd, err) < 0)
		return -1;
	if (bind_to(errand->fd, &errand->aim->address, errand->aim->port, err) < 0)
		return -1;
	if (connect(errand->fd, (struct sockaddr *)&to, len) < 0)
		return err_sys(err, errno, "connect to a socket of the box");
	return 0;
}

static int run_errand(int netns, int (*fn)(void *arg, struct err *err), struct errand *errand,
	int *ret, struct err *err)
{
	errand->fd = -1;
	if (netns_call(netns, fn, errand, err) < 0) {
		if (errand->fd >= 0)
			close(errand->fd);
		return -1;
	}
	*ret = errand->fd;
	return 0;
}

int doors_open_udp(int netns, const struct doors_endpoint *aim, const struct doors_endpoint *client,
	int *ret, struct err *err)
{
	struct errand errand = { .aim = aim, .client = client };

	if (aim->address.family != client->address.family)
		return err_set(err, ERR_INVALID, "two families of addresses in one flow");
	return run_errand(netns, open_flow, &errand, ret, err);
}

static struct address side_address(enum doors_side side)
{
	struct address address = { .family = 4, .bytes = { 127, 0, 0, 1 } };

	if (side == DOORS_OUTSIDE)
		return doors_box(4);
	if (side == DOORS_LOOPBACK_V6) {
		address = (struct address){ .family = 6 };
		address.bytes[15] = 1;
	}
	return address;
}

static int open_connection(void *arg, struct err *err)
{
	struct errand *errand = arg;
	struct address address = side_address(errand->side);
	struct sockaddr_storage to;
	socklen_t len = socket_address(&address, errand->port, &to);

	errand->fd = socket(address.family == 4 ? AF_INET : AF_INET6,
		SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (errand->fd < 0)
		return err_sys(err, errno, "open a socket in the box's network");
	(void)set_on(errand->fd, IPPROTO_TCP, TCP_NODELAY);
	/* What a box with a kernel of its own answers looks to the rules as if it led to a door.
	 * They give it to this socket if it could be one. */
	if (errand->side == DOORS_OUTSIDE && set_on(errand->fd, SOL_IP, IP_TRANSPARENT) < 0)
		return err_sys(err, errno, "prepare a socket in the box's network");
	if (connect(errand->fd, (struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS)
		return err_sys(err, errno, "connect to port %u of the box", errand->port);
	return 0;
}

static int open_listener(void *arg, struct err *err)
{
	struct errand *errand = arg;
	struct address address = side_address(errand->side);
	struct sockaddr_storage at;
	socklen_t len = socket_address(&address, errand->port, &at);

	errand->fd = socket(address.family == 4 ? AF_INET : AF_INET6,
		SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (errand->fd < 0)
		return err_sys(err, errno, "open a socket in the box's network");
	(void)set_on(errand->fd, SOL_SOCKET, SO_REUSEADDR);
	if (bind(errand->fd, (struct sockaddr *)&at, len) < 0 || listen(errand->fd, BACKLOG) < 0)
		return errno == EADDRINUSE
			       ? err_set(err, ERR_EXISTS, "port %u of the box is taken",
					 errand->port)
			       : err_sys(err, errno, "listen on port %u of the box", errand->port);
	return 0;
}

int doors_listen(int netns, bool v6, uint16_t port, int *ret, struct err *err)
{
	struct errand errand = { .side = v6 ? DOORS_LOOPBACK_V6 : DOORS_LOOPBACK, .port = port };

	return run_errand(netns, open_listener, &errand, ret, err);
}

int doors_connect(int netns, enum doors_side side, uint16_t port, int *ret, struct err *err)
{
	struct errand errand = { .side = side, .port = port };

	return run_errand(netns, open_connection, &errand, ret, err);
}
