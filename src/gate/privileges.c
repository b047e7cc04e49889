/* privileges.c - the gate gives up what it does not need, before it reads anything
 *
 * What is left is a process of an unused user, in its own empty read-only root, without
 * capabilities, that cannot open a file, start a program, make a process or a namespace, or inspect
 * others or be inspected. It has the sockets it was given, and may make new ones of IPv4 and IPv6.
 * If any step fails, the gate fails: a gate with privileges must not serve. */
#include "base/alloc.h"
#include "gate/gate_internal.h"
#include "sys/caps.h"
#include "sys/seccomp.h"
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { NOBODY = 65534 };

static int raise_files(struct err *err)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, errno, "getrlimit");
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, errno, "setrlimit");
	return 0;
}

/* A mount namespace with nothing in it but an empty, read-only tmpfs. */
static int leave_files(struct err *err)
{
	if (unshare(CLONE_NEWNS) < 0)
		return err_sys(err, errno, "unshare mounts");
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

#define REFUSE(name)                                \
	{                                           \
		.call = SYS_##name, .answer = EPERM \
	}
#define REFUSE_FAMILY(family)                                                         \
	{                                                                             \
		.call = SYS_socket, .answer = EAFNOSUPPORT, .masked = true, .arg = 0, \
		.mask = UINT32_MAX, .value = family                                   \
	}

static const struct seccomp_rule refused[] = {
	/* programs and processes */
	REFUSE(execve), REFUSE(execveat), REFUSE(clone), REFUSE(clone3), REFUSE(ptrace),
	REFUSE(process_vm_readv), REFUSE(process_vm_writev), REFUSE(pidfd_open),
	REFUSE(pidfd_getfd), REFUSE(setns), REFUSE(unshare), REFUSE(kcmp),
#ifdef SYS_fork
	REFUSE(fork), REFUSE(vfork),
#endif
	/* files */
	REFUSE(openat), REFUSE(openat2), REFUSE(open_by_handle_at), REFUSE(mkdirat),
	REFUSE(mknodat), REFUSE(linkat), REFUSE(symlinkat), REFUSE(renameat2), REFUSE(unlinkat),
	REFUSE(chroot), REFUSE(pivot_root),
#ifdef SYS_open
	REFUSE(open), REFUSE(creat), REFUSE(mkdir), REFUSE(mknod), REFUSE(link), REFUSE(symlink),
	REFUSE(rename), REFUSE(unlink),
#endif
	REFUSE(mount), REFUSE(umount2), REFUSE(open_tree), REFUSE(move_mount), REFUSE(fsopen),
	REFUSE(fsmount), REFUSE(mount_setattr),
	/* the kernel's wide corners */
	REFUSE(bpf), REFUSE(perf_event_open), REFUSE(userfaultfd), REFUSE(io_uring_setup),
	REFUSE(keyctl), REFUSE(add_key), REFUSE(request_key), REFUSE(init_module),
	REFUSE(finit_module), REFUSE(kexec_load), REFUSE(swapon), REFUSE(shmget), REFUSE(msgget),
	REFUSE(semget), REFUSE(mq_open),
	/* sockets that lead elsewhere: abstract ones of the host too */
	REFUSE_FAMILY(AF_UNIX), REFUSE_FAMILY(AF_NETLINK), REFUSE_FAMILY(AF_PACKET),
	REFUSE_FAMILY(AF_VSOCK), REFUSE_FAMILY(AF_ALG), REFUSE_FAMILY(AF_KEY),
	REFUSE_FAMILY(AF_XDP), REFUSE_FAMILY(AF_BLUETOOTH), REFUSE_FAMILY(AF_TIPC),
	REFUSE_FAMILY(AF_RDS), REFUSE_FAMILY(AF_CAN), REFUSE_FAMILY(AF_SMC)
};

static int become_nobody(struct err *err)
{
	uid_t real, effective, saved;

	if (caps_bound(0, err) < 0)
		return -1;
	if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
		setresuid(NOBODY, NOBODY, NOBODY) < 0)
		return err_sys(err, errno, "become nobody");
	if (caps_keep(0, err) < 0)
		return -1;
	if (getresuid(&real, &effective, &saved) < 0 || real != NOBODY || effective != NOBODY ||
		saved != NOBODY || setuid(0) == 0)
		return err_set(err, ERR_SYSTEM, "the privileges are still there");
	return 0;
}

int privileges_drop(struct err *err)
{
	struct seccomp_program *filter = NULL;
	int ret = -1;

	if (raise_files(err) < 0 ||
		seccomp_program_new(refused, ARRAY_LEN(refused), &filter, err) < 0)
		return -1;
	if (leave_files(err) < 0 || become_nobody(err) < 0)
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
