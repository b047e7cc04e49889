/* test_api_pump.c - bytes of a real helper through a real HTTP server: whole, slow, failing, given
 * up
 *
 * The stream of core is stood in for by the flow it is made of. Needs root: a helper has namespaces
 * of its own. */
#include "http_fixture.h"
#include "api/api_internal.h"
#include "base/file.h"
#include "helper/flow.h"
#include <stdatomic.h>
#include <sys/mman.h>

enum { BIG = 24 * 1024 * 1024, BLOCK = 64 * 1024 };

/* Seen by the test, the server and its helpers. */
static struct {
	atomic_size_t written;
	atomic_uint freed;
} * shared;

/* ---- the stream ----------------------------------------------------------------------------- */

struct disk_stream {
	struct flow *flow;
	void *arg;
	const char *what;
};

size_t disk_stream_read(struct disk_stream *stream, void *data, size_t len)
{
	return flow_read(stream->flow, data, len);
}

void disk_stream_pause(struct disk_stream *stream, bool paused)
{
	flow_pause(stream->flow, paused);
}

void disk_stream_free(struct disk_stream *stream)
{
	if (!stream)
		return;
	flow_free(stream->flow);
	free(stream);
	shared->freed++;
}

static void on_readable(struct flow *flow, void *arg)
{
	struct disk_stream *stream = arg;

	(void)flow;
	pump_ops.on_readable(stream, stream->arg);
}

static void on_done(struct flow *flow, const struct err *err, void *arg)
{
	struct disk_stream *stream = arg;

	(void)flow;
	pump_ops.on_done(stream, err, stream->arg);
}

static int write_bytes(int out, size_t count, struct err *err)
{
	static char block[BLOCK];

	for (size_t at = 0; at < count; at += sizeof block) {
		memset(block, 'a' + (int)(at / BLOCK % 26), sizeof block);
		if (fd_write_all(out, block, sizeof block, err) < 0)
			return -1;
		shared->written += sizeof block;
	}
	return 0;
}

static int run(int out, void *arg, struct err *err)
{
	const struct disk_stream *stream = arg;

	if (!strcmp(stream->what, "/big"))
		return write_bytes(out, BIG, err);
	if (!strcmp(stream->what, "/late") && write_bytes(out, BLOCK, err) < 0)
		return -1;
	if (!strcmp(stream->what, "/empty"))
		return 0;
	return err_set(err, ERR_NOT_FOUND, "nothing of that kind");
}

static int stream_start(
	struct loop *loop, const char *what, void *arg, struct disk_stream **ret, struct err *err)
{
	static const struct flow_ops ops = { run, on_readable, on_done };
	struct disk_stream *stream = xnew(struct disk_stream);

	if (!strcmp(what, "/refused")) {
		free(stream);
		return err_set(err, ERR_STATE, "not now");
	}
	stream->arg = arg;
	stream->what = what;
	if (flow_start(loop, &ops, stream, NULL, 0, &stream->flow, err) < 0) {
		free(stream);
		return -1;
	}
	*ret = stream;
	return 0;
}

static void handle(struct http_request *request, void *arg)
{
	static struct api api;
	struct call call = { .api = &api, .request = request };
	struct pump *pump = pump_new(&call, "application/x-tar");
	struct err err = ERR_INIT;

	pump_started(pump, stream_start(arg, http_request_path(request), pump, &pump->stream, &err),
		&err);
}

/* ---- the promises --------------------------------------------------------------------------- */

static int set_up(void **state)
{
	(void)state;
	shared->written = 0;
	shared->freed = 0;
	fixture_start(handle, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_stop();
	return 0;
}

/* What the chunks hold; *ret_whole: the last one came. */
static size_t count_body(struct buf *in, bool *ret_whole)
{
	char *at = strstr(buf_str(in), "\r\n\r\n") + 4;
	char *end = (char *)buf_head(in) + in->len;
	size_t sum = 0;

	*ret_whole = false;
	while (at < end) {
		size_t len = strtoul(at, &at, 16);

		if (!len) {
			*ret_whole = true;
			return sum;
		}
		at += 2;
		for (size_t i = 0; i < len && at + i < end; i += 4096)
			assert_int_equal(at[i], 'a' + (int)((sum + i) / BLOCK % 26));
		sum += len;
		at += len + 2;
	}
	return sum;
}

static void wait_for_freed(void)
{
	for (int i = 0; shared->freed != 1; i++) {
		assert_true(i < 1000);
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
}

static void test_pump_gives_the_client_all_bytes(void **state)
{
	struct buf in = BUF_INIT;
	int fd = client_connect();
	bool whole;

	(void)state;
	client_say(fd, "GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	client_expect(fd, &in, NULL);
	close(fd);
	assert_memory_equal(buf_head(&in), "HTTP/1.1 200 ", 13);
	assert_int_equal(count_body(&in, &whole), BIG);
	assert_true(whole);
	assert_int_equal(shared->freed, 1);
	buf_done(&in);
}

static void test_pump_of_nothing_is_an_empty_answer(void **state)
{
	(void)state;
	expect_answer("GET /empty HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 200 ", "\r\n\r\n0\r\n\r\n");
}

static void test_pump_error_before_the_first_byte_is_plain(void **state)
{
	(void)state;
	expect_answer("GET /missing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 404 ", "nothing of that kind");
	assert_int_equal(shared->freed, 1);
	expect_answer("GET /refused HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 409 ", "not now");
	assert_int_equal(shared->freed, 1); /* there was none */
}

static void test_pump_error_later_cuts_the_connection(void **state)
{
	struct buf in = BUF_INIT;
	int fd = client_connect();
	bool whole;

	(void)state;
	client_say(fd, "GET /late HTTP/1.1\r\nHost: x\r\n\r\n");
	client_expect(fd, &in, NULL); /* keep-alive, and yet the end comes */
	close(fd);
	assert_memory_equal(buf_head(&in), "HTTP/1.1 200 ", 13);
	assert_int_equal(count_body(&in, &whole), BLOCK);
	assert_false(whole);
	buf_done(&in);
}

static void test_pump_slow_client_holds_the_helper_back(void **state)
{
	struct buf in = BUF_INIT;
	int fd = client_connect();
	size_t before;
	bool whole;

	(void)state;
	client_say(fd, "GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
	before = shared->written;
	assert_true(before > 0 && before < BIG / 4);
	nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	assert_int_equal(shared->written, before);
	client_expect(fd, &in, NULL);
	close(fd);
	assert_int_equal(count_body(&in, &whole), BIG);
	assert_true(whole);
	buf_done(&in);
}

static void test_pump_client_that_goes_ends_the_helper(void **state)
{
	struct buf in = BUF_INIT;
	int fd = client_connect();
	size_t before;

	(void)state;
	client_say(fd, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
	client_expect(fd, &in, "200 OK");
	close(fd);
	wait_for_freed();
	before = shared->written;
	assert_true(before < BIG);
	nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	assert_int_equal(shared->written, before);
	buf_done(&in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_pump_gives_the_client_all_bytes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_pump_of_nothing_is_an_empty_answer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_pump_error_before_the_first_byte_is_plain, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_pump_error_later_cuts_the_connection, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_pump_slow_client_holds_the_helper_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_pump_client_that_goes_ends_the_helper, set_up, tear_down),
	};

	shared = mmap(
		NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
