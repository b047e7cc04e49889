/* child.c - the box's half of a start: from clone to box-init
 *
 * One list of steps. Until the daemon's second message the child makes what needs no root file
 * system (network, detached mounts, the socket), while the daemon stacks the overlay; then it puts
 * everything together, changes its root and gives up what the profile does not grant.
 *
 * The child is a copy of the spawner: it allocates nothing, logs nothing, makes system calls and
 * reports a struct err. The root it mounts on may have been prepared by the box in an earlier life:
 * targets are opened without following links, missing directories are made, anything else is
 * refused. */
#include "engine/ns/ns_internal.h"
#include "net/doors.h"
#include "sys/beneath.h"
#include "sys/caps.h"
#include "sys/clone.h"
#include "sys/fdpass.h"
#include "sys/mountfd.h"
#include "sys/seccomp.h"
#include "wire/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

enum {
	FD_LISTEN = 3, /* where box-init finds its socket */
	FD_CONTROL = 4,
	BACKLOG = 64,
};

enum {
	SAFE = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
};

/* File systems a box has besides its root, in the order they are attached. */
enum fs { FS_PROC, FS_SYS, FS_CGROUP, FS_PTS, FS_SHM, FS_MQUEUE, FS_RUN, FS_SOCKET, FS_COUNT };

static const struct {
	const char *type;
	const char *target;
	unsigned attr;
	bool optional;
	const struct mount_option *options;
} file_systems[] = {
	[FS_PROC] = { "proc", "proc", SAFE, false, NULL },
	[FS_SYS] = { "sysfs", "sys", SAFE | MOUNT_ATTR_RDONLY, false, NULL },
	[FS_CGROUP] = { "cgroup2", "sys/fs/cgroup", SAFE, true, NULL },
	[FS_PTS] = { "devpts", "dev/pts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, false,
		(const struct mount_option[]){ { "newinstance", NULL }, { "ptmxmode", "0666" },
			{ "mode", "0620" }, { "gid", "5" },
			{ "max", "256" }, /* the machine has only some thousands for all */
			{ NULL, NULL } } },
	[FS_SHM] = { "tmpfs", "dev/shm", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, false,
		(const struct mount_option[]){
			{ "mode", "1777" }, { "size", "50%" }, { NULL, NULL } } },
	[FS_MQUEUE] = { "mqueue", "dev/mqueue", SAFE, true, NULL },
	[FS_RUN] = { "tmpfs", "run", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, false,
		(const struct mount_option[]){
			{ "mode", "0755" }, { "size", "64m" }, { NULL, NULL } } },
	[FS_SOCKET] = { "tmpfs", "run/boxyard", SAFE, false,
		(const struct mount_option[]){ { "mode", "0755" }, { "size", "64k" },
			{ "nr_inodes", "8" }, { NULL, NULL } } },
};
_Static_assert(ARRAY_LEN(file_systems) == FS_COUNT, "every file system has a row");
_Static_assert(sizeof WIRE_SOCKET_DIR == sizeof "/run/boxyard", "FS_SOCKET is WIRE_SOCKET_DIR");

struct child {
	const struct ns_engine *engine;
	struct ns_plan *plan;
	int mounts[FS_COUNT]; /* detached at first; -1: none */
	int listener;
	int gifts[NS_FDS_MAX]; /* from the daemon; -1: none */
	size_t mount_count;    /* of the last gifts */
	/* Their targets, each ended by a NUL, in the order of the message. */
	char targets[1 + MOUNT_TARGETS_MAX];
	int root;
};

/* ---- before the root is there --------------------------------------------------------------- */

static int make_network(struct child *child, struct err *err)
{
	if (!child->engine->doors)
		return err_set(err, ERR_UNSUPPORTED, "%s", child->engine->doors_problem.message);
	if (unshare(CLONE_NEWNET) < 0)
		return err_sys(err, errno, "unshare the network");
	return doors_furnish(child->engine->doors, child->plan->profile == PROFILE_NESTED, err);
}

/* Receives a word, the data after it and its fds; missing fds are -1. */
static int receive(
	struct child *child, enum ns_word want, size_t *ret_len, size_t *ret_count, struct err *err)
{
	struct fdpass came;
	ssize_t got;

	memset(child->gifts, 0xff, sizeof child->gifts);
	got = fdpass_receive(child->plan->control, child->targets, sizeof child->targets,
		child->gifts, NS_FDS_MAX, 0, &came);
	if (got < 0)
		return err_sys(err, errno, "hear from the daemon");
	if (got < 1 || child->targets[0] != (char)want)
		return err_set(err, ERR_CANCELLED, "the daemon gave up");
	if (came.lost)
		return err_set(err, ERR_LIMIT, "the new box has no file descriptors left");
	*ret_len = (size_t)got;
	*ret_count = came.count;
	return 0;
}

static int enter_cgroups(struct child *child, struct err *err)
{
	struct cgroup_join join;
	size_t len;

	if (receive(child, NS_WORD_MAPPED, &len, &join.count, err) < 0)
		return -1;
	join.count = MIN(join.count, CGROUP_JOIN_MAX);
	memcpy(join.fds, child->gifts, sizeof join.fds);
	return cgroup_join_enter(&join, err);
}

static int become_root(struct child *child, struct err *err)
{
	const char *hostname = child->plan->hostname;

	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 || setgroups(0, NULL) < 0)
		return err_sys(err, errno, "become root of the box");
	umask(022);
	setsid();
	if (sethostname(hostname, strlen(hostname)) < 0)
		return err_sys(err, errno, "sethostname");
	/* Only now: the child's current cgroup becomes the root of what the box sees, and message
	 * queues belong to the user who makes their namespace. */
	if (unshare(CLONE_NEWCGROUP | CLONE_NEWIPC) < 0)
		return err_sys(err, errno, "unshare");
	/* Applies to the children of box-init; before Linux 6.3 not to box-init itself. EINVAL: the
	 * kernel has no time namespaces. */
	if (child->plan->time_apart && unshare(CLONE_NEWTIME) < 0 && errno != EINVAL)
		return err_sys(err, errno, "unshare the time");
	return 0;
}

static bool wanted(const struct child *child, enum fs fs)
{
	return fs != FS_CGROUP || child->plan->cgroup_view != CGROUP_VIEW_NONE;
}

static int make_mounts(struct child *child, struct err *err)
{
	for (unsigned i = 0; i < FS_COUNT; i++) {
		unsigned attr = file_systems[i].attr;

		if (!wanted(child, i))
			continue;
		if (i == FS_CGROUP && child->plan->cgroup_view == CGROUP_VIEW_READ_ONLY)
			attr |= MOUNT_ATTR_RDONLY;
		if (mount_new(file_systems[i].type, file_systems[i].options, attr,
			    &child->mounts[i], err) < 0 &&
			!file_systems[i].optional)
			return -1;
	}
	if (mkdirat(child->mounts[FS_RUN], "boxyard", 0755) < 0)
		return err_sys(err, errno, "make '" WIRE_SOCKET_DIR "'");
	return 0;
}

/* The socket is on its own read-only file system, so that the box cannot remove what the daemon
 * connects to. */
static int make_socket(struct child *child, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *name = &WIRE_SOCKET_PATH[sizeof WIRE_SOCKET_DIR];
	int mount = child->mounts[FS_SOCKET];

	child->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (child->listener < 0)
		return err_sys(err, errno, "socket");
	snprintf(address.sun_path, sizeof address.sun_path, "%s", name);
	if (fchdir(mount) < 0)
		return err_sys(err, errno, "enter '" WIRE_SOCKET_DIR "'");
	if (bind(child->listener, (struct sockaddr *)&address, sizeof address) < 0)
		return err_sys(err, errno, "bind '" WIRE_SOCKET_PATH "'");
	if (fchmodat(mount, name, 0600, 0) < 0)
		return err_sys(err, errno, "chmod '" WIRE_SOCKET_PATH "'");
	if (listen(child->listener, BACKLOG) < 0)
		return err_sys(err, errno, "listen on '" WIRE_SOCKET_PATH "'");
	return mount_freeze(mount, err);
}

/* Making a user namespace needs no capability: the filter refuses the calls, and this limit refuses
 * what the filter would miss. It applies only to the box's own user namespace. */
static int forbid_user_namespaces(struct child *child, struct err *err)
{
	int fd;

	if (child->plan->profile != PROFILE_STANDARD)
		return 0;
	fd = openat(child->mounts[FS_PROC], "sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) < 0)
		return err_sys(err, errno, "set user.max_user_namespaces");
	close(fd);
	return 0;
}

/* A System V segment may be larger than the machine's memory while it is empty; after a capture it
 * could not be made again, and the state would be lost. Where the kernel does not allow the limit,
 * nothing changes. */
static int bound_shared_memory(struct child *child, struct err *err)
{
	int fd = openat(child->mounts[FS_PROC], "sys/kernel/shmmax", O_WRONLY | O_CLOEXEC);
	struct sysinfo machine;
	char text[32];

	(void)err;
	if (fd < 0)
		return 0;
	if (sysinfo(&machine) == 0) {
		snprintf(text, sizeof text, "%llu",
			(unsigned long long)machine.totalram * machine.mem_unit);
		(void)!write(fd, text, strlen(text));
	}
	close(fd);
	return 0;
}

/* ---- putting it together -------------------------------------------------------------------- */

static int attach_at(struct child *child, int mount, const char *path, struct err *err)
{
	int target = -1;

	if (beneath_make_dir(child->root, path, 0755, &target, err) < 0)
		return -1;
	if (mount_attach(mount, target, err) < 0) {
		close(target);
		return err_wrap(err, "mount on '/%s'", path);
	}
	close(target);
	return 0;
}

/* Attached on top of the daemon's root: a place that always exists. */
static int attach_root(struct child *child, struct err *err)
{
	size_t count, len, fixed = ns_fds_fixed(child->plan->profile);
	int top;

	if (receive(child, NS_WORD_ROOT, &len, &count, err) < 0)
		return -1;
	if (count < fixed)
		return err_set(err, ERR_PROTOCOL, "the daemon sent too few file systems");
	child->mount_count = count - fixed;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(err, errno, "make mounts private");
	child->root = child->gifts[NS_FD_ROOT];
	top = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return err_sys(err, errno, "open '/'");
	return mount_attach(child->root, top, err);
}

/* Makes /dev a mount of its own in the same file system, so that device nodes work only there,
 * whatever an image or the disk holds. */
static int keep_devices_apart(struct child *child, struct err *err)
{
	int target = -1, copy = -1, status = -1;

	if (beneath_make_dir(child->root, "dev", 0755, &target, err) < 0)
		return -1;
	if (mount_clone(target, "", &copy, err) == 0 && mount_attach(copy, target, err) == 0)
		status = mount_set(child->root, MOUNT_ATTR_NODEV, err);
	if (copy >= 0)
		close(copy);
	close(target);
	return status < 0 ? err_wrap(err, "'/dev'") : 0;
}

static int attach_mounts(struct child *child, struct err *err)
{
	for (unsigned i = 0; i < FS_COUNT; i++) {
		if (child->mounts[i] < 0)
			continue;
		if (attach_at(child, child->mounts[i], file_systems[i].target, err) < 0 &&
			!file_systems[i].optional)
			return -1;
	}
	if (attach_at(child, child->gifts[NS_FD_BIN], GUEST_MOUNT, err) < 0)
		return -1;
	/* Containers in the box cannot put their overlay on ours, so these are plain
	 * directories. */
	if (child->plan->profile == PROFILE_NESTED) {
		attach_at(child, child->gifts[NS_FD_CONTAINERS], "var/lib/containers", NULL);
		attach_at(child, child->gifts[NS_FD_DOCKER], "var/lib/docker", NULL);
	}
	return 0;
}

/* Attaches a folder or file of the host at a path of the box. */
static int attach_gift(struct child *child, int mount, const char *path, struct err *err)
{
	struct stat st;
	int target = -1, status;

	if (fstat(mount, &st) < 0)
		return err_sys(err, errno, "look at the source");
	if (S_ISDIR(st.st_mode))
		status = beneath_make_dir(child->root, path, 0755, &target, err);
	else
		status = beneath_make_file(child->root, path, 0644, &target, err);
	if (status == 0)
		status = mount_attach(mount, target, err);
	if (target >= 0)
		close(target);
	return status;
}

/* In the given order: a later mount may lie inside an earlier one. */
static int attach_gifts(struct child *child, struct err *err)
{
	const int *mounts = child->gifts + ns_fds_fixed(child->plan->profile);
	const char *target = child->targets + 1;

	for (size_t i = 0; i < child->mount_count; i++) {
		if (attach_gift(child, mounts[i], target + 1, err) < 0)
			return err_wrap(err, "mount on '%s'", target);
		target += strlen(target) + 1;
	}
	return 0;
}

static int open_null(struct child *child, int *ret, struct err *err)
{
	struct stat st;

	if (beneath_open(child->root, "dev/null", O_PATH, ret, err) < 0)
		return -1;
	if (fstat(*ret, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3)) {
		close(*ret);
		return err_set(err, ERR_INVALID, "'/dev/null' in the box is not the null device");
	}
	return 0;
}

static int cover(struct child *child, int source, const char *path, struct err *err)
{
	int target = -1, copy = -1, status = -1;

	if (beneath_open(child->root, path, O_PATH, &target, err) < 0)
		return -1;
	if (mount_clone(source, "", &copy, err) == 0)
		status = mount_attach(copy, target, err);
	close(copy);
	close(target);
	return status < 0 ? err_wrap(err, "hide '/%s'", path) : 0;
}

static int make_sysctls_read_only(struct child *child, struct err *err)
{
	int copy = -1, target = -1;

	if (mount_clone(child->root, "proc/sys", &copy, err) < 0 ||
		mount_set(copy, MOUNT_ATTR_RDONLY, err) < 0)
		return err_wrap(err, "'/proc/sys'");
	if (beneath_open(child->root, "proc/sys", O_PATH | O_DIRECTORY, &target, err) < 0)
		return -1;
	return mount_attach(copy, target, err);
}

/* Not in nested: where parts of /proc are covered, the kernel refuses a fresh /proc in
 * containers. */
static int hide_paths(struct child *child, struct err *err)
{
	int null = -1, empty = -1;

	if (child->plan->profile != PROFILE_STANDARD)
		return 0;
	if (open_null(child, &null, err) < 0)
		return -1;
	if (beneath_open(child->root, GUEST_EMPTY, O_PATH | O_DIRECTORY, &empty, err) < 0)
		return -1;
	for (unsigned i = 0; hidden_paths[i].path; i++) {
		if (!(child->engine->hidden >> i & 1))
			continue;
		if (cover(child, hidden_paths[i].is_dir ? empty : null, hidden_paths[i].path, err) <
			0)
			return -1;
	}
	return make_sysctls_read_only(child, err);
}

/* pivot_root puts the old root on top of the new one, where it is taken off. */
static int change_root(struct child *child, struct err *err)
{
	if (fchdir(child->root) < 0)
		return err_sys(err, errno, "enter the new root");
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return err_sys(err, errno, "pivot_root");
	if (umount2(".", MNT_DETACH) < 0)
		return err_sys(err, errno, "let go of the old root");
	if (chdir("/") < 0)
		return err_sys(err, errno, "enter '/'");
	return 0;
}

/* ---- giving things up ----------------------------------------------------------------------- */

static int arrange_fds(struct child *child, struct err *err)
{
	int null = -1, fd;

	if (open_null(child, &null, err) < 0)
		return -1;
	fd = open("/dev/null", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "open '/dev/null'");
	for (int i = 0; i < 3; i++)
		if (dup2(fd, i) < 0)
			return err_sys(err, errno, "dup2");
	/* Move it away first: any of these may itself be fd 3 or 4. */
	fd = fcntl(child->listener, F_DUPFD_CLOEXEC, 16);
	null = fcntl(child->plan->control, F_DUPFD_CLOEXEC, 16);
	if (fd < 0 || null < 0 || dup2(fd, FD_LISTEN) < 0 || dup3(null, FD_CONTROL, O_CLOEXEC) < 0)
		return err_sys(err, errno, "arrange file descriptors");
	child->plan->control = FD_CONTROL;
	if (close_range(FD_CONTROL + 1, ~0u, 0) < 0)
		return err_sys(err, errno, "close_range");
	return 0;
}

static int drop_privileges(struct child *child, struct err *err)
{
	enum profile profile = child->plan->profile;
	uint64_t keep = profile_capabilities(profile);

	if (setrlimit(RLIMIT_NOFILE, &child->engine->nofile) < 0)
		return err_sys(err, errno, "set RLIMIT_NOFILE");
	if (caps_bound(keep, err) < 0)
		return -1;
	/* Without no_new_privs, which would break sudo, installing a filter needs CAP_SYS_ADMIN:
	 * before it is dropped. */
	if (seccomp_program_install(child->engine->filters[profile], err) < 0)
		return -1;
	return caps_keep(keep, err);
}

static int run_init(struct child *child, struct err *err)
{
	char *const argv[] = { "box-init", NULL };
	char *const envp[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		NULL };

	(void)child;
	clone_reset_signals();
	execve(GUEST_INIT, argv, envp);
	return err_sys(err, errno, "execute '" GUEST_INIT "'");
}

static int (*const steps[])(struct child *child, struct err *err) = {
	make_network,
	enter_cgroups,
	become_root,
	make_mounts,
	make_socket,
	forbid_user_namespaces,
	bound_shared_memory,
	attach_root,
	keep_devices_apart,
	attach_mounts,
	attach_gifts,
	hide_paths,
	change_root,
	arrange_fds,
	drop_privileges,
	run_init,
};

_Noreturn void ns_child(const struct ns_engine *engine, struct ns_plan *plan)
{
	struct child child = { .engine = engine, .plan = plan, .listener = -1, .root = -1 };
	struct err err = ERR_INIT;

	memset(child.mounts, 0xff, sizeof child.mounts);
	memset(child.gifts, 0xff, sizeof child.gifts);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		if (steps[i](&child, &err) < 0)
			break;
	send(plan->control, &err, sizeof err, MSG_NOSIGNAL);
	_exit(1);
}
