/* loop.c - see loop.h
 *
 * A watch is up to three libevent events on one fd, so that turning reading or writing on and off
 * is one epoll_ctl each. Hang-up alone is watched edge-triggered for EPOLLRDHUP: a peer that only
 * shut down its sending side wakes us once instead of for ever, and its full close wakes us again;
 * poll() then tells the two apart. EV_WRITE is in there because libevent reports a broken socket as
 * readable and writable but not as closed; it costs one wake-up at the start.
 *
 * Timers: libevent's default clock is the coarse one (up to 4 ms off) and is cached for a whole
 * round of callbacks; both are turned off, so that 1 ms means 1 ms.
 *
 * Not used: libevent's epoll change list. It delays EPOLL_CTL_DEL past close(), and where a child
 * still holds a duplicate of the file, the kernel goes on reporting an fd that is somebody else's
 * by then. */
#include "loop/loop.h"
#include "base/alloc.h"
#include <assert.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <poll.h>

struct deferred {
	loop_fn fn;
	void *arg;
};

struct loop {
	struct event_base *base;
	struct event kick; /* runs the deferred calls */
	struct deferred *deferred;
	size_t deferred_count;
	size_t deferred_cap;
	struct deferred *running; /* the calls of this round; those that already ran may be gone */
	size_t running_count;
};

struct loop_fd {
	struct event reading;
	struct event writing;
	struct event hangup;
	unsigned watched;
	loop_fd_fn fn;
	void *arg;
};

struct loop_timer {
	struct event event;
	loop_fn fn;
	void *arg;
};

struct loop_signal {
	struct event event;
	loop_fn fn;
	void *arg;
};

/* ---- the loop and deferred calls ------------------------------------------------------------ */

static void run_deferred(evutil_socket_t fd, short what, void *arg)
{
	struct loop *loop = arg;

	(void)fd;
	(void)what;
	loop->running = loop->deferred;
	loop->running_count = loop->deferred_count;
	loop->deferred = NULL;
	loop->deferred_count = loop->deferred_cap = 0;
	for (size_t i = 0; i < loop->running_count; i++) {
		struct deferred call = loop->running[i];

		loop->running[i].fn = NULL;
		if (call.fn)
			call.fn(call.arg);
	}
	free(loop->running);
	loop->running = NULL;
	loop->running_count = 0;
	/* Calls deferred by these calls wait until the fds were checked once: a call that always
	 * defers itself again must not starve them. */
	if (loop->deferred_count)
		event_add(&loop->kick, &(struct timeval){ 0, 0 });
}

struct loop *loop_new(void)
{
	struct loop *loop = xnew(struct loop);
	struct event_config *config = event_config_new();

	if (!config)
		abort();
	event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_NO_CACHE_TIME |
					      EVENT_BASE_FLAG_PRECISE_TIMER);
	loop->base = event_base_new_with_config(config);
	event_config_free(config);
	if (!loop->base)
		abort();
	event_assign(&loop->kick, loop->base, -1, 0, run_deferred, loop);
	return loop;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	event_del(&loop->kick);
	event_base_free(loop->base);
	free(loop->deferred);
	free(loop);
}

void loop_run(struct loop *loop)
{
	event_base_loop(loop->base, EVLOOP_NO_EXIT_ON_EMPTY);
}

void loop_stop(struct loop *loop)
{
	event_base_loopbreak(loop->base);
}

void loop_defer(struct loop *loop, loop_fn fn, void *arg)
{
	if (loop->deferred_count == loop->deferred_cap) {
		loop->deferred_cap = MAX(16, loop->deferred_cap * 2);
		xgrow(loop->deferred, loop->deferred_cap);
	}
	loop->deferred[loop->deferred_count++] = (struct deferred){ fn, arg };
	if (loop->deferred_count == 1 && !loop->running)
		event_active(&loop->kick, EV_TIMEOUT, 0);
}

static void take_back(struct deferred *calls, size_t count, loop_fn fn, void *arg)
{
	for (size_t i = 0; i < count; i++)
		if (calls[i].fn == fn && calls[i].arg == arg)
			calls[i].fn = NULL;
}

void loop_undefer(struct loop *loop, loop_fn fn, void *arg)
{
	take_back(loop->running, loop->running_count, fn, arg);
	take_back(loop->deferred, loop->deferred_count, fn, arg);
}

/* ---- fds ------------------------------------------------------------------------------------ */

static void on_read(evutil_socket_t fd, short what, void *arg)
{
	struct loop_fd *watch = arg;

	(void)fd;
	(void)what;
	watch->fn(watch->arg, LOOP_READ);
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
	struct loop_fd *watch = arg;

	(void)fd;
	(void)what;
	watch->fn(watch->arg, LOOP_WRITE);
}

static void on_hangup(evutil_socket_t fd, short what, void *arg)
{
	struct loop_fd *watch = arg;
	struct pollfd now = { .fd = fd };

	(void)what;
	if (poll(&now, 1, 0) > 0 && (now.revents & (POLLHUP | POLLERR)))
		watch->fn(watch->arg, LOOP_HANGUP);
}

struct loop_fd *loop_fd_new(struct loop *loop, int fd, unsigned ready, loop_fd_fn fn, void *arg)
{
	struct loop_fd *watch = xnew(struct loop_fd);

	watch->fn = fn;
	watch->arg = arg;
	event_assign(&watch->reading, loop->base, fd, EV_READ | EV_PERSIST, on_read, watch);
	event_assign(&watch->writing, loop->base, fd, EV_WRITE | EV_PERSIST, on_write, watch);
	event_assign(&watch->hangup, loop->base, fd, EV_CLOSED | EV_WRITE | EV_ET | EV_PERSIST,
		on_hangup, watch);
	loop_fd_set(watch, ready);
	return watch;
}

void loop_fd_set(struct loop_fd *watch, unsigned ready)
{
	unsigned off = watch->watched & ~ready;
	unsigned on = ready & ~watch->watched;

	assert(!(ready & LOOP_HANGUP) || ready == LOOP_HANGUP);
	/* When the watch changes from or to hang-up, the old events are removed first: libevent
	 * refuses edge- and level-triggered events on one fd. Otherwise the new ones are added
	 * first, which keeps the fd in epoll. */
	if (off && ((off | on) & LOOP_HANGUP)) {
		event_del(&watch->hangup);
		event_del(&watch->reading);
		event_del(&watch->writing);
		on = ready;
		off = 0;
	}
	if (on & LOOP_READ)
		event_add(&watch->reading, NULL);
	if (on & LOOP_WRITE)
		event_add(&watch->writing, NULL);
	if (on & LOOP_HANGUP)
		event_add(&watch->hangup, NULL);
	if (off & LOOP_READ)
		event_del(&watch->reading);
	if (off & LOOP_WRITE)
		event_del(&watch->writing);
	if (off & LOOP_HANGUP)
		event_del(&watch->hangup);
	watch->watched = ready;
}

void loop_fd_free(struct loop_fd *watch)
{
	if (!watch)
		return;
	loop_fd_set(watch, 0);
	free(watch);
}

/* ---- timers and signals --------------------------------------------------------------------- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct loop_timer *timer = arg;

	(void)fd;
	(void)what;
	timer->fn(timer->arg);
}

struct loop_timer *loop_timer_new(struct loop *loop, loop_fn fn, void *arg)
{
	struct loop_timer *timer = xnew(struct loop_timer);

	timer->fn = fn;
	timer->arg = arg;
	evtimer_assign(&timer->event, loop->base, on_timer, timer);
	return timer;
}

void loop_timer_start(struct loop_timer *timer, uint64_t ms)
{
	struct timeval after = { .tv_sec = (time_t)(ms / 1000),
		.tv_usec = (suseconds_t)(ms % 1000 * 1000) };

	event_add(&timer->event, &after);
}

void loop_timer_stop(struct loop_timer *timer)
{
	event_del(&timer->event);
}

void loop_timer_free(struct loop_timer *timer)
{
	if (!timer)
		return;
	event_del(&timer->event);
	free(timer);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
	struct loop_signal *watch = arg;

	(void)fd;
	(void)what;
	watch->fn(watch->arg);
}

struct loop_signal *loop_signal_new(struct loop *loop, int signal, loop_fn fn, void *arg)
{
	struct loop_signal *watch = xnew(struct loop_signal);

	watch->fn = fn;
	watch->arg = arg;
	evsignal_assign(&watch->event, loop->base, signal, on_signal, watch);
	event_add(&watch->event, NULL);
	return watch;
}

void loop_signal_free(struct loop_signal *watch)
{
	if (!watch)
		return;
	event_del(&watch->event);
	free(watch);
}
