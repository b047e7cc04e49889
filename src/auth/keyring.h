/* keyring.h - adding, listing and removing the keys of SSH logins
 *
 * As things of an owner: a principal sees, makes and removes the keys of its owner, one with
 * SCOPE_ADMIN those of everybody; what it does not see is ERR_NOT_FOUND. A key never gets more than
 * the principal has who adds it: not more scopes, and where that one is a token or a key that
 * expires, is bound to addresses or restricted, the new key is so too.
 *
 * All of these are called while core works for the principal (auth_enter … auth_leave). */
#pragma once
#include "auth/auth.h"

enum { KEY_SPEC_LINE_MAX = 32 * 1024 };

struct key_spec {
	/* A public key as in a file .pub or a line of authorized_keys: [options] type base64
	 * [comment]; see sshkey/line.h. One line. */
	const char *line;
	/* Each may be NULL: what the line says, else the default. Given in both places they must be
	 * the same. */
	const char *name;    /* a DNS label; made from the comment */
	const char *owner;   /* the principal's */
	const char *role;    /* exec for a key of one box, else create, or the most the principal
			    * has */
	const char *box;     /* the only box it may use, by name; it need not exist yet */
	const char *from;    /* see sshkey/sources.h */
	int64_t expires_us;  /* 0: as the line says; if both say it the earlier time counts */
	unsigned restricted; /* enum key_restriction; added to those of the line */
};

/* Adds a key and writes the event key.added. *ret_row as store_key_list has it, a new reference;
 * *ret_made false: the same key with the same settings was there already. Fails with
 *   ERR_INVALID    what was given is no public key of an accepted kind (a private key, a
 *                  certificate, an unknown option): no message quotes it;
 *   ERR_FORBIDDEN  more than the principal has, or another owner;
 *   ERR_EXISTS     the key or the name is there already;
 *   ERR_LIMIT      there are KEYS_MAX. */
int auth_key_add(struct auth *auth, const struct principal *principal, const struct key_spec *spec,
	json_t **ret_row, bool *ret_made, struct err *err);

/* Those the principal sees, oldest first; new reference, NULL with err. */
json_t *auth_key_list(struct auth *auth, struct err *err);
/* which: an id, a name or a fingerprint. */
int auth_key_show(struct auth *auth, const char *which, json_t **ret_row, struct err *err);
/* Removes it and writes the event key.removed. For logins by it auth_by_id fails from now on: the
 * door ends them. */
int auth_key_remove(struct auth *auth, const char *which, struct err *err);
