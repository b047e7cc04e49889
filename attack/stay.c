/* stay.c - long-running programs: a victim that listens, a connection that is held, a neighbour */
#include "attack/attacker.h"
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* STAY_MS: longer than any run, for boxes on an emulated processor too. */
enum { STAY_MS = 1800 * 1000, HOLD_MS = 8000, BEAT_MS = 30 };

static int listen_tcp(uint16_t port)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &(int){ 0 }, sizeof(int));
	return fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any) < 0 || listen(fd, 64) < 0
		       ? -1
		       : fd;
}

static int listen_unix(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0box-attack-victim" };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof name.sun_family + 18) < 0 ||
			       listen(fd, 64) < 0
		       ? -1
		       : fd;
}

/* Answers every client and prints a line for each. */
void attack_listen(int argc, char **argv, struct outcome *out)
{
	struct pollfd fds[2] = { { listen_tcp((uint16_t)atoi(argv[0])), POLLIN, 0 },
		{ listen_unix(), POLLIN, 0 } };
	int64_t since = now_us();

	if (fds[0].fd < 0) {
		outcome_errno(out, since, errno);
		return;
	}
	puts("{\"listening\":true}");
	while (now_us() - since < STAY_MS * 1000LL && poll(fds, 2, 1000) >= 0)
		for (int i = 0; i < 2; i++) {
			int conn = fds[i].revents & POLLIN ? accept(fds[i].fd, NULL, NULL) : -1;

			if (conn < 0)
				continue;
			printf("{\"came\":\"%s\"}\n", i ? "unix" : "tcp");
			send_all(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 40);
			close(conn);
		}
}

static const char *beat_text(const char *how)
{
	if (!strcmp(how, "http"))
		return "GET /beat HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
	return "beat\n";
}

/* Keeps a connection busy; ends when it is closed. */
void attack_hold(int argc, char **argv, struct outcome *out)
{
	bool udp = !strcmp(argv[2], "udp");
	const char *text = beat_text(argv[2]);
	struct endpoint to;
	int64_t since = now_us(), last;
	uint8_t buf[1024];
	bool told = false;
	int fd;

	if (!endpoint_find(argv[0], argv[1], &to, out))
		return;
	fd = udp ? socket(to.addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)
		 : endpoint_connect(&to, out);
	if (fd < 0 || (udp && connect(fd, (struct sockaddr *)&to.addr, to.len) < 0))
		return;
	last = now_us();
	while (now_us() - since < HOLD_MS * 1000LL) {
		struct pollfd one = { .fd = fd, .events = POLLIN };
		ssize_t got;

		if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0 && errno != EAGAIN) {
			outcome_errno(out, since, errno);
			return;
		}
		poll(&one, 1, BEAT_MS);
		got = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
		if (got > 0) {
			last = now_us();
			if (!told)
				puts("{\"held\":true}");
			told = true;
			usleep(BEAT_MS * 1000);
		} else if (got == 0 || errno != EAGAIN) {
			outcome_refused(out, since, "%s", got ? strerrorname_np(errno) : "closed");
			return;
		} else if (now_us() - last > 1000000) {
			outcome_refused(out, since, "silence");
			out->silent = true;
			return;
		}
	}
	outcome_through(out, since, "still there");
}

static bool visit(const char *host, const char *port, struct outcome *out)
{
	struct endpoint to;
	char request[256];
	int fd;

	if (!endpoint_find(host, port, &to, out) || (fd = endpoint_connect(&to, out)) < 0)
		return false;
	snprintf(request, sizeof request,
		"GET / HTTP/1.1\r\nHost: %.100s\r\nConnection: close\r\n\r\n", host);
	exchange(fd, request, strlen(request), out);
	close(fd);
	return !out->refused;
}

/* Requests a page again and again and prints a line for each, with the time of day at its start
 * in milliseconds. */
void attack_neighbour(int argc, char **argv, struct outcome *out)
{
	int64_t since = now_us();

	patience_ms = 2000; /* a slow page is reported as a figure, not as a failure */
	while (now_us() - since < STAY_MS * 1000LL) {
		struct outcome one = { 0 };
		struct timespec wall;
		int64_t begin = now_us();
		bool good;

		clock_gettime(CLOCK_REALTIME, &wall);
		good = visit(argv[0], argv[1], &one);
		printf("{\"at\":%lld,\"ok\":%s,\"ms\":%.1f,\"how\":\"%s\"}\n",
			wall.tv_sec * 1000LL + wall.tv_nsec / 1000000, good ? "true" : "false",
			(double)(now_us() - begin) / 1000, one.how);
		usleep((useconds_t)atoi(argv[2]) * 1000);
	}
	outcome_through(out, 0, "over");
}
