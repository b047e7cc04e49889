/* clone.c - see clone.h */
#include "sys/clone.h"
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

pid_t clone_process(const struct clone_spec *spec, int *ret_pidfd, struct err *err)
{
	int pidfd = -1;
	struct clone_args args = {
		.flags = spec->namespaces | CLONE_PIDFD | CLONE_CLEAR_SIGHAND,
		.pidfd = (uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
	};
	sigset_t all, before;
	pid_t pid;
	int saved;

	if (spec->sibling) {
		args.flags |= CLONE_PARENT;
		args.exit_signal = 0; /* the child gets the caller's */
	}
	if (spec->cgroup >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (unsigned)spec->cgroup;
	}
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	saved = errno;
	if (pid == 0)
		return 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid > 0) {
		*ret_pidfd = pidfd;
		return pid;
	}
	err_sys(err, saved, "clone3");
	if (err && (saved == ENOSYS || saved == EINVAL || saved == E2BIG)) {
		err->kind = ERR_UNSUPPORTED;
		err_hint(err,
			"the kernel lacks clone3 or a kind of namespace; 'box doctor' names it");
	} else if (err && (saved == ENOSPC || saved == EUSERS)) {
		err->kind = ERR_UNSUPPORTED;
		err_hint(err, "raise the sysctls user.max_*_namespaces");
	} else if (err && saved == EPERM) {
		err_hint(err, "the daemon needs CAP_SYS_ADMIN and allowed user namespaces");
	}
	return -1;
}

void clone_hold_signals(void)
{
	/* CLONE_CLEAR_SIGHAND leaves ignored signals ignored. */
	for (int number = 1; number < 32; number++)
		signal(number, SIG_DFL);
}

void clone_reset_signals(void)
{
	sigset_t none;

	clone_hold_signals();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}
