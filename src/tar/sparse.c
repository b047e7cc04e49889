/* sparse.c - maps of sparse files: which bytes of a file an archive holds; see tar_internal.h
 *
 * Four ways to write the same list of (offset, length):
 *   GNU      a header of type 'S' has four pieces, blocks after it 21 each; the real size stands in
 *            the header
 *   pax 0.0  GNU.sparse.offset and GNU.sparse.numbytes again and again; GNU.sparse.size is the real
 *            size
 *   pax 0.1  GNU.sparse.map=OFFSET,LEN,OFFSET,LEN...
 *   pax 1.0  decimal lines before the content, in whole blocks: count, then offset and length of
 *            each; GNU.sparse.realsize is the real size
 * Writers end the list with an empty piece at the file's end; empty ones are dropped. */
#include "tar/tar_internal.h"

static int malformed(struct err *err)
{
	return err_set(err, ERR_INVALID, "the map of a sparse file in the archive is malformed");
}

void tar_map_clear(struct tar_map *map)
{
	*map = (struct tar_map){ .pieces = map->pieces, .piece_room = map->piece_room };
}

/* Even a map without pieces gets memory: an entry whose pieces are NULL is not sparse. */
static void make_room(struct tar_map *map)
{
	if (map->pieces && map->piece_count < map->piece_room)
		return;
	map->piece_room = MAX(16, 2 * map->piece_room);
	xgrow(map->pieces, map->piece_room);
}

static int add_piece(struct tar_map *map, uint64_t offset, uint64_t len, struct err *err)
{
	const struct tar_piece *last;

	if (++map->told > TAR_PIECES_MAX)
		return err_set(err, ERR_INVALID,
			"a sparse file in the archive has more than %d pieces", TAR_PIECES_MAX);
	make_room(map);
	last = map->piece_count ? &map->pieces[map->piece_count - 1] : NULL;
	if (offset > TAR_SIZE_MAX || len > TAR_SIZE_MAX ||
		(last && offset < last->offset + last->len))
		return malformed(err);
	if (len)
		map->pieces[map->piece_count++] = (struct tar_piece){ offset, len };
	return 0;
}

int tar_map_check(const struct tar_map *map, uint64_t stored, struct err *err)
{
	uint64_t sum = 0, end = 0;

	for (size_t i = 0; i < map->piece_count; i++) {
		end = map->pieces[i].offset + map->pieces[i].len;
		sum += map->pieces[i].len; /* the pieces do not overlap, so the sum is at most the
					    * end */
	}
	if (!map->has_real_size || map->has_offset || end > map->real_size || sum != stored ||
		(map->has_count && map->count != map->told))
		return malformed(err);
	return 0;
}

/* ---- pax records ---------------------------------------------------------------------------- */

static int take_list(struct tar_map *map, char *text, struct err *err)
{
	while (text) {
		char *offset = strsep(&text, ","), *len = strsep(&text, ",");
		uint64_t from, size;

		if (!len)
			return malformed(err);
		if (tar_parse_decimal(offset, TAR_SIZE_MAX, &from, err) < 0 ||
			tar_parse_decimal(len, TAR_SIZE_MAX, &size, err) < 0 ||
			add_piece(map, from, size, err) < 0)
			return -1;
	}
	return 0;
}

static int take_pair(struct tar_map *map, bool is_offset, uint64_t number, struct err *err)
{
	if (map->has_offset == is_offset)
		return malformed(err);
	map->has_offset = is_offset;
	if (!is_offset)
		return add_piece(map, map->offset, number, err);
	map->offset = number;
	return 0;
}

int tar_map_take_record(struct tar_map *map, const char *key, char *value, struct err *err)
{
	uint64_t number;

	map->is_sparse = true;
	make_room(map);
	if (!strcmp(key, "map"))
		return *value ? take_list(map, value, err) : 0;
	if (tar_parse_decimal(value, TAR_SIZE_MAX, &number, err) < 0)
		return -1;
	if (!strcmp(key, "offset") || !strcmp(key, "numbytes"))
		return take_pair(map, *key == 'o', number, err);
	if (!strcmp(key, "size") || !strcmp(key, "realsize")) {
		map->has_real_size = true;
		map->real_size = number;
	} else if (!strcmp(key, "numblocks")) {
		map->has_count = true;
		map->count = number;
	} else if (!strcmp(key, "major") && number <= 1) {
		map->major = number;
	} else if (!strcmp(key, "minor") && number <= 1) {
		map->minor = number;
	} else {
		return err_set(
			err, ERR_INVALID, "the archive holds a sparse file of an unknown format");
	}
	return 0;
}

/* ---- pax 1.0: a map before the content ------------------------------------------------------ */

bool tar_map_is_text(const struct tar_map *map)
{
	return map->is_sparse && map->major == 1;
}

static int take_number(struct tar_map *map, struct err *err)
{
	if (!map->has_count) {
		if (map->number > TAR_PIECES_MAX || map->told)
			return malformed(err);
		map->has_count = true;
		map->count = map->number;
		map->numbers_left = 2 * map->number;
		return 0;
	}
	return take_pair(map, map->numbers_left-- % 2 == 0, map->number, err);
}

int tar_map_take_text(struct tar_map *map, const uint8_t *block, bool *ret_more, struct err *err)
{
	/* numblocks has no place in this format: the count shows that the list has begun. */
	for (size_t i = 0; i < TAR_BLOCK && (!map->has_count || map->numbers_left); i++) {
		if (block[i] == '\n' && map->digits) {
			if (take_number(map, err) < 0)
				return -1;
			map->number = map->digits = 0;
		} else if (block[i] >= '0' && block[i] <= '9' && map->digits < 19) {
			map->number = map->number * 10 + (uint64_t)(block[i] - '0');
			map->digits++;
		} else {
			return malformed(err);
		}
	}
	*ret_more = !map->has_count || map->numbers_left;
	return 0;
}

/* ---- GNU ------------------------------------------------------------------------------------ */

/* The list ends at the first piece that is all zero. */
static int take_pieces(
	struct tar_map *map, const struct tar_header_piece *pieces, size_t count, struct err *err)
{
	for (size_t i = 0; i < count && pieces[i].offset[0]; i++) {
		uint64_t offset, len;

		if (tar_get_size(pieces[i].offset, sizeof pieces[i].offset, &offset, err) < 0 ||
			tar_get_size(pieces[i].len, sizeof pieces[i].len, &len, err) < 0 ||
			add_piece(map, offset, len, err) < 0)
			return -1;
	}
	return 0;
}

int tar_map_take_header(
	struct tar_map *map, const struct tar_header *header, bool *ret_more, struct err *err)
{
	if (map->is_sparse || !tar_is_gnu(header))
		return malformed(err);
	map->is_sparse = map->has_real_size = true;
	make_room(map);
	if (tar_get_size(header->real_size, sizeof header->real_size, &map->real_size, err) < 0)
		return -1;
	*ret_more = header->more;
	return take_pieces(map, header->pieces, ARRAY_LEN(header->pieces), err);
}

int tar_map_take_more(struct tar_map *map, const uint8_t *block, bool *ret_more, struct err *err)
{
	struct tar_header_piece pieces[21];

	memcpy(pieces, block, sizeof pieces);
	*ret_more = block[sizeof pieces];
	return take_pieces(map, pieces, ARRAY_LEN(pieces), err);
}
