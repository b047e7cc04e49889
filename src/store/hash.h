/* hash.h - SHA-256 and a comparison that takes the same time whatever it finds */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HASH_LEN = 32 };

bool hash_sha256(
	const void *data, size_t len, uint8_t ret[HASH_LEN]); /* false: the library failed */
bool hash_equal(const uint8_t a[HASH_LEN], const uint8_t b[HASH_LEN]); /* constant time */
