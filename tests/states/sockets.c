/* sockets.c - unix sockets and loopback connections, with data on the way */
#include "tests/states/checks.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { QUEUED = 3000, STEP = 100, PACKETS = 4 };

/* One direction of a connection, with `held` bytes that were sent and not read. */
struct flow {
	int from, to;
	uint64_t seed, at, held;
};

static void flow_fill(struct check *check, struct flow *flow)
{
	unsigned char bytes[QUEUED];

	pattern_fill(bytes, QUEUED, flow->seed, 0);
	flow->held = QUEUED;
	must(check, send(flow->from, bytes, QUEUED, 0) == QUEUED, "fill a socket");
}

static bool read_all(int fd, unsigned char *bytes, size_t size)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	for (size_t got = 0; got < size;) {
		ssize_t some = poll(&wait, 1, 10000) == 1 ? read(fd, bytes + got, size - got) : -1;

		if (some <= 0)
			return false;
		got += (size_t)some;
	}
	return true;
}

static void flow_step(struct check *check, struct flow *flow, const char *what)
{
	unsigned char bytes[STEP];

	must(check, read_all(flow->to, bytes, STEP), "%s: read", what);
	must(check, pattern_is(bytes, STEP, flow->seed, flow->at), "%s: what was on the way", what);
	pattern_fill(bytes, STEP, flow->seed, flow->at + flow->held);
	must(check, send(flow->from, bytes, STEP, MSG_NOSIGNAL) == STEP, "%s: send", what);
	flow->at += STEP;
}

static void both_fill(struct check *check, struct flow flows[2], int a, int b, uint64_t seed)
{
	flows[0] = (struct flow){ .from = a, .to = b, .seed = seed };
	flows[1] = (struct flow){ .from = b, .to = a, .seed = seed + 1 };
	flow_fill(check, &flows[0]);
	flow_fill(check, &flows[1]);
}

static void both_step(struct check *check, struct flow flows[2], const char *what)
{
	flow_step(check, &flows[0], what);
	flow_step(check, &flows[1], what);
}

/* ---- unix ----------------------------------------------------------------------------------- */

static struct flow pair[2], accepted[2];
static int packets[2][2], half[2], listener, abstract, bound;
static const int packet_types[2] = { SOCK_DGRAM, SOCK_SEQPACKET };

static socklen_t address(struct sockaddr_un *to, const char *name)
{
	*to = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(to->sun_path, sizeof to->sun_path, "%s", name);
	if (name[0] != '@')
		return sizeof *to;
	to->sun_path[0] = 0;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
}

static int listen_at(struct check *check, const char *name, int type)
{
	struct sockaddr_un at;
	socklen_t size = address(&at, name);
	int fd = socket(AF_UNIX, type, 0);

	must(check, bind(fd, (void *)&at, size) == 0, "bind %s", name);
	if (type != SOCK_DGRAM)
		must(check, listen(fd, 8) == 0, "listen at %s", name);
	return fd;
}

static int connect_to(struct check *check, const char *name, int type)
{
	struct sockaddr_un at;
	socklen_t size = address(&at, name);
	int fd = socket(AF_UNIX, type, 0);

	must(check, connect(fd, (void *)&at, size) == 0, "connect to %s", name);
	return fd;
}

static void packets_send(struct check *check, int fd, unsigned first, unsigned count)
{
	char text[64];

	for (unsigned i = first; i < first + count; i++)
		must(check,
			send(fd, text,
				(size_t)snprintf(text, sizeof text, "packet %u%.*s", i,
					(int)(i % 7), "......."),
				0) > 0,
			"send a packet");
}

static void unix_set_up(struct check *check)
{
	int ends[2], on = 1, client;

	must(check, socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
	both_fill(check, pair, ends[0], ends[1], 21);
	for (int i = 0; i < 2; i++) {
		must(check, socketpair(AF_UNIX, packet_types[i], 0, packets[i]) == 0, "socketpair");
		packets_send(check, packets[i][0], 0, PACKETS);
	}
	must(check,
		socketpair(AF_UNIX, SOCK_STREAM, 0, half) == 0 && shutdown(half[0], SHUT_WR) == 0,
		"half a connection");
	listener = listen_at(check, "socket", SOCK_STREAM);
	abstract = listen_at(check, "@states-checks", SOCK_SEQPACKET);
	bound = listen_at(check, "bound", SOCK_DGRAM);
	must(check, setsockopt(bound, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0, "SO_PASSCRED");
	client = connect_to(check, "socket", SOCK_STREAM);
	both_fill(check, accepted, client, accept(listener, NULL, NULL), 23);
}

/* Somebody new comes and is served. */
static void serves(struct check *check, int at, const char *name, int type)
{
	int client = connect_to(check, name, type), served = accept(at, NULL, NULL);
	char byte = 0;

	must(check,
		send(client, "x", 1, MSG_NOSIGNAL) == 1 && recv(served, &byte, 1, 0) == 1 &&
			byte == 'x',
		"a new connection to %s", name);
	close(client);
	close(served);
}

static void unix_verify(struct check *check)
{
	char got[64], want[64];
	int on = 0, client;
	socklen_t size = sizeof on;

	both_step(check, pair, "socket pair");
	both_step(check, accepted, "accepted connection");
	for (int i = 0; i < 2; i++) {
		unsigned number = check->asked;
		int length = snprintf(
			want, sizeof want, "packet %u%.*s", number, (int)(number % 7), ".......");

		must(check,
			recv(packets[i][1], got, sizeof got, MSG_DONTWAIT) == length &&
				memcmp(got, want, (size_t)length) == 0,
			"packet %u of type %d", number, packet_types[i]);
		packets_send(check, packets[i][0], number + PACKETS, 1);
	}
	must(check, recv(half[1], got, 1, MSG_DONTWAIT) == 0, "the closed half is open");
	must(check, send(half[1], "y", 1, 0) == 1 && recv(half[0], got, 1, 0) == 1,
		"the open half is closed");
	must(check, send(half[0], "y", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE,
		"the closed half takes data");
	errno = 0;
	must(check, getsockopt(bound, SOL_SOCKET, SO_PASSCRED, &on, &size) == 0 && on == 1,
		"SO_PASSCRED");
	serves(check, listener, "socket", SOCK_STREAM);
	serves(check, abstract, "@states-checks", SOCK_SEQPACKET);
	client = connect_to(check, "bound", SOCK_DGRAM);
	must(check, send(client, "z", 1, 0) == 1 && recv(bound, got, 1, 0) == 1 && got[0] == 'z',
		"a datagram to a name");
	close(client);
}

const struct kind kind_unix = { "unix", unix_set_up, unix_verify };

/* ---- connections that nobody has accepted yet ----------------------------------------------- */

static int waiting_at, waiting;

/* He has not said anything yet: CRIU refuses connections that are not accepted and have data in
 * them. */
static void unix_backlog_set_up(struct check *check)
{
	waiting_at = listen_at(check, "waiting", SOCK_STREAM);
	waiting = connect_to(check, "waiting", SOCK_STREAM);
}

static void unix_backlog_verify(struct check *check)
{
	struct pollfd wait = { .fd = waiting_at, .events = POLLIN };
	char got[8] = "";
	int served = -1;

	must(check, poll(&wait, 1, 2000) == 1 && (served = accept(waiting_at, NULL, NULL)) >= 0,
		"who waits is still there");
	must(check, send(waiting, "hello", 5, MSG_NOSIGNAL) == 5, "send");
	must(check,
		recv(served, got, sizeof got, MSG_DONTWAIT) == 5 && memcmp(got, "hello", 5) == 0,
		"what he said");
	close(served);
	close(waiting);
	waiting = connect_to(check, "waiting", SOCK_STREAM);
}

const struct kind kind_unix_backlog = { "unix-backlog", unix_backlog_set_up, unix_backlog_verify };

/* ---- descriptors on their way through a socket ---------------------------------------------- */

static int passing[2];

static void right_send(struct check *check)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS,
			      .cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct iovec data = { .iov_base = "r", .iov_len = 1 };
	struct msghdr message = { .msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control };
	int ends[2] = { -1, -1 };

	must(check, pipe(ends) == 0 && write(ends[1], "through", 7) == 7, "pipe");
	memcpy(CMSG_DATA(&control.head), &ends[0], sizeof(int));
	must(check, sendmsg(passing[0], &message, 0) == 1, "sendmsg");
	close(ends[0]);
	close(ends[1]);
}

static void rights_set_up(struct check *check)
{
	must(check, socketpair(AF_UNIX, SOCK_STREAM, 0, passing) == 0, "socketpair");
	right_send(check);
}

static void rights_verify(struct check *check)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	char byte, got[8];
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control };
	int fd = -1;

	must(check, recvmsg(passing[1], &message, MSG_DONTWAIT) == 1, "recvmsg");
	if (must(check,
		    message.msg_controllen >= CMSG_LEN(sizeof(int)) &&
			    control.head.cmsg_type == SCM_RIGHTS,
		    "the descriptor is lost"))
		memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
	must(check, read(fd, got, sizeof got) == 7 && memcmp(got, "through", 7) == 0,
		"what it leads to");
	close(fd);
	right_send(check);
}

const struct kind kind_rights = { "rights", rights_set_up, rights_verify };

/* ---- TCP over loopback ---------------------------------------------------------------------- */

static struct flow tcp4[2], tcp6[2];
static int listener4, listener6, closed_half[2];

static int tcp_listen(struct check *check, int family)
{
	struct sockaddr_in6 at6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in at4 = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(family, SOCK_STREAM, 0);

	if (family == AF_INET6 && bind(fd, (void *)&at6, sizeof at6) < 0) {
		close(fd);
		errno = 0;
		return -1; /* no IPv6 here */
	}
	must(check,
		(family == AF_INET6 || bind(fd, (void *)&at4, sizeof at4) == 0) &&
			listen(fd, 8) == 0,
		"listen");
	return fd;
}

static int tcp_connect(struct check *check, int listening, int *ret_served)
{
	struct sockaddr_storage at;
	socklen_t size = sizeof at;
	int fd;

	must(check, getsockname(listening, (void *)&at, &size) == 0, "getsockname");
	fd = socket(at.ss_family, SOCK_STREAM, 0);
	must(check, connect(fd, (void *)&at, size) == 0, "connect over loopback");
	*ret_served = accept(listening, NULL, NULL);
	must(check, *ret_served >= 0, "accept");
	return fd;
}

static void tcp_set_up(struct check *check)
{
	int on = 1, served, client;

	listener4 = tcp_listen(check, AF_INET);
	client = tcp_connect(check, listener4, &served);
	must(check,
		setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
			setsockopt(served, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0,
		"options");
	both_fill(check, tcp4, client, served, 31);
	listener6 = tcp_listen(check, AF_INET6);
	if (listener6 >= 0) {
		client = tcp_connect(check, listener6, &served);
		both_fill(check, tcp6, client, served, 33);
	}
	closed_half[0] = tcp_connect(check, listener4, &closed_half[1]);
	must(check, shutdown(closed_half[0], SHUT_WR) == 0, "shutdown");
}

static void tcp_verify(struct check *check)
{
	int on = 0, client, served;
	socklen_t size = sizeof on;
	char byte = 0;

	both_step(check, tcp4, "connection");
	if (listener6 >= 0)
		both_step(check, tcp6, "connection over IPv6");
	must(check, getsockopt(tcp4[0].from, IPPROTO_TCP, TCP_NODELAY, &on, &size) == 0 && on,
		"TCP_NODELAY");
	must(check, getsockopt(tcp4[0].to, SOL_SOCKET, SO_KEEPALIVE, &on, &size) == 0 && on,
		"SO_KEEPALIVE");
	must(check, recv(closed_half[1], &byte, 1, 0) == 0, "the closed half is open");
	must(check,
		send(closed_half[1], "h", 1, MSG_NOSIGNAL) == 1 &&
			read_all(closed_half[0], (unsigned char *)&byte, 1) && byte == 'h',
		"the open half is closed");
	client = tcp_connect(check, listener4, &served);
	must(check,
		send(client, "n", 1, MSG_NOSIGNAL) == 1 && recv(served, &byte, 1, 0) == 1 &&
			byte == 'n',
		"a new connection");
	close(client);
	close(served);
	snprintf(check->detail, sizeof check->detail, "%s", listener6 < 0 ? "without IPv6" : "");
}

const struct kind kind_tcp = { "tcp", tcp_set_up, tcp_verify };

/* More on the way than the reader has room for: data waits on both sides. */
static struct flow stuffed;

static void stuffed_fill(struct check *check)
{
	unsigned char bytes[4096];
	ssize_t sent;

	do {
		pattern_fill(bytes, sizeof bytes, stuffed.seed, stuffed.at + stuffed.held);
		sent = send(stuffed.from, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		stuffed.held += sent > 0 ? (uint64_t)sent : 0;
	} while (sent > 0);
	must(check, errno == EAGAIN && stuffed.held > 50000, "fill: %lu",
		(unsigned long)stuffed.held);
}

static void tcp_full_set_up(struct check *check)
{
	int listening = tcp_listen(check, AF_INET), size = 64 << 10, served;
	int client = tcp_connect(check, listening, &served);

	setsockopt(client, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	setsockopt(served, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	close(listening);
	stuffed = (struct flow){ .from = client, .to = served, .seed = 35 };
	stuffed_fill(check);
}

static void tcp_full_verify(struct check *check)
{
	static unsigned char bytes[1 << 14];

	for (int i = 0; i < 2; i++) {
		must(check,
			read_all(stuffed.to, bytes, sizeof bytes) &&
				pattern_is(bytes, sizeof bytes, stuffed.seed, stuffed.at),
			"what was on the way");
		stuffed.at += sizeof bytes;
		stuffed.held -= sizeof bytes;
	}
	/* At the reader's and at the sender's: how much fits is the kernel's affair. */
	while (stuffed.held > 60000 && !check->why[0]) {
		must(check,
			read_all(stuffed.to, bytes, 10000) &&
				pattern_is(bytes, 10000, stuffed.seed, stuffed.at),
			"the rest, %lu bytes", (unsigned long)stuffed.held);
		stuffed.at += 10000;
		stuffed.held -= 10000;
	}
	stuffed_fill(check);
}

const struct kind kind_tcp_full = { "tcp-full", tcp_full_set_up, tcp_full_verify };

static int udp[2];

static void udp_set_up(struct check *check)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof at;

	udp[0] = socket(AF_INET, SOCK_DGRAM, 0);
	udp[1] = socket(AF_INET, SOCK_DGRAM, 0);
	must(check,
		bind(udp[0], (void *)&at, sizeof at) == 0 &&
			getsockname(udp[0], (void *)&at, &size) == 0 &&
			connect(udp[1], (void *)&at, size) == 0,
		"sockets");
}

/* Datagrams on the way may be lost, here as everywhere. */
static void udp_verify(struct check *check)
{
	char byte = 0;

	must(check,
		send(udp[1], "u", 1, 0) == 1 && read_all(udp[0], (unsigned char *)&byte, 1) &&
			byte == 'u',
		"a datagram over loopback");
}

const struct kind kind_udp = { "udp", udp_set_up, udp_verify };

/* ---- talk that never ends: one message is always on its way, and one that is lost ends it for
 * ever */

enum { TALKS = 2, WORD = 700 };
static struct {
	int ends[2];
	volatile unsigned *rounds;
} talks[TALKS];
static volatile unsigned wrong_words;

static void talk_answer(int fd)
{
	unsigned char bytes[WORD];

	for (;;) {
		for (size_t got = 0; got < WORD;) {
			ssize_t some = read(fd, bytes + got, WORD - got);

			if (some <= 0)
				_exit(1);
			got += (size_t)some;
		}
		if (send(fd, bytes, WORD, MSG_NOSIGNAL) != WORD)
			_exit(2);
	}
}

static void *talk_ask(void *arg)
{
	size_t i = (size_t)(uintptr_t)arg;
	unsigned char bytes[WORD], back[WORD];

	for (uint64_t number = 0;; number++) {
		pattern_fill(bytes, WORD, 51 + i, number);
		if (send(talks[i].ends[0], bytes, WORD, MSG_NOSIGNAL) != WORD)
			break;
		for (size_t got = 0; got < WORD;) {
			ssize_t some = read(talks[i].ends[0], back + got, WORD - got);

			if (some <= 0)
				return wrong_words++, NULL;
			got += (size_t)some;
		}
		wrong_words += memcmp(bytes, back, WORD) != 0;
		++*talks[i].rounds;
		usleep(300);
	}
	wrong_words++;
	return NULL;
}

static void talk_set_up(struct check *check)
{
	static volatile unsigned rounds[TALKS];
	int listening = tcp_listen(check, AF_INET), served;
	pthread_t thread;

	talks[0].ends[0] = tcp_connect(check, listening, &served);
	talks[0].ends[1] = served;
	must(check, socketpair(AF_UNIX, SOCK_STREAM, 0, talks[1].ends) == 0, "socketpair");
	for (size_t i = 0; i < TALKS; i++) {
		talks[i].rounds = &rounds[i];
		if (!check->why[0] && child_new() == 0)
			talk_answer(talks[i].ends[1]);
		must(check, pthread_create(&thread, NULL, talk_ask, (void *)(uintptr_t)i) == 0,
			"thread");
	}
}

static void talk_verify(struct check *check)
{
	for (int i = 0; i < TALKS; i++)
		must(check, moves_on(talks[i].rounds, *talks[i].rounds, 15000),
			"a word was lost on the way: %s", i == 0 ? "TCP" : "unix");
	must(check, wrong_words == 0, "%u wrong words", wrong_words);
}

const struct kind kind_talk = { "talk", talk_set_up, talk_verify };
