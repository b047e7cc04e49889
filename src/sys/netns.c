/* netns.c - see netns.h */
#include "sys/netns.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static int home = -1;

int netns_call(int netns, int (*fn)(void *arg, struct err *err), void *arg, struct err *err)
{
	int status;

	if (home < 0)
		home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (home < 0)
		return err_sys(err, errno, "open the own network namespace");
	if (setns(netns, CLONE_NEWNET) < 0)
		return err_sys(err, errno, "enter the box's network namespace");
	status = fn(arg, err);
	if (setns(home, CLONE_NEWNET) < 0) {
		log_error("cannot come back from a box's network namespace");
		abort();
	}
	return status;
}
