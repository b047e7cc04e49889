/* http_guard_internal.h - one head of HTTP/1, read whole */
#pragma once
#include "gate/relay/http_guard.h"

enum { HTTP_METHOD_MAX = 24 }; /* with NUL; as long as the policy's */

struct http_head {
	struct http_guard_request request; /* method and path point into this struct */
	char method[HTTP_METHOD_MAX];
	char *path; /* owned */
	bool is_chunked;
	bool offers_h2;	 /* an upgrade that must not come about */
	uint64_t length; /* of the body; 0: none, or chunked */
};

/* Reads a request's head: len bytes that end with the first empty line. NULL and *ret, to be ended
 * with http_head_done; or why it is refused (a literal), and *ret needs no end. */
const char *http_head_read(const char *text, size_t len, struct http_head *ret);
void http_head_done(struct http_head *head);
