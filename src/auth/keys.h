/* keys.h - who comes in by SSH: a public key or a certificate becomes a principal
 *
 * The SSH door does, for each key a client shows:
 *
 *   auth_ssh_key, proven false    would this key do? (a question, without a signature)
 *   auth_ssh_key, proven true     its signature was verified: this is the login
 *   auth_ssh_refused              the connection ended without a login
 *
 * The principal is used as one by a token is: principal_check_scope, auth_enter … auth_leave. A key
 * that is bound to a box has asker.only_box: core finds that box and no other, and no scope of the
 * principal makes anything. Events ("ssh.login", "ssh.refused") are written here. */
#pragma once
#include "auth/auth.h"

enum {
	AUTH_SSH_USER_MAX = 128, /* longer user names are refused */
	AUTH_SSH_BLOB_MAX = 16 * 1024,
};

struct auth_ssh_ask {
	/* The public key in SSH wire format (string type, …), as in the login request. With a
	 * certificate it may be NULL: the certificate has it in itself; if given, the two must be
	 * the same key. */
	const void *key;
	size_t key_len;
	const void *cert; /* the certificate blob of the login request, or NULL */
	size_t cert_len;
	const char *user; /* as the client asked for it; for events, and for certificates */
	const char *peer; /* the client's address without its port; "" : a connection by a socket */
	bool proven;	  /* a signature by this key over this connection was verified */
};

/* Fills *ret for a key or certificate that may come in. Fails with
 *   ERR_UNAUTHORIZED  unknown, expired, not from this address, of an unknown CA, not for this user;
 *   ERR_INVALID       a blob that does not parse, or a key too weak to be accepted;
 *   ERR_LIMIT         the same, and peer has shown many of those: close the connection.
 * The message says why and is for the log and for events; a client is told nothing but "no". */
int auth_ssh_key(
	struct auth *auth, const struct auth_ssh_ask *ask, struct principal *ret, struct err *err);

/* Writes the event of a connection that ended without a login. why: the reason of the last refusal,
 * or another one ("no key was offered"). Bounded by the peer's strikes, so a flood writes few. */
void auth_ssh_refused(struct auth *auth, const struct auth_ssh_ask *ask, const char *why);
