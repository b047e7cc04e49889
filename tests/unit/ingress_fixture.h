/* ingress_fixture.h - a way in, in a child process; the test is the client on one side and the box
 * on the other
 *
 * Boxes: "web" runs; its ports 8080 (the default) and 8081 are public and lead to the test's
 * listener, 9090 leads there too and is private; on 1 nothing listens; what is behind 2 accepts
 * nobody. "off" is stopped, "ice" suspended, both public; "nap" wakes when it is connected to,
 * "bed" does not wake. Tokens: box_good, and box_weak without the scope; the file "revoked" in the
 * home makes the good one go, the file "closed" all ports private. Requests that are not for a box
 * are answered "api". */
#pragma once
#include "auth/strikes.h"
#include "base/clock.h"
#include "http/http_internal.h"
#include "ingress/ingress_internal.h"
#include "loop/loop.h"
#include "base/log.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <cmocka.h>

static struct {
	char home[64];
	pid_t pid;
	uint16_t port;	   /* of the server */
	uint16_t tls_port; /* 0: none */
	int listener;	   /* the test's, as the box */
	uint16_t box_port;
	int deaf; /* listens, and its queue is full */
	uint16_t deaf_port;
} fixture;

/* ---- the child ------------------------------------------------------------------------------ */

static bool fake_find(const char *name, struct ingress_box *ret, void *arg)
{
	static const struct ingress_box boxes[] = {
		{ "w1", "web", INGRESS_BOX_RUNS, 8080 },
		{ "o1", "off", INGRESS_BOX_STOPPED, 8080 },
		{ "i1", "ice", INGRESS_BOX_SUSPENDED, 8080 },
		{ "x1", "web2", INGRESS_BOX_RUNS, 9090 },
		{ "n1", "nap", INGRESS_BOX_RUNS, 8080 },
		{ "b1", "bed", INGRESS_BOX_RUNS, 8080 },
	};

	(void)arg;
	for (size_t i = 0; i < ARRAY_LEN(boxes); i++)
		if (!strcmp(boxes[i].name, name)) {
			*ret = boxes[i];
			return true;
		}
	return false;
}

static bool has_file(const char *name)
{
	char path[96];

	snprintf(path, sizeof path, "%s/%s", fixture.home, name);
	return access(path, F_OK) == 0;
}

static bool fake_is_public(const char *box, uint16_t port, void *arg)
{
	(void)box;
	(void)arg;
	return port != 9090 && !has_file("closed");
}

/* Boxes that sleep are told to be awake, or never to be, some time after somebody came. */
static struct {
	struct loop_timer *timer;
	struct ingress *ingress;
	bool awake;
} sleeper;

static void fake_wake(void *arg)
{
	struct err err = ERR_INIT;

	(void)arg;
	sleeper.awake = true;
	ingress_box_woken(sleeper.ingress, "n1", NULL);
	err_set(&err, ERR_PROTOCOL, "its state is damaged");
	ingress_box_woken(sleeper.ingress, "b1", &err);
}

static int fake_connect(
	const char *box, uint16_t port, bool v6, int *ret_fd, struct err *err, void *arg)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET,
		.sin_port = htons(port == 1   ? 1
				  : port == 2 ? fixture.deaf_port
					      : fixture.box_port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd;

	(void)arg;
	*ret_fd = -1;
	if (!strcmp(box, "b1") || (!strcmp(box, "n1") && !sleeper.awake)) {
		loop_timer_start(sleeper.timer, 100);
		return 0;
	}
	if (v6)
		return err_sys(err, ECONNREFUSED, "connect");
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&v4, sizeof v4) < 0 && errno != EINPROGRESS) {
		err_sys(err, errno, "connect");
		close(fd);
		return -1;
	}
	*ret_fd = fd;
	return 0;
}

static bool is_revoked(void)
{
	return has_file("revoked");
}

static bool fake_strike(const char *peer, void *arg)
{
	static struct strikes strikes;

	(void)arg;
	return strikes_add(&strikes, peer, clock_mono_us());
}

static int fake_check_token(const char *box, const char *peer, const char *secret, char *ret_id,
	struct err *err, void *arg)
{
	(void)box;
	if (!strcmp(secret, "box_weak"))
		return err_set(err, ERR_FORBIDDEN, "the token's scopes do not allow this");
	if (strcmp(secret, "box_good") || is_revoked())
		return fake_strike(peer, arg)
			       ? err_set(err, ERR_LIMIT, "too many requests with wrong tokens")
			       : err_set(err, ERR_UNAUTHORIZED, "unknown token");
	strcpy(ret_id, "t1");
	return 0;
}

static bool fake_has_token(const char *box, const char *id, void *arg)
{
	(void)box;
	(void)arg;
	return !strcmp(id, "t1") && !is_revoked();
}

/* One code, "c0de": good once, for 9090-web.localhost. */
static bool fake_take_code(
	const char *box, const char *host, const char *code, char *ret_id, void *arg)
{
	static bool used;

	(void)arg;
	if (used || strcmp(box, "w1") || strcmp(code, "c0de"))
		return false;
	used = true;
	strcpy(ret_id, "t1");
	return !strcmp(host, "9090-web.localhost");
}

static const struct ingress_ops fake_ops = {
	.find = fake_find,
	.is_public = fake_is_public,
	.connect = fake_connect,
	.check_token = fake_check_token,
	.has_token = fake_has_token,
	.strike = fake_strike,
	.take_code = fake_take_code,
};

static void answer_as_api(struct http_request *request, void *arg)
{
	(void)arg;
	http_reply(request, 200, "text/plain", "api", 3);
}

static void on_term(void *arg)
{
	loop_stop(arg);
}

static void fixture_serve(int told, bool tls)
{
	static const struct ingress_limits limits = { .connect = 2000, .idle = 500, .tick = 50 };
	struct loop *loop = loop_new();
	struct http_server *server = http_server_new(loop, answer_as_api, loop);
	struct loop_signal *term = loop_signal_new(loop, SIGTERM, on_term, loop);
	struct loop_signal *hup;
	struct ingress *ingress = NULL;
	char certificate[96], key[96];
	struct ingress_spec spec = { .loop = loop,
		.home = fixture.home,
		.domain = "boxes.test",
		.tls_address = tls ? "127.0.0.1" : NULL,
		.certificate = certificate,
		.key = key,
		.ops = &fake_ops };
	struct err err = ERR_INIT;
	uint16_t ports[2] = { 0 };

	snprintf(certificate, sizeof certificate, "%s/cert.pem", fixture.home);
	snprintf(key, sizeof key, "%s/key.pem", fixture.home);
	log_open(STDERR_FILENO, LOG_LEVEL_ERROR);
	if (http_server_listen_tcp(server, "127.0.0.1", 0, &ports[0], &err) < 0 ||
		ingress_new(&spec, &ingress, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		exit(1);
	}
	hup = loop_signal_new(loop, SIGHUP, (loop_fn)ingress_reload, ingress);
	sleeper.ingress = ingress;
	sleeper.timer = loop_timer_new(loop, fake_wake, NULL);
	ingress_set_limits(ingress, &limits);
	ingress_attach(ingress, server);
	ports[1] = ingress_get_tls_port(ingress);
	if (write(told, ports, sizeof ports) != sizeof ports)
		exit(1);
	close(told);
	loop_run(loop);
	http_server_free(server);
	ingress_free(ingress);
	loop_timer_free(sleeper.timer);
	loop_signal_free(hup);
	loop_signal_free(term);
	loop_free(loop);
	exit(0);
}

/* ---- the test ------------------------------------------------------------------------------- */

static int listen_loopback(uint16_t *ret_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(
		getsockname(fd, (struct sockaddr *)&address, &(socklen_t){ sizeof address }), 0);
	*ret_port = ntohs(address.sin_port);
	return fd;
}

/* Its queue is full: who connects now waits. */
static int listen_deaf(uint16_t *ret_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = listen_loopback(ret_port);

	assert_int_equal(listen(fd, 0), 0);
	address.sin_port = htons(*ret_port);
	for (int i = 0; i < 4; i++) { /* left open, in the queue or on the way into it */
		int filler = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		connect(filler, (struct sockaddr *)&address, sizeof address);
	}
	return fd;
}

static void fixture_start(bool tls)
{
	uint16_t ports[2];
	int told[2];

	if (!*fixture.home) {
		strcpy(fixture.home, "/tmp/test-ingress-XXXXXX");
		assert_non_null(mkdtemp(fixture.home));
	}
	fixture.listener = listen_loopback(&fixture.box_port);
	fixture.deaf = listen_deaf(&fixture.deaf_port);
	assert_int_equal(pipe2(told, O_CLOEXEC), 0);
	fixture.pid = fork();
	assert_true(fixture.pid >= 0);
	if (!fixture.pid) {
		close(fixture.listener);
		close(fixture.deaf);
		close(told[0]);
		fixture_serve(told[1], tls);
	}
	close(told[1]);
	assert_int_equal(read(told[0], ports, sizeof ports), sizeof ports);
	close(told[0]);
	fixture.port = ports[0];
	fixture.tls_port = ports[1];
}

static void fixture_stop(void)
{
	static const char *const files[] = { "ingress.key", "revoked", "closed", "cert.pem",
		"key.pem" };
	char path[96];
	int status = -1;

	kill(fixture.pid, SIGTERM);
	waitpid(fixture.pid, &status, 0);
	close(fixture.listener);
	close(fixture.deaf);
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof path, "%s/%s", fixture.home, files[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(fixture.home), 0);
	*fixture.home = '\0';
	assert_int_equal(status, 0);
}

static int set_up(void **state)
{
	(void)state;
	fixture_start(false);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_stop();
	return 0;
}

static int with_patience(int fd)
{
	struct timeval patience = { .tv_sec = 10 };

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	return fd;
}

static int client_connect_to(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	return with_patience(fd);
}

static inline int client_connect(void)
{
	return client_connect_to(fixture.port);
}

static inline int box_accept(void)
{
	struct pollfd ready = { .fd = fixture.listener, .events = POLLIN };

	assert_int_equal(poll(&ready, 1, 10000), 1);
	return with_patience(accept4(fixture.listener, NULL, NULL, SOCK_CLOEXEC));
}

/* Nobody connects within a moment. */
static inline void box_expect_nobody(void)
{
	struct pollfd ready = { .fd = fixture.listener, .events = POLLIN };

	assert_int_equal(poll(&ready, 1, 100), 0);
}

static void say_bytes(int fd, const void *data, size_t len)
{
	for (size_t sent = 0; sent < len;) {
		ssize_t put = send(fd, (const char *)data + sent, len - sent, MSG_NOSIGNAL);

		assert_true(put > 0);
		sent += (size_t)put;
	}
}

static void say(int fd, const char *text)
{
	say_bytes(fd, text, strlen(text));
}

/* Reads until text is there, or with NULL until the end; fails when the end comes before. */
static void expect(int fd, struct buf *in, const char *text)
{
	for (;;) {
		ssize_t got;

		if (text && in->len && strstr(buf_str(in), text))
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

static inline void expect_end(int fd)
{
	char byte;
	ssize_t got = recv(fd, &byte, 1, 0);

	assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
}

/* What came up to and with text; the rest is dropped. Yours to free. */
static char *heard(int fd, const char *text)
{
	struct buf in = BUF_INIT;

	expect(fd, &in, text);
	buf_str(&in);
	return (char *)in.data;
}

static inline void hear(int fd, const char *text)
{
	free(heard(fd, text));
}

/* Says, and hears to the end. Yours to free. */
static inline char *ask(const char *text)
{
	int fd = client_connect();
	char *answer;

	say(fd, text);
	shutdown(fd, SHUT_WR);
	answer = heard(fd, NULL);
	close(fd);
	return answer;
}

static inline void expect_answer(const char *text, const char *start, const char *part)
{
	_cleanup_free_ char *answer = ask(text);

	if (strncmp(answer, start, strlen(start)) || (part && !strstr(answer, part)))
		print_error("'%s' was answered '%s'\n", text, answer);
	assert_memory_equal(answer, start, strlen(start));
	if (part)
		assert_non_null(strstr(answer, part));
}

#define WEB	  "Host: web.localhost\r\n"
#define PRIVATE	  "Host: 9090-web.localhost\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" WEB "\r\n"
#define OK(len)	  "HTTP/1.1 200 OK\r\nContent-Length: " #len "\r\n\r\n"
