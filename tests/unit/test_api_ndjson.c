/* test_api_ndjson.c - every line of a stream is one JSON object that gives the program's bytes
 * back */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "api/api_internal.h"
#include "core/exec_internal.h"
#include "base/text.h"

/* Reads the lines as a client would and appends what they carry to bytes; returns how many there
 * were. */
static unsigned read_lines(struct buf *lines, uint64_t offset, struct buf *bytes)
{
	unsigned count = 0;

	for (const char *p = buf_str(lines); *p; count++) {
		const char *end = strchr(p, '\n');
		_cleanup_json_ json_t *line = NULL;
		json_t *text, *base64;

		assert_non_null(end);
		line = json_loadb(p, (size_t)(end - p), JSON_REJECT_DUPLICATES, NULL);
		assert_non_null(line);
		assert_string_equal(json_string_value(json_object_get(line, "type")), "output");
		assert_int_equal(
			json_integer_value(json_object_get(line, "offset")), offset + bytes->len);
		text = json_object_get(line, "data");
		base64 = json_object_get(line, "data_b64");
		assert_true(!text != !base64);
		if (text) {
			buf_add(bytes, json_string_value(text), json_string_length(text));
		} else {
			uint8_t *raw = NULL;
			size_t len = 0;

			assert_int_equal(base64_decode(json_string_value(base64),
						 json_string_length(base64), &raw, &len, NULL),
				0);
			buf_add(bytes, raw, len);
			free(raw);
		}
		p = end + 1;
	}
	return count;
}

static unsigned round_trip(const void *data, size_t len)
{
	struct buf lines = BUF_INIT, bytes = BUF_INIT;
	unsigned count;

	ndjson_output(&lines, EXEC_STDOUT, 1000, data, len);
	count = read_lines(&lines, 1000, &bytes);
	assert_int_equal(bytes.len, len);
	if (len)
		assert_memory_equal(buf_head(&bytes), data, len);
	buf_done(&lines);
	buf_done(&bytes);
	return count;
}

static void test_ndjson_text_is_one_line(void **state)
{
	(void)state;
	assert_int_equal(round_trip("", 0), 0);
	assert_int_equal(round_trip("hi\n", 3), 1);
	assert_int_equal(round_trip("\"\\\b\t\n\f\r\x01\x1f\x7f/", 11), 1);
	assert_int_equal(round_trip("grün €20 😀", strlen("grün €20 😀")), 1);
}

static void test_ndjson_text_is_readable_as_text(void **state)
{
	struct buf lines = BUF_INIT;

	(void)state;
	ndjson_output(&lines, EXEC_STDERR, 7, "a\"ü\x1b", 5);
	assert_string_equal(buf_str(&lines), "{\"type\":\"output\",\"stream\":\"stderr\","
					     "\"offset\":7,\"data\":\"a\\\"ü\\u001b\"}\n");
	buf_done(&lines);
}

static void test_ndjson_bytes_that_are_no_text_survive(void **state)
{
	uint8_t all[256];

	(void)state;
	for (unsigned i = 0; i < sizeof all; i++)
		all[i] = (uint8_t)i;
	assert_int_equal(round_trip(all, sizeof all), 1);
	assert_int_equal(round_trip("a\0b", 3), 1);
	assert_int_equal(round_trip("\xc0\x80", 2), 1);	    /* overlong */
	assert_int_equal(round_trip("\xed\xa0\x80", 3), 1); /* half a surrogate pair */
	assert_int_equal(round_trip("\xf5\x80\x80\x80", 4), 1);
	assert_int_equal(round_trip("\x80", 1), 1);
	assert_int_equal(round_trip("\xff", 1), 1);
}

/* A character cut by the end of a frame costs a small line of base64, not the whole frame. */
static void test_ndjson_cut_characters_leave_the_rest_readable(void **state)
{
	static const char text[] = "a€b😀c";

	(void)state;
	for (size_t from = 0; from < sizeof text - 1; from++)
		for (size_t to = from + 1; to < sizeof text; to++)
			assert_true(round_trip(text + from, to - from) <= 3);
	assert_int_equal(round_trip("\x82\xac text \xf0\x9f", 10), 3);
}

static void test_ndjson_random_bytes_survive(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 2000; round++) {
		uint8_t data[64];
		uint8_t len;

		random_bytes(&len, 1);
		len %= sizeof data;
		random_bytes(data, len);
		/* Mostly valid text, with some bytes of anything. */
		for (unsigned i = 0; i < len; i++)
			if (data[i] & 1)
				data[i] = (uint8_t)('a' + data[i] % 26);
		round_trip(data, len);
	}
}

static void test_ndjson_exit_tells_code_and_signal(void **state)
{
	struct exec_end exit = { .reason = EXEC_SIGNALED,
		.exit_code = 137,
		.signal = 9,
		.duration_us = 3100,
		.cpu_us = UINT64_MAX };
	struct buf lines = BUF_INIT;
	json_t *line;

	(void)state;
	ndjson_exit(&lines, &exit);
	line = json_loads(buf_str(&lines), 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(line, "exit_code")), 137);
	assert_int_equal(json_integer_value(json_object_get(line, "signal")), 9);
	assert_true(json_real_value(json_object_get(line, "duration_ms")) == 3.1);
	assert_int_equal(json_integer_value(json_object_get(line, "cpu_us")), INT64_MAX);
	json_decref(line);
	lines.len = 0;
	exit = (struct exec_end){ .reason = EXEC_EXITED, .exit_code = 3 };
	ndjson_exit(&lines, &exit);
	line = json_loads(buf_str(&lines), 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(line, "exit_code")), 3);
	assert_true(json_is_null(json_object_get(line, "signal")));
	json_decref(line);
	buf_done(&lines);
}

static void test_ndjson_hostile_exec_is_still_json(void **state)
{
	const char *const argv[] = { "/bin/\xff\xfe", "line\nbreak", NULL };
	const struct wire_exec_info told = {
		.id = "x",
		.argv = argv,
		.started_us = UINT64_MAX,
		.oldest = UINT64_MAX,
		.reason = WIRE_EXIT_SIGNALED,
		.signal = UINT32_MAX,
	};
	struct exec_info info;
	struct buf lines = BUF_INIT;
	json_t *line, *exec;

	(void)state;
	exec_info_from(&told, false, &info);
	ndjson_start(&lines, exec_json(&info));
	assert_ptr_equal(strchr(buf_str(&lines), '\n'), buf_str(&lines) + lines.len - 1);
	line = json_loads(buf_str(&lines), 0, NULL);
	exec = json_object_get(line, "exec");
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(exec, "argv"), 0)), "/bin/??");
	assert_true(json_is_null(json_object_get(exec, "started_at")));
	assert_int_equal(json_integer_value(json_object_get(exec, "exit_code")), 255);
	json_decref(line);
	buf_done(&lines);
}

static void test_ndjson_writes_what_jansson_reads_back(void **state)
{
	static const char *const texts[] = {
		"{}",
		"[]",
		"[[],{},[{}],\"\",null,true,false]",
		("{\"a\":{\"b\":[1,-1,0,9223372036854775807,-9223372036854775808]},"
		 "\"\\u0001\\n\\\"ü😀\":\"\\u007f\"}"),
		"[0.0,1.5,-0.1,1e300,1e-300,123456789.125,0.30000000000000004,3.0]",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		_cleanup_json_ json_t *value = json_loads(texts[i], JSON_DECODE_ANY, NULL);
		_cleanup_json_ json_t *again = NULL;
		struct buf line = BUF_INIT;

		assert_non_null(value);
		ndjson_add(&line, value);
		assert_ptr_equal(strchr(buf_str(&line), '\n'), buf_str(&line) + line.len - 1);
		again = json_loads(buf_str(&line), JSON_DECODE_ANY, NULL);
		assert_non_null(again);
		assert_true(json_equal(value, again));
		buf_done(&line);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ndjson_text_is_one_line),
		cmocka_unit_test(test_ndjson_text_is_readable_as_text),
		cmocka_unit_test(test_ndjson_bytes_that_are_no_text_survive),
		cmocka_unit_test(test_ndjson_cut_characters_leave_the_rest_readable),
		cmocka_unit_test(test_ndjson_random_bytes_survive),
		cmocka_unit_test(test_ndjson_exit_tells_code_and_signal),
		cmocka_unit_test(test_ndjson_hostile_exec_is_still_json),
		cmocka_unit_test(test_ndjson_writes_what_jansson_reads_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
