/* fuzz_answer.c - arbitrary bytes as the answer of a box, and what of it goes on to the client
 *
 * The first byte says how the rest is cut into reads, and what was asked. Every input is read
 * twice, cut and whole: how bytes arrive must not change what they mean. Whatever is accepted must
 * come out as whole, plain lines. */
#include "base/alloc.h"
#include "ingress/answer.h"
#include "ingress/headers.h"
#include <assert.h>
#include <stdint.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define H "HTTP/1.1 200 OK\r\n"

static const char *const seeds[] = {
	"\x05" H "Content-Length: 5\r\nSet-Cookie: a=b; Domain=c; Path=/\r\n\r\nhello",
	"\x09" H
	"Transfer-Encoding: chunked\r\n\r\n3;e=f\r\nabc\r\n0\r\nT: u\r\nSet-Cookie: x\r\n\r\nHTTP/",
	"\x03HTTP/1.0 404 Not Found\r\nConnection: X-Hop, close\r\nX-Hop: 1\r\n\r\nto the end",
	"\x07HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" H
	"Content-Length: 0\r\n\r\n",
	"\x82HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nbytes",
	"\x44HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
	"\x05" H "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
	"\x06" H "A: b\r\n folded\r\n\r\n",
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

/* Lines that end with CR LF, have a name, and no other control byte. */
static void check_lines(struct buf *lines)
{
	const char *at = buf_str(lines), *end = at + lines->len;

	while (at < end) {
		const char *lf = memchr(at, '\n', (size_t)(end - at));
		const char *colon;

		assert(lf && lf > at && lf[-1] == '\r');
		colon = memchr(at, ':', (size_t)(lf - at));
		assert(colon && answer_name_is_good(at, (size_t)(colon - at)));
		assert(answer_value_is_good(colon, (size_t)(lf - 1 - colon)));
		at = lf + 1;
	}
}

struct seen {
	uint64_t hash;
	bool refused, over;
};

static void fold(struct seen *seen, const void *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		seen->hash = (seen->hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
}

static void see_head(const struct answer *answer, struct seen *seen)
{
	struct buf lines = BUF_INIT;

	assert(answer->status >= 101 && answer->status <= 599);
	assert(answer_value_is_good(answer->reason, strlen(answer->reason)));
	headers_put_answer(answer, answer->status == 101, &lines);
	check_lines(&lines);
	assert(!strcasestr(buf_str(&lines), "\r\ncontent-length:"));
	fold(seen, buf_head(&lines), lines.len);
	fold(seen, &answer->status, sizeof answer->status);
	buf_done(&lines);
}

static struct seen run(const char *data, size_t size, size_t step, bool to_head, bool upgrade)
{
	struct seen seen = { .hash = 0xcbf29ce484222325 };
	struct answer answer = { 0 };
	struct buf trailers = BUF_INIT;

	answer_reset(&answer, to_head, upgrade);
	for (size_t at = 0; at < size && !seen.refused && !seen.over; at += step) {
		/* An exact copy: reading past its end is found out. */
		size_t len = MIN(step, size - at), used = 0;
		_cleanup_free_ char *chunk = xmemdup(data + at, len);
		struct answer_piece piece;

		do {
			used += answer_next(&answer, chunk + used, len - used, &piece);
			assert(used <= len);
			seen.refused = piece.kind == ANSWER_BAD;
			seen.over = piece.kind == ANSWER_END;
			if (piece.kind == ANSWER_BODY)
				fold(&seen, piece.data, piece.len);
			if (piece.kind != ANSWER_HEAD)
				continue;
			see_head(&answer, &seen);
			seen.over = answer.status == 101;
		} while (piece.kind != ANSWER_MORE && !seen.refused && !seen.over);
	}
	if (seen.over && answer.status != 101) {
		headers_put_trailers(&answer, &trailers);
		check_lines(&trailers);
		fold(&seen, buf_head(&trailers), trailers.len);
	}
	buf_done(&trailers);
	answer_done(&answer);
	return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen cut, whole;

	if (!size)
		return 0;
	cut = run(
		(const char *)data + 1, size - 1, data[0] % 32 + 1, data[0] & 0x40, data[0] & 0x80);
	whole = run((const char *)data + 1, size - 1, size, data[0] & 0x40, data[0] & 0x80);
	assert(cut.refused == whole.refused && cut.over == whole.over);
	assert(cut.refused || cut.hash == whole.hash);
	return 0;
}
