/* test_wire.c - what one side puts the other side gets, and nonsense is never believed */
#include "wire/wire.h"
#include "base/text.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct wire_reader reader_of(const struct buf *buf)
{
	return (struct wire_reader){ buf_head(buf), buf_head(buf) + buf->len, false };
}

/* ---- frames --------------------------------------------------------------------------------- */

static void test_frames_come_out_as_they_went_in(void **state)
{
	struct buf buf = BUF_INIT;
	struct wire_frame frame;
	struct wire_reader in;
	size_t mark;

	(void)state;
	mark = wire_begin(&buf, WIRE_OPEN, 7);
	wire_put_u8(&buf, WIRE_OP_STAT);
	wire_put_str(&buf, "/etc");
	wire_end(&buf, mark);
	wire_add_data(&buf, 8, WIRE_STREAM_STDERR, UINT64_MAX, "hello", 5);
	mark = wire_begin(&buf, WIRE_CLOSE, UINT32_MAX);
	wire_end(&buf, mark);

	assert_int_equal(wire_frame_parse(&buf, &frame, NULL), 1);
	assert_int_equal(frame.type, WIRE_OPEN);
	assert_int_equal(frame.channel, 7);
	in = (struct wire_reader)WIRE_READER(&frame);
	assert_int_equal(wire_get_u8(&in), WIRE_OP_STAT);
	assert_string_equal(wire_get_str(&in, 10), "/etc");
	assert_int_equal(wire_get_done(&in, NULL), 0);
	buf_eat(&buf, WIRE_HEADER + frame.len);

	assert_int_equal(wire_frame_parse(&buf, &frame, NULL), 1);
	assert_int_equal(frame.type, WIRE_DATA);
	assert_int_equal(frame.len, WIRE_DATA_HEADER + 5);
	in = (struct wire_reader)WIRE_READER(&frame);
	assert_int_equal(wire_get_u8(&in), WIRE_STREAM_STDERR);
	assert_true(wire_get_u64(&in) == UINT64_MAX);
	assert_memory_equal(in.at, "hello", 5);
	buf_eat(&buf, WIRE_HEADER + frame.len);

	assert_int_equal(wire_frame_parse(&buf, &frame, NULL), 1);
	assert_int_equal(frame.type, WIRE_CLOSE);
	assert_int_equal(frame.len, 0);
	assert_true(frame.channel == UINT32_MAX);
	buf_eat(&buf, WIRE_HEADER);
	assert_int_equal(wire_frame_parse(&buf, &frame, NULL), 0);
	buf_done(&buf);
}

static void test_frame_waits_for_its_last_byte(void **state)
{
	struct buf whole = BUF_INIT, part = BUF_INIT;
	struct wire_frame frame;

	(void)state;
	assert_int_equal(wire_frame_parse(&part, &frame, NULL), 0);
	wire_add_data(&whole, 1, WIRE_STREAM_MAIN, 0, "abc", 3);
	for (size_t i = 0; i < whole.len; i++) {
		assert_int_equal(wire_frame_parse(&part, &frame, NULL), 0);
		buf_add(&part, buf_head(&whole) + i, 1);
	}
	assert_int_equal(wire_frame_parse(&part, &frame, NULL), 1);
	buf_done(&whole);
	buf_done(&part);
}

static void test_frame_breaking_the_rules_is_refused(void **state)
{
	static const struct {
		uint8_t header[WIRE_HEADER];
	} bad[] = {
		{ { 0, 0, 0, 0, 0 } },		     /* type 0 */
		{ { 0, 0, 0, 0, WIRE_TYPE_COUNT } }, /* one past the last */
		{ { 0, 0, 0, 0, 255 } },
		{ { 0, 0, 0, 0, WIRE_DATA, 1 } }, /* zeros that are not */
		{ { 0, 0, 0, 0, WIRE_DATA, 0, 1 } },
		{ { 0, 0, 0, 0, WIRE_DATA, 0, 0, 0x80 } },
		{ { 1, 0, 4, 0, WIRE_DATA } }, /* one byte over the limit */
		{ { 255, 255, 255, 255, WIRE_DATA } },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct buf buf = BUF_INIT;
		struct err err = ERR_INIT;
		struct wire_frame frame;

		buf_add(&buf, bad[i].header, WIRE_HEADER);
		assert_int_equal(wire_frame_parse(&buf, &frame, &err), -1);
		assert_int_equal(err.kind, ERR_PROTOCOL);
		buf_done(&buf);
	}
}

static void test_frame_of_the_largest_size_is_taken(void **state)
{
	struct buf buf = BUF_INIT;
	struct wire_frame frame;
	size_t mark = wire_begin(&buf, WIRE_REPLY, 1);

	(void)state;
	memset(buf_room(&buf, WIRE_PAYLOAD_MAX), 'x', WIRE_PAYLOAD_MAX);
	buf_grew(&buf, WIRE_PAYLOAD_MAX);
	wire_end(&buf, mark);
	assert_int_equal(wire_frame_parse(&buf, &frame, NULL), 1);
	assert_int_equal(frame.len, WIRE_PAYLOAD_MAX);
	buf_done(&buf);
}

/* ---- fields --------------------------------------------------------------------------------- */

static void test_numbers_travel_little_endian(void **state)
{
	static const uint8_t wanted[] = { 0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f, 0x0e,
		0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08 };
	struct buf buf = BUF_INIT;
	struct wire_reader in;

	(void)state;
	wire_put_u8(&buf, 0x01);
	wire_put_u16(&buf, 0x0203);
	wire_put_u32(&buf, 0x04050607);
	wire_put_u64(&buf, 0x08090a0b0c0d0e0f);
	assert_int_equal(buf.len, sizeof wanted);
	assert_memory_equal(buf_head(&buf), wanted, sizeof wanted);
	in = reader_of(&buf);
	assert_int_equal(wire_get_u8(&in), 0x01);
	assert_int_equal(wire_get_u16(&in), 0x0203);
	assert_int_equal(wire_get_u32(&in), 0x04050607);
	assert_true(wire_get_u64(&in) == 0x08090a0b0c0d0e0f);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	buf_done(&buf);
}

static void test_reading_past_the_end_gives_zeros_and_is_remembered(void **state)
{
	struct wire_reader in = { (const uint8_t *)"\xff\xff\xff", (const uint8_t *)"\xff\xff\xff",
		false };
	static const uint8_t bytes[] = { 0xff, 0xff, 0xff };
	struct err err = ERR_INIT;

	(void)state;
	in = (struct wire_reader){ bytes, bytes + sizeof bytes, false };
	assert_int_equal(wire_get_u32(&in), 0);
	assert_true(in.bad);
	/* Even what would have fitted is not believed any more. */
	assert_int_equal(wire_get_u8(&in), 0);
	assert_int_equal(wire_get_u64(&in), 0);
	assert_string_equal(wire_get_str(&in, 100), "");
	assert_int_equal(wire_get_done(&in, &err), -1);
	assert_int_equal(err.kind, ERR_PROTOCOL);
}

static void test_bytes_left_over_are_an_error(void **state)
{
	struct buf buf = BUF_INIT;
	struct wire_reader in;

	(void)state;
	wire_put_u32(&buf, 1);
	wire_put_u8(&buf, 1);
	in = reader_of(&buf);
	wire_get_u32(&in);
	assert_int_equal(wire_get_done(&in, NULL), -1);
	buf_done(&buf);
}

static void test_strings_need_length_bytes_and_nul(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
	} bad[] = {
		{ "\3\0\0\0abc", 7 },		/* no NUL */
		{ "\3\0\0\0abcd", 8 },		/* something else instead */
		{ "\3\0\0\0a\0c\0", 8 },	/* a NUL inside */
		{ "\4\0\0\0abc\0", 8 },		/* longer than there is */
		{ "\377\377\377\377abc\0", 8 }, /* much longer: length + 1 wraps in 32 bits */
		{ "\0\0\0", 3 },		/* not even a length */
		{ "\0\0\0\0", 4 },		/* empty, but without its NUL */
	};
	struct buf buf = BUF_INIT;
	struct wire_reader in;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		const uint8_t *at = (const uint8_t *)bad[i].bytes;

		in = (struct wire_reader){ at, at + bad[i].len, false };
		assert_string_equal(wire_get_str(&in, 100), "");
		assert_true(in.bad);
	}
	wire_put_str(&buf, NULL);
	wire_put_str(&buf, "12345");
	in = reader_of(&buf);
	assert_string_equal(wire_get_str(&in, 0), "");
	assert_false(in.bad);
	assert_string_equal(wire_get_str(&in, 4), ""); /* one over the caller's limit */
	assert_true(in.bad);
	buf_done(&buf);
}

static void test_lists_of_strings_are_bounded_before_they_are_allocated(void **state)
{
	static const char *const three[] = { "a", "", "ccc", NULL };
	struct buf buf = BUF_INIT;
	struct wire_reader in;
	_cleanup_free_ const char **strv = NULL, **none = NULL, **over = NULL, **lie = NULL;

	(void)state;
	wire_put_strv(&buf, three);
	wire_put_strv(&buf, NULL);
	in = reader_of(&buf);
	strv = wire_get_strv(&in, 3);
	none = wire_get_strv(&in, 3);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	assert_string_equal(strv[2], "ccc");
	assert_null(strv[3]);
	assert_null(none[0]);

	in = reader_of(&buf);
	over = wire_get_strv(&in, 2);
	assert_true(in.bad);
	assert_null(over[0]);
	buf_done(&buf);

	wire_put_u32(&buf, UINT32_MAX); /* a count of four billion in a few bytes */
	wire_put_str(&buf, "x");
	in = reader_of(&buf);
	lie = wire_get_strv(&in, SIZE_MAX);
	assert_true(in.bad);
	assert_null(lie[0]);
	buf_done(&buf);
}

/* ---- records -------------------------------------------------------------------------------- */

static void test_hello_exec_and_attach_specs_round_trip(void **state)
{
	static const char *const argv[] = { "sh", "-c", "echo hi", NULL }, *const env[] = { "A=b",
		NULL };
	struct wire_hello hello = { WIRE_MAGIC, WIRE_VERSION, 1, 0x1122334455667788 }, hello2;
	struct wire_exec_spec spec = { .id = "e1",
		.argv = argv,
		.env = env,
		.cwd = "/srv",
		.user = "user:staff",
		.tty = true,
		.stdin_open = true,
		.attach = true,
		.rows = 50,
		.cols = 132,
		.timeout_ms = UINT64_MAX,
		.journal_max = WIRE_JOURNAL_MIN },
			      spec2;
	struct wire_attach_spec attach = { .id = "e1",
		.offset = WIRE_OFFSET_END,
		.follow = true,
		.input = true },
				attach2;
	struct buf buf = BUF_INIT;
	struct wire_reader in;

	(void)state;
	wire_put_hello(&buf, &hello);
	wire_put_exec_spec(&buf, &spec);
	wire_put_attach_spec(&buf, &attach);
	in = reader_of(&buf);
	wire_get_hello(&in, &hello2);
	wire_get_exec_spec(&in, &spec2);
	wire_get_attach_spec(&in, &attach2);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	assert_memory_equal(&hello, &hello2, sizeof hello);
	assert_string_equal(spec2.id, "e1");
	assert_string_equal(spec2.argv[2], "echo hi");
	assert_null(spec2.argv[3]);
	assert_string_equal(spec2.env[0], "A=b");
	assert_string_equal(spec2.cwd, "/srv");
	assert_string_equal(spec2.user, "user:staff");
	assert_true(spec2.tty && spec2.stdin_open && spec2.attach);
	assert_int_equal(spec2.rows, 50);
	assert_int_equal(spec2.cols, 132);
	assert_true(spec2.timeout_ms == UINT64_MAX);
	assert_int_equal(spec2.journal_max, WIRE_JOURNAL_MIN);
	assert_true(attach2.offset == WIRE_OFFSET_END);
	assert_true(attach2.follow && !attach2.lossless && attach2.input);
	free((void *)spec2.argv);
	free((void *)spec2.env);
	buf_done(&buf);
}

static void test_exec_info_exit_and_figures_round_trip(void **state)
{
	static const char *const argv[] = { "make", NULL };
	struct wire_exec_info info = { .id = "x9",
		.pid = 12,
		.tty = true,
		.reason = WIRE_EXIT_TIMEOUT,
		.code = 3,
		.signal = 9,
		.started_us = 1,
		.ended_us = 2,
		.cpu_us = 3,
		.oldest = 4,
		.newest = 5,
		.argv = argv },
			      info2;
	struct wire_exit over = { WIRE_EXIT_SIGNALED, 137, 9, 10, 11, 12 }, over2;
	struct wire_process process = { .pid = 1,
		.ppid = 2,
		.uid = 3,
		.state = 'S',
		.rss_bytes = 4,
		.cpu_us = 5,
		.started_us = 6,
		.exec = "x9",
		.command = "sleep 1" },
			    process2;
	struct wire_stat stat = { "name", 0100644, 1, 2, 3, 4, "target" }, stat2;
	struct wire_stats stats = { 1, 2, 3, 4 }, stats2;
	struct buf buf = BUF_INIT;
	struct wire_reader in;

	(void)state;
	wire_put_exec_info(&buf, &info);
	wire_put_exit(&buf, &over);
	wire_put_process(&buf, &process);
	wire_put_stat(&buf, &stat);
	wire_put_stats(&buf, &stats);
	in = reader_of(&buf);
	wire_get_exec_info(&in, &info2);
	wire_get_exit(&in, &over2);
	wire_get_process(&in, &process2);
	wire_get_stat(&in, &stat2);
	wire_get_stats(&in, &stats2);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	assert_string_equal(info2.id, "x9");
	assert_int_equal(info2.reason, WIRE_EXIT_TIMEOUT);
	assert_int_equal(info2.newest, 5);
	assert_string_equal(info2.argv[0], "make");
	assert_int_equal(over2.reason, WIRE_EXIT_SIGNALED);
	assert_int_equal(over2.newest, 12);
	assert_int_equal(process2.state, 'S');
	assert_string_equal(process2.command, "sleep 1");
	assert_int_equal(stat2.mode, 0100644);
	assert_string_equal(stat2.target, "target");
	assert_int_equal(stats2.journal_bytes, 4);
	free((void *)info2.argv);
	buf_done(&buf);
}

static void test_an_error_is_made_printable_and_its_kind_is_checked(void **state)
{
	struct err err = ERR_INIT, got = ERR_INIT;
	struct buf buf = BUF_INIT;
	struct wire_reader in;

	(void)state;
	err_sys(&err, ENOENT, "open '%s'", "a\033[2Jb\n\x7f");
	wire_put_error(&buf, &err);
	in = reader_of(&buf);
	wire_get_error(&in, &got);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	assert_int_equal(got.kind, ERR_NOT_FOUND);
	assert_int_equal(got.errno_value, ENOENT);
	assert_string_equal(got.message, "open 'a?[2Jb?\?': No such file or directory");
	buf_done(&buf);

	wire_put_u8(&buf, 200); /* a kind we do not know, an errno nobody has */
	wire_put_u32(&buf, UINT32_MAX);
	wire_put_str(&buf, "%s%n%s");
	in = reader_of(&buf);
	wire_get_error(&in, &got);
	assert_int_equal(got.kind, ERR_SYSTEM);
	assert_int_equal(got.errno_value, 0);
	assert_string_equal(got.message, "%s%n%s");
	buf_done(&buf);
}

static void test_a_long_error_is_cut_to_what_the_other_side_takes(void **state)
{
	struct err err = ERR_INIT, got = ERR_INIT;
	struct buf buf = BUF_INIT;
	struct wire_reader in;

	(void)state;
	err.kind = ERR_LIMIT;
	memset(err.message, 'm', sizeof err.message - 1);
	wire_put_error(&buf, &err);
	in = reader_of(&buf);
	wire_get_error(&in, &got);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	assert_int_equal(strlen(got.message), 400);
	buf_done(&buf);
}

static void test_values_nobody_defined_are_refused_or_masked(void **state)
{
	struct wire_exit over = { .reason = WIRE_EXIT_REASON_COUNT }, over2;
	struct wire_process process = { .state = '\n', .exec = "", .command = "" }, process2;
	struct buf buf = BUF_INIT;
	struct wire_reader in;

	(void)state;
	wire_put_exit(&buf, &over);
	in = reader_of(&buf);
	wire_get_exit(&in, &over2);
	assert_int_equal(over2.reason, WIRE_EXIT_RUNNING);
	assert_int_equal(wire_get_done(&in, NULL), -1);
	buf_done(&buf);
	wire_put_process(&buf, &process);
	in = reader_of(&buf);
	wire_get_process(&in, &process2);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	assert_int_equal(process2.state, '?');
	buf_done(&buf);
}

/* Cutting a good record anywhere must be noticed, and must not read past the cut. */
static void test_a_record_cut_short_anywhere_is_noticed(void **state)
{
	static const char *const argv[] = { "a", "bc", NULL };
	struct wire_exec_spec spec = {
		.id = "e1", .argv = argv, .env = argv, .cwd = "/", .user = "u"
	};
	struct buf buf = BUF_INIT;

	(void)state;
	wire_put_exec_spec(&buf, &spec);
	for (size_t len = 0; len < buf.len; len++) {
		_cleanup_free_ uint8_t *part = xmemdup(buf_head(&buf), len + !len);
		struct wire_reader in = { part, part + len, false };
		struct wire_exec_spec got;

		wire_get_exec_spec(&in, &got);
		assert_int_equal(wire_get_done(&in, NULL), -1);
		free((void *)got.argv);
		free((void *)got.env);
	}
	buf_done(&buf);
}

/* ---- what the box asks for ------------------------------------------------------------------- */

static void test_requests_and_answers_come_out_as_they_went_in(void **state)
{
	static const char *const words[] = { "fork", "-n", "3", NULL };
	struct wire_request request = { .id = UINT64_MAX, .again = true, .words = words }, got;
	struct wire_answer answer = { .id = 7,
		.number = 9,
		.kind = WIRE_ANSWER_OUT,
		.code = 255,
		.data = (const uint8_t *)"a\0b",
		.len = 3 },
			   told;
	struct buf buf = BUF_INIT;
	struct wire_reader in;

	(void)state;
	wire_put_request(&buf, &request);
	in = reader_of(&buf);
	wire_get_request(&in, &got);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	assert_true(got.id == UINT64_MAX && got.again);
	assert_string_equal(got.words[2], "3");
	assert_null(got.words[3]);
	free((void *)got.words);
	buf_done(&buf);
	wire_put_answer(&buf, &answer);
	in = reader_of(&buf);
	wire_get_answer(&in, &told);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	assert_true(told.id == 7 && told.number == 9 && told.kind == WIRE_ANSWER_OUT);
	assert_int_equal(told.code, 255);
	assert_int_equal(told.len, 3);
	assert_memory_equal(told.data, "a\0b", 3);
	buf_done(&buf);
}

static void test_requests_and_answers_are_bounded(void **state)
{
	static const struct wire_answer bad[] = {
		{ .kind = 0 },
		{ .kind = WIRE_ANSWER_DONE + 1 },
		{ .kind = WIRE_ANSWER_DONE, .code = 256 },
	};
	struct buf buf = BUF_INIT;
	struct wire_request request;
	struct wire_answer answer;
	struct wire_reader in;
	const char *words[WIRE_WORDS_MAX + 2] = { NULL };
	_cleanup_free_ char *large = xcalloc(1, WIRE_WORDS_BYTES + 1);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		wire_put_answer(&buf, &bad[i]);
		in = reader_of(&buf);
		wire_get_answer(&in, &answer);
		assert_int_equal(wire_get_done(&in, NULL), -1);
		buf_done(&buf);
	}
	wire_put_answer(&buf, &(struct wire_answer){ .kind = WIRE_ANSWER_OUT });
	memset(buf_room(&buf, WIRE_ANSWER_MAX + 1), 'x', WIRE_ANSWER_MAX + 1);
	buf_grew(&buf, WIRE_ANSWER_MAX + 1);
	in = reader_of(&buf);
	wire_get_answer(&in, &answer);
	assert_int_equal(wire_get_done(&in, NULL), -1);
	buf_done(&buf);
	for (size_t i = 0; i <= WIRE_WORDS_MAX; i++)
		words[i] = "x";
	wire_put_request(&buf, &(struct wire_request){ .words = words });
	in = reader_of(&buf);
	wire_get_request(&in, &request);
	assert_int_equal(wire_get_done(&in, NULL), -1);
	free((void *)request.words);
	buf_done(&buf);
	memset(large, 'x', WIRE_WORDS_BYTES);
	words[0] = large;
	words[1] = NULL;
	wire_put_request(&buf, &(struct wire_request){ .words = words });
	in = reader_of(&buf);
	wire_get_request(&in, &request);
	assert_int_equal(wire_get_done(&in, NULL), -1);
	free((void *)request.words);
	buf_done(&buf);
}

static void test_identity_travels_whole(void **state)
{
	struct wire_identity identity = { .name = "kid-1",
		.id = "abc",
		.parent = "ada",
		.index = 3,
		.seed = { 1, 2, 3 } },
			     got;
	struct wire_told told = { 4, 1, "10-a: exit code 3" }, heard;
	struct buf buf = BUF_INIT;
	struct wire_reader in;

	(void)state;
	wire_put_identity(&buf, &identity);
	in = reader_of(&buf);
	wire_get_identity(&in, &got);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	assert_string_equal(got.name, "kid-1");
	assert_string_equal(got.id, "abc");
	assert_string_equal(got.parent, "ada");
	assert_int_equal(got.index, 3);
	assert_memory_equal(got.seed, identity.seed, WIRE_SEED);
	in = reader_of(&buf);
	in.end--;
	wire_get_identity(&in, &got);
	assert_int_equal(wire_get_done(&in, NULL), -1);
	buf_done(&buf);
	wire_put_told(&buf, &told);
	in = reader_of(&buf);
	wire_get_told(&in, &heard);
	assert_int_equal(wire_get_done(&in, NULL), 0);
	assert_true(heard.ran == 4 && heard.failed == 1);
	assert_string_equal(heard.failure, told.failure);
	buf_done(&buf);
}

/* An older box-init reads the byte as a flag and runs argv; an older daemon sends 0 or 1. */
static void test_builtin_is_in_the_byte_of_stdin(void **state)
{
	static const char *const argv[] = { "/none/sftp-server", NULL };
	enum { AFTER_IT = 1 + 2 + 2 + 8 + 4 }; /* attach, rows, cols, timeout_ms, journal_max */

	(void)state;
	for (unsigned value = 0; value < 3; value++) {
		struct wire_exec_spec got, spec = { .id = "e1",
			.argv = argv,
			.env = argv,
			.stdin_open = value > 0,
			.builtin = value > 1 ? WIRE_BUILTIN_SFTP : WIRE_NO_BUILTIN };
		struct buf buf = BUF_INIT;
		struct wire_reader in;

		wire_put_exec_spec(&buf, &spec);
		assert_int_equal(buf_head(&buf)[buf.len - AFTER_IT - 1], value);
		in = reader_of(&buf);
		wire_get_exec_spec(&in, &got);
		assert_int_equal(wire_get_done(&in, NULL), 0);
		assert_int_equal(got.stdin_open, value > 0);
		assert_int_equal(got.builtin, spec.builtin);
		free((void *)got.argv);
		free((void *)got.env);
		buf_done(&buf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_builtin_is_in_the_byte_of_stdin),
		cmocka_unit_test(test_requests_and_answers_come_out_as_they_went_in),
		cmocka_unit_test(test_requests_and_answers_are_bounded),
		cmocka_unit_test(test_identity_travels_whole),
		cmocka_unit_test(test_frames_come_out_as_they_went_in),
		cmocka_unit_test(test_frame_waits_for_its_last_byte),
		cmocka_unit_test(test_frame_breaking_the_rules_is_refused),
		cmocka_unit_test(test_frame_of_the_largest_size_is_taken),
		cmocka_unit_test(test_numbers_travel_little_endian),
		cmocka_unit_test(test_reading_past_the_end_gives_zeros_and_is_remembered),
		cmocka_unit_test(test_bytes_left_over_are_an_error),
		cmocka_unit_test(test_strings_need_length_bytes_and_nul),
		cmocka_unit_test(test_lists_of_strings_are_bounded_before_they_are_allocated),
		cmocka_unit_test(test_hello_exec_and_attach_specs_round_trip),
		cmocka_unit_test(test_exec_info_exit_and_figures_round_trip),
		cmocka_unit_test(test_an_error_is_made_printable_and_its_kind_is_checked),
		cmocka_unit_test(test_a_long_error_is_cut_to_what_the_other_side_takes),
		cmocka_unit_test(test_values_nobody_defined_are_refused_or_masked),
		cmocka_unit_test(test_a_record_cut_short_anywhere_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
