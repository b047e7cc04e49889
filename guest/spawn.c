/* spawn.c - see spawn.h
 *
 * A plain fork: everything that looks at the box's file system (users, the working directory, the
 * program) happens in the child, so that a file system that hangs keeps only this exec waiting and
 * never box-init, as vfork would. The 0.1 ms it costs more is the price; journals are not copied
 * (journal.c).
 *
 * A program that is box-init's own is executed like any other, from the file box-init runs from: a
 * child that went on without would keep box-init's memory, and its secrets, in a process that the
 * user may trace.
 *
 * The child reports its first error whole, as a struct err, down a pipe that closes itself when the
 * program is executed. */
#include "guest/spawn.h"
#include "guest/group.h"
#include "guest/proc.h"
#include "guest/sftp.h"
#include "guest/trust.h"
#include "guest/user.h"
#include "base/file.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>

#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum {
	REPORT_FD = 3,
	PROC_FD = 4,	   /* for a program of our own */
	FILES_SOFT = 1024, /* the usual limit; programs may raise it themselves */
	ENV_ADDED = 10,
};

const char *const *spawn_argv(const struct wire_exec_spec *spec)
{
	static const char *const sftp[] = { SFTP_PROGRAM, NULL };

	return spec->builtin == WIRE_BUILTIN_SFTP ? sftp : spec->argv;
}

/* The descriptors of the child's side and of ours. */
struct ends {
	int in, out, err, report;
};
#define ENDS_INIT              \
	{                      \
		-1, -1, -1, -1 \
	}

static void ends_done(struct ends *ends)
{
	cleanup_closep(&ends->in);
	cleanup_closep(&ends->out);
	cleanup_closep(&ends->err);
	cleanup_closep(&ends->report);
}

/* ---- in the child --------------------------------------------------------------------------- */

static const char *env_find(char **env, const char *key)
{
	size_t len = strlen(key);

	for (; *env; env++)
		if (!strncmp(*env, key, len) && (*env)[len] == '=')
			return *env + len + 1;
	return NULL;
}

/* The spec's environment, with the usual variables where it has none. */
static char **make_env(const struct wire_exec_spec *spec, const struct user *user)
{
	static char *env[WIRE_ARGV_MAX + ENV_ADDED + 1];
	static char added[ENV_ADDED][1100];
	const struct {
		const char *key, *value;
	} defaults[] = {
		{ "HOME", user->home },
		{ "USER", user->name },
		{ "LOGNAME", user->name },
		{ "SHELL", user->shell },
		{ "PATH", PATH_DEFAULT },
		{ "TERM", spec->tty ? "xterm-256color" : NULL },
		{ "LANG", "C.UTF-8" },
		{ "SSL_CERT_FILE", trust_get_list() },
		{ "REQUESTS_CA_BUNDLE", trust_get_list() },
		{ "NODE_EXTRA_CA_CERTS", trust_get_added() },
	};
	size_t count = 0;

	static_assert(ARRAY_LEN(defaults) == ENV_ADDED, "room for each");
	for (size_t i = 0; spec->env[i] && count < WIRE_ARGV_MAX; i++)
		env[count++] = (char *)spec->env[i];
	for (size_t i = 0; i < ENV_ADDED; i++) {
		if (!defaults[i].value || env_find(env, defaults[i].key))
			continue;
		snprintf(added[i], sizeof added[i], "%s=%s", defaults[i].key, defaults[i].value);
		env[count++] = added[i];
		env[count] = NULL;
	}
	return env;
}

static int become(const struct user *user, struct err *err)
{
	bool same = user->uid == geteuid() && user->gid == getegid();

	if (setgroups(user->group_count, user->groups) < 0 && !same)
		return err_sys(err, errno, "set the groups of user '%s'", user->name);
	if (same)
		return 0;
	if (setresgid(user->gid, user->gid, user->gid) < 0)
		return err_sys(err, errno, "become group %u", user->gid);
	if (setresuid(user->uid, user->uid, user->uid) < 0)
		return err_sys(err, errno, "become user '%s' (%u)", user->name, user->uid);
	return 0;
}

#define WORK_FOLDER "/workspace"

static int enter_home(const struct user *user, struct err *err)
{
	if (chdir(user->home) < 0 && chdir("/") < 0)
		return err_sys(err, errno, "enter '/'");
	return 0;
}

static int enter_folder(const char *cwd, const struct user *user, struct err *err)
{
	if (*cwd) {
		if (chdir(cwd) == 0)
			return 0;
		if (errno == ENOENT)
			return err_set(err, ERR_NOT_FOUND,
				"folder '%.300s' does not exist in the box", cwd);
		return err_sys(err, errno, "enter folder '%.300s'", cwd);
	}
	/* The default folder of work; a box whose owner removed it still has a home. */
	return chdir(WORK_FOLDER) < 0 ? enter_home(user, err) : 0;
}

static int execute(const struct wire_exec_spec *spec, struct err *err)
{
	const char *program = spec->argv[0];

	execvp(program, (char *const *)spec->argv);
	switch (errno) {
	case ENOENT:
	case ENOTDIR:
		if (strchr(program, '/') && access(program, F_OK) == 0)
			return err_set(err, ERR_NOT_FOUND,
				"program '%.300s' is there, but the interpreter or loader it names "
				"is not",
				program);
		return err_set(
			err, ERR_NOT_FOUND, "program '%.300s' not found in the box", program);
	case EACCES:
	case EPERM:
	case ENOEXEC:
		return err_set(err, ERR_FORBIDDEN, "program '%.300s' is not executable", program);
	case E2BIG:
		return err_set(
			err, ERR_TOO_LARGE, "arguments and environment are too large together");
	default:
		return err_sys(err, errno, "execute '%.300s'", program);
	}
}

static int execute_builtin(const struct wire_exec_spec *spec, struct err *err)
{
	const char *const *argv = spawn_argv(spec);

	proc_execute_self(PROC_FD, argv);
	return err_sys(err, errno, "execute '%s'", argv[0]);
}

static int take_terminal(const struct user *user, struct err *err)
{
	if (ioctl(0, TIOCSCTTY, 0) < 0)
		return err_sys(err, errno, "take the terminal");
	/* Programs open /dev/pts/N again as the user; those that do not, work without this. */
	if (user->uid && fchown(0, user->uid, (gid_t)-1) < 0)
		errno = 0;
	return 0;
}

static void raise_oom_score(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	/* Best effort: programs should die of memory before box-init does. */
	if (write(fd, "200", 3) < 0)
		errno = 0;
	close(fd);
}

static void reset_process(void)
{
	struct rlimit files;
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	umask(022);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > FILES_SOFT) {
		files.rlim_cur = FILES_SOFT;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	raise_oom_score();
}

static int child_main(const struct wire_exec_spec *spec, struct err *err)
{
	static struct user user;

	reset_process();
	if (user_find(spec->user, &user, err) < 0)
		return -1;
	if (spec->tty && take_terminal(&user, err) < 0)
		return -1;
	if (become(&user, err) < 0)
		return -1;
	if (spec->builtin && !*spec->cwd ? enter_home(&user, err) < 0
					 : enter_folder(spec->cwd, &user, err) < 0)
		return -1;
	environ = make_env(spec, &user);
	return spec->builtin ? execute_builtin(spec, err) : execute(spec, err);
}

static _Noreturn void child(const struct wire_exec_spec *spec, const struct ends *ends)
{
	struct err err = ERR_INIT;

	setsid();
	group_join();
	/* 0 to 3 are always open, so none of these overwrites another. Without stdin, 0 is
	 * /dev/null. */
	if (ends->in >= 0)
		dup2(ends->in, 0);
	dup2(ends->out, 1);
	dup2(ends->err, 2);
	dup3(ends->report, REPORT_FD, O_CLOEXEC);
	if (spec->builtin)
		proc_keep(PROC_FD);
	close_range(spec->builtin ? PROC_FD + 1 : REPORT_FD + 1, ~0u, 0);
	child_main(spec, &err);
	if (write(REPORT_FD, &err, sizeof err) < 0)
		_exit(126);
	_exit(127);
}

/* ---- in box-init ---------------------------------------------------------------------------- */

static int make_pipe(int *ret_read, int *ret_write, bool ours_is_read, struct err *err)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(err, errno, "make a pipe");
	*ret_read = fds[0];
	*ret_write = fds[1];
	return fd_set_nonblocking(fds[ours_is_read ? 0 : 1], err);
}

static int open_master(struct err *err)
{
	/* The instance of this box first; /dev/ptmx is only a symlink to it, which the box may have
	 * removed. */
	int fd = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return err_sys(err, errno, "open a terminal in the box");
	return fd;
}

static int make_terminal(
	const struct wire_exec_spec *spec, struct ends *ours, struct ends *theirs, struct err *err)
{
	struct winsize size = {
		.ws_row = spec->rows ? spec->rows : 24,
		.ws_col = spec->cols ? spec->cols : 80,
	};
	int unlocked = 0;

	ours->out = open_master(err);
	if (ours->out < 0)
		return -1;
	if (ioctl(ours->out, TIOCSPTLCK, &unlocked) < 0)
		return err_sys(err, errno, "unlock a terminal in the box");
	theirs->in = ioctl(ours->out, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (theirs->in < 0)
		return err_sys(err, errno, "open a terminal in the box");
	ioctl(ours->out, TIOCSWINSZ, &size);
	theirs->out = fcntl(theirs->in, F_DUPFD_CLOEXEC, 0);
	theirs->err = fcntl(theirs->in, F_DUPFD_CLOEXEC, 0);
	ours->in = fcntl(ours->out, F_DUPFD_CLOEXEC, 0);
	if (theirs->out < 0 || theirs->err < 0 || ours->in < 0)
		return err_sys(err, errno, "share a terminal");
	return 0;
}

static int make_pipes(
	const struct wire_exec_spec *spec, struct ends *ours, struct ends *theirs, struct err *err)
{
	if (spec->stdin_open && make_pipe(&theirs->in, &ours->in, false, err) < 0)
		return -1;
	if (make_pipe(&ours->out, &theirs->out, true, err) < 0)
		return -1;
	return make_pipe(&ours->err, &theirs->err, true, err);
}

int spawn(const struct wire_exec_spec *spec, struct spawned *ret, struct err *err)
{
	_cleanup_(ends_done) struct ends ours = ENDS_INIT;
	_cleanup_(ends_done) struct ends theirs = ENDS_INIT;
	pid_t pid;

	if ((spec->tty ? make_terminal : make_pipes)(spec, &ours, &theirs, err) < 0)
		return -1;
	if (make_pipe(&ours.report, &theirs.report, true, err) < 0)
		return -1;
	pid = fork();
	if (pid < 0) {
		err_sys(err, errno, "start a process");
		return err_hint(err, "the box is at its limit of processes or memory");
	}
	if (!pid)
		child(spec, &theirs);
	*ret = (struct spawned){
		.pid = pid,
		.report = steal_fd(&ours.report),
		.out = steal_fd(&ours.out),
		.err = steal_fd(&ours.err),
		.in = steal_fd(&ours.in),
	};
	return 0;
}
