/* cert.h - SSH user certificates (PROTOCOL.certkeys of OpenSSH), read strictly
 *
 * Reading a certificate says nothing about whom it lets in: cert_check_* do. Of critical options
 * source-address is understood; any other one, force-command too, makes the certificate unusable,
 * as the format demands. Extensions that are not there restrict: OpenSSH's own (permit-pty …) mean
 * here what they mean there; unknown ones are ignored, as the format demands. Pure. */
#pragma once
#include "sshkey/sshkey.h"

enum { CERT_PRINCIPALS_MAX = 64, CERT_TEXT_MAX = 256 };

/* What a certificate permits by its extensions. */
enum cert_permit { CERT_PTY = 1, CERT_FORWARDING = 2, CERT_AGENT = 4, CERT_X11 = 8 };

struct sshcert {
	struct sshkey key; /* of the one who logs in; its blob is NULL */
	struct sshkey ca;
	uint64_t serial;
	char key_id[CERT_TEXT_MAX];
	struct bytes principals[CERT_PRINCIPALS_MAX];
	unsigned principal_count;
	uint64_t valid_after, valid_before; /* seconds since 1970; the second is not included */
	char source_address[CERT_TEXT_MAX]; /* "" : any */
	unsigned permits;		    /* enum cert_permit */
	struct bytes signed_part, signature;
};

/* Reads the whole blob of a user certificate; its signature is not looked at. ERR_INVALID. */
int sshcert_read(const void *blob, size_t len, struct sshcert *ret, struct err *err);
/* ERR_UNAUTHORIZED unless the CA's key made the signature. */
int sshcert_verify(const struct sshcert *cert, struct err *err);
/* ERR_UNAUTHORIZED unless it is valid at now (seconds since 1970) and from peer ("": a local
 * connection, which has no address). */
int sshcert_check(const struct sshcert *cert, uint64_t now, const char *peer, struct err *err);
/* Whether key (a plain blob) is the key of this certificate. */
bool sshcert_has_key(const struct sshcert *cert, const struct sshkey *key);
bool sshkey_is_cert(const void *blob, size_t len); /* by the name of its type alone */
