/* test_ingress.c - requests through the way in: the test is the client, and the box */
#include "ingress_fixture.h"
#include <fcntl.h>

enum { ENDLESS = 192 * 1024 * 1024, MEMORY_MAX = 64 * 1024 * 1024 };

/* A request has come to the box and its head is there; the connection is the result. */
static int box_capture(const char *part)
{
	int box = box_accept();
	_cleanup_free_ char *head = heard(box, "\r\n\r\n");

	if (part)
		assert_non_null(strstr(head, part));
	return box;
}

static void test_ingress_leads_to_the_box(void **state)
{
	int client = client_connect(), box;
	_cleanup_free_ char *head = NULL, *answer = NULL;

	(void)state;
	say(client, "GET /a%2Fb?c=%zz HTTP/1.1\r\nHost: 8081-web.localhost:1\r\nX-Forwarded-For: "
		    "9.9.9.9\r\n\r\n");
	box = box_accept();
	head = heard(box, "\r\n\r\n");
	assert_string_equal(head, "GET /a%2Fb?c=%zz HTTP/1.1\r\nHost: 8081-web.localhost:1\r\n"
				  "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n"
				  "X-Forwarded-Host: 8081-web.localhost:1\r\n\r\n");
	say(box, "HTTP/1.1 418 I'm a teapot\r\nB: 1\r\nA: 2\r\nContent-Length: 5\r\n\r\nhello");
	answer = heard(client, "hello");
	assert_string_equal(answer,
		"HTTP/1.1 418 I'm a teapot\r\nB: 1\r\nA: 2\r\nContent-Length: 5\r\n\r\nhello");
	close(client);
	close(box);
}

static void test_ingress_waits_for_a_box_that_wakes(void **state)
{
	int clients[8], box;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(clients); i++) {
		clients[i] = client_connect();
		say(clients[i], "GET / HTTP/1.1\r\nHost: nap.localhost\r\n\r\n");
	}
	close(clients[0]); /* it does not wait */
	for (size_t i = 1; i < ARRAY_LEN(clients); i++) {
		box = box_capture("nap.localhost");
		say(box, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
		close(box);
	}
	for (size_t i = 1; i < ARRAY_LEN(clients); i++) {
		_cleanup_free_ char *answer = heard(clients[i], "\r\n\r\nhi");

		assert_non_null(strstr(answer, "200 OK"));
		close(clients[i]);
	}
	expect_answer("GET / HTTP/1.1\r\nHost: bed.localhost\r\n\r\n", "HTTP/1.1 503 ",
		"its state is damaged");
}

static void test_ingress_leaves_the_api_alone(void **state)
{
	(void)state;
	expect_answer("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "HTTP/1.1 200 OK", "api");
	expect_answer("GET / HTTP/1.1\r\nHost: localhost:30001\r\n\r\n", "HTTP/1.1 200 OK", "api");
	expect_answer(
		"GET /v1/boxes HTTP/1.1\r\nHost: a.b.localhost\r\n\r\n", "HTTP/1.1 404", "no box");
}

/* ---- connections kept ----------------------------------------------------------------------- */

static void test_ingress_uses_connections_again(void **state)
{
	int client = client_connect(), other = client_connect(), box;

	(void)state;
	say(client, GET("/1"));
	box = box_capture("GET /1 ");
	say(box, OK(1) "a");
	hear(client, "\r\n\r\na");
	for (int i = 0; i < 3; i++) {
		say(i & 1 ? other : client, GET("/2"));
		hear(box, "\r\n\r\n");
		say(box, OK(1) "b");
		hear(i & 1 ? other : client, "\r\n\r\nb");
	}
	box_expect_nobody();
	expect_end(box); /* after its idle time */
	close(client);
	close(other);
	close(box);
}

static void test_ingress_does_not_keep_what_it_cannot_trust(void **state)
{
	static const char *const answers[] = {
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na",
		"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
		OK(1) "aHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
	};
	int client = client_connect();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
		int box;

		say(client, GET("/"));
		box = box_capture(NULL);
		say(box, answers[i]);
		hear(client, "\r\n\r\na");
		expect_end(box);
		close(box);
	}
	close(client);
}

/* Bytes that come between requests must not answer the next one. */
static void test_ingress_drops_connections_that_speak_unasked(void **state)
{
	int client = client_connect(), box, second;
	_cleanup_free_ char *answer = NULL;

	(void)state;
	say(client, GET("/"));
	box = box_capture(NULL);
	say(box, OK(1) "a");
	hear(client, "\r\n\r\na");
	say(box, OK(4) "evil");
	expect_end(box);
	say(client, GET("/"));
	second = box_capture(NULL);
	say(second, OK(4) "good");
	answer = heard(client, "\r\n\r\n");
	assert_null(strstr(answer, "evil"));
	close(client);
	close(box);
	close(second);
}

static void test_ingress_tries_again_when_the_box_closed(void **state)
{
	int client = client_connect(), box, second;

	(void)state;
	say(client, GET("/"));
	box = box_capture(NULL);
	say(box, OK(1) "a");
	hear(client, "\r\n\r\na");
	say(client, GET("/again")); /* it is sent, and the box closes without a word */
	hear(box, "\r\n\r\n");
	close(box);
	second = box_capture("GET /again ");
	say(second, OK(1) "b");
	hear(client, "\r\n\r\nb");
	/* what may not be done twice is not */
	say(client, "POST / HTTP/1.1\r\n" WEB "Content-Length: 2\r\n\r\nhi");
	hear(second, "hi");
	close(second);
	hear(client, "HTTP/1.1 502 ");
	box_expect_nobody();
	close(client);
}

/* ---- bodies --------------------------------------------------------------------------------- */

static void test_ingress_streams_answers_as_they_come(void **state)
{
	int client = client_connect(), box;
	struct buf in = BUF_INIT;

	(void)state;
	say(client, GET("/events"));
	box = box_capture(NULL);
	say(box, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
		 "chunked\r\n\r\n");
	expect(client, &in, "Transfer-Encoding: chunked\r\n\r\n");
	say(box, "9\r\ndata: 1\n\n\r\n");
	expect(client, &in, "9\r\ndata: 1\n\n\r\n");
	say(box, "9\r\ndata: 2\n\n\r\n");
	expect(client, &in, "9\r\ndata: 2\n\n\r\n");
	say(box, "0\r\nX-Sum: 2\r\nSet-Cookie: a=b; Domain=x\r\nContent-Length: 4\r\n\r\n");
	expect(client, &in, "0\r\nX-Sum: 2\r\n\r\n");
	say(client, GET("/next"));
	hear(box, "GET /next ");
	buf_done(&in);
	close(client);
	close(box);
}

static void test_ingress_gives_bodies_their_frames(void **state)
{
	static const struct {
		const char *request, *answer, *expected;
		bool close;
	} cases[] = {
		{ GET("/"), "HTTP/1.0 200 OK\r\n\r\nold",
			"Transfer-Encoding: chunked\r\n\r\n3\r\nold\r\n0\r\n\r\n", true },
		{ "GET / HTTP/1.0\r\n" WEB "\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
			"chunked\r\n\r\n3\r\nnew\r\n0\r\n\r\n",
			"Connection: close\r\n\r\nnew", false },
		{ "HEAD / HTTP/1.1\r\n" WEB "\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n",
			"Content-Length: 77\r\n\r\n", false },
		{ GET("/"), "HTTP/1.1 204 No Content\r\nA: b\r\n\r\n",
			"204 No Content\r\nA: b\r\n\r\n", false },
		{ GET("/"), "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
			"304 Not Modified\r\nContent-Length: 9\r\n\r\n", false },
		{ GET("/"),
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int client = client_connect(), box;

		say(client, cases[i].request);
		box = box_capture(NULL);
		say(box, cases[i].answer);
		if (cases[i].close)
			close(box);
		hear(client, cases[i].expected);
		if (!cases[i].close)
			close(box);
		close(client);
	}
}

static size_t read_all(int fd, size_t len)
{
	_cleanup_free_ char *data = xcalloc(1, 65536);
	size_t sum = 0;

	while (sum < len) {
		ssize_t got = recv(fd, data, MIN(65536, len - sum), 0);

		assert_true(got > 0);
		for (ssize_t i = 0; i < got; i++)
			assert_int_equal(data[i], 'x');
		sum += (size_t)got;
	}
	return sum;
}

/* As much as the sockets and buffers on the way take. */
static size_t push(int fd, size_t most)
{
	_cleanup_free_ char *data = xcalloc(1, 65536);
	size_t sum = 0;

	memset(data, 'x', 65536);
	while (sum < most) {
		struct pollfd ready = { .fd = fd, .events = POLLOUT };
		ssize_t put = poll(&ready, 1, 200) == 1 ? send(fd, data, MIN(65536, most - sum),
								  MSG_DONTWAIT | MSG_NOSIGNAL)
							: 0;

		if (put <= 0)
			break;
		sum += (size_t)put;
	}
	return sum;
}

/* Byte by byte, so that nothing of the body is taken. */
static void skip_head(int fd)
{
	char byte, last[4] = "";

	while (memcmp(last, "\r\n\r\n", 4)) {
		assert_int_equal(recv(fd, &byte, 1, 0), 1);
		memmove(last, last + 1, 3);
		last[3] = byte;
	}
}

static size_t memory_of(pid_t pid)
{
	char path[64];
	unsigned long whole, resident = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/statm", pid);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu %lu", &whole, &resident), 2);
	fclose(file);
	return resident * 4096;
}

static void bound_buffers(int fd)
{
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ 65536 }, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){ 65536 }, sizeof(int));
}

static void test_ingress_holds_back_clients_that_send_too_fast(void **state)
{
	int client = client_connect(), box;
	char head[128];
	size_t sent;

	(void)state;
	bound_buffers(client);
	setsockopt(fixture.listener, SOL_SOCKET, SO_RCVBUF, &(int){ 65536 }, sizeof(int));
	snprintf(head, sizeof head, "POST /up HTTP/1.1\r\n" WEB "Content-Length: %d\r\n\r\n",
		ENDLESS);
	say(client, head);
	box = box_accept();
	bound_buffers(box);
	sent = push(client, ENDLESS);		   /* the box reads nothing */
	assert_in_range(sent, 65536, ENDLESS - 1); /* the kernel's buffers grow to 32 MiB each */
	assert_true(memory_of(fixture.pid) < MEMORY_MAX);
	hear(box, "\r\n\r\n"); /* what came with it is dropped: an answer now, before the end */
	say(box, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig");
	hear(client, "big");
	close(client);
	close(box);
}

static void test_ingress_holds_back_boxes_that_send_too_fast(void **state)
{
	int client = client_connect(), box;
	char head[128];
	size_t sent, got = 0;

	(void)state;
	bound_buffers(client);
	say(client, GET("/down"));
	box = box_capture(NULL);
	bound_buffers(box);
	snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", ENDLESS);
	say(box, head);
	skip_head(client);
	sent = push(box, ENDLESS); /* the client reads nothing */
	assert_in_range(sent, 65536, ENDLESS - 1);
	assert_true(memory_of(fixture.pid) < MEMORY_MAX);
	while (got < sent)
		got += read_all(client, MIN(sent - got, 262144));
	close(client);
	close(box);
}

static void test_ingress_streams_bodies_in(void **state)
{
	int client = client_connect(), box;
	struct buf in = BUF_INIT;

	(void)state;
	say(client, "PUT /c HTTP/1.1\r\n" WEB "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
	box = box_accept();
	expect(box, &in, "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
	say(client, "2\r\nde\r\n0\r\nT: v\r\n\r\n");
	expect(box, &in, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
	say(box, OK(1) "k");
	hear(client, "\r\n\r\nk");
	/* 100-continue: asked for only when the box is there */
	say(client, "PUT /e HTTP/1.1\r\n" WEB "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
	hear(client, "HTTP/1.1 100 Continue\r\n\r\n");
	say(client, "hi");
	expect(box, &in, "\r\n\r\nhi");
	assert_null(strstr(buf_str(&in), "Expect"));
	say(box, OK(1) "k");
	hear(client, "\r\n\r\nk");
	buf_done(&in);
	close(client);
	close(box);
}

/* ---- hostile boxes -------------------------------------------------------------------------- */

static void test_ingress_answers_for_boxes_that_talk_nonsense(void **state)
{
	static const char *const answers[] = {
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nA: b\nSet-Cookie: c\r\n\r\n",
		"HTTP/1.1 200 OK\r\n folded\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		"SSH-2.0-x\r\n",
		"",
		"HTTP/1.1 200 OK\r\nA:",
	};
	int client = client_connect();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
		int box;

		say(client, "GET / HTTP/1.1\r\n" WEB "Accept: application/json\r\n\r\n");
		box = box_capture(NULL);
		say(box, answers[i]);
		shutdown(box, SHUT_WR);
		hear(client, "no proper answer"); /* and the client's connection goes on */
		expect_end(box);
		close(box);
	}
	close(client);
}

/* An answer that breaks off must not look whole. */
static void test_ingress_cuts_what_breaks_off(void **state)
{
	static const char *const answers[] = {
		"HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcXX",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
		int client = client_connect(), box;
		_cleanup_free_ char *answer = NULL;

		say(client, GET("/"));
		box = box_capture(NULL);
		say(box, answers[i]);
		close(box);
		answer = heard(client, NULL);
		assert_non_null(strstr(answer, "abc"));
		assert_null(strstr(answer, "0\r\n\r\n"));
		assert_null(strstr(answer, "502"));
		close(client);
	}
}

static void test_ingress_ends_the_boxes_side_with_the_clients(void **state)
{
	int client = client_connect(), box;

	(void)state;
	say(client, GET("/slow"));
	box = box_capture(NULL);
	setsockopt(client, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
		sizeof(struct linger));
	close(client);
	expect_end(box);
	close(box);
}

/* ---- upgrades ------------------------------------------------------------------------------- */

#define UPGRADE(host, more) \
	"GET /ws HTTP/1.1\r\n" host "Connection: Upgrade\r\nUpgrade: echo\r\n" more "\r\n"

static void test_ingress_passes_upgrades_through(void **state)
{
	int client = client_connect(), box;
	_cleanup_free_ char *answer = NULL;

	(void)state;
	say(client, UPGRADE(WEB, "Sec-X: 1\r\n") "early");
	box = box_capture("Sec-X: 1\r\n");
	say(box,
		"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: echo\r\nSec-Y: 2\r\n\r\nfirst");
	answer = heard(client, "first");
	assert_string_equal(answer, "HTTP/1.1 101 Switching Protocols\r\nSec-Y: 2\r\nConnection: "
				    "Upgrade\r\nUpgrade: echo\r\n\r\nfirst");
	hear(box, "early");
	say(client, "\x81\x01x");
	hear(box, "\x81\x01x");
	say(box, "pong");
	hear(client, "pong");
	shutdown(client, SHUT_WR); /* one way ends, the other goes on */
	expect_end(box);
	say(box, "late");
	hear(client, "late");
	close(box);
	expect_end(client);
	close(client);
}

static void test_ingress_holds_back_tunnels(void **state)
{
	int client = client_connect(), box;
	size_t sent, got = 0;

	(void)state;
	bound_buffers(client);
	setsockopt(fixture.listener, SOL_SOCKET, SO_RCVBUF, &(int){ 65536 }, sizeof(int));
	say(client, UPGRADE(WEB, ""));
	box = box_capture(NULL);
	say(box, "HTTP/1.1 101 Go\r\nUpgrade: echo\r\n\r\n");
	hear(client, "\r\n\r\n");
	sent = push(client, ENDLESS);
	assert_in_range(sent, 65536, ENDLESS - 1);
	while (got < sent)
		got += read_all(box, MIN(sent - got, 262144));
	sent = push(box, ENDLESS);
	assert_in_range(sent, 65536, ENDLESS - 1);
	for (got = 0; got < sent;)
		got += read_all(client, MIN(sent - got, 262144));
	say(client, "end");
	hear(box, "end");
	close(client);
	expect_end(box);
	close(box);
}

static void test_ingress_lets_a_box_refuse_an_upgrade(void **state)
{
	int client = client_connect(), box;

	(void)state;
	say(client, UPGRADE(WEB, ""));
	box = box_capture("Upgrade: echo\r\n");
	say(box, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
	hear(client, "\r\n\r\nno");
	say(client, GET("/"));
	hear(box, "GET / ");
	close(client);
	close(box);
}

/* ---- pages ---------------------------------------------------------------------------------- */

#define HTML "Accept: text/html,*/*\r\n"

static void test_ingress_says_what_is_wrong(void **state)
{
	static const struct {
		const char *request, *start, *part;
	} cases[] = {
		{ "GET / HTTP/1.1\r\nHost: nobody.localhost\r\n\r\n", "HTTP/1.1 404 ",
			"\"not_found\"" },
		{ "GET / HTTP/1.1\r\nHost: 80-nobody.localhost\r\n" HTML "\r\n", "HTTP/1.1 404 ",
			"no box &#39;nobody&#39;" },
		{ "GET / HTTP/1.1\r\nHost: <b>.localhost\r\n" HTML "\r\n", "HTTP/1.1 404 ",
			"leads to no box" },
		{ "GET / HTTP/1.1\r\nHost: off.localhost\r\n" HTML "\r\n", "HTTP/1.1 503 ",
			"<code>box start off</code>" },
		{ "GET / HTTP/1.1\r\nHost: off.localhost\r\n\r\n", "HTTP/1.1 503 ",
			"\"hint\":\"box start off\"" },
		{ "GET / HTTP/1.1\r\nHost: ice.localhost\r\n" HTML "\r\n", "HTTP/1.1 503 ",
			"box resume ice" },
		{ "GET / HTTP/1.1\r\nHost: 1-web.localhost\r\n" HTML "\r\n", "HTTP/1.1 502 ",
			"port 1 of box &#39;web&#39;" },
		{ "GET / HTTP/1.1\r\nHost: 1-web.localhost\r\n\r\n", "HTTP/1.1 502 ",
			"nothing listens on port 1 of box 'web'" },
		{ "GET http://x/ HTTP/1.1\r\n" WEB "\r\n", "HTTP/1.1 400 ", NULL },
		{ "GET /\x80 HTTP/1.1\r\n" WEB "\r\n", "HTTP/1.1 400 ", NULL },
		{ "POST / HTTP/1.1\r\n" WEB
		  "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			"HTTP/1.1 400 ", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		expect_answer(cases[i].request, cases[i].start, cases[i].part);
	box_expect_nobody();
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_ingress_leads_to_the_box),
		T(test_ingress_waits_for_a_box_that_wakes),
		T(test_ingress_leaves_the_api_alone),
		T(test_ingress_uses_connections_again),
		T(test_ingress_does_not_keep_what_it_cannot_trust),
		T(test_ingress_drops_connections_that_speak_unasked),
		T(test_ingress_tries_again_when_the_box_closed),
		T(test_ingress_streams_answers_as_they_come),
		T(test_ingress_gives_bodies_their_frames),
		T(test_ingress_holds_back_clients_that_send_too_fast),
		T(test_ingress_holds_back_boxes_that_send_too_fast),
		T(test_ingress_streams_bodies_in),
		T(test_ingress_answers_for_boxes_that_talk_nonsense),
		T(test_ingress_cuts_what_breaks_off),
		T(test_ingress_ends_the_boxes_side_with_the_clients),
		T(test_ingress_passes_upgrades_through),
		T(test_ingress_holds_back_tunnels),
		T(test_ingress_lets_a_box_refuse_an_upgrade),
		T(test_ingress_says_what_is_wrong),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
