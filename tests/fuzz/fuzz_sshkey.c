/* fuzz_sshkey.c - arbitrary bytes as a public key, a certificate, a signature and as lines of
 * authorized_keys
 *
 * What is read must lie within the bytes, and no certificate may verify that nobody signed: the
 * samples are signed, so a change that still verifies is found. */
#include "base/alloc.h"
#include "sshkey/cert.h"
#include "sshkey/line.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_within(struct bytes part, const uint8_t *data, size_t size)
{
	assert(!part.len || (part.data >= data && part.data + part.len <= data + size));
}

static void check_key(const struct sshkey *key, const uint8_t *data, size_t size)
{
	assert(key->name && key->bits >= 256 && key->bits <= SSHKEY_RSA_MOST);
	check_within(key->fields, data, size);
	check_within(key->point, data, size);
	check_within(key->n, data, size);
	check_within(key->e, data, size);
	check_within(key->application, data, size);
}

static void try_blob(const uint8_t *data, size_t size)
{
	struct sshcert cert;
	struct sshkey key;

	if (sshkey_read(data, size, &key, NULL) == 0) {
		check_key(&key, data, size);
		sshkey_verify(&key, data, size, data, size, NULL);
	}
	if (sshcert_read(data, size, &cert, NULL) == 0) {
		check_key(&cert.key, data, size);
		check_key(&cert.ca, data, size);
		check_within(cert.signed_part, data, size);
		for (unsigned i = 0; i < cert.principal_count; i++)
			check_within(cert.principals[i], data, size);
		sshcert_verify(&cert, NULL);
		sshcert_check(&cert, 1780000000, "192.0.2.1", NULL);
	}
}

static void try_lines(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = xstrndup((const char *)data, size);
	const char *at = text;
	unsigned number = 0;
	char *one;

	while ((one = keyline_next(&at, &number))) {
		struct keyline line;

		if (keyline_read(one, &line, NULL) == 0) {
			check_key(&line.key, line.blob, line.blob_len);
			assert(strlen(line.comment) < sizeof line.comment);
			assert(line.expires_us >= 0);
		}
		keyline_done(&line);
		free(one);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_blob(data, size);
	try_lines(data, size);
	return 0;
}
