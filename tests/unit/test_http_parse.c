/* test_http_parse.c - requests from bytes: what is taken, what is refused, however the bytes are
 * cut */
#include "http/parse.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

/* Feeds text in steps of `step` bytes and writes down what came out: "H" with method, target and
 * framing, body bytes in brackets, "E", or "!status". */
static void trace(const char *text, size_t len, size_t step, struct buf *out)
{
	struct http_parse parse = HTTP_PARSE_INIT;
	struct http_piece piece;
	bool bad = false;

	for (size_t at = 0; at < len && !bad; at += step) {
		size_t take = MIN(step, len - at);
		size_t used = 0;

		do {
			used += http_parse_next(&parse, text + at + used, take - used, &piece);
			assert_true(used <= take);
			if (piece.kind == HTTP_PIECE_HEAD)
				buf_addf(out, "H %s %s %s%s;", parse.head.method, parse.head.target,
					parse.head.chunked ? "chunked" : "",
					parse.head.keep_alive ? "" : " close");
			else if (piece.kind == HTTP_PIECE_BODY)
				buf_add(out, piece.data, piece.len);
			else if (piece.kind == HTTP_PIECE_END)
				buf_add_str(out, ";E;");
			else if (piece.kind == HTTP_PIECE_BAD)
				buf_addf(out, "!%d", piece.status);
			bad = piece.kind == HTTP_PIECE_BAD;
		} while (!bad && piece.kind != HTTP_PIECE_MORE);
		if (!bad)
			assert_int_equal(used, take);
	}
	http_parse_done(&parse);
}

static void expect_len(const char *text, size_t len, const char *want)
{
	static const size_t steps[] = { 1, 2, 3, 7, 64, 100000 };

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct buf out = BUF_INIT;

		trace(text, len, steps[i], &out);
		assert_string_equal(buf_str(&out), want);
		buf_done(&out);
	}
}

static void expect(const char *text, const char *want)
{
	expect_len(text, strlen(text), want);
}

#define HOST "Host: a\r\n"

static void test_parse_takes_plain_requests(void **state)
{
	(void)state;
	expect("GET / HTTP/1.1\r\n" HOST "\r\n", "H GET / ;;E;");
	expect("DELETE /a?b=c HTTP/1.1\r\n" HOST "X-Empty:\r\nY:  v \r\n\r\n",
		"H DELETE /a?b=c ;;E;");
	expect("GET / HTTP/1.0\r\n\r\n", "H GET /  close;;E;");
	expect("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "H GET /  close;;E;");
	expect("GET / HTTP/1.1\r\n" HOST "Connection: foo, Close\r\n\r\n", "H GET /  close;;E;");
	expect("\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "H GET / ;;E;");
}

static void test_parse_takes_bodies_and_pipelines(void **state)
{
	(void)state;
	expect("POST /x HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", "H POST /x ;hello;E;");
	expect("POST /x HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "H POST /x ;;E;");
	expect("POST /x HTTP/1.1\r\n" HOST
	       "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
		"H POST /x chunked;hello!;E;");
	expect("PUT /x HTTP/1.1\r\n" HOST
	       "Transfer-Encoding: CHUNKED\r\n\r\n0A\r\n0123456789\r\n0\r\nT: v\r\n\r\n"
	       "GET /y HTTP/1.1\r\n" HOST "\r\n",
		"H PUT /x chunked;0123456789;E;H GET /y ;;E;");
	expect("POST /1 HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nabGET /2 HTTP/1.1\r\n" HOST
	       "\r\n",
		"H POST /1 ;ab;E;H GET /2 ;;E;");
}

static void test_parse_refuses_ambiguous_framing(void **state)
{
	(void)state;
	expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"!400");
	expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
		"!400");
	expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "!400");
	expect("POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\n", "!400");
	expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\n", "!400");
	expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n", "!400");
	expect("POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", "!400");
	expect("POST / HTTP/1.1\r\n" HOST "Content-Length : 5\r\n\r\n", "!400");
	expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", "!501");
	expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n", "!501");
	expect("POST / HTTP/1.1\r\n" HOST
	       "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"!400");
	expect("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "!501");
}

static void test_parse_refuses_malformed_heads(void **state)
{
	static const char nul[] = "GET / HTTP/1.1\r\n" HOST "X: a\0b\r\n\r\n";
	static const char nul_name[] = "GET / HTTP/1.1\r\n" HOST "X\0Y: b\r\n\r\n";

	(void)state;
	expect("GET / HTTP/1.1\r\n\r\n", "!400");
	expect("GET / HTTP/1.1\r\n" HOST HOST "\r\n", "!400");
	expect("GET / HTTP/1.1\n" HOST "\r\n", "!400");
	expect("GET / HTTP/1.1\r\nHost: a\n\r\n", "!400");
	expect("GET / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n", "!400");
	expect("GET / HTTP/1.1\r\n Host: a\r\n\r\n", "!400");
	expect("GET / HTTP/1.1\r\n" HOST "X: a\rb\r\n\r\n", "!400");
	expect("GET / HTTP/1.1\r\n" HOST "X: a\x01\r\n\r\n", "!400");
	expect("GET / HTTP/1.1\r\n" HOST "X Y: a\r\n\r\n", "!400");
	expect("GET / HTTP/1.1\r\n" HOST ": a\r\n\r\n", "!400");
	expect("GET / HTTP/1.1\r\n" HOST "nocolon\r\n\r\n", "!400");
	expect("GET / HTTP/2.0\r\n" HOST "\r\n", "!505");
	expect("GET / HTTP/1.2\r\n" HOST "\r\n", "!505");
	expect("GET /\r\n\r\n", "!505");
	expect("NOSUCH / HTTP/1.1\r\n" HOST "\r\n", "!400");
	expect("CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n", "!501");
	expect("POST / HTTP/1.1\r\n" HOST "Expect: wonders\r\n\r\n", "!417");
	expect("\x16\x03\x01\x02\n", "!400");
	expect_len(nul, sizeof nul - 1, "!400");
	expect_len(nul_name, sizeof nul_name - 1, "!400");
}

static void test_parse_refuses_chunked_garbage(void **state)
{
	static const char *const bodies[] = { "x\r\n", "\r\n", "5\rX", "3\r\nabcXX",
		"3\r\nabc\n0\r\n\r\n", "-1\r\n", "0x3\r\n", "1111111111111111\r\n", "3 \r\nabc",
		"0\r\n X: y\r\n\r\n", "0\r\n\rX", "3\nabc" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		struct http_parse parse = HTTP_PARSE_INIT;
		struct http_piece piece;
		char text[256];
		size_t len = (size_t)snprintf(text, sizeof text,
			"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n%s",
			bodies[i]);
		size_t used = 0;

		do
			used += http_parse_next(&parse, text + used, len - used, &piece);
		while (piece.kind == HTTP_PIECE_HEAD || piece.kind == HTTP_PIECE_BODY);
		assert_int_equal(piece.kind, HTTP_PIECE_BAD);
		assert_int_equal(piece.status, 400);
		http_parse_done(&parse);
	}
}

static void test_parse_bounds_chunk_extensions_and_trailers(void **state)
{
	struct buf text = BUF_INIT;

	(void)state;
	buf_add_str(&text, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3;");
	for (int i = 0; i < 300; i++)
		buf_add_str(&text, "x");
	expect(buf_str(&text), "H POST / chunked;!400");
	buf_eat(&text, text.len);
	buf_add_str(&text, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n");
	for (int i = 0; i < 500; i++)
		buf_add_str(&text, "X: 345678\r\n");
	expect(buf_str(&text), "H POST / chunked;!400");
	buf_done(&text);
}

static void add_headers(struct buf *text, int count, int value_len)
{
	buf_add_str(text, "GET / HTTP/1.1\r\n" HOST);
	for (int i = 0; i < count; i++)
		buf_addf(text, "X-%d: %0*d\r\n", i, value_len, 0);
	buf_add_str(text, "\r\n");
}

static void test_parse_bounds_the_head(void **state)
{
	struct buf text = BUF_INIT;

	(void)state;
	add_headers(&text, 63, 4);
	expect(buf_str(&text), "H GET / ;;E;");
	buf_eat(&text, text.len);
	add_headers(&text, 64, 4);
	expect(buf_str(&text), "!431");
	buf_eat(&text, text.len);
	add_headers(&text, 1, HTTP_HEAD_MAX - 16 - 9 - 5 - 4); /* to the byte */
	assert_int_equal(text.len, HTTP_HEAD_MAX);
	expect(buf_str(&text), "H GET / ;;E;");
	buf_eat(&text, text.len);
	add_headers(&text, 1, HTTP_HEAD_MAX - 16 - 9 - 5 - 4 + 1);
	expect(buf_str(&text), "!431");
	buf_eat(&text, text.len);
	for (int i = 0; i < HTTP_HEAD_MAX; i++)
		buf_add_str(&text, "\r\n");
	expect(buf_str(&text), "!400");
	buf_done(&text);
}

static void test_head_finds_headers_and_tokens(void **state)
{
	static const char text[] =
		"POST /p HTTP/1.1\r\nhOsT: b:1\r\nUpgrade: WebSocket\r\nConnection: keep-alive\r\n"
		"connection: a,Upgrade ,b\r\nX-Empty:\r\nX-Pad: \t v w \t\r\nContent-Length: 7\r\n"
		"Expect: 100-Continue\r\n\r\n";
	struct http_parse parse = HTTP_PARSE_INIT;
	struct http_piece piece;

	(void)state;
	assert_int_equal(http_parse_next(&parse, text, sizeof text - 1, &piece), sizeof text - 1);
	assert_int_equal(piece.kind, HTTP_PIECE_HEAD);
	assert_string_equal(http_head_get(&parse.head, "HOST"), "b:1");
	assert_string_equal(http_head_get(&parse.head, "x-empty"), "");
	assert_string_equal(http_head_get(&parse.head, "X-Pad"), "v w");
	assert_null(http_head_get(&parse.head, "X"));
	assert_true(http_head_has_token(&parse.head, "Connection", "upgrade"));
	assert_true(http_head_has_token(&parse.head, "Upgrade", "websocket"));
	assert_false(http_head_has_token(&parse.head, "Connection", "up"));
	assert_true(parse.head.expects_continue);
	assert_int_equal(parse.head.length, 7);
	http_parse_done(&parse);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse_takes_plain_requests),
		cmocka_unit_test(test_parse_takes_bodies_and_pipelines),
		cmocka_unit_test(test_parse_refuses_ambiguous_framing),
		cmocka_unit_test(test_parse_refuses_malformed_heads),
		cmocka_unit_test(test_parse_refuses_chunked_garbage),
		cmocka_unit_test(test_parse_bounds_chunk_extensions_and_trailers),
		cmocka_unit_test(test_parse_bounds_the_head),
		cmocka_unit_test(test_head_finds_headers_and_tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
