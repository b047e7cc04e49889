/* test_vm_control.c - the driver's end of the control port, against a guest that keeps to the
 * protocol and one that does not */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/file.h"
#include "engine/vm/control.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The test plays QEMU and guest: what it answers to each type of question. */
struct rig {
	struct loop *loop;
	char path[64];
	int listener, guest;
	struct loop_fd *accepts, *reads;
	struct control *control;
	struct buf in;
	const char *before;			/* said before the greeting */
	uint8_t generation[CONTROL_GENERATION]; /* in which it was told */
	bool silent, refuses;
	struct buf stats; /* its answer; empty: none */
	unsigned accepted, tells, ready, failed, answers;
	struct err err;
	struct control_stats got;
	char comm[32];
};

static void send_frame(
	struct rig *rig, enum control_type type, uint32_t number, const struct buf *payload)
{
	struct buf out = BUF_INIT;
	size_t mark = control_begin(&out, type, number);

	if (payload)
		buf_add(&out, buf_head(payload), payload->len);
	control_end(&out, mark);
	assert_int_equal(fd_write_all(rig->guest, buf_head(&out), out.len, NULL), 0);
	buf_done(&out);
}

static void greet(struct rig *rig, const struct control_frame *frame)
{
	struct wire_reader reader = WIRE_READER(frame);
	struct control_greeting greeting = { .version = CONTROL_VERSION };
	struct control_hello hello;
	struct buf payload = BUF_INIT;

	control_get_hello(&reader, &hello);
	assert_int_equal(wire_get_done(&reader, NULL), 0);
	if (rig->silent)
		return;
	if (rig->before)
		fd_write_all(rig->guest, rig->before, strlen(rig->before), NULL);
	memcpy(greeting.nonce, hello.nonce, sizeof greeting.nonce);
	memcpy(greeting.generation, rig->generation, sizeof greeting.generation);
	control_put_greeting(&payload, &greeting);
	send_frame(rig, CONTROL_HELLO, frame->number, &payload);
	buf_done(&payload);
}

static void take_tell(struct rig *rig, const struct control_frame *frame)
{
	struct wire_reader reader = WIRE_READER(frame);
	struct control_tell tell;
	struct buf payload = BUF_INIT;
	struct err err = ERR_INIT;

	control_get_tell(&reader, &tell);
	assert_int_equal(wire_get_done(&reader, NULL), 0);
	assert_string_equal(tell.hostname, "ada");
	assert_true(tell.wall_us > 0);
	rig->tells++;
	if (rig->refuses) {
		err_set(&err, ERR_SYSTEM, "no disk");
		wire_put_error(&payload, &err);
	} else {
		memcpy(rig->generation, tell.generation, sizeof rig->generation);
	}
	send_frame(rig, rig->refuses ? CONTROL_ERROR : CONTROL_TELL, frame->number, &payload);
	buf_done(&payload);
}

static void on_guest(void *arg, unsigned ready)
{
	struct rig *rig = arg;
	struct control_frame frame;
	ssize_t got = read(rig->guest, buf_room(&rig->in, 4096), 4096);

	(void)ready;
	if (got <= 0) {
		loop_fd_set(rig->reads, 0);
		return;
	}
	buf_grew(&rig->in, (size_t)got);
	while (control_frame_parse(&rig->in, &frame, NULL) > 0) {
		if (frame.type == CONTROL_HELLO)
			greet(rig, &frame);
		else if (frame.type == CONTROL_TELL)
			take_tell(rig, &frame);
		else if (frame.type == CONTROL_STATS && rig->stats.len)
			send_frame(rig, CONTROL_STATS, frame.number, &rig->stats);
		else if (frame.type == CONTROL_WHO)
			send_frame(rig, CONTROL_WHO, frame.number, &rig->stats);
		buf_eat(&rig->in, CONTROL_HEADER + frame.len);
	}
}

static void on_accept(void *arg, unsigned ready)
{
	struct rig *rig = arg;

	(void)ready;
	if (rig->reads) {
		loop_fd_free(rig->reads);
		close(rig->guest);
	}
	rig->guest = accept4(rig->listener, NULL, NULL, SOCK_CLOEXEC);
	rig->reads = loop_fd_new(rig->loop, rig->guest, LOOP_READ, on_guest, rig);
	buf_done(&rig->in);
	/* The first one was not seen to come. */
	if (rig->accepted++)
		rig->silent = false;
}

static void on_ready(struct control *control, void *arg)
{
	(void)control;
	((struct rig *)arg)->ready++;
}

static void on_failed(struct control *control, const struct err *err, void *arg)
{
	struct rig *rig = arg;

	rig->failed++;
	rig->err = *err;
	control_free(control);
	rig->control = NULL;
}

static void rig_open(struct rig *rig)
{
	static const struct control_ops ops = { on_ready, on_failed, NULL };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct control_spec spec = { .tell = { .kind = CONTROL_NEW, .hostname = "ada" } };

	rig->loop = loop_new();
	snprintf(rig->path, sizeof rig->path, "/tmp/test-vm-control-%d", (int)getpid());
	unlink(rig->path);
	strcpy(address.sun_path, rig->path);
	rig->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(rig->listener, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(rig->listener, 4), 0);
	rig->accepts = loop_fd_new(rig->loop, rig->listener, LOOP_READ, on_accept, rig);
	memset(spec.tell.generation, 7, sizeof spec.tell.generation);
	spec.path = rig->path;
	rig->control = control_new(rig->loop, &spec, &ops, rig);
}

static void rig_close(struct rig *rig)
{
	control_free(rig->control);
	loop_fd_free(rig->reads);
	loop_fd_free(rig->accepts);
	close(rig->listener);
	if (rig->accepted)
		close(rig->guest);
	unlink(rig->path);
	buf_done(&rig->in);
	buf_done(&rig->stats);
	loop_free(rig->loop);
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

static void on_stats(const struct control_stats *stats, const struct err *err, void *arg)
{
	struct rig *rig = arg;

	rig->answers++;
	if (err)
		rig->err = *err;
	else
		rig->got = *stats;
}

static void on_who(const struct control_who *who, const struct err *err, void *arg)
{
	struct rig *rig = arg;

	assert_null(err);
	snprintf(rig->comm, sizeof rig->comm, "%s", who->comm);
	rig->answers++;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_it_is_told_first_and_asked_then(void **state)
{
	struct rig rig = { 0 };

	(void)state;
	control_put_stats(&rig.stats, &(struct control_stats){ .processes = 5 });
	rig_open(&rig);
	control_stats(rig.control, on_stats, &rig);
	run(&rig, 100);
	assert_int_equal(rig.tells, 1);
	assert_int_equal(rig.ready, 1);
	assert_int_equal(rig.answers, 1);
	assert_int_equal(rig.got.processes, 5);
	rig_close(&rig);
}

static void test_one_that_was_told_is_not_told_again(void **state)
{
	struct rig rig = { 0 };

	(void)state;
	memset(rig.generation, 7, sizeof rig.generation);
	rig_open(&rig);
	run(&rig, 100);
	assert_int_equal(rig.tells, 0);
	assert_int_equal(rig.ready, 1);
	rig_close(&rig);
}

static void test_bytes_of_older_connections_are_skipped(void **state)
{
	struct rig rig = { .before = "half a frame of somebody else BOXC and more of it" };

	(void)state;
	rig_open(&rig);
	run(&rig, 100);
	assert_int_equal(rig.ready, 1);
	assert_int_equal(rig.accepted, 1);
	rig_close(&rig);
}

static void test_a_guest_that_did_not_see_us_come_is_asked_again(void **state)
{
	struct rig rig = { .silent = true };

	(void)state;
	rig_open(&rig);
	run(&rig, 500);
	assert_int_equal(rig.accepted, 2);
	assert_int_equal(rig.ready, 1);
	rig_close(&rig);
}

static void test_no_time_passes_for_a_guest_that_stands_still(void **state)
{
	struct rig rig = { .silent = true };

	(void)state;
	rig_open(&rig);
	run(&rig, 50);
	control_pause(rig.control, true);
	run(&rig, 300);
	assert_int_equal(rig.accepted, 1);
	control_pause(rig.control, false);
	run(&rig, 300);
	assert_int_equal(rig.ready, 1);
	rig_close(&rig);
}

static void test_a_guest_that_refuses_is_not_served(void **state)
{
	struct rig rig = { .refuses = true };

	(void)state;
	rig_open(&rig);
	run(&rig, 100);
	assert_int_equal(rig.ready, 0);
	assert_int_equal(rig.failed, 1);
	assert_non_null(strstr(rig.err.message, "no disk"));
	rig_close(&rig);
}

static void test_malformed_answers_are_errors(void **state)
{
	struct rig rig = { 0 };

	(void)state;
	buf_add_str(&rig.stats, "short");
	rig_open(&rig);
	control_stats(rig.control, on_stats, &rig);
	run(&rig, 100);
	assert_int_equal(rig.answers, 1);
	assert_int_equal(rig.err.kind, ERR_PROTOCOL);
	rig_close(&rig);
}

static void test_names_are_made_printable(void **state)
{
	struct control_flow flow = { .protocol = 6, .family = 4 };
	struct rig rig = { 0 };

	(void)state;
	control_put_who(
		&rig.stats, &(struct control_who){ .pid = 2, .comm = "a\033[2J\n", .command = "" });
	rig_open(&rig);
	control_who(rig.control, &flow, on_who, &rig);
	run(&rig, 100);
	assert_int_equal(rig.answers, 1);
	assert_string_equal(rig.comm, "a?[2J?");
	rig_close(&rig);
}

static void test_whoever_frees_it_is_not_called(void **state)
{
	struct rig rig = { 0 };

	(void)state;
	rig_open(&rig);
	control_stats(rig.control, on_stats, &rig);
	control_free(rig.control);
	rig.control = NULL;
	run(&rig, 50);
	assert_int_equal(rig.answers, 0);
	assert_int_equal(rig.ready, 0);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_is_told_first_and_asked_then),
		cmocka_unit_test(test_one_that_was_told_is_not_told_again),
		cmocka_unit_test(test_bytes_of_older_connections_are_skipped),
		cmocka_unit_test(test_a_guest_that_did_not_see_us_come_is_asked_again),
		cmocka_unit_test(test_no_time_passes_for_a_guest_that_stands_still),
		cmocka_unit_test(test_a_guest_that_refuses_is_not_served),
		cmocka_unit_test(test_malformed_answers_are_errors),
		cmocka_unit_test(test_names_are_made_printable),
		cmocka_unit_test(test_whoever_frees_it_is_not_called),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
