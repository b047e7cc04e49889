/* pidns.c - where a pid namespace has got to with its numbers
 *
 * A process that enters a pid namespace is not in it, its children are: two processes, one after the other, by vfork, since
 * copying the daemon's memory would take longer than the work. */
#include "sys/pidns.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAST \
	"/proc/sys/kernel/ns_last_pid" /* of the namespace of who opens it, wherever it is mounted */

/* Between vfork and _exit: system calls only. */
struct inside {
	int pidfd;
	const char *text; /* what to write; "": nothing */
	size_t len;
	volatile pid_t number; /* of the process inside */
	volatile int failed;   /* an errno */
};

static void reap(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
}

static void be_inside(struct inside *inside)
{
	int fd;

	inside->number = getpid();
	if (!inside->len)
		return;
	fd = open(LAST, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, inside->text, inside->len) < 0)
		inside->failed = errno;
}

static void enter(struct inside *inside)
{
	pid_t pid;

	if (setns(inside->pidfd, CLONE_NEWPID) < 0) {
		inside->failed = errno;
		return;
	}
	pid = vfork();
	if (pid == 0) {
		be_inside(inside);
		_exit(0);
	}
	if (pid < 0)
		inside->failed = errno;
	else
		reap(pid);
}

static int visit(struct inside *inside, struct err *err)
{
	pid_t pid = vfork();

	if (pid == 0) {
		enter(inside);
		_exit(0);
	}
	if (pid < 0)
		return err_sys(err, errno, "vfork");
	reap(pid);
	if (inside->failed)
		return err_sys(err, inside->failed, "enter the pid namespace of the box");
	return 0;
}

int pidns_get_last(int pidfd, pid_t *ret, struct err *err)
{
	struct inside inside = { .pidfd = pidfd, .text = "" };

	if (visit(&inside, err) < 0)
		return -1;
	*ret = inside.number;
	return 0;
}

int pidns_set_last(int pidfd, pid_t last, struct err *err)
{
	char text[16];
	int len = snprintf(text, sizeof text, "%d", (int)last);
	struct inside inside = { .pidfd = pidfd, .text = text, .len = (size_t)len };

	if (visit(&inside, err) == 0)
		return 0;
	if (inside.failed == EINVAL)
		err_set(err, ERR_INVALID, "processes are not numbered up to %d here", (int)last);
	return -1;
}
