/* qemu.c - the life of a QEMU process
 *
 *   spawn ──exec──▶ (monitor greets) ──▶ root emptied ──▶ READY ──process ended──▶ on_ended
 *      └──────error reported, process ended, or 10 s: killed───────────────────────▶ on_ended
 *
 * The monitor's socket is bound and listened to before QEMU exists, so the daemon connects at
 * once and the greeting is the sign that QEMU is ready. A running QEMU whose monitor connection
 * is lost cannot be controlled any more: after a moment for its exit it is killed. A callback is
 * always the last thing a function does, because it may free the qemu. */
#include "engine/vm/qemu_internal.h"
#include "loop/loop.h"
#include "sys/clone.h"
#include "sys/procfd.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

enum { LOST_MS = 500, QUIT_MS = 1000, OUTPUT_READ = 4096 };

/* ---- end ------------------------------------------------------------------------------------ */

void qemu_make_printable(char *text)
{
	for (; *text; text++)
		if (((unsigned char)*text < ' ' && *text != '\n' && *text != '\t') ||
			(unsigned char)*text > '~')
			*text = *text == '\r' ? ' ' : '?';
}

static void read_output(struct qemu *qemu)
{
	char bytes[OUTPUT_READ];
	ssize_t n;

	while (qemu->output >= 0 && (n = read(qemu->output, bytes, sizeof bytes)) > 0) {
		size_t len = MIN((size_t)n, sizeof qemu->said - 1), kept;

		kept = MIN(qemu->said_len, sizeof qemu->said - 1 - len);
		memmove(qemu->said, qemu->said + qemu->said_len - kept, kept);
		memcpy(qemu->said + kept, bytes + n - len, len);
		qemu->said_len = kept + len;
		qemu->said[qemu->said_len] = '\0';
		if ((size_t)n < sizeof bytes)
			return;
	}
}

static void drop_output(struct qemu *qemu)
{
	loop_fd_free(qemu->output_watch);
	qemu->output_watch = NULL;
	if (qemu->output >= 0)
		close(qemu->output);
	qemu->output = -1;
}

static void on_output(void *arg, unsigned ready)
{
	struct qemu *qemu = arg;
	struct pollfd p = { .fd = qemu->output, .events = POLLIN };

	(void)ready;
	read_output(qemu);
	if (poll(&p, 1, 0) > 0 && !(p.revents & POLLIN))
		drop_output(qemu);
}

static void drop_cleaner(struct qemu *qemu)
{
	int ignored;

	if (qemu->cleaner < 0)
		return;
	loop_fd_free(qemu->cleaner_watch);
	qemu->cleaner_watch = NULL;
	procfd_kill(qemu->cleaner, SIGKILL, NULL);
	procfd_reap(qemu->cleaner, &ignored);
	close(qemu->cleaner);
	qemu->cleaner = -1;
}

static void give_up(struct qemu *qemu, const struct err *err)
{
	if (!qemu->err.kind)
		qemu->err = *err;
	procfd_kill(qemu->pidfd, SIGKILL, NULL);
}

/* Reads the child's error when the exec failed. */
static bool read_report(struct qemu *qemu, struct err *ret)
{
	struct err story;

	if (qemu->report < 0 ||
		recv(qemu->report, &story, sizeof story, MSG_DONTWAIT) != (ssize_t)sizeof story)
		return false;
	story.message[sizeof story.message - 1] = story.hint[sizeof story.hint - 1] = '\0';
	*ret = story;
	return true;
}

static const char *last_line(const char *text)
{
	const char *line = text;

	for (const char *p = text; *p; p++)
		if (*p == '\n' && p[1])
			line = p + 1;
	return line;
}

static void explain_failure(struct qemu *qemu, struct qemu_end *end)
{
	const char *line = last_line(qemu->said);

	end->err = qemu->err;
	if (read_report(qemu, &end->err) || end->err.kind)
		return;
	if (*line)
		err_set(&end->err, ERR_UNAVAILABLE, "QEMU did not start: %.*s",
			(int)strcspn(line, "\n"), line);
	else
		err_set(&end->err, ERR_UNAVAILABLE, "QEMU ended before it answered");
}

static void explain_end(struct qemu *qemu, struct qemu_end *end)
{
	enum procfd_status status = procfd_reap(qemu->pidfd, &end->value);

	end->why = status == PROCFD_EXITED     ? QEMU_END_EXITED
		   : status == PROCFD_SIGNALED ? QEMU_END_SIGNALED
					       : QEMU_END_UNKNOWN;
	if (qemu->guest_ended)
		end->why = qemu->guest_why;
	if (!qemu->guest_ended && !qemu->killed && (!qemu->ready || qemu->err.kind)) {
		end->why = QEMU_END_FAILED;
		explain_failure(qemu, end);
	}
}

static void on_process_end(void *arg, unsigned ready)
{
	struct qemu *qemu = arg;
	struct qemu_end end = { .killed = qemu->killed, .err = ERR_INIT };

	(void)ready;
	loop_fd_free(qemu->exit_watch);
	qemu->exit_watch = NULL;
	loop_timer_stop(qemu->timer);
	drop_cleaner(qemu);
	read_output(qemu);
	qemu_make_printable(qemu->said);
	explain_end(qemu, &end);
	end.said = qemu->said;
	end.console = qemu->console ? qemu->console : "";
	qemu->ops->on_ended(qemu, &end, qemu->arg);
}

/* For a QEMU whose owner has freed it. */
static void on_late_end(void *arg, unsigned ready)
{
	struct qemu *qemu = arg;
	int ignored;

	(void)ready;
	procfd_reap(qemu->pidfd, &ignored);
	loop_fd_free(qemu->exit_watch);
	close(qemu->pidfd);
	free(qemu);
}

void qemu_kill(struct qemu *qemu)
{
	qemu->killed = true;
	procfd_kill(qemu->pidfd, SIGKILL, NULL);
}

static void on_timer(void *arg)
{
	struct qemu *qemu = arg;
	struct err err = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "QEMU did not %s in time", qemu->late);
	give_up(qemu, &err);
}

void qemu_expect(struct qemu *qemu, const char *what, uint64_t ms)
{
	qemu->late = what;
	if (what)
		loop_timer_start(qemu->timer, ms);
	else
		loop_timer_stop(qemu->timer);
}

void qemu_quit(struct qemu *qemu)
{
	qemu->killed = true;
	qmp_call(qemu->qmp, "quit", NULL, -1, NULL, NULL);
	qemu_expect(qemu, "end", QUIT_MS);
}

/* ---- the monitor ---------------------------------------------------------------------------- */

static void become_ready(struct qemu *qemu)
{
	qemu_expect(qemu, NULL, 0);
	if (qemu->report >= 0)
		close(qemu->report);
	qemu->report = -1;
	qemu->ready = true;
	qemu_load_prepare(qemu);
	qemu->ops->on_ready(qemu, qemu->arg);
}

static void on_cleaned(void *arg, unsigned ready)
{
	struct qemu *qemu = arg;
	struct err err = ERR_INIT;
	int value = 0;
	enum procfd_status status = procfd_reap(qemu->cleaner, &value);

	(void)ready;
	if (status == PROCFD_RUNNING)
		return;
	drop_cleaner(qemu);
	if (status != PROCFD_EXITED || value != 0) {
		err_set(&err, ERR_SYSTEM, "the root of QEMU could not be emptied");
		give_up(qemu, &err);
		return;
	}
	become_ready(qemu);
}

/* Its guest may have ended while no daemon was connected; then it is only paused. */
static void on_adopted(struct qemu *qemu, enum qemu_status status, const struct err *err, void *arg)
{
	(void)arg;
	if (err)
		give_up(qemu, err);
	else if (status == QEMU_SHUT_DOWN || status == QEMU_PANICKED)
		qemu_guest_ended(
			qemu, status == QEMU_PANICKED ? QEMU_END_PANIC : QEMU_END_SHUTDOWN);
	else
		become_ready(qemu);
}

static void on_monitor(struct qmp *qmp, void *arg)
{
	struct qemu *qemu = arg;
	struct clone_spec how = { .cgroup = -1 };
	struct err err = ERR_INIT;
	pid_t pid;

	(void)qmp;
	if (qemu->report < 0) { /* adopted */
		qemu_query_status(qemu, on_adopted, NULL);
		return;
	}
	pid = clone_process(&how, &qemu->cleaner, &err);
	if (pid == 0)
		qemu_empty_root(qemu->pidfd, qemu->prefix);
	if (pid < 0) {
		give_up(qemu, &err);
		return;
	}
	qemu->cleaner_watch = loop_fd_new(qemu->loop, qemu->cleaner, LOOP_READ, on_cleaned, qemu);
}

static void on_lost(struct qmp *qmp, const struct err *err, void *arg)
{
	struct qemu *qemu = arg;

	(void)qmp;
	if (err->kind == ERR_PROTOCOL)
		give_up(qemu, err);
	else /* it is usually about to end, and its exit code says more */
		qemu_expect(qemu, "keep its monitor and did not end", LOST_MS);
	qemu_load_lost(qemu);
}

static void on_shutdown(struct qemu *qemu, json_t *data)
{
	const char *reason = json_string_value(json_object_get(data, "reason"));

	if (!json_is_true(json_object_get(data, "guest")))
		return;
	qemu_guest_ended(qemu, reason && strcmp(reason, "guest-reset") == 0   ? QEMU_END_RESET
			       : reason && strcmp(reason, "guest-panic") == 0 ? QEMU_END_PANIC
									      : QEMU_END_SHUTDOWN);
}

static void on_event(struct qmp *qmp, const char *name, json_t *data, void *arg)
{
	struct qemu *qemu = arg;
	const char *text;
	char reason[128];

	(void)qmp;
	if (strcmp(name, "SHUTDOWN") == 0) {
		on_shutdown(qemu, data);
	} else if (strcmp(name, "GUEST_PANICKED") == 0) {
		qemu_guest_ended(qemu, QEMU_END_PANIC);
	} else if (strcmp(name, "BLOCK_IO_ERROR") == 0) {
		text = json_string_value(json_object_get(data, "action"));
		if (!text || strcmp(text, "stop") != 0 || !qemu->ops->on_disk_error)
			return;
		text = json_string_value(json_object_get(data, "reason"));
		snprintf(reason, sizeof reason, "%s", text ? text : "unknown");
		qemu_make_printable(reason);
		qemu->ops->on_disk_error(qemu, reason, qemu->arg);
	} else {
		qemu_load_event(qemu, name);
	}
}

static const struct qmp_ops monitor_ops = {
	.on_ready = on_monitor,
	.on_event = on_event,
	.on_lost = on_lost,
};

/* ---- life ----------------------------------------------------------------------------------- */

struct qemu *qemu_new(struct loop *loop, const char *dir, const struct qemu_ops *ops, void *arg)
{
	struct qemu *qemu = xnew(struct qemu);

	*qemu = (struct qemu){ .loop = loop, .ops = ops, .arg = arg };
	qemu->dir = xstrdup(dir);
	qemu->pidfd = qemu->report = qemu->output = qemu->cleaner = qemu->saved = -1;
	return qemu;
}

void qemu_free(struct qemu *qemu)
{
	if (!qemu)
		return;
	qmp_free(qemu->qmp);
	qemu_verbs_forget(qemu);
	qemu_forget_saved(qemu);
	drop_cleaner(qemu);
	drop_output(qemu);
	loop_timer_free(qemu->timer);
	if (qemu->report >= 0)
		close(qemu->report);
	free(qemu->console);
	free(qemu->prefix);
	free(qemu->dir);
	if (qemu->killed && qemu->exit_watch) { /* a zombie until it is reaped */
		loop_fd_free(qemu->exit_watch);
		qemu->exit_watch =
			loop_fd_new(qemu->loop, qemu->pidfd, LOOP_READ, on_late_end, qemu);
		return;
	}
	loop_fd_free(qemu->exit_watch);
	if (qemu->pidfd >= 0)
		close(qemu->pidfd);
	free(qemu);
}

void qemu_watch(struct qemu *qemu, int monitor)
{
	qemu->qmp = qmp_new(qemu->loop, monitor, &monitor_ops, qemu);
	qemu->exit_watch = loop_fd_new(qemu->loop, qemu->pidfd, LOOP_READ, on_process_end, qemu);
	qemu->timer = loop_timer_new(qemu->loop, on_timer, qemu);
	qemu_expect(qemu, "answer", QEMU_START_MS);
	if (qemu->output >= 0)
		qemu->output_watch =
			loop_fd_new(qemu->loop, qemu->output, LOOP_READ, on_output, qemu);
}

void qemu_set_ops(struct qemu *qemu, const struct qemu_ops *ops, void *arg)
{
	qemu->ops = ops;
	qemu->arg = arg;
}

struct qemu_mark qemu_get_mark(const struct qemu *qemu)
{
	return qemu->mark;
}

int qemu_get_pidfd(const struct qemu *qemu)
{
	return qemu->pidfd;
}

const char *qemu_get_dir(const struct qemu *qemu)
{
	return qemu->dir;
}

bool qemu_is_ready(const struct qemu *qemu)
{
	return qemu->ready;
}

int qemu_rename(struct qemu *qemu, const char *dir, struct err *err)
{
	if (rename(qemu->dir, dir) < 0)
		return err_sys(err, errno, "move the folder of QEMU to '%s'", dir);
	free(qemu->dir);
	qemu->dir = xstrdup(dir);
	return 0;
}
