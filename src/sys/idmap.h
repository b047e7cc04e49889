/* idmap.h - ranges of user ids: the maps of user namespaces, and id-mapped mounts */
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* count ids of a user namespace that begin at inside, and the ids they are outside. */
struct idmap_extent {
	uint32_t inside, outside, count;
};
enum { IDMAP_EXTENTS_MAX = 4 };
/* Maps the users and groups of pid's user namespace; at most IDMAP_EXTENTS_MAX extents. */
int idmap_write(pid_t pid, const struct idmap_extent *extents, size_t count, struct err *err);
/* Opens the user namespace of pid. */
int idmap_open(pid_t pid, int *ret, struct err *err);

/* One user and one group on disk, and the ids they are outside; with count, a range of them. */
struct idmap_pair {
	uid_t disk_uid, uid;
	gid_t disk_gid, gid;
	uint32_t count;		  /* 0: one */
	struct idmap_extent more; /* users and groups; none when its count is 0 */
};
/* Makes a user namespace that maps these ids and no others; the process that makes it is gone
 * afterwards. The caller should be small, because it is copied. */
int idmap_new(const struct idmap_pair *pair, int *ret, struct err *err);

struct idmap_view {
	int userns;	/* ids on disk appear as this user namespace maps them; all others as
			 * nobody */
	uint64_t set;	/* MOUNT_ATTR_* to set as well */
	uint64_t clear; /* MOUNT_ATTR_* to clear */
};
/* Makes a detached copy of the mount at path (relative to dirfd; "" is dirfd itself) with these
 * ids. Fails with ERR_UNSUPPORTED when the file system does not support it. */
int idmap_clone_tree(
	int dirfd, const char *path, const struct idmap_view *view, int *ret, struct err *err);
