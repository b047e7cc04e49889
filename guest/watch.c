/* watch.c - see watch.h
 *
 * A watch may be closed while an event for it waits later in the batch that epoll_wait gave; such
 * events are crossed out of the batch instead of being delivered to memory that is gone. A paused
 * watch leaves the epoll set, because epoll reports hang-ups even of a watch that asked for
 * nothing. */
#include "guest/watch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include <errno.h>

enum { BATCH = 64 };

static int epoll_fd = -1;
static struct epoll_event batch[BATCH];
static int batch_len;
static struct timer *timers; /* soonest first */

static void cross_out(struct watch *watch)
{
	for (int i = 0; i < batch_len; i++)
		if (batch[i].data.ptr == watch)
			batch[i].data.ptr = NULL;
}

void watch_open(struct watch *watch, int fd, watch_fn fn)
{
	*watch = (struct watch){ fd, 0, fn };
}

void watch_set(struct watch *watch, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };
	int op = EPOLL_CTL_MOD;

	if (watch->fd < 0 || events == watch->events)
		return;
	if (!watch->events)
		op = EPOLL_CTL_ADD;
	else if (!events)
		op = EPOLL_CTL_DEL;
	if (epoll_ctl(epoll_fd, op, watch->fd, &event) < 0)
		return;
	watch->events = events;
	if (!events)
		cross_out(watch);
}

void watch_close(struct watch *watch)
{
	if (watch->fd < 0)
		return;
	watch_set(watch, 0);
	cross_out(watch);
	close(watch->fd);
	watch->fd = -1;
}

void timer_arm(struct timer *timer, uint64_t ms, timer_fn fn)
{
	struct timer **at = &timers;

	timer_disarm(timer);
	timer->at_us = clock_mono_us() + (int64_t)ms * 1000;
	timer->fn = fn;
	timer->armed = true;
	while (*at && (*at)->at_us <= timer->at_us)
		at = &(*at)->next;
	timer->next = *at;
	*at = timer;
}

void timer_disarm(struct timer *timer)
{
	if (!timer->armed)
		return;
	for (struct timer **at = &timers; *at; at = &(*at)->next)
		if (*at == timer) {
			*at = timer->next;
			break;
		}
	timer->armed = false;
}

int watch_loop_open(struct err *err)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		return err_sys(err, errno, "make an epoll");
	return 0;
}

static int time_to_next_ms(void)
{
	int64_t left;

	if (!timers)
		return -1;
	left = timers->at_us - clock_mono_us();
	if (left <= 0)
		return 0;
	return (int)MIN((left + 999) / 1000, 60 * 1000);
}

static void run_timers(void)
{
	int64_t now = clock_mono_us();

	while (timers && timers->at_us <= now) {
		struct timer *timer = timers;

		timers = timer->next;
		timer->armed = false;
		timer->fn(timer);
	}
}

void watch_loop_turn(void)
{
	int got = epoll_wait(epoll_fd, batch, BATCH, time_to_next_ms());

	batch_len = MAX(got, 0);
	for (int i = 0; i < batch_len; i++) {
		struct watch *watch = batch[i].data.ptr;

		if (watch)
			watch->fn(watch, batch[i].events);
	}
	batch_len = 0;
	run_timers();
}
