/* connect.c - see connect.h */
#include "guest/connect.h"
#include "guest/resolve.h"
#include "base/file.h"
#include "base/text.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { BUFFER = 64 * 1024 };

/* One direction: what was read and not written yet. */
struct way {
	int from, to;
	char bytes[BUFFER];
	size_t at, len;
	bool ended; /* nothing more comes from from */
	bool shut;  /* and to was told */
};

static int dial_path(const char *path, struct err *err)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof to.sun_path)
		return err_set(err, ERR_INVALID, "the path of the socket is too long");
	snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
		return err_sys(err, errno, "connect to '%.100s'", path);
	return steal_fd(&fd);
}

static int dial(const char *host, const char *port_text, struct err *err)
{
	struct resolved found;
	uint64_t port;

	if (parse_u64("port", port_text, 1, UINT16_MAX, &port, err) < 0 ||
		resolve(host, (uint16_t)port, &found, err) < 0)
		return -1;
	for (size_t i = 0; i < found.count; i++) {
		_cleanup_close_ int fd =
			socket(found.address[i].ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		socklen_t len = found.address[i].ss_family == AF_INET ? sizeof(struct sockaddr_in)
								      : sizeof(struct sockaddr_in6);

		if (fd >= 0 && connect(fd, (struct sockaddr *)&found.address[i], len) == 0) {
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
			err_clear(err);
			return steal_fd(&fd);
		}
		err_sys(err, errno, "connect to %.200s port %s", host, port_text);
	}
	return -1;
}

/* ---- carrying ------------------------------------------------------------------------------- */

static void way_read(struct way *way)
{
	ssize_t got = read(way->from, way->bytes, sizeof way->bytes);

	if (got <= 0 && errno != EINTR)
		way->ended = true;
	way->at = 0;
	way->len = got > 0 ? (size_t)got : 0;
}

static void way_write(struct way *way)
{
	ssize_t put = write(way->to, way->bytes + way->at, way->len);

	if (put < 0 && errno != EINTR) {
		way->ended = way->shut = true;
		way->len = 0;
	}
	if (put > 0) {
		way->at += (size_t)put;
		way->len -= (size_t)put;
	}
}

static void way_settle(struct way *way)
{
	if (!way->ended || way->len || way->shut)
		return;
	way->shut = true;
	if (shutdown(way->to, SHUT_WR) < 0) /* stdout is a pipe or a socket */
		close(way->to);
}

/* Until both directions have ended. */
static void carry(int fd)
{
	static struct way out, in;

	out.from = STDIN_FILENO;
	out.to = in.from = fd;
	in.to = STDOUT_FILENO;
	while (!in.shut || !out.shut) {
		struct pollfd ready[] = {
			{ out.ended || out.len ? -1 : out.from, POLLIN, 0 },
			{ out.len ? out.to : -1, POLLOUT, 0 },
			{ in.ended || in.len ? -1 : in.from, POLLIN, 0 },
			{ in.len ? in.to : -1, POLLOUT, 0 },
		};

		if (poll(ready, 4, -1) < 0)
			continue;
		if (ready[0].revents)
			way_read(&out);
		if (ready[1].revents)
			way_write(&out);
		if (ready[2].revents)
			way_read(&in);
		if (ready[3].revents)
			way_write(&in);
		way_settle(&out);
		way_settle(&in);
		/* Whoever asked has gone, or the server has: the rest has no reader. */
		if (in.shut && in.ended && !in.len && out.ended)
			return;
	}
}

int connect_main(int argc, char **argv)
{
	struct err err = ERR_INIT;
	int fd = -1;

	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && *argv[1] == '/')
		fd = dial_path(argv[1], &err);
	else if (argc == 3)
		fd = dial(argv[1], argv[2], &err);
	else
		err_set(&err, ERR_INVALID, "usage: " CONNECT_PROGRAM " HOST PORT | PATH");
	if (fd < 0) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	if (write(STDOUT_FILENO, "+", 1) != 1)
		return 1;
	carry(fd);
	return 0;
}
