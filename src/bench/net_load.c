/* net_load.c - load made by the measuring process itself: HTTP requests to a box's URL, DNS
 * queries out of many boxes
 *
 * Requests come from outside, like a browser's, or go straight to the box's port. Queries are
 * sent by sockets made in the network namespaces of the boxes: they take the same path as a
 * program's, and one process can ask for all boxes, which leaves the CPUs to the gate. All load
 * is closed loop: a connection that got its answer asks again. */
#include "base/alloc.h"
#include "base/file.h"
#include "bench/net_internal.h"
#include "net/doors.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum {
	CONNS_MAX = 128,
	ANSWER_MAX = 2048,
	TIMES_MAX = 100000,
	EVENTS = 64,
	CONNECT_MS = 2000,
	ASKED_AT_ONCE = 4, /* queries in flight per box */
	NAMES = 64,
};

#define REQUEST "GET / HTTP/1.1\r\nHost: %d-" NET_BOX ".localhost:%d\r\n\r\n"
#define GOOD	"HTTP/1.1 200 "
#define END	"\r\n\r\nok\n"

struct conn {
	int fd;
	int64_t since_ns;
	size_t len;
	char answer[ANSWER_MAX];
};

struct load {
	struct conn conns[CONNS_MAX];
	size_t count;
	int poller;
	char request[128];
	size_t done;	 /* answers */
	uint32_t *times; /* ns of each, TIMES_MAX at most */
	const char *wrong;
};

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* CPU seconds that a process has used so far. */
static double used_by(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/schedstat", (int)pid), *text = NULL;

	if (file_read(AT_FDCWD, path, 4096, &text, NULL, NULL) < 0)
		return 0;
	return (double)strtoull(text, NULL, 10) / 1e9;
}

static int load_open(struct load *load, struct err *err)
{
	load->times = xnewn(uint32_t, TIMES_MAX);
	load->poller = epoll_create1(EPOLL_CLOEXEC);
	return load->poller < 0 ? err_sys(err, errno, "epoll") : 0;
}

static void load_done(struct load *load)
{
	for (size_t i = 0; i < load->count; i++)
		close(load->conns[i].fd);
	if (load->poller > 0)
		close(load->poller);
	free(load->times);
}

static int add_conn(struct load *load, int fd, struct err *err)
{
	struct conn *conn = &load->conns[load->count];
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = conn };

	if (epoll_ctl(load->poller, EPOLL_CTL_ADD, fd, &event) < 0) {
		close(fd);
		return err_sys(err, errno, "watch a connection");
	}
	conn->fd = fd;
	load->count++;
	return 0;
}

static void note_answer(struct load *load, struct conn *conn)
{
	if (load->done < TIMES_MAX)
		load->times[load->done] = (uint32_t)MIN(now_ns() - conn->since_ns, UINT32_MAX);
	load->done++;
}

/* Calls on_answer for each readable connection; *ret is answers per second. */
static int run(struct load *load, void (*on_answer)(struct load *load, struct conn *conn),
	unsigned ms, double *ret, struct err *err)
{
	int64_t start = now_ns(), now = start;
	struct epoll_event events[EVENTS];

	while (!load->wrong && (now = now_ns()) - start < ms * 1000000LL) {
		int count = epoll_wait(load->poller, events, EVENTS, 100);

		for (int i = 0; i < count; i++)
			on_answer(load, events[i].data.ptr);
	}
	if (load->wrong)
		return err_set(err, ERR_STATE, "%s", load->wrong);
	if (!load->done)
		return err_set(err, ERR_TIMEOUT, "nobody answered within %u ms", ms);
	*ret = (double)load->done / ((double)(now - start) / 1e9);
	return 0;
}

static int by_size(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

static double middle_us(struct load *load)
{
	size_t count = MIN(load->done, (size_t)TIMES_MAX), middle = count / 2;

	if (!count)
		return 0;
	qsort(load->times, count, sizeof *load->times, by_size);
	return load->times[middle] / 1e3;
}

/* ---- requests ------------------------------------------------------------------------------- */

static void send_request(struct load *load, struct conn *conn)
{
	size_t len = strlen(load->request);

	conn->len = 0;
	conn->since_ns = now_ns();
	if (send(conn->fd, load->request, len, MSG_NOSIGNAL) != (ssize_t)len)
		load->wrong = "a request could not be sent";
}

static void on_response(struct load *load, struct conn *conn)
{
	ssize_t got = recv(conn->fd, conn->answer + conn->len, sizeof conn->answer - conn->len, 0);

	if (got <= 0) {
		load->wrong = "a kept connection was closed";
		return;
	}
	conn->len += (size_t)got;
	if (conn->len < strlen(GOOD) || memcmp(conn->answer, GOOD, strlen(GOOD))) {
		load->wrong = "a request was not answered with 200";
		return;
	}
	if (conn->len >= strlen(END) &&
		!memcmp(conn->answer + conn->len - strlen(END), END, strlen(END))) {
		note_answer(load, conn);
		send_request(load, conn);
	} else if (conn->len == sizeof conn->answer) {
		load->wrong = "an answer is longer than it should be";
	}
}

static int connect_url(int *ret, struct err *err)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons(RIG_API_PORT),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
		err_sys(err, errno, "connect to the daemon");
		if (fd >= 0)
			close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	*ret = fd;
	return 0;
}

static int connect_port(int netns, int *ret, struct err *err)
{
	struct pollfd one = { .events = POLLOUT };

	if (doors_connect(netns, DOORS_LOOPBACK, NET_WEB_PORT, &one.fd, err) < 0)
		return -1;
	if (poll(&one, 1, CONNECT_MS) != 1 || !(one.revents & POLLOUT)) {
		close(one.fd);
		return err_set(err, ERR_STATE, "nobody listens in the box");
	}
	*ret = one.fd;
	return 0;
}

static int open_conns(struct load *load, int netns, bool direct, size_t count, struct err *err)
{
	for (size_t i = 0; i < MIN(count, (size_t)CONNS_MAX); i++) {
		int fd = -1;

		if ((direct ? connect_port(netns, &fd, err) : connect_url(&fd, err)) < 0 ||
			add_conn(load, fd, err) < 0)
			return -1;
		send_request(load, &load->conns[i]);
	}
	return 0;
}

int net_load_requests(struct net_rig *rig, bool direct, size_t conns, unsigned ms,
	struct net_figures *ret, struct err *err)
{
	struct load *load = xnew(struct load);
	_cleanup_close_ int netns = -1;
	struct net_figures seen = { 0 };
	double used = 0;
	int status = -1;

	snprintf(load->request, sizeof load->request, REQUEST, NET_WEB_PORT, RIG_API_PORT);
	/* The first box is the one that serves. */
	if (net_rig_namespaces(rig, &netns, 1) != 1)
		err_set(err, ERR_STATE, "no box runs");
	else if (load_open(load, err) == 0 && open_conns(load, netns, direct, conns, err) == 0) {
		used = used_by(rig->rig.daemon);
		status = run(load, on_response, ms, &seen.first, err);
		used = used_by(rig->rig.daemon) - used;
	}
	if (status == 0) {
		seen.second = used > 0 ? (double)load->done / used : 0;
		if (conns == 1)
			seen.first = middle_us(load);
		*ret = seen;
	}
	load_done(load);
	free(load);
	return status;
}

/* ---- DNS queries ---------------------------------------------------------------------------- */

/* Asks for an address of "NUMBER.server.bench.test". */
static void ask(struct load *load, struct conn *conn)
{
	static const uint8_t tail[] = "\6server\5bench\4test\0\0\1\0"; /* and \1 */
	uint8_t message[64] = { 0, 0, 1, 0, 0, 1 };
	unsigned number = (unsigned)(load->done + (size_t)conn->fd) % NAMES;
	size_t len = 12;

	memcpy(message, &conn->since_ns, 2);
	message[len++] = 3;
	len += (size_t)snprintf((char *)message + len, 8, "n%02u", number);
	memcpy(message + len, tail, sizeof tail);
	len += sizeof tail;
	message[len - 1] = 1;
	conn->since_ns = now_ns();
	if (send(conn->fd, message, len, MSG_DONTWAIT) < 0 && errno != EAGAIN)
		load->wrong = "a question could not be sent";
}

static void on_reply(struct load *load, struct conn *conn)
{
	uint8_t message[512];
	ssize_t got;

	while ((got = recv(conn->fd, message, sizeof message, MSG_DONTWAIT)) > 0) {
		if (got < 12 || message[3] & 15 || !message[7]) {
			load->wrong = "a question was not answered with an address";
			return;
		}
		note_answer(load, conn);
		ask(load, conn);
	}
}

/* Opens a socket in the box's network namespace, and returns to ours. */
static int open_asker(int netns, int home, int *ret, struct err *err)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(DOORS_DNS_PORT) };
	int fd;

	inet_pton(AF_INET, DOORS_RESOLVER_V4, &to.sin_addr);
	if (setns(netns, CLONE_NEWNET) < 0)
		return err_sys(err, errno, "go into a box's network");
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (setns(home, CLONE_NEWNET) < 0)
		abort(); /* everything that follows would happen in the wrong namespace */
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
		err_sys(err, errno, "open a socket in a box's network");
		if (fd >= 0)
			close(fd);
		return -1;
	}
	*ret = fd;
	return 0;
}

static int open_askers(struct net_rig *rig, struct load *load, size_t most, struct err *err)
{
	_cleanup_close_ int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int netns[CONNS_MAX], status = 0;
	size_t count = net_rig_namespaces(rig, netns, MIN(most, (size_t)CONNS_MAX));

	for (size_t i = 0; i < count; i++) {
		int fd = -1;

		if (status == 0)
			status = open_asker(netns[i], home, &fd, err);
		if (status == 0)
			status = add_conn(load, fd, err);
		close(netns[i]);
	}
	for (size_t i = 0; i < load->count; i++)
		for (int k = 0; k < ASKED_AT_ONCE; k++)
			ask(load, &load->conns[i]);
	return status;
}

int net_load_questions(
	struct net_rig *rig, size_t most, unsigned ms, struct net_figures *ret, struct err *err)
{
	struct load *load = xnew(struct load);
	pid_t gate = rig_gate_pid(&rig->rig);
	struct net_figures seen = { 0 };
	double used = used_by(gate);
	int status = -1;

	if (load_open(load, err) == 0 && open_askers(rig, load, most, err) == 0)
		status = run(load, on_reply, ms, &seen.first, err);
	used = used_by(gate) - used;
	if (status == 0) {
		seen.second = used > 0 ? (double)load->done / used : 0;
		*ret = seen;
	}
	load_done(load);
	free(load);
	return status;
}
