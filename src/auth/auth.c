/* auth.c - see auth.h */
#include "auth/auth_internal.h"
#include "base/clock.h"
#include "core/box.h"
#include "core/yard.h"
#include <stdio.h>

struct auth *auth_new(struct yard *yard)
{
	struct auth *auth = xnew(struct auth);

	auth->yard = yard;
	return auth;
}

void auth_free(struct auth *auth)
{
	free(auth);
}

void auth_by_socket(struct auth *auth, uid_t uid, struct principal *ret)
{
	(void)auth;
	*ret = (struct principal){
		.kind = PRINCIPAL_SOCKET, .id = PRINCIPAL_ID_SOCKET, .scopes = SCOPE_ALL, .uid = uid
	};
	snprintf(ret->asker.who, sizeof ret->asker.who, "uid %u by the socket", (unsigned)uid);
	snprintf(ret->asker.owner, sizeof ret->asker.owner, "%s", OWNER_LOCAL);
	ret->asker.sees_all = true;
}

/* A token that can make tokens may do everything: it could make itself any token. */
static void from_token(const struct token_row *token, struct principal *ret)
{
	bool admin = token->scopes & SCOPE_ADMIN;

	*ret = (struct principal){ .kind = PRINCIPAL_TOKEN,
		.scopes = admin ? SCOPE_ALL : token->scopes };
	snprintf(ret->id, sizeof ret->id, "%s", token->id);
	snprintf(ret->asker.who, sizeof ret->asker.who, "token %s", token->name);
	snprintf(ret->asker.owner, sizeof ret->asker.owner, "%s", token->owner);
	ret->asker.sees_all = admin;
}

int auth_strike(struct auth *auth, const char *peer, struct err *err)
{
	if (!strikes_add(&auth->strikes, peer, clock_mono_us()))
		return 0;
	err_set(err, ERR_LIMIT, "too many requests with wrong credentials");
	return err_hint(err, "wait a few seconds");
}

int auth_by_token(struct auth *auth, const char *peer, const char *secret, struct principal *ret,
	struct err *err)
{
	const struct token_row *token = NULL;

	if (store_token_check(yard_get_store(auth->yard), secret, &token, err) < 0) {
		if (err->kind == ERR_UNAUTHORIZED)
			auth_strike(auth, peer, err);
		return -1;
	}
	from_token(token, ret);
	return 0;
}

static int key_by_id(struct auth *auth, const char *id, struct principal *ret, struct err *err)
{
	struct key_row key = { 0 };
	int result;

	if (store_key_get(yard_get_store(auth->yard), id, &key, NULL) < 0)
		return err_set(err, ERR_UNAUTHORIZED, "the key is not valid any more");
	result = key_check_expiry(&key, err);
	if (result == 0)
		key_principal(&key, ret);
	key_row_done(&key);
	return result;
}

int auth_by_id(struct auth *auth, const char *id, struct principal *ret, struct err *err)
{
	const struct token_row *token;

	if (!strcmp(id, PRINCIPAL_ID_SOCKET)) {
		auth_by_socket(auth, 0, ret);
		return 0;
	}
	if (text_has_prefix(id, PRINCIPAL_ID_KEY))
		return key_by_id(auth, id + strlen(PRINCIPAL_ID_KEY), ret, err);
	if (!strcmp(id, PRINCIPAL_ID_CERTIFICATE))
		return err_set(err, ERR_UNAUTHORIZED, "a login by certificate is for SSH alone");
	token = store_token_get(yard_get_store(auth->yard), id);
	if (!token)
		return err_set(err, ERR_UNAUTHORIZED, "the token is no longer valid");
	from_token(token, ret);
	return 0;
}

void auth_by_box(const struct box *from, const struct box *to, struct principal *ret)
{
	*ret = (struct principal){ .kind = PRINCIPAL_BOX, .id = "box" };
	asker_of_box(&ret->asker, from);
	principal_set_role(ret, SCOPE_EXEC | SCOPE_FILES | SCOPE_READ, box_get_name(to));
	ret->restricted = KEY_NO_AGENT | KEY_NO_X11;
}

int auth_again(
	struct auth *auth, const struct principal *before, struct principal *ret, struct err *err)
{
	struct principal now = { 0 };

	*ret = *before;
	if (before->kind == PRINCIPAL_SOCKET || before->kind == PRINCIPAL_CERTIFICATE ||
		before->kind == PRINCIPAL_BOX)
		return 0;
	if (before->kind == PRINCIPAL_NOBODY)
		return err_set(err, ERR_UNAUTHORIZED, "a login is needed here");
	if (auth_by_id(auth, before->id, &now, err) < 0)
		return -1;
	if (strcmp(now.asker.owner, before->asker.owner) != 0 ||
		strcmp(now.asker.only_box, before->asker.only_box) != 0)
		return err_set(err, ERR_UNAUTHORIZED, "the credential was changed; log in again");
	ret->scopes &= now.scopes;
	ret->restricted |= now.restricted;
	ret->asker.sees_all = before->asker.sees_all && now.asker.sees_all;
	return 0;
}

int principal_check_scope(const struct principal *principal, unsigned scopes, struct err *err)
{
	if (principal->scopes & scopes)
		return 0;
	if (principal->kind == PRINCIPAL_KEY || principal->kind == PRINCIPAL_CERTIFICATE) {
		err_set(err, ERR_FORBIDDEN, "the role of the %s does not allow this",
			principal->asker.who);
		return err_hint(err, "it needs the role %s", scopes_text(scopes));
	}
	err_set(err, ERR_FORBIDDEN, "the token's scopes do not allow this");
	return err_hint(err, "it needs the scope %s", scopes_text(scopes));
}

bool principal_is_admin(const struct principal *principal)
{
	return principal->scopes & SCOPE_ADMIN;
}

const struct asker *auth_enter(struct auth *auth, const struct principal *principal)
{
	return yard_set_asker(auth->yard, &principal->asker);
}

void auth_leave(struct auth *auth, const struct asker *before)
{
	yard_set_asker(auth->yard, before);
}
