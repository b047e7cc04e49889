/* test_flow.c - bytes out of a real helper process: whole, held back, failing, cut short
 *
 * Needs root: a helper has namespaces of its own. */
#include "helper/flow.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { BIG = 8 * 1024 * 1024, STALL_MS = 150 };

/* Seen by the helper too. */
struct shared {
	volatile size_t written;
	volatile bool started;
};

struct capturing {
	struct loop *loop;
	struct shared *shared;
	struct flow *flow;
	struct buf got;
	unsigned readable, done;
	bool failed;
	struct err err;
	bool free_early;
	int file; /* kept open for the helper */
};

static int set_up(void **state)
{
	struct capturing *t = xnew(struct capturing);

	t->loop = loop_new();
	t->shared = mmap(
		NULL, sizeof *t->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	t->file = -1;
	*state = t;
	return t->shared == MAP_FAILED;
}

static int tear_down(void **state)
{
	struct capturing *t = *state;

	flow_free(t->flow);
	loop_free(t->loop);
	munmap(t->shared, sizeof *t->shared);
	buf_done(&t->got);
	free(t);
	/* No helper is left behind, dead or alive. */
	return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : -1;
}

static void on_readable(struct flow *flow, void *arg)
{
	struct capturing *t = arg;
	size_t len;

	t->readable++;
	if (t->free_early) {
		flow_free(steal_ptr(&t->flow));
		return loop_stop(t->loop);
	}
	while ((len = flow_read(flow, buf_room(&t->got, 65536), 65536)))
		buf_grew(&t->got, len);
}

static void on_done(struct flow *flow, const struct err *err, void *arg)
{
	struct capturing *t = arg;
	char byte;

	assert_int_equal(flow_read(flow, &byte, 1), 0);
	t->done++;
	t->failed = err != NULL;
	if (err)
		t->err = *err;
	flow_free(steal_ptr(&t->flow));
	loop_stop(t->loop);
}

static void start(struct capturing *t, const struct flow_ops *ops)
{
	struct err err = ERR_INIT;

	if (flow_start(t->loop, ops, t, &t->file, t->file >= 0, &t->flow, &err) < 0)
		fail_msg("%s", err.message);
}

static void on_timer(void *arg)
{
	loop_stop(arg);
}

static void run_for(struct capturing *t, uint64_t ms)
{
	struct loop_timer *timer = loop_timer_new(t->loop, on_timer, t->loop);

	loop_timer_start(timer, ms);
	loop_run(t->loop);
	loop_timer_free(timer);
}

/* ---- whole ---------------------------------------------------------------------------------- */

static int write_big(int out, void *arg, struct err *err)
{
	struct capturing *t = arg;
	char block[4096];

	for (size_t at = 0; at < BIG; at += sizeof block) {
		memset(block, (int)(at / sizeof block), sizeof block);
		if (fd_write_all(out, block, sizeof block, err) < 0)
			return -1;
		t->shared->written = at + sizeof block;
	}
	return 0;
}

static const struct flow_ops big_ops = { write_big, on_readable, on_done };

static void expect_big(struct capturing *t)
{
	assert_int_equal(t->done, 1);
	assert_false(t->failed);
	assert_int_equal(t->got.len, BIG);
	for (size_t at = 0; at < BIG; at += 4096)
		assert_int_equal(buf_head(&t->got)[at + 17], (uint8_t)(at / 4096));
}

static void test_flow_gives_all_bytes_then_done(void **state)
{
	struct capturing *t = *state;

	start(t, &big_ops);
	loop_run(t->loop);
	expect_big(t);
}

static int write_nothing(int out, void *arg, struct err *err)
{
	(void)out;
	(void)arg;
	(void)err;
	return 0;
}

static void test_flow_of_nothing_is_done_without_bytes(void **state)
{
	static const struct flow_ops ops = { write_nothing, on_readable, on_done };
	struct capturing *t = *state;

	start(t, &ops);
	loop_run(t->loop);
	assert_int_equal(t->readable, 0);
	assert_int_equal(t->done, 1);
	assert_false(t->failed);
}

static int copy_file(int out, void *arg, struct err *err)
{
	struct capturing *t = arg;
	char text[64];
	ssize_t len = pread(t->file, text, sizeof text, 0);

	return len < 0 ? err_sys(err, errno, "pread") : fd_write_all(out, text, (size_t)len, err);
}

static void test_flow_helper_keeps_what_it_was_given(void **state)
{
	static const struct flow_ops ops = { copy_file, on_readable, on_done };
	struct capturing *t = *state;

	t->file = memfd_create("kept", MFD_CLOEXEC);
	assert_int_equal(pwrite(t->file, "kept", 4, 0), 4);
	start(t, &ops);
	loop_run(t->loop);
	close(t->file);
	assert_false(t->failed);
	assert_string_equal(buf_str(&t->got), "kept");
}

/* ---- held back ------------------------------------------------------------------------------ */

static void test_flow_makes_the_helper_wait_while_paused(void **state)
{
	struct capturing *t = *state;
	size_t before;

	start(t, &big_ops);
	flow_pause(t->flow, true);
	run_for(t, STALL_MS);
	assert_int_equal(t->readable, 0);
	before = t->shared->written;
	assert_true(before > 0);
	assert_true(before <= 1024 * 1024);
	run_for(t, STALL_MS);
	assert_int_equal(t->shared->written, before);
	assert_int_equal(t->done, 0);
	flow_pause(t->flow, false);
	loop_run(t->loop);
	expect_big(t);
}

static int write_little(int out, void *arg, struct err *err)
{
	(void)arg;
	return fd_write_all(out, "little", 6, err);
}

static void test_flow_is_not_done_before_its_last_byte_was_read(void **state)
{
	static const struct flow_ops ops = { write_little, on_readable, on_done };
	struct capturing *t = *state;

	start(t, &ops);
	flow_pause(t->flow, true);
	run_for(t, STALL_MS); /* the helper is long gone */
	assert_int_equal(t->done, 0);
	flow_pause(t->flow, false);
	loop_run(t->loop);
	assert_int_equal(t->done, 1);
	assert_string_equal(buf_str(&t->got), "little");
}

/* ---- failing -------------------------------------------------------------------------------- */

static int write_and_fail(int out, void *arg, struct err *err)
{
	(void)arg;
	if (fd_write_all(out, "some", 4, err) < 0)
		return -1;
	err_set(err, ERR_NOT_FOUND, "no such thing");
	return err_hint(err, "look elsewhere");
}

static void test_flow_tells_why_run_failed_after_the_bytes(void **state)
{
	static const struct flow_ops ops = { write_and_fail, on_readable, on_done };
	struct capturing *t = *state;

	start(t, &ops);
	loop_run(t->loop);
	assert_int_equal(t->done, 1);
	assert_true(t->failed);
	assert_int_equal(t->err.kind, ERR_NOT_FOUND);
	assert_string_equal(t->err.message, "no such thing");
	assert_string_equal(t->err.hint, "look elsewhere");
	assert_string_equal(buf_str(&t->got), "some");
}

static int write_and_exit(int out, void *arg, struct err *err)
{
	(void)arg;
	if (fd_write_all(out, "some", 4, err) < 0)
		return -1;
	_exit(7);
}

static void test_flow_of_a_helper_that_exits_halfway_is_not_whole(void **state)
{
	static const struct flow_ops ops = { write_and_exit, on_readable, on_done };
	struct capturing *t = *state;

	start(t, &ops);
	loop_run(t->loop);
	assert_true(t->failed);
	assert_int_equal(t->err.kind, ERR_SYSTEM);
	assert_string_equal(buf_str(&t->got), "some");
}

static int write_and_wait(int out, void *arg, struct err *err)
{
	struct capturing *t = arg;

	if (fd_write_all(out, "some", 4, err) < 0)
		return -1;
	t->shared->started = true;
	for (;;)
		pause();
}

/* The one child of this process. */
static pid_t find_child(void)
{
	char path[64];
	long pid = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%ld", &pid), 1);
	fclose(file);
	return (pid_t)pid;
}

static void test_flow_of_a_killed_helper_is_not_whole(void **state)
{
	static const struct flow_ops ops = { write_and_wait, on_readable, on_done };
	struct capturing *t = *state;

	start(t, &ops);
	while (!t->shared->started)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	kill(find_child(), SIGKILL);
	loop_run(t->loop);
	assert_true(t->failed);
	assert_string_equal(t->err.message, "a helper process was killed");
	assert_string_equal(buf_str(&t->got), "some");
}

/* ---- cut short ------------------------------------------------------------------------------ */

static void test_flow_freed_while_it_runs_says_nothing_more(void **state)
{
	struct capturing *t = *state;

	t->free_early = true;
	start(t, &big_ops);
	loop_run(t->loop);
	assert_int_equal(t->readable, 1);
	run_for(t, STALL_MS);
	assert_int_equal(t->readable, 1);
	assert_int_equal(t->done, 0);
	assert_true(t->shared->written < BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_flow_gives_all_bytes_then_done, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_flow_of_nothing_is_done_without_bytes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_flow_helper_keeps_what_it_was_given, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_flow_makes_the_helper_wait_while_paused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_flow_is_not_done_before_its_last_byte_was_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_flow_tells_why_run_failed_after_the_bytes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_flow_of_a_helper_that_exits_halfway_is_not_whole, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_flow_of_a_killed_helper_is_not_whole, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_flow_freed_while_it_runs_says_nothing_more, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
