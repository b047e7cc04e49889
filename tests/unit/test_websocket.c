/* test_websocket.c - WebSockets seen from the socket: handshake, messages, limits, ends */
#include "http_fixture.h"

#define UPGRADE                                                     \
	"Host: a\r\nUpgrade: websocket\r\nConnection: keep-alive, " \
	"Upgrade\r\nSec-WebSocket-Version: 13\r\n"                  \
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

enum { TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10, MESSAGE_MAX = 100000 };

/* ---- the handler, in the child -------------------------------------------------------------- */

static unsigned closed_count, open_count;

struct flood {
	size_t left;
};

static void flood_more(struct websocket *ws, struct flood *flood)
{
	static char block[10000];

	while (flood->left && ws_pending(ws) < 200000) {
		ws_send_tagged(ws, 1, block, sizeof block);
		flood->left--;
	}
	if (!flood->left)
		ws_close(ws, 1000, "done");
}

/* Messages are echoed; some words do more. */
static void on_message(struct websocket *ws, bool binary, const void *data, size_t len, void *arg)
{
	struct flood *flood = arg;

	if (len == 5 && !memcmp(data, "close", 5)) {
		ws_close(ws, 4000, "as you wish");
		ws_send(ws, false, "too late", 8);
	} else if (len == 5 && !memcmp(data, "flood", 5)) {
		flood->left = 500;
		flood_more(ws, flood);
	} else if (len == 6 && !memcmp(data, "tagged", 6)) {
		ws_send_tagged(ws, 7, "abc", 3);
	} else {
		ws_send(ws, binary, data, len);
	}
}

static void on_drain(struct websocket *ws, void *arg)
{
	flood_more(ws, arg);
}

static void on_close(struct websocket *ws, void *arg)
{
	ws_send(ws, true, "?", 1); /* too late, and harmless */
	closed_count++;
	open_count--;
	free(arg);
}

static const struct websocket_ops ops = { on_message, on_drain, on_close };

static void handle(struct http_request *request, void *arg)
{
	struct flood *flood;
	char text[64];

	(void)arg;
	if (!strcmp(http_request_path(request), "/stats")) {
		snprintf(text, sizeof text, "closed=%u open=%u.", closed_count, open_count);
		return http_reply(request, 200, "text/plain", text, strlen(text));
	}
	flood = xnew(struct flood);
	open_count++;
	if (!ws_accept(request, MESSAGE_MAX, &ops, flood)) {
		open_count--;
		free(flood);
	}
}

static int setup(void **state)
{
	(void)state;
	fixture_start(handle, NULL);
	return 0;
}

static int setup_short(void **state)
{
	(void)state;
	fixture_start(handle, &short_limits);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_stop();
	return 0;
}

/* ---- the client ----------------------------------------------------------------------------- */

static int ws_open(struct buf *in)
{
	int fd = client_connect();
	char *end;

	client_say(fd, "GET /ws HTTP/1.1\r\n" UPGRADE);
	client_expect(fd, in, "\r\n\r\n");
	assert_memory_equal(buf_str(in), "HTTP/1.1 101", 12);
	assert_non_null(
		strstr(buf_str(in), "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
	end = strstr((char *)buf_str(in), "\r\n\r\n") + 4;
	buf_eat(in, (size_t)(end - (char *)buf_head(in)));
	return fd;
}

static void put_frame(struct buf *out, bool fin, uint8_t opcode, const void *data, size_t len)
{
	static const uint8_t mask[4] = { 1, 2, 3, 4 };
	uint8_t *at;

	buf_add(out, (uint8_t[]){ (uint8_t)((fin ? 0x80 : 0) | opcode) }, 1);
	if (len < 126)
		buf_add(out, (uint8_t[]){ (uint8_t)(0x80 | len) }, 1);
	else if (len < 65536)
		buf_add(out, (uint8_t[]){ 0xfe, (uint8_t)(len >> 8), (uint8_t)len }, 3);
	else
		buf_add(out,
			(uint8_t[]){ 0xff, 0, 0, 0, 0, 0, (uint8_t)(len >> 16), (uint8_t)(len >> 8),
				(uint8_t)len },
			9);
	buf_add(out, mask, 4);
	at = buf_room(out, len + 1);
	for (size_t i = 0; i < len; i++)
		at[i] = ((const uint8_t *)data)[i] ^ mask[i % 4];
	buf_grew(out, len);
}

static void send_frame(int fd, bool fin, uint8_t opcode, const void *data, size_t len)
{
	struct buf out = BUF_INIT;

	put_frame(&out, fin, opcode, data, len);
	client_send(fd, buf_head(&out), out.len);
	buf_done(&out);
}

static void need(int fd, struct buf *in, size_t len)
{
	while (in->len < len) {
		ssize_t got = recv(fd, buf_room(in, 65536), 65536, 0);

		assert_true(got > 0);
		buf_grew(in, (size_t)got);
	}
}

/* The next frame: its opcode; the payload in *ret (yours), its size in *ret_len. */
static unsigned recv_frame(int fd, struct buf *in, char **ret, size_t *ret_len)
{
	unsigned opcode;
	size_t head = 2;
	uint64_t len;

	need(fd, in, 2);
	assert_int_equal(buf_head(in)[0] & 0xf0, 0x80);
	assert_int_equal(buf_head(in)[1] & 0x80, 0);
	opcode = buf_head(in)[0] & 0x0f;
	len = buf_head(in)[1];
	if (len >= 126) {
		unsigned bytes = len == 126 ? 2 : 8;

		head += bytes;
		need(fd, in, head);
		len = 0;
		for (unsigned i = 0; i < bytes; i++)
			len = len << 8 | buf_head(in)[2 + i];
	}
	need(fd, in, head + len);
	*ret = xstrndup((char *)buf_head(in) + head, len);
	*ret_len = len;
	buf_eat(in, head + len);
	return opcode;
}

static void expect_frame(int fd, struct buf *in, unsigned opcode, const void *data, size_t len)
{
	_cleanup_free_ char *got = NULL;
	size_t got_len;

	assert_int_equal(recv_frame(fd, in, &got, &got_len), opcode);
	assert_int_equal(got_len, len);
	if (memchr(data, 0, len) == NULL)
		assert_memory_equal(got, data, len);
}

static void expect_close(int fd, struct buf *in, unsigned code)
{
	_cleanup_free_ char *got = NULL;
	size_t len;

	assert_int_equal(recv_frame(fd, in, &got, &len), CLOSE);
	assert_true(len >= 2);
	assert_int_equal((uint8_t)got[0] << 8 | (uint8_t)got[1], code);
}

static void expect_end(int fd, struct buf *in)
{
	client_expect(fd, in, NULL);
	close(fd);
	buf_done(in);
}

static void await_stats(const char *want)
{
	for (int i = 0; i < 500; i++) {
		_cleanup_free_ char *answer = client_ask("GET /stats HTTP/1.1\r\nHost: a\r\n\r\n");

		if (strstr(answer, want))
			return;
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	fail_msg("stats never became '%s'", want);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_ws_refuses_bad_handshakes(void **state)
{
	(void)state;
	expect_answer(
		"GET /ws HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 426", "Upgrade: websocket\r\n");
	expect_answer(
		"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		"Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
		"HTTP/1.1 426", "Sec-WebSocket-Version: 13\r\n");
	expect_answer("GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n\r\n",
		"HTTP/1.1 400", "Sec-WebSocket-Key");
	expect_answer("POST /ws HTTP/1.1\r\n" UPGRADE, "HTTP/1.1 400", "GET");
	expect_answer(
		"GET /ws HTTP/1.1\r\nContent-Length: 1\r\n" UPGRADE "x", "HTTP/1.1 400", "no body");
}

static void test_ws_echoes(void **state)
{
	static char big[70000];
	struct buf in = BUF_INIT;
	int fd = ws_open(&in);

	(void)state;
	send_frame(fd, true, TEXT, "h\xc3\xa9llo", 6);
	expect_frame(fd, &in, TEXT, "h\xc3\xa9llo", 6);
	send_frame(fd, true, BINARY, "", 0);
	expect_frame(fd, &in, BINARY, "", 0);
	memset(big, 'q', sizeof big);
	send_frame(fd, true, BINARY, big, 200);
	expect_frame(fd, &in, BINARY, big, 200);
	send_frame(fd, true, BINARY, big, sizeof big);
	expect_frame(fd, &in, BINARY, big, sizeof big);
	send_frame(fd, true, TEXT, "tagged", 6);
	expect_frame(fd, &in, BINARY, "\7abc", 4);
	close(fd);
	await_stats("closed=1 open=0.");
	buf_done(&in);
}

static void test_ws_takes_frames_sent_with_the_handshake(void **state)
{
	struct buf out = BUF_INIT, in = BUF_INIT;
	int fd = client_connect();

	(void)state;
	buf_add_str(&out, "GET /ws HTTP/1.1\r\n" UPGRADE);
	put_frame(&out, true, TEXT, "early", 5);
	client_send(fd, buf_head(&out), out.len);
	client_expect(fd, &in,
		"\r\n\r\n\x81\x05"
		"early");
	close(fd);
	buf_done(&out);
	buf_done(&in);
}

static void test_ws_joins_fragments_and_answers_pings_between(void **state)
{
	struct buf in = BUF_INIT;
	int fd = ws_open(&in);

	(void)state;
	send_frame(fd, false, TEXT, "one ", 4);
	send_frame(fd, true, PING, "p", 1);
	expect_frame(fd, &in, PONG, "p", 1);
	send_frame(fd, false, 0, "two ", 4);
	send_frame(fd, true, 0, "three", 5);
	expect_frame(fd, &in, TEXT, "one two three", 13);
	send_frame(fd, true, PONG, "unasked", 7);
	send_frame(fd, true, TEXT, "still", 5);
	expect_frame(fd, &in, TEXT, "still", 5);
	close(fd);
	buf_done(&in);
}

static void test_ws_closes_on_broken_rules(void **state)
{
	static char big[MESSAGE_MAX + 1];
	struct buf in = BUF_INIT;
	int fd;

	(void)state;
	fd = ws_open(&in);
	send_frame(fd, true, BINARY, big, sizeof big);
	expect_close(fd, &in, 1009);
	expect_end(fd, &in);
	fd = ws_open(&in);
	send_frame(fd, false, BINARY, big, MESSAGE_MAX - 10);
	send_frame(fd, true, 0, big, 11);
	expect_close(fd, &in, 1009);
	expect_end(fd, &in);
	fd = ws_open(&in);
	send_frame(fd, true, TEXT, "\xff\xfe", 2);
	expect_close(fd, &in, 1007);
	expect_end(fd, &in);
	fd = ws_open(&in);
	send_frame(fd, true, 0, "nothing to go on", 16);
	expect_close(fd, &in, 1002);
	expect_end(fd, &in);
	fd = ws_open(&in);
	client_send(fd, "\x81\x02hi", 4); /* not masked */
	expect_close(fd, &in, 1002);
	expect_end(fd, &in);
	await_stats("closed=5 open=0.");
}

static void test_ws_closes_in_order(void **state)
{
	struct buf in = BUF_INIT;
	int fd = ws_open(&in);

	(void)state;
	send_frame(fd, true, CLOSE,
		"\x03\xe8"
		"bye",
		5); /* by the client */
	expect_close(fd, &in, 1000);
	expect_end(fd, &in);
	await_stats("closed=1 open=0.");
	fd = ws_open(&in);
	send_frame(fd, true, TEXT, "close", 5); /* by us */
	expect_close(fd, &in, 4000);
	await_stats("closed=1 open=1."); /* until the client says so too */
	send_frame(fd, true, TEXT, "not heard", 9);
	send_frame(fd, true, CLOSE, "\x0f\xa0", 2);
	expect_end(fd, &in);
	await_stats("closed=2 open=0.");
}

static void test_ws_floods_a_slow_reader_whole(void **state)
{
	struct buf in = BUF_INIT;
	int fd = ws_open(&in);

	(void)state;
	send_frame(fd, true, TEXT, "flood", 5);
	nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	for (int i = 0; i < 500; i++) {
		_cleanup_free_ char *got = NULL;
		size_t len;

		assert_int_equal(recv_frame(fd, &in, &got, &len), BINARY);
		assert_int_equal(len, 10001);
		assert_int_equal(got[0], 1);
	}
	expect_close(fd, &in, 1000);
	send_frame(fd, true, CLOSE, "\x03\xe8", 2);
	expect_end(fd, &in);
}

static void test_ws_pings_and_gives_up_on_silence(void **state)
{
	struct buf in = BUF_INIT;
	int fd = ws_open(&in);

	(void)state;
	expect_frame(fd, &in, PING, "", 0);
	send_frame(fd, true, PONG, "", 0);
	expect_frame(fd, &in, PING, "", 0);
	expect_end(fd, &in); /* more pings, then the end */
	await_stats("closed=1 open=0.");
}

static void test_ws_does_not_wait_for_ever_for_a_close(void **state)
{
	struct buf in = BUF_INIT;
	int fd = ws_open(&in);

	(void)state;
	send_frame(fd, true, TEXT, "close", 5);
	expect_close(fd, &in, 4000);
	expect_end(fd, &in);
	await_stats("closed=1 open=0.");
}

/* ---- pulled away under our own feet --------------------------------------------------------- */

static struct http_server *doomed;

static void free_on_message(
	struct websocket *ws, bool binary, const void *data, size_t len, void *arg)
{
	(void)ws;
	(void)binary;
	(void)data;
	(void)len;
	http_server_free(doomed);
	loop_stop(arg);
}

static void count_close(struct websocket *ws, void *arg)
{
	(void)ws;
	(void)arg;
	closed_count++;
}

static const struct websocket_ops doom_ops = { free_on_message, NULL, count_close };

static void doom_handle(struct http_request *request, void *arg)
{
	if (!strcmp(http_request_path(request), "/ws")) {
		assert_non_null(ws_accept(request, MESSAGE_MAX, &doom_ops, arg));
		return;
	}
	http_server_free(doomed);
	loop_stop(arg);
}

static void doom(const char *head, bool frame)
{
	struct loop *loop = loop_new();
	struct buf out = BUF_INIT;
	int fd;

	strcpy(fixture.path, "/tmp/test-ws-XXXXXX");
	assert_non_null(mkdtemp(fixture.path));
	strcat(fixture.path, "/s");
	doomed = http_server_new(loop, doom_handle, loop);
	assert_int_equal(http_server_listen_unix(doomed, fixture.path, (gid_t)-1, 0600, NULL), 0);
	fd = client_connect();
	buf_add_str(&out, head);
	if (frame) {
		put_frame(&out, true, TEXT, "a", 1);
		put_frame(&out, true, TEXT, "b", 1);
	}
	client_send(fd, buf_head(&out), out.len);
	loop_run(loop);
	loop_free(loop);
	close(fd);
	buf_done(&out);
	*strrchr(fixture.path, '/') = '\0';
	rmdir(fixture.path);
}

static void test_server_can_be_freed_inside_callbacks(void **state)
{
	(void)state;
	closed_count = 0;
	doom("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false);
	doom("GET /ws HTTP/1.1\r\n" UPGRADE, true);
	assert_int_equal(closed_count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ws_refuses_bad_handshakes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ws_echoes, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_ws_takes_frames_sent_with_the_handshake, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_ws_joins_fragments_and_answers_pings_between, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ws_closes_on_broken_rules, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ws_closes_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_ws_floods_a_slow_reader_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_ws_pings_and_gives_up_on_silence, setup_short, teardown),
		cmocka_unit_test_setup_teardown(
			test_ws_does_not_wait_for_ever_for_a_close, setup_short, teardown),
		cmocka_unit_test(test_server_can_be_freed_inside_callbacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
