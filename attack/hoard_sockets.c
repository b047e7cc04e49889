/* hoard_sockets.c - memory behind sockets, one attempt of each kind (see hoard.h) */
#include "attack/hoard.h"
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	RING_BLOCK = 1 << 20,
	RING_BLOCKS = 16,
	BUFFER = 4 << 20,
	MEMINFO_WORDS = 9, /* words in SO_MEMINFO; the first is the receive queue */
	SENDS = 60,
	DUMPS = 2000,
	BACKLOG = 1024, /* of a listening socket */
};

static char chunk[HOARD_CHUNK];

static int64_t waiting_in(int fd)
{
	uint32_t info[MEMINFO_WORDS] = { 0 };
	socklen_t len = sizeof info;

	return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len) < 0 ? 0 : (int64_t)info[0];
}

static void widen(int fd)
{
	int size = BUFFER;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

int64_t hoard_ring(void)
{
	struct tpacket_req request = { .tp_block_size = RING_BLOCK,
		.tp_block_nr = RING_BLOCKS,
		.tp_frame_size = 2048,
		.tp_frame_nr = RING_BLOCK / 2048 * RING_BLOCKS };
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));

	if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) < 0)
		return 0;
	return (int64_t)RING_BLOCK * RING_BLOCKS;
}

int64_t hoard_netlink(void)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg info;
	} ask = { .head = { .nlmsg_len = sizeof ask,
			  .nlmsg_type = RTM_GETLINK,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0)
		return 0;
	widen(fd);
	for (int i = 0; i < DUMPS && send(fd, &ask, sizeof ask, 0) > 0; i++)
		continue;
	return waiting_in(fd);
}

int64_t hoard_usersock(void)
{
	struct sockaddr_nl self = { .nl_family = AF_NETLINK };
	socklen_t len = sizeof self;
	int to = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK),
	    from = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_USERSOCK);

	if (to < 0 || from < 0)
		return 0;
	widen(to);
	widen(from);
	(void)bind(to, (struct sockaddr *)&self, sizeof self);
	getsockname(to, (struct sockaddr *)&self, &len);
	while (sendto(from, chunk, sizeof chunk, 0, (struct sockaddr *)&self, len) > 0)
		continue;
	close(from);
	return waiting_in(to);
}

/* Sends datagrams to a port of our own that nobody reads. */
static int64_t hoard_datagrams(int type, int protocol)
{
	struct sockaddr_in self = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof self;
	int to = socket(AF_INET, type, protocol), from = socket(AF_INET, SOCK_DGRAM, 0);

	if (to < 0 || from < 0)
		return 0;
	widen(to);
	(void)bind(to, (struct sockaddr *)&self, sizeof self);
	if (type == SOCK_DGRAM)
		getsockname(to, (struct sockaddr *)&self, &len);
	else
		self.sin_port = htons(9);
	for (int i = 0; i < SENDS; i++)
		sendto(from, chunk, sizeof chunk, MSG_DONTWAIT, (struct sockaddr *)&self,
			sizeof self);
	close(from);
	return waiting_in(to);
}

int64_t hoard_udp(void)
{
	return hoard_datagrams(SOCK_DGRAM, 0);
}

/* Packets that come back to their sender with the time they were sent. */
int64_t hoard_returned(void)
{
	struct sockaddr_in nobody = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(9) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), times = SOF_TIMESTAMPING_TX_SOFTWARE |
							 SOF_TIMESTAMPING_SOFTWARE |
							 SOF_TIMESTAMPING_OPT_ID;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &times, sizeof times) < 0)
		return 0;
	widen(fd);
	for (int i = 0; i < SENDS; i++)
		sendto(fd, chunk, sizeof chunk / 2, MSG_DONTWAIT, (struct sockaddr *)&nobody,
			sizeof nobody);
	return waiting_in(fd);
}

static int listen_on(struct sockaddr_in *ret, int backlog)
{
	socklen_t len = sizeof *ret;
	int door = socket(AF_INET, SOCK_STREAM, 0);

	*ret = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (bind(door, (struct sockaddr *)ret, sizeof *ret) < 0 || listen(door, backlog) < 0 ||
		getsockname(door, (struct sockaddr *)ret, &len) < 0)
		return -1;
	return door;
}

/* The first message of a connection is accepted where the kernel would refuse the second. */
int64_t hoard_first(void)
{
	static struct sockaddr_in self;
	static int door = -1;
	int from = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	ssize_t got;

	if (door < 0 && (door = listen_on(&self, 8)) < 0)
		return 0;
	if (from < 0)
		return 0;
	(void)connect(from, (struct sockaddr *)&self, sizeof self);
	if (accept(door, NULL, NULL) < 0)
		return 0;
	got = send(from, chunk, sizeof chunk, 0);
	return got > 0 ? got : 1;
}

/* As hoard_returned, on a connection whose other end reads: what comes back is in no table of
 * the kernel. */
int64_t hoard_returned_tcp(void)
{
	static struct sockaddr_in self;
	static char sink[HOARD_CHUNK];
	static int door = -1;
	int times = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE |
		    SOF_TIMESTAMPING_OPT_ID,
	    from = socket(AF_INET, SOCK_STREAM, 0), to;

	if (door < 0 && (door = listen_on(&self, 8)) < 0)
		return 0;
	if (from < 0)
		return 0;
	widen(from);
	if (connect(from, (struct sockaddr *)&self, sizeof self) < 0 ||
		(to = accept(door, NULL, NULL)) < 0 ||
		setsockopt(from, SOL_SOCKET, SO_TIMESTAMPING, &times, sizeof times) < 0)
		return 0;
	for (int i = 0; i < SENDS; i++) {
		send(from, chunk, sizeof chunk / 2, MSG_DONTWAIT);
		while (recv(to, sink, sizeof sink, MSG_DONTWAIT) > 0)
			continue;
	}
	close(to);
	return waiting_in(from) + 1;
}

/* Connections that wait to be accepted are charged to nobody yet. */
int64_t hoard_unaccepted(void)
{
	static struct sockaddr_in self;
	static unsigned number;
	int from = socket(AF_INET, SOCK_STREAM, 0);
	int64_t sent = 0;
	ssize_t got;

	if (number++ % BACKLOG == 0 && listen_on(&self, BACKLOG) < 0)
		return 0;
	if (from < 0 || connect(from, (struct sockaddr *)&self, sizeof self) < 0)
		return 0;
	while (sent < 2 * HOARD_CHUNK && (got = send(from, chunk, sizeof chunk, MSG_DONTWAIT)) > 0)
		sent += got;
	close(from);
	return sent + 1;
}

/* A disconnected socket keeps its queue but leaves its table. */
int64_t hoard_unlisted(void)
{
	struct sockaddr nobody = { .sa_family = AF_UNSPEC };
	struct sockaddr_in self = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(9) };
	int to = socket(AF_INET, SOCK_RAW, IPPROTO_UDP), from = socket(AF_INET, SOCK_DGRAM, 0);

	if (to < 0 || from < 0)
		return 0;
	widen(to);
	for (int i = 0; i < SENDS / 4; i++)
		sendto(from, chunk, sizeof chunk, MSG_DONTWAIT, (struct sockaddr *)&self,
			sizeof self);
	(void)connect(to, &nobody, sizeof nobody);
	close(from);
	return waiting_in(to);
}

int64_t hoard_raw(void)
{
	return hoard_datagrams(SOCK_RAW, IPPROTO_UDP);
}

int64_t hoard_tcp(void)
{
	struct sockaddr_in self = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval patience = { .tv_usec = 20000 };
	socklen_t len = sizeof self;
	int door = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
	int64_t sent = 0;
	ssize_t got;

	if (door < 0 || from < 0 || bind(door, (struct sockaddr *)&self, sizeof self) < 0 ||
		listen(door, 1) < 0 || getsockname(door, (struct sockaddr *)&self, &len) < 0)
		return 0;
	widen(from);
	setsockopt(from, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	if (connect(from, (struct sockaddr *)&self, sizeof self) < 0 ||
		accept(door, NULL, NULL) < 0)
		return 0;
	close(door);
	for (int i = 0; i < 2 * SENDS && (got = send(from, chunk, sizeof chunk, 0)) > 0; i++)
		sent += got;
	return sent;
}

int64_t hoard_unix(void)
{
	int pair[2];
	int64_t sent = 0;
	ssize_t got;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
		return 0;
	widen(pair[0]);
	while ((got = send(pair[0], chunk, sizeof chunk, 0)) > 0)
		sent += got;
	return sent;
}
