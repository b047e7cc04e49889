/* tar.c - see tar.h */
#include "guest/tar.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], rest[12];
};
static_assert(sizeof(struct header) == TAR_BLOCK, "a header is one block");

uint32_t tar_fill(uint64_t size)
{
	return (uint32_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

static uint32_t sum(const struct header *header)
{
	const uint8_t *bytes = (const uint8_t *)header;
	uint32_t total = 0;

	for (size_t i = 0; i < TAR_BLOCK; i++) {
		bool in_sum =
			i >= offsetof(struct header, checksum) && i < offsetof(struct header, type);

		total += in_sum ? ' ' : bytes[i];
	}
	return total;
}

/* ---- reading --------------------------------------------------------------------------------------- */

static int read_all(struct tar_reader *reader, void *data, size_t len, struct err *err)
{
	uint8_t *at = data;

	while (len) {
		ssize_t got = reader->read(reader->arg, at, len, err);

		if (got < 0)
			return -1;
		if (!got)
			return err_set(err, ERR_INVALID, "the archive ends too early");
		at += got;
		len -= (size_t)got;
	}
	return 0;
}

static int skip(struct tar_reader *reader, uint64_t len, struct err *err)
{
	uint8_t waste[4096];

	while (len) {
		size_t part = (size_t)MIN(len, (uint64_t)sizeof waste);

		if (read_all(reader, waste, part, err) < 0)
			return -1;
		len -= part;
	}
	return 0;
}

/* Octal with blanks around it, or with the highest bit set a large binary number. Negative ones (times
 * before 1970) exist only in binary. */
static int get_number(const char *field, size_t size, int64_t *ret, struct err *err)
{
	const uint8_t *p = (const uint8_t *)field, *end = p + size;
	uint64_t value = 0;

	if (*p & 0x80) {
		bool negative = *p & 0x40;

		value = negative ? UINT64_MAX : 0;
		value = value << 6 | (*p++ & 0x3f);
		for (; p < end; p++) {
			/* Only copies of the sign may be shifted out. */
			if (value >> 55 != (negative ? 0x1ff : 0))
				return err_set(
					err, ERR_INVALID, "a number in the archive is too large");
			value = value << 8 | *p;
		}
		*ret = (int64_t)value;
		return 0;
	}
	while (p < end && *p == ' ')
		p++;
	for (; p < end && *p >= '0' && *p <= '7'; p++)
		value = value << 3 | (uint64_t)(*p - '0');
	for (; p < end; p++)
		if (*p != ' ' && *p != '\0')
			return err_set(err, ERR_INVALID, "a number in the archive is malformed");
	*ret = (int64_t)value;
	return 0;
}

static int get_u32(const char *field, size_t size, uint32_t *ret, struct err *err)
{
	int64_t value;

	if (get_number(field, size, &value, err) < 0)
		return -1;
	if (value < 0 || value > UINT32_MAX)
		return err_set(err, ERR_INVALID, "a number in the archive is out of range");
	*ret = (uint32_t)value;
	return 0;
}

static int parse_decimal(const char *text, uint64_t max, uint64_t *ret, struct err *err)
{
	uint64_t value = 0;

	if (!*text)
		return err_set(err, ERR_INVALID, "a number in the archive is empty");
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || value > (max - (uint64_t)(*text - '0')) / 10)
			return err_set(err, ERR_INVALID, "a number in the archive is malformed");
		value = value * 10 + (uint64_t)(*text - '0');
	}
	*ret = value;
	return 0;
}

/* "-12.345": seconds and a fraction, of which nine digits count. */
static int parse_time(char *text, struct tar_entry *ret, struct err *err)
{
	bool negative = *text == '-';
	char *dot = strchr(text, '.');
	uint64_t seconds;
	uint32_t ns = 0, unit = 100000000;

	if (dot)
		*dot++ = '\0';
	if (parse_decimal(text + negative, INT64_MAX / 2, &seconds, err) < 0)
		return -1;
	for (; dot && *dot; dot++, unit /= 10) {
		if (*dot < '0' || *dot > '9')
			return err_set(err, ERR_INVALID, "a time in the archive is malformed");
		ns += (uint32_t)(*dot - '0') * unit;
	}
	ret->mtime = negative ? -(int64_t)seconds : (int64_t)seconds;
	if (negative && ns) {
		ret->mtime--;
		ns = 1000000000 - ns;
	}
	ret->mtime_ns = ns;
	return 0;
}

static int take_string(char *out, const char *text, size_t len, struct err *err)
{
	if (len > WIRE_PATH_MAX)
		return err_set(err, ERR_INVALID, "a name in the archive is longer than %d bytes",
			WIRE_PATH_MAX);
	if (memchr(text, '\0', len))
		return err_set(err, ERR_INVALID, "a name in the archive holds a zero byte");
	memcpy(out, text, len);
	out[len] = '\0';
	return 0;
}

static int take_pax_record(
	struct tar_reader *reader, const char *key, char *value, size_t len, struct err *err)
{
	uint64_t number;

	if (!strcmp(key, "path")) {
		reader->has_name = true;
		return take_string(reader->said.name, value, len, err);
	}
	if (!strcmp(key, "linkpath")) {
		reader->has_link = true;
		return take_string(reader->said.link, value, len, err);
	}
	if (!strncmp(key, "GNU.sparse.", 11) || !strcmp(key, "SUN.holesdata"))
		return err_set(err, ERR_INVALID, "the archive holds a sparse file");
	if (strlen(value) != len)
		return 0; /* an attribute we do not know may hold any bytes */
	if (!strcmp(key, "size")) {
		reader->has_size = true;
		return parse_decimal(value, INT64_MAX / 2, &reader->said.size, err);
	}
	if (!strcmp(key, "mtime")) {
		reader->has_mtime = true;
		return parse_time(value, &reader->said, err);
	}
	if (!strcmp(key, "uid") || !strcmp(key, "gid")) {
		if (parse_decimal(value, UINT32_MAX, &number, err) < 0)
			return -1;
		*(*key == 'u' ? &reader->has_uid : &reader->has_gid) = true;
		*(*key == 'u' ? &reader->said.uid : &reader->said.gid) = (uint32_t)number;
	}
	return 0;
}

/* "LEN key=value\n", LEN counting all of it. */
static int take_pax(struct tar_reader *reader, char *text, size_t size, struct err *err)
{
	while (size) {
		size_t len = 0, digits = 0;
		char *key, *equals;

		while (digits < size && digits < 6 && text[digits] >= '0' && text[digits] <= '9')
			len = len * 10 + (size_t)(text[digits++] - '0');
		if (!digits || digits == size || text[digits] != ' ' || len > size ||
			len < digits + 4 || text[len - 1] != '\n')
			return err_set(
				err, ERR_INVALID, "an extended header in the archive is malformed");
		key = text + digits + 1;
		equals = memchr(key, '=', len - digits - 2);
		if (!equals)
			return err_set(
				err, ERR_INVALID, "an extended header in the archive is malformed");
		*equals = '\0';
		text[len - 1] = '\0';
		if (take_pax_record(reader, key, equals + 1,
			    (size_t)(text + len - 1 - (equals + 1)), err) < 0)
			return -1;
		text += len;
		size -= len;
	}
	return 0;
}

/* A header that only says something about the next one. */
static int take_extension(struct tar_reader *reader, char type, uint64_t size, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len;

	if (type == 'g')
		return skip(reader, size + tar_fill(size), err); /* comments, mostly */
	if (size > TAR_PAX_MAX)
		return err_set(err, ERR_INVALID, "an extended header in the archive is too large");
	text = xcalloc(1, size + 1);
	if (read_all(reader, text, size, err) < 0 || skip(reader, tar_fill(size), err) < 0)
		return -1;
	if (type == 'x')
		return take_pax(reader, text, size, err);
	len = strnlen(text, size); /* GNU names end with a zero byte */
	*(type == 'L' ? &reader->has_name : &reader->has_link) = true;
	return take_string(type == 'L' ? reader->said.name : reader->said.link, text, len, err);
}

static void copy_field(char *out, const char *field, size_t size)
{
	size_t len = strnlen(field, size);

	memcpy(out, field, len);
	out[len] = '\0';
}

static int take_numbers(struct tar_reader *reader, const struct header *header, struct err *err)
{
	struct tar_entry *entry = &reader->entry;

	entry->mtime_ns = 0;
	if (get_u32(header->mode, sizeof header->mode, &entry->mode, err) < 0 ||
		get_u32(header->uid, sizeof header->uid, &entry->uid, err) < 0 ||
		get_u32(header->gid, sizeof header->gid, &entry->gid, err) < 0 ||
		get_number(header->mtime, sizeof header->mtime, &entry->mtime, err) < 0)
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
	entry->major = entry->minor = 0;
	if (entry->type != TAR_CHAR && entry->type != TAR_BLOCK_DEVICE)
		return 0;
	if (get_u32(header->major, sizeof header->major, &entry->major, err) < 0)
		return -1;
	return get_u32(header->minor, sizeof header->minor, &entry->minor, err);
}

static void take_names(struct tar_reader *reader, const struct header *header)
{
	struct tar_entry *entry = &reader->entry;
	char prefix[sizeof header->prefix + 1] = "", name[sizeof header->name + 1];
	size_t len;

	/* The GNU format has other things where ustar has a prefix. */
	if (header->magic[5] == '\0')
		copy_field(prefix, header->prefix, sizeof header->prefix);
	copy_field(name, header->name, sizeof header->name);
	if (reader->has_name)
		strcpy(entry->name, reader->said.name);
	else
		snprintf(entry->name, sizeof entry->name, "%s%s%s", prefix, *prefix ? "/" : "",
			name);
	if (reader->has_link)
		strcpy(entry->link, reader->said.link);
	else
		copy_field(entry->link, header->link, sizeof header->link);
	len = strlen(entry->name);
	/* Before there was a type for folders, a slash at the end made one. */
	if (len && entry->name[len - 1] == '/' && entry->type == TAR_FILE)
		entry->type = TAR_DIR;
	while (len > 1 && entry->name[len - 1] == '/')
		entry->name[--len] = '\0';
}

static int take_entry(
	struct tar_reader *reader, const struct header *header, uint64_t size, struct err *err)
{
	struct tar_entry *entry = &reader->entry;

	entry->type = header->type == '\0' || header->type == '7' ? TAR_FILE
								  : (enum tar_type)header->type;
	take_names(reader, header);
	if (!*entry->name)
		return err_set(err, ERR_INVALID, "a member of the archive has no name");
	if (entry->type < TAR_FILE || entry->type > TAR_FIFO)
		return err_set(err, ERR_INVALID,
			"member '%.200s' is of a type that is not supported", entry->name);
	if ((entry->type == TAR_LINK || entry->type == TAR_SYMLINK) && !*entry->link)
		return err_set(err, ERR_INVALID, "link '%.200s' points nowhere", entry->name);
	if (take_numbers(reader, header, err) < 0)
		return err_wrap(err, "member '%.200s'", entry->name);
	if (entry->type != TAR_FILE && size)
		return err_set(err, ERR_INVALID, "member '%.200s' has content, but is no file",
			entry->name);
	entry->size = size;
	reader->left = size;
	reader->fill = tar_fill(size);
	return 1;
}

static bool is_zero(const struct header *header)
{
	const uint8_t *bytes = (const uint8_t *)header;

	return !bytes[0] && !memcmp(bytes, bytes + 1, TAR_BLOCK - 1);
}

static int check_header(const struct header *header, struct err *err)
{
	uint32_t announced = 0;

	if (get_u32(header->checksum, sizeof header->checksum, &announced, NULL) < 0 ||
		announced != sum(header))
		return err_set(err, ERR_INVALID, "not a tar archive, or a damaged one (checksum)");
	if (memcmp(header->magic,
		    "ustar\0"
		    "00",
		    8) != 0 &&
		memcmp(header->magic, "ustar  ", 8) != 0)
		return err_set(err, ERR_INVALID, "not a tar archive of the ustar, pax or GNU kind");
	return 0;
}

int tar_next(struct tar_reader *reader, const struct tar_entry **ret, struct err *err)
{
	struct header header;
	int64_t size;

	if (skip(reader, reader->left + reader->fill, err) < 0)
		return -1;
	reader->left = reader->fill = 0;
	reader->has_name = reader->has_link = reader->has_size = false;
	reader->has_mtime = reader->has_uid = reader->has_gid = false;
	for (;;) {
		if (read_all(reader, &header, sizeof header, err) < 0)
			return -1;
		if (is_zero(&header)) {
			if (read_all(reader, &header, sizeof header, err) < 0)
				return -1;
			return is_zero(&header) ? 0
						: err_set(err, ERR_INVALID,
							  "the end of the archive is damaged");
		}
		if (check_header(&header, err) < 0 ||
			get_number(header.size, sizeof header.size, &size, err) < 0)
			return -1;
		if (size < 0 || size > INT64_MAX / 2)
			return err_set(err, ERR_INVALID, "a size in the archive is out of range");
		if (!header.type || !strchr("xgLK", header.type))
			break;
		if (take_extension(reader, header.type, (uint64_t)size, err) < 0)
			return -1;
	}
	if (take_entry(reader, &header, reader->has_size ? reader->said.size : (uint64_t)size,
		    err) < 0)
		return -1;
	*ret = &reader->entry;
	return 1;
}

ssize_t tar_read(struct tar_reader *reader, void *data, size_t len, struct err *err)
{
	size_t want = (size_t)MIN((uint64_t)len, reader->left);
	ssize_t got;

	if (!want)
		return 0;
	got = reader->read(reader->arg, data, want, err);
	if (got == 0)
		return err_set(err, ERR_INVALID, "the archive ends too early");
	if (got > 0)
		reader->left -= (uint64_t)got;
	return got;
}

/* ---- writing --------------------------------------------------------------------------------------- */

enum { OCTAL_7 = 07777777 };
#define OCTAL_11 077777777777ull

static void put_octal(char *field, size_t size, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof text, "%0*" PRIo64, (int)size - 1, value);
	memcpy(field, text, size);
}

static void put_block(struct buf *out, struct header *header)
{
	memcpy(header->magic,
		"ustar\0"
		"00",
		8);
	put_octal(header->checksum, sizeof header->checksum - 1, sum(header));
	header->checksum[7] = ' ';
	buf_add(out, header, sizeof *header);
}

/* The length stands in the record and counts itself. */
static void put_record(struct buf *pax, const char *key, const char *value)
{
	size_t rest = strlen(key) + strlen(value) + 3, len = rest;

	while (len != rest + (size_t)snprintf(NULL, 0, "%zu", len))
		len = rest + (size_t)snprintf(NULL, 0, "%zu", len);
	buf_addf(pax, "%zu %s=%s\n", len, key, value);
}

static bool needs_record(const char *text, size_t size)
{
	if (strlen(text) > size)
		return true;
	for (; *text; text++)
		if (*text & 0x80)
			return true;
	return false;
}

static void put_pax(struct buf *out, const struct tar_entry *entry)
{
	struct header header = { 0 };
	struct buf pax = BUF_INIT;
	char text[32];

	if (needs_record(entry->name, sizeof header.name - 1))
		put_record(&pax, "path", entry->name);
	if (needs_record(entry->link, sizeof header.link))
		put_record(&pax, "linkpath", entry->link);
	if (entry->size > OCTAL_11) {
		snprintf(text, sizeof text, "%" PRIu64, entry->size);
		put_record(&pax, "size", text);
	}
	if (entry->mtime < 0 || (uint64_t)entry->mtime > OCTAL_11) {
		snprintf(text, sizeof text, "%" PRId64, entry->mtime);
		put_record(&pax, "mtime", text);
	}
	if (entry->uid > OCTAL_7) {
		snprintf(text, sizeof text, "%u", entry->uid);
		put_record(&pax, "uid", text);
	}
	if (entry->gid > OCTAL_7) {
		snprintf(text, sizeof text, "%u", entry->gid);
		put_record(&pax, "gid", text);
	}
	if (!pax.len)
		return;
	strcpy(header.name, "pax");
	header.type = 'x';
	put_octal(header.mode, sizeof header.mode, 0644);
	put_octal(header.uid, sizeof header.uid, 0);
	put_octal(header.gid, sizeof header.gid, 0);
	put_octal(header.size, sizeof header.size, pax.len);
	put_octal(header.mtime, sizeof header.mtime, 0);
	put_block(out, &header);
	buf_add(out, buf_head(&pax), pax.len);
	memset(buf_room(out, TAR_BLOCK), 0, TAR_BLOCK);
	buf_grew(out, tar_fill(pax.len));
	buf_done(&pax);
}

void tar_put_header(struct buf *out, const struct tar_entry *entry)
{
	struct header header = { 0 };
	size_t len = strnlen(entry->name, sizeof header.name - 1);

	put_pax(out, entry);
	memcpy(header.name, entry->name, len);
	if (entry->type == TAR_DIR && len < sizeof header.name - 1)
		header.name[len] = '/';
	memcpy(header.link, entry->link, strnlen(entry->link, sizeof header.link));
	header.type = (char)entry->type;
	put_octal(header.mode, sizeof header.mode, entry->mode & 07777);
	put_octal(header.uid, sizeof header.uid, MIN(entry->uid, (uint32_t)OCTAL_7));
	put_octal(header.gid, sizeof header.gid, MIN(entry->gid, (uint32_t)OCTAL_7));
	put_octal(header.size, sizeof header.size, MIN(entry->size, OCTAL_11));
	put_octal(header.mtime, sizeof header.mtime,
		entry->mtime < 0 ? 0 : MIN((uint64_t)entry->mtime, OCTAL_11));
	put_octal(header.major, sizeof header.major, MIN(entry->major, (uint32_t)OCTAL_7));
	put_octal(header.minor, sizeof header.minor, MIN(entry->minor, (uint32_t)OCTAL_7));
	put_block(out, &header);
}
