/* tar.h - the tar format: ustar with pax and GNU extensions; pure, bytes in and out
 *
 * Strict: checksums, numbers, terminators and (but for bare_end) the two blocks at the end must be
 * right. Unknown types are refused. Long names (pax, GNU), large numbers, extended attributes
 * (SCHILY.xattr.) and sparse files (GNU old format and pax 0.0, 0.1, 1.0) are understood, and
 * headers from before ustar. Of global headers only those that change nothing are taken. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "wire/wire.h"
#include <stdbool.h>
#include <sys/types.h>

enum {
	TAR_BLOCK = 512,
	TAR_PAX_MAX = 1024 * 1024, /* of one extended header */
	TAR_XATTRS_MAX = 64,	   /* of one entry */
	TAR_XATTR_BYTES_MAX = 64 * 1024,
	TAR_PIECES_MAX = 65536, /* of one sparse file */
};

enum tar_type {
	TAR_FILE = '0',
	TAR_LINK = '1', /* to the member named by link */
	TAR_SYMLINK = '2',
	TAR_CHAR = '3',
	TAR_BLOCK_DEVICE = '4',
	TAR_DIR = '5',
	TAR_FIFO = '6',
};

struct tar_xattr {
	const char *name; /* "user.mime_type" */
	const void *value;
	size_t len;
};

/* Bytes of a sparse file that the archive holds; all others of it are zero. */
struct tar_piece {
	uint64_t offset, len;
};

/* name and link, when read, have at most WIRE_PATH_MAX bytes and are not NULL. */
struct tar_entry {
	enum tar_type type;
	const char *name;   /* as it is in the archive, without slashes at its end */
	const char *link;   /* the target of a link; NULL means "" to the writer */
	uint64_t size;	    /* bytes the archive holds of a file, else 0 */
	uint64_t real_size; /* the file's own size; differs from size for a sparse file only. Not
			     * written */
	uint32_t mode;	    /* permission bits, set-user-id, set-group-id and sticky too */
	uint32_t uid, gid;
	int64_t mtime;
	uint32_t mtime_ns;
	uint32_t major, minor;
	const struct tar_xattr *xattrs;
	size_t xattr_count;
	/* NULL: not sparse. Rising, not overlapping, inside real_size; none is empty. Not
	 * written. */
	const struct tar_piece *sparse;
	size_t sparse_count;
};

/* ---- reading -------------------------------------------------------------------------------- */

/* Returned by read(), and then by tar_next() and tar_read(), when no more bytes have come yet: call
 * the same function later to continue. Only for a read() that returns it. */
enum { TAR_WAIT = -2 };

struct tar_reader {
	/* Reads up to len bytes into data; 0 at the end, -1 on error, TAR_WAIT when there are none
	 * right now. */
	ssize_t (*read)(void *arg, void *data, size_t len, struct err *err);
	void *arg;
	/* The archive may end after a member, without the two zero blocks, as some tools write
	 * layers. Set it only where something else tells that nothing is missing. */
	bool bare_end;

	/* The rest belongs to the reader, and is zero at first. */
	int step;
	uint8_t block[TAR_BLOCK];
	size_t have;	 /* how much of the present step was collected */
	uint64_t pass;	 /* bytes to drop before the next step */
	bool zero_block; /* the first of the two zero blocks has come */
	uint64_t left;	 /* of the present file's stored bytes */
	uint32_t fill;	 /* padding of its last block */
	size_t piece;
	uint64_t in_piece; /* or in the file, if it is not sparse */

	/* What pax or GNU headers said about the next entry. */
	bool has_name, has_link, has_size, has_mtime, has_uid, has_gid;
	struct tar_entry said;
	char said_name[WIRE_PATH_MAX + 2], said_link[WIRE_PATH_MAX + 2];
	char *pax; /* text of the extended header, which xattrs point into */
	size_t pax_size;
	struct tar_xattr xattrs[TAR_XATTRS_MAX];
	size_t xattr_count, xattr_bytes;
	struct tar_map {
		bool is_sparse, has_name, has_real_size, has_count, has_offset;
		uint64_t major, minor, real_size, count, offset;
		struct tar_piece *pieces;
		size_t piece_count, piece_room, told;
		uint64_t number, digits, numbers_left; /* of a map before the content (pax 1.0) */
	} map;

	struct tar_entry entry;
	char name[WIRE_PATH_MAX + 2], link[WIRE_PATH_MAX + 2];
};

/* Reads the next entry into *ret, borrowed until the next call, and returns 1. Returns 0 at the end
 * of the archive, -1 on error (then only tar_reader_done() may follow). Skips content of the last
 * entry that was not read. */
int tar_next(struct tar_reader *reader, const struct tar_entry **ret, struct err *err);
/* Reads stored content of the present file: up to len bytes, 0 at its end, -1 on error. The bytes
 * of one call are contiguous in the file; they begin at tar_offset() as it was before the call. */
ssize_t tar_read(struct tar_reader *reader, void *data, size_t len, struct err *err);
uint64_t tar_offset(const struct tar_reader *reader);
void tar_reader_done(struct tar_reader *reader);

/* ---- writing -------------------------------------------------------------------------------- */

/* Writes the header blocks of entry; the caller then writes the file's size bytes and tar_fill()
 * zeros. Names may be longer than the reader accepts; together with links and xattrs they are less
 * than TAR_PAX_MAX. The name of an xattr has no '='. */
void tar_put_header(struct buf *out, const struct tar_entry *entry);
uint32_t tar_fill(uint64_t size);
enum { TAR_END_SIZE = 2 * TAR_BLOCK }; /* zeros at the end of an archive */
