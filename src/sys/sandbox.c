/* sandbox.c - see sandbox.h */
#include "sys/sandbox.h"
#include "base/alloc.h"
#include "sys/caps.h"
#include "sys/seccomp.h"
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

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

static const struct seccomp_rule always[] = {
	/* programs and processes */
	REFUSE(execve), REFUSE(execveat), REFUSE(ptrace), REFUSE(process_vm_readv),
	REFUSE(process_vm_writev), REFUSE(pidfd_open), REFUSE(pidfd_getfd), REFUSE(setns),
	REFUSE(unshare), REFUSE(kcmp),
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
	REFUSE(semget), REFUSE(mq_open)
};

static const struct seccomp_rule no_processes[] = {
	REFUSE(clone),
	REFUSE(clone3),
#ifdef SYS_fork
	REFUSE(fork),
	REFUSE(vfork),
#endif
};

/* A user namespace would give capabilities again. The flags of clone3 are in memory, where a filter
 * does not see them; the C library then uses clone. */
static const struct seccomp_rule plain_processes[] = {
	{ .call = SYS_clone,
		.answer = EPERM,
		.masked = true,
		.arg = 0,
		.mask = CLONE_NEWUSER,
		.value = CLONE_NEWUSER },
	{ .call = SYS_clone3, .answer = ENOSYS },
};

static const struct seccomp_rule no_sockets[] = { REFUSE(socket) };

/* Sockets that lead elsewhere: abstract ones of the host too. */
static const struct seccomp_rule inet_sockets[] = { REFUSE_FAMILY(AF_UNIX),
	REFUSE_FAMILY(AF_NETLINK), REFUSE_FAMILY(AF_PACKET), REFUSE_FAMILY(AF_VSOCK),
	REFUSE_FAMILY(AF_ALG), REFUSE_FAMILY(AF_KEY), REFUSE_FAMILY(AF_XDP),
	REFUSE_FAMILY(AF_BLUETOOTH), REFUSE_FAMILY(AF_TIPC), REFUSE_FAMILY(AF_RDS),
	REFUSE_FAMILY(AF_CAN), REFUSE_FAMILY(AF_SMC) };

struct rules {
	struct seccomp_rule all[ARRAY_LEN(always) + ARRAY_LEN(no_processes) +
				ARRAY_LEN(plain_processes) + ARRAY_LEN(inet_sockets)];
	size_t count;
};

static void add(struct rules *rules, const struct seccomp_rule *more, size_t count)
{
	memcpy(rules->all + rules->count, more, count * sizeof *more);
	rules->count += count;
}

static int make_filter(unsigned allow, struct seccomp_program **ret, struct err *err)
{
	struct rules rules = { .count = 0 };

	add(&rules, always, ARRAY_LEN(always));
	if (allow & SANDBOX_FORK)
		add(&rules, plain_processes, ARRAY_LEN(plain_processes));
	else
		add(&rules, no_processes, ARRAY_LEN(no_processes));
	if (allow & SANDBOX_INET)
		add(&rules, inet_sockets, ARRAY_LEN(inet_sockets));
	else
		add(&rules, no_sockets, ARRAY_LEN(no_sockets));
	return seccomp_program_new(rules.all, rules.count, ret, err);
}

static int become(uid_t uid, struct err *err)
{
	uid_t real, effective, saved;

	if (caps_bound(0, err) < 0)
		return -1;
	if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
		return err_sys(err, errno, "become user %u", uid);
	if (caps_keep(0, err) < 0)
		return -1;
	if (!uid || getresuid(&real, &effective, &saved) < 0 || real != uid || effective != uid ||
		saved != uid || setuid(0) == 0)
		return err_set(err, ERR_SYSTEM, "the privileges are still there");
	return 0;
}

int sandbox_enter(uid_t uid, unsigned allow, struct err *err)
{
	struct seccomp_program *filter = NULL;
	int ret = -1;

	if (make_filter(allow, &filter, err) < 0)
		return -1;
	if (leave_files(err) < 0 || become(uid, err) < 0)
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
