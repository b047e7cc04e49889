/* pidns.c - reads and sets the last pid of a pid namespace
 *
 * A process that enters a pid namespace is not in it, only its children are: the caller enters,
 * makes one child by vfork (copying its memory would take longer than the work) and leaves. A vfork
 * within a vfork is not possible: sanitizers keep the return address in one place. */
#include "sys/pidns.h"
#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* of the pid namespace of the process that opens it, wherever it is mounted */
#define LAST "/proc/sys/kernel/ns_last_pid"

/* Used between vfork and _exit: system calls only. */
struct inside {
	int pidfd;
	const char *text; /* what to write; "": nothing */
	size_t len;
	volatile pid_t number; /* the pid of the process inside */
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

static int visit(struct inside *inside, struct err *err)
{
	_cleanup_close_ int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	pid_t pid;
	int failed;

	if (own < 0)
		return err_sys(err, errno, "open the own pid namespace");
	if (setns(inside->pidfd, CLONE_NEWPID) < 0)
		return err_sys(err, errno, "enter the pid namespace of the box");
	pid = vfork();
	if (pid == 0) {
		be_inside(inside);
		_exit(0);
	}
	failed = errno;
	if (setns(own, CLONE_NEWPID) < 0)
		abort(); /* else its children would be born in the box */
	if (pid < 0)
		return err_sys(err, failed, "vfork");
	reap(pid);
	if (inside->failed)
		return err_sys(err, inside->failed, "write the last number of the box's processes");
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
		err_set(err, ERR_INVALID, "process ids of this machine do not go up to %d",
			(int)last);
	return -1;
}
