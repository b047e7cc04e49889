/* fdpass.h - open file descriptors sent through unix sockets (SCM_RIGHTS)
 *
 * System calls and nothing else: good between clone and exec. Both return as sendmsg and recvmsg do
 * and leave errno. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { FDPASS_MAX = 253 }; /* SCM_MAX_FD: no packet carries more */

/* The first len bytes of data and the descriptors beside them, which stay the caller's too. flags
 * as sendmsg has them; a peer that is gone is EPIPE, never a signal. */
ssize_t fdpass_send(
	int socket, const void *data, size_t len, const int *fds, size_t count, int flags);

struct fdpass {
	size_t count; /* descriptors that came: close-on-exec, the caller's */
	bool cut;     /* the packet was longer than the place for it */
	bool lost;    /* descriptors did not come: more than room, or this process has too many */
};
/* Up to len bytes into data and up to room descriptors into fds. Goes on after a signal. On -1
 * nothing came. */
ssize_t fdpass_receive(
	int socket, void *data, size_t len, int *fds, size_t room, int flags, struct fdpass *ret);
void fdpass_close(const int *fds, size_t count); /* each */
