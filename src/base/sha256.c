/* sha256.c - see sha256.h. This file does not include base/err.h: OpenSSL and err.h both define
 * ERR_STATE. */
#include "base/sha256.h"
#include "base/alloc.h"
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

struct sha256 {
	EVP_MD_CTX *context;
};

/* Fetched once: the lookup of the algorithm takes longer than hashing a short line. */
static const EVP_MD *algorithm(void)
{
	static EVP_MD *fetched;

	if (!fetched && !(fetched = EVP_MD_fetch(NULL, "SHA256", NULL)))
		abort();
	return fetched;
}

static void put_hex(const uint8_t sum[SHA256_SIZE], char ret[SHA256_HEX + 1])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < SHA256_SIZE; i++) {
		ret[2 * i] = digits[sum[i] >> 4];
		ret[2 * i + 1] = digits[sum[i] & 15];
	}
	ret[SHA256_HEX] = '\0';
}

static void put_digest(const uint8_t sum[SHA256_SIZE], char ret[DIGEST_SIZE])
{
	memcpy(ret, "sha256:", 7);
	put_hex(sum, ret + 7);
}

void sha256_of(const void *data, size_t len, uint8_t ret[SHA256_SIZE])
{
	static EVP_MD_CTX *context;

	if (!context)
		context = EVP_MD_CTX_new();
	if (!context || !EVP_DigestInit_ex(context, algorithm(), NULL) ||
		!EVP_DigestUpdate(context, data, len) || !EVP_DigestFinal_ex(context, ret, NULL))
		abort();
}

void sha256_hex(const void *data, size_t len, char ret[SHA256_HEX + 1])
{
	uint8_t sum[SHA256_SIZE];

	sha256_of(data, len, sum);
	put_hex(sum, ret);
}

void sha256_sign(
	const uint8_t key[SHA256_SIZE], const void *data, size_t len, char ret[SHA256_HEX + 1])
{
	uint8_t mac[SHA256_SIZE];
	unsigned mac_len = sizeof mac;

	if (!HMAC(algorithm(), key, SHA256_SIZE, data, len, mac, &mac_len) || mac_len != sizeof mac)
		abort();
	put_hex(mac, ret);
}

bool sha256_equal(const void *a, const void *b, size_t len)
{
	return CRYPTO_memcmp(a, b, len) == 0;
}

void digest_of(const void *data, size_t len, char ret[DIGEST_SIZE])
{
	uint8_t sum[SHA256_SIZE];

	sha256_of(data, len, sum);
	put_digest(sum, ret);
}

const char *digest_hex(const char *digest)
{
	return digest + 7;
}

struct sha256 *sha256_new(void)
{
	struct sha256 *sha = xnew(struct sha256);

	sha->context = EVP_MD_CTX_new();
	if (!sha->context || !EVP_DigestInit_ex(sha->context, algorithm(), NULL))
		abort();
	return sha;
}

void sha256_add(struct sha256 *sha, const void *data, size_t len)
{
	if (!EVP_DigestUpdate(sha->context, data, len))
		abort();
}

void sha256_end(struct sha256 *sha, char ret[DIGEST_SIZE])
{
	uint8_t sum[SHA256_SIZE];

	if (!EVP_DigestFinal_ex(sha->context, sum, NULL))
		abort();
	put_digest(sum, ret);
	sha256_free(sha);
}

void sha256_free(struct sha256 *sha)
{
	if (!sha)
		return;
	EVP_MD_CTX_free(sha->context);
	free(sha);
}
