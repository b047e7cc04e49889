/* untar.c - see untar.h
 *
 * Bytes come in pieces of any size: the parser collects a header block, then (for pax and GNU headers) the
 * extension's text, or passes a file's bytes on as they come, then drops what fills the last block. */
#include "cli/untar_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include <assert.h>
#include <stdio.h>
#include <sys/stat.h>

enum { BLOCK = 512, EXTENSION_MAX = 64 * 1024 };

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], rest[12];
};
static_assert(sizeof(struct header) == BLOCK, "a header is one block");

struct untar *untar_new(const struct untar_spec *spec)
{
	struct untar *untar = xnew(struct untar);

	untar->spec = *spec;
	untar->fd = -1;
	untar->said_size = -1;
	untar->umask = umask(0);
	umask(untar->umask);
	return untar;
}

void untar_free(struct untar *untar)
{
	if (!untar)
		return;
	if (untar->fd >= 0)
		close(untar->fd);
	for (size_t i = 0; i < untar->folder_count; i++)
		free(untar->folders[i].name);
	free(untar->folders);
	buf_done(&untar->block);
	free(untar);
}

uint64_t untar_files(const struct untar *untar)
{
	return untar->files;
}

uint64_t untar_skipped(const struct untar *untar)
{
	return untar->skipped;
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* Octal with blanks around it, or base 256 when the first bit is set. -1: malformed or out of range. */
static int64_t get_number(const char *field, size_t size)
{
	const uint8_t *p = (const uint8_t *)field;
	uint64_t value = 0;
	size_t i = 0;

	if (p[0] & 0x80) {
		value = p[0] & 0x7f;
		for (i = 1; i < size; i++) {
			if (value >> 55)
				return -1;
			value = value << 8 | p[i];
		}
		return (int64_t)value;
	}
	while (i < size && p[i] == ' ')
		i++;
	for (; i < size && p[i] >= '0' && p[i] <= '7'; i++)
		value = value << 3 | (uint64_t)(p[i] - '0');
	for (; i < size; i++)
		if (p[i] != ' ' && p[i] != '\0')
			return -1;
	return (int64_t)value;
}

static int damaged(struct err *err)
{
	return err_set(err, ERR_PROTOCOL, "the archive from the box is damaged");
}

static int check_header(const struct header *header, struct err *err)
{
	const uint8_t *bytes = (const uint8_t *)header;
	int64_t sum = 0;

	for (size_t i = 0; i < BLOCK; i++)
		sum += i >= offsetof(struct header, checksum) && i < offsetof(struct header, type)
			       ? ' '
			       : bytes[i];
	if (sum != get_number(header->checksum, sizeof header->checksum) ||
		memcmp(header->magic, "ustar", 5) != 0)
		return damaged(err);
	return 0;
}

static void copy_field(char *out, const char *field, size_t size)
{
	size_t len = strnlen(field, size);

	memcpy(out, field, len);
	out[len] = '\0';
}

static int read_entry(
	struct untar *untar, const struct header *header, int64_t size, struct err *err)
{
	struct entry *entry = &untar->entry;
	char name[101], prefix[156] = "";
	int64_t mode = get_number(header->mode, sizeof header->mode);
	int64_t uid = get_number(header->uid, sizeof header->uid),
		gid = get_number(header->gid, sizeof header->gid);
	size_t len;

	if (mode < 0 || uid < 0 || uid > UINT32_MAX || gid < 0 || gid > UINT32_MAX)
		return damaged(err);
	entry->type = header->type ? header->type : '0';
	copy_field(name, header->name, sizeof header->name);
	if (header->magic[5] == '\0') /* GNU has other things where ustar has the prefix */
		copy_field(prefix, header->prefix, sizeof header->prefix);
	snprintf(entry->name, sizeof entry->name, "%s%s%s", prefix, *prefix ? "/" : "", name);
	copy_field(entry->link, header->link, sizeof header->link);
	if (*untar->said_name)
		strcpy(entry->name, untar->said_name);
	if (*untar->said_link)
		strcpy(entry->link, untar->said_link);
	len = strlen(entry->name);
	if (entry->type == '0' && len && entry->name[len - 1] == '/')
		entry->type = '5';
	if (entry->type == '7')
		entry->type = '0';
	entry->size = (uint64_t)(untar->said_size >= 0 ? untar->said_size : size);
	entry->mode = (mode_t)mode & 07777;
	entry->uid = (uint32_t)uid;
	entry->gid = (uint32_t)gid;
	entry->mtime = get_number(header->mtime, sizeof header->mtime);
	untar->said_name[0] = untar->said_link[0] = '\0';
	untar->said_size = -1;
	return 0;
}

static void expect(struct untar *untar, enum state state, uint64_t size)
{
	untar->state = state;
	untar->left = size;
	untar->fill = (BLOCK - size % BLOCK) % BLOCK;
	untar->block.len = untar->block.head = 0;
}

static int take_header(struct untar *untar, struct err *err)
{
	static const char zeros[BLOCK];
	struct header header;
	int64_t size;

	memcpy(&header, buf_head(&untar->block), BLOCK);
	if (!memcmp(&header, zeros, BLOCK)) {
		expect(untar, ++untar->zero_blocks == 2 ? AT_END : AT_HEADER, 0);
		return 0;
	}
	size = get_number(header.size, sizeof header.size);
	if (untar->zero_blocks || size < 0 || check_header(&header, err) < 0)
		return damaged(err);
	if (header.type && strchr("xgLK", header.type)) {
		if (size > EXTENSION_MAX)
			return damaged(err);
		untar->extension = header.type;
		expect(untar, AT_EXTENSION, (uint64_t)size);
		return 0;
	}
	if (read_entry(untar, &header, size, err) < 0 || untar_make_entry(untar, err) < 0)
		return -1;
	/* Links and folders have no content, whatever their size says; what we skip has some to pass over. */
	expect(untar, AT_CONTENT, strchr("12345", untar->entry.type) ? 0 : untar->entry.size);
	return 0;
}

static int say(char *out, const char *text, size_t len, struct err *err)
{
	if (len >= PATH_MAX || memchr(text, '\0', len))
		return damaged(err);
	memcpy(out, text, len);
	out[len] = '\0';
	return 0;
}

static int take_record(struct untar *untar, const char *key, size_t key_len, const char *value,
	size_t len, struct err *err)
{
	uint64_t size = 0;

	if (key_len == 4 && !memcmp(key, "path", 4))
		return say(untar->said_name, value, len, err);
	if (key_len == 8 && !memcmp(key, "linkpath", 8))
		return say(untar->said_link, value, len, err);
	if (key_len == 4 && !memcmp(key, "size", 4)) {
		for (size_t i = 0; i < len; i++) {
			if (value[i] < '0' || value[i] > '9' || size > INT64_MAX / 20)
				return damaged(err);
			size = size * 10 + (uint64_t)(value[i] - '0');
		}
		untar->said_size = (int64_t)size;
	}
	return 0;
}

/* pax: "LEN key=value\n" again and again, LEN counting all of the record. */
static int take_pax(struct untar *untar, const char *text, size_t size, struct err *err)
{
	while (size) {
		size_t len = 0, digits = 0;
		const char *key, *equals;

		while (digits < size && digits < 6 && text[digits] >= '0' && text[digits] <= '9')
			len = len * 10 + (size_t)(text[digits++] - '0');
		if (!digits || len > size || len < digits + 4 || text[digits] != ' ' ||
			text[len - 1] != '\n')
			return damaged(err);
		key = text + digits + 1;
		equals = memchr(key, '=', len - digits - 2);
		if (!equals || take_record(untar, key, (size_t)(equals - key), equals + 1,
				       (size_t)(text + len - 1 - (equals + 1)), err) < 0)
			return damaged(err);
		text += len;
		size -= len;
	}
	return 0;
}

static int take_extension(struct untar *untar, struct err *err)
{
	const char *text = (char *)buf_head(&untar->block);
	size_t len = untar->block.len;
	int result = 0;

	if (untar->extension == 'x')
		result = take_pax(untar, text, len, err);
	else if (untar->extension == 'L' || untar->extension == 'K')
		result = say(untar->extension == 'L' ? untar->said_name : untar->said_link, text,
			strnlen(text, len), err);
	untar->block.len = untar->block.head = 0;
	untar->state = AT_FILL;
	return result;
}

static int take_content(struct untar *untar, const void *data, size_t len, struct err *err)
{
	if (untar->fd >= 0 && fd_write_all(untar->fd, data, len, err) < 0)
		return err_wrap(err, "'%.200s'", untar->entry.name);
	return 0;
}

int untar_feed(struct untar *untar, const void *data, size_t len, struct err *err)
{
	const uint8_t *p = data, *end = p + len;

	/* An empty file or extension ends without a byte, so look once more after the last one. */
	for (;;) {
		size_t have = (size_t)(end - p), take;

		switch (untar->state) {
		case AT_HEADER:
			take = MIN(have, BLOCK - untar->block.len);
			buf_add(&untar->block, p, take);
			p += take;
			if (untar->block.len < BLOCK)
				return 0;
			if (take_header(untar, err) < 0)
				return -1;
			break;
		case AT_EXTENSION:
			take = (size_t)MIN((uint64_t)have, untar->left);
			buf_add(&untar->block, p, take);
			p += take;
			untar->left -= take;
			if (untar->left)
				return 0;
			if (take_extension(untar, err) < 0)
				return -1;
			break;
		case AT_CONTENT:
			take = (size_t)MIN((uint64_t)have, untar->left);
			if (take && take_content(untar, p, take, err) < 0)
				return -1;
			p += take;
			untar->left -= take;
			if (untar->left)
				return 0;
			if (untar_end_file(untar, err) < 0)
				return -1;
			untar->state = AT_FILL;
			break;
		case AT_FILL:
			take = (size_t)MIN((uint64_t)have, untar->fill);
			p += take;
			untar->fill -= take;
			if (untar->fill)
				return 0;
			untar->state = AT_HEADER;
			break;
		case AT_END:
			return 0; /* tar pads its archives; what follows the end says nothing */
		}
	}
}

int untar_finish(struct untar *untar, struct err *err)
{
	untar_end_folders(untar);
	if (untar->state != AT_END)
		return err_set(err, ERR_PROTOCOL, "the archive from the box ends too early");
	return 0;
}
