/* verify.c - signatures by SSH keys, checked by OpenSSL; see sshkey.h */
#include "sshkey/sshkey_internal.h"
#include "base/alloc.h"
#include "base/sha256.h"
/* OpenSSL has a type of this name. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#undef ERR_STATE

enum { SK_TOUCHED = 1 };

DEFINE_CLEANUP(EVP_PKEY_free, EVP_PKEY)
DEFINE_CLEANUP(EVP_MD_CTX_free, EVP_MD_CTX)

/* ---- the key as OpenSSL has it --------------------------------------------------------------- */

static EVP_PKEY *pkey_from(const char *kind, OSSL_PARAM_BLD *build)
{
	OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, kind, NULL);
	EVP_PKEY *pkey = NULL;

	if (params && context && EVP_PKEY_fromdata_init(context) == 1)
		EVP_PKEY_fromdata(context, &pkey, EVP_PKEY_PUBLIC_KEY, params);
	EVP_PKEY_CTX_free(context);
	OSSL_PARAM_free(params);
	return pkey;
}

/* Fails for a point that is not on the curve. */
static EVP_PKEY *ecdsa_pkey(const struct sshkey *key)
{
	const char *group = key->bits == 256 ? "P-256" : key->bits == 384 ? "P-384" : "P-521";
	OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
	EVP_PKEY *pkey = NULL;

	if (build &&
		OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, group, 0) == 1 &&
		OSSL_PARAM_BLD_push_octet_string(
			build, OSSL_PKEY_PARAM_PUB_KEY, key->point.data, key->point.len) == 1)
		pkey = pkey_from("EC", build);
	OSSL_PARAM_BLD_free(build);
	return pkey;
}

static EVP_PKEY *rsa_pkey(const struct sshkey *key)
{
	BIGNUM *n = BN_bin2bn(key->n.data, (int)key->n.len, NULL);
	BIGNUM *e = BN_bin2bn(key->e.data, (int)key->e.len, NULL);
	OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
	EVP_PKEY *pkey = NULL;

	if (n && e && build && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
		OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e) == 1)
		pkey = pkey_from("RSA", build);
	OSSL_PARAM_BLD_free(build);
	BN_free(n);
	BN_free(e);
	return pkey;
}

static EVP_PKEY *pkey_of(const struct sshkey *key)
{
	switch (key->kind) {
	case SSHKEY_RSA:
		return rsa_pkey(key);
	case SSHKEY_ECDSA:
	case SSHKEY_SK_ECDSA:
		return ecdsa_pkey(key);
	case SSHKEY_ED25519:
	case SSHKEY_SK_ED25519:
		return EVP_PKEY_new_raw_public_key(
			EVP_PKEY_ED25519, NULL, key->point.data, key->point.len);
	}
	return NULL;
}

/* ---- the signature --------------------------------------------------------------------------- */

/* r and s as OpenSSL wants them; NULL when they do not parse. Yours. */
static uint8_t *ecdsa_der(struct bytes signature, int *ret_len)
{
	struct ssh_reader reader = ssh_reader_of(signature);
	struct bytes r = ssh_read_mpint(&reader), s = ssh_read_mpint(&reader);
	ECDSA_SIG *pair = ssh_reader_is_done(&reader) ? ECDSA_SIG_new() : NULL;
	unsigned char *der = NULL;
	uint8_t *copy = NULL;

	if (pair && ECDSA_SIG_set0(pair, BN_bin2bn(r.data, (int)r.len, NULL),
			    BN_bin2bn(s.data, (int)s.len, NULL)) == 1)
		*ret_len = i2d_ECDSA_SIG(pair, &der);
	if (der && *ret_len > 0)
		copy = xmemdup(der, (size_t)*ret_len);
	OPENSSL_free(der);
	ECDSA_SIG_free(pair);
	return copy;
}

static const EVP_MD *digest_for(const struct sshkey *key, struct bytes algorithm)
{
	switch (key->kind) {
	case SSHKEY_RSA:
		return bytes_is(algorithm, "rsa-sha2-512") ? EVP_sha512() : EVP_sha256();
	case SSHKEY_ECDSA:
	case SSHKEY_SK_ECDSA:
		return key->bits == 256	  ? EVP_sha256()
		       : key->bits == 384 ? EVP_sha384()
					  : EVP_sha512();
	default:
		return NULL; /* Ed25519 has its own */
	}
}

static bool algorithm_fits(const struct sshkey *key, struct bytes algorithm)
{
	if (key->kind == SSHKEY_RSA)
		return bytes_is(algorithm, "rsa-sha2-256") || bytes_is(algorithm, "rsa-sha2-512");
	return bytes_is(algorithm, key->name);
}

static bool verify_bytes(
	const struct sshkey *key, struct bytes algorithm, struct bytes signature, struct bytes data)
{
	_cleanup_(EVP_PKEY_freep) EVP_PKEY *pkey = pkey_of(key);
	_cleanup_(EVP_MD_CTX_freep) EVP_MD_CTX *context = EVP_MD_CTX_new();
	_cleanup_free_ uint8_t *der = NULL;
	int der_len = 0;

	if (key->kind == SSHKEY_ECDSA || key->kind == SSHKEY_SK_ECDSA) {
		der = ecdsa_der(signature, &der_len);
		if (!der)
			return false;
		signature = (struct bytes){ der, (size_t)der_len };
	}
	return pkey && context &&
	       EVP_DigestVerifyInit(context, NULL, digest_for(key, algorithm), NULL, pkey) == 1 &&
	       EVP_DigestVerify(context, signature.data, signature.len, data.data, data.len) == 1;
}

/* What a security key signs: hashes of the application and of the data, flags, a counter. */
static bool verify_sk(const struct sshkey *key, struct bytes algorithm, struct bytes signature,
	struct ssh_reader *rest, struct bytes data)
{
	uint8_t message[SHA256_SIZE + 1 + 4 + SHA256_SIZE];
	uint8_t flags = ssh_read_u8(rest);
	uint32_t counter = ssh_read_u32(rest);

	if (!ssh_reader_is_done(rest) || !(flags & SK_TOUCHED))
		return false;
	sha256_of(key->application.data, key->application.len, message);
	message[SHA256_SIZE] = flags;
	for (int i = 0; i < 4; i++)
		message[SHA256_SIZE + 1 + i] = (uint8_t)(counter >> (24 - 8 * i));
	sha256_of(data.data, data.len, message + SHA256_SIZE + 5);
	return verify_bytes(key, algorithm, signature, (struct bytes){ message, sizeof message });
}

int sshkey_verify(const struct sshkey *key, const void *signature, size_t signature_len,
	const void *data, size_t len, struct err *err)
{
	struct ssh_reader reader = ssh_reader_of((struct bytes){ signature, signature_len });
	struct bytes algorithm = ssh_read_string(&reader), inner = ssh_read_string(&reader);
	struct bytes message = { data, len };
	bool sk = key->kind == SSHKEY_SK_ED25519 || key->kind == SSHKEY_SK_ECDSA;
	bool right;

	if (reader.bad || signature_len > SSHKEY_BLOB_MAX || (!sk && reader.left))
		return err_set(err, ERR_INVALID, "the signature is malformed");
	if (!algorithm_fits(key, algorithm))
		return err_set(err, ERR_INVALID, "the signature is not of the kind of the key");
	right = sk ? verify_sk(key, algorithm, inner, &reader, message)
		   : verify_bytes(key, algorithm, inner, message);
	return right ? 0 : err_set(err, ERR_UNAUTHORIZED, "the signature is wrong");
}
