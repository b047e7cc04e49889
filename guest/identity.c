/* identity.c - see identity.h: box-init's side
 *
 * There is one job at a time. A second request replaces the first: the daemon that made that one is
 * gone. */
#include "guest/identity.h"
#include "guest/conn.h"
#include "guest/self.h"
#include "guest/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum {
	PATIENCE_MS = HOOKS_MS + 10000,
	RESULT_FD = 3,
};

static struct {
	struct channel *channel; /* NULL: the asker is gone */
	struct watch watch;	 /* readable when the result is there */
	struct timer timer;
	pid_t pid;
	struct identity_job job;
	bool copy; /* the box is a copy of, or older than, the one in which its programs asked */
} telling = { .watch = WATCH_INIT };

static void telling_cancel(struct channel *channel)
{
	(void)channel;
	telling.channel = NULL;
}

static const struct channel_ops telling_ops = { .cancel = telling_cancel };

static void telling_stop(void)
{
	if (telling.watch.fd < 0)
		return;
	watch_close(&telling.watch);
	timer_disarm(&telling.timer);
	/* It was not reaped yet, so the pid is its own. Hooks have their own time limit. */
	kill(telling.pid, SIGKILL);
}

static void answer_askers(void)
{
	struct wire_identity identity = {
		.name = telling.job.name,
		.id = telling.job.id,
		.parent = telling.job.parent,
		.index = telling.job.index,
	};

	if (telling.copy)
		self_release_copy(telling.job.fork ? &identity : NULL);
	else
		self_release();
}

static void telling_done(const struct identity_result *result)
{
	struct channel *channel = steal_ptr(&telling.channel);

	telling_stop();
	/* A fork without its identity must not be used, so its programs are told nothing. */
	if (result->err.kind) {
		if (channel)
			channel_error(channel, &result->err);
		if (telling.job.fork)
			return;
	} else if (channel) {
		wire_put_told(channel_begin(channel, WIRE_REPLY),
			&(struct wire_told){ result->ran, result->failed, result->failure });
		channel_end(channel);
		channel_close(channel);
	}
	answer_askers();
}

static void telling_failed(const char *why)
{
	struct identity_result result = { 0 };

	err_set(&result.err, ERR_SYSTEM, "%s", why);
	telling_done(&result);
}

static void on_result(struct watch *watch, uint32_t ready)
{
	static struct identity_result result;
	ssize_t got = read(watch->fd, &result, sizeof result);

	(void)ready;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got != (ssize_t)sizeof result) {
		telling_failed("the process that makes a new identity was killed inside the box");
		return;
	}
	result.failure[sizeof result.failure - 1] = '\0';
	telling_done(&result);
}

static void on_late(struct timer *timer)
{
	(void)timer;
	telling_failed("the box did not get its new identity in time");
}

static _Noreturn void runner_main(int fd)
{
	static struct identity_result result;

	dup3(fd, RESULT_FD, O_CLOEXEC);
	close_range(RESULT_FD + 1, ~0u, 0);
	setsid();
	prctl(PR_SET_NAME, "box-init-fork");
	identity_run(&telling.job, &result);
	(void)!write(RESULT_FD, &result, sizeof result);
	_exit(0);
}

/* Here and now. */
static void telling_run(void)
{
	static struct identity_result result;
	mode_t mask = umask(022);

	result = (struct identity_result){ 0 };
	identity_run(&telling.job, &result);
	umask(mask);
	telling_done(&result);
}

static int telling_start(struct channel *channel, struct err *err)
{
	const char *root = getenv("BOX_INIT_ROOT");
	int ends[2];
	pid_t pid;

	static_assert(sizeof(struct identity_result) <= PIPE_BUF, "written at once or not at all");
	/* Under test, the files belong to the machine. */
	snprintf(telling.job.root, sizeof telling.job.root, "%s",
		getpid() == 1 ? ""
		: root	      ? root
			      : "-");
	if (identity_is_quick(&telling.job)) {
		telling.channel = channel;
		telling_run();
		return 0;
	}
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, errno, "make a pipe");
	pid = fork();
	if (!pid)
		runner_main(ends[1]);
	close(ends[1]);
	if (pid < 0) {
		err_sys(err, errno, "start a process");
		close(ends[0]);
		return -1;
	}
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	telling.pid = pid;
	watch_open(&telling.watch, ends[0], on_result);
	watch_set(&telling.watch, EPOLLIN);
	timer_arm(&telling.timer, PATIENCE_MS, on_late);
	channel->ops = &telling_ops;
	telling.channel = channel;
	return 0;
}

static int begin(struct channel *channel, struct err *err)
{
	struct channel *before = steal_ptr(&telling.channel);

	telling_stop();
	if (before)
		channel_close(before);
	conn_drop_others(channel);
	self_hold();
	return telling_start(channel, err);
}

int identity_open(struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	struct wire_identity identity;

	(void)op;
	wire_get_identity(in, &identity);
	if (wire_get_done(in, err) < 0)
		return -1;
	telling.copy = true;
	telling.job =
		(struct identity_job){ .fork = true, .event = "fork", .index = identity.index };
	strcpy(telling.job.name, identity.name);
	strcpy(telling.job.id, identity.id);
	strcpy(telling.job.parent, identity.parent);
	memcpy(telling.job.seed, identity.seed, sizeof identity.seed);
	return begin(channel, err);
}

int identity_open_restored(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	uint8_t kind = wire_get_u8(in);
	uint8_t seed[WIRE_SEED];

	(void)op;
	wire_get_bytes(in, seed, sizeof seed);
	if (wire_get_done(in, err) < 0)
		return -1;
	if (kind != WIRE_RESTORED_WOKEN && kind != WIRE_RESTORED_ROLLED_BACK)
		return err_set(err, ERR_PROTOCOL, "unknown kind of restore %u", kind);
	telling.copy = kind == WIRE_RESTORED_ROLLED_BACK;
	telling.job = (struct identity_job){ .event = telling.copy ? "rollback" : "wake" };
	memcpy(telling.job.seed, seed, sizeof seed);
	return begin(channel, err);
}
