/* test_link.c - the daemon's end of the protocol against a box-init that keeps to it, and one that
 * does not */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "link/link.h"
#include "base/file.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

/* A pair of sockets: the link on one end, the test playing box-init on the other. */
struct rig {
	struct loop *loop;
	struct link *link;
	int guest;
	int requests;
	uint64_t request_id;
	struct buf heard;
	unsigned ready, lost, replies, data, closed, errors, gaps, exits, writable, events;
	size_t bytes;
	struct err err;
	bool close_on_data, free_on_data;
	uint64_t time_us;
};

static void on_ready(struct link *link, void *arg)
{
	(void)link;
	((struct rig *)arg)->ready++;
}

static void on_event(
	struct link *link, enum wire_event event, const struct wire_exec_info *info, void *arg)
{
	(void)link;
	assert_int_equal(event, WIRE_EVENT_EXEC_STARTED);
	assert_string_equal(info->id, "abc");
	((struct rig *)arg)->events++;
}

static void on_lost(struct link *link, const struct err *err, void *arg)
{
	struct rig *rig = arg;

	rig->lost++;
	rig->err = *err;
	rig->link = NULL;
	link_free(link);
}

static void on_request(struct link *link, const struct wire_request *request, void *arg)
{
	struct rig *rig = arg;

	(void)link;
	rig->requests++;
	rig->request_id = request->id;
}

static const struct link_ops link_ops = { on_ready, on_event, on_request, on_lost };

static void on_reply(struct chan *chan, struct wire_reader *reply, void *arg)
{
	(void)chan;
	assert_int_equal(wire_get_u32(reply), 7);
	((struct rig *)arg)->replies++;
}

static void on_data(struct chan *chan, enum wire_stream stream, uint64_t offset, const void *data,
	size_t len, void *arg)
{
	struct rig *rig = arg;

	(void)stream;
	(void)offset;
	(void)data;
	rig->data++;
	rig->bytes += len;
	if (rig->close_on_data)
		chan_close(chan);
	if (rig->free_on_data) {
		link_free(rig->link);
		rig->link = NULL;
	}
}

static void on_gap(struct chan *chan, uint64_t offset, uint64_t lost, void *arg)
{
	(void)chan;
	assert_int_equal(offset, 5);
	assert_int_equal(lost, 6);
	((struct rig *)arg)->gaps++;
}

static void on_exit_frame(struct chan *chan, const struct wire_exit *exit, void *arg)
{
	(void)chan;
	assert_int_equal(exit->code, 3);
	((struct rig *)arg)->exits++;
}

static void on_time(struct chan *chan, uint64_t time_us, void *arg)
{
	(void)chan;
	((struct rig *)arg)->time_us = time_us;
}

static void on_writable(struct chan *chan, void *arg)
{
	(void)chan;
	((struct rig *)arg)->writable++;
}

static void on_chan_error(struct chan *chan, const struct err *err, void *arg)
{
	(void)chan;
	((struct rig *)arg)->errors++;
	((struct rig *)arg)->err = *err;
}

static void on_closed(struct chan *chan, void *arg)
{
	(void)chan;
	((struct rig *)arg)->closed++;
}

static const struct chan_ops chan_ops = { .on_reply = on_reply,
	.on_data = on_data,
	.on_gap = on_gap,
	.on_time = on_time,
	.on_exit = on_exit_frame,
	.on_writable = on_writable,
	.on_error = on_chan_error,
	.on_closed = on_closed };

static void stop_loop(void *arg)
{
	loop_stop(arg);
}

static void spin(struct rig *rig)
{
	struct loop_timer *timer = loop_timer_new(rig->loop, stop_loop, rig->loop);

	loop_timer_start(timer, 5);
	loop_run(rig->loop);
	loop_timer_free(timer);
}

static void say(struct rig *rig, struct buf *frames)
{
	assert_int_equal(fd_write_all(rig->guest, buf_head(frames), frames->len, NULL), 0);
	buf_done(frames);
	spin(rig);
}

static void say_hello(struct rig *rig, uint16_t version)
{
	struct wire_hello hello = {
		.magic = WIRE_MAGIC, .version = version, .version_min = version
	};
	struct buf out = BUF_INIT;
	size_t mark = wire_begin(&out, WIRE_HELLO, 0);

	wire_put_hello(&out, &hello);
	wire_end(&out, mark);
	say(rig, &out);
}

static void say_empty(struct rig *rig, enum wire_type type, uint32_t channel)
{
	struct buf out = BUF_INIT;

	wire_end(&out, wire_begin(&out, type, channel));
	say(rig, &out);
}

static int setup(void **state)
{
	struct rig *rig = xnew(struct rig);
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(fd_set_nonblocking(pair[0], NULL), 0);
	rig->loop = loop_new();
	rig->guest = pair[1];
	rig->link = link_new(rig->loop, pair[0], &link_ops, rig);
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	link_free(rig->link);
	loop_free(rig->loop);
	close(rig->guest);
	free(rig);
	return 0;
}

static struct chan *open_one(struct rig *rig)
{
	struct chan *chan;
	struct err err = ERR_INIT;

	say_hello(rig, WIRE_VERSION);
	assert_int_equal(rig->ready, 1);
	chan = chan_open(rig->link, WIRE_OP_STATS, NULL, &chan_ops, rig, &err);
	assert_non_null(chan);
	return chan;
}

static void put_reply(struct buf *out)
{
	size_t mark = wire_begin(out, WIRE_REPLY, 1);

	wire_put_u32(out, 7);
	wire_end(out, mark);
}

static struct chan *open_replied(struct rig *rig)
{
	struct chan *chan = open_one(rig);
	struct buf out = BUF_INIT;

	put_reply(&out);
	say(rig, &out);
	assert_int_equal(rig->replies, 1);
	return chan;
}

static void test_link_carries_a_whole_exchange(void **state)
{
	struct rig *rig = *state;
	struct buf out = BUF_INIT;
	struct wire_exit exit = { .reason = WIRE_EXIT_EXITED, .code = 3 };
	size_t mark;

	open_one(rig);
	put_reply(&out);
	wire_add_data(&out, 1, WIRE_STREAM_STDOUT, 0, "hello", 5);
	mark = wire_begin(&out, WIRE_GAP, 1);
	wire_put_u64(&out, 5);
	wire_put_u64(&out, 6);
	wire_end(&out, mark);
	mark = wire_begin(&out, WIRE_EXIT, 1);
	wire_put_exit(&out, &exit);
	wire_end(&out, mark);
	wire_end(&out, wire_begin(&out, WIRE_CLOSE, 1));
	say(rig, &out);
	assert_int_equal(rig->replies, 1);
	assert_int_equal(rig->bytes, 5);
	assert_int_equal(rig->gaps, 1);
	assert_int_equal(rig->exits, 1);
	assert_int_equal(rig->closed, 1);
	assert_int_equal(rig->lost, 0);
}

static void test_link_refuses_another_version(void **state)
{
	struct rig *rig = *state;

	say_hello(rig, WIRE_VERSION + 1);
	assert_int_equal(rig->lost, 1);
	assert_int_equal(rig->err.kind, ERR_PROTOCOL);
}

static void test_link_takes_an_older_box_init_and_tells(void **state)
{
	struct rig *rig = *state;

	assert_int_equal(link_version(rig->link), 0);
	say_hello(rig, WIRE_VERSION_MIN);
	assert_int_equal(rig->lost, 0);
	assert_int_equal(link_version(rig->link), WIRE_VERSION_MIN);
}

static void say_request(struct rig *rig, uint64_t id, const char *word)
{
	const char *words[] = { word, NULL };
	struct buf out = BUF_INIT;
	size_t mark = wire_begin(&out, WIRE_REQUEST, 0);

	wire_put_request(&out, &(struct wire_request){ .id = id, .words = words });
	wire_end(&out, mark);
	say(rig, &out);
}

static void test_link_passes_on_what_the_box_asks_for(void **state)
{
	struct rig *rig = *state;

	say_hello(rig, WIRE_VERSION);
	say_request(rig, 42, "info");
	assert_int_equal(rig->lost, 0);
	assert_int_equal(rig->requests, 1);
	assert_int_equal(rig->request_id, 42);
}

static void test_link_refuses_requests_of_a_box_init_that_knows_none(void **state)
{
	struct rig *rig = *state;

	say_hello(rig, WIRE_VERSION_INSIDE - 1);
	say_request(rig, 1, "info");
	assert_int_equal(rig->requests, 0);
	assert_int_equal(rig->lost, 1);
	assert_int_equal(rig->err.kind, ERR_PROTOCOL);
}

static void say_time(struct rig *rig)
{
	struct buf out = BUF_INIT;
	size_t mark;

	put_reply(&out);
	mark = wire_begin(&out, WIRE_TIME, 1);
	wire_put_u64(&out, 1234567);
	wire_end(&out, mark);
	say(rig, &out);
}

static void test_link_passes_on_when_output_came(void **state)
{
	struct rig *rig = *state;

	open_one(rig);
	say_time(rig);
	assert_int_equal(rig->lost, 0);
	assert_int_equal(rig->time_us, 1234567);
}

static void test_link_refuses_times_of_a_box_init_that_knows_none(void **state)
{
	struct rig *rig = *state;

	say_hello(rig, WIRE_VERSION_TIMES - 1);
	assert_non_null(chan_open(rig->link, WIRE_OP_STATS, NULL, &chan_ops, rig, NULL));
	say_time(rig);
	assert_int_equal(rig->time_us, 0);
	assert_int_equal(rig->lost, 1);
	assert_int_equal(rig->err.kind, ERR_PROTOCOL);
}

static void test_link_refuses_a_malformed_request(void **state)
{
	struct rig *rig = *state;

	say_hello(rig, WIRE_VERSION);
	say_empty(rig, WIRE_REQUEST, 0);
	assert_int_equal(rig->requests, 0);
	assert_int_equal(rig->lost, 1);
}

static void test_link_refuses_frames_before_hello(void **state)
{
	struct rig *rig = *state;

	say_empty(rig, WIRE_CLOSE, 1);
	assert_int_equal(rig->lost, 1);
}

static void test_link_refuses_channel_never_opened(void **state)
{
	struct rig *rig = *state;

	open_one(rig);
	say_empty(rig, WIRE_END, 99);
	assert_int_equal(rig->lost, 1);
	assert_int_equal(rig->errors, 1); /* the open channel hears of it first */
}

static void test_link_refuses_second_reply(void **state)
{
	struct rig *rig = *state;
	struct buf out = BUF_INIT;

	open_one(rig);
	for (int i = 0; i < 2; i++)
		put_reply(&out);
	say(rig, &out);
	assert_int_equal(rig->replies, 1);
	assert_int_equal(rig->lost, 1);
}

static void put_early(struct buf *out, enum wire_type type)
{
	size_t mark;

	if (type == WIRE_DATA) {
		wire_add_data(out, 1, WIRE_STREAM_STDOUT, 0, "early", 5);
		return;
	}
	mark = wire_begin(out, type, 1);
	if (type == WIRE_GAP) {
		wire_put_u64(out, 5);
		wire_put_u64(out, 6);
	} else if (type == WIRE_EXIT) {
		wire_put_exit(out, &(struct wire_exit){ .reason = WIRE_EXIT_EXITED, .code = 3 });
	}
	wire_end(out, mark);
}

static void refuse_early(struct rig *rig, enum wire_type type)
{
	struct buf out = BUF_INIT;

	open_one(rig);
	put_early(&out, type);
	say(rig, &out);
	assert_int_equal(rig->lost, 1);
	assert_int_equal(rig->err.kind, ERR_PROTOCOL);
	assert_int_equal(rig->errors, 1);
	assert_int_equal(rig->data + rig->gaps + rig->exits, 0);
}

static void test_link_refuses_data_before_the_reply(void **state)
{
	refuse_early(*state, WIRE_DATA);
}

static void test_link_refuses_end_before_the_reply(void **state)
{
	refuse_early(*state, WIRE_END);
}

static void test_link_refuses_gap_before_the_reply(void **state)
{
	refuse_early(*state, WIRE_GAP);
}

static void test_link_refuses_exit_before_the_reply(void **state)
{
	refuse_early(*state, WIRE_EXIT);
}

/* One frame of a resize is 16 bytes; the box reads none of them. */
static void test_signals_and_sizes_do_not_pile_up(void **state)
{
	struct rig *rig = *state;
	struct chan *chan = open_replied(rig);
	size_t heard = 0, got;
	uint8_t waste[65536];

	for (int i = 0; i < 200000; i++) {
		chan_resize(chan, 24, 80);
		chan_signal(chan, 2);
	}
	do {
		ssize_t n;

		spin(rig);
		n = recv(rig->guest, waste, sizeof waste, MSG_DONTWAIT);
		got = n > 0 ? (size_t)n : 0;
		heard += got;
	} while (got);
	assert_int_equal(rig->lost, 0);
	assert_in_range(heard, 1024 * 1024, 1024 * 1024 + 4096);
}

static void test_link_refuses_data_beyond_the_window(void **state)
{
	struct rig *rig = *state;
	_cleanup_free_ uint8_t *block = xcalloc(1, WIRE_DATA_MAX);

	open_replied(rig);
	/* The reader consumes nothing, so the eighth block does not fit. */
	for (int i = 0; i < WIRE_WINDOW / WIRE_DATA_MAX && !rig->lost; i++) {
		struct buf out = BUF_INIT;

		wire_add_data(&out, 1, WIRE_STREAM_MAIN, 0, block, WIRE_DATA_MAX);
		say(rig, &out);
	}
	assert_int_equal(rig->lost, 1);
	assert_int_equal(rig->data, WIRE_WINDOW / WIRE_DATA_MAX - 1);
}

static void test_link_refuses_window_beyond_its_size(void **state)
{
	struct rig *rig = *state;
	struct buf out = BUF_INIT;
	size_t mark;

	open_one(rig);
	mark = wire_begin(&out, WIRE_WINDOW_ADD, 1);
	wire_put_u32(&out, 1);
	wire_end(&out, mark);
	say(rig, &out);
	assert_int_equal(rig->lost, 1);
}

static void test_link_refuses_oversized_frame(void **state)
{
	struct rig *rig = *state;
	uint32_t head[3] = { WIRE_PAYLOAD_MAX + 1, WIRE_DATA, 1 };
	struct buf out = BUF_INIT;

	open_one(rig);
	buf_add(&out, head, sizeof head);
	say(rig, &out);
	assert_int_equal(rig->lost, 1);
}

static void test_link_survives_close_inside_callback(void **state)
{
	struct rig *rig = *state;
	struct buf out = BUF_INIT;

	open_replied(rig);
	rig->close_on_data = true;
	wire_add_data(&out, 1, WIRE_STREAM_MAIN, 0, "a", 1);
	wire_add_data(&out, 1, WIRE_STREAM_MAIN, 0, "b", 1);
	wire_end(&out, wire_begin(&out, WIRE_CLOSE, 1));
	say(rig, &out);
	assert_int_equal(rig->data, 1);
	assert_int_equal(rig->closed, 0); /* no callback after chan_close */
	assert_int_equal(rig->lost, 0);
}

static void test_link_survives_free_inside_callback(void **state)
{
	struct rig *rig = *state;
	struct buf out = BUF_INIT;

	open_replied(rig);
	rig->free_on_data = true;
	wire_add_data(&out, 1, WIRE_STREAM_MAIN, 0, "a", 1);
	wire_add_data(&out, 1, WIRE_STREAM_MAIN, 0, "b", 1);
	say(rig, &out);
	assert_int_equal(rig->data, 1);
	assert_int_equal(rig->errors, 1);
}

static void test_chan_sends_no_more_than_its_window(void **state)
{
	struct rig *rig = *state;
	struct chan *chan = open_one(rig);
	_cleanup_free_ uint8_t *block = xcalloc(1, WIRE_WINDOW * 2);
	size_t sent = chan_send(chan, block, WIRE_WINDOW * 2);
	struct buf out = BUF_INIT;
	size_t mark;

	assert_true(sent > 0 && sent < WIRE_WINDOW);
	assert_int_equal(chan_send(chan, block, 1), 0);
	mark = wire_begin(&out, WIRE_WINDOW_ADD, 1);
	wire_put_u32(&out, 1000);
	wire_end(&out, mark);
	/* The test reads what was sent, else the socket's own buffer stops it. */
	for (size_t got = 0; got < sent;) {
		ssize_t n;

		spin(rig);
		n = recv(rig->guest, block, WIRE_WINDOW * 2, MSG_DONTWAIT);
		assert_true(n > 0);
		got += (size_t)n;
	}
	say(rig, &out);
	assert_int_equal(rig->writable, 1);
	assert_true(chan_send_room(chan) >= 900);
}

/* ---- a link that has no connection yet ------------------------------------------------------ */

struct waiting {
	struct rig rig;
	int socket; /* of ours; the link's when it is attached */
};

static void wait_setup(struct waiting *waiting)
{
	int pair[2];

	*waiting = (struct waiting){ .rig.loop = loop_new() };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(fd_set_nonblocking(pair[0], NULL), 0);
	waiting->socket = pair[0];
	waiting->rig.guest = pair[1];
	waiting->rig.link = link_new(waiting->rig.loop, -1, &link_ops, &waiting->rig);
}

static void wait_done(struct waiting *waiting)
{
	link_free(waiting->rig.link);
	close(waiting->rig.guest);
	buf_done(&waiting->rig.heard);
	loop_free(waiting->rig.loop);
}

static void test_what_was_asked_before_the_connection_is_sent_after_it(void **state)
{
	struct waiting waiting;
	struct rig *rig = &waiting.rig;
	struct chan *first, *second;
	struct wire_frame frame;
	struct buf heard = BUF_INIT, reply = BUF_INIT;
	size_t mark;
	ssize_t got;

	(void)state;
	wait_setup(&waiting);
	first = chan_open(rig->link, WIRE_OP_STATS, NULL, &chan_ops, rig, NULL);
	second = chan_open(rig->link, WIRE_OP_STATS, NULL, &chan_ops, rig, NULL);
	assert_non_null(first);
	assert_non_null(second);
	assert_int_equal(chan_send(first, "abc", 3), 3);
	chan_close(second);
	spin(rig);
	assert_int_equal(rig->errors + rig->lost + rig->ready, 0);
	link_attach(rig->link, waiting.socket);
	spin(rig);
	got = read(rig->guest, buf_room(&heard, 4096), 4096);
	assert_true(got > 0);
	buf_grew(&heard, (size_t)got);
	for (int i = 0; i < 5; i++) {
		static const enum wire_type types[] = { WIRE_HELLO, WIRE_OPEN, WIRE_OPEN, WIRE_DATA,
			WIRE_CLOSE };

		assert_int_equal(wire_frame_parse(&heard, &frame, NULL), 1);
		assert_int_equal(frame.type, types[i]);
		buf_eat(&heard, WIRE_HEADER + frame.len);
	}
	assert_int_equal(heard.len, 0);
	buf_done(&heard);
	say_hello(rig, WIRE_VERSION);
	mark = wire_begin(&reply, WIRE_REPLY, 1);
	wire_put_u32(&reply, 7);
	wire_end(&reply, mark);
	say(rig, &reply);
	assert_int_equal(rig->ready, 1);
	assert_int_equal(rig->replies, 1);
	wait_done(&waiting);
}

static void test_all_channels_hear_why_there_is_no_connection(void **state)
{
	struct waiting waiting;
	struct rig *rig = &waiting.rig;
	struct err why = ERR_INIT;

	(void)state;
	wait_setup(&waiting);
	for (int i = 0; i < 3; i++)
		assert_non_null(chan_open(rig->link, WIRE_OP_STATS, NULL, &chan_ops, rig, NULL));
	err_set(&why, ERR_STATE, "it does not wake");
	link_fail(rig->link, &why);
	assert_int_equal(rig->errors, 3);
	assert_int_equal(rig->lost, 1);
	assert_int_equal(rig->err.kind, ERR_STATE);
	assert_null(rig->link);
	close(waiting.socket);
	wait_done(&waiting);
}

static void test_a_link_without_connection_holds_only_so_much(void **state)
{
	struct waiting waiting;
	struct rig *rig = &waiting.rig;
	struct buf request = BUF_INIT;
	struct err why = ERR_INIT;
	unsigned opened = 0;

	(void)state;
	wait_setup(&waiting);
	memset(buf_room(&request, 32768), 'x', 32768);
	buf_grew(&request, 32768);
	while (opened < 100000 &&
		chan_open(rig->link, WIRE_OP_STATS, &request, &chan_ops, rig, &why))
		opened++;
	assert_int_equal(why.kind, ERR_LIMIT);
	assert_true(opened > 10 && opened < 100);
	buf_done(&request);
	close(waiting.socket);
	wait_done(&waiting);
}

static void test_work_in_the_background_is_not_counted(void **state)
{
	struct waiting waiting;
	struct rig *rig = &waiting.rig;
	struct chan *first, *second;

	(void)state;
	wait_setup(&waiting);
	first = chan_open(rig->link, WIRE_OP_STATS, NULL, &chan_ops, rig, NULL);
	second = chan_open(rig->link, WIRE_OP_STATS, NULL, &chan_ops, rig, NULL);
	assert_int_equal(link_open_work(rig->link), 2);
	chan_set_background(first);
	assert_int_equal(link_open_work(rig->link), 1);
	assert_int_equal(link_traffic(rig->link), 0);
	chan_send(second, "abc", 3);
	assert_int_equal(link_traffic(rig->link), 3);
	chan_close(second);
	assert_int_equal(link_open_work(rig->link), 0);
	close(waiting.socket);
	wait_done(&waiting);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_link_carries_a_whole_exchange, setup, teardown),
		cmocka_unit_test_setup_teardown(test_link_refuses_another_version, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_passes_on_when_output_came, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_times_of_a_box_init_that_knows_none, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_takes_an_older_box_init_and_tells, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_passes_on_what_the_box_asks_for, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_requests_of_a_box_init_that_knows_none, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_a_malformed_request, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_frames_before_hello, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_channel_never_opened, setup, teardown),
		cmocka_unit_test_setup_teardown(test_link_refuses_second_reply, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_data_before_the_reply, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_end_before_the_reply, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_gap_before_the_reply, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_exit_before_the_reply, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_signals_and_sizes_do_not_pile_up, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_data_beyond_the_window, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_refuses_window_beyond_its_size, setup, teardown),
		cmocka_unit_test_setup_teardown(test_link_refuses_oversized_frame, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_survives_close_inside_callback, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_link_survives_free_inside_callback, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_chan_sends_no_more_than_its_window, setup, teardown),
		cmocka_unit_test(test_what_was_asked_before_the_connection_is_sent_after_it),
		cmocka_unit_test(test_all_channels_hear_why_there_is_no_connection),
		cmocka_unit_test(test_a_link_without_connection_holds_only_so_much),
		cmocka_unit_test(test_work_in_the_background_is_not_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
