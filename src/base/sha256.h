/* sha256.h - SHA-256 in the forms that are needed: bytes, hex, "sha256:…", HMAC
 *
 * When a hash cannot be computed the program ends, because a wrong one must never look right. Not
 * thread-safe: all one-call functions share a context. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SHA256_SIZE = 32,
	SHA256_HEX = 64,
	DIGEST_SIZE = sizeof "sha256:" + SHA256_HEX, /* "sha256:" and the hex digits, as images are
						      * named, with the final NUL */
};

/* ---- one call for all data ------------------------------------------------------------------- */

void sha256_of(const void *data, size_t len, uint8_t ret[SHA256_SIZE]);
void sha256_hex(const void *data, size_t len, char ret[SHA256_HEX + 1]);
/* HMAC-SHA256: only who has the key can compute it. */
void sha256_sign(
	const uint8_t key[SHA256_SIZE], const void *data, size_t len, char ret[SHA256_HEX + 1]);
/* Compares in constant time, so that the time tells nothing about where they differ. */
bool sha256_equal(const void *a, const void *b, size_t len);

void digest_of(const void *data, size_t len, char ret[DIGEST_SIZE]);
const char *digest_hex(const char *digest); /* without "sha256:"; borrowed */

/* ---- data in pieces
 * ---------------------------------------------------------------------------- */

struct sha256; /* opaque */
struct sha256 *sha256_new(void);
void sha256_add(struct sha256 *sha, const void *data, size_t len);
/* Writes "sha256:…" of everything that was added, and frees sha. */
void sha256_end(struct sha256 *sha, char ret[DIGEST_SIZE]);
void sha256_free(struct sha256 *sha); /* accepts NULL */
