/* tar.h - the tar format: ustar with pax and GNU long names; pure, bytes in and out
 *
 * Strict: checksums, numbers, terminators and the two blocks at the end must be right. Sparse files and
 * unknown types are refused. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "wire/wire.h"
#include <sys/types.h>

enum { TAR_BLOCK = 512, TAR_PAX_MAX = 64 * 1024 };

enum tar_type {
	TAR_FILE = '0',
	TAR_LINK = '1', /* to the member named by link */
	TAR_SYMLINK = '2',
	TAR_CHAR = '3',
	TAR_BLOCK_DEVICE = '4',
	TAR_DIR = '5',
	TAR_FIFO = '6',
};

struct tar_entry {
	enum tar_type type;
	char name[WIRE_PATH_MAX + 1]; /* as it stands, without slashes at its end */
	char link[WIRE_PATH_MAX + 1];
	uint64_t size; /* of a file, else 0 */
	uint32_t mode; /* permission bits */
	uint32_t uid, gid;
	int64_t mtime;
	uint32_t mtime_ns;
	uint32_t major, minor;
};

struct tar_reader {
	/* Up to len bytes into data; 0 at the end, -1 on error. */
	ssize_t (*read)(void *arg, void *data, size_t len, struct err *err);
	void *arg;
	uint64_t left; /* of the present file, and what fills its last block */
	uint32_t fill;
	/* What pax or GNU headers said about the next entry. */
	bool has_name, has_link, has_size, has_mtime, has_uid, has_gid;
	struct tar_entry said;
	struct tar_entry entry;
};

/* The next entry, borrowed until the next call, in *ret: 1. 0 at the end of the archive, -1 on error. What
 * was not read of the last entry is passed over. */
int tar_next(struct tar_reader *reader, const struct tar_entry **ret, struct err *err);
/* Content of the present file: up to len bytes, 0 at its end, -1 on error. */
ssize_t tar_read(struct tar_reader *reader, void *data, size_t len, struct err *err);

/* The blocks that announce entry; a file's bytes and tar_fill() zeros follow. */
void tar_put_header(struct buf *out, const struct tar_entry *entry);
uint32_t tar_fill(uint64_t size);
enum { TAR_END_SIZE = 2 * TAR_BLOCK }; /* zeros at the end of an archive */
