/* answer.h - HTTP/1.1 answers from the bytes of a box, strictly; pure
 *
 *   HEAD  BODY*  END
 *
 * One piece at a time, as in http/parse.h. Whatever two readers could understand differently is
 * refused: the box is hostile, and what it says goes out again on a connection that carries other
 * answers too. Interim answers (1xx) are passed over, but for the 101 that was asked for. */
#pragma once
#include "base/buf.h"
#include "http/chunked.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	ANSWER_HEAD_MAX = 32768,
	ANSWER_HEADERS_MAX = 128,
	ANSWER_INTERIM_MAX = 16,
};

enum answer_kind { ANSWER_MORE, ANSWER_HEAD, ANSWER_BODY, ANSWER_END, ANSWER_BAD };

struct answer_piece {
	enum answer_kind kind;
	const char *data; /* BODY: borrowed from the input */
	size_t len;
	const char *why; /* BAD */
};

struct answer_header {
	char *name;
	char *value;
};

enum answer_body { BODY_NONE_AT_ALL, BODY_COUNTED, BODY_CHUNKED, BODY_UNTIL_CLOSE };

enum answer_state { ANSWER_IN_HEAD, ANSWER_IN_BODY, ANSWER_IS_OVER, ANSWER_IS_BAD };

struct answer {
	bool to_head; /* the request was HEAD */
	bool upgrade; /* it asked for another protocol */
	enum answer_state state;
	struct buf text; /* the head's bytes */
	size_t scanned;
	unsigned interims;
	int status;
	unsigned minor;
	char *reason;
	bool keep; /* the connection may be used again after the end */
	enum answer_body body;
	bool has_length; /* the box told one (also to HEAD, with a 304) */
	uint64_t length;
	uint64_t left;
	struct chunked chunked;
	struct buf trailers; /* lines as they came, when chunked */
	unsigned count;
	struct answer_header headers[ANSWER_HEADERS_MAX];
};

/* Ready for the answer to another request; keeps its memory. Also for a zeroed one. */
void answer_reset(struct answer *answer, bool to_head, bool upgrade);
void answer_done(struct answer *answer);
/* Takes bytes up to the end of the next piece and tells how many. len may be 0 after HEAD and
 * BODY. */
size_t answer_next(struct answer *answer, const char *data, size_t len, struct answer_piece *ret);
/* The box closed: true when that is how the body ends. */
bool answer_ends_by_close(const struct answer *answer);
/* Not a byte of it has come. */
bool answer_is_untouched(const struct answer *answer);
const char *answer_get(const struct answer *answer, const char *name); /* first value or NULL */
bool answer_name_is_good(const char *name, size_t len);
bool answer_value_is_good(const char *value, size_t len);
