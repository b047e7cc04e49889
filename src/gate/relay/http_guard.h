/* http_guard.h - checks the requests of a plain HTTP/1 connection to another server
 *
 * Pure. The relay feeds what the client sends; the guard tells how many of those bytes may go on to
 * the server. A head is held back until it is complete and allowed, so nothing of a refused request
 * is ever sent. Strict where servers differ: both length headers, repeated Host or Content-Length,
 * codings other than chunked, bare CR or LF, obs-fold, NUL, spaces before a colon, absolute targets
 * whose host is not Host, chunk extensions and trailers, headers that change method or path,
 * CONNECT, the HTTP/2 preface: all refused; an offer of h2c passes, but a server that accepts it is
 * cut off. Pipelining is allowed: each request is checked. An upgrade (only to websocket) is
 * accepted only as the first request of its connection; until the server has answered, what the
 * client sends after it is held back, and after 101 the guard checks nothing more. */
#pragma once
#include "base/buf.h"
#include "net/dns_name.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	HTTP_GUARD_HEAD_MAX = 32 * 1024, /* bytes of one head, and of what is held back */
	HTTP_GUARD_HEADERS_MAX = 128,
	HTTP_GUARD_PATH_MAX = 8 * 1024,
};

struct http_guard_request {
	/* of Host (or of an absolute target, which must agree), lower-case, without the port; an
	 * IPv6 address without brackets; "" for HTTP/1.0 without Host */
	char host[DNS_HOST_MAX];
	uint16_t port;	    /* written behind it; 0: none */
	const char *method; /* borrowed for the call */
	const char *path;   /* origin form, with its query; "*" for OPTIONS */
	bool upgrade;
};

struct http_guard_ops {
	/* False: refused. */
	bool (*allow)(void *arg, const struct http_guard_request *request);
};

struct http_guard;

/* Looks at the first bytes of a connection: does a request line begin here? MORE: cannot be told
 * yet; never with 1 KiB or more. */
enum http_guess { HTTP_GUESS_MORE, HTTP_GUESS_YES, HTTP_GUESS_NO };
enum http_guess http_guess(const uint8_t *data, size_t len);

struct http_guard *http_guard_new(const struct http_guard_ops *ops, void *arg); /* ops borrowed */
void http_guard_free(struct http_guard *guard);					/* accepts NULL */

/* Takes len bytes of the client's (all of them; what is held back is kept inside, at most
 * HTTP_GUARD_HEAD_MAX: the relay reads no more while http_guard_wants() is false) and appends what
 * may go on to out. NULL, or why the connection must be cut: "smuggling: both Content-Length and
 * Transfer-Encoding" (a literal); what was appended before may still be sent or dropped. */
const char *http_guard_client(
	struct http_guard *guard, const uint8_t *data, size_t len, struct buf *out);
/* Whether more of the client's bytes are wanted now: not while an upgrade waits for its answer, nor
 * after a refusal. */
bool http_guard_wants(const struct http_guard *guard);
/* Sees the server's bytes, which go to the client in any case. Only needed while
 * http_guard_watches_server(); may release held back client bytes into out. NULL or why the
 * connection must be cut. */
const char *http_guard_server(
	struct http_guard *guard, const uint8_t *data, size_t len, struct buf *out);
bool http_guard_watches_server(const struct http_guard *guard);
/* The guard checks nothing more: everything may be passed unchanged. */
bool http_guard_is_open(const struct http_guard *guard);
/* How many of the client's next bytes are plain body of known length, which may be passed without
 * http_guard_client(); tell with http_guard_skip() how many were. 0: none. */
uint64_t http_guard_plain(const struct http_guard *guard);
void http_guard_skip(struct http_guard *guard, uint64_t len);
