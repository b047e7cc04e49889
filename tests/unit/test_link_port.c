/* test_link_port.c - both ends of a connection over a port of a VM, where connections are not told
 * apart: the daemon's link, and box-init's
 *
 * A pair of sockets stands for the port. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/file.h"
#include "guest/conn.h"
#include "guest/control.h"
#include "guest/modprobe.h"
#include "guest/port.h"
#include "guest/watch.h"
#include "link/link.h"
#include "loop/loop.h"
#include <fcntl.h>
#include <sys/socket.h>

struct rig {
	struct loop *loop;
	struct link *link;
	int guest;
	unsigned ready, lost, connects;
	struct err err;
};

static void on_ready(struct link *link, void *arg)
{
	(void)link;
	((struct rig *)arg)->ready++;
}

static void on_lost(struct link *link, const struct err *err, void *arg)
{
	struct rig *rig = arg;

	rig->lost++;
	rig->err = *err;
	rig->link = NULL;
	link_free(link);
}

static const struct link_ops link_ops = { .on_ready = on_ready, .on_lost = on_lost };

static int connect_again(void *arg, int *ret, struct err *err)
{
	struct rig *rig = arg;
	int ends[2];

	(void)err;
	if (rig->guest >= 0)
		close(rig->guest);
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	rig->guest = ends[0];
	rig->connects++;
	*ret = ends[1];
	return 0;
}

static void on_enough(void *arg)
{
	loop_stop(arg);
}

static void run(struct rig *rig, uint64_t ms)
{
	struct loop_timer *timer = loop_timer_new(rig->loop, on_enough, rig->loop);

	loop_timer_start(timer, ms);
	loop_run(rig->loop);
	loop_timer_free(timer);
}

static void rig_open(struct rig *rig)
{
	int fd = -1;

	*rig = (struct rig){ .loop = loop_new(), .guest = -1 };
	rig->link = link_new(rig->loop, -1, &link_ops, rig);
	connect_again(rig, &fd, NULL);
	link_attach_port(rig->link, fd, connect_again, rig);
}

static void rig_close(struct rig *rig)
{
	link_free(rig->link);
	loop_free(rig->loop);
	close(rig->guest);
}

static struct buf make_hello(void)
{
	struct buf out = BUF_INIT;
	size_t mark = wire_begin(&out, WIRE_HELLO, 0);

	wire_put_hello(&out, &(struct wire_hello){ WIRE_MAGIC, WIRE_VERSION, 1, 5 });
	wire_end(&out, mark);
	return out;
}

static void send_hello(int fd)
{
	struct buf hello = make_hello();

	assert_int_equal(fd_write_all(fd, buf_head(&hello), hello.len, NULL), 0);
	buf_done(&hello);
}

/* ---- the daemon's end ----------------------------------------------------------------------- */

static void test_nothing_is_sent_before_the_hello(void **state)
{
	struct rig rig;
	char byte[256];

	(void)state;
	rig_open(&rig);
	assert_non_null(chan_open(rig.link, WIRE_OP_STATS, NULL, NULL, NULL, NULL));
	run(&rig, 30);
	assert_int_equal(read(rig.guest, byte, sizeof byte), -1);
	send_hello(rig.guest);
	run(&rig, 30);
	assert_int_equal(rig.ready, 1);
	assert_true(read(rig.guest, byte, sizeof byte) > WIRE_HEADER + WIRE_HELLO_SIZE);
	rig_close(&rig);
}

static void test_bytes_before_the_hello_are_dropped(void **state)
{
	static const char old[] = "the rest of a frame of the connection before, \x10\0\0\0\x01";
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_int_equal(fd_write_all(rig.guest, old, sizeof old, NULL), 0);
	send_hello(rig.guest);
	run(&rig, 50);
	assert_int_equal(rig.ready, 1);
	assert_int_equal(rig.connects, 1);
	rig_close(&rig);
}

static void test_without_a_hello_it_comes_again(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	run(&rig, 300);
	assert_int_equal(rig.connects, 1);
	run(&rig, 300);
	assert_int_equal(rig.connects, 2);
	assert_int_equal(rig.lost, 0);
	send_hello(rig.guest);
	run(&rig, 30);
	assert_int_equal(rig.ready, 1);
	run(&rig, 1000);
	assert_int_equal(rig.connects, 2);
	rig_close(&rig);
}

static void test_a_second_hello_begins_anew(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	send_hello(rig.guest);
	run(&rig, 30);
	send_hello(rig.guest);
	run(&rig, 30);
	assert_int_equal(rig.lost, 1);
	assert_int_equal(rig.err.kind, ERR_UNAVAILABLE);
	rig_close(&rig);
}

/* ---- box-init's end ------------------------------------------------------------------------- */

static void on_turn(struct timer *timer)
{
	(void)timer;
}

static void turn(unsigned turns)
{
	static struct timer timer;

	for (unsigned i = 0; i < turns; i++) {
		timer_arm(&timer, 1, on_turn);
		watch_loop_turn();
		conn_settle();
	}
}

static void test_the_guest_greets_when_it_may(void **state)
{
	struct buf request = BUF_INIT;
	uint8_t bytes[512];
	int ends[2];
	ssize_t got;
	size_t mark;

	(void)state;
	assert_int_equal(watch_loop_open(NULL), 0);
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	port_open(ends[0]);
	turn(3);
	/* It was not told who it is. */
	assert_int_equal(read(ends[1], bytes, sizeof bytes), -1);
	port_serve(true);
	turn(3);
	got = read(ends[1], bytes, sizeof bytes);
	assert_int_equal(got, WIRE_HEADER + WIRE_HELLO_SIZE);
	/* Half a frame of somebody before, then a daemon that keeps to the protocol. */
	assert_int_equal(fd_write_all(ends[1], "\x05\x01 old bytes", 12, NULL), 0);
	send_hello(ends[1]);
	mark = wire_begin(&request, WIRE_OPEN, 1);
	wire_put_u8(&request, WIRE_OP_EXEC_LIST);
	wire_end(&request, mark);
	assert_int_equal(fd_write_all(ends[1], buf_head(&request), request.len, NULL), 0);
	turn(5);
	/* A reply of no execs, and the end of the channel. */
	got = read(ends[1], bytes, sizeof bytes);
	assert_int_equal(got, WIRE_HEADER + 4 + WIRE_HEADER);
	/* A hello in the middle begins a new connection, which is greeted. */
	send_hello(ends[1]);
	turn(5);
	got = read(ends[1], bytes, sizeof bytes);
	assert_int_equal(got, WIRE_HEADER + WIRE_HELLO_SIZE);
	/* Another generation: nobody is served. */
	port_serve(false);
	turn(3);
	send_hello(ends[1]);
	turn(3);
	assert_int_equal(read(ends[1], bytes, sizeof bytes), -1);
	buf_done(&request);
	close(ends[1]);
}

/* ---- what the guest reads of its kernel ------------------------------------------------------ */

static const char timers[] = "Timer List Version: v0.9\nnow at 1000000 nsecs\n\ncpu: 0\n"
			     " clock 0:\n  .offset:     0 nsecs\nactive timers:\n"
			     " #0: <0000000000000000>, tick_sched_timer, S:01\n"
			     " # expires at 1100000-1100000 nsecs [in 100000 to 100000 nsecs]\n"
			     " #1: <0000000000000000>, hrtimer_wakeup, S:01\n"
			     " # expires at 9000000-9050000 nsecs [in 8000000 to 8050000 nsecs]\n"
			     " clock 1:\n  .offset:     500000000 nsecs\nactive timers:\n"
			     " #0: <0000000000000000>, timerfd_tmrproc, S:01\n"
			     " # expires at 504000000-504000000 nsecs [in 503000000 to 503000000 "
			     "nsecs]\n";

static void test_timers_of_programs_are_found(void **state)
{
	struct control_timer timer;

	(void)state;
	control_read_timers(timers, 0, &timer);
	assert_int_equal(timer.kind, CONTROL_TIMER_AT);
	/* By the clock it belongs to. */
	assert_int_equal(timer.in_ns, 3000000);
	assert_string_equal(timer.call, "timerfd");
	control_read_timers(timers, 1, &timer);
	assert_int_equal(timer.kind, CONTROL_TIMER_BUSY);
	control_read_timers("", 0, &timer);
	assert_int_equal(timer.kind, CONTROL_TIMER_UNKNOWN);
	control_read_timers("now at 5 nsecs\n", 0, &timer);
	assert_int_equal(timer.kind, CONTROL_TIMER_NONE);
}

static void test_modules_are_found_by_name(void **state)
{
	static const char list[] = "kernel/a/one.ko:\n"
				   "kernel/b/two-more.ko.xz: kernel/a/one.ko kernel/a/none.ko\n";
	char **files;

	(void)state;
	files = modprobe_find(list, "two_more");
	assert_string_equal(files[0], "kernel/b/two-more.ko.xz");
	assert_string_equal(files[1], "kernel/a/one.ko");
	assert_string_equal(files[2], "kernel/a/none.ko");
	assert_null(files[3]);
	free(files);
	assert_null(modprobe_find(list, "two"));
	assert_null(modprobe_find("", "one"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_sent_before_the_hello),
		cmocka_unit_test(test_bytes_before_the_hello_are_dropped),
		cmocka_unit_test(test_without_a_hello_it_comes_again),
		cmocka_unit_test(test_a_second_hello_begins_anew),
		cmocka_unit_test(test_the_guest_greets_when_it_may),
		cmocka_unit_test(test_timers_of_programs_are_found),
		cmocka_unit_test(test_modules_are_found_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
