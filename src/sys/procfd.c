/* procfd.c - see procfd.h */
#include "sys/procfd.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* Since Linux 6.15 a pidfd gives the exit status also of a process that another process reaped. */
struct exit_info {
	uint64_t mask;
	uint64_t cgroup;
	uint32_t ids[11];
	int32_t exit_code;
};
#define EXIT_INFO_GET  _IOWR(0xff, 11, struct exit_info)
#define EXIT_INFO_EXIT (1u << 3)
_Static_assert(sizeof(struct exit_info) == 64, "the kernel's first version of struct pidfd_info");

int procfd_open(pid_t pid, int *ret, struct err *err)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		return err_sys(err, errno, "open process %d", (int)pid);
	*ret = fd;
	return 0;
}

bool procfd_is_alive(int pidfd)
{
	struct pollfd poller = { .fd = pidfd, .events = POLLIN };

	return poll(&poller, 1, 0) == 0;
}

int procfd_kill(int pidfd, int signal, struct err *err)
{
	if (syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 && errno != ESRCH)
		return err_sys(err, errno, "send signal %d", signal);
	return 0;
}

static enum procfd_status status_of_stranger(int pidfd, int *ret_value)
{
	struct exit_info info = { .mask = EXIT_INFO_EXIT };

	if (ioctl(pidfd, EXIT_INFO_GET, &info) < 0 || !(info.mask & EXIT_INFO_EXIT))
		return PROCFD_GONE;
	*ret_value = WIFSIGNALED(info.exit_code) ? WTERMSIG(info.exit_code)
						 : WEXITSTATUS(info.exit_code);
	return WIFSIGNALED(info.exit_code) ? PROCFD_SIGNALED : PROCFD_EXITED;
}

enum procfd_status procfd_reap(int pidfd, int *ret_value)
{
	siginfo_t info = { 0 };

	*ret_value = 0;
	if (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0)
		return procfd_is_alive(pidfd) ? PROCFD_RUNNING
					      : status_of_stranger(pidfd, ret_value);
	if (info.si_pid == 0)
		return PROCFD_RUNNING;
	*ret_value = info.si_status;
	return info.si_code == CLD_EXITED ? PROCFD_EXITED : PROCFD_SIGNALED;
}
