/* fuzz_gate_input.c - arbitrary bytes as the first of a connection: TLS hello, HTTP requests, or a
 * guess
 *
 * The first byte is the size of the pieces; what follows is read as a hello and as a client's
 * requests, up to a line of the server's ("\nS:"), which is its answer. In pieces the outcome must
 * be the one of the whole, what passes must be the client's own bytes in their order, and what is
 * asked for must be clean. */
#include "gate/relay/http_guard.h"
#include "gate/relay/tls_hello.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* ---- seeds ---------------------------------------------------------------------------------- */

#define SEED(text)                     \
	{                              \
		text, sizeof(text) - 1 \
	}
#define GET    "GET /x HTTP/1.1\r\nHost: a.test\r\n"
#define POST   "POST /y?z HTTP/1.1\r\nHost: a.test:81\r\n"
#define RANDOM "0123456789abcdef0123456789abcdef"
#define SNI    "\0\0\0\x0b\0\x09\0\0\6a.test"

static const struct {
	const char *bytes;
	size_t len;
} seeds[] = {
	SEED("\1\x16\3\1\0\x46\1\0\0\x42\3\3" RANDOM "\0\0\2\x13\1\1\0\0\x17\x0a\x0a\0\0" SNI
	     "\xfe\x0d\0\0"),
	SEED("\3\x16\3\1\0\5\1\0\0\x42\3\x16\3\1\0\x41\3" RANDOM
	     "\0\0\2\x13\1\1\0\0\x17\x0a\x0a\0\0" SNI "\xfe\x0d\0\0"),
	SEED("\5\x80\x2e\1\3\3\0\x15\0\0\0\x10"),
	SEED("\2" GET "\r\n" POST "Content-Length: 5\r\n\r\nhello" GET "\r\n"),
	SEED("\7" POST
	     "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0a\r\n0123456789\r\n0\r\n\r\n"
	     "GET http://[::1]:80/ HTTP/1.0\r\nHost: [::1]\r\n\r\n"),
	SEED("\4" GET "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
	     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n" GET
	     "\r\n\nS:HTTP/1.1 103 x\r\n\r\nHTTP/1.1 101 y\r\nA: b\r\n\r\nframe"),
	SEED("\4" GET "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n" GET
	     "\r\n\nS:HTTP/1.1 426 x\r\n\r\n"),
	SEED("\1"
	     "003fgit-upload-pack /x\0host=a\0"),
};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	if (seed % 32 == 0 || !size) {
		size_t which = seed / 32 % ARRAY_LEN(seeds);

		size = MIN(seeds[which].len, max_size);
		memcpy(data, seeds[which].bytes, size);
	}
	return LLVMFuzzerMutate(data, size, max_size);
}

/* ---- TLS ------------------------------------------------------------------------------------ */

static bool is_clean_host(const char *text)
{
	for (; *text; text++)
		if (*text <= ' ' || *text >= 0x7f ||
			strchr("/@[]\\,;%ABCDEFGHIJKLMNOPQRSTUVWXYZ", *text))
			return false;
	return true;
}

static void read_hello(const uint8_t *data, size_t size, size_t piece)
{
	struct tls_hello hello, again;
	enum tls_hello_result whole = tls_hello_parse(data, size, &hello), now = TLS_HELLO_MORE;
	size_t at = 0;

	do {
		at = MIN(at + piece, size);
		now = tls_hello_parse(data, at, &again);
	} while (now == TLS_HELLO_MORE && at < size);
	assert(now == whole);
	if (whole == TLS_HELLO_NAMED) {
		assert(hello.name[0] && !strcmp(hello.name, again.name));
		assert(strlen(hello.name) < DNS_HOST_MAX && is_clean_host(hello.name));
	}
}

/* ---- HTTP ----------------------------------------------------------------------------------- */

static bool allow(void *arg, const struct http_guard_request *request)
{
	unsigned *count = arg;

	++*count;
	assert(strlen(request->host) < DNS_HOST_MAX && is_clean_host(request->host));
	assert(request->path[0] == '/' || !strcmp(request->path, "*"));
	assert(strlen(request->path) <= HTTP_GUARD_PATH_MAX);
	assert(!strpbrk(request->path, " \t\r\n#"));
	assert(request->method[0] && !strpbrk(request->method, " \t\r\n:/"));
	assert(strcmp(request->method, "CONNECT") != 0 && strcmp(request->method, "PRI") != 0);
	return *request->path != '/' || request->path[1] != '!';
}

static const struct http_guard_ops ops = { allow };

struct run {
	struct http_guard *guard;
	struct buf out;
	unsigned count;
	const char *why;
};

static const char *feed(
	struct run *run, bool server, const uint8_t *data, size_t size, size_t piece)
{
	const char *why = NULL;

	for (size_t at = 0; at < size && !why; at += piece)
		why = (server ? http_guard_server : http_guard_client)(
			run->guard, data + at, MIN(piece, size - at), &run->out);
	return why;
}

static void run_all(struct run *run, const uint8_t *data, size_t size, const uint8_t *answer,
	size_t answer_size, size_t piece)
{
	*run = (struct run){ 0 };
	run->guard = http_guard_new(&ops, &run->count);
	run->why = feed(run, false, data, size, piece);
	assert(run->out.len <= size);
	if (!run->why && http_guard_watches_server(run->guard)) {
		assert(!http_guard_wants(run->guard) && run->count == 1);
		run->why = feed(run, true, answer, answer_size, piece);
	}
	/* its own bytes, in their order */
	assert(run->out.len <= size &&
		(!run->out.len || !memcmp(data, buf_head(&run->out), run->out.len)));
	assert(!run->out.len || run->count);
	assert(!http_guard_is_open(run->guard) || run->out.len == size);
}

static void read_requests(const uint8_t *data, size_t size, size_t piece)
{
	const uint8_t *answer = memmem(data, size, "\nS:", 3);
	size_t len = answer ? (size_t)(answer - data) : size;
	size_t answer_len = answer ? size - len - 3 : 0;
	struct run whole, pieces;

	answer = answer ? answer + 3 : NULL;
	run_all(&whole, data, len, answer, answer_len, SIZE_MAX / 2);
	run_all(&pieces, data, len, answer, answer_len, piece);
	assert(whole.why == pieces.why && whole.count == pieces.count);
	assert(whole.out.len == pieces.out.len);
	assert(http_guard_plain(whole.guard) == http_guard_plain(pieces.guard));
	/* what passes as a request is one by the guess, too */
	assert(!whole.count || http_guess(data, len) == HTTP_GUESS_YES);
	buf_done(&whole.out);
	buf_done(&pieces.out);
	http_guard_free(whole.guard);
	http_guard_free(pieces.guard);
}

static void read_guess(const uint8_t *data, size_t size, size_t piece)
{
	enum http_guess whole = http_guess(data, size), now = HTTP_GUESS_MORE;

	for (size_t at = 0; at < size && now == HTTP_GUESS_MORE;) {
		at = MIN(at + piece, size);
		now = http_guess(data, at);
	}
	assert(now == whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t piece;

	if (!size)
		return 0;
	piece = data[0] ? data[0] : 1;
	read_hello(data + 1, size - 1, piece);
	read_requests(data + 1, size - 1, piece);
	read_guess(data + 1, size - 1, piece);
	return 0;
}
