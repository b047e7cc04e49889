/* http_guard_internal.h - one complete head of HTTP/1 */
#pragma once
#include "gate/relay/http_guard.h"

enum { HTTP_METHOD_MAX = 24 }; /* with NUL; as long as the policy's */

struct http_head {
	struct http_guard_request request; /* method and path point into this struct */
	char method[HTTP_METHOD_MAX];
	char *path; /* owned */
	bool is_chunked;
	bool offers_h2;	 /* offers an upgrade to HTTP/2, which must not happen */
	uint64_t length; /* of the body; 0: none, or chunked */
};

/* Reads the head of a request: len bytes that end with the first empty line. Returns NULL and
 * *ret, to be freed with http_head_done; or the reason of a refusal (a literal), and *ret needs
 * no free. */
const char *http_head_read(const char *text, size_t len, struct http_head *ret);
void http_head_done(struct http_head *head);
