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

static int write_maps(pid_t pid, const char *users, const char *groups, struct err *err)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	if (file_poke(AT_FDCWD, path, users, err) < 0)
		return -1;
	snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
	return file_poke(AT_FDCWD, path, groups, err);
}

static size_t add_line(char *map, size_t size, size_t len, const struct idmap_extent *extent)
{
	return len + (size_t)snprintf(map + len, size - len, "%u %u %u\n", extent->inside,
			     extent->outside, extent->count);
}

int idmap_write(pid_t pid, const struct idmap_extent *extents, size_t count, struct err *err)
{
	char map[40 * IDMAP_EXTENTS_MAX];
	size_t len = 0;

	for (size_t i = 0; i < MIN(count, (size_t)IDMAP_EXTENTS_MAX); i++)
		len = add_line(map, sizeof map, len, &extents[i]);
	return write_maps(pid, map, map, err);
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
	struct idmap_extent user = { pair->disk_uid, pair->uid, MAX(pair->count, 1u) },
			    group = { pair->disk_gid, pair->gid, MAX(pair->count, 1u) };
	char users[80], groups[80];
	size_t len[] = { add_line(users, sizeof users, 0, &user),
		add_line(groups, sizeof groups, 0, &group) };

	if (pair->more.count) {
		add_line(users, sizeof users, len[0], &pair->more);
		add_line(groups, sizeof groups, len[1], &pair->more);
	}
	return write_maps(pid, users, groups, err);
}

/* The pipe holds the child: it ends when we close the pipe, or die. */
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
