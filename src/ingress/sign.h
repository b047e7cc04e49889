/* sign.h - HMAC-SHA256 over a text, as hex; apart, for OpenSSL's names and ours do not mix */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIGN_KEY_LEN = 32, SIGN_HEX_LEN = 64 };

bool sign_text(
	const uint8_t key[SIGN_KEY_LEN], const char *text, size_t len, char ret[SIGN_HEX_LEN + 1]);
/* In a time that tells nothing. */
bool sign_equal(const char *a, const char *b, size_t len);
