/* net_hold.c - stops packets between sockets of a box during a capture and a restore; see
 * net/doors_hold.c */
#include "engine/ns/ns_internal.h"
#include "net/doors.h"
#include "net/sever.h"
#include "sys/netns.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

int ns_in_network(pid_t pid, int (*fn)(void *arg, struct err *err), void *arg, struct err *err)
{
	_cleanup_close_ int netns = -1;
	char path[40];

	snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
	netns = open(path, O_RDONLY | O_CLOEXEC);
	if (netns < 0)
		return err_sys(err, errno, "open the network of the box");
	return netns_call(netns, fn, arg, err);
}

struct change {
	bool hold;
	int fd;
};

static int change(void *arg, struct err *err)
{
	struct change *wanted = arg;

	return doors_hold(wanted->hold, &wanted->fd, err);
}

int ns_net_hold(struct ns_engine *engine, pid_t pid, bool hold, struct err *err)
{
	struct change wanted = { hold, -1 };
	int status = ns_in_network(pid, change, &wanted, err);

	/* After a table was removed, a close blocks on the kernel. */
	if (wanted.fd >= 0)
		spawner_dispose(engine, &wanted.fd, 1);
	return status;
}

bool ns_has_connections(pid_t pid)
{
	size_t count = 0;

	return ns_in_network(pid, sever_count, &count, NULL) == 0 && count > 0;
}
