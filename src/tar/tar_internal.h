/* tar_internal.h - what the parts of the reader share, and the header as it lies in an archive */
#pragma once
#include "tar/tar.h"

struct tar_header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8];
	union {
		struct {
			char prefix[155], rest[12];
		};
		struct { /* GNU */
			char times[24], start[12], names[4], unused;
			struct tar_header_piece {
				char offset[12], len[12];
			} pieces[4];
			char more, real_size[12], pad[17];
		};
	};
};
static_assert(sizeof(struct tar_header) == TAR_BLOCK, "a header is one block");
static_assert(offsetof(struct tar_header, real_size) == 483, "as GNU tar has it");

/* The checksum of a header, with its checksum field counted as spaces. */
uint32_t tar_sum(const struct tar_header *header);
static inline bool tar_is_gnu(const struct tar_header *header)
{
	return !memcmp(header->magic, "ustar  ", 8);
}

/* ---- number.c: numbers as headers and records have them ------------------------------------- */

#define TAR_SIZE_MAX ((uint64_t)INT64_MAX / 2)

int tar_get_number(const char *field, size_t size, int64_t *ret, struct err *err);
int tar_get_u32(const char *field, size_t size, uint32_t *ret, struct err *err);
int tar_get_size(const char *field, size_t size, uint64_t *ret, struct err *err);
int tar_parse_decimal(const char *text, uint64_t max, uint64_t *ret, struct err *err);
/* "-12.345": seconds and a fraction, of which nine digits count. Cuts text. */
int tar_parse_time(char *text, int64_t *ret, uint32_t *ret_ns, struct err *err);

/* ---- extension.c: records that say something about the next entry --------------------------- */

/* text has size bytes and one more; it is cut into strings, and xattrs point into it. */
int tar_take_pax(struct tar_reader *reader, char *text, size_t size, struct err *err);
int tar_take_global(char *text, size_t size, struct err *err);
/* A name that came as len bytes. */
int tar_take_name(char *out, const char *text, size_t len, struct err *err);

/* ---- sparse.c: maps of sparse files --------------------------------------------------------- */

void tar_map_clear(struct tar_map *map); /* keeps the room */
/* A "GNU.sparse." record; key is without that prefix, value holds no zero bytes. The record with
 * the name is handled elsewhere. */
int tar_map_take_record(struct tar_map *map, const char *key, char *value, struct err *err);
/* Reads the pieces of a GNU header of type 'S', or of a block that follows it. *ret_more: another
 * block follows. */
int tar_map_take_header(
	struct tar_map *map, const struct tar_header *header, bool *ret_more, struct err *err);
int tar_map_take_more(struct tar_map *map, const uint8_t *block, bool *ret_more, struct err *err);
/* Whether the map comes as text before the content; the caller then gives its blocks until
 * *ret_more is false. */
bool tar_map_is_text(const struct tar_map *map);
int tar_map_take_text(struct tar_map *map, const uint8_t *block, bool *ret_more, struct err *err);
/* Called with all pieces: checks that they fit the real size and the stored bytes. */
int tar_map_check(const struct tar_map *map, uint64_t stored, struct err *err);
