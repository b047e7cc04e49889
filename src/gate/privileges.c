/* privileges.c - the gate drops all privileges before it reads anything
 *
 * It keeps the sockets it was given, and may make new ones of IPv4 and IPv6. If any step fails, the
 * gate fails: a gate with privileges must not serve. */
#include "gate/gate_internal.h"
#include "sys/sandbox.h"
#include <errno.h>
#include <sys/resource.h>

enum { NOBODY = 65534 };

static int raise_files(struct err *err)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, errno, "getrlimit");
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, errno, "setrlimit");
	return 0;
}

int privileges_drop(struct err *err)
{
	return raise_files(err) < 0 ? -1 : sandbox_enter(NOBODY, SANDBOX_INET, err);
}
