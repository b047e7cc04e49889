/* fork_run.c - see fork_run.h
 *
 * One program is a session, as with exec. Of several, each has its own process with a session in
 * it; its output comes here by pipes and is printed line by line, with the name of the box before
 * it (with --json: in it). Signals go to all of them: the processes are in their own groups, so
 * that a terminal sends Ctrl-C only to us. */
#include "cli/fork_run.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/guard.h"
#include "cli/session.h"
#include "base/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 64 * 1024, EXIT_SOFTWARE = 70 };

struct runner {
	const struct fork_program *program;
	pid_t pid;
	int pipes[2]; /* its stdout and stderr; -1: ended */
	struct buf lines[2];
	int code;
};

/* ---- in a process of its own ---------------------------------------------------------------- */

static int become(struct cli *cli, struct guard *guard, const struct fork_program *program, int out,
	int err_fd)
{
	struct session_spec spec = { .box = program->box, .body = program->body };

	guard_leave(guard);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (dup2(out, STDOUT_FILENO) < 0 || dup2(err_fd, STDERR_FILENO) < 0)
		return EXIT_SOFTWARE;
	/* The parent process's connection must not be used here. */
	cli->client = client_new(cli->target);
	return session_run(cli, &spec);
}

static int start(struct cli *cli, struct guard *guard, struct runner *runner, struct err *err)
{
	int out[2] = { -1, -1 }, errors[2] = { -1, -1 };

	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(errors, O_CLOEXEC) < 0)
		return err_sys(err, errno, "make a pipe");
	fflush(NULL);
	runner->pid = fork();
	if (runner->pid == 0) {
		int code = become(cli, guard, runner->program, out[1], errors[1]);

		fflush(NULL);
		_exit(code);
	}
	close(out[1]);
	close(errors[1]);
	runner->pipes[0] = out[0];
	runner->pipes[1] = errors[0];
	return runner->pid < 0 ? err_sys(err, errno, "fork") : 0;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void print_line(const struct cli *cli, const struct runner *runner, int width, FILE *to,
	const char *line, size_t len)
{
	_cleanup_json_ json_t *object =
		cli->json && to == stdout ? json_loadb(line, len, 0, NULL) : NULL;

	if (json_is_object(object)) {
		json_object_set_new(object, "box", json_string(runner->program->box));
		cli_print_json(json_incref(object));
	} else {
		fprintf(to, "%-*s | %.*s\n", width, runner->program->box, (int)len, line);
	}
	fflush(to);
}

/* Prints whole lines; with all also an unfinished one. */
static void print_lines(
	const struct cli *cli, struct runner *runner, int which, int width, bool all)
{
	struct buf *buf = &runner->lines[which];
	FILE *to = which ? stderr : stdout;

	for (;;) {
		const char *data = (const char *)buf_head(buf);
		size_t len = buf->len;
		const char *end = len ? memchr(data, '\n', len) : NULL;
		size_t line = end ? (size_t)(end - data) : len;

		if (!len || (!end && !all && len < LINE_MAX_BYTES))
			return;
		print_line(cli, runner, width, to, data, line);
		buf_eat(buf, end ? line + 1 : line);
	}
}

static void read_from(const struct cli *cli, struct runner *runner, int which, int width)
{
	char bytes[16 * 1024];
	ssize_t got = read(runner->pipes[which], bytes, sizeof bytes);

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got > 0)
		buf_add(&runner->lines[which], bytes, (size_t)got);
	print_lines(cli, runner, which, width, got <= 0);
	if (got > 0)
		return;
	close(runner->pipes[which]);
	runner->pipes[which] = -1;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static volatile sig_atomic_t heard[NSIG];

static void on_signal(int number)
{
	heard[number]++;
}

static void pass_signals_on(const struct runner *runners, size_t count)
{
	for (int number = 1; number < NSIG; number++)
		while (heard[number]) {
			heard[number]--;
			for (size_t i = 0; i < count; i++)
				if (runners[i].pid > 0)
					kill(runners[i].pid, number);
		}
}

static void pump(const struct cli *cli, struct runner *runners, size_t count, int width)
{
	struct pollfd *watch = xnewn(struct pollfd, 2 * count);
	sigset_t none;

	sigemptyset(&none);
	for (;;) {
		size_t open = 0;

		pass_signals_on(runners, count);
		for (size_t i = 0; i < 2 * count; i++) {
			watch[i] = (struct pollfd){ .fd = runners[i / 2].pipes[i % 2],
				.events = POLLIN };
			open += watch[i].fd >= 0;
		}
		if (!open)
			break;
		if (ppoll(watch, 2 * count, NULL, &none) < 0)
			continue;
		for (size_t i = 0; i < 2 * count; i++)
			if (watch[i].fd >= 0 && watch[i].revents)
				read_from(cli, &runners[i / 2], (int)(i % 2), width);
	}
	free(watch);
}

/* Blocked except while we wait, so that none is lost in between. */
static void catch_signals(sigset_t *ret_before)
{
	static const int passed[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	sigset_t set;

	sigemptyset(&set);
	signals_catch(passed, ARRAY_LEN(passed), on_signal, &set);
	sigprocmask(SIG_BLOCK, &set, ret_before);
}

static int wait_for(const struct cli *cli, struct runner *runner)
{
	int status;

	if (runner->pid <= 0)
		return EXIT_SOFTWARE;
	while (waitpid(runner->pid, &status, 0) < 0)
		if (errno != EINTR)
			return EXIT_SOFTWARE;
	runner->pid = 0;
	runner->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (runner->code)
		cli_note(cli, "the program in '%s' ended with exit code %d", runner->program->box,
			runner->code);
	return runner->code;
}

static int run_several(struct cli *cli, struct runner *runners, size_t count, struct guard *guard)
{
	sigset_t before;
	struct err err = ERR_INIT;
	int width = 0, code = 0;

	for (size_t i = 0; i < count; i++)
		width = MAX(width, (int)strlen(runners[i].program->box));
	for (size_t i = 0; i < count; i++)
		if (start(cli, guard, &runners[i], &err) < 0)
			return cli_fail(cli, &err);
	catch_signals(&before);
	pump(cli, runners, count, width);
	for (size_t i = 0; i < count; i++) {
		int one = wait_for(cli, &runners[i]);

		code = code ? code : one;
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return code;
}

int fork_run(struct cli *cli, const struct fork_program *programs, size_t count, bool named,
	struct guard *guard)
{
	struct runner *runners;
	int code;

	if (count == 1 && !named) {
		struct session_spec spec = { .box = programs[0].box, .body = programs[0].body };

		return session_run(cli, &spec);
	}
	runners = xcalloc(count + 1, sizeof *runners);
	for (size_t i = 0; i < count; i++)
		runners[i] = (struct runner){ .program = &programs[i],
			.pipes = { -1, -1 },
			.lines = { BUF_INIT, BUF_INIT } };
	code = run_several(cli, runners, count, guard);
	for (size_t i = 0; i < count; i++) {
		buf_done(&runners[i].lines[0]);
		buf_done(&runners[i].lines[1]);
	}
	free(runners);
	return code;
}

bool fork_remove(struct cli *cli, const char *box)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s?force=true", box);
	struct err err = ERR_INIT;

	if (client_call(cli->client, "DELETE", path, NULL, NULL, &err) == 0 ||
		err.kind == ERR_NOT_FOUND)
		return true;
	cli_fail(cli, &err);
	return false;
}
