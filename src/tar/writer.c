/* writer.c - headers of tar entries; see tar.h
 *
 * What does not fit into a plain ustar header (long or non-ASCII names, large numbers, fractions of
 * seconds, extended attributes) goes into a pax header before it. */
#include "tar/tar_internal.h"
#include <inttypes.h>
#include <stdio.h>

enum { OCTAL_7 = 07777777 };
#define OCTAL_11 077777777777ull

static void put_octal(char *field, size_t size, uint64_t value)
{
	for (size_t i = size - 1; i-- > 0; value >>= 3)
		field[i] = (char)('0' + (value & 7));
	field[size - 1] = '\0';
}

static void put_block(struct buf *out, struct tar_header *header)
{
	memcpy(header->magic, "ustar\00000", 8);
	put_octal(header->checksum, sizeof header->checksum - 1, tar_sum(header));
	header->checksum[7] = ' ';
	buf_add(out, header, sizeof *header);
}

/* The length is part of the record and counts itself. */
static void put_record(
	struct buf *pax, const char *prefix, const char *key, const void *value, size_t value_len)
{
	size_t rest = strlen(prefix) + strlen(key) + value_len + 3, len = rest;

	while (len != rest + (size_t)snprintf(NULL, 0, "%zu", len))
		len = rest + (size_t)snprintf(NULL, 0, "%zu", len);
	buf_addf(pax, "%zu %s%s=", len, prefix, key);
	buf_add(pax, value, value_len);
	buf_add(pax, "\n", 1);
}

static void put_text(struct buf *pax, const char *key, const char *text)
{
	put_record(pax, "", key, text, strlen(text));
}

static void put_number(struct buf *pax, const char *key, uint64_t number)
{
	char text[32];

	snprintf(text, sizeof text, "%" PRIu64, number);
	put_text(pax, key, text);
}

/* The fraction of a time before 1970 counts down from zero: 1.5 s before is "-1.5". */
static void put_time(struct buf *pax, int64_t seconds, uint32_t ns)
{
	bool negative = seconds < 0;
	uint64_t whole = negative ? (uint64_t)-seconds : (uint64_t)seconds;
	char text[48];

	if (negative && ns) {
		whole--;
		ns = 1000000000 - ns;
	}
	if (ns)
		snprintf(text, sizeof text, "%s%" PRIu64 ".%09" PRIu32, negative ? "-" : "", whole,
			ns);
	else
		snprintf(text, sizeof text, "%s%" PRIu64, negative ? "-" : "", whole);
	put_text(pax, "mtime", text);
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

static void put_pax(struct buf *out, const struct tar_entry *entry, const char *link)
{
	struct tar_header header = { 0 };
	struct buf pax = BUF_INIT;

	if (needs_record(entry->name, sizeof header.name - 1))
		put_text(&pax, "path", entry->name);
	if (needs_record(link, sizeof header.link))
		put_text(&pax, "linkpath", link);
	if (entry->size > OCTAL_11)
		put_number(&pax, "size", entry->size);
	if (entry->mtime < 0 || (uint64_t)entry->mtime > OCTAL_11 || entry->mtime_ns)
		put_time(&pax, entry->mtime, entry->mtime_ns);
	if (entry->uid > OCTAL_7)
		put_number(&pax, "uid", entry->uid);
	if (entry->gid > OCTAL_7)
		put_number(&pax, "gid", entry->gid);
	for (size_t i = 0; i < entry->xattr_count; i++)
		put_record(&pax, "SCHILY.xattr.", entry->xattrs[i].name, entry->xattrs[i].value,
			entry->xattrs[i].len);
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
	struct tar_header header = { 0 };
	const char *link = entry->link ? entry->link : "";
	size_t len = strnlen(entry->name, sizeof header.name - 1);

	put_pax(out, entry, link);
	memcpy(header.name, entry->name, len);
	if (entry->type == TAR_DIR && len < sizeof header.name - 1)
		header.name[len] = '/';
	memcpy(header.link, link, strnlen(link, sizeof header.link));
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
