/* idmap.c - see idmap.h */
#include "sys/idmap.h"
#include "base/alloc.h"
#include "base/file.h"
#include "sys/clone.h"
#include "sys/mountfd.h"
#include "sys/procfd.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>

enum { END_MS = 2000 };

int idmap_write(pid_t pid, uint32_t base, uint32_t count, struct err *err)
{
	char path[32], map[48];

	snprintf(map, sizeof map, "0 %u %u\n", base, count);
	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	if (file_poke(AT_FDCWD, path, map, err) < 0)
		return -1;
	snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
	return file_poke(AT_FDCWD, path, map, err);
}

int idmap_open(pid_t pid, int *ret, struct err *err)
{
	char path[32];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	*ret = fd;
	return 0;
}

static int write_pair(pid_t pid, const struct idmap_pair *pair, struct err *err)
{
	uint32_t count = MAX(pair->count, 1u);
	char path[32], map[48];

	snprintf(map, sizeof map, "%u %u %u\n", pair->disk_uid, pair->uid, count);
	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	if (file_poke(AT_FDCWD, path, map, err) < 0)
		return -1;
	snprintf(map, sizeof map, "%u %u %u\n", pair->disk_gid, pair->gid, count);
	snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
	return file_poke(AT_FDCWD, path, map, err);
}

/* The pipe is the child's leash: it ends when we let go of it, and if we die. */
int idmap_new(const struct idmap_pair *pair, int *ret, struct err *err)
{
	struct clone_spec how = { .namespaces = CLONE_NEWUSER, .cgroup = -1 };
	struct pollfd poller = { .events = POLLIN };
	int leash[2], status = -1, ignored;
	pid_t pid;
	char byte;

	if (pipe2(leash, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe");
	pid = clone_process(&how, &poller.fd, err);
	if (pid == 0) {
		close(leash[1]);
		_exit(read(leash[0], &byte, 1) < 0);
	}
	close(leash[0]);
	if (pid > 0 && write_pair(pid, pair, err) == 0)
		status = idmap_open(pid, ret, err);
	close(leash[1]);
	if (pid < 0)
		return -1;
	if (poll(&poller, 1, END_MS) == 0) {
		procfd_kill(poller.fd, SIGKILL, NULL);
		poll(&poller, 1, END_MS);
	}
	procfd_reap(poller.fd, &ignored);
	close(poller.fd);
	return status;
}

int idmap_clone_tree(
	int dirfd, const char *path, const struct idmap_view *view, int *ret, struct err *err)
{
	_cleanup_close_ int tree = -1;
	struct mount_attr change = {
		.attr_set = MOUNT_ATTR_IDMAP | view->set,
		.attr_clr = view->clear,
		.userns_fd = (unsigned)view->userns,
	};

	if (mount_clone(dirfd, path, &tree, err) < 0)
		return -1;
	if (mount_setattr(tree, "", AT_EMPTY_PATH, &change, sizeof change) < 0) {
		int saved = errno;

		err_sys(err, saved, "id-map the mount of '%s'", path);
		if (err && (saved == EINVAL || saved == ENOSYS || saved == EOPNOTSUPP)) {
			err->kind = ERR_UNSUPPORTED;
			err_hint(err, "its file system cannot be id-mapped by this kernel; "
				      "ext4, xfs and btrfs can, tmpfs on Linux 6.3 and later");
		}
		return -1;
	}
	*ret = steal_fd(&tree);
	return 0;
}
