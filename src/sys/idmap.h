/* idmap.h - user id ranges: maps of a user namespace, and mounts seen through them */
#pragma once
#include "base/err.h"
#include <stdint.h>
#include <sys/types.h>

/* Maps ids 0..count-1 of pid's user namespace to base..base+count-1, users and groups. */
int idmap_write(pid_t pid, uint32_t base, uint32_t count, struct err *err);
/* The user namespace of pid as an fd. */
int idmap_open(pid_t pid, int *ret, struct err *err);
/* A detached copy of the mount tree at path (relative to dirfd) in which ids on disk appear shifted as
 * userns maps them. attr: MOUNT_ATTR_* to set as well. ERR_UNSUPPORTED when the file system cannot. */
int idmap_clone_tree(
	int dirfd, const char *path, int userns, uint64_t attr, int *ret, struct err *err);
