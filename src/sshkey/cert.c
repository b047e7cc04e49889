/* cert.c - see cert.h */
#include "sshkey/cert.h"
#include "base/alloc.h"
#include "sshkey/sources.h"
#include "sshkey/sshkey_internal.h"
#include <stdio.h>

enum { USER_CERTIFICATE = 1, OPTIONS_MAX = 64, NONCE_LEAST = 16 };

/* "ssh-ed25519-cert-v01@openssh.com", "sk-ssh-ed25519-cert-v01@openssh.com": the type's name with
 * "-cert-v01@openssh.com" in place of its own domain. */
static const struct sshkey_type *cert_type(struct bytes name)
{
	for (const struct sshkey_type *type = sshkey_types; type->name; type++) {
		char text[64];

		snprintf(text, sizeof text, "%.*s-cert-v01@openssh.com",
			(int)strcspn(type->name, "@"), type->name);
		if (bytes_is(name, text))
			return type;
	}
	return NULL;
}

bool sshkey_is_cert(const void *blob, size_t len)
{
	struct ssh_reader reader = ssh_reader_of((struct bytes){ blob, len });

	return cert_type(ssh_read_string(&reader)) != NULL;
}

static int malformed(struct err *err)
{
	return err_set(err, ERR_INVALID, "the certificate is malformed");
}

static int read_principals(struct bytes list, struct sshcert *cert, struct err *err)
{
	struct ssh_reader reader = ssh_reader_of(list);

	while (reader.left) {
		struct bytes one = ssh_read_string(&reader);

		if (reader.bad || !one.len)
			return malformed(err);
		if (cert->principal_count == CERT_PRINCIPALS_MAX)
			return err_set(err, ERR_INVALID,
				"the certificate names more than %d principals",
				CERT_PRINCIPALS_MAX);
		cert->principals[cert->principal_count++] = one;
	}
	return 0;
}

/* ---- options and extensions: pairs of strings, sorted, each once ----------------------------- */

static int read_critical(
	struct bytes name, struct bytes data, struct sshcert *cert, struct err *err)
{
	struct ssh_reader reader = ssh_reader_of(data);
	char text[64];

	if (bytes_is(name, "source-address")) {
		if (!bytes_text(ssh_read_string(&reader), cert->source_address,
			    sizeof cert->source_address) ||
			!ssh_reader_is_done(&reader))
			return malformed(err);
		return sources_check(cert->source_address, err);
	}
	return err_set(err, ERR_UNAUTHORIZED,
		"the certificate demands '%s', which is not supported here",
		bytes_text(name, text, sizeof text) ? text : "something");
}

static int read_extension(
	struct bytes name, struct bytes data, struct sshcert *cert, struct err *err)
{
	static const struct {
		const char *name;
		unsigned permit;
	} known[] = {
		{ "permit-pty", CERT_PTY },
		{ "permit-port-forwarding", CERT_FORWARDING },
		{ "permit-agent-forwarding", CERT_AGENT },
		{ "permit-X11-forwarding", CERT_X11 },
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (bytes_is(name, known[i].name)) {
			if (data.len)
				return malformed(err);
			cert->permits |= known[i].permit;
		}
	return 0;
}

static int compare(struct bytes a, struct bytes b)
{
	size_t len = a.len < b.len ? a.len : b.len;
	int order = len ? memcmp(a.data, b.data, len) : 0;

	return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int read_pairs(struct bytes list, struct sshcert *cert,
	int (*fn)(struct bytes, struct bytes, struct sshcert *, struct err *), struct err *err)
{
	struct ssh_reader reader = ssh_reader_of(list);
	struct bytes before = { 0 };

	for (unsigned count = 0; reader.left; count++) {
		struct bytes name = ssh_read_string(&reader), data = ssh_read_string(&reader);

		if (reader.bad || !name.len || count == OPTIONS_MAX ||
			(count && compare(before, name) >= 0))
			return malformed(err);
		if (fn(name, data, cert, err) < 0)
			return -1;
		before = name;
	}
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int check_ca(struct bytes blob, struct sshcert *cert, struct err *err)
{
	/* A certificate cannot sign certificates: only plain keys have a reader here. */
	if (sshkey_read(blob.data, blob.len, &cert->ca, err) < 0)
		return err_wrap(err, "the CA's key");
	return 0;
}

int sshcert_read(const void *blob, size_t len, struct sshcert *ret, struct err *err)
{
	struct ssh_reader reader = ssh_reader_of((struct bytes){ blob, len });
	struct bytes principals, critical, extensions, ca, key_id;
	const struct sshkey_type *type;
	struct sshcert cert = { 0 };
	uint32_t kind;

	if (len > SSHKEY_BLOB_MAX)
		return err_set(err, ERR_INVALID, "the certificate is longer than %d bytes",
			SSHKEY_BLOB_MAX);
	type = cert_type(ssh_read_string(&reader));
	if (!type)
		return err_set(err, ERR_INVALID, "not a certificate of a kind that is accepted");
	if (ssh_read_string(&reader).len < NONCE_LEAST)
		return malformed(err);
	if (sshkey_read_fields(&reader, type, &cert.key, err) < 0)
		return -1;
	cert.serial = ssh_read_u64(&reader);
	kind = ssh_read_u32(&reader);
	key_id = ssh_read_string(&reader);
	principals = ssh_read_string(&reader);
	cert.valid_after = ssh_read_u64(&reader);
	cert.valid_before = ssh_read_u64(&reader);
	critical = ssh_read_string(&reader);
	extensions = ssh_read_string(&reader);
	ssh_read_string(&reader); /* reserved */
	ca = ssh_read_string(&reader);
	cert.signed_part = (struct bytes){ blob, len - reader.left };
	cert.signature = ssh_read_string(&reader);
	if (!ssh_reader_is_done(&reader) || !bytes_text(key_id, cert.key_id, sizeof cert.key_id))
		return malformed(err);
	if (kind != USER_CERTIFICATE)
		return err_set(err, ERR_INVALID, "not a certificate for users");
	if (read_principals(principals, &cert, err) < 0 ||
		read_pairs(critical, &cert, read_critical, err) < 0 ||
		read_pairs(extensions, &cert, read_extension, err) < 0 ||
		check_ca(ca, &cert, err) < 0)
		return -1;
	*ret = cert;
	return 0;
}

int sshcert_verify(const struct sshcert *cert, struct err *err)
{
	if (sshkey_verify(&cert->ca, cert->signature.data, cert->signature.len,
		    cert->signed_part.data, cert->signed_part.len, err) < 0)
		return err_wrap(err, "the certificate of the CA");
	return 0;
}

int sshcert_check(const struct sshcert *cert, uint64_t now, const char *peer, struct err *err)
{
	if (now < cert->valid_after)
		return err_set(err, ERR_UNAUTHORIZED, "the certificate is not valid yet");
	if (now >= cert->valid_before)
		return err_set(err, ERR_UNAUTHORIZED, "the certificate has expired");
	if (*cert->source_address && *peer && !sources_has(cert->source_address, peer))
		return err_set(
			err, ERR_UNAUTHORIZED, "the certificate may not be used from %s", peer);
	return 0;
}

bool sshcert_has_key(const struct sshcert *cert, const struct sshkey *key)
{
	return !strcmp(cert->key.name, key->name) && key->fields.len == cert->key.fields.len &&
	       !memcmp(cert->key.fields.data, key->fields.data, key->fields.len);
}
