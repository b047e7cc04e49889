/* chunked.h - the chunked transfer coding (RFC 9112, 7.1), strictly and without keeping data;
 * pure */
#pragma once
#include "base/buf.h"
#include <stddef.h>
#include <stdint.h>

enum chunked_state {
	CHUNKED_SIZE,	   /* at the first hex digit of a size line */
	CHUNKED_SIZE_MORE, /* after at least one digit */
	CHUNKED_EXTENSION, /* from ';' to the end of the line; passed over */
	CHUNKED_SIZE_LF,
	CHUNKED_DATA,
	CHUNKED_DATA_CR,
	CHUNKED_DATA_LF,
	CHUNKED_TRAILER,      /* at the start of a trailer line or the last, empty one */
	CHUNKED_TRAILER_LINE, /* inside a trailer line; passed over */
	CHUNKED_TRAILER_LF,
	CHUNKED_END_LF,
	CHUNKED_END,
	CHUNKED_BAD,
};

struct chunked {
	enum chunked_state state;
	unsigned digits;   /* of the size line at hand */
	unsigned overhead; /* bytes of extension, or of all trailers */
	uint64_t left;	   /* of the chunk at hand */
	/* gets the trailers' lines, each with its CR LF; NULL: nobody wants them */
	struct buf *trailers;
};

#define CHUNKED_INIT \
	{            \
		0    \
	}

/* Takes bytes up to the end of a run of data, the end of the body or the end of the input, and
 * tells how many. A run of data is in *ret_data, *ret_len (0 when there is none). Look at state
 * afterwards. */
size_t chunked_take(struct chunked *chunked, const char *data, size_t len, const char **ret_data,
	size_t *ret_len);
