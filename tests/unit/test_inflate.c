/* test_inflate.c - compressed streams, whole, in parts and damaged, and the process that reads them
 * beside */
#include "source_fixture.h"
#include "image/oci_internal.h"
#include "base/file.h"
#include <fcntl.h>
#include <lzma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <zlib.h>
#include <zstd.h>
#include <cmocka.h>

static char base[] = "/tmp/test-inflate-XXXXXX";

static int set_up(void **state)
{
	(void)state;
	return mkdtemp(base) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return tree_remove(AT_FDCWD, base, NULL);
}

/* ---- compression ---------------------------------------------------------------------------- */

static size_t deflate_into(uint8_t *out, size_t room, const void *data, size_t len)
{
	z_stream z = { .next_in = (uint8_t *)data,
		.avail_in = (unsigned)len,
		.next_out = out,
		.avail_out = (unsigned)room };

	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return room - z.avail_out;
}

static size_t zstd_into(uint8_t *out, size_t room, const void *data, size_t len)
{
	return ZSTD_compress(out, room, data, len, 3);
}

static size_t xz_into(uint8_t *out, size_t room, const void *data, size_t len)
{
	size_t pos = 0;

	assert_int_equal(
		lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, NULL, data, len, out, &pos, room),
		LZMA_OK);
	return pos;
}

static size_t plain_into(uint8_t *out, size_t room, const void *data, size_t len)
{
	(void)room;
	memcpy(out, data, len);
	return len;
}

static size_t (*const compressors[])(
	uint8_t *, size_t, const void *, size_t) = { deflate_into, zstd_into, xz_into, plain_into };

/* -1: failed. */
static ssize_t inflate_all(
	const uint8_t *data, size_t len, size_t step, struct buf *out, struct err *err)
{
	struct source source = { data, len, step };
	struct inflate *inflate = inflate_new(read_source, &source);
	ssize_t got;

	while ((got = inflate_read(inflate, buf_room(out, 777), 777, err)) > 0)
		buf_grew(out, (size_t)got);
	inflate_free(inflate);
	return got < 0 ? -1 : (ssize_t)out->len;
}

static void test_inflate_reads_parts_one_after_the_other(void **state)
{
	static uint8_t data[100000], packed[300000];

	(void)state;
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * i >> 7);
	for (size_t c = 0; c < ARRAY_LEN(compressors); c++)
		for (size_t step = 1; step < 200000; step = step * 50 + 1) {
			size_t len = compressors[c](packed, sizeof packed, data, 60000);
			struct err err = ERR_INIT;
			struct buf out = BUF_INIT;

			len += compressors[c](packed + len, sizeof packed - len, data + 60000,
				sizeof data - 60000);
			if (inflate_all(packed, len, step, &out, &err) < 0)
				fail_msg("%zu, %zu: %s", c, step, err.message);
			assert_int_equal(out.len, sizeof data);
			assert_memory_equal(buf_head(&out), data, sizeof data);
			buf_done(&out);
		}
}

static void test_inflate_notices_damage(void **state)
{
	static uint8_t data[100000], packed[300000];

	(void)state;
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * i >> 7);
	for (size_t c = 0; c < 3; c++) {
		size_t len = compressors[c](packed, sizeof packed, data, sizeof data);

		for (size_t cut = 7; cut < len; cut += len / 7) {
			struct err err = ERR_INIT;
			struct buf out = BUF_INIT;

			assert_int_equal(inflate_all(packed, cut, 5000, &out, &err), -1);
			assert_int_equal(err.kind, ERR_INVALID);
			buf_done(&out);
		}
		if (c != 1) { /* zstd's tool adds a checksum, the simple call does not */
			struct buf out = BUF_INIT;

			packed[len / 2] ^= 0x55;
			assert_int_equal(inflate_all(packed, len, 5000, &out, NULL), -1);
			buf_done(&out);
		}
	}
}

static void test_inflate_passes_zeros_after_gzip(void **state)
{
	static uint8_t packed[4096];
	struct buf out = BUF_INIT;

	(void)state;
	deflate_into(packed, sizeof packed, "hello", 5);
	assert_int_equal(inflate_all(packed, sizeof packed, 100, &out, NULL), 5);
	packed[sizeof packed - 1] = 'x';
	assert_int_equal(inflate_all(packed, sizeof packed, 100, &out, NULL), -1);
	buf_done(&out);
}

static void test_inflate_refuses_bzip2_by_name(void **state)
{
	struct err err = ERR_INIT;
	struct buf out = BUF_INIT;

	(void)state;
	assert_int_equal(inflate_all((const uint8_t *)"BZh91AY&SY", 10, 3, &out, &err), -1);
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
	buf_done(&out);
}

/* ---- the process beside --------------------------------------------------------------------- */

static void test_feed_decompresses_and_hashes(void **state)
{
	static uint8_t packed[4096], got[100];
	char path[64], expected[DIGEST_SIZE];
	size_t len = deflate_into(packed, sizeof packed, "hello", 5);
	_cleanup_(feed_freep) struct feed *feed = NULL;
	_cleanup_close_ int fd = -1;

	(void)state;
	snprintf(path, sizeof path, "%s/packed", base);
	assert_int_equal(file_write_atomic(AT_FDCWD, path, packed, len, 0600, NULL), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(feed_start(fd, &feed, NULL), 0);
	assert_int_equal(feed_read(feed, got, sizeof got, NULL), 5);
	assert_memory_equal(got, "hello", 5);
	assert_int_equal(feed_read(feed, got, sizeof got, NULL), 0);
	digest_of("hello", 5, expected);
	assert_string_equal(feed_get_totals(feed)->digest, expected);
	digest_of(packed, len, expected);
	assert_string_equal(feed_get_totals(feed)->raw_digest, expected);
	assert_int_equal(feed_get_totals(feed)->raw_bytes, len);
}

static void test_feed_tells_why_it_failed(void **state)
{
	static uint8_t got[100];
	_cleanup_(feed_freep) struct feed *feed = NULL;
	struct err err = ERR_INIT;
	char path[64];
	_cleanup_close_ int fd = -1;
	ssize_t code;

	(void)state;
	snprintf(path, sizeof path, "%s/packed", base);
	assert_int_equal(file_write_atomic(AT_FDCWD, path, "\x1f\x8b nonsense", 11, 0600, NULL), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(feed_start(fd, &feed, NULL), 0);
	while ((code = feed_read(feed, got, sizeof got, &err)) > 0)
		;
	assert_int_equal(code, -1);
	assert_int_equal(err.kind, ERR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inflate_reads_parts_one_after_the_other),
		cmocka_unit_test(test_inflate_notices_damage),
		cmocka_unit_test(test_inflate_passes_zeros_after_gzip),
		cmocka_unit_test(test_inflate_refuses_bzip2_by_name),
		cmocka_unit_test(test_feed_decompresses_and_hashes),
		cmocka_unit_test(test_feed_tells_why_it_failed),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
