/* http_fixture.h - a server in a child process and a client that speaks raw bytes to it
 *
 * The child leaves by itself when the fixture ends, so a sanitizer in it has its say; the parent
 * checks its exit code. */
#pragma once
#include "base/buf.h"
#include "base/log.h"
#include "http/http_internal.h"
#include "http/websocket.h"
#include "loop/loop.h"
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>

struct fixture {
	char dir[64];
	char path[80];
	pid_t pid;
};

static struct fixture fixture;

/* Short, but long enough for a busy machine. */
static const struct http_limits short_limits = {
	.head = 300,
	.body = 300,
	.idle = 600,
	.write = 500,
	.linger = 300,
	.ping = 300,
	.silence = 900,
	.tick = 50,
};

static void fixture_on_term(void *arg)
{
	loop_stop(arg);
}

/* Two fronts: targets that begin with "/front/", and then those with "/front". */
static bool front_wants(const struct http_request *request, void *arg)
{
	return !strncmp(http_request_head(request)->target, arg, strlen(arg));
}

static void front_answers(struct http_request *request, void *arg)
{
	http_reply(request, 200, "text/plain", arg, strlen(arg));
}

static void fixture_serve(http_handler handler, const struct http_limits *limits)
{
	struct loop *loop = loop_new();
	static const struct http_front front = { .wants = front_wants, .handle = front_answers };
	struct http_server *server = http_server_new(loop, handler, loop);
	struct loop_signal *term = loop_signal_new(loop, SIGTERM, fixture_on_term, loop);
	struct err err = ERR_INIT;

	log_open(STDERR_FILENO, LOG_LEVEL_ERROR);
	if (limits)
		http_server_set_limits(server, limits);
	http_server_add_front(server, &front, "/front/");
	http_server_add_front(server, &front, "/front");
	if (http_server_listen_unix(server, fixture.path, (gid_t)-1, 0600, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		exit(1);
	}
	loop_run(loop);
	http_server_free(server);
	loop_signal_free(term);
	loop_free(loop);
	exit(0);
}

static int client_connect(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = 10 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, fixture.path);
	for (int i = 0; connect(fd, (struct sockaddr *)&address, sizeof address) < 0; i++) {
		assert_true(i < 1000);
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	return fd;
}

static void fixture_start(http_handler handler, const struct http_limits *limits)
{
	strcpy(fixture.dir, "/tmp/test-http-XXXXXX");
	assert_non_null(mkdtemp(fixture.dir));
	snprintf(fixture.path, sizeof fixture.path, "%s/s", fixture.dir);
	fixture.pid = fork();
	assert_true(fixture.pid >= 0);
	if (!fixture.pid)
		fixture_serve(handler, limits);
	close(client_connect());
}

static void fixture_stop(void)
{
	int status = -1;

	kill(fixture.pid, SIGTERM);
	waitpid(fixture.pid, &status, 0);
	assert_int_equal(access(fixture.path, F_OK), -1); /* the socket file is taken away */
	rmdir(fixture.dir);
	assert_int_equal(status, 0);
}

static void client_send(int fd, const void *data, size_t len)
{
	for (size_t sent = 0; sent < len;) {
		ssize_t put = send(fd, (const char *)data + sent, len - sent, MSG_NOSIGNAL);

		assert_true(put > 0);
		sent += (size_t)put;
	}
}

static void client_say(int fd, const char *text)
{
	client_send(fd, text, strlen(text));
}

/* Reads until text is there (or, with NULL, until the end). Fails when the end comes before. */
static void client_expect(int fd, struct buf *in, const char *text)
{
	for (;;) {
		ssize_t got;

		if (text && strstr(buf_str(in), text))
			return;
		got = recv(fd, buf_room(in, 65537), 65536, 0);
		if (!text && (got == 0 || (got < 0 && errno == ECONNRESET)))
			return;
		if (got <= 0)
			print_error("waited for '%s', have '%s'\n", text ? text : "the end",
				buf_str(in));
		assert_true(got > 0);
		buf_grew(in, (size_t)got);
	}
}

/* One connection: says text, reads to the end. The result is yours to free. */
static inline char *client_ask(const char *text)
{
	struct buf in = BUF_INIT;
	int fd = client_connect();

	client_say(fd, text);
	shutdown(fd, SHUT_WR);
	client_expect(fd, &in, NULL);
	close(fd);
	buf_str(&in);
	return (char *)in.data;
}

static inline void expect_answer(const char *text, const char *start, const char *part)
{
	_cleanup_free_ char *answer = client_ask(text);

	if (strncmp(answer, start, strlen(start)) || (part && !strstr(answer, part)))
		print_error("'%s' was answered '%s'\n", text, answer);
	assert_memory_equal(answer, start, strlen(start));
	if (part)
		assert_non_null(strstr(answer, part));
}
