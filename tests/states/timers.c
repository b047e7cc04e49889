/* timers.c - timers that go on, sleepers that sleep on, clocks that do not go back, and dice */
#include "tests/states/checks.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD_NS = 20000000, FAR_S = 3600, MOVES_MS = 10000 };

static volatile unsigned alarms, ticks;
static int periodic, far, absolute;
static timer_t posix_timer;
static uint64_t far_set_ms;
static int64_t absolute_at_ms;

static void on_alarm(int number)
{
	(void)number;
	alarms++;
}

static void on_tick(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	if (info->si_value.sival_int == 4711)
		ticks++;
}

static void timers_set_up(struct check *check)
{
	struct itimerspec period = { .it_interval.tv_nsec = PERIOD_NS,
		.it_value.tv_nsec = PERIOD_NS };
	struct itimerval every = { .it_interval.tv_usec = 50000, .it_value.tv_usec = 50000 };
	struct itimerspec once = { .it_value.tv_sec = FAR_S };
	struct sigaction alarm_action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct sigaction tick = { .sa_sigaction = on_tick, .sa_flags = SA_RESTART | SA_SIGINFO };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL,
		.sigev_signo = SIGRTMIN + 1,
		.sigev_value.sival_int = 4711 };
	struct timespec now;

	periodic = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	far = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	absolute = timerfd_create(CLOCK_REALTIME, 0);
	far_set_ms = now_ms();
	clock_gettime(CLOCK_REALTIME, &now);
	must(check,
		timerfd_settime(periodic, 0, &period, NULL) == 0 &&
			timerfd_settime(far, 0, &once, NULL) == 0,
		"timerfd");
	once.it_value.tv_sec += now.tv_sec;
	absolute_at_ms = once.it_value.tv_sec * 1000;
	must(check, timerfd_settime(absolute, TFD_TIMER_ABSTIME, &once, NULL) == 0,
		"absolute timerfd");
	must(check,
		sigaction(SIGALRM, &alarm_action, NULL) == 0 &&
			sigaction(SIGRTMIN + 1, &tick, NULL) == 0,
		"sigaction");
	must(check, setitimer(ITIMER_REAL, &every, NULL) == 0, "setitimer");
	must(check,
		timer_create(CLOCK_MONOTONIC, &event, &posix_timer) == 0 &&
			timer_settime(posix_timer, 0, &period, NULL) == 0,
		"POSIX timer");
}

static int64_t real_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void check_left(
	struct check *check, const char *what, const struct itimerspec *left, int64_t want_ms)
{
	int64_t got_ms = left->it_value.tv_sec * 1000 + left->it_value.tv_nsec / 1000000;

	must(check, llabs(got_ms - want_ms) < 1000, "%s has %lld ms left instead of %lld", what,
		(long long)got_ms, (long long)want_ms);
}

static void timers_verify(struct check *check)
{
	struct pollfd wait = { .fd = periodic, .events = POLLIN };
	struct itimerspec left;
	struct itimerval every;
	uint64_t fired = 0;
	uint64_t deadline = now_ms() + MOVES_MS;
	int ready;

	must(check, timerfd_gettime(periodic, &left) == 0 && left.it_interval.tv_nsec == PERIOD_NS,
		"period of the timerfd");
	(void)!read(periodic, &fired, sizeof fired);
	do /* the other timers' signals interrupt it */
		ready = poll(&wait, 1, MOVES_MS);
	while (ready < 0 && errno == EINTR && now_ms() < deadline);
	must(check, ready == 1 && read(periodic, &fired, sizeof fired) == 8 && fired >= 1,
		"the timerfd stands still");
	errno = 0;
	/* By the clocks they were set by; a second for a machine that is busy between the two
	 * looks. */
	must(check, timerfd_gettime(far, &left) == 0, "timerfd_gettime");
	check_left(check, "an hour's timer", &left, far_set_ms + FAR_S * 1000 - now_ms());
	must(check, timerfd_gettime(absolute, &left) == 0, "timerfd_gettime");
	check_left(check, "an absolute timer", &left, absolute_at_ms - real_ms());
	must(check, getitimer(ITIMER_REAL, &every) == 0 && every.it_interval.tv_usec == 50000,
		"setitimer");
	must(check, moves_on(&alarms, alarms, MOVES_MS), "SIGALRM comes no more");
	must(check, moves_on(&ticks, ticks, MOVES_MS), "the POSIX timer stands still");
}

const struct kind kind_timers = { "timers", timers_set_up, timers_verify };

/* ---- sleepers ------------------------------------------------------------------------------- */

static volatile unsigned short_naps, exact_naps, broken_naps;

static void *nap(void *arg)
{
	for (;;) {
		struct timespec time = { .tv_nsec = 300000000 };
		uint64_t before = now_ms();

		(void)arg;
		while (nanosleep(&time, &time) < 0 && errno == EINTR)
			;
		if (now_ms() - before < 299)
			broken_naps++;
		short_naps++;
	}
	return NULL;
}

static void *nap_until(void *arg)
{
	struct timespec when;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &when);
	for (;;) {
		struct timespec now;

		when.tv_nsec += 50000000;
		if (when.tv_nsec >= 1000000000)
			when.tv_nsec -= 1000000000, when.tv_sec++;
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
			;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec < when.tv_sec ||
			(now.tv_sec == when.tv_sec && now.tv_nsec < when.tv_nsec))
			broken_naps++;
		exact_naps++;
	}
	return NULL;
}

static void sleepers_set_up(struct check *check)
{
	pthread_t thread;

	must(check,
		pthread_create(&thread, NULL, nap, NULL) == 0 &&
			pthread_create(&thread, NULL, nap_until, NULL) == 0,
		"threads");
}

static void sleepers_verify(struct check *check)
{
	must(check, moves_on(&short_naps, short_naps, MOVES_MS), "nanosleep does not end");
	must(check, moves_on(&exact_naps, exact_naps, MOVES_MS), "clock_nanosleep does not end");
	must(check, broken_naps == 0, "%u sleeps were too short", broken_naps);
}

const struct kind kind_sleepers = { "sleepers", sleepers_set_up, sleepers_verify };

/* ---- clocks --------------------------------------------------------------------------------- */

enum { CLOCKS = 4 };
static const clockid_t clock_ids[CLOCKS] = { CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW,
	CLOCK_REALTIME };
static volatile unsigned samples, went_back;
static volatile int64_t worst_back_ns;
static int64_t offset_ns; /* monotonic + this = real, at the start */

static int64_t clock_ns(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void *watch_clocks(void *arg)
{
	int64_t last[CLOCKS] = { 0 };

	(void)arg;
	for (;; samples++) {
		for (int i = 0; i < CLOCKS; i++) {
			int64_t now = clock_ns(clock_ids[i]);

			if (now < last[i] && clock_ids[i] != CLOCK_REALTIME) {
				worst_back_ns = now - last[i];
				went_back++;
			}
			last[i] = now;
		}
		usleep(2000);
	}
	return NULL;
}

static void clock_set_up(struct check *check)
{
	pthread_t thread;

	offset_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
	must(check, pthread_create(&thread, NULL, watch_clocks, NULL) == 0, "thread");
}

/* The monotonic clock may have stood still meanwhile; it must not have run faster than the time of
 * day. */
static void clock_verify(struct check *check)
{
	int64_t ahead = clock_ns(CLOCK_MONOTONIC) + offset_ns - clock_ns(CLOCK_REALTIME);

	must(check, moves_on(&samples, samples, MOVES_MS), "the watcher stands still");
	must(check, went_back == 0, "a clock went back by %ld us", (long)(-worst_back_ns / 1000));
	must(check, ahead < 1000000000ll, "the monotonic clock is %ld ms ahead",
		(long)(ahead / 1000000));
	snprintf(check->detail, sizeof check->detail, "monotonic behind by %ld ms",
		(long)(-ahead / 1000000));
}

const struct kind kind_clock = { "clock", clock_set_up, clock_verify };

/* ---- random numbers: the kernel's, which must differ in a fork ------------------------------ */

static unsigned char first[16];

static void random_set_up(struct check *check)
{
	must(check, getrandom(first, sizeof first, 0) == sizeof first, "getrandom");
}

static void random_verify(struct check *check)
{
	unsigned char now[16];
	char *to = check->detail;

	must(check,
		getrandom(now, sizeof now, 0) == sizeof now && memcmp(now, first, sizeof now) != 0,
		"getrandom");
	for (size_t i = 0; i < sizeof now; i++)
		to += sprintf(to, "%02x", now[i]);
}

const struct kind kind_random = { "random", random_set_up, random_verify };
