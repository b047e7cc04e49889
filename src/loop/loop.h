/* loop.h - a wrapper of libevent: fds that are ready, timers, signals, deferred calls
 *
 * One thread runs the loop and owns all state. A callback may free the object it was called for. */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct loop;
struct loop_fd;
struct loop_timer;
struct loop_signal;

struct loop *loop_new(void);
void loop_free(struct loop *loop);
void loop_run(struct loop *loop); /* until loop_stop */
void loop_stop(struct loop *loop);

enum loop_ready {
	LOOP_READ = 1,
	LOOP_WRITE = 2,
	/* the peer closed both directions or the socket broke; cannot be watched together with
	 * others */
	LOOP_HANGUP = 4,
};

/* Calls fn as long as fd is ready (level-triggered; LOOP_HANGUP once). When fd is ready to read and
 * to write, fn is called once for each. The caller keeps the fd and frees the watch before closing
 * it. Works for pidfds too (LOOP_READ: the process ended). A hang-up makes LOOP_READ and LOOP_WRITE
 * ready. */
typedef void (*loop_fd_fn)(void *arg, unsigned ready);
struct loop_fd *loop_fd_new(struct loop *loop, int fd, unsigned ready, loop_fd_fn fn, void *arg);
void loop_fd_set(struct loop_fd *watch, unsigned ready); /* 0 pauses */
void loop_fd_free(struct loop_fd *watch);		 /* accepts NULL */

typedef void (*loop_fn)(void *arg);
struct loop_timer *loop_timer_new(struct loop *loop, loop_fn fn, void *arg);
/* fires once, ms from now; a running timer starts again */
void loop_timer_start(struct loop_timer *timer, uint64_t ms);
void loop_timer_stop(struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer); /* accepts NULL */

struct loop_signal *loop_signal_new(struct loop *loop, int signal, loop_fn fn, void *arg);
void loop_signal_free(struct loop_signal *watch);

/* Calls fn once, soon, outside the present call stack. */
void loop_defer(struct loop *loop, loop_fn fn, void *arg);
/* Cancels a loop_defer with the same fn and arg that has not run yet. */
void loop_undefer(struct loop *loop, loop_fn fn, void *arg);
