/* headers.h - what passes between a client and a box, and what does not; pure
 *
 * Towards the box: nothing about the connection (RFC 9110, 7.6.1), none of our tokens and login
 * cookies, and who asked as we know it, not as the client says. Towards the client: nothing about
 * the connection, no cookie for any host but the one that was asked, and none of ours. */
#pragma once
#include "base/buf.h"
#include "http/parse.h"
#include "ingress/answer.h"

/* __Host- cookies are what no other host can set or overwrite; browsers take them by TLS alone. */
#define LOGIN_COOKIE	    "boxyard_login"
#define LOGIN_COOKIE_SECURE "__Host-" LOGIN_COOKIE
#define TOKEN_HEADER	    "Box-Token"
#define TOKEN_PREFIX	    "box_"

struct headers_from {
	const char *peer;  /* the client's address */
	const char *proto; /* "http" or "https" */
	bool upgrade;	   /* pass the wish for another protocol on */
};

/* The whole head as the box gets it: request line, headers, framing, empty line. */
void headers_put_request(
	const struct http_head *head, const struct headers_from *from, struct buf *out);
/* Lines for http_pass_begin, or with upgrade for http_tunnel_accept. */
void headers_put_answer(const struct answer *answer, bool upgrade, struct buf *out);
/* Appends the received trailers that may pass. */
void headers_put_trailers(const struct answer *answer, struct buf *out);

/* Calls fn for the value of each of our login cookies (of this name) in the request, until it
 * returns true; tells whether it did. */
bool headers_each_login(const struct http_head *head, const char *name,
	bool (*fn)(const char *value, size_t len, void *arg), void *arg);
/* One of our tokens in Authorization or Box-Token; NULL: none. Borrowed. */
const char *headers_token(const struct http_head *head);
