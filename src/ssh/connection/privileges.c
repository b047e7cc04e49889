/* privileges.c - what the process of a connection gives up before it reads anything of the client
 *
 * What is left is a process of an unused user in namespaces of its own with an empty root, without
 * capabilities, that may use the descriptors it has, get memory and the time, and end. It cannot
 * open a file or a socket, start a program or a process, or signal one: the kernel ends it at the
 * attempt. If a step fails, the connection is not served. */
#include "base/alloc.h"
#include "ssh/connection/connection_internal.h"
#include "sys/caps.h"
#include "sys/seccomp.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum {
	USER = 65533, /* nobody else's: the gate is 65534 */
	FILES_MAX = 2 * SSHM_CHANNELS_MAX + 128,
	MEMORY_MAX = 192 * 1024 * 1024,
};

static int leave_namespaces(struct err *err)
{
	if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) < 0)
		return err_sys(err, errno, "unshare");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(err, errno, "make mounts private");
	if (mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY,
		    "size=4k,mode=555") < 0)
		return err_sys(err, errno, "mount an empty root");
	if (chdir("/proc") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
		umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_sys(err, errno, "change to an empty root");
	return 0;
}

static int set_limits(struct err *err)
{
	static const struct {
		int what;
		rlim_t most;
		bool not_sanitized;
	} limits[] = {
		{ RLIMIT_NOFILE, FILES_MAX, false }, { RLIMIT_FSIZE, 0, true },
		{ RLIMIT_NPROC, 0, false }, { RLIMIT_CORE, 0, false }, { RLIMIT_MEMLOCK, 0, false },
		{ RLIMIT_DATA, MEMORY_MAX, true }, /* its shadow is larger */
	};

	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		struct rlimit limit = { limits[i].most, limits[i].most };

		if (SANITIZED && limits[i].not_sanitized)
			continue;
		if (setrlimit((__rlimit_resource_t)limits[i].what, &limit) < 0)
			return err_sys(err, errno, "setrlimit");
	}
	return 0;
}

static int become_user(struct err *err)
{
	uid_t real, effective, saved;

	if (caps_bound(0, err) < 0)
		return -1;
	if (setgroups(0, NULL) < 0 || setresgid(USER, USER, USER) < 0 ||
		setresuid(USER, USER, USER) < 0)
		return err_sys(err, errno, "become another user");
	if (caps_keep(0, err) < 0)
		return -1;
	if (getresuid(&real, &effective, &saved) < 0 || real != USER || effective != USER ||
		saved != USER || setuid(0) == 0)
		return err_set(err, ERR_SYSTEM, "the privileges are still there");
	return 0;
}

#define ALLOW(name)                \
	{                          \
		.call = SYS_##name \
	}
#define ALLOW_FCNTL(what)                                                                      \
	{                                                                                      \
		.call = SYS_fcntl, .masked = true, .arg = 1, .mask = UINT32_MAX, .value = what \
	}
#define ALLOW_DATA(name)                                                                    \
	{                                                                                   \
		.call = SYS_##name, .masked = true, .arg = 2, .mask = PROT_EXEC, .value = 0 \
	}

static const struct seccomp_rule allowed[] = {
	/* descriptors that are there, or come from the daemon; not whom they send signals to */
	ALLOW(read), ALLOW(write), ALLOW(readv), ALLOW(writev), ALLOW(recvfrom), ALLOW(sendto),
	ALLOW(recvmsg), ALLOW(sendmsg), ALLOW(shutdown), ALLOW(close), ALLOW(getsockopt),
	ALLOW_FCNTL(F_GETFL), ALLOW_FCNTL(F_SETFL), ALLOW_FCNTL(F_GETFD), ALLOW_FCNTL(F_SETFD),
	ALLOW_FCNTL(F_DUPFD_CLOEXEC),
/* the loop */
#ifdef SYS_poll
	ALLOW(poll), ALLOW(epoll_wait),
#endif
	ALLOW(ppoll), ALLOW(epoll_pwait), ALLOW(epoll_ctl), ALLOW(timerfd_settime),
	/* memory that is not executable, time, chance */
	ALLOW(brk), ALLOW_DATA(mmap), ALLOW_DATA(mprotect), ALLOW(munmap), ALLOW(mremap),
	ALLOW(madvise), ALLOW(clock_gettime), ALLOW(gettimeofday), ALLOW(getrandom), ALLOW(futex),
	ALLOW(restart_syscall),
#if SANITIZED
	ALLOW(sigaltstack), ALLOW(rt_sigaction), ALLOW(sched_yield), ALLOW(prlimit64),
#endif
	/* itself */
	ALLOW(getpid), ALLOW(gettid), ALLOW(rt_sigreturn), ALLOW(rt_sigprocmask), ALLOW(exit),
	ALLOW(exit_group)
};

int sshc_drop_privileges(struct err *err)
{
	struct seccomp_program *filter = NULL;
	int ret = -1;

	if (seccomp_program_new_only(allowed, ARRAY_LEN(allowed), &filter, err) < 0)
		return -1;
	if (leave_namespaces(err) < 0 || set_limits(err) < 0 || become_user(err) < 0)
		goto out;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) {
		err_sys(err, errno, "prctl");
		goto out;
	}
	ret = seccomp_program_install(filter, err);
out:
	seccomp_program_free(filter);
	return ret;
}
