/* test_ingress_parts.c - the pure parts of the way in: hosts, answers of boxes, headers both
 * ways */
#include "ingress/answer.h"
#include "ingress/headers.h"
#include "ingress/host.h"
#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* ---- hosts ---------------------------------------------------------------------------------- */

static void test_host_tells_boxes_from_the_api(void **state)
{
	static const struct {
		const char *text;
		bool is_box;
		const char *label;
	} cases[] = {
		{ "web.localhost", true, "web" },
		{ "web.localhost:30001", true, "web" },
		{ "WEB.LocalHost:1", true, "web" },
		{ "web.localhost.", true, "web" },
		{ "8080-web.localhost:30001", true, "8080-web" },
		{ "a-b-c.boxes.test", true, "a-b-c" },
		{ "localhost", false, NULL },
		{ "localhost:30001", false, NULL },
		{ "127.0.0.1:30001", false, NULL },
		{ "[::1]:30001", false, NULL },
		{ "boxes.test", false, NULL },
		{ "evilboxes.test", false, NULL },
		{ "weblocalhost", false, NULL },
		{ "web.localhost.example", false, NULL },
		{ ".localhost", false, NULL },
		{ "", false, NULL },
		{ "web.localhost:", true, "web" },
		{ "web.localhost:123456", false, NULL },
		{ "web.localhost:80x", false, NULL },
		{ "web.localhost:80:80", false, NULL },
		{ "web.localhost@evil.example", false, NULL },
		/* below our names, but no box: never the API's */
		{ "a.b.localhost", true, "" },
		{ "a_b.localhost", true, "" },
		{ "..localhost", true, "" },
		{ "x/../y.localhost", true, "" },
		{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.localhost",
			true, "" },
	};
	struct host host;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (host_parse(cases[i].text, "boxes.test", &host) != cases[i].is_box)
			fail_msg("'%s'", cases[i].text);
		if (cases[i].is_box)
			assert_string_equal(host.label, cases[i].label);
	}
	assert_false(host_parse(NULL, "", &host));
	assert_false(host_parse("web.boxes.test", "", &host));
}

static void test_host_splits_ports(void **state)
{
	static const struct {
		const char *label;
		const char *name; /* NULL: no port in it */
		uint16_t port;
	} cases[] = {
		{ "8080-web", "web", 8080 },
		{ "1-a", "a", 1 },
		{ "65535-a-b", "a-b", 65535 },
		{ "80-90-web", "90-web", 80 },
		{ "65536-web", NULL, 0 },
		{ "0-web", NULL, 0 },
		{ "08080-web", NULL, 0 },
		{ "123456-web", NULL, 0 },
		{ "8080-", NULL, 0 },
		{ "8080", NULL, 0 },
		{ "web-8080", NULL, 0 },
		{ "-8080-web", NULL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *name = NULL;
		uint16_t port = 0;

		assert_int_equal(
			host_split_port(cases[i].label, &name, &port), cases[i].name != NULL);
		if (!cases[i].name)
			continue;
		assert_string_equal(name, cases[i].name);
		assert_int_equal(port, cases[i].port);
	}
}

/* ---- answers -------------------------------------------------------------------------------- */

#define H "HTTP/1.1 200 OK\r\n"
enum { ASK_GET, ASK_HEAD, ASK_UPGRADE };

static const struct answer_case {
	int asked;
	const char *text;
	const char *body; /* what comes out; NULL: refused */
	const char *rest; /* bytes after the end */
	bool by_close;	  /* ends when the box closes */
	bool keep;
} answer_cases[] = {
	{ ASK_GET, H "Content-Length: 3\r\n\r\nabc", "abc", "", false, true },
	{ ASK_GET, H "Content-Length: 3\r\n\r\nabcHTTP/1.1 200", "abc", "HTTP/1.1 200", false,
		true },
	{ ASK_GET, H "Content-Length: 0\r\n\r\n", "", "", false, true },
	{ ASK_GET, H "Connection: Close\r\nContent-Length: 0\r\n\r\n", "", "", false, false },
	{ ASK_GET, H "Transfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\nT: v\r\n\r\n",
		"abc", "", false, true },
	{ ASK_GET, H "\r\nto the end", "to the end", "", true, false },
	{ ASK_GET, "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "x", "", false, false },
	{ ASK_GET, "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", "x", "", false, true },
	{ ASK_GET, "HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\nHTTP/", "", "HTTP/", false,
		true },
	{ ASK_GET, "HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n", "", "", false, true },
	{ ASK_HEAD, H "Content-Length: 500\r\n\r\n", "", "", false, true },
	{ ASK_HEAD, H "Transfer-Encoding: chunked\r\n\r\n", "", "", false, true },
	{ ASK_GET,
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" H
		"Content-Length: 1\r\n\r\nx",
		"x", "", false, true },
	{ ASK_UPGRADE, "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nbytes", "", "bytes", false,
		true },
	/* hostile */
	{ ASK_GET, "HTTP/1.1 101 Switching\r\n\r\n", NULL, "", false, false },
	{ ASK_UPGRADE, "HTTP/1.0 101 Switching\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", NULL, "", false, false },
	{ ASK_GET, H "Content-Length: 3\r\ncontent-length: 4\r\n\r\nabc", NULL, "", false, false },
	{ ASK_GET, H "Content-Length: 3, 3\r\n\r\nabc", NULL, "", false, false },
	{ ASK_GET, H "Content-Length: +3\r\n\r\nabc", NULL, "", false, false },
	{ ASK_GET, H "Content-Length: -1\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "Content-Length: 0x3\r\n\r\nabc", NULL, "", false, false },
	{ ASK_GET, H "Content-Length: 99999999999999999999\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "Content-Length:\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", NULL, "",
		false, false },
	{ ASK_HEAD, H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", NULL, "", false,
		false },
	{ ASK_GET, H "Transfer-Encoding: gzip, chunked\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", NULL, "",
		false, false },
	{ ASK_GET, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", NULL, "", false,
		false },
	{ ASK_GET, H "Transfer-Encoding : chunked\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "Transfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n", NULL, "", false,
		false },
	{ ASK_GET, H "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", NULL, "", false,
		false },
	{ ASK_GET, H "Transfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n", NULL, "", false,
		false },
	{ ASK_GET, H "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", NULL, "", false,
		false },
	{ ASK_GET, H "A: b\r\n folded\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "A: b\nSet-Cookie: x\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "A: b\rSet-Cookie: x\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "A: b\x01\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "A: b\x7f\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "no colon\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H ": empty\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, H "A b: c\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, "HTTP/1.1 200 O\rK\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, "HTTP/2 200 OK\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, "HTTP/1.2 200 OK\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, "HTTP/1.1 2000 OK\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, "HTTP/1.1 20 OK\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, "HTTP/1.1 099 OK\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, "HTTP/1.1 600 OK\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, "HTTP/1.1  200 OK\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, " HTTP/1.1 200 OK\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, "\r\nHTTP/1.1 200 OK\r\n\r\n", NULL, "", false, false },
	{ ASK_GET, "SSH-2.0-OpenSSH\r\n", NULL, "", false, false },
	{ ASK_GET, "<html>", NULL, "", false, false },
};

/* In pieces of step bytes; the result tells whether it was refused. */
static bool run_case(const struct answer_case *test, size_t step, struct buf *body,
	struct buf *rest, struct answer *answer)
{
	size_t len = strlen(test->text);
	bool over = false;

	answer_reset(answer, test->asked == ASK_HEAD, test->asked == ASK_UPGRADE);
	for (size_t at = 0; at < len; at += MIN(step, len - at)) {
		size_t some = MIN(step, len - at), used = 0;
		struct answer_piece piece = { .kind = ANSWER_HEAD };

		while (!over && piece.kind != ANSWER_MORE) {
			used += answer_next(answer, test->text + at + used, some - used, &piece);
			if (piece.kind == ANSWER_BAD)
				return false;
			if (piece.kind == ANSWER_BODY)
				buf_add(body, piece.data, piece.len);
			over = piece.kind == ANSWER_END ||
			       (piece.kind == ANSWER_HEAD && answer->status == 101);
		}
		buf_add(rest, test->text + at + used, some - used);
	}
	return over || answer_ends_by_close(answer);
}

static void test_answer_is_read_strictly_however_it_comes(void **state)
{
	struct answer answer = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(answer_cases); i++)
		for (size_t step = 1; step < 200; step += 7) {
			const struct answer_case *test = &answer_cases[i];
			struct buf body = BUF_INIT, rest = BUF_INIT;
			bool good = run_case(test, step, &body, &rest, &answer);

			if (good != (test->body != NULL))
				fail_msg("step %zu: '%s'", step, test->text);
			if (good) {
				assert_string_equal(buf_str(&body), test->body);
				assert_string_equal(buf_str(&rest), test->rest);
				assert_int_equal(answer_ends_by_close(&answer), test->by_close);
				if (test->asked != ASK_UPGRADE)
					assert_int_equal(answer.keep, test->keep);
			}
			buf_done(&body);
			buf_done(&rest);
		}
	answer_done(&answer);
}

static bool is_refused(const struct buf *text)
{
	struct answer answer = { 0 };
	struct answer_piece piece;

	answer_reset(&answer, false, false);
	answer_next(&answer, (const char *)buf_head(text), text->len, &piece);
	answer_done(&answer);
	return piece.kind == ANSWER_BAD;
}

static void test_answer_is_bounded(void **state)
{
	struct buf many = BUF_INIT, large = BUF_INIT, endless = BUF_INIT, interim = BUF_INIT;

	(void)state;
	buf_add_str(&many, H);
	for (int i = 0; i < 129; i++)
		buf_add_str(&many, "A: b\r\n");
	buf_add_str(&many, "\r\n");
	assert_true(is_refused(&many));
	buf_add_str(&large, H "A: ");
	for (int i = 0; i < 33000; i++)
		buf_add(&large, "a", 1);
	assert_true(is_refused(&large)); /* without waiting for its end */
	buf_add_str(&endless, H);
	for (int i = 0; i < 20; i++)
		buf_add_str(&interim, "HTTP/1.1 100 Continue\r\n\r\n");
	assert_true(is_refused(&interim));
	assert_false(is_refused(&endless));
	buf_done(&many);
	buf_done(&large);
	buf_done(&endless);
	buf_done(&interim);
}

/* ---- headers -------------------------------------------------------------------------------- */

static char *to_box(const char *request, bool upgrade)
{
	struct http_parse parse = HTTP_PARSE_INIT;
	struct http_piece piece;
	struct buf out = BUF_INIT;

	http_parse_next(&parse, request, strlen(request), &piece);
	assert_int_equal(piece.kind, HTTP_PIECE_HEAD);
	headers_put_request(&parse.head,
		&(struct headers_from){ .peer = "192.0.2.1", .proto = "http", .upgrade = upgrade },
		&out);
	http_parse_done(&parse);
	buf_str(&out);
	return (char *)out.data;
}

#define FROM                             \
	"X-Forwarded-For: 192.0.2.1\r\n" \
	"X-Forwarded-Proto: http\r\n"    \
	"X-Forwarded-Host: h\r\n"

static void test_headers_to_the_box(void **state)
{
	static const struct {
		const char *given, *expected; /* between Host and what we add */
		const char *framing;
	} cases[] = {
		{ "A: b\r\nB:  c  \r\n", "A: b\r\nB: c\r\n", "" },
		{ "Connection: close, X-Hop\r\nX-Hop: 1\r\nx-hop: 2\r\nX-Stay: 3\r\n",
			"X-Stay: 3\r\n", "" },
		{ "Keep-Alive: 1\r\nTE: trailers\r\nTrailer: x\r\nProxy-Connection: x\r\n", "",
			"" },
		{ "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x\r\n",
			"", "" },
		{ "X-Forwarded-For: 1.1.1.1\r\nX_Forwarded_For: 2.2.2.2\r\nX-Forwarded-Proto: "
		  "https\r\n"
		  "Forwarded: for=1\r\nX-Real-IP: 3\r\nX-Forwarded-Host: evil\r\n",
			"", "" },
		{ "Connection: Host\r\n", "", "" },
		{ "Cookie: a=b; boxyard_login=secret; c=d\r\n", "Cookie: a=b; c=d\r\n", "" },
		{ "Cookie: boxyard_login=secret\r\n", "", "" },
		{ "Cookie: __Host-boxyard_login=secret;;x=y\r\nCookie: boxyard_login=z\r\n",
			"Cookie: x=y\r\n", "" },
		{ "Cookie:  boxyard_login =secret; boxyard_login2=keep\r\n",
			"Cookie: boxyard_login2=keep\r\n", "" },
		{ "Authorization: Bearer box_secret\r\n", "", "" },
		{ "Authorization: bearer   box_secret\r\n", "", "" },
		{ "Authorization: box_secret\r\n", "", "" },
		{ "Authorization: Token token=\"box_secret\"\r\n", "", "" },
		{ "Authorization: Basic eDpib3hfc2VjcmV0\r\n", "", "" }, /* x:box_secret */
		{ "Authorization: basic Ym94X3NlY3JldDo=\r\n", "", "" }, /* box_secret: */
		{ "Authorization: Bearer my_box_1\r\n", "Authorization: Bearer my_box_1\r\n", "" },
		{ "Cookie: =boxyard_login=secret; a=b\r\n", "Cookie: a=b\r\n", "" },
		{ "Authorization: Basic eDp5\r\n", "Authorization: Basic eDp5\r\n", "" },
		{ "Authorization: Bearer other\r\n", "Authorization: Bearer other\r\n", "" },
		{ "Box-Token: box_secret\r\nBox_Token: box_secret\r\n", "", "" },
		{ "Content-Length: 5\r\nExpect: 100-continue\r\n", "", "Content-Length: 5\r\n" },
		{ "Transfer-Encoding: chunked\r\nConnection: Transfer-Encoding\r\n", "",
			"Transfer-Encoding: chunked\r\n" },
		{ "Content-Length: 0\r\n", "", "Content-Length: 0\r\n" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char request[1024], expected[1024];
		_cleanup_free_ char *got = NULL;

		snprintf(request, sizeof request,
			"POST /a%%2f?b=%%zz&c HTTP/1.1\r\nHost: h\r\n%s\r\n", cases[i].given);
		snprintf(expected, sizeof expected,
			"POST /a%%2f?b=%%zz&c HTTP/1.1\r\nHost: h\r\n%s" FROM "%s\r\n",
			cases[i].expected, cases[i].framing);
		got = to_box(request, false);
		assert_string_equal(got, expected);
	}
}

static void test_headers_pass_an_upgrade_on(void **state)
{
	_cleanup_free_ char *got =
		to_box("GET /s HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: "
		       "websocket\r\nSec-WebSocket-Key: k\r\n\r\n",
			true);

	(void)state;
	assert_string_equal(got, "GET /s HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key: k\r\n" FROM
				 "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
}

static void test_headers_to_the_client(void **state)
{
	static const struct {
		const char *given, *expected;
	} cases[] = {
		{ "A: b\r\n", "A: b\r\n" },
		{ "Connection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n", "" },
		{ "Set-Cookie: a=b; Domain=boxes.test; Path=/\r\n", "Set-Cookie: a=b; Path=/\r\n" },
		{ "Set-Cookie: a=b;DOMAIN = x;Secure\r\n", "Set-Cookie: a=b;Secure\r\n" },
		{ "Set-Cookie: a=b; domain\r\n", "Set-Cookie: a=b\r\n" },
		{ "Set-Cookie: a=b; Domain=x; Domain=y; HttpOnly\r\n",
			"Set-Cookie: a=b; HttpOnly\r\n" },
		{ "Set-Cookie: a=Domain=x; Max-Age=1\r\n",
			"Set-Cookie: a=Domain=x; Max-Age=1\r\n" },
		{ "Set-Cookie: domain=x\r\n", "Set-Cookie: domain=x\r\n" },
		{ "Set-Cookie: boxyard_login=x; Path=/\r\n", "" },
		{ "Set-Cookie:  __host-BOXYARD_login = x\r\n", "" },
		{ "Set-Cookie: boxyard_login\r\n", "" },
		{ "Set-Cookie: =boxyard_login=x; Path=/\r\n", "" },
		{ "Set-Cookie:  = __Host-boxyard_login=x\r\n", "" },
		{ "Set-Cookie: =\r\n", "Set-Cookie: =\r\n" },
		{ "Alt-Svc: h3=\":443\"\r\nClear-Site-Data: \"*\"\r\n", "" },
		{ "Content-Length: 0\r\n", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct answer answer = { 0 };
		struct answer_piece piece;
		struct buf out = BUF_INIT;
		char text[512];

		snprintf(text, sizeof text, H "%s\r\n", cases[i].given);
		answer_reset(&answer, false, false);
		answer_next(&answer, text, strlen(text), &piece);
		assert_int_equal(piece.kind, ANSWER_HEAD);
		headers_put_answer(&answer, false, &out);
		assert_string_equal(buf_str(&out), cases[i].expected);
		answer_done(&answer);
		buf_done(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host_tells_boxes_from_the_api),
		cmocka_unit_test(test_host_splits_ports),
		cmocka_unit_test(test_answer_is_read_strictly_however_it_comes),
		cmocka_unit_test(test_answer_is_bounded),
		cmocka_unit_test(test_headers_to_the_box),
		cmocka_unit_test(test_headers_pass_an_upgrade_on),
		cmocka_unit_test(test_headers_to_the_client),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
