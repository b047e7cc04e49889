/* socket_walk.c - what the sockets hold that processes have open, by asking each of them
 *
 * Tables of the kernel do not tell everything: packets that come back to their sender wait beside
 * a TCP socket's queue; a socket that was disconnected leaves its table and keeps what waits in it;
 * and a network namespace without processes has no tables that could be read. But whoever holds a
 * socket has a descriptor of it, and a copy of that (pidfd_getfd) answers for the socket.
 *
 * Threads may have descriptors of their own (unshare), and a process whose first thread has ended
 * shows none in /proc/PID/fd: so threads are looked at where their table is another one. Not seen
 * are sockets that are on their way through a unix socket (SCM_RIGHTS). */
#include "engine/ns/sockets.h"
#include "base/alloc.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif
#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#define PIDFD_OF_THREAD O_EXCL /* PIDFD_THREAD, Linux 6.9 */

enum {
	DESCRIPTORS_MAX = 1 << 18, /* of all processes together; about a second */
	SEEN_SLOTS = DESCRIPTORS_MAX * 2,
	NAME_LEN = 64,
};
static const char socket_prefix[] = "socket:[";

struct walk {
	struct held held;
	ino_t *seen; /* sockets by their numbers, hashed; 0: free */
	unsigned looked;
	bool cut; /* there is more than was looked at */
};

/* False: it was there. */
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

/* What waits to be read, returned packets among it; what waits to be sent is counted for TCP, and
 * little elsewhere. */
static void add_socket(struct walk *walk, int fd)
{
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

static void walk_table(struct walk *walk, const char *path, int pidfd)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && !walk->cut && (entry = readdir(dir))) {
		char name[NAME_LEN];
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, name, sizeof name - 1);
		int fd;

		walk->cut = ++walk->looked >= DESCRIPTORS_MAX;
		name[MAX(len, 0)] = '\0';
		if (strncmp(name, socket_prefix, strlen(socket_prefix)) != 0 ||
			!remember(walk, strtoull(name + strlen(socket_prefix), NULL, 10)))
			continue;
		fd = (int)syscall(SYS_pidfd_getfd, pidfd, atoi(entry->d_name), 0);
		if (fd < 0)
			continue;
		add_socket(walk, fd);
		close(fd);
	}
	if (dir)
		closedir(dir);
}

static void walk_thread(struct walk *walk, pid_t pid, pid_t thread)
{
	char path[64];
	int pidfd = (int)syscall(SYS_pidfd_open, thread, thread == pid ? 0 : PIDFD_OF_THREAD);

	if (pidfd < 0) {
		/* Before Linux 6.9 nobody gets at a table that is a thread's alone. */
		walk->cut |= errno == EINVAL;
		return;
	}
	snprintf(path, sizeof path, "/proc/%d/task/%d/fd", (int)pid, (int)thread);
	walk_table(walk, path, pidfd);
	close(pidfd);
}

static bool share_table(pid_t one, pid_t other)
{
	return syscall(SYS_kcmp, one, other, KCMP_FILES, 0, 0) == 0;
}

/* The number of links of the folder is two more than that of the threads. */
static void walk_process(struct walk *walk, pid_t pid)
{
	pid_t last = pid;
	struct dirent *entry;
	struct stat st;
	char path[32];
	DIR *dir;

	walk_thread(walk, pid, pid);
	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	if (stat(path, &st) < 0 || st.st_nlink <= 3)
		return;
	dir = opendir(path);
	while (dir && !walk->cut && (entry = readdir(dir))) {
		pid_t thread = (pid_t)atoi(entry->d_name);

		if (thread <= 0 || thread == pid || share_table(last, thread))
			continue;
		walk_thread(walk, pid, thread);
		last = thread;
	}
	if (dir)
		closedir(dir);
}

struct held socket_walk(const pid_t *pids, size_t count)
{
	struct walk walk = { .seen = xcalloc(SEEN_SLOTS, sizeof(ino_t)) };

	for (size_t i = 0; i < count && !walk.cut; i++)
		walk_process(&walk, pids[i]);
	free(walk.seen);
	if (walk.cut)
		walk.held.uncounted = HELD_TOO_MUCH;
	return walk.held;
}
