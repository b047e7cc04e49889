/* socket_walk.c - how much data the sockets of processes hold, by asking each socket
 *
 * The kernel's tables do not show everything: packets that return to their sender wait beside a TCP
 * socket's queue; a disconnected socket leaves its table and keeps its data; and the tables of a
 * network namespace without processes cannot be read. But every open socket has a descriptor, and a
 * copy of that (pidfd_getfd) answers for the socket. */
#include "engine/ns/descriptors.h"
#include "engine/ns/sockets.h"
#include "base/alloc.h"
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif
#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

enum { SEEN_SLOTS = DESCRIPTORS_MAX * 2 };

struct walk {
	struct held held;
	ino_t *seen; /* hash table of socket inodes; 0: free */
};

/* False: it was there already. */
static bool remember(struct walk *walk, ino_t number)
{
	size_t at = (size_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> 40) % SEEN_SLOTS;

	for (; walk->seen[at]; at = (at + 1) % SEEN_SLOTS)
		if (walk->seen[at] == number)
			return false;
	walk->seen[at] = number;
	return true;
}

static int option(int fd, int name)
{
	int value = 0;
	socklen_t len = sizeof value;

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) < 0 ? -1 : value;
}

static bool is_counted(int fd)
{
	switch (option(fd, SO_PROTOCOL)) {
	case IPPROTO_TCP:
	case IPPROTO_MPTCP:
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
		return option(fd, SO_TYPE) != SOCK_RAW;
	default:
		return false;
	}
}

/* Counts data waiting to be read, with returned packets; data waiting to be sent is counted for
 * TCP, and hardly elsewhere. */
static void add_socket(int fd, void *arg)
{
	struct walk *walk = arg;
	uint32_t info[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof info;
	int domain = option(fd, SO_DOMAIN);
	bool inet = domain == AF_INET || domain == AF_INET6;

	if (domain == AF_UNIX || getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len) < 0)
		return;
	if (inet && is_counted(fd))
		walk->held.counted += info[SK_MEMINFO_RMEM_ALLOC];
	else
		walk->held.uncounted += info[SK_MEMINFO_RMEM_ALLOC];
}

static bool is_new_socket(const char *link, void *arg)
{
	static const char prefix[] = "socket:[";

	return strncmp(link, prefix, strlen(prefix)) == 0 &&
	       remember(arg, strtoull(link + strlen(prefix), NULL, 10));
}

struct held socket_walk(const pid_t *pids, size_t count)
{
	static const struct descriptors_ops ops = { is_new_socket, add_socket };
	struct walk walk = { .seen = xcalloc(SEEN_SLOTS, sizeof(ino_t)) };

	if (!descriptors_each(pids, count, &ops, &walk))
		walk.held.uncounted = HELD_TOO_MUCH;
	free(walk.seen);
	return walk.held;
}
