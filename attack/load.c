/* load.c - honest work, measured: what `box bench` lets programs in a box do, and their server
 *
 *   load serve PORT                        one process for all: the first byte of a connection says
 *                                          what it wants
 *   load connect HOST PORT COUNT           connect, one byte there and back; ms, the middle one of
 *                                          COUNT. "*.NAME" asks for another name each time, within
 *                                          the clock
 *   load ping HOST PORT COUNT              64 bytes there and back on one connection; us, the
 *                                          middle one
 *   load send|receive HOST PORT MS FLOWS   as much as goes for MS after a warm-up; Gbit/s of all
 *                                          FLOWS together, and how fair
 *
 * The same program runs in the box and outside of it, so that nothing but the way differs. What it
 * measured is in "detail": one number or two. */
#include "attack/attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
	/* not the first byte of HTTP or TLS, so that nothing on the path inspects the connection */
	WANT_ECHO = 1,
	WANT_SINK = 2,
	WANT_SOURCE = 3,
	WANT_HTTP = 'G',
	FDS_MAX = 4096,
	COUNT_MAX = 10000,
	FLOWS_MAX = 1000,
	EVENTS = 64,
	CHUNK = 256 * 1024,
	PING = 64,
	WAIT_MS = 5000,
};

static uint8_t chunk[CHUNK];

/* ---- the server ----------------------------------------------------------------------------- */

static struct {
	uint8_t want; /* 0: not sent yet */
	uint8_t tail; /* matched part of "\r\n\r\n" */
} conns[FDS_MAX];

static int watch(int poller, int op, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	return epoll_ctl(poller, op, fd, &event);
}

static void answer_requests(int fd, size_t len)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
				     "Content-Length: 3\r\n\r\nok\n";

	for (size_t i = 0; i < len; i++) {
		uint8_t tail = conns[fd].tail;

		conns[fd].tail = chunk[i] == (tail % 2 ? '\n' : '\r') ? tail + 1
				 : chunk[i] == '\r'		      ? 1
								      : 0;
		if (conns[fd].tail == 4) {
			send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
			conns[fd].tail = 0;
		}
	}
}

/* False: the connection has ended. */
static bool serve_connection(int poller, int fd)
{
	ssize_t len;

	if (conns[fd].want == WANT_SOURCE) {
		len = send(fd, chunk, sizeof chunk, MSG_NOSIGNAL);
		return len > 0 || errno == EAGAIN;
	}
	len = recv(fd, chunk, sizeof chunk, 0);
	if (len <= 0)
		return len < 0 && errno == EAGAIN;
	if (!conns[fd].want) {
		conns[fd].want = chunk[0];
		if (chunk[0] == WANT_SOURCE)
			return watch(poller, EPOLL_CTL_MOD, fd, EPOLLOUT) == 0;
	}
	if (conns[fd].want == WANT_ECHO)
		return send(fd, chunk, (size_t)len, MSG_NOSIGNAL) == len;
	if (conns[fd].want == WANT_HTTP)
		answer_requests(fd, (size_t)len);
	return conns[fd].want == WANT_SINK || conns[fd].want == WANT_HTTP;
}

static void take_connections(int poller, int listener)
{
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
		if (fd >= FDS_MAX || watch(poller, EPOLL_CTL_ADD, fd, EPOLLIN) < 0) {
			close(fd);
			continue;
		}
		memset(&conns[fd], 0, sizeof conns[fd]);
	}
}

static int open_listener(const char *port)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6,
		.sin6_addr = IN6ADDR_ANY_INIT,
		.sin6_port = htons((uint16_t)atoi(port)) };
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &(int){ 0 }, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(fd, (struct sockaddr *)&any, sizeof any) == 0 && listen(fd, 1024) == 0)
		return fd;
	close(fd);
	return -1;
}

static void serve(const char *port, struct outcome *out)
{
	int listener = open_listener(port), poller = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event events[EVENTS];

	if (listener < 0 || poller < 0 || watch(poller, EPOLL_CTL_ADD, listener, EPOLLIN) < 0) {
		outcome_errno(out, 0, errno);
		return;
	}
	puts("ready");
	for (;;) {
		int count = epoll_wait(poller, events, EVENTS, -1);

		for (int i = 0; i < count; i++) {
			int fd = events[i].data.fd;

			if (fd == listener)
				take_connections(poller, listener);
			else if (!serve_connection(poller, fd))
				close(fd);
		}
	}
}

/* ---- round trips ---------------------------------------------------------------------------- */

static double values[COUNT_MAX];

static int by_size(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

static double middle(size_t count)
{
	qsort(values, count, sizeof *values, by_size);
	return values[count / 2];
}

static double passed_us(const struct timespec *since)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - since->tv_sec) * 1e6 +
	       (double)(now.tv_nsec - since->tv_nsec) / 1e3;
}

/* Blocking with a timeout, and without delays (Nagle). */
static void prepare(int fd)
{
	struct timeval limit = { .tv_sec = WAIT_MS / 1000 };

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static bool round_trip(int fd, uint8_t *data, size_t len)
{
	return send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len &&
	       recv(fd, data, len, MSG_WAITALL) == (ssize_t)len;
}

static bool connect_once(const struct endpoint *to, struct outcome *out)
{
	uint8_t byte = WANT_ECHO;
	int fd = socket(to->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool good;

	if (fd < 0) {
		outcome_errno(out, 0, errno);
		return false;
	}
	prepare(fd);
	good = connect(fd, (const struct sockaddr *)&to->addr, to->len) == 0 &&
	       round_trip(fd, &byte, 1);
	if (!good)
		outcome_errno(out, 0, errno);
	close(fd);
	return good;
}

static void measure_connect(const char *host, const char *port, size_t count, struct outcome *out)
{
	bool fresh = host[0] == '*' && host[1] == '.';
	struct endpoint to;
	char name[200];

	if (!fresh && !endpoint_find(host, port, &to, out))
		return;
	for (size_t i = 0; i < count; i++) {
		struct timespec since;

		snprintf(name, sizeof name, "n%llx-%zu.%.150s",
			(unsigned long long)now_us() ^ (unsigned)getpid(), i, host + 2 * fresh);
		clock_gettime(CLOCK_MONOTONIC, &since);
		if ((fresh && !endpoint_find(name, port, &to, out)) || !connect_once(&to, out))
			return;
		values[i] = passed_us(&since) / 1000;
	}
	outcome_through(out, 0, "ms");
	out->detail[0] = '\0';
	outcome_detail(out, "%.5f", middle(count));
}

/* A blocking connection to the server, which knows what is wanted. */
static int begin(const struct endpoint *to, uint8_t want, struct outcome *out)
{
	int fd = socket(to->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0) {
		prepare(fd);
		if (connect(fd, (const struct sockaddr *)&to->addr, to->len) == 0 &&
			send(fd, &want, 1, MSG_NOSIGNAL) == 1)
			return fd;
	}
	outcome_errno(out, 0, errno);
	if (fd >= 0)
		close(fd);
	return -1;
}

static void measure_ping(const struct endpoint *to, size_t count, struct outcome *out)
{
	uint8_t data[PING] = { WANT_ECHO };
	int fd = begin(to, WANT_ECHO, out);

	if (fd < 0 || recv(fd, data, 1, 0) != 1)
		return;
	for (size_t i = 0; i < count; i++) {
		struct timespec since;

		clock_gettime(CLOCK_MONOTONIC, &since);
		if (!round_trip(fd, data, sizeof data)) {
			outcome_errno(out, 0, errno);
			return;
		}
		values[i] = passed_us(&since);
	}
	close(fd);
	outcome_through(out, 0, "us");
	out->detail[0] = '\0';
	outcome_detail(out, "%.4f", middle(count));
}

/* ---- throughput ----------------------------------------------------------------------------- */

static double moved[FDS_MAX]; /* bytes, by fd */

/* Runs for ms; returns the bytes of all flows. */
static double pump(int poller, bool sending, double ms)
{
	struct epoll_event events[EVENTS];
	struct timespec since;
	double sum = 0;

	clock_gettime(CLOCK_MONOTONIC, &since);
	while (passed_us(&since) < ms * 1000) {
		int count = epoll_wait(poller, events, EVENTS, 100);

		for (int i = 0; i < count; i++) {
			int fd = events[i].data.fd;
			ssize_t len = sending ? send(fd, chunk, sizeof chunk, MSG_NOSIGNAL)
					      : recv(fd, chunk, sizeof chunk, 0);

			if (len > 0) {
				moved[fd] += (double)len;
				sum += (double)len;
			} else if (len == 0 || errno != EAGAIN) {
				epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL);
			}
		}
	}
	return sum / (passed_us(&since) / 1e6);
}

/* Jain's index: 1 when all get the same, 1/n when one gets everything. */
static double fairness(const int *fds, size_t count)
{
	double sum = 0, squares = 0;

	for (size_t i = 0; i < count; i++) {
		sum += moved[fds[i]];
		squares += moved[fds[i]] * moved[fds[i]];
	}
	return squares > 0 ? sum * sum / ((double)count * squares) : 0;
}

static void measure_stream(
	const struct endpoint *to, bool sending, double ms, size_t flows, struct outcome *out)
{
	int poller = epoll_create1(EPOLL_CLOEXEC), fds[FLOWS_MAX];
	double rate;

	for (size_t i = 0; i < flows; i++) {
		fds[i] = begin(to, sending ? WANT_SINK : WANT_SOURCE, out);
		if (fds[i] < 0)
			return;
	}
	/* Non-blocking only from now on: nobody starts early. */
	for (size_t i = 0; i < flows; i++) {
		int fd = dup3(fds[i], fds[i] + FLOWS_MAX, O_CLOEXEC);

		close(fds[i]);
		fds[i] = fd;
		if (fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ||
			watch(poller, EPOLL_CTL_ADD, fd, sending ? EPOLLOUT : EPOLLIN) < 0) {
			outcome_errno(out, 0, errno);
			return;
		}
	}
	pump(poller, sending, ms / 3);
	memset(moved, 0, sizeof moved);
	rate = pump(poller, sending, ms);
	outcome_through(out, 0, "Gbit/s");
	out->detail[0] = '\0';
	outcome_detail(out, "%.4f %.5f", rate * 8 / 1e9, fairness(fds, flows));
}

static size_t bounded(const char *text, size_t most)
{
	long number = atol(text);

	return number < 1 ? 1 : number > (long)most ? most : (size_t)number;
}

void attack_load(int argc, char **argv, struct outcome *out)
{
	struct rlimit files = { FDS_MAX, FDS_MAX };
	struct endpoint to;

	setrlimit(RLIMIT_NOFILE, &files);
	if (!strcmp(argv[0], "serve")) {
		serve(argv[1], out);
		return;
	}
	outcome_refused(out, 0, "not measured");
	if (argc >= 4 && !strcmp(argv[0], "connect"))
		measure_connect(argv[1], argv[2], bounded(argv[3], COUNT_MAX), out);
	else if (argc >= 4 && !endpoint_find(argv[1], argv[2], &to, out))
		return;
	else if (argc >= 4 && !strcmp(argv[0], "ping"))
		measure_ping(&to, bounded(argv[3], COUNT_MAX), out);
	else if (argc >= 5)
		measure_stream(&to, !strcmp(argv[0], "send"), (double)bounded(argv[3], 60000),
			bounded(argv[4], FLOWS_MAX), out);
}
