/* sshkey.h - SSH public keys: the wire format, read strictly, and signatures by them
 *
 * Accepted are Ed25519, ECDSA on the three NIST curves, RSA of 2048 to 16384 bits, and the two
 * kinds kept by security keys (sk-). Nothing else has a reader here: no DSA, no SHA-1. All bytes
 * are an attacker's; what is not exactly as the format says is refused. Pure. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SSHKEY_BLOB_MAX = 16 * 1024,
	SSHKEY_FINGERPRINT_SIZE = 64, /* "SHA256:" and 43 characters */
	SSHKEY_RSA_LEAST = 2048,
	SSHKEY_RSA_MOST = 16384,
};

struct bytes {
	const uint8_t *data; /* borrowed */
	size_t len;
};

enum sshkey_kind { SSHKEY_ED25519, SSHKEY_ECDSA, SSHKEY_RSA, SSHKEY_SK_ED25519, SSHKEY_SK_ECDSA };

/* A public key; all of it points into the blob it was read from. */
struct sshkey {
	enum sshkey_kind kind;
	const char *name;	  /* "ssh-ed25519": static */
	unsigned bits;		  /* of the modulus or the curve */
	struct bytes blob;	  /* string name and the fields */
	struct bytes fields;	  /* without the name: as certificates have them */
	struct bytes point;	  /* Ed25519: 32 bytes; ECDSA: uncompressed */
	struct bytes n, e;	  /* RSA: without sign and leading zeros */
	struct bytes application; /* sk- */
};

/* Reads the whole blob. ERR_INVALID. */
int sshkey_read(const void *blob, size_t len, struct sshkey *ret, struct err *err);
/* "SHA256:…" of a blob, as ssh-keygen -l prints it. */
void sshkey_fingerprint(const void *blob, size_t len, char ret[SSHKEY_FINGERPRINT_SIZE]);

/* Verifies a signature blob (string algorithm, string signature …) over data. RSA signs with
 * rsa-sha2-256 or rsa-sha2-512; a security key must have been touched. ERR_UNAUTHORIZED when it is
 * not by this key, ERR_INVALID when it does not parse. */
int sshkey_verify(const struct sshkey *key, const void *signature, size_t signature_len,
	const void *data, size_t len, struct err *err);
