/* netns.c - see netns.h */
#include "sys/netns.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static int home = -1;

static int find_home(struct err *err)
{
	if (home < 0)
		home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	return home < 0 ? err_sys(err, errno, "open the own network namespace") : 0;
}

static void come_back(void)
{
	if (setns(home, CLONE_NEWNET) == 0)
		return;
	log_error("cannot come back from a box's network namespace");
	abort();
}

int netns_call(int netns, int (*fn)(void *arg, struct err *err), void *arg, struct err *err)
{
	int status;

	if (find_home(err) < 0)
		return -1;
	if (setns(netns, CLONE_NEWNET) < 0)
		return err_sys(err, errno, "enter the box's network namespace");
	status = fn(arg, err);
	come_back();
	return status;
}

int netns_make(int (*fn)(void *arg, struct err *err), void *arg, int *ret_netns, struct err *err)
{
	int netns, status;

	if (find_home(err) < 0)
		return -1;
	if (unshare(CLONE_NEWNET) < 0)
		return err_sys(err, errno, "make a network namespace");
	netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	status = netns < 0 ? err_sys(err, errno, "open a new network namespace") : fn(arg, err);
	come_back();
	if (status < 0 && netns >= 0)
		close(netns);
	if (status == 0)
		*ret_netns = netns;
	return status;
}
