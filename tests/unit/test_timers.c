/* timers: a child sleeps in each of the calls with a time-out, and its end is foretold */
#include "engine/ns/timers.h"
#include "base/alloc.h"
#include "base/clock.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLEEP_MS = 20000, NEAR_US = 300 * 1000 };

static const struct timespec span = { SLEEP_MS / 1000, 0 };

static struct timespec later(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	at.tv_sec += SLEEP_MS / 1000;
	return at;
}

static void in_nanosleep(void)
{
	nanosleep(&span, NULL);
}

static void in_clock_nanosleep(void)
{
	clock_nanosleep(CLOCK_REALTIME, 0, &span, NULL);
}

static void in_clock_nanosleep_until(void)
{
	struct timespec at = later(CLOCK_MONOTONIC);

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void in_clock_nanosleep_until_boottime(void)
{
	struct timespec at = later(CLOCK_BOOTTIME);

	clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &at, NULL);
}

static void in_clock_nanosleep_until_realtime(void)
{
	struct timespec at = later(CLOCK_REALTIME);

	clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL);
}

static void in_poll(void)
{
	poll(NULL, 0, SLEEP_MS);
}

static void in_ppoll(void)
{
	ppoll(NULL, 0, &span, NULL);
}

static void in_select(void)
{
	struct timeval left = { SLEEP_MS / 1000, 0 };

#ifdef SYS_select
	syscall(SYS_select, 0, NULL, NULL, NULL, &left);
#else
	select(0, NULL, NULL, NULL, &left);
#endif
}

static void in_pselect(void)
{
	pselect(0, NULL, NULL, NULL, &span, NULL);
}

/* By the system calls themselves: the kernel writes what is left into their memory. */
static void in_ppoll_raw(void)
{
	struct timespec left = { 2, 0 };

	syscall(SYS_ppoll, NULL, 0, &left, NULL, 0);
}

static void in_pselect_raw(void)
{
	struct timespec left = { 2, 0 };

	syscall(SYS_pselect6, 0, NULL, NULL, NULL, &left, NULL);
}

static void in_select_raw(void)
{
	struct timeval left = { 2, 0 };

	select(0, NULL, NULL, NULL, &left);
}

static void in_epoll_wait(void)
{
	struct epoll_event event;

	epoll_wait(epoll_create1(0), &event, 1, SLEEP_MS);
}

static void in_epoll_pwait2(void)
{
#ifdef SYS_epoll_pwait2
	struct epoll_event event;

	syscall(SYS_epoll_pwait2, epoll_create1(0), &event, 1, &span, NULL, 0);
#endif
}

static void in_futex(void)
{
	uint32_t word = 0;

	syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &span, NULL, 0);
}

static void in_futex_until(void)
{
	struct timespec at = later(CLOCK_MONOTONIC);
	uint32_t word = 0;

	syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &at, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void in_futex_until_realtime(void)
{
	struct timespec at = later(CLOCK_REALTIME);
	uint32_t word = 0;

	syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &at, NULL,
		FUTEX_BITSET_MATCH_ANY);
}

static void in_sigtimedwait(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigtimedwait(&set, NULL, &span);
}

static int semaphore; /* made and removed by its test: it would outlive everybody */

static void in_semtimedop(void)
{
	struct sembuf take = { 0, -1, 0 };

	semtimedop(semaphore, &take, 1, &span);
}

static void with_timerfd(void)
{
	struct itimerspec when = { .it_value = span };
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);

	timerfd_settime(fd, 0, &when, NULL);
	pause();
}

static void with_thread_that(void *(*fn)(void *))
{
	pthread_t thread;

	pthread_create(&thread, NULL, fn, NULL);
	pause();
}

static void *sleep_in_thread(void *arg)
{
	nanosleep(&span, NULL);
	return arg;
}

static void in_a_thread(void)
{
	with_thread_that(sleep_in_thread);
}

static void in_a_grandchild(void)
{
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		nanosleep(&span, NULL);
		_exit(0);
	}
	pause();
}

/* ---- those that never end by themselves ----------------------------------------------------- */

static void in_pause(void)
{
	pause();
}

static void in_poll_for_ever(void)
{
	poll(NULL, 0, -1);
}

static void in_epoll_for_ever(void)
{
	struct epoll_event event;

	epoll_wait(epoll_create1(0), &event, 1, -1);
}

static void in_futex_for_ever(void)
{
	uint32_t word = 0;

	syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void in_sleep_for_ever(void)
{
	struct timespec ever = { (time_t)1 << 40, 0 };

	nanosleep(&ever, NULL);
}

static void with_timerfd_that_is_off(void)
{
	timerfd_create(CLOCK_MONOTONIC, 0);
	pause();
}

static void in_a_loop(void)
{
	for (volatile int i = 0;; i++)
		continue;
}

static void with_posix_timer(void)
{
	struct itimerspec when = { .it_value = span };
	struct sigevent none = { .sigev_notify = SIGEV_NONE };
	timer_t timer;

	timer_create(CLOCK_MONOTONIC, &none, &timer);
	timer_settime(timer, 0, &when, NULL);
	pause();
}

/* ---- asking --------------------------------------------------------------------------------- */

static pid_t child_that(void (*sleeps)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "slee\033per");
		sleeps();
		_exit(0);
	}
	usleep(100 * 1000);
	return pid;
}

/* On a loaded machine it may take its time until it sleeps. */
static void look(pid_t pid, struct timers_memory *memory, struct instance_timer *ret)
{
	for (int tries = 0; tries < 100; tries++) {
		timers_look(pid, clock_mono_us(), memory, ret);
		if (ret->kind != INSTANCE_TIMER_BUSY)
			return;
		usleep(20 * 1000);
	}
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static struct instance_timer ask(pid_t pid)
{
	struct timers_memory memory = { 0 };
	struct instance_timer timer;

	timers_look(pid, clock_mono_us(), &memory, &timer);
	return timer;
}

static void test_each_timeout_is_foretold(void **state)
{
	static const struct {
		void (*sleeps)(void);
		const char *what; /* in the call's name; libraries choose among them */
	} cases[] = {
		{ in_nanosleep, "nanosleep" },
		{ in_clock_nanosleep, "clock_nanosleep" },
		{ in_clock_nanosleep_until, "clock_nanosleep" },
		{ in_clock_nanosleep_until_boottime, "clock_nanosleep" },
		{ in_clock_nanosleep_until_realtime, "clock_nanosleep" },
		{ in_poll, "poll" },
		{ in_ppoll, "ppoll" },
		{ in_select, "select" },
		{ in_pselect, "pselect6" },
		{ in_epoll_wait, "epoll_wait" },
		{ in_epoll_pwait2, "epoll_pwait2" },
		{ in_futex, "futex" },
		{ in_futex_until, "futex" },
		{ in_futex_until_realtime, "futex" },
		{ in_sigtimedwait, "sigtimedwait" },
		{ with_timerfd, "timerfd" },
		{ in_a_thread, "nanosleep" },
		{ in_a_grandchild, "nanosleep" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int64_t before = clock_mono_us(), due = before + SLEEP_MS * 1000;
		pid_t pid = child_that(cases[i].sleeps);
		struct instance_timer timer;

		/* What was asked for counts from then on, not from the moment of looking. */
		usleep(300 * 1000);
		timer = ask(pid);
		end(pid);
		if (timer.kind != INSTANCE_TIMER_AT || timer.at_us < due - NEAR_US ||
			timer.at_us > due + NEAR_US || !strstr(timer.call, cases[i].what))
			fail_msg("%s: kind %d, off by %lld us, '%s'", cases[i].what, timer.kind,
				(long long)(timer.at_us - due), timer.call);
	}
}

static void test_semtimedop_is_foretold(void **state)
{
	struct instance_timer timer;
	pid_t pid;

	(void)state;
	semaphore = semget(IPC_PRIVATE, 1, 0600);
	assert_true(semaphore >= 0);
	pid = child_that(in_semtimedop);
	timer = ask(pid);
	end(pid);
	semctl(semaphore, 0, IPC_RMID);
	assert_int_equal(timer.kind, INSTANCE_TIMER_AT);
	assert_string_equal(timer.call, "semtimedop");
}

static void test_what_waits_for_others_has_no_timer(void **state)
{
	void (*const cases[])(void) = { in_pause, in_poll_for_ever, in_epoll_for_ever,
		in_futex_for_ever, in_sleep_for_ever, with_timerfd_that_is_off };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		pid_t pid = child_that(cases[i]);
		struct instance_timer timer = ask(pid);

		end(pid);
		if (timer.kind != INSTANCE_TIMER_NONE)
			fail_msg("case %zu: kind %d '%s'", i, timer.kind, timer.call);
	}
}

static void test_a_running_thread_is_busy_and_named_in_printable_letters(void **state)
{
	pid_t pid = child_that(in_a_loop);
	struct instance_timer timer = ask(pid);

	(void)state;
	end(pid);
	assert_int_equal(timer.kind, INSTANCE_TIMER_BUSY);
	assert_string_equal(timer.comm, "slee?per");
}

static void test_posix_timers_make_it_unknown(void **state)
{
	pid_t pid = child_that(with_posix_timer);
	struct instance_timer timer = ask(pid);

	(void)state;
	end(pid);
	assert_int_equal(timer.kind, INSTANCE_TIMER_UNKNOWN);
}

/* SIGSTOP and SIGCONT make the kernel go on with a sleep as restart_syscall, as a freezer of v2
 * does. */
static void test_an_interrupted_sleep_is_remembered(void **state)
{
	struct timers_memory memory = { 0 };
	struct instance_timer before, after;
	pid_t pid = child_that(in_nanosleep);

	(void)state;
	look(pid, &memory, &before);
	assert_int_equal(before.kind, INSTANCE_TIMER_AT);
	for (int i = 0; i < 2; i++) {
		kill(pid, SIGSTOP);
		usleep(50 * 1000);
		kill(pid, SIGCONT);
		usleep(50 * 1000);
		look(pid, &memory, &after);
		assert_int_equal(after.kind, INSTANCE_TIMER_AT);
		assert_int_equal(after.at_us, before.at_us);
	}
	after = ask(pid);
	end(pid);
	assert_int_equal(after.kind, INSTANCE_TIMER_UNKNOWN);
}

/* Ends by itself after two seconds; a second of them it is stopped, which makes the kernel begin it
 * anew. */
static void test_calls_that_begin_anew_end_in_time(void **state)
{
	void (*const cases[])(void) = { in_ppoll_raw, in_pselect_raw, in_select_raw };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct timers_memory memory = { 0 };
		struct instance_timer timer;
		int64_t began = clock_mono_us(), took;
		pid_t pid = child_that(cases[i]);

		look(pid, &memory, &timer);
		assert_int_equal(timer.kind, INSTANCE_TIMER_AT);
		kill(pid, SIGSTOP);
		waitpid(pid, NULL, WUNTRACED);
		memory.frozen_us = clock_mono_us();
		usleep(1200 * 1000);
		timers_mend(&memory);
		kill(pid, SIGCONT);
		waitpid(pid, NULL, 0);
		took = clock_mono_us() - began;
		/* Never early; 3.2 s if nothing was mended. */
		if (took < 2000 * 1000 || took > 3000 * 1000)
			fail_msg("case %zu took %lld us", i, (long long)took);
	}
}

static void test_a_call_that_is_another_now_is_left_alone(void **state)
{
	struct timers_memory memory = { 0 };
	struct instance_timer timer;
	pid_t pid = child_that(in_ppoll_raw);

	(void)state;
	look(pid, &memory, &timer);
	assert_int_equal(memory.count, 1);
	memory.list[0].address += 16;
	kill(pid, SIGSTOP);
	usleep(50 * 1000);
	timers_mend(&memory); /* nothing is written anywhere */
	kill(pid, SIGCONT);
	usleep(50 * 1000);
	look(pid, &memory, &timer);
	end(pid);
	assert_int_equal(timer.kind, INSTANCE_TIMER_AT);
	timers_mend(&memory); /* it is gone */
}

static void test_a_process_that_is_gone_has_no_timer(void **state)
{
	pid_t pid = child_that(in_pause);

	(void)state;
	end(pid);
	assert_int_equal(ask(pid).kind, INSTANCE_TIMER_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_timeout_is_foretold),
		cmocka_unit_test(test_semtimedop_is_foretold),
		cmocka_unit_test(test_what_waits_for_others_has_no_timer),
		cmocka_unit_test(test_a_running_thread_is_busy_and_named_in_printable_letters),
		cmocka_unit_test(test_posix_timers_make_it_unknown),
		cmocka_unit_test(test_an_interrupted_sleep_is_remembered),
		cmocka_unit_test(test_calls_that_begin_anew_end_in_time),
		cmocka_unit_test(test_a_call_that_is_another_now_is_left_alone),
		cmocka_unit_test(test_a_process_that_is_gone_has_no_timer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
