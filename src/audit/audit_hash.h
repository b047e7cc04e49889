/* audit_hash.h - SHA-256 of many short lines with one context; without base/err.h, which OpenSSL's
 * names clash with */
#pragma once
#include <stddef.h>

enum { AUDIT_HASH_HEX = 64 };

struct audit_sha; /* opaque */
struct audit_sha *audit_sha_new(void);
void audit_sha_free(struct audit_sha *sha); /* accepts NULL */
/* Hex of the SHA-256 of data. A sum that cannot be had ends the program. */
void audit_sha_of(
	struct audit_sha *sha, const void *data, size_t len, char ret[AUDIT_HASH_HEX + 1]);
