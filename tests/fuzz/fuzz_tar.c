/* fuzz_tar.c - the tar reader of box-init on any bytes
 *
 * Random bytes never have a right checksum, so the harness repairs the checksum of each block that looks
 * like a header. Without a corpus the mutator starts from archives made here. */
#include "guest/tar.h"
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

struct source {
	const uint8_t *data;
	size_t len;
};

static ssize_t read_source(void *arg, void *data, size_t len, struct err *err)
{
	struct source *source = arg;

	(void)err;
	len = MIN(len, source->len);
	if (len)
		memcpy(data, source->data, len);
	source->data += len;
	source->len -= len;
	return (ssize_t)len;
}

static void repair(uint8_t *block)
{
	unsigned total = 0;
	char text[8];

	memset(block + 148, ' ', 8);
	for (size_t i = 0; i < TAR_BLOCK; i++)
		total += block[i];
	snprintf(text, sizeof text, "%06o", total);
	memcpy(block + 148, text, 7);
}

static void put_zeros(struct buf *out, size_t len)
{
	memset(buf_room(out, len), 0, len);
	buf_grew(out, len);
}

static void make_seed(struct buf *out, unsigned which)
{
	static struct tar_entry entry;

	entry = (struct tar_entry){
		.type = TAR_FILE, .name = "dir/file", .mode = 0644, .mtime = 1000
	};
	if (which & 1)
		memset(entry.name, 'n', 200);
	if (which & 2)
		entry.size = 100;
	if (which & 4) {
		entry.type = TAR_SYMLINK;
		entry.size = 0;
		memset(entry.link, 'l', 150);
	}
	if (which & 8)
		entry.mtime = -100;
	tar_put_header(out, &entry);
	put_zeros(out, entry.size + tar_fill(entry.size));
	put_zeros(out, TAR_END_SIZE);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	if (size < TAR_BLOCK && max >= 4096) {
		struct buf out = BUF_INIT;

		make_seed(&out, seed % 16);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tar_reader reader;
	struct source source = { data, size };
	const struct tar_entry *entry;
	struct err err = ERR_INIT;
	uint8_t content[100];

	reader = (struct tar_reader){ .read = read_source, .arg = &source };
	while (tar_next(&reader, &entry, &err) == 1) {
		if (!*entry->name || strlen(entry->name) > WIRE_PATH_MAX ||
			strlen(entry->link) > WIRE_PATH_MAX)
			__builtin_trap();
		if (entry->mode > 07777 || entry->mtime_ns >= 1000000000)
			__builtin_trap();
		if (tar_read(&reader, content, sizeof content, &err) < 0)
			break;
	}
	return 0;
}
