/* cpio.c - see cpio.h */
#include "engine/vm/cpio.h"
#include <sys/sysmacros.h>

static void pad(struct buf *out)
{
	static const uint8_t zeros[4];

	buf_add(out, zeros, (4 - out->len % 4) % 4);
}

void cpio_add(
	struct buf *out, const char *path, mode_t mode, dev_t device, const void *data, size_t len)
{
	/* The kernel treats two files with the same inode number as hard links, unless their
	 * link count is one. */
	const unsigned fields[] = { 0, mode, 0, 0, 1, 0, (unsigned)len, 0, 0, major(device),
		minor(device), (unsigned)strlen(path) + 1, 0 };

	buf_add_str(out, "070701");
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		buf_addf(out, "%08X", fields[i]);
	buf_add(out, path, strlen(path) + 1);
	pad(out);
	buf_add(out, data, len);
	pad(out);
}

void cpio_end(struct buf *out)
{
	cpio_add(out, "TRAILER!!!", 0, 0, NULL, 0);
}
