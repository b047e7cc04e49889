/* mountfd.h - the mount API by file descriptors: made detached, attached when all is ready
 *
 * A detached mount belongs to nobody's tree and vanishes with its last fd, so a failure in the
 * middle leaves nothing behind. Nothing here allocates: a cloned child may call it. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>

struct mount_option {
	const char *key;   /* NULL ends a list */
	const char *value; /* NULL: a flag */
};

/* A new file system of a type, detached. attr: MOUNT_ATTR_*. options may be NULL. */
int mount_new(const char *type, const struct mount_option *options, unsigned attr, int *ret,
	struct err *err);
/* A detached copy of the tree at path below dirfd; "" means dirfd itself. */
int mount_clone(int dirfd, const char *path, int *ret, struct err *err);
/* MOUNT_ATTR_* set on a detached or attached mount (no others of its tree). */
int mount_set(int mount, uint64_t attr, struct err *err);
/* The file system behind a mount becomes read-only itself, for all its mounts: unlike a read-only
 * mount, one that is made anew in its place can be written to until this is called. */
int mount_freeze(int mount, struct err *err);
/* Attaches a detached mount on the directory or file that target refers to. */
int mount_attach(int mount, int target, struct err *err);
/* Takes an attached mount out of the caller's mount namespace; its fd stays good, what is made from
 * it too. One that is not attached there stays as it is. */
void mount_take_off(int mount);

struct overlay_spec {
	const int *lowers; /* top first; each a directory on an id-mapped mount, by fd */
	size_t lower_count;
	/* One mount that holds the directories `upper` and `work`. -1: read-only, of two lowers at
	 * least. */
	int disk;
	bool mixed; /* with lowers of several file systems: their inode numbers are marked (xino) */
	uint32_t uid; /* the outside id of the user that owns the disk: overlay works in its name */
};

/* An overlay, detached and writable, of layers that need be attached nowhere: Linux 6.15 and later.
 * ERR_UNSUPPORTED when the kernel lacks a piece of it. */
int overlay_new(const struct overlay_spec *spec, int *ret, struct err *err);
/* The same where layers must be attached in the caller's mount namespace: the overlay is attached
 * too, on the directory `place`. Taking it off there again is the caller's. */
int overlay_attach(const struct overlay_spec *spec, const char *place, struct err *err);
