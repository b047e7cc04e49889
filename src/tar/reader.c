/* reader.c - reads entries from a stream of tar bytes; see tar.h
 *
 * The reader is always at one step: it collects the bytes that the step needs (a block, an extended
 * header) and then runs it; the step says which one is next. Bytes may come in pieces of any size
 * and with pauses: what was collected is kept, and the same call continues. */
#include "tar/tar_internal.h"
#include <stdio.h>

enum step {
	AT_HEADER,
	AT_PAX,
	AT_GLOBAL,
	AT_NAME,
	AT_LINK,
	AT_GNU_MAP,  /* a further block of a sparse file's map */
	AT_TEXT_MAP, /* the map before the content, as pax 1.0 has it */
	AT_CONTENT,
	AT_END,
};

enum { GO_ON = 2 };

void tar_reader_done(struct tar_reader *reader)
{
	free(reader->pax);
	free(reader->map.pieces);
	reader->pax = NULL;
	reader->map.pieces = NULL;
	reader->map.piece_room = 0;
}

static int ends_early(struct err *err)
{
	return err_set(err, ERR_INVALID, "the archive ends too early");
}

/* GO_ON when all len bytes have come since the first call for them. */
static int collect(struct tar_reader *reader, void *data, size_t len, struct err *err)
{
	while (reader->have < len) {
		ssize_t got = reader->read(
			reader->arg, (uint8_t *)data + reader->have, len - reader->have, err);

		if (got < 0)
			return (int)got;
		if (!got)
			return ends_early(err);
		reader->have += (size_t)got;
	}
	reader->have = 0;
	return GO_ON;
}

static int drop(struct tar_reader *reader, struct err *err)
{
	uint8_t waste[4096];

	while (reader->pass) {
		ssize_t got = reader->read(
			reader->arg, waste, (size_t)MIN(reader->pass, (uint64_t)sizeof waste), err);

		if (got < 0)
			return (int)got;
		if (!got)
			return ends_early(err);
		reader->pass -= (uint64_t)got;
	}
	return GO_ON;
}

/* ---- extensions ----------------------------------------------------------------------------- */

static int begin_pax(struct tar_reader *reader, enum step step, uint64_t size, struct err *err)
{
	if (size > TAR_PAX_MAX)
		return err_set(err, ERR_INVALID, "an extended header in the archive is too large");
	if (reader->pax)
		return err_set(
			err, ERR_INVALID, "the archive has two extended headers for one member");
	reader->pax = xcalloc(1, size + 1);
	reader->pax_size = size;
	reader->step = step;
	return GO_ON;
}

static int begin_name(struct tar_reader *reader, enum step step, uint64_t size, struct err *err)
{
	if (size > WIRE_PATH_MAX + 1) /* a zero byte ends it */
		return err_set(err, ERR_TOO_LARGE, "a name in the archive is longer than %d bytes",
			WIRE_PATH_MAX);
	reader->pax_size = size;
	reader->step = step;
	return GO_ON;
}

static void end_extension(struct tar_reader *reader, uint64_t size)
{
	reader->pass = tar_fill(size);
	reader->step = AT_HEADER;
}

static int step_pax(struct tar_reader *reader, struct err *err)
{
	int status = collect(reader, reader->pax, reader->pax_size, err);

	if (status != GO_ON)
		return status;
	end_extension(reader, reader->pax_size);
	return tar_take_pax(reader, reader->pax, reader->pax_size, err) < 0 ? -1 : GO_ON;
}

static int step_global(struct tar_reader *reader, struct err *err)
{
	int status = collect(reader, reader->pax, reader->pax_size, err);

	if (status != GO_ON)
		return status;
	end_extension(reader, reader->pax_size);
	if (tar_take_global(reader->pax, reader->pax_size, err) < 0)
		return -1;
	free(steal_ptr(&reader->pax));
	return GO_ON;
}

static int step_name(struct tar_reader *reader, struct err *err)
{
	bool is_name = reader->step == AT_NAME;
	char *text = is_name ? reader->said_name : reader->said_link;
	size_t size = reader->pax_size;
	int status = collect(reader, text, size, err);

	if (status != GO_ON)
		return status;
	*(is_name ? &reader->has_name : &reader->has_link) = true;
	end_extension(reader, size);
	return tar_take_name(text, text, strnlen(text, size), err) < 0 ? -1 : GO_ON;
}

/* ---- entries -------------------------------------------------------------------------------- */

static void copy_field(char *out, const char *field, size_t size)
{
	size_t len = strnlen(field, size);

	memcpy(out, field, len);
	out[len] = '\0';
}

static int take_numbers(struct tar_reader *reader, const struct tar_header *header, struct err *err)
{
	struct tar_entry *entry = &reader->entry;

	if (tar_get_u32(header->mode, sizeof header->mode, &entry->mode, err) < 0 ||
		tar_get_u32(header->uid, sizeof header->uid, &entry->uid, err) < 0 ||
		tar_get_u32(header->gid, sizeof header->gid, &entry->gid, err) < 0 ||
		tar_get_number(header->mtime, sizeof header->mtime, &entry->mtime, err) < 0)
		return -1;
	entry->mode &= 07777;
	if (reader->has_mtime) {
		entry->mtime = reader->said.mtime;
		entry->mtime_ns = reader->said.mtime_ns;
	}
	if (reader->has_uid)
		entry->uid = reader->said.uid;
	if (reader->has_gid)
		entry->gid = reader->said.gid;
	if (entry->type != TAR_CHAR && entry->type != TAR_BLOCK_DEVICE)
		return 0;
	if (tar_get_u32(header->major, sizeof header->major, &entry->major, err) < 0)
		return -1;
	return tar_get_u32(header->minor, sizeof header->minor, &entry->minor, err);
}

static void take_names(struct tar_reader *reader, const struct tar_header *header)
{
	char prefix[sizeof header->prefix + 1] = "", name[sizeof header->name + 1];
	size_t len;

	/* GNU has other things where ustar has a prefix, and before ustar there was nothing. */
	if (!memcmp(header->magic, "ustar", 6))
		copy_field(prefix, header->prefix, sizeof header->prefix);
	copy_field(name, header->name, sizeof header->name);
	if (reader->has_name)
		strcpy(reader->name, reader->said_name);
	else
		snprintf(reader->name, sizeof reader->name, "%s%s%s", prefix, *prefix ? "/" : "",
			name);
	if (reader->has_link)
		strcpy(reader->link, reader->said_link);
	else
		copy_field(reader->link, header->link, sizeof header->link);
	len = strlen(reader->name);
	/* Before tar had a type for folders, a slash at the end of the name meant one. */
	if (len && reader->name[len - 1] == '/' && reader->entry.type == TAR_FILE)
		reader->entry.type = TAR_DIR;
	while (len > 1 && reader->name[len - 1] == '/')
		reader->name[--len] = '\0';
}

static int check_entry(const struct tar_reader *reader, struct err *err)
{
	const struct tar_entry *entry = &reader->entry;

	if (!*entry->name)
		return err_set(err, ERR_INVALID, "a member of the archive has no name");
	if (entry->type < TAR_FILE || entry->type > TAR_FIFO)
		return err_set(err, ERR_INVALID,
			"member '%.200s' is of a type that is not supported", entry->name);
	if ((entry->type == TAR_LINK || entry->type == TAR_SYMLINK) && !*entry->link)
		return err_set(err, ERR_INVALID, "link '%.200s' has no target", entry->name);
	if (reader->map.is_sparse && entry->type != TAR_FILE)
		return err_set(err, ERR_INVALID, "member '%.200s' is sparse, but is not a file",
			entry->name);
	return 0;
}

/* Everything before the content is known now. */
static int finish_entry(struct tar_reader *reader, struct err *err)
{
	struct tar_entry *entry = &reader->entry;

	entry->size = entry->real_size = reader->left;
	entry->xattrs = reader->xattrs;
	entry->xattr_count = reader->xattr_count;
	reader->step = AT_CONTENT;
	if (!reader->map.is_sparse)
		return 1;
	if (tar_map_check(&reader->map, reader->left, err) < 0)
		return err_wrap(err, "member '%.200s'", entry->name);
	entry->real_size = reader->map.real_size;
	entry->sparse = reader->map.pieces;
	entry->sparse_count = reader->map.piece_count;
	return 1;
}

static int take_entry(
	struct tar_reader *reader, const struct tar_header *header, uint64_t size, struct err *err)
{
	struct tar_entry *entry = &reader->entry;
	bool more = false;
	char type = header->type;

	if (type == 'S' && tar_map_take_header(&reader->map, header, &more, err) < 0)
		return -1;
	if (type == '\0' || type == '7' || type == 'S')
		type = TAR_FILE;
	*entry = (struct tar_entry){
		.type = (enum tar_type)type, .name = reader->name, .link = reader->link
	};
	take_names(reader, header);
	if (check_entry(reader, err) < 0)
		return -1;
	if (take_numbers(reader, header, err) < 0)
		return err_wrap(err, "member '%.200s'", entry->name);
	/* Some writers give a hard link or a folder a size; no bytes follow. */
	reader->left = entry->type == TAR_FILE ? size : 0;
	reader->fill = tar_fill(reader->left);
	if (more || tar_map_is_text(&reader->map)) {
		reader->step = more ? AT_GNU_MAP : AT_TEXT_MAP;
		return GO_ON;
	}
	return finish_entry(reader, err);
}

static int step_map(struct tar_reader *reader, struct err *err)
{
	bool more, is_text = reader->step == AT_TEXT_MAP;
	int status;

	/* A map as text is part of what the header counts as content. */
	if (is_text && reader->left < TAR_BLOCK)
		return err_set(err, ERR_INVALID, "member '%.200s' has no map of its pieces",
			reader->entry.name);
	status = collect(reader, reader->block, TAR_BLOCK, err);
	if (status != GO_ON)
		return status;
	if (is_text)
		reader->left -= TAR_BLOCK;
	status = is_text ? tar_map_take_text(&reader->map, reader->block, &more, err)
			 : tar_map_take_more(&reader->map, reader->block, &more, err);
	if (status < 0)
		return err_wrap(err, "member '%.200s'", reader->entry.name);
	return more ? GO_ON : finish_entry(reader, err);
}

/* ---- headers -------------------------------------------------------------------------------- */

/* Some old programs summed the bytes as signed numbers. */
static uint32_t signed_sum(const struct tar_header *header)
{
	const uint8_t *bytes = (const uint8_t *)header;
	uint32_t total = tar_sum(header);

	for (size_t i = 0; i < TAR_BLOCK; i++)
		if (bytes[i] & 0x80 && (i < offsetof(struct tar_header, checksum) ||
					       i >= offsetof(struct tar_header, type)))
			total -= 256;
	return total;
}

static int check_header(const struct tar_header *header, struct err *err)
{
	static const char magics[][8] = { "ustar\00000", "ustar  ", "" };
	uint32_t announced = 0;

	if (tar_get_u32(header->checksum, sizeof header->checksum, &announced, NULL) < 0 ||
		(announced != tar_sum(header) && announced != signed_sum(header)))
		return err_set(err, ERR_INVALID, "not a tar archive, or a damaged one (checksum)");
	for (size_t i = 0; i < ARRAY_LEN(magics); i++)
		if (!memcmp(header->magic, magics[i], sizeof magics[i]))
			return 0;
	return err_set(err, ERR_INVALID, "not a tar archive of the ustar, pax or GNU kind");
}

static bool is_zero(const uint8_t *block)
{
	return !block[0] && !memcmp(block, block + 1, TAR_BLOCK - 1);
}

static int take_zeros(struct tar_reader *reader)
{
	if (!reader->zero_block) {
		reader->zero_block = true;
		return GO_ON;
	}
	reader->step = AT_END;
	return 0;
}

/* True when no byte of the next header has come, nor of an extension that belongs to it. */
static bool is_between(const struct tar_reader *reader)
{
	return !reader->have && !reader->pax && !reader->has_name && !reader->has_link;
}

static int collect_header(struct tar_reader *reader, struct err *err)
{
	ssize_t got;

	if (!reader->bare_end || !is_between(reader))
		return collect(reader, reader->block, TAR_BLOCK, err);
	got = reader->read(reader->arg, reader->block, TAR_BLOCK, err);
	if (got < 0)
		return (int)got;
	if (!got) {
		reader->step = AT_END;
		return 0;
	}
	reader->have = (size_t)got;
	return collect(reader, reader->block, TAR_BLOCK, err);
}

static int step_header(struct tar_reader *reader, struct err *err)
{
	struct tar_header header;
	int status = collect_header(reader, err);
	uint64_t size;

	if (status != GO_ON)
		return status;
	if (is_zero(reader->block))
		return take_zeros(reader);
	if (reader->zero_block)
		return err_set(err, ERR_INVALID, "the end of the archive is damaged");
	memcpy(&header, reader->block, sizeof header);
	if (check_header(&header, err) < 0 ||
		tar_get_size(header.size, sizeof header.size, &size, err) < 0)
		return -1;
	switch (header.type) {
	case 'x':
		return begin_pax(reader, AT_PAX, size, err);
	case 'g':
		return begin_pax(reader, AT_GLOBAL, size, err);
	case 'L':
		return begin_name(reader, AT_NAME, size, err);
	case 'K':
		return begin_name(reader, AT_LINK, size, err);
	default:
		return take_entry(
			reader, &header, reader->has_size ? reader->said.size : size, err);
	}
}

/* ---- the reader ----------------------------------------------------------------------------- */

static int step_content(struct tar_reader *reader, struct err *err)
{
	reader->pass = reader->left + reader->fill;
	reader->left = reader->fill = 0;
	reader->piece = 0;
	reader->in_piece = 0;
	reader->has_name = reader->has_link = reader->has_size = false;
	reader->has_mtime = reader->has_uid = reader->has_gid = false;
	reader->xattr_count = reader->xattr_bytes = 0;
	free(steal_ptr(&reader->pax));
	tar_map_clear(&reader->map);
	reader->step = AT_HEADER;
	return GO_ON;
}

static int step_end(struct tar_reader *reader, struct err *err)
{
	return 0;
}

static int (*const steps[])(struct tar_reader *reader, struct err *err) = {
	[AT_HEADER] = step_header,
	[AT_PAX] = step_pax,
	[AT_GLOBAL] = step_global,
	[AT_NAME] = step_name,
	[AT_LINK] = step_name,
	[AT_GNU_MAP] = step_map,
	[AT_TEXT_MAP] = step_map,
	[AT_CONTENT] = step_content,
	[AT_END] = step_end,
};

int tar_next(struct tar_reader *reader, const struct tar_entry **ret, struct err *err)
{
	int status = GO_ON;

	while (status == GO_ON) {
		status = drop(reader, err);
		if (status == GO_ON)
			status = steps[reader->step](reader, err);
	}
	if (status == 1)
		*ret = &reader->entry;
	return status;
}

ssize_t tar_read(struct tar_reader *reader, void *data, size_t len, struct err *err)
{
	const struct tar_map *map = &reader->map;
	uint64_t want = MIN((uint64_t)len, reader->left);
	ssize_t got;

	if (map->is_sparse && want)
		want = MIN(want, map->pieces[reader->piece].len - reader->in_piece);
	if (!want)
		return 0;
	got = reader->read(reader->arg, data, (size_t)want, err);
	if (got == 0)
		return ends_early(err);
	if (got < 0)
		return got;
	reader->left -= (uint64_t)got;
	reader->in_piece += (uint64_t)got;
	if (map->is_sparse && reader->in_piece == map->pieces[reader->piece].len) {
		reader->piece++;
		reader->in_piece = 0;
	}
	return got;
}

uint64_t tar_offset(const struct tar_reader *reader)
{
	const struct tar_map *map = &reader->map;

	if (!map->is_sparse)
		return reader->in_piece;
	if (reader->piece == map->piece_count)
		return map->real_size;
	return map->pieces[reader->piece].offset + reader->in_piece;
}
