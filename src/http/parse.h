/* parse.h - HTTP/1.1 requests from bytes: pieces out, no sockets; pure
 *
 *   HEAD  BODY*  END   and again
 *
 * The caller takes one piece at a time and so decides when to continue; there are no callbacks. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "http/chunked.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_HEAD_MAX = 16384, HTTP_HEADERS_MAX = 64 };

enum http_piece_kind {
	HTTP_PIECE_MORE, /* the input is consumed */
	HTTP_PIECE_HEAD, /* head is complete; valid until the first call after END */
	HTTP_PIECE_BODY, /* some bytes of the body, borrowed from the input */
	HTTP_PIECE_END,	 /* the request is complete; the next byte belongs to the next request */
	HTTP_PIECE_BAD,	 /* refused: status and why tell the reason; nothing more can be read */
};

struct http_piece {
	enum http_piece_kind kind;
	const char *data; /* BODY */
	size_t len;
	int status; /* BAD: the status to answer */
	struct err why;
};

struct http_header {
	char *name;
	char *value;
};

struct http_head {
	const char *method;
	char *target;
	unsigned minor; /* HTTP/1.minor */
	bool keep_alive;
	bool expects_continue;
	bool chunked;
	uint64_t length; /* of a body that is not chunked */
	unsigned count;
	struct http_header headers[HTTP_HEADERS_MAX];
};

enum http_parse_state { HTTP_PARSE_HEAD, HTTP_PARSE_BODY, HTTP_PARSE_BAD };

struct http_parse {
	enum http_parse_state state;
	struct buf text; /* the head's bytes; http_head points into it */
	size_t scanned;	 /* how much of text was scanned, in complete lines */
	size_t skipped;	 /* empty lines before the request line, in bytes */
	struct http_head head;
	uint64_t left; /* of a body that is not chunked */
	struct chunked chunked;
};

#define HTTP_PARSE_INIT \
	{               \
		0       \
	}

void http_parse_done(struct http_parse *parse);
/* Consumes bytes up to the end of the next piece and returns how many. len may be 0 after HEAD and
 * BODY. */
size_t http_parse_next(
	struct http_parse *parse, const char *data, size_t len, struct http_piece *ret);
/* True when a part of a head is here, but not all of it. */
bool http_parse_in_head(const struct http_parse *parse);

const char *http_head_get(
	const struct http_head *head, const char *name); /* first value, NULL if absent */
/* Is token an element of the comma-separated lists under name? */
bool http_head_has_token(const struct http_head *head, const char *name, const char *token);
bool http_head_has_body(const struct http_head *head);

const char *http_status_text(int status); /* "Not Found" */

/* The value of a Content-Length: digits only, at most 18. False: it is not one. */
bool http_parse_length(const char *text, uint64_t *ret);
