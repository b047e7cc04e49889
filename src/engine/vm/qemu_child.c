/* qemu_child.c - from clone to QEMU: its cgroups, network, root, user
 *
 * QEMU loads its libraries, its accelerator and its firmware by path, so it starts in a root
 * that has them read-only and nothing else; when it answers, a second child unmounts them again
 * (qemu_empty_root). QEMU's own -chroot does not fit: it needs root privileges during the whole
 * start, is refused by -sandbox elevateprivileges=deny, and was removed in later versions in
 * favour of an option that 7.2 does not have.
 *
 * The child is a copy of the daemon: it allocates nothing, makes system calls and reports a
 * struct err. */
#include "base/file.h"
#include "engine/vm/qemu_internal.h"
#include "sys/caps.h"
#include "sys/cgroup.h"
#include "sys/clone.h"
#include "sys/mountfd.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

enum {
	SAFE = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
	FD_FREE = 64,
	FILES_MAX = 1024,
};

struct child {
	struct qemu_plan *plan;
	int root;
	uid_t uid;
};

/* Directories visible in the root during the start, if they exist; links are copied as links
 * (/lib on merged systems). */
static const char *const folders[] = { "usr", "lib", "lib32", "lib64", "libx32" };

static int enter_cgroups(struct child *child, struct err *err)
{
	const struct qemu_spec *spec = child->plan->spec;

	/* The daemon's protection from the OOM killer is not inherited. */
	file_poke(AT_FDCWD, "/proc/self/oom_score_adj", "0", NULL);
	return spec->join ? cgroup_join_enter(spec->join, err) : 0;
}

/* /proc is still the host's: our pid there is the outer one. */
static int choose_user(struct child *child, struct err *err)
{
	char text[16] = "";
	ssize_t n = readlink("/proc/self", text, sizeof text - 1);
	long pid = n > 0 ? strtol(text, NULL, 10) : 0;

	if (pid <= 0)
		return err_set(err, ERR_SYSTEM, "/proc does not tell the pid of QEMU");
	child->uid = QEMU_UID_FIRST + (uid_t)pid;
	return 0;
}

static int enter_network(struct child *child, struct err *err)
{
	int netns = child->plan->spec->netns;

	if (netns >= 0 && setns(netns, CLONE_NEWNET) < 0)
		return err_sys(err, errno, "enter the network of the box");
	return 0;
}

/* ---- the root ------------------------------------------------------------------------------- */

static int make_root(struct child *child, struct err *err)
{
	static const struct mount_option options[] = { { "mode", "0755" }, { "size", "64k" },
		{ "nr_inodes", "64" }, { NULL, NULL } };
	int top = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), status;

	if (top < 0)
		return err_sys(err, errno, "open '/'");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(err, errno, "make mounts private");
	if (mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, &child->root, err) <
		0)
		return -1;
	status = mount_attach(child->root, top, err);
	close(top);
	return status;
}

static int bind_at(
	struct child *child, const char *source, const char *target, bool folder, struct err *err)
{
	int copy = -1, place, status = -1;

	place = openat(child->root, target, O_PATH | O_CLOEXEC | (folder ? O_DIRECTORY : 0));
	if (place < 0)
		return err_sys(err, errno, "open '/%s' in the root of QEMU", target);
	if (mount_clone(AT_FDCWD, source, &copy, err) == 0 && mount_set(copy, SAFE, err) == 0)
		status = mount_attach(copy, place, err);
	if (copy >= 0)
		close(copy);
	close(place);
	return status < 0 ? err_wrap(err, "show '%s' to QEMU", source) : 0;
}

static int show_folder(struct child *child, const char *name, struct err *err)
{
	char path[16], link[128];
	struct stat st;
	ssize_t n;

	snprintf(path, sizeof path, "/%s", name);
	if (lstat(path, &st) < 0)
		return 0;
	if (S_ISLNK(st.st_mode)) {
		n = readlink(path, link, sizeof link - 1);
		if (n < 0)
			return err_sys(err, errno, "readlink '%s'", path);
		link[n] = '\0';
		return symlinkat(link, child->root, name) < 0
			       ? err_sys(err, errno, "link '%s' for QEMU", path)
			       : 0;
	}
	if (mkdirat(child->root, name, 0755) < 0)
		return err_sys(err, errno, "make '%s' for QEMU", path);
	return bind_at(child, path, name, true, err);
}

/* Path is absolute and short. */
static int show_prefix(struct child *child, const char *path, struct err *err)
{
	char part[256];
	size_t len = strlen(path);

	if (len >= sizeof part)
		return err_set(err, ERR_INVALID, "the path of QEMU's program is too long");
	for (size_t i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i])
			continue;
		memcpy(part, path + 1, i - 1);
		part[i - 1] = '\0';
		if (mkdirat(child->root, part, 0755) < 0 && errno != EEXIST)
			return err_sys(err, errno, "make '/%s' for QEMU", part);
	}
	return bind_at(child, path, path + 1, true, err);
}

static int show_file(struct child *child, const char *source, const char *target, struct err *err)
{
	if (!source)
		return 0;
	if (mknodat(child->root, target + 1, S_IFREG | 0444, 0) < 0)
		return err_sys(err, errno, "make '%s' for QEMU", target);
	return bind_at(child, source, target + 1, false, err);
}

/* A device node of QEMU's own: the host's belongs to root. */
static int make_kvm(struct child *child, struct err *err)
{
	static const struct mount_option options[] = { { "mode", "0755" }, { "nr_inodes", "4" },
		{ NULL, NULL } };
	int dev = -1, place;

	if (!child->plan->spec->machine->kvm)
		return 0;
	if (mkdirat(child->root, "dev", 0755) < 0 ||
		(place = openat(child->root, "dev", O_PATH | O_CLOEXEC)) < 0)
		return err_sys(err, errno, "make '/dev' for QEMU");
	if (mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, &dev, err) < 0 ||
		mount_attach(dev, place, err) < 0)
		return -1;
	if (mknodat(dev, "kvm", S_IFCHR | 0600, makedev(10, 232)) < 0 ||
		fchownat(dev, "kvm", child->uid, child->uid, 0) < 0)
		return err_sys(err, errno, "make '/dev/kvm' for QEMU");
	return 0;
}

static int fill_root(struct child *child, struct err *err)
{
	const struct qemu_spec *spec = child->plan->spec;

	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		if (show_folder(child, folders[i], err) < 0)
			return -1;
	if (child->plan->prefix && show_prefix(child, child->plan->prefix, err) < 0)
		return -1;
	if (mkdirat(child->root, "etc", 0755) < 0)
		return err_sys(err, errno, "make '/etc' for QEMU");
	if (access("/etc/ld.so.cache", R_OK) == 0 &&
		show_file(child, "/etc/ld.so.cache", "/etc/ld.so.cache", err) < 0)
		return -1;
	if (show_file(child, spec->kernel, QEMU_IN_KERNEL, err) < 0 ||
		show_file(child, spec->kernel ? spec->initrd : NULL, QEMU_IN_INITRD, err) < 0 ||
		show_file(child, spec->preload, QEMU_IN_PRELOAD, err) < 0)
		return -1;
	return make_kvm(child, err);
}

static int change_root(struct child *child, struct err *err)
{
	if (mount_set(child->root, SAFE, err) < 0)
		return -1;
	if (fchdir(child->root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return err_sys(err, errno, "change the root of QEMU");
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_sys(err, errno, "let go of the old root");
	return 0;
}

/* Unmounts what is mounted; which mounts were made is not recorded. */
_Noreturn void qemu_empty_root(int pidfd, const char *prefix)
{
	static const char *const files[] = { "/etc/ld.so.cache", QEMU_IN_KERNEL, QEMU_IN_INITRD,
		QEMU_IN_PRELOAD, "/dev" };
	struct stat st;
	char path[16];

	if (setns(pidfd, CLONE_NEWNS) < 0)
		_exit(1);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		umount2(files[i], MNT_DETACH | UMOUNT_NOFOLLOW);
	if (prefix)
		umount2(prefix, MNT_DETACH | UMOUNT_NOFOLLOW);
	for (size_t i = ARRAY_LEN(folders); i-- > 0;) {
		snprintf(path, sizeof path, "/%s", folders[i]);
		umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
	}
	_exit(stat("/usr/bin", &st) == 0 ? 2 : 0);
}

/* ---- dropping privileges -------------------------------------------------------------------- */

static int arrange_fds(struct child *child, struct err *err)
{
	struct qemu_plan *plan = child->plan;
	int in[2];

	/* An empty pipe instead of /dev/null, which no longer exists here. */
	if (pipe2(in, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe");
	/* Moved away first: any of these may have the number of another. */
	for (int i = QEMU_FD_QMP; i < QEMU_FD_END; i++)
		if (plan->fds[i] >= 0 &&
			(plan->fds[i] = fcntl(plan->fds[i], F_DUPFD_CLOEXEC, FD_FREE)) < 0)
			return err_sys(err, errno, "arrange file descriptors");
	plan->report = fcntl(plan->report, F_DUPFD_CLOEXEC, FD_FREE);
	plan->output = fcntl(plan->output, F_DUPFD_CLOEXEC, FD_FREE);
	in[0] = fcntl(in[0], F_DUPFD_CLOEXEC, FD_FREE);
	if (plan->report < 0 || plan->output < 0 || in[0] < 0 || dup2(in[0], 0) < 0 ||
		dup2(plan->output, 1) < 0 || dup2(plan->output, 2) < 0)
		return err_sys(err, errno, "arrange file descriptors");
	for (int i = QEMU_FD_QMP; i < QEMU_FD_END; i++) {
		if (plan->fds[i] >= 0 && dup2(plan->fds[i], i) < 0)
			return err_sys(err, errno, "arrange file descriptors");
		if (plan->fds[i] < 0)
			close(i);
	}
	if (close_range(QEMU_FD_END, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		return err_sys(err, errno, "close_range");
	return 0;
}

static int drop_privileges(struct child *child, struct err *err)
{
	const struct rlimit none = { 0, 0 }, files = { FILES_MAX, FILES_MAX };
	uid_t uid = child->uid;

	if (setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, errno, "limit QEMU");
	if (caps_bound(0, err) < 0)
		return -1;
	if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
		return err_sys(err, errno, "become user %u", (unsigned)uid);
	if (caps_keep(0, err) < 0)
		return -1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(err, errno, "set no_new_privs");
	/* Otherwise half of the private memory of a copy would be unused parts of huge pages. */
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	return 0;
}

static int run_qemu(struct child *child, struct err *err)
{
	setsid();
	umask(077);
	clone_reset_signals();
	execve(child->plan->argv[0], child->plan->argv, child->plan->envp);
	return err_sys(err, errno, "execute '%s'", child->plan->argv[0]);
}

static int (*const steps[])(struct child *child, struct err *err) = {
	enter_cgroups,
	choose_user,
	enter_network,
	make_root,
	fill_root,
	change_root,
	arrange_fds,
	drop_privileges,
	run_qemu,
};

_Noreturn void qemu_child(struct qemu_plan *plan)
{
	struct child child = { .plan = plan, .root = -1 };
	struct err err = ERR_INIT;

	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		if (steps[i](&child, &err) < 0)
			break;
	send(plan->report, &err, sizeof err, MSG_NOSIGNAL);
	_exit(127);
}
