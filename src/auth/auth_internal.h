/* auth_internal.h - what the files of src/auth share */
#pragma once
#include "auth/auth.h"
#include "auth/inner.h"
#include "auth/strikes.h"

struct auth {
	struct yard *yard;
	struct strikes strikes;
	auth_inner_fn inner; /* NULL: there is no API */
	void *inner_arg;
};

/* Ids of principals by keys of the store begin with it; ids of tokens have no colon. */
#define PRINCIPAL_ID_KEY "key:"

#define PRINCIPAL_ID_CERTIFICATE "certificate"

/* What a credential that is bound to a box may have: what is done in it. Nothing with SCOPE_CREATE
 * stays in a box. */
#define SCOPES_BOUND (SCOPE_READ | SCOPE_FILES | SCOPE_EXEC)
/* box: "" or the name of the only box. */
void principal_set_role(struct principal *principal, unsigned scopes, const char *box);

struct auth_ssh_ask;
/* certificates.c: as auth_ssh_key, for an ask with a certificate. */
int auth_by_certificate(
	struct auth *auth, const struct auth_ssh_ask *ask, struct principal *ret, struct err *err);

/* keys.c */
void key_principal(const struct key_row *key, struct principal *ret);
int key_check_expiry(const struct key_row *key, struct err *err); /* ERR_UNAUTHORIZED */
