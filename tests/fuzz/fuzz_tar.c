/* fuzz_tar.c - the tar reader on any bytes, in pieces of any size
 *
 * Random bytes never have a right checksum, so the harness repairs the checksum of each block that
 * looks like a header. Without a corpus the mutator starts from archives made here. */
#include "fuzz_tar_block.h"
#include "tar/tar.h"
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

struct source {
	const uint8_t *data;
	size_t len;
	unsigned pause; /* makes the reader wait before each piece of that many bytes; 0: never */
	bool paused;
};

static ssize_t read_source(void *arg, void *data, size_t len, struct err *err)
{
	struct source *source = arg;

	(void)err;
	len = MIN(len, source->len);
	if (source->pause) {
		source->paused = !source->paused;
		if (source->paused)
			return TAR_WAIT;
		len = MIN(len, source->pause * 100);
	}
	if (len)
		memcpy(data, source->data, len);
	source->data += len;
	source->len -= len;
	return (ssize_t)len;
}

static void put_zeros(struct buf *out, size_t len)
{
	memset(buf_room(out, len), 0, len);
	buf_grew(out, len);
}

static void put_extended(struct buf *out, char type, const char *text)
{
	struct tar_entry head = {
		.type = (enum tar_type)type, .name = "pax", .size = strlen(text)
	};

	tar_put_header(out, &head);
	buf_add_str(out, text);
	put_zeros(out, tar_fill(head.size));
}

/* Records and what an archive holds after them, for the features that a plain entry does not
 * show. */
static const struct {
	char type;
	const char *text;
	uint64_t size;
	const char *content;
} specials[] = {
	{ 'x',
		"24 GNU.sparse.size=5000\n26 GNU.sparse.numblocks=2\n25 GNU.sparse.offset=100\n"
		"27 GNU.sparse.numbytes=512\n26 GNU.sparse.offset=1000\n25 GNU.sparse.numbytes=1\n",
		513, "" },
	{ 'x', "24 GNU.sparse.size=5000\n38 GNU.sparse.map=0,512,1000,1,5000,0\n", 513, "" },
	{ 'x',
		"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n26 GNU.sparse.name=sparse\n"
		"28 GNU.sparse.realsize=5000\n",
		512 + 513, "2\n0\n512\n1000\n1\n" },
	{ 'x', "32 SCHILY.xattr.user.colour=red\n38 SCHILY.xattr.security.capability=x\n", 3,
		"abc" },
	{ 'g', "15 comment=abc\n", 0, "" },
	{ 'L', "a-long-name/of-a-file", 0, "" },
	{ 'K', "a-long-link/to-a-file", 0, "" },
};

static void make_special(struct buf *out, size_t which)
{
	struct tar_entry entry = { .type = TAR_FILE, .name = "f", .size = specials[which].size };
	size_t len = strlen(specials[which].content);

	put_extended(out, specials[which].type, specials[which].text);
	tar_put_header(out, &entry);
	buf_add(out, specials[which].content, len);
	put_zeros(out, entry.size - len + tar_fill(entry.size));
}

/* GNU's own sparse format, with a second block of pieces. */
static void make_gnu_sparse(struct buf *out)
{
	struct tar_entry entry = { .type = TAR_FILE, .name = "gnu", .size = 5 };
	size_t at = out->len;
	uint8_t *head;

	tar_put_header(out, &entry);
	put_zeros(out, TAR_BLOCK + TAR_BLOCK);
	head = buf_head(out) + at;
	head[156] = 'S';
	memcpy(head + 257, "ustar  ", 8);
	for (int i = 0; i < 4; i++)
		snprintf((char *)head + 386 + 24 * i, 24, "%011o%c%011o", 1000 * i, 0, 1);
	head[482] = 1;
	snprintf((char *)head + 483, 12, "%011o", 5000);
	snprintf((char *)head + TAR_BLOCK, 24, "%011o%c%011o", 4000, 0, 1);
	repair(head);
}

static void make_seed(struct buf *out, unsigned which)
{
	static const struct tar_xattr xattr = { "user.colour", "green", 5 };
	char name[201] = "dir/file", link[151] = "";
	struct tar_entry entry = {
		.type = TAR_FILE, .name = name, .link = link, .mode = 0644, .mtime = 1000
	};

	if (which & 1)
		memset(name, 'n', 200);
	if (which & 2)
		entry.size = 100;
	if (which & 4) {
		entry.type = TAR_SYMLINK;
		entry.size = 0;
		memset(link, 'l', 150);
	}
	if (which & 8)
		entry.mtime = -100;
	if (which & 16) {
		entry.xattrs = &xattr;
		entry.xattr_count = 1;
	}
	if (which & 32)
		make_gnu_sparse(out);
	if (which & 64)
		make_special(out, (which >> 7) % ARRAY_LEN(specials));
	tar_put_header(out, &entry);
	put_zeros(out, entry.size + tar_fill(entry.size));
	put_zeros(out, TAR_END_SIZE);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	if ((size < TAR_BLOCK || seed % 64 == 0) && max >= 4096) {
		struct buf out = BUF_INIT;

		make_seed(&out, seed / 64);
		size = MIN(out.len, max);
		memcpy(data, buf_head(&out), size);
		buf_done(&out);
		return size;
	}
	size = LLVMFuzzerMutate(data, size, max);
	for (size_t at = 0; at + TAR_BLOCK <= size; at += TAR_BLOCK)
		if (!memcmp(data + at + 257, "ustar", 5))
			repair(data + at);
	return size;
}

static void check_entry(const struct tar_entry *entry)
{
	uint64_t end = 0, sum = 0;

	if (!*entry->name || strlen(entry->name) > WIRE_PATH_MAX ||
		strlen(entry->link) > WIRE_PATH_MAX)
		__builtin_trap();
	if (entry->mode > 07777 || entry->mtime_ns >= 1000000000)
		__builtin_trap();
	for (size_t i = 0; i < entry->xattr_count; i++)
		for (size_t j = 0; j < entry->xattrs[i].len; j++)
			sum += ((const uint8_t *)entry->xattrs[i].value)[j];
	if (!entry->sparse) {
		if (entry->real_size != entry->size)
			__builtin_trap();
		return;
	}
	sum = 0;
	for (size_t i = 0; i < entry->sparse_count; i++) {
		const struct tar_piece *piece = &entry->sparse[i];

		if (piece->offset < end || !piece->len)
			__builtin_trap();
		end = piece->offset + piece->len;
		sum += piece->len;
	}
	if (end > entry->real_size || sum != entry->size)
		__builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tar_reader reader;
	struct source source = { data, size, size ? data[0] % 8 : 0, false };
	const struct tar_entry *entry;
	struct err err = ERR_INIT;
	uint8_t content[100];
	bool in_file = false;

	reader = (struct tar_reader){ .read = read_source, .arg = &source };
	for (;;) {
		uint64_t at = in_file ? tar_offset(&reader) : 0;
		ssize_t status = in_file ? tar_read(&reader, content, sizeof content, &err)
					 : tar_next(&reader, &entry, &err);

		if (status == TAR_WAIT)
			continue;
		if (status < 0 || (!in_file && status == 0))
			break;
		if (!in_file)
			check_entry(entry);
		else if (at + (uint64_t)status > entry->real_size)
			__builtin_trap();
		in_file = in_file ? status > 0 : entry->size > 0;
	}
	tar_reader_done(&reader);
	return 0;
}
