/* build_guard.c - nobody's build box goes; see build_internal.h
 *
 * Whoever builds can be killed in the middle of it: by kill -9, by a pipe whose reader has had
 * enough, with his terminal. The box would run on and nobody would know whose it was. So a second
 * process waits at the other end of a pipe, in a session of its own, with nothing of the terminal
 * open. It hears the name of the box before the box is made, and when the pipe closes without a
 * word that the box has gone or is to stay, it removes it. */
#include "base/alloc.h"
#include "cli/build_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
	TRIES = 20, /* a box that was being made when its maker died is not there yet */
	TRY_US = 500 * 1000,
};

struct word {
	char box[sizeof((struct build *)NULL)->box]; /* "": there is none to look after */
};

static void remove_box(const char *target, const char *box)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s?force=true", box);

	for (int i = 0; i < TRIES; i++) {
		struct client *client = client_new(target);
		struct err err = ERR_INIT;
		int done = client_call(client, "DELETE", path, NULL, NULL, &err);

		client_free(client);
		if (done == 0)
			return;
		usleep(TRY_US);
	}
}

static _Noreturn void guard(int pipe, const char *target)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct word word = { "" }, next;
	ssize_t got;

	setsid();
	prctl(PR_SET_NAME, "box-build-guard");
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	client_interrupted = false;
	/* Who reads our output would wait for us. */
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	do {
		got = read(pipe, &next, sizeof next);
		if (got == sizeof next)
			word = next;
	} while (got == sizeof next || (got < 0 && errno == EINTR));
	word.box[sizeof word.box - 1] = '\0';
	if (*word.box)
		remove_box(target, word.box);
	_exit(0);
}

int build_guard_start(struct build *build, struct err *err)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, errno, "make a pipe");
	fflush(NULL);
	build->guard_pid = fork();
	if (build->guard_pid == 0) {
		close(ends[1]);
		guard(ends[0], build->cli->target);
	}
	close(ends[0]);
	if (build->guard_pid < 0) {
		close(ends[1]);
		return err_sys(err, errno, "start a process");
	}
	build->guard = ends[1];
	return 0;
}

void build_guard_tell(struct build *build, const char *box)
{
	struct word word = { "" };

	if (build->guard < 0)
		return;
	memcpy(word.box, box, strnlen(box, sizeof word.box - 1));
	while (write(build->guard, &word, sizeof word) < 0 && errno == EINTR)
		;
}

void build_guard_end(struct build *build)
{
	if (build->guard < 0)
		return;
	cleanup_closep(&build->guard);
	build->guard = -1;
	if (build->box[0] && !build->step_failed)
		return; /* it has something left to do, and nobody waits for it */
	while (waitpid(build->guard_pid, NULL, 0) < 0 && errno == EINTR)
		;
}
