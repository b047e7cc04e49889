/* auth.h - who asks: the one place where a peer's credential becomes a principal
 *
 * A front door does three things for each request:
 *
 *   auth_by_socket / auth_by_token   who is it? (counts wrong credentials)
 *   principal_check_scope            may it do such things at all?
 *   auth_enter … auth_leave          core works for it meanwhile: it finds what its owner has, what
 *                                    it makes belongs to its owner, events name it
 *
 * Principals are plain values. A box that asks from inside is one too; core makes it, because only
 * core knows which box is at the other end (asker_of_box). */
#pragma once
#include "base/err.h"
#include "core/asker.h"
#include "store/store.h"
#include <sys/types.h>

struct auth;

enum principal_kind {
	PRINCIPAL_NOBODY, /* without a credential: for routes that need no token */
	PRINCIPAL_SOCKET, /* connected to the Unix socket: allowed by the file's mode */
	PRINCIPAL_TOKEN,
	PRINCIPAL_KEY,	       /* an SSH key of the store */
	PRINCIPAL_CERTIFICATE, /* an SSH certificate of a CA that the settings name */
	PRINCIPAL_BOX,	       /* a box that logs in to another; both policies agreed */
};
enum { PRINCIPAL_ID_SIZE = 32 };
/* Used as the id where the socket is the credential; no token has this id. */
#define PRINCIPAL_ID_SOCKET "socket"

struct principal {
	enum principal_kind kind;
	/* of the credential: stored by a login that outlives the request */
	char id[PRINCIPAL_ID_SIZE];
	unsigned scopes;     /* enum scope; all of them with SCOPE_ADMIN */
	uid_t uid;	     /* PRINCIPAL_SOCKET */
	unsigned restricted; /* enum key_restriction: what an SSH login may not do */
	struct asker asker;  /* name, owner, what it sees */
};

struct auth *auth_new(struct yard *yard); /* yard is borrowed */
void auth_free(struct auth *auth);	  /* accepts NULL */

/* Whoever can connect to the socket may do everything. */
void auth_by_socket(struct auth *auth, uid_t uid, struct principal *ret);
/* Fails with ERR_UNAUTHORIZED for an unknown or expired token, and with ERR_LIMIT when peer (an
 * address) has recently shown many of those; a right one is always accepted. */
int auth_by_token(struct auth *auth, const char *peer, const char *secret, struct principal *ret,
	struct err *err);
/* A box that logs in to box to: it may use that box and nothing else. */
void auth_by_box(const struct box *from, const struct box *to, struct principal *ret);
/* Looks up a credential that was accepted before, by its id; ERR_UNAUTHORIZED: it is no longer
 * valid. */
int auth_by_id(struct auth *auth, const char *id, struct principal *ret, struct err *err);
/* Fills *ret with what is left of a principal that came in earlier: its credential may have been
 * removed since (ERR_UNAUTHORIZED), or may do less. A certificate is accepted as long as the login
 * lasts that showed it. */
int auth_again(
	struct auth *auth, const struct principal *before, struct principal *ret, struct err *err);
/* Counts a malformed credential: ERR_LIMIT when there are many. */
int auth_strike(struct auth *auth, const char *peer, struct err *err);

/* Fails with ERR_FORBIDDEN unless it has one of these scopes. */
int principal_check_scope(const struct principal *principal, unsigned scopes, struct err *err);
bool principal_is_admin(const struct principal *principal);

/* Core works for principal until auth_leave, which takes what auth_enter returned. No callback of
 * the loop may run in between. */
const struct asker *auth_enter(struct auth *auth, const struct principal *principal);
void auth_leave(struct auth *auth, const struct asker *before);
