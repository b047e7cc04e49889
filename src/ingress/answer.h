/* answer.h - parses HTTP/1.1 responses of a box, strictly; pure
 *
 *   HEAD  BODY*  END
 *
 * It returns one piece at a time, as http/parse.h does. Anything that two readers could
 * understand differently is refused: the box may be hostile, and its bytes are sent on a
 * connection that carries other responses too. Interim responses (1xx) are skipped, except a 101
 * that was asked for. */
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
	bool to_head; /* the request was a HEAD */
	bool upgrade; /* the request asked for an upgrade */
	enum answer_state state;
	struct buf text; /* the head's bytes */
	size_t scanned;
	unsigned interims;
	int status;
	unsigned minor;
	char *reason;
	bool keep; /* the connection can be used again after this response */
	enum answer_body body;
	bool has_length; /* the box sent a length (possible with HEAD and 304 too) */
	uint64_t length;
	uint64_t left;
	struct chunked chunked;
	struct buf trailers; /* lines as received, when chunked */
	unsigned count;
	struct answer_header headers[ANSWER_HEADERS_MAX];
};

/* Prepares for the response to another request; keeps its memory. Also for a zeroed struct. */
void answer_reset(struct answer *answer, bool to_head, bool upgrade);
void answer_done(struct answer *answer);
/* Consumes bytes up to the end of the next piece and returns how many. len may be 0 after HEAD
 * and BODY. */
size_t answer_next(struct answer *answer, const char *data, size_t len, struct answer_piece *ret);
/* Called when the box has closed: true if the close is the end of the body. */
bool answer_ends_by_close(const struct answer *answer);
/* True while no byte of the response has come. */
bool answer_is_untouched(const struct answer *answer);
const char *answer_get(const struct answer *answer, const char *name); /* first value or NULL */
bool answer_name_is_good(const char *name, size_t len);
bool answer_value_is_good(const char *value, size_t len);
