/* test_tar.c - the tar format: what is written can be read, and damage is noticed */
#include "base/file.h"
#include "tar/tar.h"
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

struct source {
	const uint8_t *data;
	size_t len, step;
};

static ssize_t read_source(void *arg, void *data, size_t len, struct err *err)
{
	struct source *source = arg;

	(void)err;
	len = MIN(len, MIN(source->len, source->step));
	memcpy(data, source->data, len);
	source->data += len;
	source->len -= len;
	return (ssize_t)len;
}

static ssize_t read_or_wait(void *arg, void *data, size_t len, struct err *err)
{
	struct source *source = arg;

	return source->len ? read_source(arg, data, len, err) : TAR_WAIT;
}

static void put_zeros(struct buf *out, size_t len)
{
	memset(buf_room(out, len), 0, len);
	buf_grew(out, len);
}

static void put_file(struct buf *out, const struct tar_entry *entry)
{
	tar_put_header(out, entry);
	memset(buf_room(out, entry->size), 'x', entry->size);
	buf_grew(out, entry->size);
	put_zeros(out, tar_fill(entry->size));
}

static void test_tar_round_trip(void **state)
{
	static char long_name[301], long_link[4001];
	static struct tar_entry made, large;
	static struct tar_reader reader;
	const struct tar_entry *got;
	struct buf out = BUF_INIT;
	struct source source;
	struct err err = ERR_INIT;
	char content[700];

	memset(long_name, 'n', 300);
	memset(long_link, 'l', 4000);
	(void)state;
	made = (struct tar_entry){
		.type = TAR_FILE,
		.name = long_name,
		.size = 1000,
		.mode = 04755,
		.uid = 3000000000u,
		.gid = 12,
		.mtime = -5,
	};
	large = (struct tar_entry){ .type = TAR_SYMLINK,
		.name = "gr\xc3\xbc\xc3\x9f",
		.link = long_link,
		.mtime = 1ll << 40 };
	put_file(&out, &made);
	tar_put_header(&out, &large);
	put_zeros(&out, TAR_END_SIZE);

	source = (struct source){ buf_head(&out), out.len, 7 };
	reader = (struct tar_reader){ .read = read_source, .arg = &source };
	assert_int_equal(tar_next(&reader, &got, &err), 1);
	assert_string_equal(got->name, made.name);
	assert_int_equal(got->size, 1000);
	assert_int_equal(got->mode, 04755);
	assert_int_equal(got->uid, 3000000000u);
	assert_int_equal(got->mtime, -5);
	assert_int_equal(tar_read(&reader, content, sizeof content, &err), 7);
	assert_int_equal(content[6], 'x');
	assert_int_equal(tar_next(&reader, &got, &err), 1); /* the rest is passed over */
	assert_int_equal(got->type, TAR_SYMLINK);
	assert_string_equal(got->name, large.name);
	assert_string_equal(got->link, large.link);
	assert_int_equal(got->mtime, 1ll << 40);
	assert_int_equal(tar_next(&reader, &got, &err), 0);
	assert_int_equal(tar_next(&reader, &got, &err), 0);
	tar_reader_done(&reader);
	buf_done(&out);
}

/* An archive of an extended header of that type and one empty file. */
static void put_extended(struct buf *out, char type, const char *text, size_t len)
{
	struct tar_entry head = { .type = (enum tar_type)type, .name = "pax", .size = len };
	struct tar_entry file = { .type = TAR_FILE, .name = "f" };

	tar_put_header(out, &head);
	buf_add(out, text, len);
	put_zeros(out, tar_fill(len));
	tar_put_header(out, &file);
	put_zeros(out, TAR_END_SIZE);
}

/* The first entry or the error of an archive; *ret is good until the next call. */
static int read_first(struct buf *archive, const struct tar_entry **ret, struct err *err)
{
	static struct tar_reader reader;
	struct source source = { buf_head(archive), archive->len, 100000 };
	int status;

	tar_reader_done(&reader);
	reader = (struct tar_reader){ .read = read_source, .arg = &source };
	status = tar_next(&reader, ret, err);
	buf_done(archive);
	return status;
}

static int read_pax(const char *pax, const struct tar_entry **ret, struct err *err)
{
	struct buf out = BUF_INIT;

	put_extended(&out, 'x', pax, strlen(pax));
	return read_first(&out, ret, err);
}

static void test_tar_pax_records(void **state)
{
	const struct tar_entry *got;

	(void)state;
	assert_int_equal(read_pax("12 path=abc\n20 mtime=-1.5000000\n", &got, NULL), 1);
	assert_string_equal(got->name, "abc");
	assert_int_equal(got->mtime, -2);
	assert_int_equal(got->mtime_ns, 500000000);
	assert_int_equal(read_pax("17 anything=else\n", &got, NULL), 1);
	assert_int_equal(read_pax("8 path=\n", &got, NULL), 1);
	assert_string_equal(got->name, "f");
}

static void test_tar_malformed_pax_is_refused(void **state)
{
	const char *const bad[] = { "", "x", "5", "99 path=abc\n", "12 path=abc.", "11 path=abc\n",
		"0 path=abc\n", "9 nokey.\n", "12 size=-10\n", "11 size=1e\n",
		"31 size=9999999999999999999999\n", "11 mtime=.\n", "22 GNU.sparse.major=1\n",
		"24 GNU.sparse.size=1000\n25 GNU.sparse.map=0,512\n", "22 GNU.sparse.offset=0\n",
		"22 SUN.holesdata= 0 1\n", "999999999999 path=a\n" };

	(void)state;
	for (size_t i = 1; i < ARRAY_LEN(bad); i++) {
		const struct tar_entry *got;
		struct err err = ERR_INIT;

		assert_int_equal(read_pax(bad[i], &got, &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
	}
}

static void test_tar_damage_is_noticed(void **state)
{
	static struct tar_entry made = { .type = TAR_FILE, .name = "file", .mode = 0644 };
	static struct tar_reader reader;
	const struct tar_entry *got;

	(void)state;
	for (size_t at = 0; at < TAR_BLOCK; at++) {
		struct buf out = BUF_INIT;
		struct source source;
		struct err err = ERR_INIT;

		tar_put_header(&out, &made);
		put_zeros(&out, TAR_END_SIZE);
		buf_head(&out)[at] ^= 0x41;
		source = (struct source){ buf_head(&out), out.len, 512 };
		reader = (struct tar_reader){ .read = read_source, .arg = &source };
		/* A blank or zero after the checksum may become another one that means the same. */
		if (at < 148 || at > 155)
			assert_int_equal(tar_next(&reader, &got, &err), -1);
		tar_reader_done(&reader);
		buf_done(&out);
	}
}

static void test_tar_xattrs_come_back(void **state)
{
	static const struct tar_xattr xattrs[] = {
		{ "security.capability", "\1\0\0\2\0\4", 6 },
		{ "user.text", "two\nlines", 9 },
		{ "user.empty", "", 0 },
	};
	struct tar_entry made = {
		.type = TAR_FILE, .name = "f", .xattrs = xattrs, .xattr_count = 3
	};
	const struct tar_entry *got;
	struct buf out = BUF_INIT;

	(void)state;
	tar_put_header(&out, &made);
	put_zeros(&out, TAR_END_SIZE);
	assert_int_equal(read_first(&out, &got, NULL), 1);
	assert_int_equal(got->xattr_count, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_string_equal(got->xattrs[i].name, xattrs[i].name);
		assert_int_equal(got->xattrs[i].len, xattrs[i].len);
		assert_memory_equal(got->xattrs[i].value, xattrs[i].value, xattrs[i].len);
	}
}

static void test_tar_xattrs_are_bounded(void **state)
{
	static char value[TAR_XATTR_BYTES_MAX];
	struct tar_xattr many[TAR_XATTRS_MAX + 1], large = { "user.large", value, sizeof value };
	char names[TAR_XATTRS_MAX + 1][16];
	struct tar_entry made = { .type = TAR_FILE, .name = "f", .xattrs = many };
	const struct tar_entry *got;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(many); i++) {
		snprintf(names[i], sizeof names[i], "user.%zu", i);
		many[i] = (struct tar_xattr){ names[i], "x", 1 };
	}
	for (made.xattr_count = TAR_XATTRS_MAX; made.xattr_count <= ARRAY_LEN(many);
		made.xattr_count++) {
		struct buf out = BUF_INIT;

		tar_put_header(&out, &made);
		put_zeros(&out, TAR_END_SIZE);
		assert_int_equal(
			read_first(&out, &got, NULL), made.xattr_count == TAR_XATTRS_MAX ? 1 : -1);
	}
	made.xattrs = &large;
	made.xattr_count = 1;
	for (large.len = sizeof value; large.len > TAR_XATTR_BYTES_MAX - 11; large.len--) {
		struct buf out = BUF_INIT;

		tar_put_header(&out, &made);
		put_zeros(&out, TAR_END_SIZE);
		assert_int_equal(read_first(&out, &got, NULL),
			large.len + strlen(large.name) <= TAR_XATTR_BYTES_MAX ? 1 : -1);
	}
}

static void test_tar_global_headers_may_only_comment(void **state)
{
	const struct tar_entry *got;
	struct err err = ERR_INIT;
	struct buf out = BUF_INIT;

	(void)state;
	put_extended(&out, 'g', "15 comment=abc\n", 15);
	assert_int_equal(read_first(&out, &got, NULL), 1);
	assert_string_equal(got->name, "f");
	put_extended(&out, 'g', "12 path=abc\n", 12);
	assert_int_equal(read_first(&out, &got, &err), -1);
	assert_non_null(strstr(err.message, "'path'"));
}

static void test_tar_waits_for_bytes_at_any_place(void **state)
{
	static const struct tar_xattr xattr = { "user.a", "b", 1 };
	static struct tar_reader reader;
	struct tar_entry made = {
		.type = TAR_FILE, .name = "f", .size = 700, .xattrs = &xattr, .xattr_count = 1
	};
	const struct tar_entry *got;
	struct buf out = BUF_INIT;
	struct source source;
	unsigned waits = 0, content = 0;
	bool in_file = false;
	char byte;

	(void)state;
	put_file(&out, &made);
	put_zeros(&out, TAR_END_SIZE);
	source = (struct source){ buf_head(&out), 0, 1 };
	reader = (struct tar_reader){ .read = read_or_wait, .arg = &source };
	for (;;) {
		ssize_t status =
			in_file ? tar_read(&reader, &byte, 1, NULL) : tar_next(&reader, &got, NULL);

		if (status == TAR_WAIT) {
			waits++;
			source.len = 1;
		} else if (status == 1 && in_file) {
			content += byte == 'x';
		} else if (status == 1) {
			in_file = true;
		} else if (in_file) {
			assert_int_equal(status, 0);
			in_file = false;
		} else {
			assert_int_equal(status, 0);
			break;
		}
	}
	assert_int_equal(waits, out.len);
	assert_int_equal(content, 700);
	assert_string_equal(got->xattrs ? got->name : "", "f");
	tar_reader_done(&reader);
	buf_done(&out);
}

/* ---- archives of GNU tar -------------------------------------------------------------------- */

static ssize_t read_pipe(void *arg, void *data, size_t len, struct err *err)
{
	return (ssize_t)fread(data, 1, len, arg);
}

/* A file with a byte at each multiple of step, else holes. */
static void make_sparse(const char *path, off_t size, off_t step)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);

	assert_true(fd >= 0);
	for (off_t at = step; step && at < size; at += step)
		assert_int_equal(pwrite(fd, "x", 1, at), 1);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

static void check_sparse(FILE *pipe, const char *name, uint64_t size, uint64_t step)
{
	static struct tar_reader reader;
	const struct tar_entry *got;
	static char chunk[9000];
	struct err err = ERR_INIT;
	uint64_t found = 0, stored = 0;
	ssize_t len;

	reader = (struct tar_reader){ .read = read_pipe, .arg = pipe };
	if (tar_next(&reader, &got, &err) != 1)
		fail_msg("%s", err.message);
	assert_string_equal(got->name, name);
	assert_int_equal(got->type, TAR_FILE);
	assert_int_equal(got->real_size, size);
	assert_true(got->size < size);
	assert_non_null(got->sparse);
	for (;;) {
		uint64_t at = tar_offset(&reader);

		len = tar_read(&reader, chunk, sizeof chunk, &err);
		if (len <= 0)
			break;
		stored += (uint64_t)len;
		for (ssize_t i = 0; i < len; i++, at++) {
			bool mark = step && at && at % step == 0;

			assert_int_equal(chunk[i], mark ? 'x' : 0);
			found += mark;
		}
	}
	assert_int_equal(len, 0);
	assert_int_equal(stored, got->size);
	assert_int_equal(found, step ? (size - 1) / step : 0);
	if (tar_next(&reader, &got, &err) != 1)
		fail_msg("%s", err.message);
	assert_string_equal(got->name, "last");
	assert_null(got->sparse);
	tar_reader_done(&reader);
}

static void test_tar_reads_sparse_files_of_gnu_tar(void **state)
{
	static const char *const formats[] = { "--format=gnu",
		"--format=posix --sparse-version=0.0", "--format=posix --sparse-version=0.1",
		"--format=posix --sparse-version=1.0" };
	/* pieces: none, a few, more than one block of any format has */
	static const struct {
		off_t size, step;
	} files[] = { { 1 << 20, 0 }, { 1000000, 300000 }, { 8 << 20, 16384 } };
	char dir[] = "/tmp/test-tar-XXXXXX", name[120], path[200], command[512];

	(void)state;
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/last", dir);
	make_sparse(path, 0, 0);
	snprintf(path, sizeof path, "%s/%s", dir, name);
	for (size_t i = 0; i < ARRAY_LEN(formats) * ARRAY_LEN(files); i++) {
		off_t size = files[i % ARRAY_LEN(files)].size,
		      step = files[i % ARRAY_LEN(files)].step;
		FILE *pipe;

		make_sparse(path, size, step);
		snprintf(command, sizeof command, "tar -C %s -S %s -cf - %s last", dir,
			formats[i / ARRAY_LEN(files)], name);
		pipe = popen(command, "re");
		assert_non_null(pipe);
		check_sparse(pipe, name, (uint64_t)size, (uint64_t)step);
		pclose(pipe);
	}
	tree_remove(AT_FDCWD, dir, NULL);
}

static void test_tar_reads_all_formats_of_gnu_tar(void **state)
{
	static const char *const formats[] = { "v7", "oldgnu", "gnu", "ustar", "posix" };
	char dir[] = "/tmp/test-tar-XXXXXX", path[200], command[512];

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/folder", dir);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(chmod(path, 03755), 0);
	for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
		static struct tar_reader reader;
		const struct tar_entry *got;
		struct err err = ERR_INIT;
		FILE *pipe;

		snprintf(command, sizeof command, "tar -C %s --format=%s -cf - folder", dir,
			formats[i]);
		pipe = popen(command, "re");
		assert_non_null(pipe);
		reader = (struct tar_reader){ .read = read_pipe, .arg = pipe };
		if (tar_next(&reader, &got, &err) != 1)
			fail_msg("%s: %s", formats[i], err.message);
		assert_string_equal(got->name, "folder");
		assert_int_equal(got->type, TAR_DIR);
		assert_int_equal(got->mode, 03755);
		assert_int_equal(tar_next(&reader, &got, &err), 0);
		tar_reader_done(&reader);
		pclose(pipe);
	}
	tree_remove(AT_FDCWD, dir, NULL);
}

/* A hand-made GNU header of type 'S' with two pieces. */
static int read_old_sparse(uint64_t first, uint64_t first_len, uint64_t second, uint64_t second_len,
	uint64_t real, uint64_t stored)
{
	const struct tar_entry *got;
	char block[TAR_BLOCK] = "sparse";
	unsigned sum = 0;
	struct buf out = BUF_INIT;

	snprintf(block + 124, 12, "%011" PRIo64, stored);
	memset(block + 148, ' ', 8);
	block[156] = 'S';
	memcpy(block + 257, "ustar  ", 8);
	snprintf(block + 386, 12, "%011" PRIo64, first);
	snprintf(block + 398, 12, "%011" PRIo64, first_len);
	snprintf(block + 410, 12, "%011" PRIo64, second);
	snprintf(block + 422, 12, "%011" PRIo64, second_len);
	snprintf(block + 483, 12, "%011" PRIo64, real);
	for (size_t i = 0; i < sizeof block; i++)
		sum += (unsigned char)block[i];
	snprintf(block + 148, 8, "%06o", sum);
	buf_add(&out, block, sizeof block);
	put_zeros(&out, stored + tar_fill(stored) + TAR_END_SIZE);
	return read_first(&out, &got, NULL);
}

static void test_tar_refuses_sparse_maps_that_lie(void **state)
{
	(void)state;
	assert_int_equal(read_old_sparse(0, 512, 1024, 512, 4096, 1024), 1);
	assert_int_equal(read_old_sparse(0, 512, 512, 512, 1024, 1024), 1);
	assert_int_equal(
		read_old_sparse(0, 512, 511, 512, 4096, 1024), -1); /* one over the other */
	assert_int_equal(read_old_sparse(1024, 512, 0, 512, 4096, 1024), -1); /* falling */
	assert_int_equal(read_old_sparse(0, 512, 1024, 512, 1535, 1024), -1); /* past the end */
	assert_int_equal(
		read_old_sparse(0, 512, 1024, 512, 4096, 1023), -1); /* less than they hold */
	assert_int_equal(read_old_sparse(0, 512, 1024, 512, 4096, 2048), -1); /* more */
}

/* Reads all of it; how many entries, or -1. */
static int count_entries(struct buf *archive, size_t len, size_t step, bool bare_end)
{
	static struct tar_reader reader;
	struct source source = { buf_head(archive), len, step };
	const struct tar_entry *entry;
	struct err err = ERR_INIT;
	int more, count = 0;

	reader = (struct tar_reader){ .read = read_source, .arg = &source, .bare_end = bare_end };
	while ((more = tar_next(&reader, &entry, &err)) == 1)
		count++;
	tar_reader_done(&reader);
	return more < 0 ? -1 : count;
}

static void test_tar_without_its_end_is_whole_only_where_that_is_allowed(void **state)
{
	struct tar_entry entry = {
		.type = TAR_FILE, .name = "a", .link = "", .mode = 0644, .size = 700
	};
	char long_name[301];
	struct buf out = BUF_INIT;
	size_t first, both;

	(void)state;
	put_file(&out, &entry);
	first = out.len;
	memset(long_name, 'n', 300);
	long_name[300] = '\0';
	entry.name = long_name; /* takes an extended header */
	put_file(&out, &entry);
	both = out.len;
	put_zeros(&out, TAR_END_SIZE);
	for (size_t step = 7; step < 3000; step += 505) {
		assert_int_equal(count_entries(&out, out.len, step, false), 2);
		assert_int_equal(count_entries(&out, out.len, step, true), 2);
		assert_int_equal(count_entries(&out, both, step, true), 2);
		assert_int_equal(count_entries(&out, both, step, false), -1);
		assert_int_equal(count_entries(&out, first, step, true), 1);
		/* In the middle of a header, of content, and between an extended header and its
		 * entry. */
		assert_int_equal(count_entries(&out, first + 100, step, true), -1);
		assert_int_equal(count_entries(&out, first - 512, step, true), -1);
		assert_int_equal(count_entries(&out, first + 1024, step, true), -1);
		assert_int_equal(count_entries(&out, both - 512, step, true), -1);
	}
	buf_done(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tar_round_trip),
		cmocka_unit_test(test_tar_without_its_end_is_whole_only_where_that_is_allowed),
		cmocka_unit_test(test_tar_pax_records),
		cmocka_unit_test(test_tar_malformed_pax_is_refused),
		cmocka_unit_test(test_tar_damage_is_noticed),
		cmocka_unit_test(test_tar_xattrs_come_back),
		cmocka_unit_test(test_tar_xattrs_are_bounded),
		cmocka_unit_test(test_tar_global_headers_may_only_comment),
		cmocka_unit_test(test_tar_waits_for_bytes_at_any_place),
		cmocka_unit_test(test_tar_reads_sparse_files_of_gnu_tar),
		cmocka_unit_test(test_tar_reads_all_formats_of_gnu_tar),
		cmocka_unit_test(test_tar_refuses_sparse_maps_that_lie),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
