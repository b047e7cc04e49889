/* updown.c - up, down, serve: the daemon's life as seen from the command line
 *
 * `up` runs this same program as `box serve` in a session of its own, its output appended to the
 * log, and waits until it answers. A daemon that dies meanwhile has left its reason as the last
 * line of the log. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "daemon/serve.h"
#include "gate/gate.h"
#include "ssh/connection/connection.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
	UP_WAIT_US = 120 * 1000000,
	DIED_WAIT_US = 2 *
		       /* another daemon may be starting: the loser of two `box up` waits for it */
		       1000000,
	POLL_MS = 10,
	DOWN_WAIT_MS = 30 * 1000,
	PURGE_WAIT_MS = 10 * 60 * 1000,
};

int cmd_serve(struct cli *cli, int argc, char **argv)
{
	struct err err = ERR_INIT;

	(void)argc;
	(void)argv;
	if (geteuid() != 0) {
		err_set(&err, ERR_FORBIDDEN, "the daemon must be started by root");
		return cli_fail(cli, &err);
	}
	return serve_run(&cli->conf, &err) < 0 ? cli_fail(cli, &err) : 0;
}

int cmd_gate(struct cli *cli, int argc, char **argv)
{
	(void)cli;
	(void)argc;
	(void)argv;
	return gate_main();
}

int cmd_ssh_connection(struct cli *cli, int argc, char **argv)
{
	(void)cli;
	(void)argc;
	(void)argv;
	return sshc_main();
}

static bool is_up(struct cli *cli)
{
	struct err err = ERR_INIT;

	return client_get(cli->client, "/v1/health", NULL, &err) == 0;
}

/* ---- up -------------------------------------------------------------------------------------- */

static int open_log(const struct conf *conf, int *ret_fd, off_t *ret_end, struct err *err)
{
	_cleanup_free_ char *dir = xasprintf("%s/log", conf->home),
			    *path = xasprintf("%s/daemon.log", dir);
	struct stat status;
	int fd;

	if (dir_make_all(dir, 0755, err) < 0)
		return -1;
	fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
	if (fd < 0 || fstat(fd, &status) < 0) {
		cleanup_closep(&fd);
		return err_sys(err, errno, "open '%s'", path);
	}
	*ret_fd = fd;
	*ret_end = status.st_size;
	return 0;
}

static void become_daemon(int log_fd)
{
	static char *const argv[] = { "box", "serve", NULL };
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	dup2(nothing, STDIN_FILENO);
	dup2(log_fd, STDOUT_FILENO);
	dup2(log_fd, STDERR_FILENO);
	/* The caller's open files (pipes of make, of tests) must not stay open in the daemon. */
	close_range(3, ~0U, 0);
	if (chdir("/") == 0 && len > 0) {
		path[len] = '\0';
		execv(path, argv);
	}
	execv("/proc/self/exe", argv);
	_exit(127);
}

/* The last line of the daemon's log, as the reason for its end. */
static int died(int log_fd, off_t from, struct err *err)
{
	char text[4096], *line = text;
	ssize_t got;
	off_t end = lseek(log_fd, 0, SEEK_END);

	got = pread(log_fd, text, sizeof text - 1, MAX(from, end - (off_t)sizeof text + 1));
	while (got > 0 && text[got - 1] == '\n')
		got--;
	text[MAX(got, 0)] = '\0';
	if (strrchr(text, '\n'))
		line = strrchr(text, '\n') + 1;
	if (!strncmp(line, "box: ", 5))
		line += 5;
	return err_set(err, ERR_UNAVAILABLE, "the daemon did not start: %.400s",
		*line ? line : "no reason given");
}

static int wait_until_up(struct cli *cli, pid_t pid, int log_fd, off_t from, struct err *err)
{
	int64_t give_up = clock_mono_us() + UP_WAIT_US;
	bool alive = true;
	struct progress bar;

	progress_init(&bar, "starting the daemon", !cli->quiet, 500);
	while (!is_up(cli)) {
		if (alive && waitpid(pid, NULL, WNOHANG) == pid) {
			alive = false;
			give_up = clock_mono_us() + DIED_WAIT_US;
		}
		if (clock_mono_us() > give_up) {
			progress_done(&bar);
			return alive ? err_set(err, ERR_TIMEOUT,
					       "the daemon does not answer after two minutes")
				     : died(log_fd, from, err);
		}
		progress_steps(&bar, 0, 0, "...");
		nanosleep(&(struct timespec){ .tv_nsec = POLL_MS * 1000000 }, NULL);
	}
	progress_done(&bar);
	return 0;
}

/* A failed start leaves no home, and its log was shown. */
static void undo_log(const struct conf *conf)
{
	_cleanup_free_ char *dir = xasprintf("%s/log", conf->home),
			    *path = xasprintf("%s/daemon.log", dir);
	_cleanup_free_ char *store = xasprintf("%s/state.db", conf->home);

	if (access(store, F_OK) == 0)
		return;
	unlink(path);
	rmdir(dir);
	rmdir(conf->home);
	rmdir(conf->run);
}

static int start_daemon(struct cli *cli, struct err *err)
{
	bool is_new = access(cli->conf.home, F_OK) < 0;
	_cleanup_close_ int log_fd = -1;
	off_t from = 0;
	pid_t pid;

	if (geteuid() != 0) {
		err_set(err, ERR_FORBIDDEN, "the daemon must be started by root");
		return err_hint(err, "sudo box up");
	}
	if (open_log(&cli->conf, &log_fd, &from, err) < 0)
		return -1;
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return err_sys(err, errno, "fork");
	if (pid == 0)
		become_daemon(log_fd);
	if (wait_until_up(cli, pid, log_fd, from, err) == 0)
		return 0;
	if (is_new && err->kind != ERR_TIMEOUT)
		undo_log(&cli->conf);
	return -1;
}

static int print_up(struct cli *cli, bool already)
{
	_cleanup_json_ json_t *info = NULL;
	struct err err = ERR_INIT;

	if (client_get(cli->client, "/v1/info", &info, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json) {
		json_object_set_new(info, "already_up", json_boolean(already));
		return cli_print_json(steal_ptr(&info));
	}
	printf("the daemon is %sup\n  socket  %s\n", already ? "already " : "", cli->conf.socket);
	if (*json_str(info, "listen"))
		printf("  REST    %s://%s\n",
			json_is_true(json_object_get(info, "listen_tls")) ? "https" : "http",
			json_str(info, "listen"));
	printf("  log     %s/log/daemon.log\n", cli->conf.home);
	if (*json_str(info, "criu_problem"))
		cli_note(
			cli, "warning: %s ('make criu' builds it)", json_str(info, "criu_problem"));
	return 0;
}

int cmd_up(struct cli *cli, int argc, char **argv)
{
	struct err err = ERR_INIT;
	bool already = client_get(cli->client, "/v1/health", NULL, &err) == 0;

	(void)argc;
	(void)argv;
	if (!already && err.kind != ERR_UNAVAILABLE)
		return cli_fail(cli, &err);
	if (!already && start_daemon(cli, &err) < 0)
		return cli_fail(cli, &err);
	return print_up(cli, already);
}

/* ---- down ------------------------------------------------------------------------------------ */

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

/* A home that is a mount point stays, as an empty folder. */
static bool is_gone(const char *home)
{
	DIR *dir = opendir(home);
	int entries = 0;

	if (!dir)
		return errno == ENOENT;
	while (readdir(dir))
		entries++;
	closedir(dir);
	return entries <= 2; /* . and .. */
}

/* 0: confirmed. */
static int confirm(struct cli *cli, json_t *info, struct err *err)
{
	char answer[16] = "";

	if (cli_has(cli, "yes"))
		return 0;
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
		err_set(err, ERR_INVALID,
			"--purge removes everything and needs a confirmation, but stdin is not a terminal");
		return err_hint(err, "add --yes");
	}
	fprintf(stderr, "This removes %lld box%s, all images, tokens and logs in %s. Go on? [y/N] ",
		(long long)json_num(info, "boxes"), json_num(info, "boxes") == 1 ? "" : "es",
		cli->conf.home);
	if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return 0;
	return err_set(err, ERR_CANCELLED, "nothing was removed");
}

/* A pidfd of the daemon, to see it end; -1 where that is not possible (another user's). */
static int daemon_pidfd(json_t *info)
{
	pid_t pid = (pid_t)json_num(info, "pid");

	return pid > 1 ? pidfd_open(pid, 0) : -1;
}

/* What the daemon does to its boxes before it ends. */
enum down { DOWN_PLAIN, DOWN_HIBERNATE, DOWN_PURGE };

static const struct {
	const char *doing;
	int64_t wait_ms;
} downs[] = {
	[DOWN_PLAIN] = { "stopping the daemon", DOWN_WAIT_MS },
	[DOWN_HIBERNATE] = { "hibernating all boxes", DOWN_WAIT_MS },
	[DOWN_PURGE] = { "removing everything", PURGE_WAIT_MS },
};

static int wait_until_down(struct cli *cli, int pidfd, enum down how, struct err *err)
{
	int64_t give_up = clock_mono_us() + downs[how].wait_ms * 1000;
	struct pollfd watch = { .fd = pidfd, .events = POLLIN };
	struct progress bar;

	progress_init(&bar, downs[how].doing, !cli->quiet, 500);
	while (pidfd >= 0 ? poll(&watch, 1, 100) <= 0 : is_up(cli)) {
		if (clock_mono_us() > give_up) {
			progress_done(&bar);
			return err_set(err, ERR_TIMEOUT, "the daemon still runs");
		}
		progress_steps(&bar, 0, 0, "...");
		if (pidfd < 0)
			nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	}
	progress_done(&bar);
	return 0;
}

/* With DOWN_HIBERNATE the answer comes when the boxes are hibernated. */
static int ask_shutdown(struct cli *cli, enum down how, json_t **ret, struct err *err)
{
	struct progress bar;
	int status;

	progress_init(&bar, downs[how].doing, !cli->quiet && how == DOWN_HIBERNATE, 0);
	progress_steps(&bar, 0, 0, "...");
	status = client_call(cli->client, "POST", "/v1/shutdown",
		json_pack("{s:b, s:b}", "purge", how == DOWN_PURGE, "hibernate",
			how == DOWN_HIBERNATE),
		ret, err);
	progress_done(&bar);
	return status;
}

static int print_down(struct cli *cli, json_t *info, enum down how, json_t *awake)
{
	long long boxes = (long long)json_num(info, "boxes");
	size_t count = json_array_size(awake);

	if (cli->json)
		return cli_print_json(json_pack("{s:b, s:b, s:b, s:I, s:O*}", "down", 1, "purged",
			how == DOWN_PURGE, "hibernated", how == DOWN_HIBERNATE && !count, "boxes",
			(json_int_t)boxes, "not_hibernated", awake));
	if (how == DOWN_PURGE)
		printf("the daemon is down; %lld box%s, images, tokens and %s are removed\n", boxes,
			boxes == 1 ? "" : "es", cli->conf.home);
	else if (count)
		printf("the daemon is down; %zu box%s could not be hibernated and run%s on\n",
			count, count == 1 ? "" : "es", count == 1 ? "s" : "");
	else if (how == DOWN_HIBERNATE && boxes)
		printf("the daemon is down; its boxes are hibernated, and 'box wake' wakes them\n");
	else if (boxes)
		printf("the daemon is down; its boxes run on\n");
	else
		printf("the daemon is down\n");
	return 0;
}

/* Returns the exit code, or -1. */
static int shut_down(struct cli *cli, enum down how, struct err *err)
{
	_cleanup_json_ json_t *info = NULL, *answer = NULL;
	json_t *awake;
	_cleanup_close_ int pidfd = -1;
	bool purge = how == DOWN_PURGE;

	if (client_get(cli->client, "/v1/info", &info, err) < 0)
		return -1;
	if (purge && confirm(cli, info, err) < 0)
		return -1;
	if (how == DOWN_PLAIN && !cli_has(cli, "no-hibernate") &&
		json_is_true(json_object_get(info, "hibernate_on_shutdown")))
		how = DOWN_HIBERNATE;
	pidfd = daemon_pidfd(info);
	if (ask_shutdown(cli, how, &answer, err) < 0)
		return -1;
	if (wait_until_down(cli, pidfd, how, err) < 0)
		return -1;
	if (purge && !is_gone(cli->conf.home))
		return err_set(
			err, ERR_SYSTEM, "not everything in '%s' could be removed", cli->conf.home);
	awake = json_object_get(answer, "not_hibernated");
	print_down(cli, info, how, awake);
	return cli_fail_each(cli, awake, NULL);
}

int cmd_down(struct cli *cli, int argc, char **argv)
{
	bool purge = cli_has(cli, "purge"), hibernate = cli_has(cli, "hibernate");
	struct err err = ERR_INIT;
	int code;

	(void)argc;
	(void)argv;
	if (hibernate && (purge || cli_has(cli, "no-hibernate")))
		return cli_usage(cli, "--hibernate excludes --purge and --no-hibernate");
	if (client_get(cli->client, "/v1/health", NULL, &err) < 0) {
		if (err.kind != ERR_UNAVAILABLE)
			return cli_fail(cli, &err);
		if (!purge || !exists(cli->conf.home)) {
			if (cli->json)
				return cli_print_json(
					json_pack("{s:b, s:b}", "down", 1, "purged", purge));
			printf("the daemon is not running%s\n",
				purge ? "; there is nothing to remove" : "");
			return 0;
		}
		/* Only a daemon knows its boxes, mounts and cgroups, so one is started for the
		 * purge. Nobody else needs to reach it, so a taken port does not matter. */
		setenv("BOX_LISTEN", "off", 1);
		setenv("BOX_URL_LISTEN", "off", 1);
		if (start_daemon(cli, &err) < 0)
			return cli_fail(cli, &err);
	}
	code = shut_down(cli, purge ? DOWN_PURGE : hibernate ? DOWN_HIBERNATE : DOWN_PLAIN, &err);
	return code < 0 ? cli_fail(cli, &err) : code;
}
