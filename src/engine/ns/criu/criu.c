/* criu.c - one run of criu: its events, its answer, its end
 *
 *   start ──► running ◄──────────► asked (an event is with the caller)
 *                │ its answer, or none
 *                ▼
 *             process ended ──► (failed: what it was restoring is killed and reaped) ──► on_done
 *
 * Whatever ends a run early (the time limit, criu_cancel, a refused event, an invalid message) is
 * remembered as the failure, and then the process ends: by itself when an event can be refused,
 * which lets CRIU undo its work, else by a kill. on_done is called only when nothing of the run is
 * left. */
#include "engine/ns/criu/criu.h"
#include "engine/ns/criu/criu_internal.h"
#include "base/log.h"
#include "loop/loop.h"
#include "sys/procfd.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
	KILL_MS = 200,	 /* for a killed process to end */
	GRACE_MS = 2000, /* from a refused event to the kill */
	SWEEP_MS = 2,
	SWEEPS_MAX = 2500,
};

struct criu {
	struct loop *loop;
	const struct criu_ops *ops;
	void *arg;
	enum criu_type type;
	uint64_t limit_ms;
	int images, work; /* our copies: CRIU opens them by number, as ours; -1: none */

	struct criu_process process;
	struct loop_fd *message_watch, *exit_watch;
	struct loop_timer *limit, *sweep;
	unsigned sweeps;

	bool heard;	   /* CRIU itself has sent something */
	bool asked;	   /* an event waits for its answer */
	bool deaf;	   /* CRIU ignores our answers: the restored processes will run */
	bool resuming;	   /* CRIU_PRE_RESUME was sent */
	bool agreed;	   /* the caller agreed that the restored processes run */
	bool goes_on;	   /* they run, though CRIU ended before it said so */
	bool to_fail;	   /* every event is refused from now on */
	bool replied;	   /* reply is its final answer */
	bool reaped;	   /* the process was */
	bool over;	   /* nothing of the run is left */
	const char *doing; /* what its last event began, for people */
	struct criu_reply reply;
	pid_t restored;
	int restored_fd;    /* -1: not known */
	struct err failure; /* ERR_NONE: none */
};

/* The first failure is the one that counts. */
static void remember(struct criu *criu, const struct err *err)
{
	if (criu->failure.kind == ERR_NONE)
		criu->failure = *err;
	criu->to_fail = true;
}

static void give_up(struct criu *criu, const struct err *err)
{
	remember(criu, err);
	criu_process_kill(&criu->process);
}

/* ---- events --------------------------------------------------------------------------------- */

static void kill_all(struct criu *criu)
{
	criu_process_kill(&criu->process);
	if (criu->restored_fd >= 0)
		procfd_kill(criu->restored_fd, SIGKILL, NULL);
}

/* The socket has room for more than one message. If CRIU is dead, its end is noticed elsewhere. */
static void tell(struct criu *criu, bool ok)
{
	struct buf out = BUF_INIT;

	criu->asked = false;
	if (!ok && criu->deaf) {
		kill_all(criu);
		return;
	}
	criu_rpc_put_notified(&out, ok);
	send(criu->process.sock, buf_head(&out), out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	buf_done(&out);
}

void criu_answer(struct criu *criu, bool ok, const struct err *reason)
{
	struct err refused = ERR_INIT;

	if (!criu->asked) { /* the time limit came first */
		assert(criu->to_fail);
		return;
	}
	if (!ok) {
		if (reason)
			refused = *reason;
		else
			err_set(&refused, ERR_CANCELLED, "refused while %s", criu->doing);
		remember(criu, &refused);
	}
	criu->agreed |= criu->resuming && ok && !criu->to_fail;
	tell(criu, ok && !criu->to_fail);
}

void criu_cancel(struct criu *criu)
{
	struct err cancelled = ERR_INIT;

	err_set(&cancelled, ERR_CANCELLED, "%s was cancelled", criu_type_name(criu->type));
	remember(criu, &cancelled);
	if (criu->asked)
		tell(criu, false);
}

/* The pid of the topmost restored process; accepted only if it is a child of ours. */
static int adopt(struct criu *criu, pid_t pid, struct err *err)
{
	siginfo_t info = { 0 };

	if (criu->restored_fd >= 0)
		return pid == criu->restored
			       ? 0
			       : err_set(err, ERR_PROTOCOL, "criu restored two processes");
	if (procfd_open(pid, &criu->restored_fd, err) < 0)
		return err_wrap(err, "restored process %d", (int)pid);
	criu->restored = pid;
	if (pid != criu->process.pid &&
		waitid(P_PIDFD, (id_t)criu->restored_fd, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
		return 0;
	close(steal_fd(&criu->restored_fd));
	return err_set(err, ERR_PROTOCOL, "criu restored process %d, which is not a child of ours",
		(int)pid);
}

/* Calls the caller's function last, which may free the run. Unknown events of newer versions are
 * agreed to. */
static void on_notify(struct criu *criu, const struct criu_reply *reply)
{
	struct criu_event event = { .pid = 0, .pidfd = -1 };
	const char *name = criu_rpc_find_event(reply->script, &event.kind);
	struct err err = ERR_INIT;

	if (criu->asked || criu->replied ||
		(criu->type != CRIU_TYPE_DUMP && criu->type != CRIU_TYPE_RESTORE)) {
		err_set(&err, ERR_PROTOCOL, "criu sent an event out of order");
		give_up(criu, &err);
		return;
	}
	criu->asked = true;
	if (name)
		criu->doing = criu_event_work(event.kind);
	log_debug("criu", kv_str("event", reply->script), kv_int("criu", criu->process.pid));
	if (criu->type == CRIU_TYPE_RESTORE &&
		(event.kind == CRIU_NETWORK_UNLOCK || event.kind == CRIU_PRE_RESUME))
		criu->deaf = true;
	criu->resuming |= name && event.kind == CRIU_PRE_RESUME;
	if (criu->type == CRIU_TYPE_RESTORE && reply->pid && adopt(criu, reply->pid, &err) < 0) {
		give_up(criu, &err);
		return;
	}
	event.pid = criu->restored;
	event.pidfd = criu->restored_fd;
	if (criu->to_fail || !name || !criu->ops->on_event)
		tell(criu, !criu->to_fail);
	else
		criu->ops->on_event(criu, &event, criu->arg);
}

/* ---- messages ------------------------------------------------------------------------------- */

static void on_reply(struct criu *criu, const struct criu_reply *reply)
{
	struct err err = ERR_INIT;

	if (criu->replied || (reply->type != criu->type && reply->type != CRIU_TYPE_EMPTY)) {
		err_set(&err, ERR_PROTOCOL, "criu sent an unexpected answer");
		give_up(criu, &err);
		return;
	}
	criu->replied = true;
	criu->reply = *reply;
	if (reply->success && criu->type == CRIU_TYPE_RESTORE && adopt(criu, reply->pid, &err) < 0)
		give_up(criu, &err);
	else if (reply->success && criu->ops->on_replied)
		criu->ops->on_replied(criu, criu->arg);
}

static void on_message(struct criu *criu, const void *message, size_t len)
{
	struct criu_reply reply;
	struct err err = ERR_INIT;

	if (!criu->heard && criu_process_failed(message, len, &err)) {
		remember(criu, &err);
		return;
	}
	criu->heard = true;
	if (criu_rpc_get_reply(message, len, &reply, &err) < 0)
		give_up(criu, &err);
	else if (reply.type == CRIU_TYPE_NOTIFY)
		on_notify(criu, &reply);
	else
		on_reply(criu, &reply);
}

/* Reads one message; false when there is none now. Descriptors sent with it are closed by the
 * kernel. */
static bool receive(struct criu *criu)
{
	char message[CRIU_MESSAGE_MAX + 1];
	ssize_t len = recv(criu->process.sock, message, sizeof message, MSG_DONTWAIT);

	if (len <= 0) {
		if (len == 0 || (errno != EAGAIN && errno != EINTR))
			loop_fd_set(criu->message_watch, 0); /* only its end is still to come */
		return false;
	}
	on_message(criu, message, (size_t)len);
	return true;
}

static void on_readable(void *arg, unsigned ready)
{
	(void)ready;
	receive(arg);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* CRIU continues where it considers it too late to fail. A finished dump cannot be undone; a
 * restore can. */
static bool succeeded(const struct criu *criu)
{
	if (criu->goes_on)
		return true;
	if (!criu->replied || !criu->reply.success || criu->failure.kind == ERR_PROTOCOL)
		return false;
	return criu->type == CRIU_TYPE_DUMP || criu->failure.kind == ERR_NONE;
}

static void read_log(struct criu *criu, char *log)
{
	int dir = criu->work >= 0 ? criu->work : criu->images;

	log[0] = '\0';
	if (criu->type == CRIU_TYPE_DUMP || criu->type == CRIU_TYPE_RESTORE)
		criu_log_tail(dir, criu->type == CRIU_TYPE_DUMP ? "dump.log" : "restore.log", log);
	if (!log[0])
		criu_log_tail(criu->process.output, NULL, log);
}

/* How a run without a box ended. */
static void explain_other(struct criu *criu, const char *log, bool by_signal, int value)
{
	char line[CRIU_TEXT_MAX];

	criu_log_error(log, line, sizeof line);
	if (criu->replied)
		err_set(&criu->failure, criu_reply_kind(&criu->reply), "%s",
			line[0]		      ? line
			: criu->reply.text[0] ? criu->reply.text
					      : "without a reason");
	else
		err_set(&criu->failure, ERR_UNAVAILABLE, "criu ended with %s %d%s%s",
			by_signal ? "signal" : "code", value, line[0] ? ": " : "", line);
}

/* The error: what the caller refused, else what the log tells, else how the process ended. CRIU's
 * own words stay in the log: they mention its options and numbers that nobody in a box knows. */
static void explain(struct criu *criu, const char *log, bool by_signal, int value)
{
	struct err *failure = &criu->failure;
	bool dump = criu->type == CRIU_TYPE_DUMP;
	const char *where =
		dump ? "the event capture.failed has its log" : "the daemon's log has what it said";
	char words[CRIU_TEXT_MAX], who[CRIU_WHO_MAX];

	if (!dump && criu->type != CRIU_TYPE_RESTORE) {
		if (failure->kind == ERR_NONE)
			explain_other(criu, log, by_signal, value);
		err_wrap(failure, "criu %s", criu_type_name(criu->type));
		return;
	}
	if (failure->kind != ERR_NONE) {
		err_wrap(failure, "%s", dump ? "capture" : "restore");
		return;
	}
	if (criu->replied && criu_explain(log, words, sizeof words)) {
		err_set(failure, criu_reply_kind(&criu->reply), "%s", words);
		return;
	}
	if (!criu_log_process(log, who, sizeof who))
		snprintf(who, sizeof who, "the processes");
	if (criu->replied)
		err_set(failure, criu_reply_kind(&criu->reply), "CRIU could not %s %s; %s",
			dump ? "capture" : "restore", who, where);
	else
		err_set(failure, ERR_UNAVAILABLE,
			"CRIU ended by itself (%s %d) while it was %s %s; %s",
			by_signal ? "signal" : "code", value, dump ? "capturing" : "restoring", who,
			where);
}

static void finish(struct criu *criu, bool by_signal, int value)
{
	struct criu_result result = { .pidfd = -1, .log = "" };
	struct err err = ERR_INIT;
	char log[CRIU_LOG_MAX] = "";

	criu->over = true;
	if (succeeded(criu)) {
		result.version = criu->reply.version;
		result.pid = criu->restored;
		result.pidfd = steal_fd(&criu->restored_fd);
	} else {
		result.held = criu->agreed && !criu->replied && criu->failure.kind == ERR_NONE;
		read_log(criu, log);
		explain(criu, log, by_signal, value);
		err = criu->failure;
		result.log = log;
	}
	criu->ops->on_done(criu, &result, &err, criu->arg);
}

/* Kills what a failed restore made: known by its pid, or only as a member of the group. True when
 * it is gone. */
static bool sweep_restored(struct criu *criu)
{
	int value;

	if (criu->restored_fd >= 0) {
		if (procfd_reap(criu->restored_fd, &value) == PROCFD_RUNNING)
			return false;
		close(steal_fd(&criu->restored_fd));
	}
	return criu_process_reap_group(&criu->process);
}

static void on_sweep(void *arg)
{
	struct criu *criu = arg;

	if (sweep_restored(criu) || ++criu->sweeps >= SWEEPS_MAX)
		finish(criu, true, SIGKILL);
	else
		loop_timer_start(criu->sweep, SWEEP_MS);
}

/* A CRIU that is killed after the caller agreed has released all processes or none: in that case
 * they were killed with it, PID 1 among them (scripts/criu-changes). That takes a moment. */
static bool went_on(const struct criu *criu)
{
	struct pollfd ended = { .fd = criu->restored_fd, .events = POLLIN };

	return criu->agreed && criu->failure.kind == ERR_NONE && !criu->replied &&
	       criu->restored_fd >= 0 && poll(&ended, 1, KILL_MS) == 0;
}

static void on_ended(void *arg, unsigned ready)
{
	struct criu *criu = arg;
	bool by_signal;
	int value = 0;

	(void)ready;
	/* Its last message may still be there. An event that nobody waits for is not passed on. */
	criu->to_fail |= !criu->agreed;
	while (receive(criu))
		;
	loop_timer_stop(criu->limit);
	loop_fd_set(criu->message_watch, 0);
	loop_fd_set(criu->exit_watch, 0);
	criu->asked = false;
	criu->goes_on = went_on(criu);
	/* before it is reaped: until then its group has its number for sure */
	if (!succeeded(criu))
		kill_all(criu);
	criu_process_reap(&criu->process, &by_signal, &value);
	criu->reaped = true;
	if (succeeded(criu) || sweep_restored(criu))
		finish(criu, by_signal, value);
	else
		loop_timer_start(criu->sweep, SWEEP_MS);
}

/* Refusing an event lets CRIU undo its work; otherwise there is only the kill. */
static void on_limit(void *arg)
{
	struct criu *criu = arg;
	struct err err = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "not done after %llu ms, while %s",
		(unsigned long long)criu->limit_ms, criu->doing);
	remember(criu, &err);
	if (criu->asked) {
		tell(criu, false);
		loop_timer_start(criu->limit, GRACE_MS);
	} else {
		kill_all(criu);
	}
}

/* ---- the start ------------------------------------------------------------------------------ */

static int copy_fd(int fd, int *ret, struct err *err)
{
	*ret = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return fd >= 0 && *ret < 0 ? err_sys(err, errno, "dup") : 0;
}

static void release(struct criu *criu)
{
	loop_fd_free(criu->message_watch);
	loop_fd_free(criu->exit_watch);
	loop_timer_free(criu->limit);
	loop_timer_free(criu->sweep);
	if (criu->process.pid)
		criu_process_close(&criu->process);
	if (criu->images >= 0)
		close(criu->images);
	if (criu->work >= 0)
		close(criu->work);
	if (criu->restored_fd >= 0)
		close(criu->restored_fd);
	free(criu);
}

static void watch(struct criu *criu)
{
	criu->message_watch =
		loop_fd_new(criu->loop, criu->process.sock, LOOP_READ, on_readable, criu);
	criu->exit_watch = loop_fd_new(criu->loop, criu->process.pidfd, LOOP_READ, on_ended, criu);
	criu->limit = loop_timer_new(criu->loop, on_limit, criu);
	criu->sweep = loop_timer_new(criu->loop, on_sweep, criu);
	loop_timer_start(criu->limit, criu->limit_ms);
}

static void wait_for(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
}

struct criu_spare {
	struct criu_process process;
};

int criu_spare_start(const struct criu_request *request, struct criu_spare **ret, struct err *err)
{
	struct criu_spare *spare = xnew(struct criu_spare);

	if (criu_process_start(request, false, &spare->process, err) < 0) {
		free(spare);
		return err_wrap(err, "start criu ahead");
	}
	*ret = spare;
	return 0;
}

void criu_spare_free(struct criu_spare *spare)
{
	bool by_signal;
	int value;

	if (!spare)
		return;
	criu_process_kill(&spare->process); /* it has done nothing yet */
	wait_for(spare->process.pidfd);
	criu_process_reap(&spare->process, &by_signal, &value);
	criu_process_close(&spare->process);
	free(spare);
}

static int start_process(struct criu *criu, const struct criu_request *request, struct err *err)
{
	struct criu_spare *spare = request->spare;

	if (!spare)
		return criu_process_start(
			request, criu->type == CRIU_TYPE_RESTORE, &criu->process, err);
	if (!procfd_is_alive(spare->process.pidfd)) {
		criu_spare_free(spare);
		return criu_process_start(request, false, &criu->process, err);
	}
	criu->process = spare->process;
	free(spare);
	return 0;
}

/* The request waits in the socket until CRIU is up. */
static int begin(struct criu *criu, const struct criu_request *request, struct err *err)
{
	struct criu_request ours = *request;
	struct buf out = BUF_INIT;
	ssize_t sent;

	if (copy_fd(request->images, &criu->images, err) < 0 ||
		copy_fd(request->work, &criu->work, err) < 0) {
		criu_spare_free(request->spare);
		return -1;
	}
	ours.images = criu->images;
	ours.work = criu->work;
	if (start_process(criu, request, err) < 0)
		return -1;
	watch(criu);
	criu_rpc_put_request(&out, criu->type, &ours);
	sent = send(criu->process.sock, buf_head(&out), out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	buf_done(&out);
	return sent < 0 && errno != EPIPE ? err_sys(err, errno, "send a request to criu") : 0;
}

static int start(struct loop *loop, enum criu_type type, const struct criu_request *request,
	const struct criu_ops *ops, void *arg, struct criu **ret, struct err *err)
{
	struct criu *criu;

	if (criu_request_check(type, request, err) < 0) {
		criu_spare_free(request->spare);
		return -1;
	}
	criu = xnew(struct criu);
	*criu = (struct criu){ .loop = loop,
		.ops = ops,
		.arg = arg,
		.type = type,
		.limit_ms = request->limit_ms,
		.doing = "it began",
		.images = -1,
		.work = -1,
		.restored_fd = -1 };
	if (begin(criu, request, err) < 0) {
		criu_free(criu);
		return err_wrap(err, "criu %s", criu_type_name(type));
	}
	*ret = criu;
	return 0;
}

int criu_dump(struct loop *loop, const struct criu_request *request, const struct criu_ops *ops,
	void *arg, struct criu **ret, struct err *err)
{
	return start(loop, CRIU_TYPE_DUMP, request, ops, arg, ret, err);
}

int criu_restore(struct loop *loop, const struct criu_request *request, const struct criu_ops *ops,
	void *arg, struct criu **ret, struct err *err)
{
	return start(loop, CRIU_TYPE_RESTORE, request, ops, arg, ret, err);
}

int criu_check(struct loop *loop, const struct criu_request *request, const struct criu_ops *ops,
	void *arg, struct criu **ret, struct err *err)
{
	return start(loop, CRIU_TYPE_CHECK, request, ops, arg, ret, err);
}

int criu_ask_version(struct loop *loop, const struct criu_request *request,
	const struct criu_ops *ops, void *arg, struct criu **ret, struct err *err)
{
	return start(loop, CRIU_TYPE_VERSION, request, ops, arg, ret, err);
}

/* Waits until nothing is left, at most some seconds: a process that the kernel does not let die is
 * left behind. */
static void end_now(struct criu *criu)
{
	bool by_signal;
	int value;

	if (!criu->reaped) {
		kill_all(criu);
		wait_for(criu->process.pidfd);
		criu_process_reap(&criu->process, &by_signal, &value);
	}
	while (!sweep_restored(criu) && ++criu->sweeps < SWEEPS_MAX)
		usleep(SWEEP_MS * 1000);
}

void criu_free(struct criu *criu)
{
	if (!criu)
		return;
	if (criu->process.pid && !criu->over)
		end_now(criu);
	release(criu);
}

void criu_abandon(struct criu *criu)
{
	if (criu)
		release(criu);
}
