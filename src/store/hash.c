/* hash.c - see hash.h. Apart from the rest because OpenSSL and base/err.h both define ERR_STATE. */
#include "store/hash.h"
#include <openssl/crypto.h>
#include <openssl/evp.h>

bool hash_sha256(const void *data, size_t len, uint8_t ret[HASH_LEN])
{
	return EVP_Digest(data, len, ret, NULL, EVP_sha256(), NULL) == 1;
}

bool hash_equal(const uint8_t a[HASH_LEN], const uint8_t b[HASH_LEN])
{
	return CRYPTO_memcmp(a, b, HASH_LEN) == 0;
}
