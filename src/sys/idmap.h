/* idmap.h - user id ranges: maps of a user namespace, and mounts seen through them */
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* count ids of a user namespace from inside on, and who they are outside. */
struct idmap_extent {
	uint32_t inside, outside, count;
};
enum { IDMAP_EXTENTS_MAX = 4 };
/* Maps users and groups of pid's user namespace so; at most IDMAP_EXTENTS_MAX. */
int idmap_write(pid_t pid, const struct idmap_extent *extents, size_t count, struct err *err);
/* The user namespace of pid as an fd. */
int idmap_open(pid_t pid, int *ret, struct err *err);

/* One user and one group on disk, and who they are outside; with count a range of them. */
struct idmap_pair {
	uid_t disk_uid, uid;
	gid_t disk_gid, gid;
	uint32_t count;		  /* 0: one */
	struct idmap_extent more; /* users and groups; none when its count is 0 */
};
/* A user namespace that maps these and nobody else; made by a process that is gone afterwards. The
 * caller should be small, since it is copied. */
int idmap_new(const struct idmap_pair *pair, int *ret, struct err *err);

struct idmap_view {
	int userns;	/* ids on disk appear shifted as it maps them; others as nobody */
	uint64_t set;	/* MOUNT_ATTR_* to set as well */
	uint64_t clear; /* and to clear */
};
/* A detached copy of the mount at path (relative to dirfd; "" is dirfd itself), seen so.
 * ERR_UNSUPPORTED when the file system cannot. */
int idmap_clone_tree(
	int dirfd, const char *path, const struct idmap_view *view, int *ret, struct err *err);
