/* test_text.c - the small languages people type are strict and bounded */
#include "base/text.h"
#include "base/alloc.h"
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define GB (UINT64_C(1) << 30)
#define TB (UINT64_C(1) << 40)

static void test_names_are_dns_labels(void **state)
{
	static const char *const good[] = { "a", "ada", "a1", "a-b", "a--b", "z9",
		"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk" };
	static const char *const bad[] = { "", "1a", "-a", "a-", "A", "aB", "a_b", "a.b", "a b",
		"a/b", "..", "a\n", "\xc3\xa4", "a\x80",
		"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_int_equal(name_check("name", good[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_INIT;

		assert_int_equal(name_check("name", bad[i], &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
		assert_true(err.hint[0]);
	}
}

static void test_numbers_are_whole_and_in_range(void **state)
{
	static const char *const bad[] = { "", " 1", "1 ", "+1", "-1", "0x1", "1e3", "1.0", "a",
		"18446744073709551616", "99999999999999999999999", "1\n" };
	struct err err = ERR_INIT;
	uint64_t value = 7;

	(void)state;
	assert_int_equal(parse_u64("n", "0", 0, 10, &value, NULL), 0);
	assert_int_equal(value, 0);
	assert_int_equal(parse_u64("n", "007", 0, 10, &value, NULL), 0);
	assert_int_equal(value, 7);
	assert_int_equal(parse_u64("n", "18446744073709551615", 0, UINT64_MAX, &value, NULL), 0);
	assert_true(value == UINT64_MAX);
	value = 7;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(parse_u64("n", bad[i], 0, UINT64_MAX, &value, NULL), -1);
	assert_int_equal(parse_u64("--pids", "11", 1, 10, &value, &err), -1);
	assert_int_equal(parse_u64("--pids", "0", 1, 10, &value, &err), -1);
	assert_string_equal(err.message, "--pids '0' must be a whole number from 1 to 10");
	assert_int_equal(value, 7); /* untouched on failure */
}

static void test_sizes_are_powers_of_1024(void **state)
{
	static const struct {
		const char *text;
		uint64_t value;
	} good[] = { { "0", 0 }, { "4096", 4096 }, { "1K", 1024 }, { "1k", 1024 },
		{ "64KiB", 65536 }, { "64KB", 65536 }, { "100B", 100 }, { "512M", 512 << 20 },
		{ "1.5G", GB + GB / 2 }, { "0.5K", 512 }, { "2T", 2 * TB },
		{ "0.0009765625K", 1 } };
	static const char *const bad[] = { "", "K", "1X", "1KK", "1Ki", "-1", " 1", "1 K", "1.",
		".5", "1.5.5", "1e3", "0x10", "1iB", "M1", "1P", "1KB ", "nan", "inf" };
	uint64_t value;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		value = 99;
		assert_int_equal(parse_size("s", good[i].text, 0, UINT64_MAX, &value, NULL), 0);
		assert_true(value == good[i].value);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(parse_size("s", bad[i], 0, UINT64_MAX, &value, NULL), -1);
}

static void test_sizes_that_are_too_large_do_not_wrap_around(void **state)
{
	/* The last two overflow 128 bits on the way, to something that looks reasonable. */
	static const char *const bad[] = { "16777216T", "18446744073709551616",
		"18446744073709551615T", "99999999999999999999999999999999999999999",
		"309485009821345069T", "309485009821345070T" };
	uint64_t value;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(parse_size("s", bad[i], 0, UINT64_MAX, &value, NULL), -1);
	assert_int_equal(parse_size("s", "16777215T", 0, UINT64_MAX, &value, NULL), 0);
	assert_int_equal(parse_size("s", "1M", 2 << 20, GB, &value, NULL), -1);
	assert_int_equal(parse_size("s", "0.5", 0, GB, &value, NULL), -1);
	assert_int_equal(parse_size("s", "0.0001K", 0, GB, &value, NULL), -1);
	assert_int_equal(parse_size("s", "0.0", 0, GB, &value, NULL), 0);
	assert_int_equal(parse_size("s", "2G", 2 << 20, GB, &value, NULL), -1);
}

static void test_durations(void **state)
{
	static const struct {
		const char *text;
		uint64_t ms;
	} good[] = { { "0", 0 }, { "30", 30000 }, { "1500ms", 1500 }, { "30s", 30000 },
		{ "5m", 300000 }, { "2h", 7200000 }, { "1d", 86400000 }, { "0.5s", 500 },
		{ "1.5m", 90000 }, { "0.001s", 1 } };
	static const char *const bad[] = { "", "s", "ms", "5y", "5 s", "-5s", "1h30m", "5S", "1.s",
		"5sec", "99999999999999999999d" };
	uint64_t value;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		assert_int_equal(parse_duration("t", good[i].text, 0, UINT64_MAX, &value, NULL), 0);
		assert_true(value == good[i].ms);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(parse_duration("t", bad[i], 0, UINT64_MAX, &value, NULL), -1);
	assert_int_equal(parse_duration("t", "2s", 0, 1999, &value, NULL), -1);
	assert_int_equal(
		parse_duration("t", "18446744073709551615d", 0, UINT64_MAX, &value, NULL), -1);
}

static void test_cpus_are_thousandths(void **state)
{
	static const char *const bad[] = { "", "0", "0.001", "1025", "-1", "1.5x", "two", "1,5",
		"." };
	uint64_t milli;

	(void)state;
	assert_int_equal(parse_cpus("c", "2", &milli, NULL), 0);
	assert_int_equal(milli, 2000);
	assert_int_equal(parse_cpus("c", "0.5", &milli, NULL), 0);
	assert_int_equal(milli, 500);
	assert_int_equal(parse_cpus("c", "1.2345", &milli, NULL), 0);
	assert_int_equal(milli, 1234);
	assert_int_equal(parse_cpus("c", "0.01", &milli, NULL), 0);
	assert_int_equal(parse_cpus("c", "1024", &milli, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(parse_cpus("c", bad[i], &milli, NULL), -1);
}

static void test_environment_entries(void **state)
{
	static const char *const good[] = { "A=", "A=b", "_a1=x=y", "PATH=/bin:/usr/bin",
		"A= \n\t" };
	static const char *const bad[] = { "", "=", "=x", "A", "1A=x", "A-B=x", "A B=x",
		"\xc3\xa4=x" };
	char *huge = xcalloc(1, 40000);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_int_equal(env_check("env", good[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(env_check("env", bad[i], NULL), -1);
	memset(huge, 'x', 39999);
	huge[1] = '=';
	assert_int_equal(env_check("env", huge, NULL), -1);
	huge[1] = 'x'; /* a key without end must not be printed whole either */
	assert_int_equal(env_check("env", huge, NULL), -1);
	free(huge);
}

static void test_labels(void **state)
{
	static const char *const good[] = { "a=", "team=core", "a.b/c-d_e=x", "a=b=c",
		"a=\xc3\xa4 \xe2\x82\xac" };
	static const char *const bad[] = { "", "a", "=b", "a b=c", "a=\n", "a=\x7f", "a=\xff",
		"a=\x01", "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg=x" };
	char value[300] = "a=";

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_int_equal(label_check("label", good[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(label_check("label", bad[i], NULL), -1);
	memset(value + 2, 'v', 255);
	assert_int_equal(label_check("label", value, NULL), 0);
	value[257] = 'v';
	assert_int_equal(label_check("label", value, NULL), -1);
}

static void test_sizes_and_ages_for_people(void **state)
{
	char out[16];

	(void)state;
	assert_string_equal(format_size(0, out), "0");
	assert_string_equal(format_size(1023, out), "1023");
	assert_string_equal(format_size(1024, out), "1K");
	assert_string_equal(format_size(1536, out), "1.5K");
	assert_string_equal(format_size(340 << 20, out), "340M");
	assert_true(strlen(format_size(UINT64_MAX, out)) < sizeof out);
	assert_string_equal(format_age(0, out), "0s");
	assert_string_equal(format_age(59999, out), "59s");
	assert_string_equal(format_age(60000, out), "1m");
	assert_string_equal(format_age(3 * 3600000 + 1, out), "3h");
	assert_string_equal(format_age(UINT64_C(86400000) * 2, out), "2d");
	assert_true(strlen(format_age(UINT64_MAX, out)) < sizeof out);
}

static void test_utf8_is_checked_strictly(void **state)
{
	static const char *const good[] = { "", "a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x93\xa6",
		"\xf4\x8f\xbf\xbf", "\xed\x9f\xbf" };
	static const char *const bad[] = { "\x80", "\xc3", "\xc3\x28", "\xc0\xaf", "\xc1\xbf",
		"\xe0\x80\xaf", "\xe2\x82", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\xaf",
		"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xfe" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_true(text_is_utf8(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(text_is_utf8(bad[i], strlen(bad[i])));
	assert_false(text_is_utf8("a\0b", 3));
	assert_false(text_is_utf8("\xe2\x82\xac", 2)); /* does not look past len */
}

static void test_base64_goes_both_ways(void **state)
{
	static const char *const pairs[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" },
		{ "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "\xff\xfe\xfd", "//79" } };
	uint8_t bytes[256];
	size_t len;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		_cleanup_free_ char *text = base64_encode(pairs[i][0], strlen(pairs[i][0]));
		_cleanup_free_ uint8_t *data = NULL;

		assert_string_equal(text, pairs[i][1]);
		assert_int_equal(base64_decode(text, strlen(text), &data, &len, NULL), 0);
		assert_int_equal(len, strlen(pairs[i][0]));
		assert_memory_equal(data, pairs[i][0], len);
	}
	for (size_t n = 0; n <= sizeof bytes; n++) {
		_cleanup_free_ char *text = NULL;
		_cleanup_free_ uint8_t *data = NULL;

		random_bytes(bytes, n);
		text = base64_encode(bytes, n);
		assert_int_equal(base64_decode(text, strlen(text), &data, &len, NULL), 0);
		assert_int_equal(len, n);
		assert_memory_equal(data, bytes, n);
	}
}

static void test_base64_refuses_what_is_not(void **state)
{
	static const char *const bad[] = { "A", "AA", "AAA", "AAAAA", "A===", "====", "=AAA",
		"A=AA", "AA=A", "Zm9v\n", "Zm 9", "Zm9-", "Zm9_", "\xff\xff\xff\xff", "AAAA====" };
	uint8_t *data = NULL;
	size_t len;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(base64_decode(bad[i], strlen(bad[i]), &data, &len, NULL), -1);
	assert_int_equal(base64_decode("AA\0A", 4, &data, &len, NULL), -1);
	assert_null(data);
}

static void test_random_ids_start_with_a_letter(void **state)
{
	char first[33], id[33];

	(void)state;
	random_id(first, 32);
	for (int i = 0; i < 1000; i++) {
		random_id(id, 32);
		assert_int_equal(strlen(id), 32);
		assert_true(islower(id[0]));
		for (const char *p = id; *p; p++)
			assert_true(islower(*p) || isdigit(*p));
		assert_string_not_equal(id, first);
	}
}

static void test_prefixes(void **state)
{
	(void)state;
	assert_true(text_has_prefix("boxyard", "box"));
	assert_true(text_has_prefix("box", ""));
	assert_false(text_has_prefix("bo", "box"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_are_dns_labels),
		cmocka_unit_test(test_numbers_are_whole_and_in_range),
		cmocka_unit_test(test_sizes_are_powers_of_1024),
		cmocka_unit_test(test_sizes_that_are_too_large_do_not_wrap_around),
		cmocka_unit_test(test_durations),
		cmocka_unit_test(test_cpus_are_thousandths),
		cmocka_unit_test(test_environment_entries),
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_sizes_and_ages_for_people),
		cmocka_unit_test(test_utf8_is_checked_strictly),
		cmocka_unit_test(test_base64_goes_both_ways),
		cmocka_unit_test(test_base64_refuses_what_is_not),
		cmocka_unit_test(test_random_ids_start_with_a_letter),
		cmocka_unit_test(test_prefixes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
