/* pipes.c - pipes with data in them, named ones, and terminals: with a job in the foreground, and
 * with one that has just ended */
#include "tests/states/checks.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { QUEUED = 3000, STEP = 100, WIDE = 1 << 18 };

/* A queue that always holds QUEUED bytes of an endless sequence: STEP out at one end, STEP in at
 * the other. */
struct queue {
	int in, out;
	uint64_t seed, from;
};

static void queue_fill(struct check *check, struct queue *queue)
{
	unsigned char bytes[QUEUED];

	pattern_fill(bytes, QUEUED, queue->seed, 0);
	must(check, write(queue->in, bytes, QUEUED) == QUEUED, "fill a pipe");
}

static void queue_step(struct check *check, struct queue *queue, const char *what)
{
	unsigned char bytes[STEP];
	int held = 0;

	must(check, ioctl(queue->out, FIONREAD, &held) == 0 && held == QUEUED, "%s holds %d bytes",
		what, held);
	must(check,
		read(queue->out, bytes, STEP) == STEP &&
			pattern_is(bytes, STEP, queue->seed, queue->from),
		"%s: what was in it", what);
	pattern_fill(bytes, STEP, queue->seed, queue->from + QUEUED);
	must(check, write(queue->in, bytes, STEP) == STEP, "%s: write", what);
	queue->from += STEP;
}

static void pipe_open(struct check *check, struct queue *queue, uint64_t seed, int flags)
{
	int ends[2] = { -1, -1 };

	must(check, pipe2(ends, flags) == 0, "pipe");
	*queue = (struct queue){ .in = ends[1], .out = ends[0], .seed = seed };
	if (!check->why[0])
		queue_fill(check, queue);
}

/* ---- pipes ---------------------------------------------------------------------------------- */

static struct queue plain, closing, wide;
static int full[2], widow;

static void pipes_set_up(struct check *check)
{
	char bytes[4096] = "";
	int ends[2];

	pipe_open(check, &plain, 11, 0);
	pipe_open(check, &closing, 12, O_CLOEXEC);
	pipe_open(check, &wide, 13, O_NONBLOCK);
	must(check, fcntl(wide.in, F_SETPIPE_SZ, WIDE) == WIDE, "a wide pipe");
	must(check, pipe2(full, O_NONBLOCK) == 0, "pipe");
	while (write(full[1], bytes, sizeof bytes) > 0)
		;
	errno = 0;
	/* One whose writer is gone: what is in it, then the end. */
	must(check, pipe(ends) == 0 && write(ends[1], "last words", 10) == 10, "pipe");
	close(ends[1]);
	widow = ends[0];
}

static void pipes_verify(struct check *check)
{
	char bytes[16];

	queue_step(check, &plain, "pipe");
	queue_step(check, &closing, "close-on-exec pipe");
	queue_step(check, &wide, "wide pipe");
	must(check, fcntl(wide.in, F_GETPIPE_SZ) == WIDE, "size of the wide pipe: %d",
		fcntl(wide.in, F_GETPIPE_SZ));
	must(check, fcntl(closing.in, F_GETFD) & FD_CLOEXEC, "close-on-exec");
	must(check, write(full[1], "x", 1) < 0 && errno == EAGAIN, "the full pipe has room");
	errno = 0;
	if (check->asked == 0)
		must(check,
			read(widow, bytes, sizeof bytes) == 10 &&
				memcmp(bytes, "last words", 10) == 0,
			"a pipe without a writer");
	must(check, read(widow, bytes, sizeof bytes) == 0, "its end");
}

const struct kind kind_pipes = { "pipes", pipes_set_up, pipes_verify };

static struct queue named;

static void fifo_set_up(struct check *check)
{
	named.seed = 14;
	must(check, mkfifo("fifo", 0600) == 0, "mkfifo");
	named.out = open("fifo", O_RDONLY | O_NONBLOCK);
	named.in = open("fifo", O_WRONLY);
	must(check, named.out >= 0 && named.in >= 0, "open");
	if (!check->why[0])
		queue_fill(check, &named);
}

static void fifo_verify(struct check *check)
{
	int again;

	queue_step(check, &named, "named pipe");
	must(check, (again = open("fifo", O_WRONLY | O_NONBLOCK)) >= 0, "opened by its name");
	close(again);
}

const struct kind kind_fifo = { "fifo", fifo_set_up, fifo_verify };

/* ---- a terminal ----------------------------------------------------------------------------- */

static int master;
static pid_t shell;
static char screen[8192]; /* what came out and was not looked at yet */
static size_t screen_used;

/* As a shell does it: jobs in groups of their own, in the foreground one after the other; what
 * became of each is printed. */
static void shell_main(void)
{
	signal(SIGTTOU, SIG_IGN);
	for (unsigned number = 0;; number++) {
		int status;
		pid_t job = fork();

		if (job < 0)
			_exit(1);
		setpgid(job, job); /* in both: whoever comes first */
		if (job == 0) {
			while (getppid() != 1 && tcgetpgrp(0) != getpid())
				usleep(1000);
			/* Who starts us in the background of a script has them ignored. */
			signal(SIGINT, SIG_DFL);
			signal(SIGTSTP, SIG_DFL);
			signal(SIGTTOU, SIG_DFL);
			printf("job %u\n", number);
			fflush(stdout);
			for (;;)
				pause();
		}
		tcsetpgrp(0, job);
		do {
			waitpid(job, &status, WUNTRACED);
			tcsetpgrp(0, getpid());
			if (WIFSTOPPED(status)) {
				printf("stopped %u\n", number);
				fflush(stdout);
				tcsetpgrp(0, job);
				kill(-job, SIGCONT);
			}
		} while (WIFSTOPPED(status));
		printf("ended %u by %d\n", number, WIFSIGNALED(status) ? WTERMSIG(status) : -1);
		fflush(stdout);
	}
}

/* Waits for the text on the screen and forgets what came before it. */
static bool screen_shows(const char *text)
{
	uint64_t deadline = now_ms() + 10000;

	for (;;) {
		char *found = strstr(screen, text);

		if (found) {
			size_t past = (size_t)(found - screen) + strlen(text);

			memmove(screen, screen + past, screen_used - past + 1);
			screen_used -= past;
			return true;
		}
		struct pollfd wait = { .fd = master, .events = POLLIN };
		if (now_ms() > deadline || screen_used == sizeof screen - 1)
			return false;
		if (poll(&wait, 1, 100) == 1) {
			ssize_t got =
				read(master, screen + screen_used, sizeof screen - 1 - screen_used);

			if (got <= 0)
				return false;
			screen_used += (size_t)got;
			screen[screen_used] = 0;
		}
	}
}

static void pty_set_up(struct check *check)
{
	struct winsize size = { .ws_row = 33, .ws_col = 101 };
	struct termios how;

	shell = forkpty(&master, NULL, NULL, &size);
	if (shell == 0)
		shell_main();
	must(check, shell > 0, "forkpty");
	must(check, tcgetattr(master, &how) == 0, "tcgetattr");
	how.c_cc[VEOF] = 5;
	how.c_lflag &= ~(tcflag_t)ECHO;
	must(check, tcsetattr(master, TCSANOW, &how) == 0, "tcsetattr");
	must(check, screen_shows("job 0\r\n"), "the first job");
}

static void pty_verify(struct check *check)
{
	struct winsize size;
	struct termios how;
	pid_t group = tcgetpgrp(master);
	char text[64];

	must(check,
		ioctl(master, TIOCGWINSZ, &size) == 0 && size.ws_row == 33 && size.ws_col == 101,
		"size of the window");
	must(check, tcgetattr(master, &how) == 0 && how.c_cc[VEOF] == 5 && !(how.c_lflag & ECHO),
		"settings of the terminal");
	must(check, group > 0 && group != shell && kill(-group, 0) == 0,
		"no job in the foreground: %d", (int)group);
	must(check, tcgetsid(master) == shell, "session of the terminal");

	must(check, write(master, "\032", 1) == 1, "ctrl-z");
	snprintf(text, sizeof text, "stopped %u\r\n", check->asked);
	must(check, screen_shows(text), "ctrl-z did not stop the job: '%s'", screen);
	for (int tries = 0; tcgetpgrp(master) != group && tries < 2000; tries++)
		usleep(1000);
	must(check, write(master, "\003", 1) == 1, "ctrl-c");
	snprintf(text, sizeof text, "ended %u by 2\r\n", check->asked);
	must(check, screen_shows(text), "ctrl-c did not end the job: '%s'", screen);
	snprintf(text, sizeof text, "job %u\r\n", check->asked + 1);
	must(check, screen_shows(text), "the next job: '%s'", screen);
}

const struct kind kind_pty = { "pty", pty_set_up, pty_verify };

/* ---- a shell between two jobs --------------------------------------------------------------- */

static int next_job[2];

/* Its job has ended and was waited for, but the terminal is still that group's, of which nobody is
 * left: every shell is there for a moment after every job. */
static void between_main(void)
{
	char line[64];
	char byte;

	signal(SIGTTOU, SIG_IGN);
	for (unsigned number = 0;; number++) {
		pid_t job = fork();

		if (job < 0)
			_exit(1);
		setpgid(job, job);
		if (job == 0)
			for (;;)
				pause();
		tcsetpgrp(0, job);
		kill(job, SIGKILL);
		waitpid(job, NULL, 0);
		printf("between %u\n", number);
		fflush(stdout);
		if (read(next_job[0], &byte, 1) != 1 || tcsetpgrp(0, getpid()) != 0)
			_exit(2);
		if (!fgets(line, sizeof line, stdin))
			_exit(3);
		printf("read %s", line);
		fflush(stdout);
	}
}

static void between_set_up(struct check *check)
{
	struct termios how;

	must(check, pipe(next_job) == 0, "pipe");
	shell = forkpty(&master, NULL, NULL, NULL);
	if (shell == 0)
		between_main();
	must(check, shell > 0, "forkpty");
	must(check, tcgetattr(master, &how) == 0, "tcgetattr");
	how.c_lflag &= ~(tcflag_t)ECHO;
	must(check, tcsetattr(master, TCSANOW, &how) == 0, "tcsetattr");
	must(check, screen_shows("between 0\r\n"), "the first job");
}

static void between_verify(struct check *check)
{
	char text[64];

	must(check, tcgetsid(master) == shell, "session of the terminal");
	must(check, write(next_job[1], "?", 1) == 1, "write");
	snprintf(text, sizeof text, "line %u\n", check->asked);
	must(check, write(master, text, strlen(text)) == (ssize_t)strlen(text), "type");
	snprintf(text, sizeof text, "read line %u\r\n", check->asked);
	must(check, screen_shows(text), "the shell cannot read its terminal: '%s'", screen);
	snprintf(text, sizeof text, "between %u\r\n", check->asked + 1);
	must(check, screen_shows(text), "the next job: '%s'", screen);
}

const struct kind kind_pty_between = { "pty_between", between_set_up, between_verify };
