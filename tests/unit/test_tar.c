/* test_tar.c - the tar format: what is written can be read, and damage is noticed */
#include "guest/tar.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
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
	static struct tar_entry made, large;
	static struct tar_reader reader;
	const struct tar_entry *got;
	struct buf out = BUF_INIT;
	struct source source;
	struct err err = ERR_INIT;
	char content[700];

	(void)state;
	made = (struct tar_entry){
		.type = TAR_FILE,
		.size = 1000,
		.mode = 04755,
		.uid = 3000000000u,
		.gid = 12,
		.mtime = -5,
	};
	memset(made.name, 'n', 300);
	large = (struct tar_entry){
		.type = TAR_SYMLINK, .name = "gr\xc3\xbc\xc3\x9f", .mtime = 1ll << 40
	};
	memset(large.link, 'l', 4000);
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
	buf_done(&out);
}

/* The first entry or the error of an archive that is what pax plus one file. */
static int read_pax(const char *pax, struct tar_entry *ret, struct err *err)
{
	static struct tar_reader reader;
	const struct tar_entry *got;
	struct tar_entry *head = xnew(struct tar_entry), *file = xnew(struct tar_entry);
	struct buf out = BUF_INIT;
	struct source source;
	int status;

	*head = (struct tar_entry){ .type = 'x', .name = "pax", .size = strlen(pax) };
	*file = (struct tar_entry){ .type = TAR_FILE, .name = "f" };
	tar_put_header(&out, head);
	buf_add_str(&out, pax);
	put_zeros(&out, tar_fill(strlen(pax)));
	tar_put_header(&out, file);
	put_zeros(&out, TAR_END_SIZE);
	source = (struct source){ buf_head(&out), out.len, 100000 };
	reader = (struct tar_reader){ .read = read_source, .arg = &source };
	status = tar_next(&reader, &got, err);
	if (status == 1 && ret)
		*ret = *got;
	buf_done(&out);
	free(head);
	free(file);
	return status;
}

static void test_tar_pax_records(void **state)
{
	static struct tar_entry got;

	(void)state;
	assert_int_equal(read_pax("12 path=abc\n20 mtime=-1.5000000\n", &got, NULL), 1);
	assert_string_equal(got.name, "abc");
	assert_int_equal(got.mtime, -2);
	assert_int_equal(got.mtime_ns, 500000000);
	assert_int_equal(read_pax("17 anything=else\n", &got, NULL), 1);
}

static void test_tar_malformed_pax_is_refused(void **state)
{
	const char *const bad[] = { "", "x", "5", "99 path=abc\n", "12 path=abc.", "11 path=abc\n",
		"0 path=abc\n", "9 nokey.\n", "12 size=-10\n", "11 size=1e\n",
		"31 size=9999999999999999999999\n", "11 mtime=.\n", "22 GNU.sparse.major=1\n",
		"999999999999 path=a\n" };

	(void)state;
	for (size_t i = 1; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_INIT;

		assert_int_equal(read_pax(bad[i], NULL, &err), -1);
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
		buf_done(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tar_round_trip),
		cmocka_unit_test(test_tar_pax_records),
		cmocka_unit_test(test_tar_malformed_pax_is_refused),
		cmocka_unit_test(test_tar_damage_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
