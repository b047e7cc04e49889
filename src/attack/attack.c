/* attack.c - see attack.h: the rig alone, for other commands */
#include "attack/attack.h"
#include "attack/rig.h"
#include "attack/witness.h"
#include "base/alloc.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* In the child: mounts a resolv.conf that names the world's resolver, invisible to other
 * processes. */
static bool use_resolver(const char *path)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount(path, "/etc/resolv.conf", NULL, MS_BIND, NULL) == 0;
}

static int run_there(char **argv, const char *resolv_conf, struct err *err)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return err_sys(err, errno, "fork");
	if (pid == 0) {
		signal(SIGPIPE, SIG_DFL);
		setenv("BOX_RESOLV_CONF", resolv_conf, 1);
		if (!use_resolver(resolv_conf))
			fprintf(stderr, "box: /etc/resolv.conf is the host's\n");
		execvp(argv[0], argv);
		fprintf(stderr, "box: cannot run '%s': %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(err, errno, "wait");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void print_seen(const char *who, struct witness *witness)
{
	_cleanup_free_ char *seen = witness_take(witness);
	char *rest = seen, *line;

	while ((line = strsep(&rest, "\n")))
		if (*line)
			fprintf(stderr, "%s: %s\n", who, line);
}

int attack_rig(char **argv, struct err *err)
{
	static const char resolver[] = "nameserver " RIG_RESOLVER "\n";
	char path[] = "/tmp/boxyard-attack-XXXXXX";
	_cleanup_close_ int fd = mkostemp(path, O_CLOEXEC);
	struct rig rig;
	int code;

	if (fd < 0)
		return err_sys(err, errno, "make '%s'", path);
	if (fchmod(fd, 0644) < 0 || fd_write_all(fd, resolver, sizeof resolver - 1, err) < 0 ||
		rig_open(&rig, err) < 0) {
		unlink(path);
		return err->kind ? -1 : err_sys(err, errno, "write '%s'", path);
	}
	code = run_there(argv, path, err);
	unlink(path);
	print_seen("world", rig.world);
	print_seen("host", rig.host);
	return rig_close(&rig, err) < 0 ? -1 : code;
}
