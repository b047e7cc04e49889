/* audit_hash.c - see audit_hash.h */
#include "audit/audit_hash.h"
#include <openssl/evp.h>
#include <stdlib.h>

struct audit_sha {
	EVP_MD_CTX *context;
	EVP_MD *sha256;
};

struct audit_sha *audit_sha_new(void)
{
	struct audit_sha *sha = calloc(1, sizeof *sha);

	if (!sha)
		abort();
	/* Fetched once: looking the algorithm up takes longer than a line's hash. */
	sha->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	sha->context = EVP_MD_CTX_new();
	if (!sha->sha256 || !sha->context)
		abort();
	return sha;
}

void audit_sha_free(struct audit_sha *sha)
{
	if (!sha)
		return;
	EVP_MD_CTX_free(sha->context);
	EVP_MD_free(sha->sha256);
	free(sha);
}

void audit_sha_of(struct audit_sha *sha, const void *data, size_t len, char ret[AUDIT_HASH_HEX + 1])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char sum[AUDIT_HASH_HEX / 2];

	if (!EVP_DigestInit_ex(sha->context, sha->sha256, NULL) ||
		!EVP_DigestUpdate(sha->context, data, len) ||
		!EVP_DigestFinal_ex(sha->context, sum, NULL))
		abort();
	for (size_t i = 0; i < sizeof sum; i++) {
		ret[2 * i] = digits[sum[i] >> 4];
		ret[2 * i + 1] = digits[sum[i] & 15];
	}
	ret[AUDIT_HASH_HEX] = '\0';
}
