/* sign.c - see sign.h */
#include "ingress/sign.h"
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

bool sign_text(
	const uint8_t key[SIGN_KEY_LEN], const char *text, size_t len, char ret[SIGN_HEX_LEN + 1])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t mac[SIGN_HEX_LEN / 2];
	unsigned mac_len = sizeof mac;

	if (!HMAC(EVP_sha256(), key, SIGN_KEY_LEN, (const uint8_t *)text, len, mac, &mac_len) ||
		mac_len != sizeof mac)
		return false;
	for (size_t i = 0; i < sizeof mac; i++) {
		ret[2 * i] = digits[mac[i] >> 4];
		ret[2 * i + 1] = digits[mac[i] & 15];
	}
	ret[SIGN_HEX_LEN] = '\0';
	return true;
}

bool sign_equal(const char *a, const char *b, size_t len)
{
	return CRYPTO_memcmp(a, b, len) == 0;
}
