/* watch.h - the loop of box-init: file descriptors that become ready, and timers
 *
 * One epoll, level-triggered. Watches and timers are fields of their owners, so nothing is
 * allocated; a callback may close any watch and free its owner, its own included. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#define owner_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

struct watch;
typedef void (*watch_fn)(struct watch *watch, uint32_t ready);

struct watch {
	int fd; /* -1: not open */
	uint32_t events;
	watch_fn fn;
};

#define WATCH_INIT          \
	{                   \
		-1, 0, NULL \
	}

/* Takes fd; watch_set says for what to wait. */
void watch_open(struct watch *watch, int fd, watch_fn fn);
/* EPOLLIN, EPOLLOUT or both; 0 pauses entirely, hang-ups too. */
void watch_set(struct watch *watch, uint32_t events);
void watch_close(struct watch *watch); /* closes the fd; fine when it is not open */

struct timer;
typedef void (*timer_fn)(struct timer *timer);

struct timer {
	int64_t at_us;
	timer_fn fn;
	struct timer *next;
	bool armed;
};

void timer_arm(struct timer *timer, uint64_t ms, timer_fn fn); /* once, from now; replaces */
void timer_disarm(struct timer *timer);

int watch_loop_open(struct err *err);
/* Waits for something to happen and calls the callbacks; once. */
void watch_loop_turn(void);
