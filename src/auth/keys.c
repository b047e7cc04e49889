/* keys.c - see keys.h */
#include "auth/keys.h"
#include "auth/auth_internal.h"
#include "base/clock.h"
#include "core/yard.h"
#include "sshkey/sources.h"
#include "sshkey/sshkey.h"
#include <stdio.h>

void principal_set_role(struct principal *principal, unsigned scopes, const char *box)
{
	bool admin = scopes & SCOPE_ADMIN && !*box;

	principal->scopes = admin ? SCOPE_ALL : scopes & ~(unsigned)SCOPE_ADMIN;
	if (*box)
		principal->scopes &= SCOPES_BOUND;
	snprintf(principal->asker.only_box, sizeof principal->asker.only_box, "%s", box);
	principal->asker.sees_all = admin;
}

void key_principal(const struct key_row *key, struct principal *ret)
{
	*ret = (struct principal){ .kind = PRINCIPAL_KEY, .restricted = key->restricted };
	principal_set_role(ret, key->scopes, key->box);
	snprintf(ret->id, sizeof ret->id, PRINCIPAL_ID_KEY "%s", key->id);
	snprintf(ret->asker.who, sizeof ret->asker.who, "key %s", key->name);
	snprintf(ret->asker.owner, sizeof ret->asker.owner, "%s", key->owner);
}

int key_check_expiry(const struct key_row *key, struct err *err)
{
	if (!key->expires_us || key->expires_us > clock_wall_us())
		return 0;
	return err_set(err, ERR_UNAUTHORIZED, "the key '%s' has expired", key->name);
}

/* A connection by the local socket has no address: from= is about the network. */
static int check_source(const struct key_row *key, const char *peer, struct err *err)
{
	if (!*key->sources || !*peer || sources_has(key->sources, peer))
		return 0;
	return err_set(
		err, ERR_UNAUTHORIZED, "the key '%s' may not be used from %s", key->name, peer);
}

static int by_key(
	struct auth *auth, const struct auth_ssh_ask *ask, struct principal *ret, struct err *err)
{
	struct store *store = yard_get_store(auth->yard);
	char fingerprint[SSHKEY_FINGERPRINT_SIZE];
	struct key_row row = { 0 };
	struct sshkey key;
	int result = -1;

	if (sshkey_read(ask->key, ask->key_len, &key, err) < 0)
		return -1;
	sshkey_fingerprint(ask->key, ask->key_len, fingerprint);
	if (store_key_find(store, fingerprint, &row, err) < 0)
		return err->kind == ERR_NOT_FOUND
			       ? err_set(err, ERR_UNAUTHORIZED, "unknown key %s", fingerprint)
			       : -1;
	if (key_check_expiry(&row, err) == 0 && check_source(&row, ask->peer, err) == 0) {
		key_principal(&row, ret);
		if (ask->proven)
			store_key_used(store, &row);
		result = 0;
	}
	key_row_done(&row);
	return result;
}

/* What a client sent, for people to read: any byte may be in it. */
static json_t *printable(const char *text)
{
	char copy[AUTH_SSH_USER_MAX + 1];
	size_t len = 0;

	for (; text[len] && len < sizeof copy - 1; len++)
		copy[len] = text[len] < ' ' || text[len] > '~' ? '?' : text[len];
	copy[len] = '\0';
	return json_string(copy);
}

static void note_login(
	struct auth *auth, const struct auth_ssh_ask *ask, const struct principal *principal)
{
	char fingerprint[SSHKEY_FINGERPRINT_SIZE];
	const struct asker *before = auth_enter(auth, principal);

	if (ask->cert)
		sshkey_fingerprint(ask->cert, ask->cert_len, fingerprint);
	else
		sshkey_fingerprint(ask->key, ask->key_len, fingerprint);
	yard_event(auth->yard, "ssh.login", NULL,
		json_pack("{s:o,s:s,s:s}", "user", printable(ask->user), "peer", ask->peer,
			ask->cert ? "certificate" : "key", fingerprint));
	auth_leave(auth, before);
}

int auth_ssh_key(
	struct auth *auth, const struct auth_ssh_ask *ask, struct principal *ret, struct err *err)
{
	int found = -1;

	if (strnlen(ask->user, AUTH_SSH_USER_MAX + 1) > AUTH_SSH_USER_MAX)
		err_set(err, ERR_INVALID, "the user name is longer than %d bytes",
			AUTH_SSH_USER_MAX);
	else if (ask->cert)
		found = auth_by_certificate(auth, ask, ret, err);
	else
		found = by_key(auth, ask, ret, err);
	if (found < 0) {
		if (err->kind == ERR_UNAUTHORIZED || err->kind == ERR_INVALID)
			auth_strike(auth, ask->peer, err);
		return -1;
	}
	if (ask->proven)
		note_login(auth, ask, ret);
	return 0;
}

void auth_ssh_refused(struct auth *auth, const struct auth_ssh_ask *ask, const char *why)
{
	struct err err = ERR_INIT;

	if (*ask->peer && auth_strike(auth, ask->peer, &err) < 0)
		return;
	yard_event(auth->yard, "ssh.refused", NULL,
		json_pack("{s:o,s:s,s:o}", "user", printable(ask->user), "peer", ask->peer, "why",
			printable(why)));
}
