/* fuzz_http.c - arbitrary bytes into the request parser and the URL splitter
 *
 * The first byte says how the rest is cut into reads. Every input is parsed twice, cut and whole:
 * how bytes arrive must not change what they mean. Seeds are built in: the custom mutator starts
 * from one of them now and then, so that no corpus has to be kept. */
#include "base/alloc.h"
#include "http/parse.h"
#include "http/url.h"
#include <assert.h>
#include <stdint.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const seeds[] = {
	"\x01GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"\x03GET /v1/boxes?label=a%3Db&x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX:\r\n\r\n",
	"\x07POST /a%20b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: "
	"100-continue\r\n\r\nhelloGET /",
	"\x02PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
	"chunked\r\n\r\n3;e=f\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
	"\x05GET / HTTP/1.0\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: "
	"13\r\n\r\n",
	"\x09POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
	"\x04GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	if (seed % 64 == 0 || !size) {
		const char *text = seeds[seed / 64 % ARRAY_LEN(seeds)];

		size = MIN(strlen(text), max_size);
		memcpy(data, text, size);
	}
	return LLVMFuzzerMutate(data, size, max_size);
}

/* What a run saw, folded into a number that does not depend on where body bytes were cut. */
struct seen {
	uint64_t hash;
	unsigned heads, ends;
	int refused;
};

static void fold(struct seen *seen, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		seen->hash = (seen->hash ^ (uint8_t)data[i]) * 0x100000001b3;
}

static void check_head(const struct http_head *head, struct seen *seen)
{
	struct url url = URL_INIT;

	assert(head->count <= HTTP_HEADERS_MAX && head->method && head->target);
	assert(!(head->chunked && head->length));
	assert(!head->minor || http_head_get(head, "host"));
	for (unsigned i = 0; i < head->count; i++) {
		fold(seen, head->headers[i].name, strlen(head->headers[i].name) + 1);
		fold(seen, head->headers[i].value, strlen(head->headers[i].value) + 1);
		assert(!strpbrk(head->headers[i].value, "\r\n"));
	}
	fold(seen, head->target, strlen(head->target) + 1);
	if (url_split(head->target, &url, NULL) < 0)
		return;
	assert(url.path[0] == '/' && url.count <= URL_PAIRS_MAX);
	fold(seen, url.path, strlen(url.path));
	for (size_t i = 0; i < url.count; i++) {
		assert(url_query(&url, url.pairs[i].key));
		fold(seen, url.pairs[i].value, strlen(url.pairs[i].value) + 1);
	}
	url_done(&url);
}

static struct seen run(const char *data, size_t size, size_t step)
{
	struct http_parse parse = HTTP_PARSE_INIT;
	struct http_piece piece = { .kind = HTTP_PIECE_MORE };
	struct seen seen = { .hash = 0xcbf29ce484222325 };

	for (size_t at = 0; at < size && !seen.refused; at += step) {
		/* An exact copy: reading past its end is found out. */
		size_t len = MIN(step, size - at);
		_cleanup_free_ char *chunk = xmemdup(data + at, len);
		size_t used = 0;

		do {
			used += http_parse_next(&parse, chunk + used, len - used, &piece);
			assert(used <= len);
			if (piece.kind == HTTP_PIECE_HEAD) {
				seen.heads++;
				check_head(&parse.head, &seen);
			} else if (piece.kind == HTTP_PIECE_BODY) {
				assert(piece.len && piece.data + piece.len <= chunk + len);
				fold(&seen, piece.data, piece.len);
			} else if (piece.kind == HTTP_PIECE_END) {
				seen.ends++;
			} else if (piece.kind == HTTP_PIECE_BAD) {
				seen.refused = piece.status;
			}
		} while (piece.kind != HTTP_PIECE_MORE && !seen.refused);
		assert(seen.refused || used == len);
	}
	assert(seen.ends == seen.heads || seen.ends + 1 == seen.heads);
	http_parse_done(&parse);
	return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen cut, whole;

	if (size < 2)
		return 0;
	cut = run((const char *)data + 1, size - 1, (size_t)data[0] + 1);
	whole = run((const char *)data + 1, size - 1, size);
	assert(cut.hash == whole.hash && cut.heads == whole.heads && cut.ends == whole.ends);
	assert(cut.refused == whole.refused);
	return 0;
}
