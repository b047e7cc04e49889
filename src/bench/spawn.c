/* spawn.c - starts and times programs, all in the same way
 *
 * The time starts before clone(CLONE_VM | CLONE_VFORK), which is the cheapest start Linux has.
 * The child does three things before exec: its own process group (so that ^C reaches only us,
 * and we decide when to stop), stdio, and for peers the prepared mount namespace.
 *
 * We are a subreaper: conmon, gofers and clean-up processes that outlive the program become our
 * children, and a run is over only when they have ended. Otherwise the end of one peer would be
 * measured as the start of the next. */
#include "bench/bench_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	TICK_MS = 5,
	IDLE_MS = 100,
	LEFTOVER_MS = 5000, /* how long orphans of a run may take */
	READ_SIZE = 256 * 1024,
};

struct start {
	const struct bench_program *program;
	int in, out, err;
	int failed; /* errno of the child; memory is shared until exec */
};

static int start_child(void *arg)
{
	struct start *start = arg;

	setpgid(0, 0);
	if (start->program->mount_ns >= 0 && setns(start->program->mount_ns, CLONE_NEWNS) < 0)
		goto fail;
	if (dup2(start->in, 0) < 0 || dup2(start->out, 1) < 0 || dup2(start->err, 2) < 0)
		goto fail;
	execv(start->program->argv[0], (char *const *)start->program->argv);
fail:
	start->failed = errno;
	_exit(127);
}

static pid_t start_program(struct start *start, struct err *err)
{
	static char stack[64 * 1024] __attribute__((aligned(64)));
	pid_t pid;

	pid = clone(start_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, start);
	if (pid < 0)
		return err_sys(err, errno, "start '%s'", start->program->argv[0]);
	if (start->failed) {
		waitpid(pid, NULL, 0);
		return err_sys(err, start->failed, "start '%s'", start->program->argv[0]);
	}
	return pid;
}

static double since(int64_t start_us)
{
	return (double)(clock_mono_us() - start_us) / 1000.0;
}

/* Reaps processes that became our children as a subreaper and have ended: a runtime may wait for
 * that. Not the program itself. */
static void reap_orphans(pid_t program)
{
	siginfo_t info = { 0 };

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid &&
		info.si_pid != program)
		waitpid(info.si_pid, NULL, 0);
}

/* Waits for fd at most until the next tick, and ticks. 1: fd is ready, 0: not yet, -1:
 * ERR_TIMEOUT. */
static int wait_ticking(const struct bench_program *program, pid_t pid, int fd, int64_t start_us,
	unsigned limit_ms, int64_t *tick_us, struct err *err)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	int ready = poll(&poll_fd, 1, program->on_tick ? TICK_MS : IDLE_MS);

	/* By the clock, not by poll's timeout: ticks come during an uninterrupted stream too. */
	if (program->on_tick && since(*tick_us) >= TICK_MS) {
		program->on_tick(program->arg);
		*tick_us = clock_mono_us();
	}
	if (ready > 0)
		return 1;
	reap_orphans(pid);
	if (since(start_us) > limit_ms)
		return err_set(err, ERR_TIMEOUT, "'%s' did not end within %u ms", program->argv[0],
			limit_ms);
	return 0;
}

/* Reads stdout to its end. */
static int read_output(const struct bench_program *program, pid_t pid, int fd, int64_t start_us,
	unsigned limit_ms, struct bench_times *times, struct err *err)
{
	static char data[READ_SIZE];
	int64_t tick_us = start_us;

	for (;;) {
		int ready = wait_ticking(program, pid, fd, start_us, limit_ms, &tick_us, err);
		ssize_t got;

		if (ready < 0)
			return -1;
		if (ready == 0)
			continue;
		got = read(fd, data, sizeof data);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		if (!times->bytes) {
			times->first_byte = since(start_us);
			memcpy(times->head, data, MIN((size_t)got, sizeof times->head - 1));
		}
		times->bytes += (size_t)got;
	}
	times->end_of_file = since(start_us);
	return 0;
}

static int wait_program(const struct bench_program *program, pid_t pid, int64_t start_us,
	unsigned limit_ms, int *ret_status, struct err *err)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int64_t tick_us = start_us;
	int ready;

	if (pidfd < 0)
		return err_sys(err, errno, "watch '%s'", program->argv[0]);
	while ((ready = wait_ticking(program, pid, pidfd, start_us, limit_ms, &tick_us, err)) == 0)
		;
	if (ready < 0)
		return -1;
	if (waitpid(pid, ret_status, 0) < 0)
		return err_sys(err, errno, "wait for '%s'", program->argv[0]);
	return 0;
}

/* Kills our children by the kernel's list: those left by a program that has ended. */
static void kill_children(void)
{
	_cleanup_free_ char *text = NULL;
	char path[64];

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	if (file_read(AT_FDCWD, path, 64 * 1024, &text, NULL, NULL) < 0)
		return;
	for (char *at = text, *end;; at = end) {
		pid_t pid = (pid_t)strtol(at, &end, 10);

		if (pid <= 0)
			return;
		kill(pid, SIGKILL);
	}
}

/* Waits for all children that came to us as a subreaper, with a timeout. */
static void reap_leftovers(void)
{
	int64_t start_us = clock_mono_us();
	bool killed = false;

	for (;;) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);

		if (pid < 0 && errno == ECHILD)
			return;
		if (pid > 0)
			continue;
		if (since(start_us) > LEFTOVER_MS) {
			if (killed)
				return; /* stuck in the kernel */
			kill_children();
			killed = true;
			start_us = clock_mono_us();
		}
		usleep(500);
	}
}

/* The last line of the program's stderr, without control characters. */
static void last_words(int fd, char *out, size_t size)
{
	char text[4096];
	off_t end = lseek(fd, 0, SEEK_END);
	off_t from = end > (off_t)sizeof text - 1 ? end - (off_t)sizeof text + 1 : 0;
	ssize_t got = pread(fd, text, sizeof text - 1, from);
	char *line;

	out[0] = '\0';
	if (got <= 0)
		return;
	while (got > 0 && (text[got - 1] == '\n' || text[got - 1] == ' '))
		got--;
	text[got] = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	snprintf(out, size, "%s", line);
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
}

static int check_status(
	const struct bench_program *program, int status, int stderr_fd, struct err *err)
{
	const char *name = strrchr(program->argv[0], '/');
	char words[256];

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	last_words(stderr_fd, words, sizeof words);
	name = name ? name + 1 : program->argv[0];
	if (WIFSIGNALED(status))
		return err_set(
			err, ERR_SYSTEM, "%s died of signal %d: %s", name, WTERMSIG(status), words);
	return err_set(err, ERR_SYSTEM, "%s exited with %d: %s", name, WEXITSTATUS(status), words);
}

int bench_program_run(const struct bench_program *program, unsigned limit_ms,
	struct bench_times *ret, struct err *err)
{
	_cleanup_close_ int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int errors = memfd_create("bench-stderr", MFD_CLOEXEC);
	_cleanup_close_ int out = -1;
	int pipe_fds[2], status = 0;
	struct start start = { .program = program };
	struct bench_times times = { 0 };
	int64_t start_us;
	pid_t pid;

	if (in < 0 || errors < 0 || pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_sys(err, errno, "prepare '%s'", program->argv[0]);
	out = pipe_fds[0];
	start.in = in;
	start.out = pipe_fds[1];
	start.err = errors;
	prctl(PR_SET_CHILD_SUBREAPER, 1);

	start_us = clock_mono_us();
	pid = start_program(&start, err);
	close(pipe_fds[1]);
	if (pid < 0)
		return -1;
	if (read_output(program, pid, out, start_us, limit_ms, &times, err) < 0 ||
		wait_program(program, pid, start_us, limit_ms, &status, err) < 0) {
		kill(-pid, SIGKILL);
		waitpid(pid, NULL, 0);
		reap_leftovers();
		return -1;
	}
	times.exit = since(start_us);
	reap_leftovers();
	if (check_status(program, status, errors, err) < 0)
		return -1;
	*ret = times;
	return 0;
}

char *bench_program_find(const char *name)
{
	const char *path = getenv("PATH");

	/* The usual folders come after PATH: a peer in /usr/sbin counts as installed. */
	for (int round = 0; round < 2; round++) {
		const char *at =
			round ? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
			      : path;

		while (at && *at) {
			size_t len = strcspn(at, ":");
			_cleanup_free_ char *full = xasprintf("%.*s/%s", (int)len, at, name);

			if (full[0] == '/' && access(full, X_OK) == 0)
				return steal_ptr(&full);
			at += len + (at[len] == ':');
		}
	}
	return NULL;
}
