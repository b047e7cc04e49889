/* descriptors.h - all file descriptors of processes and their threads
 *
 * Threads may have their own descriptors (unshare), and a process whose first thread has ended
 * shows none in /proc/PID/fd: so threads with another table are examined too. Descriptors that are
 * in transit through a Unix socket (SCM_RIGHTS) are not seen. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct descriptors_ops {
	/* Whether a copy of the descriptor is wanted, by the text of its link in /proc/PID/fd:
	 * "socket:[4711]". */
	bool (*wants)(const char *link, void *arg);
	void (*found)(int fd, void *arg); /* fd: the copy; closed afterwards */
};

/* False: there are too many, or a table could not be read; some were left out. Closing the last
 * copy of a socket may block: not for the daemon. */
bool descriptors_each(
	const pid_t *pids, size_t count, const struct descriptors_ops *ops, void *arg);
enum { DESCRIPTORS_MAX = 1 << 18 }; /* of all processes together; up to two seconds */
