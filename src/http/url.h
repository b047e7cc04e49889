/* url.h - splits the target of a request: decoded path and query pairs; pure
 *
 * Only the origin form ("/path?query") is accepted. In the query '+' means a space, as browsers and
 * HTTP libraries write it. */
#pragma once
#include "base/err.h"
#include <stddef.h>

enum { URL_PAIRS_MAX = 64 };

struct url_pair {
	const char *key;
	const char *value; /* "" for a bare key */
};

struct url {
	const char *path;
	struct url_pair *pairs; /* owned */
	size_t count;
};

#define URL_INIT  \
	{         \
		0 \
	}

/* Decodes target in place; path and pairs point into it. Fails with ERR_INVALID for anything but
 * printable ASCII, for a bad percent sign and for an encoded NUL. */
int url_split(char *target, struct url *ret, struct err *err);
void url_done(struct url *url);
const char *url_query(const struct url *url, const char *key); /* first value, NULL if absent */
