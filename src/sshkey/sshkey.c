/* sshkey.c - public keys in wire format; see sshkey.h */
#include "sshkey/sshkey_internal.h"
#include "base/alloc.h"
#include "base/sha256.h"
#include "base/text.h"
#include <stdio.h>

const struct sshkey_type sshkey_types[] = {
	{ SSHKEY_ED25519, "ssh-ed25519", NULL, 256 },
	{ SSHKEY_ECDSA, "ecdsa-sha2-nistp256", "nistp256", 256 },
	{ SSHKEY_ECDSA, "ecdsa-sha2-nistp384", "nistp384", 384 },
	{ SSHKEY_ECDSA, "ecdsa-sha2-nistp521", "nistp521", 521 },
	{ SSHKEY_RSA, "ssh-rsa", NULL, 0 },
	{ SSHKEY_SK_ED25519, "sk-ssh-ed25519@openssh.com", NULL, 256 },
	{ SSHKEY_SK_ECDSA, "sk-ecdsa-sha2-nistp256@openssh.com", "nistp256", 256 },
	{ 0 },
};

enum { APPLICATION_MAX = 256 };

const struct sshkey_type *sshkey_type_find(struct bytes name)
{
	for (const struct sshkey_type *type = sshkey_types; type->name; type++)
		if (bytes_is(name, type->name))
			return type;
	return NULL;
}

static int read_rsa(struct ssh_reader *reader, struct sshkey *key, struct err *err)
{
	key->e = ssh_read_mpint(reader);
	key->n = ssh_read_mpint(reader);
	if (reader->bad)
		return 0;
	key->bits = (unsigned)(key->n.len * 8) - (unsigned)__builtin_clz(key->n.data[0]) + 24;
	if (key->bits < SSHKEY_RSA_LEAST || key->bits > SSHKEY_RSA_MOST) {
		err_set(err, ERR_INVALID, "an RSA key of %u bits is not accepted", key->bits);
		return err_hint(err, "use Ed25519, or RSA of %d to %d bits", SSHKEY_RSA_LEAST,
			SSHKEY_RSA_MOST);
	}
	/* An even exponent is no RSA key; a huge one only makes verifying slow. */
	if (key->e.len > 8 || !(key->e.data[key->e.len - 1] & 1) ||
		(key->e.len == 1 && key->e.data[0] < 3) || !(key->n.data[key->n.len - 1] & 1))
		return err_set(err, ERR_INVALID, "the RSA key is malformed");
	return 0;
}

/* A point of the curve; that it is on the curve is checked when it is used. */
static void read_point(
	struct ssh_reader *reader, const struct sshkey_type *type, struct sshkey *key)
{
	size_t side = (type->bits + 7) / 8;

	if (!bytes_is(ssh_read_string(reader), type->curve))
		reader->bad = true;
	key->point = ssh_read_string(reader);
	if (key->point.len != 1 + 2 * side || key->point.data[0] != 4)
		reader->bad = true;
}

int sshkey_read_fields(struct ssh_reader *reader, const struct sshkey_type *type,
	struct sshkey *ret, struct err *err)
{
	struct sshkey key = { .kind = type->kind, .name = type->name, .bits = type->bits };

	key.fields.data = reader->at;
	switch (type->kind) {
	case SSHKEY_RSA:
		if (read_rsa(reader, &key, err) < 0)
			return -1;
		break;
	case SSHKEY_ECDSA:
	case SSHKEY_SK_ECDSA:
		read_point(reader, type, &key);
		break;
	case SSHKEY_ED25519:
	case SSHKEY_SK_ED25519:
		key.point = ssh_read_string(reader);
		if (key.point.len != 32)
			reader->bad = true;
		break;
	}
	if (type->kind == SSHKEY_SK_ED25519 || type->kind == SSHKEY_SK_ECDSA) {
		key.application = ssh_read_string(reader);
		if (!key.application.len || key.application.len > APPLICATION_MAX)
			reader->bad = true;
	}
	if (reader->bad)
		return err_set(err, ERR_INVALID, "the %s key is malformed", type->name);
	key.fields.len = (size_t)(reader->at - key.fields.data);
	*ret = key;
	return 0;
}

int sshkey_read(const void *blob, size_t len, struct sshkey *ret, struct err *err)
{
	struct ssh_reader reader = ssh_reader_of((struct bytes){ blob, len });
	const struct sshkey_type *type;
	struct sshkey key = { 0 };

	if (len > SSHKEY_BLOB_MAX)
		return err_set(
			err, ERR_INVALID, "the key is longer than %d bytes", SSHKEY_BLOB_MAX);
	type = sshkey_type_find(ssh_read_string(&reader));
	if (!type) {
		err_set(err, ERR_INVALID, "not a public key of a kind that is accepted");
		return err_hint(err,
			"use Ed25519, ECDSA, RSA of at least %d bits, or a security key",
			SSHKEY_RSA_LEAST);
	}
	if (sshkey_read_fields(&reader, type, &key, err) < 0)
		return -1;
	if (!ssh_reader_is_done(&reader))
		return err_set(err, ERR_INVALID, "the %s key is malformed", type->name);
	key.blob = (struct bytes){ blob, len };
	*ret = key;
	return 0;
}

void sshkey_fingerprint(const void *blob, size_t len, char ret[SSHKEY_FINGERPRINT_SIZE])
{
	_cleanup_free_ char *text = NULL;
	uint8_t hash[SHA256_SIZE];

	sha256_of(blob, len, hash);
	text = base64_encode(hash, sizeof hash);
	text[strcspn(text, "=")] = '\0';
	snprintf(ret, SSHKEY_FINGERPRINT_SIZE, "SHA256:%s", text);
}
