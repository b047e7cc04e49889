/* test_http_server.c - the server seen from its socket: exchanges, limits, clients that go away */
#include "http_fixture.h"

#define HOST	  "Host: a\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "\r\n"

/* ---- the handler, in the child -------------------------------------------------------------- */

static unsigned gone_count;
static unsigned live_count; /* things of ours that wait for a callback */

struct job {
	struct http_request *request;
	struct loop_timer *timer;
	size_t bytes;
	size_t left;
};

static struct job *job_new(struct http_request *request, struct loop *loop, loop_fn fn)
{
	struct job *job = xnew(struct job);

	job->request = request;
	job->timer = loop_timer_new(loop, fn, job);
	live_count++;
	return job;
}

static void job_free(struct job *job)
{
	loop_timer_free(job->timer);
	free(job);
	live_count--;
}

static void on_gone(struct http_request *request, void *arg)
{
	gone_count++;
	http_reply(request, 200, NULL, "", 0); /* too late, and harmless */
	job_free(arg);
}

static void answer_now(void *arg)
{
	struct job *job = arg;
	struct http_request *request = job->request;

	job_free(job);
	http_reply(request, 200, "text/plain", "later", 5);
}

static void ignore(void *arg)
{
	(void)arg;
}

static void on_echo(struct http_request *request, const char *body, size_t len, void *arg)
{
	(void)arg;
	http_reply(request, 200, "text/plain", body, len);
}

static void on_count_resume(void *arg)
{
	http_request_body_resume(((struct job *)arg)->request);
}

static void on_count_data(struct http_request *request, const void *data, size_t len, void *arg)
{
	struct job *job = arg;

	(void)data;
	job->bytes += len;
	http_request_body_pause(request);
	loop_timer_start(job->timer, 1);
}

static void on_count_end(struct http_request *request, void *arg)
{
	struct job *job = arg;
	char text[32];

	snprintf(text, sizeof text, "counted %zu", job->bytes);
	job_free(job);
	http_reply(request, 200, "text/plain", text, strlen(text));
}

static void on_flood_drain(struct http_request *request, void *arg)
{
	static char block[10000];
	struct job *job = arg;

	while (job->left && http_reply_pending(request) < 100000) {
		size_t len = MIN(job->left, sizeof block);

		memset(block, 'x', sizeof block);
		http_reply_write(request, block, len);
		job->left -= len;
	}
	if (!job->left) {
		job_free(job);
		http_reply_end(request);
	}
}

static void do_flood(struct http_request *request, struct loop *loop)
{
	const char *bytes = http_request_query(request, "bytes");
	struct job *job = job_new(request, loop, ignore);

	job->left = bytes ? strtoul(bytes, NULL, 10) : 0;
	http_request_on_gone(request, on_gone, job);
	http_reply_begin(request, 200, "text/plain");
	http_reply_on_drain(request, 30000, on_flood_drain, job);
	on_flood_drain(request, job);
}

static void on_drip(void *arg)
{
	struct job *job = arg;

	http_reply_write(job->request, "drip", 4);
	loop_timer_start(job->timer, 20);
}

static void do_wait(struct http_request *request, struct loop *loop, loop_fn fn, unsigned ms)
{
	struct job *job = job_new(request, loop, fn);

	http_request_on_gone(request, on_gone, job);
	loop_timer_start(job->timer, ms);
}

static void do_stats(struct http_request *request)
{
	char text[64];

	snprintf(text, sizeof text, "gone=%u live=%u.", gone_count, live_count);
	http_reply(request, 200, "text/plain", text, strlen(text));
}

static void do_count(struct http_request *request, struct loop *loop)
{
	struct job *job = job_new(request, loop, on_count_resume);

	http_request_on_gone(request, on_gone, job);
	http_request_stream_body(request, on_count_data, on_count_end, job);
}

static void do_error(struct http_request *request)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_NOT_FOUND, "no box '%s'", http_request_query(request, "name"));
	err_hint(&err, "box ls lists them");
	http_reply_error(request, &err);
}

static void do_cut(struct http_request *request)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_SYSTEM, "halfway");
	http_reply_begin(request, 200, "text/plain");
	http_reply_write(request, "half", 4);
	http_reply_error(request, &err);
}

static void handle(struct http_request *request, void *arg)
{
	const char *path = http_request_path(request);
	struct loop *loop = arg;

	if (!strcmp(path, "/hello")) {
		http_reply_header(request, "X-Ours", "yes");
		http_reply(request, 200, "text/plain", "hello", 5);
	} else if (!strcmp(path, "/split")) {
		http_reply_header(request, "X-Bad", "no\r\nInjected: yes");
		http_reply(request, 200, "text/plain", "split", 5);
	} else if (!strcmp(path, "/echo")) {
		http_request_read_body(request, 1000, on_echo, NULL);
	} else if (!strcmp(path, "/later")) {
		do_wait(request, loop, answer_now, 30);
	} else if (!strcmp(path, "/never")) {
		do_wait(request, loop, ignore, 1);
	} else if (!strcmp(path, "/count")) {
		do_count(request, loop);
	} else if (!strcmp(path, "/flood")) {
		do_flood(request, loop);
	} else if (!strcmp(path, "/drip")) {
		http_reply_begin(request, 200, "text/plain");
		do_wait(request, loop, on_drip, 1);
	} else if (!strcmp(path, "/error")) {
		do_error(request);
	} else if (!strcmp(path, "/cut")) {
		do_cut(request);
	} else if (!strcmp(path, "/json")) {
		http_reply_json(request, 201, json_pack("{s:i}", "a", 1));
	} else if (!strcmp(path, "/none")) {
		http_reply(request, 204, NULL, NULL, 0);
	} else if (!strcmp(path, "/stats")) {
		do_stats(request);
	} else {
		http_reply(request, 404, "text/plain", "?", 1);
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

/* Asks for /stats until they are as wanted. */
static void await_stats(const char *want)
{
	for (int i = 0; i < 500; i++) {
		_cleanup_free_ char *answer = client_ask(GET("/stats"));

		if (strstr(answer, want))
			return;
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	fail_msg("stats never became '%s'", want);
}

/* ---- exchanges ------------------------------------------------------------------------------ */

static void test_server_answers(void **state)
{
	(void)state;
	expect_answer(GET("/hello"), "HTTP/1.1 200 OK\r\n",
		"Content-Length: 5\r\nX-Ours: yes\r\n\r\nhello");
	expect_answer(GET("/json"), "HTTP/1.1 201 Created\r\n", "\r\n\r\n{\"a\":1}");
	expect_answer(GET("/none"), "HTTP/1.1 204 No Content\r\n", "GMT\r\n\r\n");
	expect_answer(GET("/later"), "HTTP/1.1 200 OK\r\n", "\r\n\r\nlater");
	expect_answer("HEAD /hello HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 200 OK\r\n",
		"Content-Length: 5\r\nX-Ours: yes\r\n\r\n");
	expect_answer(
		"GET /hello HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "Connection: close\r\n");
	expect_answer(GET("/flood?bytes=3"), "HTTP/1.1 200 OK\r\n",
		"chunked\r\n\r\n3\r\nxxx\r\n0\r\n\r\n");
	expect_answer("GET /flood?bytes=3 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n",
		"Connection: close\r\n\r\nxxx");
	expect_answer(GET("/error?name=ada"), "HTTP/1.1 404 Not Found\r\n",
		"{\"error\":{\"code\":\"not_found\",\"message\":\"no box 'ada'\",\"hint\":\"box ls "
		"lists them\"}}");
	expect_answer(GET("/error?name=%ff"), "HTTP/1.1 404 Not Found\r\n", "no box '?'");
	expect_answer("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\nbody",
		"HTTP/1.1 200", "\r\n\r\nbody");
	expect_answer(
		"POST /echo HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 200", "Content-Length: 0\r\n");
}

static void test_server_fronts_are_asked_in_order(void **state)
{
	(void)state;
	expect_answer(GET("/front/%zz"), "HTTP/1.1 200 OK\r\n", "\r\n\r\n/front/");
	expect_answer(GET("/frontal"), "HTTP/1.1 200 OK\r\n", "\r\n\r\n/front");
	expect_answer(GET("/hello"), "HTTP/1.1 200 OK\r\n", "\r\n\r\nhello");
}

static void test_server_leaves_out_headers_that_would_split(void **state)
{
	_cleanup_free_ char *answer = client_ask(GET("/split"));

	(void)state;
	assert_non_null(strstr(answer, "split"));
	assert_null(strstr(answer, "Injected"));
}

static void test_server_answers_pipelined_requests_in_order(void **state)
{
	struct buf in = BUF_INIT;
	int fd = client_connect();

	(void)state;
	client_say(fd, GET("/later") "POST /echo HTTP/1.1\r\n" HOST
				     "Content-Length: 3\r\n\r\nabc" GET("/json"));
	client_expect(fd, &in, "{\"a\":1}");
	assert_true(strstr(buf_str(&in), "later") < strstr(buf_str(&in), "abc"));
	buf_eat(&in, in.len);
	for (int i = 0; i < 1000; i++) /* more than is read ahead */
		client_say(fd, i == 0 ? GET("/later") : GET("/hello"));
	client_say(fd, GET("/json"));
	client_expect(fd, &in, "{\"a\":1}");
	close(fd);
	buf_done(&in);
}

static void test_server_streams_up_with_pauses(void **state)
{
	static char chunk[6 + 4096 + 2];
	struct buf in = BUF_INIT;
	int fd = client_connect();

	(void)state;
	memcpy(chunk, "1000\r\n", 6);
	memset(chunk + 6, 'y', 4096);
	memcpy(chunk + 6 + 4096, "\r\n", 2);
	client_say(fd, "PUT /count HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 200; i++)
		client_send(fd, chunk, sizeof chunk);
	client_say(fd, "0\r\n\r\n" GET("/hello"));
	client_expect(fd, &in, "hello");
	assert_non_null(strstr(buf_str(&in), "counted 819200"));
	buf_eat(&in, in.len);
	client_say(fd, "PUT /count HTTP/1.1\r\n" HOST "Content-Length: 4096000\r\n\r\n");
	for (int i = 0; i < 1000; i++)
		client_send(fd, chunk + 6, 4096);
	client_expect(fd, &in, "counted 4096000");
	close(fd);
	buf_done(&in);
}

static void test_server_streams_down_to_a_slow_reader(void **state)
{
	struct buf in = BUF_INIT;
	int fd = client_connect();

	(void)state;
	client_say(fd, GET("/flood?bytes=5000000"));
	for (int i = 0; i < 20; i++) {
		ssize_t got = recv(fd, buf_room(&in, 4096), 4096, 0);

		assert_true(got > 0);
		buf_grew(&in, (size_t)got);
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
	client_expect(fd, &in, "\r\n0\r\n\r\n");
	assert_true(in.len > 5000000 && in.len < 5010000);
	close(fd);
	buf_done(&in);
}

static void test_server_sends_100_continue_when_the_body_is_wanted(void **state)
{
	struct buf in = BUF_INIT;
	int fd = client_connect();

	(void)state;
	client_say(fd, GET("/hello") "POST /echo HTTP/1.1\r\n" HOST
				     "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
	client_expect(fd, &in, "HTTP/1.1 100 Continue\r\n\r\n");
	client_say(fd, "abc");
	client_expect(fd, &in, "\r\n\r\nabc");
	close(fd);
	buf_eat(&in, in.len);
	fd = client_connect();
	client_say(fd, "POST /hello HTTP/1.1\r\n" HOST
		       "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
	client_expect(fd, &in, NULL);
	assert_null(strstr(buf_str(&in), "100 Continue"));
	assert_non_null(strstr(buf_str(&in), "Connection: close\r\n"));
	close(fd);
	buf_done(&in);
}

static void test_server_bounds_whole_bodies(void **state)
{
	struct buf in = BUF_INIT;
	int fd;

	(void)state;
	expect_answer("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1001\r\n\r\n", "HTTP/1.1 413",
		"too_large");
	expect_answer("POST /echo HTTP/1.1\r\n" HOST
		      "Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n",
		"HTTP/1.1 413", "Connection: close");
	fd = client_connect();
	client_say(fd, "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3e9\r\n");
	for (int i = 0; i < 1001; i++)
		client_say(fd, "z");
	client_expect(fd, &in, NULL);
	assert_non_null(strstr(buf_str(&in), "HTTP/1.1 413"));
	close(fd);
	buf_done(&in);
}

static void test_server_drains_bodies_nobody_wants(void **state)
{
	static char big[2000000];
	struct buf in = BUF_INIT;
	int fd = client_connect();

	(void)state;
	client_say(fd, "POST /hello HTTP/1.1\r\n" HOST "Content-Length: 900000\r\n\r\n");
	client_send(fd, big, 900000);
	client_say(fd, GET("/json"));
	client_expect(fd, &in, "{\"a\":1}");
	buf_eat(&in, in.len);
	client_say(fd, "POST /hello HTTP/1.1\r\n" HOST "Content-Length: 2000000\r\n\r\n");
	client_send(fd, big, sizeof big); /* thrown away, but taken: the answer must arrive */
	client_expect(fd, &in, NULL);
	assert_non_null(strstr(buf_str(&in), "Connection: close\r\n"));
	assert_non_null(strstr(buf_str(&in), "hello"));
	close(fd);
	buf_done(&in);
}

static void test_server_refuses_malformed_requests(void **state)
{
	(void)state;
	expect_answer("GARBAGE\r\n\r\n", "HTTP/1.1 400", "\"code\":\"invalid\"");
	expect_answer("GET /hello HTTP/1.1\r\n\r\n", "HTTP/1.1 400", "no Host");
	expect_answer("GET /%zz HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 400", "percent");
	expect_answer(
		"GET http://a/ HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 400", "Connection: close");
	expect_answer("POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
		"HTTP/1.1 400", "chunked");
	expect_answer("POST /count HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\naXX",
		"HTTP/1.1 400", "chunked");
	expect_answer(GET("/hello") "NONSENSE\r\n\r\n", "HTTP/1.1 200", "HTTP/1.1 400");
}

static void test_server_refuses_oversize_heads(void **state)
{
	struct buf text = BUF_INIT;

	(void)state;
	buf_add_str(&text, "GET /hello HTTP/1.1\r\n" HOST);
	for (int i = 0; i < 100; i++)
		buf_addf(&text, "X-%d: y\r\n", i);
	buf_add_str(&text, "\r\n");
	expect_answer(buf_str(&text), "HTTP/1.1 431", "too_large");
	buf_eat(&text, text.len);
	buf_add_str(&text, "GET /hello HTTP/1.1\r\n" HOST "X: ");
	for (int i = 0; i < 100000; i++)
		buf_add_str(&text, "y");
	expect_answer(buf_str(&text), "HTTP/1.1 431", "16 KiB");
	buf_done(&text);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void test_server_answers_after_a_half_close(void **state)
{
	(void)state;
	expect_answer(GET("/later"), "HTTP/1.1 200", "later"); /* client_ask half-closes */
	expect_answer(GET("/later") GET("/later") GET("/json"), "HTTP/1.1 200", "{\"a\":1}");
	expect_answer(GET("/flood?bytes=1000000"), "HTTP/1.1 200", "\r\n0\r\n\r\n");
}

static void test_server_notices_clients_that_go(void **state)
{
	static const char *const asks[] = {
		GET("/never"),		     /* waiting for an answer */
		GET("/drip"),		     /* reading a stream */
		GET("/never") GET("/hello"), /* with more read ahead */
		"PUT /count HTTP/1.1\r\n" HOST
		"Content-Length: 10\r\n\r\nabc", /* in the middle of a body */
		GET("/flood?bytes=50000000"),	 /* not taking the answer */
		"PUT /never HTTP/1.1\r\n" HOST
		"Content-Length: 10\r\n\r\nabc", /* with a body nobody reads */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(asks); i++)
		for (int half = 0; half < 2; half++) {
			char want[32];
			int fd = client_connect();

			client_say(fd, asks[i]);
			await_stats("live=1.");
			if (half) { /* end of file first, the rest later */
				shutdown(fd, SHUT_WR);
				nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
			}
			close(fd);
			snprintf(want, sizeof want, "gone=%zu live=0.", i * 2 + (size_t)half + 1);
			await_stats(want);
		}
}

static void test_server_cuts_streams_that_fail(void **state)
{
	_cleanup_free_ char *answer = client_ask(GET("/cut") GET("/hello"));

	(void)state;
	assert_non_null(strstr(answer, "4\r\nhalf\r\n"));
	assert_null(strstr(answer, "0\r\n\r\n"));
	assert_null(strstr(answer, "hello"));
}

static void test_server_keeps_to_its_time_limits(void **state)
{
	static const struct {
		const char *say;
		const char *answer; /* NULL: closed without a word */
	} cases[] = {
		{ "", NULL },
		{ GET("/hello"), "HTTP/1.1 200" },
		{ "GET /hel", "HTTP/1.1 408" },
		{ "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nab", "HTTP/1.1 408" },
		{ "POST /hello HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nab", "HTTP/1.1 200" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf in = BUF_INIT;
		int fd = client_connect();

		client_say(fd, cases[i].say);
		client_expect(fd, &in, NULL);
		if (cases[i].answer)
			assert_memory_equal(buf_str(&in), cases[i].answer, strlen(cases[i].answer));
		else
			assert_int_equal(in.len, 0);
		close(fd);
		buf_done(&in);
	}
}

static void test_server_drops_clients_that_take_nothing(void **state)
{
	int fd = client_connect();

	(void)state;
	client_say(fd, GET("/flood?bytes=50000000"));
	await_stats("live=1.");
	await_stats("gone=1 live=0.");
	close(fd);
}

static void test_server_survives_slow_senders(void **state)
{
	static const char text[] = GET("/hello");
	struct buf in = BUF_INIT;
	int fd = client_connect();

	(void)state;
	for (size_t i = 0; i < sizeof text - 1; i++)
		client_send(fd, text + i, 1);
	client_expect(fd, &in, "hello");
	close(fd);
	buf_done(&in);
}

/* ---- life of the server, in one process ----------------------------------------------------- */

static void on_stopped(void *arg)
{
	loop_stop(arg);
}

static void test_server_stops_in_order(void **state)
{
	struct loop *loop = loop_new();
	struct http_server *server = http_server_new(loop, handle, loop);
	struct buf in = BUF_INIT;
	int idle, busy, stuck;
	struct loop_timer *stop = loop_timer_new(loop, on_stopped, loop);

	(void)state;
	strcpy(fixture.path, "/tmp/test-http-stop-XXXXXX");
	assert_non_null(mkdtemp(fixture.path));
	strcat(fixture.path, "/s");
	gone_count = live_count = 0;
	assert_int_equal(http_server_listen_unix(server, fixture.path, (gid_t)-1, 0600, NULL), 0);
	idle = client_connect();
	busy = client_connect();
	stuck = client_connect();
	client_say(busy, GET("/later"));
	client_say(stuck, GET("/never"));
	loop_timer_start(stop, 10);
	loop_run(loop);
	assert_int_equal(http_server_get_connections(server), 3);
	http_server_stop(server, 200, on_stopped, loop);
	loop_run(loop);
	assert_int_equal(http_server_get_connections(server), 0);
	assert_int_equal(recv(idle, buf_room(&in, 1), 1, 0), 0);
	client_expect(busy, &in, NULL);
	assert_non_null(strstr(buf_str(&in), "later"));
	assert_non_null(strstr(buf_str(&in), "Connection: close"));
	assert_int_equal(recv(stuck, buf_room(&in, 1), 1, 0), 0);
	assert_int_equal(gone_count, 1);
	assert_int_equal(access(fixture.path, F_OK), -1);
	http_server_free(server);
	loop_timer_free(stop);
	loop_free(loop);
	close(idle);
	close(busy);
	close(stuck);
	buf_done(&in);
	*strrchr(fixture.path, '/') = '\0';
	rmdir(fixture.path);
}

static void test_server_replaces_a_stale_socket_alone(void **state)
{
	struct loop *loop = loop_new();
	struct http_server *first = http_server_new(loop, handle, loop);
	struct http_server *second = http_server_new(loop, handle, loop);
	struct err err = ERR_INIT;
	char dir[] = "/tmp/test-http-stale-XXXXXX";
	char path[64];
	int stale = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	uint16_t port = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/s", dir);
	strcpy(address.sun_path, path);
	assert_int_equal(bind(stale, (struct sockaddr *)&address, sizeof address), 0);
	close(stale);
	assert_int_equal(http_server_listen_unix(first, path, (gid_t)-1, 0600, &err), 0);
	assert_int_equal(http_server_listen_unix(second, path, (gid_t)-1, 0600, &err), -1);
	assert_int_equal(err.kind, ERR_EXISTS);
	assert_int_equal(http_server_listen_unix(second, dir, (gid_t)-1, 0600, &err), -1);
	assert_int_equal(err.kind, ERR_EXISTS);
	assert_int_equal(http_server_listen_tcp(first, "127.0.0.1", 0, &port, &err), 0);
	assert_int_not_equal(port, 0);
	assert_int_equal(http_server_listen_tcp(second, "127.0.0.1", port, &port, &err), -1);
	assert_int_equal(http_server_listen_tcp(second, "localhost", 0, &port, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	http_server_free(second);
	http_server_free(first);
	loop_free(loop);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_server_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_fronts_are_asked_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_leaves_out_headers_that_would_split, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_answers_pipelined_requests_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_streams_up_with_pauses, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_streams_down_to_a_slow_reader, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_sends_100_continue_when_the_body_is_wanted, setup, teardown),
		cmocka_unit_test_setup_teardown(test_server_bounds_whole_bodies, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_drains_bodies_nobody_wants, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_refuses_malformed_requests, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_refuses_oversize_heads, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_answers_after_a_half_close, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_notices_clients_that_go, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_cuts_streams_that_fail, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_keeps_to_its_time_limits, setup_short, teardown),
		cmocka_unit_test_setup_teardown(
			test_server_drops_clients_that_take_nothing, setup_short, teardown),
		cmocka_unit_test_setup_teardown(test_server_survives_slow_senders, setup, teardown),
		cmocka_unit_test(test_server_stops_in_order),
		cmocka_unit_test(test_server_replaces_a_stale_socket_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
