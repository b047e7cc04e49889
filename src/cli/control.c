/* control.c - `box control`: commands for somebody who came in by SSH
 *
 * The daemon starts this program again for each command (ssh/control.c), as PID 1 of a pid
 * namespace and in a network namespace without anything. Before it looks at a word it gives up its
 * privileges. What it can do is ask the daemon for connections to the API, which are those of the
 * principal that logged in; so it needs to decide nothing, and its words may be anybody's.
 *
 *   control   waits for the command, passes the daemon's signals on, reaps what is left
 *     └ the command, as on any command line; its helpers (cp between boxes, guards of --rm)
 *
 * When the command has ended, its guards may still have something to remove: control waits for
 * them. The kernel ends everything when control ends. */
#include "base/alloc.h"
#include "base/text.h"
#include "client/given.h"
#include "cli/cli.h"
#include "cli/menu.h"
#include "cli/over_ssh.h"
#include "cli/terminal.h"
#include "sys/sandbox.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum {
	HANG_UP_S = 3, /* for a command to end after its connection did */
	GUARDS_S = 32, /* as long as a guard tries */
};

#define MIB (UINT64_C(1024) * 1024)

static const struct {
	int what;
	uint64_t most;
} limits[] = {
	{ RLIMIT_CORE, 0 },
	{ RLIMIT_FSIZE, 0 },
	{ RLIMIT_NOFILE, 1024 },
	{ RLIMIT_NPROC, 256 }, /* of a user that no other process has */
	{ RLIMIT_CPU, 3600 },
#ifndef __SANITIZE_ADDRESS__ /* which reserves terabytes */
	{ RLIMIT_AS, 1024 * MIB },
#endif
};

static int set_limits(struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		const struct rlimit limit = { limits[i].most, limits[i].most };

		if (setrlimit((__rlimit_resource_t)limits[i].what, &limit) < 0)
			return err_sys(err, errno, "set a limit");
	}
	return 0;
}

/* ---- the command ---------------------------------------------------------------------------- */

static volatile sig_atomic_t command; /* its pid; 0: none runs */
static volatile sig_atomic_t is_over, is_hung_up;

/* The terminal sends its signals to the command as well; HUP to the leader of the session alone. */
static void on_signal(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (number == SIGALRM)
		is_over = 1;
	if (number == SIGHUP) {
		is_hung_up = 1;
		if (command)
			alarm(HANG_UP_S);
	}
	if (!command || (info->si_code == SI_KERNEL && number != SIGHUP && number != SIGALRM))
		return;
	kill(command, number == SIGALRM ? SIGKILL : number);
}

static const int signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM };

static void catch_signals(void)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };

	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		sigaction(signals[i], &action, NULL);
	signal(SIGTSTP, SIG_IGN);
	signal(SIGTTOU, SIG_IGN);
}

static void reset_signals(void)
{
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		signal(signals[i], SIG_DFL);
	/* There is no shell that would let a stopped command go on. */
	signal(SIGTTOU, SIG_DFL);
}

static int code_of(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The daemon starts us with signals blocked: one that comes before the command waits for it. */
static void open_signals(bool open)
{
	sigset_t set;

	if (open)
		sigemptyset(&set);
	else
		sigfillset(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);
}

static int run_command(int argc, char **argv)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	open_signals(false);
	pid = fork();
	if (pid == 0) {
		reset_signals();
		open_signals(true);
		status = cli_run(argc, argv);
		terminal_restore();
		/* Not exit(): what sanitizers do at the end needs what we have given up. */
		_exit(status);
	}
	command = pid > 0 ? pid : 0;
	open_signals(true);
	if (pid < 0) {
		struct err err = ERR_INIT;

		err_sys(&err, errno, "start a process");
		return cli_fail(NULL, &err);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	command = 0;
	return code_of(status);
}

/* Whoever reads our output waits until nobody has it any more. */
static void wait_for_guards(void)
{
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	is_over = 0;
	alarm(GUARDS_S);
	while (!is_over && (waitpid(-1, NULL, 0) > 0 || errno == EINTR))
		;
}

/* ---- the beginning -------------------------------------------------------------------------- */

/* The daemon may have died before PDEATHSIG was set, which a change of the user clears. */
static int stay_with_daemon(const char *target, struct err *err)
{
	struct pollfd daemon = { .fd = given_fd(target), .events = POLLIN };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "box-control");
	if (poll(&daemon, 1, 0) > 0 && daemon.revents & (POLLHUP | POLLERR))
		return err_set(err, ERR_UNAVAILABLE, "the daemon has ended");
	return 0;
}

static int begin(const struct cli *cli, struct err *err)
{
	_cleanup_free_ char *target = NULL;
	uint64_t uid;

	if (given_read(&target, err) < 0)
		return -1;
	if (!target || !cli_get(cli, "uid") || getpid() != 1) {
		err_set(err, ERR_INVALID, "only the daemon starts this");
		return err_hint(err, "ssh box@HOST runs commands over ssh");
	}
	if (parse_u64("--uid", cli_get(cli, "uid"), 1, INT_MAX, &uid, err) < 0 ||
		sandbox_enter((uid_t)uid, SANDBOX_FORK, err) < 0 || set_limits(err) < 0)
		return -1;
	return stay_with_daemon(target, err);
}

int cmd_control(struct cli *cli, int argc, char **argv)
{
	struct err err = ERR_INIT;
	int code;

	if (begin(cli, &err) < 0)
		return cli_fail(cli, &err);
	over_ssh_begin();
	catch_signals();
	/* `ssh box@HOST box ls`: the name of the program may stand there, too. */
	if (argc && !strcmp(argv[0], "box")) {
		argc--;
		argv++;
	}
	if (!argc && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
		open_signals(true);
		code = menu_run(run_command, &is_hung_up);
	} else {
		code = run_command(argc, argv);
	}
	wait_for_guards();
	_exit(code);
}
