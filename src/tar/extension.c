/* extension.c - what pax headers say about the next entry; see tar_internal.h
 *
 * A pax header is a list of records "LEN key=value\n", LEN counting all of it. Keys we do not know
 * are passed over. A record with an empty value says nothing: the entry's own header counts
 * then. */
#include "tar/tar_internal.h"

static int malformed(struct err *err)
{
	return err_set(err, ERR_INVALID, "an extended header in the archive is malformed");
}

int tar_take_name(char *out, const char *text, size_t len, struct err *err)
{
	if (len > WIRE_PATH_MAX)
		return err_set(err, ERR_TOO_LARGE, "a name in the archive is longer than %d bytes",
			WIRE_PATH_MAX);
	if (memchr(text, '\0', len))
		return err_set(err, ERR_INVALID, "a name in the archive holds a zero byte");
	memmove(out, text, len);
	out[len] = '\0';
	return 0;
}

/* ---- records, one function a key ------------------------------------------------------------ */

typedef int (*take_fn)(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err);

static int take_path(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err)
{
	/* A sparse file has its real name in another record; its path is a placeholder for readers
	 * that do not know sparse files. */
	if (reader->map.has_name)
		return 0;
	reader->has_name = len > 0;
	return tar_take_name(reader->said_name, value, len, err);
}

static int take_linkpath(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err)
{
	reader->has_link = len > 0;
	return tar_take_name(reader->said_link, value, len, err);
}

static int take_size(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err)
{
	reader->has_size = len > 0;
	return len ? tar_parse_decimal(value, TAR_SIZE_MAX, &reader->said.size, err) : 0;
}

static int take_mtime(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err)
{
	reader->has_mtime = len > 0;
	return len ? tar_parse_time(value, &reader->said.mtime, &reader->said.mtime_ns, err) : 0;
}

static int take_id(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err)
{
	uint64_t id = 0;

	if (len && tar_parse_decimal(value, UINT32_MAX, &id, err) < 0)
		return -1;
	*(*key == 'u' ? &reader->has_uid : &reader->has_gid) = len > 0;
	*(*key == 'u' ? &reader->said.uid : &reader->said.gid) = (uint32_t)id;
	return 0;
}

static int take_xattr(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err)
{
	size_t i = 0;

	/* The last one counts. */
	while (i < reader->xattr_count && strcmp(reader->xattrs[i].name, key) != 0)
		i++;
	reader->xattr_bytes += strlen(key) + len;
	if (!*key || i == TAR_XATTRS_MAX || reader->xattr_bytes > TAR_XATTR_BYTES_MAX)
		return err_set(err, ERR_INVALID,
			"a member of the archive has more than %d extended attributes, or %d KiB "
			"of them",
			TAR_XATTRS_MAX, TAR_XATTR_BYTES_MAX / 1024);
	reader->xattr_count = MAX(reader->xattr_count, i + 1);
	reader->xattrs[i] = (struct tar_xattr){ key, value, len };
	return 0;
}

static int take_sparse(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err)
{
	if (!strcmp(key, "name")) {
		reader->map.has_name = false;
		if (take_path(reader, key, value, len, err) < 0)
			return -1;
		reader->map.is_sparse = reader->map.has_name = true;
		return 0;
	}
	return tar_map_take_record(&reader->map, key, value, err);
}

static int take_foreign_sparse(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err)
{
	return err_set(err, ERR_INVALID, "the archive holds a sparse file of an unknown format");
}

enum record_flags {
	RECORD_PREFIX = 1, /* the key is a prefix; take gets the rest of it */
	RECORD_BINARY = 2, /* the value may hold zero bytes, or take checks that itself */
};

static const struct record {
	const char *key;
	take_fn take;
	unsigned flags;
} records[] = {
	{ "path", take_path, RECORD_BINARY },
	{ "linkpath", take_linkpath, RECORD_BINARY },
	{ "size", take_size, 0 },
	{ "mtime", take_mtime, 0 },
	{ "uid", take_id, 0 },
	{ "gid", take_id, 0 },
	{ "SCHILY.xattr.", take_xattr, RECORD_PREFIX | RECORD_BINARY },
	{ "GNU.sparse.", take_sparse, RECORD_PREFIX },
	{ "SUN.holesdata", take_foreign_sparse, 0 },
};

static int take_record(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(records); i++) {
		const struct record *record = &records[i];
		size_t key_len = strlen(record->key);
		bool prefix = record->flags & RECORD_PREFIX;

		if (strncmp(key, record->key, key_len) != 0 || (!prefix && key[key_len]))
			continue;
		if (!(record->flags & RECORD_BINARY) && strlen(value) != len)
			return malformed(err);
		return record->take(reader, prefix ? key + key_len : key, value, len, err);
	}
	return 0;
}

/* ---- the list ------------------------------------------------------------------------------- */

/* Cuts off the first record and ends its key and value with zero bytes. */
static int next_record(char **text, size_t *size, char **ret_key, char **ret_value, size_t *ret_len,
	struct err *err)
{
	size_t len = 0, digits = 0;
	char *start = *text, *key, *equals;

	while (digits < *size && digits < 8 && start[digits] >= '0' && start[digits] <= '9')
		len = len * 10 + (size_t)(start[digits++] - '0');
	if (!digits || digits == *size || start[digits] != ' ' || len > *size || len < digits + 4 ||
		start[len - 1] != '\n')
		return malformed(err);
	key = start + digits + 1;
	equals = memchr(key, '=', len - digits - 2);
	if (!equals)
		return malformed(err);
	*equals = start[len - 1] = '\0';
	if (strlen(key) != (size_t)(equals - key))
		return malformed(err);
	*ret_key = key;
	*ret_value = equals + 1;
	*ret_len = (size_t)(start + len - 1 - (equals + 1));
	*text += len;
	*size -= len;
	return 0;
}

int tar_take_pax(struct tar_reader *reader, char *text, size_t size, struct err *err)
{
	char *key, *value;
	size_t len;

	while (size)
		if (next_record(&text, &size, &key, &value, &len, err) < 0 ||
			take_record(reader, key, value, len, err) < 0)
			return -1;
	return 0;
}

/* A global header applies to all entries that follow. git writes a comment in one; anything that
 * would change an entry is refused rather than ignored. */
int tar_take_global(char *text, size_t size, struct err *err)
{
	static const char *const harmless[] = { "comment", "charset", "hdrcharset", "atime",
		"ctime" };
	char *key, *value;
	size_t len, i;

	while (size) {
		if (next_record(&text, &size, &key, &value, &len, err) < 0)
			return -1;
		for (i = 0; i < ARRAY_LEN(harmless) && strcmp(key, harmless[i]) != 0; i++)
			continue;
		if (i == ARRAY_LEN(harmless))
			return err_set(err, ERR_INVALID,
				"the archive says '%.60s' for all its members; not supported", key);
	}
	return 0;
}
