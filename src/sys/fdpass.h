/* fdpass.h - sends open file descriptors through unix sockets (SCM_RIGHTS)
 *
 * These functions make system calls and nothing else: they may be used between clone and exec. Both
 * return as sendmsg and recvmsg do and leave errno. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { FDPASS_MAX = 253 }; /* SCM_MAX_FD: no message carries more */

/* Sends the first len bytes of data with the descriptors, which the caller keeps. flags are as for
 * sendmsg; a closed peer gives EPIPE, never a signal. */
ssize_t fdpass_send(
	int socket, const void *data, size_t len, const int *fds, size_t count, int flags);

struct fdpass {
	size_t count; /* descriptors received: close-on-exec, owned by the caller */
	bool cut;     /* the message was longer than the buffer */
	bool lost;    /* descriptors were lost: more than room, or too many open in this process */
};
/* Receives up to len bytes into data and up to room descriptors into fds. Continues after a signal.
 * On -1 nothing was received. */
ssize_t fdpass_receive(
	int socket, void *data, size_t len, int *fds, size_t room, int flags, struct fdpass *ret);
void fdpass_close(const int *fds, size_t count); /* each */
