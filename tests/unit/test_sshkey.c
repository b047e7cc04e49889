/* test_sshkey.c - public keys, certificates and lines of authorized_keys */
#include "base/alloc.h"
#include "base/sha256.h"
#include "base/text.h"
#include "sshkey/cert.h"
#include "sshkey/line.h"
#include "sshkey_samples.h"
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/evp.h>
#undef ERR_STATE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { IN_2026 = 1780000000, IN_2025 = 1735700000 };

static struct bytes decode(const char *text)
{
	struct bytes bytes;
	uint8_t *data = NULL;

	assert_int_equal(base64_decode(text, strlen(text), &data, &bytes.len, NULL), 0);
	bytes.data = data;
	return bytes;
}

static void free_bytes(struct bytes bytes)
{
	free((void *)bytes.data);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void test_keys_of_all_kinds_are_read(void **state)
{
	static const struct {
		const char *text, *name;
		unsigned bits;
	} keys[] = {
		{ SAMPLE_USER, "ssh-ed25519", 256 },
		{ SAMPLE_CA_RSA, "ssh-rsa", 2048 },
		{ SAMPLE_CA_P256, "ecdsa-sha2-nistp256", 256 },
		{ SAMPLE_CA_P384, "ecdsa-sha2-nistp384", 384 },
		{ SAMPLE_CA_P521, "ecdsa-sha2-nistp521", 521 },
	};
	char fingerprint[SSHKEY_FINGERPRINT_SIZE];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		struct bytes blob = decode(keys[i].text);
		struct sshkey key = { 0 };

		assert_int_equal(sshkey_read(blob.data, blob.len, &key, NULL), 0);
		assert_string_equal(key.name, keys[i].name);
		assert_int_equal(key.bits, keys[i].bits);
		/* Neither less nor more than a key. */
		for (size_t len = 0; len < blob.len; len++)
			assert_int_equal(sshkey_read(blob.data, len, &key, NULL), -1);
		if (!i) {
			sshkey_fingerprint(blob.data, blob.len, fingerprint);
			assert_string_equal(fingerprint, SAMPLE_FINGERPRINT);
		}
		free_bytes(blob);
	}
}

static void test_weak_and_odd_keys_are_refused(void **state)
{
	struct bytes weak = decode(SAMPLE_WEAK), user = decode(SAMPLE_USER);
	_cleanup_free_ uint8_t *longer = xcalloc(1, user.len + 1);
	struct err err = ERR_INIT;
	struct sshkey key;

	(void)state;
	assert_int_equal(sshkey_read(weak.data, weak.len, &key, &err), -1);
	assert_non_null(strstr(err.message, "1024"));
	memcpy(longer, user.data, user.len);
	assert_int_equal(sshkey_read(longer, user.len + 1, &key, NULL), -1);
	assert_int_equal(sshkey_read("", 0, &key, NULL), -1);
	assert_int_equal(sshkey_read("\0\0\0\7ssh-dss\0\0\0\1\1", 16, &key, NULL), -1);
	assert_int_equal(sshkey_read("\xff\xff\xff\xff", 4, &key, NULL), -1);
	free_bytes(weak);
	free_bytes(user);
}

/* ---- security keys: made here, as there is no device ----------------------------------------- */

static size_t put(uint8_t *out, const void *data, size_t len)
{
	out[0] = out[1] = 0;
	out[2] = (uint8_t)(len >> 8);
	out[3] = (uint8_t)len;
	memcpy(out + 4, data, len);
	return len + 4;
}

struct sk_sample {
	uint8_t blob[256], signature[256];
	size_t blob_len, signature_len;
};

static struct sk_sample sk_make(uint8_t flags, const char *data)
{
	static const char name[] = "sk-ssh-ed25519@openssh.com";
	EVP_PKEY *pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	uint8_t message[SHA256_SIZE * 2 + 5] = { 0 }, raw[32], signature[64];
	size_t raw_len = sizeof raw, signature_len = sizeof signature;
	struct sk_sample sample = { 0 };

	assert_int_equal(EVP_PKEY_get_raw_public_key(pkey, raw, &raw_len), 1);
	sample.blob_len = put(sample.blob, name, sizeof name - 1);
	sample.blob_len += put(sample.blob + sample.blob_len, raw, 32);
	sample.blob_len += put(sample.blob + sample.blob_len, "ssh:", 4);
	sha256_of("ssh:", 4, message);
	message[32] = flags;
	message[36] = 9; /* the counter */
	sha256_of(data, strlen(data), message + 37);
	assert_int_equal(EVP_DigestSignInit(context, NULL, NULL, NULL, pkey), 1);
	assert_int_equal(
		EVP_DigestSign(context, signature, &signature_len, message, sizeof message), 1);
	sample.signature_len = put(sample.signature, name, sizeof name - 1);
	sample.signature_len += put(sample.signature + sample.signature_len, signature, 64);
	memcpy(sample.signature + sample.signature_len, message + 32, 5);
	sample.signature_len += 5;
	EVP_MD_CTX_free(context);
	EVP_PKEY_free(pkey);
	return sample;
}

static int sk_verify(const struct sk_sample *sample, const char *data)
{
	struct sshkey key;

	assert_int_equal(sshkey_read(sample->blob, sample->blob_len, &key, NULL), 0);
	return sshkey_verify(
		&key, sample->signature, sample->signature_len, data, strlen(data), NULL);
}

static void test_security_keys_must_be_touched(void **state)
{
	struct sk_sample touched = sk_make(1, "hello"), untouched = sk_make(0, "hello");

	(void)state;
	assert_int_equal(sk_verify(&touched, "hello"), 0);
	assert_int_equal(sk_verify(&touched, "hellO"), -1);
	assert_int_equal(sk_verify(&untouched, "hello"), -1);
	touched.signature[touched.signature_len - 1]++; /* the counter */
	assert_int_equal(sk_verify(&touched, "hello"), -1);
	touched.signature[touched.signature_len - 1]--;
	touched.signature_len++;
	assert_int_equal(sk_verify(&touched, "hello"), -1);
}

/* ---- certificates ---------------------------------------------------------------------------- */

static const char *const good_certs[] = { SAMPLE_CERT_ED25519, SAMPLE_CERT_P256, SAMPLE_CERT_P384,
	SAMPLE_CERT_P521, SAMPLE_CERT_RSA512, SAMPLE_CERT_RSA256 };

static void test_certificates_of_every_kind_of_ca_are_verified(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good_certs); i++) {
		struct bytes blob = decode(good_certs[i]), user = decode(SAMPLE_USER);
		struct sshcert cert = { 0 };
		struct err err = ERR_INIT;
		struct sshkey key;

		assert_true(sshkey_is_cert(blob.data, blob.len));
		assert_false(sshkey_is_cert(user.data, user.len));
		if (sshcert_read(blob.data, blob.len, &cert, &err) < 0 ||
			sshcert_verify(&cert, &err) < 0)
			fail_msg("%zu: %s", i, err.message);
		assert_int_equal(sshkey_read(user.data, user.len, &key, NULL), 0);
		assert_true(sshcert_has_key(&cert, &key));
		assert_int_equal(cert.permits, CERT_PTY | CERT_FORWARDING | CERT_AGENT | CERT_X11);
		assert_int_equal(sshcert_check(&cert, IN_2026, "192.0.2.1", &err), 0);
		assert_int_equal(sshcert_check(&cert, IN_2025, "192.0.2.1", &err), -1);
		assert_int_equal(sshcert_check(&cert, cert.valid_before, "", &err), -1);
		assert_int_equal(sshcert_check(&cert, cert.valid_before - 1, "", &err), 0);
		free_bytes(blob);
		free_bytes(user);
	}
}

/* Whatever is changed or cut off, nothing passes. */
static void test_a_certificate_with_one_wrong_bit_is_none(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good_certs); i++) {
		struct bytes blob = decode(good_certs[i]);
		_cleanup_free_ uint8_t *copy = xmemdup(blob.data, blob.len);
		struct sshcert cert;

		for (size_t at = 0; at < blob.len; at++) {
			copy[at] ^= (uint8_t)(1 << at % 8);
			if (sshcert_read(copy, blob.len, &cert, NULL) == 0 &&
				sshcert_verify(&cert, NULL) == 0)
				fail_msg("certificate %zu passes with byte %zu changed", i, at);
			copy[at] = blob.data[at];
			assert_int_equal(sshcert_read(blob.data, at, &cert, NULL), -1);
		}
		free_bytes(blob);
	}
}

static void test_certificates_that_demand_too_much_are_refused(void **state)
{
	struct bytes sha1 = decode(SAMPLE_CERT_SHA1), host = decode(SAMPLE_CERT_HOST),
		     forced = decode(SAMPLE_CERT_FORCED), source = decode(SAMPLE_CERT_SOURCE);
	struct err err = ERR_INIT;
	struct sshcert cert = { 0 };

	(void)state;
	assert_int_equal(sshcert_read(sha1.data, sha1.len, &cert, &err), 0);
	assert_int_equal(sshcert_verify(&cert, &err), -1);
	assert_int_equal(sshcert_read(host.data, host.len, &cert, &err), -1);
	assert_non_null(strstr(err.message, "users"));
	assert_int_equal(sshcert_read(forced.data, forced.len, &cert, &err), -1);
	assert_non_null(strstr(err.message, "force-command"));
	assert_int_equal(sshcert_read(source.data, source.len, &cert, &err), 0);
	assert_int_equal(cert.permits, CERT_PTY);
	assert_int_equal(sshcert_check(&cert, IN_2026, "192.0.2.77", &err), 0);
	assert_int_equal(sshcert_check(&cert, IN_2026, "::ffff:192.0.2.77", &err), 0);
	assert_int_equal(sshcert_check(&cert, IN_2026, "192.0.3.1", &err), -1);
	free_bytes(sha1);
	free_bytes(host);
	free_bytes(forced);
	free_bytes(source);
}

/* ---- lines ----------------------------------------------------------------------------------- */

#define KEY "ssh-ed25519 " SAMPLE_USER

static void test_lines_and_their_options_are_read(void **state)
{
	struct keyline line;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(keyline_read(KEY " ann@laptop here ", &line, &err), 0);
	assert_string_equal(line.comment, "ann@laptop here");
	assert_string_equal(line.box, "");
	assert_false(line.is_ca);
	keyline_done(&line);
	assert_int_equal(keyline_read("box=ada,role=\"exec\",from=\"192.0.2.0/24,!192.0.2.7\","
				      "restrict,pty,expiry-time=20360102Z\t" KEY,
				 &line, &err),
		0);
	assert_string_equal(line.box, "ada");
	assert_string_equal(line.role, "exec");
	assert_string_equal(line.sources, "192.0.2.0/24,!192.0.2.7");
	assert_int_equal(line.restricted, KEYLINE_RESTRICT & ~KEYLINE_NO_PTY);
	assert_int_equal(line.expires_us / 1000000, 2082844800);
	keyline_done(&line);
	assert_int_equal(
		keyline_read("cert-authority,principals=\"ann,bob\" " KEY, &line, &err), 0);
	assert_true(line.is_ca);
	assert_string_equal(line.principals, "ann,bob");
	keyline_done(&line);
}

static void test_lines_that_are_not_understood_are_refused(void **state)
{
	static const char *const lines[] = { "", "ssh-ed25519", "ssh-ed25519 ", "ssh-ed25519 AAAA",
		"ssh-rsa " SAMPLE_USER, "ssh-ed25519-cert-v01@openssh.com " SAMPLE_CERT_ED25519,
		"ssh-rsa " SAMPLE_WEAK, "command=\"id\" " KEY, "environment=\"A=b\" " KEY,
		"permitopen=\"a:1\" " KEY, "no-touch-required " KEY, "tunnel=\"0\" " KEY,
		"from=\"*.example.com\" " KEY, "from=\"192.0.2.1/8\" " KEY, "from=\"\" " KEY,
		"from=\"192.0.2.1,\" " KEY, "from " KEY, "box= " KEY, "box=\"ada " KEY,
		"box=ada,, " KEY, ",box=ada " KEY, "box=\"ada\"x " KEY, "expiry-time=2036 " KEY,
		"expiry-time=20360231 " KEY, "principals=ann " KEY, "restrict=1 " KEY,
		"-----BEGIN OPENSSH PRIVATE KEY-----", "hello world", "box=ada",
		"ssh-ed25519 " SAMPLE_USER "=", "ssh-ed25519 !" SAMPLE_USER };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		struct err err = ERR_INIT;
		struct keyline line;

		if (keyline_read(lines[i], &line, &err) == 0)
			fail_msg("'%.60s' was taken", lines[i]);
		assert_int_equal(err.kind, ERR_INVALID);
	}
}

static void test_files_of_lines_are_walked(void **state)
{
	static const char *const wanted[] = { "one", "two x", "three" };
	const char *at = "# comment\r\n\n  one \n\t\ntwo x\r\n #\nthree";
	unsigned number = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		_cleanup_free_ char *line = keyline_next(&at, &number);

		assert_non_null(line);
		assert_string_equal(line, wanted[i]);
	}
	assert_int_equal(number, 7);
	assert_null(keyline_next(&at, &number));
}

static void test_sources_know_addresses_and_ranges(void **state)
{
	(void)state;
	assert_true(sources_has("192.0.2.0/24", "192.0.2.9"));
	assert_false(sources_has("192.0.2.0/24", "192.0.3.9"));
	assert_false(sources_has("192.0.2.0/24,!192.0.2.9", "192.0.2.9"));
	assert_false(sources_has("!192.0.2.9,192.0.2.0/24", "192.0.2.9"));
	assert_false(sources_has("!192.0.2.9", "192.0.2.10"));
	assert_true(sources_has("2001:db8::/32,192.0.2.1", "2001:db8:1::7"));
	assert_true(sources_has("0.0.0.0/0,::/0", "::1"));
	assert_false(sources_has("0.0.0.0/0", "::1"));
	assert_false(sources_has("0.0.0.0/0,::/0", ""));
	assert_false(sources_has("0.0.0.0/0,::/0", "localhost"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys_of_all_kinds_are_read),
		cmocka_unit_test(test_weak_and_odd_keys_are_refused),
		cmocka_unit_test(test_security_keys_must_be_touched),
		cmocka_unit_test(test_certificates_of_every_kind_of_ca_are_verified),
		cmocka_unit_test(test_a_certificate_with_one_wrong_bit_is_none),
		cmocka_unit_test(test_certificates_that_demand_too_much_are_refused),
		cmocka_unit_test(test_lines_and_their_options_are_read),
		cmocka_unit_test(test_lines_that_are_not_understood_are_refused),
		cmocka_unit_test(test_files_of_lines_are_walked),
		cmocka_unit_test(test_sources_know_addresses_and_ranges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
