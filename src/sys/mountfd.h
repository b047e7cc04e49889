/* mountfd.h - mounts by file descriptors: made detached, attached when all is ready
 *
 * A detached mount is in no mount tree and vanishes with its last fd, so a failure in the middle
 * leaves nothing behind. Nothing here allocates: a cloned child may call it. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>

struct mount_option {
	const char *key;   /* NULL ends the list */
	const char *value; /* NULL: a flag */
};

/* Mounts a new file system of a type, detached. attr: MOUNT_ATTR_*. options may be NULL. */
int mount_new(const char *type, const struct mount_option *options, unsigned attr, int *ret,
	struct err *err);
/* Makes a detached copy of the mount tree at path below dirfd; "" means dirfd itself. */
int mount_clone(int dirfd, const char *path, int *ret, struct err *err);
/* Sets MOUNT_ATTR_* on one detached or attached mount, not on mounts below it. */
int mount_set(int mount, uint64_t attr, struct err *err);
/* Makes the file system behind a mount read-only, for all its mounts. Unlike a read-only mount, the
 * file system can be written until this is called, even through mounts made later. */
int mount_freeze(int mount, struct err *err);
/* Attaches a detached mount on the directory or file that target refers to. */
int mount_attach(int mount, int target, struct err *err);
/* Detaches an attached mount from the caller's mount namespace; its fd and copies made from it stay
 * valid. Does nothing when it is not attached there. */
void mount_take_off(int mount);

struct overlay_spec {
	const int *lowers; /* the top layer first; each is a directory on an id-mapped mount, by
			    * fd */
	size_t lower_count;
	/* A mount that holds the directories `upper` and `work`. -1: a read-only overlay of at
	 * least two lower layers. */
	int disk;
	bool mixed;   /* the lower layers are on several file systems: inode numbers are marked
		     * (xino) */
	uint32_t uid; /* the outside id of the user that owns the disk: overlay acts as this user */
};

/* Makes an overlay, detached and writable, of layers that need not be attached: Linux 6.15 and
 * later. Fails with ERR_UNSUPPORTED when the kernel lacks a part of it. */
int overlay_new(const struct overlay_spec *spec, int *ret, struct err *err);
/* As overlay_new, for kernels where layers must be attached in the caller's mount namespace: the
 * overlay is attached too, on the directory `place`. The caller detaches it. */
int overlay_attach(const struct overlay_spec *spec, const char *place, struct err *err);
