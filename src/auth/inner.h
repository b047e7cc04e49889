/* inner.h - connections to the API for somebody whom another front door has let in
 *
 * A front door that has no verbs of its own, such as the control plane of SSH, gives its programs
 * connections to the API. They need no token: the principal goes with the connection, and the API
 * looks its credential up again for each request (auth_again). The doors do not know each other;
 * the API offers itself here when it is opened. */
#pragma once
#include "auth/auth.h"

/* Takes fd: one end of a stream socketpair, non-blocking. principal is copied. */
typedef int (*auth_inner_fn)(int fd, const struct principal *principal, void *arg, struct err *err);

void auth_set_inner(struct auth *auth, auth_inner_fn fn, void *arg); /* NULL: none any more */
/* *ret_fd is a blocking socket, connected to the API as principal; yours. ERR_UNAVAILABLE when the
 * daemon is stopping, ERR_LIMIT when there are too many. */
int auth_open_inner(
	struct auth *auth, const struct principal *principal, int *ret_fd, struct err *err);
