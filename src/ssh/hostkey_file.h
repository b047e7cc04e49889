/* hostkey_file.h - an Ed25519 private key as the file format of OpenSSH (PROTOCOL.key)
 *
 *   "openssh-key-v1\0", string cipher "none", string kdf "none", string "", u32 1, string public,
 *   string { u32 check, u32 the same, string type, string point, string seed + point,
 *            string comment, padding 1 2 3 … to 8 }
 *
 * in base64 between two lines. Written and read here, because the parts are few and the library of
 * the connection's process is not in the daemon. Pure. */
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

enum {
	HOSTKEY_SEED_SIZE = 32,
	HOSTKEY_POINT_SIZE = 32,
	HOSTKEY_BLOB_SIZE = 51, /* string "ssh-ed25519", string point */
	HOSTKEY_FILE_MAX = 16 * 1024,
};

struct hostkey_parts {
	uint8_t seed[HOSTKEY_SEED_SIZE]; /* secret */
	uint8_t point[HOSTKEY_POINT_SIZE];
};

/* Yours; secret: wipe it. */
char *hostkey_file_text(const struct hostkey_parts *parts, const char *comment);
/* Reads one key without a passphrase. ERR_INVALID; that seed and point belong together is for the
 * caller to check. No message quotes the text. */
int hostkey_file_read(const char *text, size_t len, struct hostkey_parts *ret, struct err *err);

void hostkey_write_blob(const uint8_t point[HOSTKEY_POINT_SIZE], uint8_t ret[HOSTKEY_BLOB_SIZE]);
/* Writes a string of SSH at out, its bytes too unless data is NULL; returns the place behind it. */
uint8_t *hostkey_put_string(uint8_t *out, const void *data, size_t len);
