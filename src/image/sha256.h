/* sha256.h - SHA-256 as images are named by it: "sha256:" and 64 hex digits */
#pragma once
#include <stddef.h>

enum { DIGEST_SIZE = sizeof "sha256:" + 64 };

struct sha256; /* opaque */
struct sha256 *sha256_new(void);
void sha256_add(struct sha256 *sha, const void *data, size_t len);
/* "sha256:…" of all that was added; frees sha. */
void sha256_end(struct sha256 *sha, char ret[DIGEST_SIZE]);
void sha256_free(struct sha256 *sha); /* accepts NULL */
void digest_of(const void *data, size_t len, char ret[DIGEST_SIZE]);
const char *digest_hex(const char *digest); /* without "sha256:"; borrowed */
