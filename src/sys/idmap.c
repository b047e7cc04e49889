/* idmap.c - see idmap.h */
#include "sys/idmap.h"
#include "base/alloc.h"
#include "base/file.h"
#include "sys/mountfd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

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

int idmap_clone_tree(
	int dirfd, const char *path, int userns, uint64_t attr, int *ret, struct err *err)
{
	_cleanup_close_ int tree = -1;
	struct mount_attr change = {
		.attr_set = MOUNT_ATTR_IDMAP | attr,
		.userns_fd = (unsigned)userns,
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
