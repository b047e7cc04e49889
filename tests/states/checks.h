/* checks.h - programs that set something up and then check again and again that it is still there
 *
 * Each kind is a process of its own: set_up once, then verify whenever it is asked. Between two
 * questions the box may have been suspended, hibernated, taken back or copied; a program cannot
 * tell, and that is what is checked. verify looks at everything that set_up or the verify before it
 * left behind, and leaves something for the next one. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct check {
	const char *dir;  /* a folder of its own, also the working directory to begin with */
	unsigned asked;	  /* questions answered before this one */
	char why[256];	  /* the first thing that was wrong; empty: nothing */
	char detail[160]; /* said with the answer */
};

struct kind {
	const char *name;
	void (*set_up)(struct check *check);
	void (*verify)(struct check *check);
};

/* Keeps the first failure, with errno if it is set; gives back good. */
bool must(struct check *check, bool good, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- small helpers -------------------------------------------------------------------------- */

/* Byte number `at` of an endless sequence that does not compress and is different for each seed. */
unsigned char pattern(uint64_t seed, uint64_t at);
void pattern_fill(void *to, size_t size, uint64_t seed, uint64_t from);
bool pattern_is(const void *bytes, size_t size, uint64_t seed, uint64_t from);
uint64_t now_ms(void); /* CLOCK_MONOTONIC */
/* Waits until *counter is beyond old, for limit_ms at most. */
bool moves_on(const volatile unsigned *counter, unsigned old, unsigned limit_ms);
/* A forked child, or 0 in it; ends the program when there is none to be had. It dies with its
 * parent. */
pid_t child_new(void);
bool child_is_over(pid_t pid, int status);    /* waits; did it end with this status of wait(2)? */
bool process_state_is(pid_t pid, char state); /* the letter in /proc/PID/stat; looks for 2 s */

extern const struct kind kind_files, kind_deleted, kind_removed_folder, kind_mapped, kind_pipes,
	kind_fifo, kind_pty, kind_unix, kind_unix_backlog, kind_rights, kind_tcp, kind_tcp_full,
	kind_udp, kind_talk, kind_timers, kind_sleepers, kind_epoll, kind_eventfd, kind_signalfd,
	kind_inotify, kind_memfd, kind_shared, kind_sysv, kind_locks, kind_threads, kind_blocked,
	kind_signals, kind_children, kind_pidfd, kind_context, kind_memory, kind_clock, kind_random,
	kind_program, kind_shared_epoll, kind_lent_epoll, kind_in_flight, kind_descriptors,
	kind_pty_between, kind_attributes;
