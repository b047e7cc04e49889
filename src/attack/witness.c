/* witness.c - see witness.h: the process, and its handle */
#include "attack/witness_internal.h"
#include "base/file.h"
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct witness {
	pid_t pid;
	int control;
};

/* In the new process: reports by one struct err whether it listens. */
static void __attribute__((noreturn)) child_main(const struct witness_spec *spec, int control)
{
	struct err err = ERR_INIT;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* the parent ends us */
	signal(SIGPIPE, SIG_IGN);
	serve_open(spec, control, &err);
	if (fd_write_all(control, &err, sizeof err, NULL) == 0 && !err.kind)
		serve_forever();
	_exit(1);
}

static bool read_whole(int fd, void *to, size_t len)
{
	char *at = to;

	while (len) {
		ssize_t got = read(fd, at, len);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got;
		len -= (size_t)got;
	}
	return true;
}

int witness_start(const struct witness_spec *spec, struct witness **ret, struct err *err)
{
	struct witness *witness;
	struct err first = ERR_INIT;
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	pid = fork();
	if (pid == 0) {
		close(pair[0]);
		child_main(spec, pair[1]);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return err_sys(err, errno, "fork");
	}
	witness = xnew(struct witness);
	witness->pid = pid;
	witness->control = pair[0];
	if (!read_whole(pair[0], &first, sizeof first) || first.kind) {
		witness_stop(witness);
		return err_set(err, ERR_SYSTEM, "a witness cannot listen: %.300s", first.message);
	}
	*ret = witness;
	return 0;
}

void witness_stop(struct witness *witness)
{
	if (!witness)
		return;
	close(witness->control);
	kill(witness->pid, SIGKILL);
	while (waitpid(witness->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(witness);
}

char *witness_take(struct witness *witness)
{
	uint32_t len = 0;
	char *text;

	if (write(witness->control, "t", 1) != 1 ||
		!read_whole(witness->control, &len, sizeof len) || len > 2 * WITNESS_RECORD_MAX)
		return xstrdup("lost the witness\n");
	text = xcalloc(1, len + 1);
	if (!read_whole(witness->control, text, len))
		strcpy(text, "");
	return text;
}
