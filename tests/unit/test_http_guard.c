/* test_http_guard.c - plain HTTP as it may pass: what is refused, what is asked for, what is held
 * back
 *
 * Everything is fed whole, byte by byte and in odd pieces: the outcome must be the same. */
#include "gate/relay/http_guard.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

/* Writes down each request that was asked for; refuses those of refused.test. */
static bool allow(void *arg, const struct http_guard_request *request)
{
	struct buf *seen = arg;

	buf_addf(seen, "%s %s %s:%u%s;", request->method, request->path, request->host,
		request->port, request->upgrade ? " upgrade" : "");
	return strcmp(request->host, "refused.test") != 0;
}

static const struct http_guard_ops ops = { allow };

struct run {
	struct http_guard *guard;
	struct buf seen, out;
	const char *why;
};

static void run_begin(struct run *run)
{
	*run = (struct run){ 0 };
	run->guard = http_guard_new(&ops, &run->seen);
}

static void run_end(struct run *run)
{
	http_guard_free(run->guard);
	buf_done(&run->seen);
	buf_done(&run->out);
}

/* In pieces of size bytes, each in memory of its own. */
static void feed(struct run *run, bool server, const char *data, size_t len, size_t size)
{
	for (size_t at = 0; at < len; at += size) {
		size_t piece = MIN(size, len - at);
		_cleanup_free_ uint8_t *copy = xmemdup(data + at, piece);

		run->why = (server ? http_guard_server : http_guard_client)(
			run->guard, copy, piece, &run->out);
	}
}

static void client(struct run *run, const char *text)
{
	feed(run, false, text, strlen(text), SIZE_MAX / 2);
}

static void server(struct run *run, const char *text)
{
	feed(run, true, text, strlen(text), SIZE_MAX / 2);
}

static const size_t sizes[] = { 100000, 1, 2, 3, 7, 19 };

/* passed: what must have gone on; NULL: all of it. why: NULL when nothing is refused. */
static void expect(
	const char *data, size_t len, const char *passed, const char *why, const char *seen)
{
	size_t wanted = passed ? strlen(passed) : len;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct run run;

		run_begin(&run);
		feed(&run, false, data, len, sizes[i]);
		if (!run.why != !why || (why && strcmp(why, run.why)))
			fail_msg("'%.60s' by %zu: '%s', not '%s'", data, sizes[i],
				run.why ? run.why : "passes", why ? why : "passes");
		if (run.out.len != wanted ||
			(wanted && memcmp(buf_head(&run.out), passed ? passed : data, wanted)))
			fail_msg("'%.60s' by %zu: %zu bytes passed: %s", data, sizes[i],
				run.out.len, buf_str(&run.out));
		if (seen)
			assert_string_equal(buf_str(&run.seen), seen);
		run_end(&run);
	}
}

#define PASSES(text, seen)	     expect(text, sizeof(text) - 1, NULL, NULL, seen)
#define REFUSED(text, why)	     expect(text, sizeof(text) - 1, "", why, "")
#define CUT_AFTER(passed, rest, why) expect(passed rest, sizeof(passed rest) - 1, passed, why, NULL)

#define LINE "GET / HTTP/1.1\r\n"
#define HOST "Host: a.test\r\n"
#define POST "POST / HTTP/1.1\r\n" HOST
#define GET  LINE HOST "\r\n"

/* ---- what passes ---------------------------------------------------------------------------- */

static void test_requests_pass_and_are_asked_for(void **state)
{
	PASSES(GET, "GET / a.test:0;");
	PASSES("GET /x?y=z HTTP/1.1\r\nHOST:\tA.Test.:8080 \r\nAccept: */*\r\n\r\n",
		"GET /x?y=z a.test:8080;");
	PASSES("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS * a.test:0;");
	PASSES("VERSION-CONTROL / HTTP/1.1\r\n" HOST "X: \xc3\xbc \"\t\r\nEmpty:\r\n\r\n", NULL);
	PASSES("GET http://a.test/x HTTP/1.1\r\n" HOST "\r\n", "GET /x a.test:0;");
	PASSES("GET HTTP://A.test:80 HTTP/1.1\r\n" HOST "\r\n", "GET / a.test:0;");
	PASSES("OPTIONS http://a.test HTTP/1.1\r\n" HOST "\r\n", "OPTIONS * a.test:0;");
	PASSES(LINE "Host: [2001:DB8:0::1]:8080\r\n\r\n", "GET / 2001:db8::1:8080;");
	PASSES(LINE "Host: [::1]\r\n\r\n", "GET / ::1:0;");
	PASSES(LINE "Host: 192.0.2.7:81\r\n\r\n", "GET / 192.0.2.7:81;");
	PASSES("GET / HTTP/1.0\r\n\r\n", "GET / :0;");
	PASSES("GET / HTTP/1.0\r\n" HOST "\r\n", "GET / a.test:0;");
	PASSES("GET http://b.test:8080/ HTTP/1.0\r\n\r\n", "GET / b.test:8080;");
	PASSES(LINE HOST "Connection: keep-alive, Upgrade\r\nConnection: TE\r\n\r\n", NULL);
	/* not whole yet */
	expect("GET / HTTP/1.1\r\nHo", 18, "", NULL, "");
	expect(LINE HOST "\r", sizeof LINE HOST, "", NULL, "");
}

static void test_bodies_pass(void **state)
{
	PASSES(POST "Content-Length: 5\r\n\r\nhello" GET, "POST / a.test:0;GET / a.test:0;");
	PASSES(POST "Content-Length: 0\r\n\r\n" GET, "POST / a.test:0;GET / a.test:0;");
	PASSES(POST "Content-Length: 29\r\n\r\n" LINE "Host: b.test\r" GET,
		"POST / a.test:0;GET / a.test:0;");
	PASSES(POST "Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0000000A\r\n0\r\n\r\n01234\r\n"
		    "0\r\n\r\n" GET,
		"POST / a.test:0;GET / a.test:0;");
	PASSES(POST "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", NULL);
}

static void test_each_pipelined_request_is_asked_for(void **state)
{
	PASSES(GET "GET /2 HTTP/1.1\r\nHost: b.test\r\n\r\n" GET,
		"GET / a.test:0;GET /2 b.test:0;GET / a.test:0;");
	expect(GET GET LINE "Host: refused.test\r\n\r\n" GET,
		sizeof(GET GET LINE "Host: refused.test\r\n\r\n" GET) - 1, GET GET,
		"request refused", "GET / a.test:0;GET / a.test:0;GET / refused.test:0;");
	CUT_AFTER(
		GET, LINE "Host: b.test\r\nHost: c.test\r\n\r\n", "smuggling: more than one Host");
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void test_two_lengths_are_refused(void **state)
{
	static const char both[] = "smuggling: both Content-Length and Transfer-Encoding";

	REFUSED(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", both);
	REFUSED(POST "transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", both);
	REFUSED(POST "Content-Length: 5\r\nTransfer-Encoding: identity\r\n\r\n", both);
	REFUSED(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		"smuggling: more than one Content-Length");
	REFUSED(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"smuggling: more than one Content-Length");
	REFUSED(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"smuggling: more than one Transfer-Encoding");
	REFUSED(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
		"smuggling: more than one Transfer-Encoding");
	REFUSED(POST "Content_Length: 5\r\n\r\n",
		"smuggling: '_' instead of '-' in a header's name");
	REFUSED(POST "Transfer_Encoding: chunked\r\n\r\n",
		"smuggling: '_' instead of '-' in a header's name");
	REFUSED(POST "Connection: close, Content-Length\r\n\r\n",
		"smuggling: Connection names a header that must stay");
	REFUSED(POST "Connection: x\r\nConnection: host\r\n\r\n",
		"smuggling: Connection names a header that must stay");
}

static void test_lengths_are_digits(void **state)
{
	static const char *const bad[] = { "+5", "-5", "0x5", "5 5", "5,5", "5, 5", "", " ", "5.0",
		"05", "00", "1234567890123456789", "99999999999999999999999", "5;", "\"5\"", "５" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		_cleanup_free_ char *text =
			xasprintf(POST "Content-Length: %s\r\n\r\nhello", bad[i]);

		expect(text, strlen(text), "", "smuggling: bad Content-Length", "");
	}
}

static void test_codings_other_than_chunked_are_refused(void **state)
{
	static const char *const bad[] = { "gzip, chunked", "chunked, gzip", "chunked, chunked",
		"identity", "xchunked", "chunked;q=1", "", "chunked,", ",chunked", "\"chunked\"",
		"chunk" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		_cleanup_free_ char *text = xasprintf(POST "Transfer-Encoding: %s\r\n\r\n", bad[i]);

		expect(text, strlen(text), "", "smuggling: Transfer-Encoding other than chunked",
			"");
	}
	REFUSED(POST "Transfer-Encoding: \vchunked\r\n\r\n", "control character in a head");
	REFUSED("POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n",
		"smuggling: Transfer-Encoding in HTTP/1.0");
}

#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static void test_chunks_are_framed_one_way(void **state)
{
	CUT_AFTER(CHUNKED "5", ";x=y\r\nhello\r\n", "smuggling: chunk extension");
	CUT_AFTER(CHUNKED "5", ";\nhello\r\n", "smuggling: chunk extension");
	CUT_AFTER(CHUNKED "5", " \r\nhello\r\n", "smuggling: bad chunk size");
	CUT_AFTER(CHUNKED "5", "\nhello\r\n", "smuggling: bad chunk size");
	CUT_AFTER(CHUNKED "5\r", "hello", "smuggling: CR without LF in a chunk's size");
	CUT_AFTER(CHUNKED "0", "x5\r\nhello", "smuggling: bad chunk size");
	CUT_AFTER(CHUNKED, "+5\r\nhello", "smuggling: bad chunk size");
	CUT_AFTER(CHUNKED, "-1\r\n", "smuggling: bad chunk size");
	CUT_AFTER(CHUNKED, "\r\n", "smuggling: bad chunk size");
	CUT_AFTER(CHUNKED "00000000", "5\r\nhello", "smuggling: chunk size too long");
	CUT_AFTER(CHUNKED "fffffffF", "F\r\n", "smuggling: chunk size too long");
	CUT_AFTER(CHUNKED "5\r\nhello", "world\r\n", "smuggling: chunk longer than its size");
	CUT_AFTER(CHUNKED "5\r\nhello", "\n0\r\n", "smuggling: chunk longer than its size");
	CUT_AFTER(CHUNKED "5\r\nhello\r", "0\r\n", "smuggling: CR without LF behind a chunk");
	CUT_AFTER(CHUNKED "0\r\n", "Host: b.test\r\n\r\n", "smuggling: trailer");
	CUT_AFTER(CHUNKED "0\r\n", "\n", "smuggling: trailer");
	CUT_AFTER(CHUNKED "0\r\n\r", "X", "smuggling: CR without LF behind the last chunk");
}

static void test_lines_end_one_way(void **state)
{
	REFUSED("GET / HTTP/1.1\nHost: a.test\n\n", "smuggling: LF without CR");
	REFUSED(LINE HOST "X: y\nZ: z\r\n\r\n", "smuggling: LF without CR");
	REFUSED(LINE HOST "\n", "smuggling: LF without CR");
	REFUSED(LINE HOST "X: y\rHost: b.test\r\n\r\n", "smuggling: CR without LF");
	REFUSED(LINE HOST "X: y\r\r\n\r\n", "smuggling: CR without LF");
	REFUSED("GET / HTTP/1.1\r\r\n" HOST "\r\n", "smuggling: CR without LF");
	REFUSED(LINE HOST "X: a\0b\r\n\r\n", "NUL in a head");
	REFUSED("GET /\0 HTTP/1.1\r\n" HOST "\r\n", "NUL in a head");
	REFUSED(LINE HOST "X: \x7f\r\n\r\n", "control character in a head");
	REFUSED(LINE HOST "X: a\r\n b\r\n\r\n", "smuggling: folded header");
	REFUSED(LINE " " HOST "\r\n", "smuggling: folded header");
	REFUSED(LINE HOST "Transfer-Encoding:\r\n\tchunked\r\n\r\n", "smuggling: folded header");
	REFUSED("\r\n" GET, "empty line before a request");
	CUT_AFTER(GET, "\r\n" GET, "empty line before a request");
}

static void test_headers_have_one_shape(void **state)
{
	REFUSED(LINE "Host : a.test\r\n\r\n", "smuggling: space before a colon");
	REFUSED(POST "Content-Length\t: 5\r\n\r\n", "smuggling: space before a colon");
	REFUSED(LINE HOST "X Y: z\r\n\r\n", "smuggling: space before a colon");
	REFUSED(LINE HOST "nothing\r\n\r\n", "header without a colon");
	REFUSED(LINE HOST ": nothing\r\n\r\n", "header without a name");
	REFUSED(LINE HOST "X\xff: y\r\n\r\n", "bad byte in a header's name");
	REFUSED(LINE HOST "X(: y\r\n\r\n", "bad byte in a header's name");
	REFUSED(LINE HOST "X-HTTP-Method-Override: DELETE\r\n\r\n",
		"a header that changes the method");
	REFUSED(LINE HOST "X-Original-URL: /admin\r\n\r\n", "a header that changes the path");
}

static void test_request_line_has_one_shape(void **state)
{
	REFUSED("CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n", "CONNECT");
	REFUSED("CONNECT / HTTP/1.1\r\n" HOST "\r\n", "CONNECT");
	REFUSED("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 preface");
	REFUSED("get / HTTP/1.1\r\n" HOST "\r\n", "bad method");
	REFUSED("connect b.test:443 HTTP/1.1\r\n" HOST "\r\n", "bad method");
	REFUSED(" GET / HTTP/1.1\r\n" HOST "\r\n", "bad method");
	REFUSED("ABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1\r\n" HOST "\r\n", "bad method");
	REFUSED("GET  / HTTP/1.1\r\n" HOST "\r\n", "not HTTP/1");
	REFUSED("GET / HTTP/1.1 \r\n" HOST "\r\n", "not HTTP/1");
	REFUSED("GET /a b HTTP/1.1\r\n" HOST "\r\n", "not HTTP/1");
	REFUSED("GET /\r\n\r\n", "not HTTP/1");
	REFUSED("GET / HTTP/2.0\r\n" HOST "\r\n", "not HTTP/1");
	REFUSED("GET / HTTP/1.2\r\n" HOST "\r\n", "not HTTP/1");
	REFUSED("GET / http/1.1\r\n" HOST "\r\n", "not HTTP/1");
	REFUSED("GET\t/\tHTTP/1.1\r\n" HOST "\r\n", "bad method");
	REFUSED("GET /\t HTTP/1.1\r\n" HOST "\r\n", "bad byte in a target");
	REFUSED("GET /\xa0 HTTP/1.1\r\n" HOST "\r\n", "bad byte in a target");
	REFUSED("GET /#x HTTP/1.1\r\n" HOST "\r\n", "bad byte in a target");
	REFUSED("GET x HTTP/1.1\r\n" HOST "\r\n", "bad target");
	REFUSED("GET * HTTP/1.1\r\n" HOST "\r\n", "bad target");
	REFUSED("GET https://a.test/ HTTP/1.1\r\n" HOST "\r\n", "bad target");
	REFUSED("GET http:///x HTTP/1.1\r\n" HOST "\r\n", "bad host in a target");
	REFUSED("GET http://a.test?x HTTP/1.1\r\n" HOST "\r\n", "target without a path");
}

static void test_host_is_one_plain_host(void **state)
{
	static const char *const bad[] = { "", "x@a.test", "x:y@a.test", "a.test:", "a.test:0",
		"a.test:080", "a.test:65536", "a.test:80:80", "a.test:8x", "a.test/",
		"a.test, b.test", "a.test b.test", "::1", "[::1", "[::1]80", "[::1]:", "[a.test]",
		"[192.0.2.1]", "[]", "[fe80::1%25lo]", "[::1]]", "127.1", "0x7f000001", "a..test",
		"a%2etest", "*", "a.test\\", "http://a.test", "localhost", "b\xc3\xbc.test", "." };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		_cleanup_free_ char *text = xasprintf(LINE "Host: %s\r\n\r\n", bad[i]);

		expect(text, strlen(text), "", "bad Host", "");
	}
	REFUSED(LINE "\r\n", "no Host");
	REFUSED(LINE HOST HOST "\r\n", "smuggling: more than one Host");
	REFUSED(LINE HOST "HOST: b.test\r\n\r\n", "smuggling: more than one Host");
	REFUSED("GET / HTTP/1.0\r\nHost:\r\n\r\n", "bad Host");
}

static void test_absolute_target_must_be_the_host(void **state)
{
	static const char why[] = "smuggling: Host is not the target's";

	REFUSED("GET http://b.test/ HTTP/1.1\r\n" HOST "\r\n", why);
	REFUSED("GET http://a.test:81/ HTTP/1.1\r\n" HOST "\r\n", why);
	REFUSED("GET http://a.test/ HTTP/1.1\r\nHost: a.test:8080\r\n\r\n", why);
	REFUSED("GET http://x@a.test/ HTTP/1.1\r\n" HOST "\r\n", "bad host in a target");
	REFUSED("GET http://a.test@b.test/ HTTP/1.1\r\n" HOST "\r\n", "bad host in a target");
	REFUSED("GET http://a.test/ HTTP/1.1\r\n\r\n", "no Host");
}

static void test_sizes_are_bounded(void **state)
{
	struct buf text = BUF_INIT;

	buf_add_str(&text, LINE HOST);
	for (int i = 0; i < HTTP_GUARD_HEADERS_MAX; i++)
		buf_addf(&text, "X: %d\r\n", i);
	buf_add_str(&text, "\r\n");
	expect((char *)buf_head(&text), text.len, "", "too many headers", "");

	text.len = 0;
	buf_add_str(&text, LINE HOST "X: ");
	while (text.len < HTTP_GUARD_HEAD_MAX - 4)
		buf_add_str(&text, "x");
	buf_add_str(&text, "\r\n\r\n");
	expect((char *)buf_head(&text), text.len, NULL, NULL, "GET / a.test:0;");
	text.len -= 4;
	buf_add_str(&text, "x\r\n\r\n");
	expect((char *)buf_head(&text), text.len, "", "head too long", "");

	text.len = 0;
	buf_add_str(&text, "GET /");
	while (text.len < 4 + HTTP_GUARD_PATH_MAX)
		buf_add_str(&text, "x");
	buf_add_str(&text, " HTTP/1.1\r\n" HOST "\r\n");
	expect((char *)buf_head(&text), text.len, NULL, NULL, NULL);
	text.len = 5;
	while (text.len < 5 + HTTP_GUARD_PATH_MAX)
		buf_add_str(&text, "x");
	buf_add_str(&text, " HTTP/1.1\r\n" HOST "\r\n");
	expect((char *)buf_head(&text), text.len, "", "path too long", "");
	buf_done(&text);
}

static void test_nothing_passes_after_a_refusal(void **state)
{
	struct run run;

	run_begin(&run);
	client(&run, LINE "\r\n");
	assert_string_equal(run.why, "no Host");
	assert_false(http_guard_wants(run.guard));
	client(&run, GET);
	assert_string_equal(run.why, "no Host");
	server(&run, "HTTP/1.1 101 x\r\n\r\n");
	assert_string_equal(run.why, "no Host");
	assert_int_equal(run.out.len, 0);
	run_end(&run);
}

/* ---- upgrades ------------------------------------------------------------------------------- */

#define SWITCH	"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
#define KEY	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define UPGRADE LINE HOST SWITCH KEY "\r\n"

static void assert_out(struct run *run, const char *text)
{
	assert_null(run->why);
	assert_string_equal(buf_str(&run->out), text);
}

static void test_upgrade_opens_after_101(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		static const char answer[] =
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: "
			"<x>\r\n\r\nHTTP/1.1 101 Switching\r\nX: y\r\n\r\n\x81";
		struct run run;

		run_begin(&run);
		feed(&run, false, UPGRADE "\201frame", sizeof UPGRADE "\201frame" - 1, sizes[i]);
		assert_out(&run, UPGRADE);
		assert_string_equal(buf_str(&run.seen), "GET / a.test:0 upgrade;");
		assert_false(http_guard_wants(run.guard));
		assert_true(http_guard_watches_server(run.guard));
		feed(&run, true, answer, sizeof answer - 4, sizes[i]);
		assert_out(&run, UPGRADE);
		assert_false(http_guard_is_open(run.guard));
		feed(&run, true, answer + sizeof answer - 4, 3, sizes[i]);
		assert_out(&run, UPGRADE "\201frame");
		assert_true(http_guard_is_open(run.guard));
		assert_true(http_guard_wants(run.guard));
		assert_false(http_guard_watches_server(run.guard));
		client(&run, "any\nthing\r\n\r\n");
		assert_out(&run, UPGRADE "\201frameany\nthing\r\n\r\n");
		run_end(&run);
	}
}

static void test_upgrade_that_is_refused_goes_on_as_http(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		static const char answer[] = "HTTP/1.1 426 Upgrade Required\r\nContent-Length: "
					     "24\r\n\r\nHTTP/1.1 101 x\r\n\r\n";
		struct run run;

		run_begin(&run);
		feed(&run, false, UPGRADE GET "GET /2", sizeof UPGRADE GET "GET /2" - 1, sizes[i]);
		assert_out(&run, UPGRADE);
		feed(&run, true, answer, sizeof answer - 1, sizes[i]);
		assert_out(&run, UPGRADE GET);
		assert_false(http_guard_is_open(run.guard));
		assert_true(http_guard_wants(run.guard));
		client(&run, " HTTP/1.1\r\n" HOST "\r\n");
		assert_string_equal(buf_str(&run.seen),
			"GET / a.test:0 upgrade;GET / a.test:0;GET /2 a.test:0;");
		run_end(&run);

		run_begin(&run);
		client(&run, UPGRADE LINE "Host: refused.test\r\n\r\n");
		assert_null(run.why);
		feed(&run, true, answer, sizeof answer - 1, sizes[i]);
		assert_string_equal(run.why, "request refused");
		assert_string_equal(buf_str(&run.out), UPGRADE);
		run_end(&run);
	}
}

/* Some clients offer HTTP/2 with every first request. It goes on; what must not come about is the
 * switch. */
static void test_an_offer_of_h2c_is_not_taken(void **state)
{
	static const char offer[] = LINE HOST
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n";
	static const char plain[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
	static const char taken[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n";
	struct run run;

	(void)state;
	run_begin(&run);
	client(&run, offer);
	assert_null(run.why);
	assert_out(&run, offer);
	feed(&run, true, plain, sizeof plain - 1, 7);
	assert_null(run.why);
	assert_false(http_guard_is_open(run.guard));
	client(&run, LINE "Host: refused.test\r\n\r\n");
	assert_string_equal(run.why, "request refused");
	run_end(&run);

	run_begin(&run);
	client(&run, offer);
	feed(&run, true, taken, sizeof taken - 1, 7);
	assert_string_equal(run.why, "upgrade to HTTP/2");
	run_end(&run);
}

static void test_upgrade_has_one_shape(void **state)
{
	static const char other[] = "upgrade to something other than websocket";
	static const char bad[] = "bad websocket handshake";

	REFUSED(LINE HOST "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n" KEY "\r\n", other);
	REFUSED(LINE HOST "Upgrade: TLS/1.0\r\nConnection: Upgrade\r\n\r\n", other);
	REFUSED(LINE HOST SWITCH "Upgrade: h2c\r\n\r\n", "smuggling: more than one Upgrade");
	REFUSED(LINE HOST SWITCH "\r\n", bad);
	REFUSED(LINE HOST "Upgrade: websocket\r\n" KEY "\r\n", bad);
	REFUSED(LINE HOST SWITCH "Sec-WebSocket-Version: 12\r\nSec-WebSocket-Key: "
				 "dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
		bad);
	REFUSED(POST SWITCH KEY "\r\n", bad);
	REFUSED("GET / HTTP/1.0\r\n" HOST SWITCH KEY "\r\n", bad);
	REFUSED(LINE HOST SWITCH KEY "Content-Length: 5\r\n\r\nhello", bad);
	REFUSED(LINE HOST SWITCH KEY "Transfer-Encoding: chunked\r\n\r\n", bad);
	CUT_AFTER(GET, UPGRADE, "upgrade on a connection that was used before");
}

static void test_answer_to_an_upgrade_is_http(void **state)
{
	static const char *const bad[] = { "\n\n", "HTTP/2 101 x\r\n\r\n", "HTTP/1.1 10\r\n\r\n",
		"HTTP/1.1\t101 x\r\n\r\n", "SSH-2.0-x\r\n" };
	struct buf text = BUF_INIT;
	struct run run;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		run_begin(&run);
		client(&run, UPGRADE "x");
		server(&run, bad[i]);
		assert_string_equal(run.why, "the answer to an upgrade is not HTTP");
		assert_string_equal(buf_str(&run.out), UPGRADE);
		run_end(&run);
	}
	for (int i = 0; i < 3000; i++)
		buf_add_str(&text, "HTTP/1.1 100 x\r\n\r\n");
	run_begin(&run);
	client(&run, UPGRADE);
	server(&run, buf_str(&text));
	assert_string_equal(run.why, "the answer to an upgrade is too long");
	run_end(&run);
	buf_done(&text);
}

static void test_held_back_bytes_are_bounded(void **state)
{
	static char much[HTTP_GUARD_HEAD_MAX + 1];
	struct run run;

	run_begin(&run);
	client(&run, UPGRADE);
	feed(&run, false, much, sizeof much - 1, sizeof much);
	assert_null(run.why);
	feed(&run, false, much, 1, 1);
	assert_string_equal(run.why, "too much behind an upgrade that is not answered yet");
	run_end(&run);
}

/* ---- bodies that are not looked at ---------------------------------------------------------- */

static void test_plain_bodies_may_be_skipped(void **state)
{
	struct run run;

	run_begin(&run);
	client(&run, POST "Content-Length: 100000000000\r\n\r\nhello");
	assert_int_equal(http_guard_plain(run.guard), 100000000000 - 5);
	http_guard_skip(run.guard, 100000000000 - 6);
	assert_int_equal(http_guard_plain(run.guard), 1);
	http_guard_skip(run.guard, 1);
	assert_int_equal(http_guard_plain(run.guard), 0);
	client(&run, CHUNKED "ff\r\n");
	assert_int_equal(http_guard_plain(run.guard), 255);
	http_guard_skip(run.guard, 255);
	assert_int_equal(http_guard_plain(run.guard), 0);
	client(&run, "\r\n0\r\n\r\n" GET);
	assert_null(run.why);
	assert_string_equal(buf_str(&run.seen), "POST / a.test:0;POST / a.test:0;GET / a.test:0;");
	run_end(&run);
}

/* ---- the guess ------------------------------------------------------------------------------ */

static void expect_guess(const char *text, size_t len, enum http_guess wanted)
{
	enum http_guess now = HTTP_GUESS_MORE;

	for (size_t i = 0; i <= len; i++) {
		_cleanup_free_ uint8_t *copy = xmemdup(text, i);
		enum http_guess next = http_guess(copy, i);

		if (now != HTTP_GUESS_MORE && next != now)
			fail_msg("'%s' changes from %d to %d at %zu", text, now, next, i);
		now = next;
	}
	if (now != wanted)
		fail_msg("'%s' is %d, not %d", text, now, wanted);
}

static void test_first_bytes_are_guessed(void **state)
{
	static const char *const yes[] = { "GET / HTTP/1.1", "get /", "\r\n\r\nGET /", " \tGET\t/",
		"WHAT-EVER  /x", "OPTIONS *", "PRI * HTTP/2.0", "CONNECT b.test:443",
		"connect [::1]:1", "GET http://a", "GET HTTPS://a", "0GET /",
		"0032git-upload-pack /x HTTP/1.1\r\n" };
	static const char *const no[] = { "EHLO a.test", "NICK ada", "get key\r\n", "PING\r\n",
		"*1\r\n$4\r\nPING\r\n", "CONNECT {\"verbose\":true}",
		"CONNECT\naccept-version:1.2\n", "SSH-2.0-OpenSSH_9.2 Debian", "@RSYNCD: 31.0\n",
		"{\"a\":1}", "\x16\3\1", "GET httpx", "a1 LOGIN x", "( 2 ( edit", "/", "GET\r\n/" };
	static const char *const more[] = { "", "\r\n\r\n", "GET", "GET ", "GET http", "GET https",
		"0032git-upload-pack /x" };
	static const char git[] = "0032git-upload-pack /project.git\0host=a.test\0";
	static const char start_up[] = "\0\0\0\x08\x04\xd2\x16\x2f";
	char words[1100], blanks[1100];

	for (size_t i = 0; i < ARRAY_LEN(yes); i++)
		expect_guess(yes[i], strlen(yes[i]), HTTP_GUESS_YES);
	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		expect_guess(no[i], strlen(no[i]), HTTP_GUESS_NO);
	for (size_t i = 0; i < ARRAY_LEN(more); i++)
		expect_guess(more[i], strlen(more[i]), HTTP_GUESS_MORE);
	expect_guess(git, sizeof git - 1, HTTP_GUESS_NO);
	expect_guess(start_up, sizeof start_up - 1, HTTP_GUESS_NO);
	/* long words are something else, long blanks may hide a request */
	memset(words, 'A', sizeof words);
	expect_guess(words, sizeof words, HTTP_GUESS_NO);
	memset(blanks, '\n', sizeof blanks);
	expect_guess(blanks, sizeof blanks, HTTP_GUESS_YES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests_pass_and_are_asked_for),
		cmocka_unit_test(test_bodies_pass),
		cmocka_unit_test(test_each_pipelined_request_is_asked_for),
		cmocka_unit_test(test_two_lengths_are_refused),
		cmocka_unit_test(test_lengths_are_digits),
		cmocka_unit_test(test_codings_other_than_chunked_are_refused),
		cmocka_unit_test(test_chunks_are_framed_one_way),
		cmocka_unit_test(test_lines_end_one_way),
		cmocka_unit_test(test_headers_have_one_shape),
		cmocka_unit_test(test_request_line_has_one_shape),
		cmocka_unit_test(test_host_is_one_plain_host),
		cmocka_unit_test(test_absolute_target_must_be_the_host),
		cmocka_unit_test(test_sizes_are_bounded),
		cmocka_unit_test(test_nothing_passes_after_a_refusal),
		cmocka_unit_test(test_upgrade_opens_after_101),
		cmocka_unit_test(test_upgrade_that_is_refused_goes_on_as_http),
		cmocka_unit_test(test_an_offer_of_h2c_is_not_taken),
		cmocka_unit_test(test_upgrade_has_one_shape),
		cmocka_unit_test(test_answer_to_an_upgrade_is_http),
		cmocka_unit_test(test_held_back_bytes_are_bounded),
		cmocka_unit_test(test_plain_bodies_may_be_skipped),
		cmocka_unit_test(test_first_bytes_are_guessed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
