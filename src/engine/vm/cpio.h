/* cpio.h - an initramfs: the newc format of cpio, as the kernel unpacks it */
#pragma once
#include "base/buf.h"
#include <sys/types.h>

/* mode includes the type (S_IFREG, S_IFDIR, S_IFCHR); device is for S_IFCHR. Folders come before
 * their contents. Owners and times are zero: the same content gives the same bytes. */
void cpio_add(
	struct buf *out, const char *path, mode_t mode, dev_t device, const void *data, size_t len);
void cpio_end(struct buf *out);
