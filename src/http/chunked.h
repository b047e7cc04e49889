/* chunked.h - the chunked transfer coding (RFC 9112, 7.1), strict, keeps no data; pure */
#pragma once
#include "base/buf.h"
#include <stddef.h>
#include <stdint.h>

enum chunked_state {
	CHUNKED_SIZE,	   /* at the first hex digit of a size line */
	CHUNKED_SIZE_MORE, /* after at least one digit */
	CHUNKED_EXTENSION, /* from ';' to the end of the line; skipped */
	CHUNKED_SIZE_LF,
	CHUNKED_DATA,
	CHUNKED_DATA_CR,
	CHUNKED_DATA_LF,
	CHUNKED_TRAILER,      /* at the start of a trailer line or the last, empty one */
	CHUNKED_TRAILER_LINE, /* inside a trailer line; skipped */
	CHUNKED_TRAILER_LF,
	CHUNKED_END_LF,
	CHUNKED_END,
	CHUNKED_BAD,
};

struct chunked {
	enum chunked_state state;
	unsigned digits;   /* digits of the present size line */
	unsigned overhead; /* bytes of extension, or of all trailers */
	uint64_t left;	   /* bytes left of the present chunk */
	/* gets the trailer lines, each with its CR LF; NULL: they are dropped */
	struct buf *trailers;
};

#define CHUNKED_INIT \
	{            \
		0    \
	}

/* Consumes bytes up to the end of a run of data, of the body or of the input, and returns how many.
 * A run of data is in *ret_data, *ret_len (0 when there is none). The caller checks state
 * afterwards. */
size_t chunked_take(struct chunked *chunked, const char *data, size_t len, const char **ret_data,
	size_t *ret_len);
