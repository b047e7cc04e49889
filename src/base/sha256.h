/* sha256.h - SHA-256 in the forms that are needed: bytes, hex, "sha256:…", keyed
 *
 * A sum that could not be computed must never look right: the program ends. Not for threads: sums
 * in one call share a context. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SHA256_SIZE = 32,
	SHA256_HEX = 64,
	DIGEST_SIZE = sizeof "sha256:" + SHA256_HEX, /* as images are named, with its end */
};

/* ---- of data that is there ------------------------------------------------------------------ */

void sha256_of(const void *data, size_t len, uint8_t ret[SHA256_SIZE]);
void sha256_hex(const void *data, size_t len, char ret[SHA256_HEX + 1]);
/* HMAC-SHA256: nobody can make it who does not have the key. */
void sha256_sign(
	const uint8_t key[SHA256_SIZE], const void *data, size_t len, char ret[SHA256_HEX + 1]);
/* In a time that tells nothing about where they differ. */
bool sha256_equal(const void *a, const void *b, size_t len);

void digest_of(const void *data, size_t len, char ret[DIGEST_SIZE]);
const char *digest_hex(const char *digest); /* without "sha256:"; borrowed */

/* ---- of data that comes bit by bit ---------------------------------------------------------- */

struct sha256; /* opaque */
struct sha256 *sha256_new(void);
void sha256_add(struct sha256 *sha, const void *data, size_t len);
/* "sha256:…" of all that was added; frees sha. */
void sha256_end(struct sha256 *sha, char ret[DIGEST_SIZE]);
void sha256_free(struct sha256 *sha); /* accepts NULL */
