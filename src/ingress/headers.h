/* headers.h - which headers pass between a client and a box; pure
 *
 * Towards the box: no connection headers (RFC 9110, 7.6.1), none of our tokens and login
 * cookies, and the forwarding headers are ours, not the client's. Towards the client: no
 * connection headers, no cookie for any host but the requested one, and no cookie of our name. */
#pragma once
#include "base/buf.h"
#include "http/parse.h"
#include "ingress/answer.h"

/* No other host can set or overwrite a __Host- cookie; browsers accept it over TLS only. */
#define LOGIN_COOKIE	    "boxyard_login"
#define LOGIN_COOKIE_SECURE "__Host-" LOGIN_COOKIE
#define TOKEN_HEADER	    "Box-Token"
#define TOKEN_PREFIX	    "box_"

struct headers_from {
	const char *peer;  /* the client's address */
	const char *proto; /* "http" or "https" */
	bool upgrade;	   /* pass the upgrade header on */
};

/* The whole head that is sent to the box: request line, headers, framing, empty line. */
void headers_put_request(
	const struct http_head *head, const struct headers_from *from, struct buf *out);
/* Lines for http_pass_begin, or with upgrade for http_tunnel_accept. */
void headers_put_answer(const struct answer *answer, bool upgrade, struct buf *out);
/* Appends the received trailers that may pass. */
void headers_put_trailers(const struct answer *answer, struct buf *out);

/* Calls fn with the value of each of our login cookies (of this name) in the request, until it
 * returns true; returns whether it did. */
bool headers_each_login(const struct http_head *head, const char *name,
	bool (*fn)(const char *value, size_t len, void *arg), void *arg);
/* One of our tokens in Authorization or Box-Token; NULL: none. Borrowed. */
const char *headers_token(const struct http_head *head);
