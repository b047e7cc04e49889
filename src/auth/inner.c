/* inner.c - see inner.h */
#include "auth/inner.h"
#include "auth/auth_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

void auth_set_inner(struct auth *auth, auth_inner_fn fn, void *arg)
{
	auth->inner = fn;
	auth->inner_arg = arg;
}

/* Only our own end may be non-blocking: the other one belongs to a process that knows nothing of
 * it. The two have flags of their own. */
int auth_open_inner(
	struct auth *auth, const struct principal *principal, int *ret_fd, struct err *err)
{
	int ends[2];

	if (!auth->inner)
		return err_set(err, ERR_UNAVAILABLE, "the daemon is stopping");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return err_sys(err, errno, "socketpair");
	if (fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0) {
		err_sys(err, errno, "make a socket non-blocking");
		close(ends[0]);
	} else if (auth->inner(ends[0], principal, auth->inner_arg, err) == 0) {
		*ret_fd = ends[1];
		return 0;
	}
	close(ends[1]);
	return -1;
}
