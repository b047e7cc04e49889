/* descriptors.h - every descriptor that processes have open, those of their threads too
 *
 * Threads may have descriptors of their own (unshare), and a process whose first thread has ended
 * shows none in /proc/PID/fd: so threads are looked at where their table is another one. Not seen
 * are descriptors that are on their way through a unix socket (SCM_RIGHTS). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct descriptors_ops {
	/* Whether a copy of the descriptor is wanted, by the text of its link in /proc/PID/fd:
	 * "socket:[4711]". */
	bool (*wants)(const char *link, void *arg);
	void (*found)(int fd, void *arg); /* the copy; it is closed afterwards */
};

/* False: there are too many, or a table that nobody gets at; some were left out. Whoever closes a
 * copy of a socket last may wait for it: not for the daemon. */
bool descriptors_each(
	const pid_t *pids, size_t count, const struct descriptors_ops *ops, void *arg);
enum { DESCRIPTORS_MAX = 1 << 18 }; /* of all processes together; up to two seconds */
