/* sha256.c - see sha256.h. Apart from the rest because OpenSSL and base/err.h both define
 * ERR_STATE. */
#include "image/sha256.h"
#include "base/alloc.h"
#include <openssl/evp.h>
#include <stdio.h>

struct sha256 {
	EVP_MD_CTX *context;
};

/* A sum that could not be computed must never look right: the program ends. */
struct sha256 *sha256_new(void)
{
	struct sha256 *sha = xnew(struct sha256);

	sha->context = EVP_MD_CTX_new();
	if (!sha->context || !EVP_DigestInit_ex(sha->context, EVP_sha256(), NULL))
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
	unsigned char sum[32];

	if (!EVP_DigestFinal_ex(sha->context, sum, NULL))
		abort();
	memcpy(ret, "sha256:", 7);
	for (size_t i = 0; i < sizeof sum; i++)
		snprintf(ret + 7 + 2 * i, 3, "%02x", sum[i]);
	sha256_free(sha);
}

void sha256_free(struct sha256 *sha)
{
	if (!sha)
		return;
	EVP_MD_CTX_free(sha->context);
	free(sha);
}

void digest_of(const void *data, size_t len, char ret[DIGEST_SIZE])
{
	struct sha256 *sha = sha256_new();

	sha256_add(sha, data, len);
	sha256_end(sha, ret);
}

const char *digest_hex(const char *digest)
{
	return digest + 7;
}
