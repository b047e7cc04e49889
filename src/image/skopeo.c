/* skopeo.c - runs skopeo, which talks to registries, and explains its errors
 *
 * skopeo knows the protocols, credentials and certificates of registries; what it downloads is
 * verified by us. It reports a failure in a line of its log (level=fatal msg="…"), whose words
 * are stable enough to recognise the cases that a user can do something about. */
#include "image/oci_internal.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { OUT_MAX = OCI_JSON_MAX, ERR_TAIL = 8192, TICK_MS = 100, READ_SIZE = 64 * 1024 };

/* ---- errors --------------------------------------------------------------------------------- */

/* The first match counts; case is ignored. */
static const struct complaint {
	const char *words;
	enum err_kind kind;
	const char *meaning, *hint;
} complaints[] = {
	{ "unauthorized", ERR_FORBIDDEN, "the registry asks for credentials, or does not know it",
		"check the name; log in with `skopeo login REGISTRY`, or set registry_auth" },
	{ "authentication required", ERR_FORBIDDEN, "the registry asks for credentials",
		"log in with `skopeo login REGISTRY`, or set registry_auth" },
	{ "denied", ERR_FORBIDDEN, "the registry does not allow it",
		"check the name; log in with `skopeo login REGISTRY`" },
	{ "toomanyrequests", ERR_UNAVAILABLE, "the registry refuses more requests for now",
		"try later, or log in with `skopeo login REGISTRY`" },
	{ "did not match expected digest", ERR_INVALID,
		"a blob arrived damaged: its digest is wrong",
		"try again; if it stays so, the registry holds a damaged image" },
	{ "digest did not match", ERR_INVALID, "a blob arrived damaged: its digest is wrong",
		"try again; if it stays so, the registry holds a damaged image" },
	{ "unexpected eof", ERR_UNAVAILABLE, "the registry broke off",
		"try again: what arrived is kept" },
	{ "manifest unknown", ERR_NOT_FOUND, "the registry has no such image or tag",
		"check the name and tag" },
	{ "name unknown", ERR_NOT_FOUND, "the registry has no such image", "check the name" },
	{ "repository name not known", ERR_NOT_FOUND, "the registry has no such image",
		"check the name" },
	{ "blob unknown", ERR_INVALID, "the registry has lost a part of the image", "" },
	{ "server gave http response to https", ERR_UNAVAILABLE, "the registry speaks plain HTTP",
		"if that is meant so, pull with --insecure" },
	{ "x509:", ERR_UNAVAILABLE, "the certificate of the registry is not trusted",
		"install its authority on this machine, or pull with --insecure" },
	{ "connection refused", ERR_UNAVAILABLE,
		"the registry does not answer (connection refused)",
		"check its address and that it runs" },
	{ "no such host", ERR_UNAVAILABLE, "there is no such host",
		"check the name of the registry and the network" },
	{ "server misbehaving", ERR_UNAVAILABLE, "the name of the registry cannot be looked up",
		"check the network" },
	{ "network is unreachable", ERR_UNAVAILABLE, "the network is unreachable",
		"check the network" },
	{ "no route to host", ERR_UNAVAILABLE, "there is no way to the registry",
		"check the network" },
	{ "timeout", ERR_UNAVAILABLE, "the registry does not answer in time",
		"check the network; try again" },
	{ "no space left", ERR_LIMIT, "the disk of BOX_HOME is full",
		"make some space there; `box image gc`" },
	{ "not found", ERR_NOT_FOUND, "the registry has no such image", "check the name and tag" },
};

/* The text in msg="…" of the last fatal line, or the last line. ret has 400 bytes. */
static void find_message(const char *said, char *ret, size_t size)
{
	const char *fatal = NULL, *end = said + strlen(said), *start;
	size_t out = 0;

	for (const char *at = said; (at = strstr(at, "level=fatal msg=\"")); at++)
		fatal = at + strlen("level=fatal msg=\"");
	if (!fatal) {
		while (end > said && end[-1] == '\n')
			end--;
		for (start = end; start > said && start[-1] != '\n';)
			start--;
		snprintf(ret, size, "%.*s", (int)(end - start), start);
		return;
	}
	for (; *fatal && *fatal != '"' && out + 1 < size; fatal++) {
		if (*fatal == '\\' && fatal[1])
			fatal++;
		ret[out++] = (unsigned char)*fatal < ' ' ? ' ' : *fatal;
	}
	ret[out] = '\0';
}

void skopeo_explain(const char *said, struct err *err)
{
	char message[400];

	find_message(said, message, sizeof message);
	for (size_t i = 0; i < ARRAY_LEN(complaints); i++) {
		const struct complaint *complaint = &complaints[i];

		if (!strcasestr(message, complaint->words))
			continue;
		err_set(err, complaint->kind, "%s", complaint->meaning);
		if (*complaint->hint)
			err_hint(err, "%s", complaint->hint);
		return;
	}
	err_set(err, ERR_UNAVAILABLE, "skopeo: %.300s",
		*message ? message : "failed without a message");
}

/* ---- running it ----------------------------------------------------------------------------- */

struct running {
	pid_t pid;
	int out, err; /* -1: at its end */
	struct buf said, complained;
};

static _Noreturn void exec_skopeo(const struct skopeo_run *run, int out, int err)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_DFL);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	setenv("TMPDIR", run->dir, 1); /* its temporary files are removed with ours */
	if (chdir(run->dir) < 0)
		_exit(126);
	execv(run->program, run->argv);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", run->program, strerror(errno));
	_exit(127);
}

static int start(const struct skopeo_run *run, struct running *ret, struct err *err)
{
	int out[2], errs[2];

	if (pipe2(out, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe");
	if (pipe2(errs, O_CLOEXEC) < 0) {
		close(out[0]);
		close(out[1]);
		return err_sys(err, errno, "pipe");
	}
	ret->pid = fork();
	if (ret->pid == 0)
		exec_skopeo(run, out[1], errs[1]);
	close(out[1]);
	close(errs[1]);
	ret->out = out[0];
	ret->err = errs[0];
	return ret->pid < 0 ? err_sys(err, errno, "fork") : 0;
}

/* keep_end: keeps only the last max bytes; else more than max is an error. */
static int take(int *fd, struct buf *buf, size_t max, bool keep_end, struct err *err)
{
	ssize_t got = read(*fd, buf_room(buf, READ_SIZE), READ_SIZE);

	if (got < 0 && errno == EINTR)
		return 0;
	if (got <= 0) {
		close(*fd);
		*fd = -1;
		return 0;
	}
	buf_grew(buf, (size_t)got);
	if (buf->len > max && !keep_end)
		return err_set(err, ERR_TOO_LARGE, "skopeo printed more than %zu bytes", max);
	if (buf->len > max)
		buf_eat(buf, buf->len - max);
	return 0;
}

static int follow(const struct skopeo_run *run, struct running *running, struct err *err)
{
	int64_t ticked_us = 0;

	while (running->out >= 0 || running->err >= 0) {
		struct pollfd fds[] = { { .fd = running->out, .events = POLLIN },
			{ .fd = running->err, .events = POLLIN } };

		poll(fds, ARRAY_LEN(fds), TICK_MS);
		if (fds[0].revents && take(&running->out, &running->said, OUT_MAX, false, err) < 0)
			return -1;
		if (fds[1].revents &&
			take(&running->err, &running->complained, ERR_TAIL, true, err) < 0)
			return -1;
		if (run->tick && clock_mono_us() - ticked_us >= TICK_MS * 1000) {
			ticked_us = clock_mono_us();
			if (run->tick(run->arg, err) < 0)
				return -1;
		}
	}
	return 0;
}

/* We may be PID 1 here: orphans are ours to reap, too. */
static int wait_for(pid_t pid)
{
	int status;
	pid_t got;

	while ((got = wait(&status)) != pid)
		if (got < 0 && errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void end(struct running *running)
{
	if (running->out >= 0)
		close(running->out);
	if (running->err >= 0)
		close(running->err);
	buf_done(&running->said);
	buf_done(&running->complained);
}

int skopeo_run(const struct skopeo_run *run, char **ret, size_t *ret_len, struct err *err)
{
	struct running running = { .pid = -1, .out = -1, .err = -1 };
	int code = start(run, &running, err);

	if (code == 0) {
		code = follow(run, &running, err);
		if (code < 0)
			kill(running.pid, SIGKILL);
		if (wait_for(running.pid) != 0 && code == 0) {
			skopeo_explain(buf_str(&running.complained), err);
			code = -1;
		}
	}
	if (code == 0 && ret) {
		*ret_len = running.said.len;
		*ret = xmemdup(buf_str(&running.said), running.said.len + 1);
	}
	end(&running);
	return code;
}
