/* test_loop.c - what the loop promises about order, time and hang-ups */
#include "loop/loop.h"
#include "base/alloc.h"
#include "base/clock.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <cmocka.h>

static struct loop *loop;
static char seen[64];

static int setup(void **state)
{
	(void)state;
	loop = loop_new();
	seen[0] = '\0';
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	loop_free(loop);
	return 0;
}

static void note(void *arg)
{
	strcat(seen, arg);
}

static void stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void run_for(uint64_t ms)
{
	struct loop_timer *timer = loop_timer_new(loop, stop, NULL);

	loop_timer_start(timer, ms);
	loop_run(loop);
	loop_timer_free(timer);
}

static void defer_more(void *arg)
{
	(void)arg;
	strcat(seen, "1");
	loop_defer(loop, note, "3");
	loop_undefer(loop, note, "x"); /* of this round and not run yet */
}

static void test_loop_runs_deferred_calls_in_order(void **state)
{
	static char x[] = "x";

	(void)state;
	loop_defer(loop, defer_more, NULL);
	loop_defer(loop, note, x);
	loop_defer(loop, note, "2");
	loop_undefer(loop, note, x);
	assert_string_equal(seen, "");
	run_for(1);
	assert_string_equal(seen, "123");
}

static void defer_for_ever(void *arg)
{
	loop_defer(loop, defer_for_ever, arg);
}

static void test_loop_does_not_starve_timers(void **state)
{
	(void)state;
	loop_defer(loop, defer_for_ever, NULL);
	run_for(5);
}

static void test_timer_is_never_early_and_restarts(void **state)
{
	struct loop_timer *timer = loop_timer_new(loop, note, "t");
	int64_t start = clock_mono_us();

	(void)state;
	for (int i = 0; i < 20; i++)
		run_for(1);
	assert_true(clock_mono_us() - start >= 20000);
	loop_timer_start(timer, 1);
	loop_timer_start(timer, 10000); /* replaces */
	run_for(5);
	assert_string_equal(seen, "");
	loop_timer_start(timer, 1);
	loop_timer_stop(timer);
	run_for(5);
	assert_string_equal(seen, "");
	loop_timer_start(timer, 1);
	run_for(20);
	assert_string_equal(seen, "t");
	loop_timer_free(timer);
}

static void test_signal_arrives_in_the_loop(void **state)
{
	struct loop_signal *watch = loop_signal_new(loop, SIGUSR1, note, "s");

	(void)state;
	raise(SIGUSR1);
	assert_string_equal(seen, "");
	run_for(5);
	assert_string_equal(seen, "s");
	loop_signal_free(watch);
}

static struct loop_fd *watch;

static void note_ready(void *arg, unsigned ready)
{
	(void)arg;
	strcat(seen, ready == LOOP_READ ? "r" : ready == LOOP_WRITE ? "w" : "h");
	loop_fd_set(watch, 0);
}

static void test_fd_is_watched_as_asked(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	watch = loop_fd_new(loop, pair[0], LOOP_READ, note_ready, NULL);
	run_for(2);
	assert_string_equal(seen, "");
	loop_fd_set(watch, LOOP_WRITE);
	run_for(2);
	assert_string_equal(seen, "w");
	assert_int_equal(write(pair[1], "x", 1), 1);
	run_for(2);
	assert_string_equal(seen, "w"); /* paused */
	loop_fd_set(watch, LOOP_READ);
	run_for(2);
	assert_string_equal(seen, "wr");
	loop_fd_free(watch);
	close(pair[0]);
	close(pair[1]);
}

static void note_and_free(void *arg, unsigned ready)
{
	(void)arg;
	(void)ready;
	strcat(seen, "f");
	loop_fd_free(watch);
}

static void test_fd_watch_may_free_itself(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(write(pair[1], "x", 1), 1);
	watch = loop_fd_new(loop, pair[0], LOOP_READ | LOOP_WRITE, note_and_free, NULL);
	run_for(2);
	assert_string_equal(seen, "f"); /* not for the other readiness */
	close(pair[0]);
	close(pair[1]);
}

static void test_hangup_is_a_full_close_not_a_half_one(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	watch = loop_fd_new(loop, pair[0], LOOP_READ, note_ready, NULL);
	loop_fd_set(watch, LOOP_HANGUP);
	assert_int_equal(write(pair[1], "x", 1), 1);
	shutdown(pair[1], SHUT_WR);
	run_for(2);
	assert_string_equal(seen, "");
	close(pair[1]);
	run_for(2);
	assert_string_equal(seen, "h");
	loop_fd_set(watch, LOOP_HANGUP); /* asked for after the fact */
	run_for(2);
	assert_string_equal(seen, "hh");
	loop_fd_free(watch);
	close(pair[0]);
}

static void test_hangup_is_a_tcp_reset(void **state)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int server;

	(void)state;
	assert_int_equal(bind(listener, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	assert_int_equal(connect(client, (struct sockaddr *)&address, len), 0);
	server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	watch = loop_fd_new(loop, server, LOOP_HANGUP, note_ready, NULL);
	shutdown(client, SHUT_WR);
	run_for(2);
	assert_string_equal(seen, "");
	setsockopt(client, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
		sizeof(struct linger));
	close(client);
	run_for(10);
	assert_string_equal(seen, "h");
	loop_fd_free(watch);
	close(server);
	close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_loop_runs_deferred_calls_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_loop_does_not_starve_timers, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_timer_is_never_early_and_restarts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_signal_arrives_in_the_loop, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fd_is_watched_as_asked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fd_watch_may_free_itself, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_hangup_is_a_full_close_not_a_half_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hangup_is_a_tcp_reset, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
