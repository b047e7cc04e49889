/* xattrs.h - the extended attributes of a file that are kept in an archive */
#pragma once
#include "base/buf.h"
#include "tar/tar.h"

/* The attributes security.capability and user.*, sorted by name. */
struct xattrs {
	struct buf text;
	struct tar_xattr list[TAR_XATTRS_MAX];
	size_t count;
};
int xattrs_read(int fd, const char *path, struct xattrs *ret, struct err *err);
void xattrs_done(struct xattrs *xattrs);
