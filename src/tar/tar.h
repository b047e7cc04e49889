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

/* A name or link that was read has at most WIRE_PATH_MAX bytes, and is not NULL. */
struct tar_entry {
	enum tar_type type;
	const char *name;   /* as it stands, without slashes at its end */
	const char *link;   /* of links; NULL means "" to the writer */
	uint64_t size;	    /* bytes the archive holds of a file, else 0 */
	uint64_t real_size; /* the file's own size: the same, but of a sparse one. Not written */
	uint32_t mode;	    /* permission bits, set-user-id, set-group-id and sticky too */
	uint32_t uid, gid;
	int64_t mtime;
	uint32_t mtime_ns;
	uint32_t major, minor;
	const struct tar_xattr *xattrs;
	size_t xattr_count;
	/* NULL: not sparse. Rising, apart from each other, inside real_size; none is empty. Not
	 * written. */
	const struct tar_piece *sparse;
	size_t sparse_count;
};

/* ---- reading -------------------------------------------------------------------------------- */

/* What read(), and then tar_next() and tar_read(), return when no more bytes have come yet: the
 * same call goes on later where it stopped. Only for those whose read() says so. */
enum { TAR_WAIT = -2 };

struct tar_reader {
	/* Up to len bytes into data; 0 at the end, -1 on error, TAR_WAIT when there are none at
	 * present. */
	ssize_t (*read)(void *arg, void *data, size_t len, struct err *err);
	void *arg;
	/* The archive may end after a member, without its two blocks, as some tools write layers.
	 * Only where something else tells that nothing is missing. */
	bool bare_end;

	/* The rest is the reader's own, and zero at first. */
	int step;
	uint8_t block[TAR_BLOCK];
	size_t have;	 /* of what is being collected */
	uint64_t pass;	 /* bytes to drop before the next step */
	bool zero_block; /* the first of the two at the end has come */
	uint64_t left;	 /* of the present file's stored bytes */
	uint32_t fill;	 /* what fills its last block */
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

/* The next entry, borrowed until the next call, in *ret: 1. 0 at the end of the archive, -1 on
 * error (then nothing but tar_reader_done() may follow). What was not read of the last entry is
 * passed over. */
int tar_next(struct tar_reader *reader, const struct tar_entry **ret, struct err *err);
/* Stored content of the present file: up to len bytes, 0 at its end, -1 on error. What one call
 * gives lies in one run in the file, from tar_offset() as it was before the call. */
ssize_t tar_read(struct tar_reader *reader, void *data, size_t len, struct err *err);
uint64_t tar_offset(const struct tar_reader *reader);
void tar_reader_done(struct tar_reader *reader);

/* ---- writing -------------------------------------------------------------------------------- */

/* The blocks that announce entry; a file's size bytes and tar_fill() zeros follow. Names may be
 * longer than those the reader takes; together with links and xattrs less than TAR_PAX_MAX. The
 * name of an xattr has no '='. */
void tar_put_header(struct buf *out, const struct tar_entry *entry);
uint32_t tar_fill(uint64_t size);
enum { TAR_END_SIZE = 2 * TAR_BLOCK }; /* zeros at the end of an archive */
