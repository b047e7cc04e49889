/* qmp.c - QEMU's monitor: commands out, answers and events in
 *
 *   GREETING ──greeting──▶ (qmp_capabilities is the first call) ──▶ READY ──▶ LOST
 *
 * Calls wait in a queue; QEMU works on its head. A head that has timed out stays there, without
 * a callback, until its answer comes: QEMU would not read the next one before. A callback may
 * free the qmp, so `freed` is checked after each. */
#include "engine/vm/qmp.h"
#include "base/buf.h"
#include "base/clock.h"
#include "engine/vm/qmp_line.h"
#include "loop/loop.h"
#include "sys/fdpass.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

enum { READ_BYTES = 64 * 1024 };

struct call {
	struct call *next;
	json_int_t id;
	const char *fault; /* why it is not sent; NULL: it is */
	enum err_kind fault_kind;
	char *line;
	size_t len, sent;
	int fd;
	qmp_done done; /* NULL: timed out */
	void *arg;
	int64_t deadline;
};

struct run {
	struct run *next;
	struct qmp *qmp;
	struct qmp_step steps[QMP_STEPS_MAX];
	size_t at, count;
	qmp_done done;
	void *arg;
};

struct qmp {
	struct loop *loop;
	const struct qmp_ops *ops;
	void *arg;
	int fd;
	struct loop_fd *watch;
	struct loop_timer *timer;
	bool greeted, ready, lost;
	struct buf in;
	size_t looked; /* bytes of in that contain no end of line */
	struct call *queue, *refused;
	size_t queued;
	json_int_t last_id;
	uint64_t limit_ms;
	struct run *runs;
	bool *freed; /* set by qmp_free, for the caller of a callback */
};

/* ---- calls ---------------------------------------------------------------------------------- */

static void call_free(struct call *call)
{
	if (call->fd >= 0)
		close(call->fd);
	free(call->line);
	free(call);
}

static void call_free_all(struct call *list)
{
	for (struct call *next; list; list = next) {
		next = list->next;
		call_free(list);
	}
}

static void append(struct call **list, struct call *call)
{
	while (*list)
		list = &(*list)->next;
	*list = call;
}

static struct call *call_new(struct qmp *qmp, const char *command, json_t *arguments)
{
	struct call *call = xnew(struct call);
	_cleanup_json_ json_t *root = json_object();

	call->id = ++qmp->last_id;
	call->fd = -1;
	call->deadline = clock_mono_us() + (int64_t)qmp->limit_ms * 1000;
	json_object_set_new(root, "execute", json_string(command));
	if (arguments)
		json_object_set_new(root, "arguments", arguments);
	json_object_set_new(root, "id", json_integer(call->id));
	call->line = json_text(root);
	call->len = strlen(call->line);
	call->line[call->len++] = '\n'; /* in place of the end of the string */
	return call;
}

/* False: the qmp was freed. */
static bool tell(struct qmp *qmp, struct call *call, json_t *result, const struct err *err)
{
	bool freed = false, *outer = qmp->freed;

	if (!call->done)
		return true;
	qmp->freed = &freed;
	call->done(result, err, call->arg);
	if (freed) {
		if (outer)
			*outer = true;
		return false;
	}
	qmp->freed = outer;
	return true;
}

/* Writes as much of the head as possible. An error shows at the next read. */
static void push(struct qmp *qmp)
{
	struct call *head = qmp->queue;
	ssize_t n = 0;

	if (!head || qmp->lost || !qmp->greeted)
		return;
	while (head->sent < head->len) {
		bool with_fd = head->fd >= 0 && !head->sent;

		n = fdpass_send(qmp->fd, head->line + head->sent, head->len - head->sent, &head->fd,
			with_fd, MSG_DONTWAIT);
		if (n <= 0)
			break;
		head->sent += (size_t)n;
	}
	loop_fd_set(qmp->watch,
		LOOP_READ | (head->sent < head->len && errno == EAGAIN ? LOOP_WRITE : 0u));
}

static void arm(struct qmp *qmp)
{
	int64_t now = clock_mono_us();

	for (const struct call *call = qmp->queue; call; call = call->next)
		if (call->done) {
			loop_timer_start(qmp->timer,
				call->deadline > now ? (uint64_t)(call->deadline - now) / 1000 + 1
						     : 0);
			return;
		}
	loop_timer_stop(qmp->timer);
}

static void on_refused(void *arg)
{
	struct qmp *qmp = arg;
	struct err err = ERR_INIT;

	while (qmp->refused) {
		struct call *call = qmp->refused;
		bool there;

		qmp->refused = call->next;
		err_set(&err, call->fault_kind, "%s", call->fault);
		there = tell(qmp, call, NULL, &err);
		call_free(call);
		if (!there)
			return;
	}
}

static void refuse(struct qmp *qmp, struct call *call, enum err_kind kind, const char *why)
{
	call->fault_kind = kind;
	call->fault = why;
	append(&qmp->refused, call);
	loop_undefer(qmp->loop, on_refused, qmp);
	loop_defer(qmp->loop, on_refused, qmp);
}

void qmp_call(
	struct qmp *qmp, const char *command, json_t *arguments, int fd, qmp_done done, void *arg)
{
	struct call *call = call_new(qmp, command, arguments);

	call->done = done;
	call->arg = arg;
	if (fd >= 0)
		call->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (qmp->lost) {
		refuse(qmp, call, ERR_UNAVAILABLE, "QEMU's monitor is gone");
	} else if (fd >= 0 && call->fd < 0) {
		refuse(qmp, call, ERR_LIMIT, "no file descriptor is left for QEMU's monitor");
	} else if (qmp->queued >= QMP_QUEUE_MAX) {
		refuse(qmp, call, ERR_LIMIT, "QEMU's monitor has too much to do");
	} else {
		append(&qmp->queue, call);
		qmp->queued++;
		push(qmp);
		arm(qmp);
	}
}

static struct call *take_head(struct qmp *qmp)
{
	struct call *call = qmp->queue;

	qmp->queue = call->next;
	qmp->queued--;
	return call;
}

/* ---- the end of the connection -------------------------------------------------------------- */

static void lose(struct qmp *qmp, const struct err *err)
{
	struct err story = *err;

	qmp->lost = true;
	loop_fd_free(qmp->watch);
	qmp->watch = NULL;
	loop_timer_stop(qmp->timer);
	while (qmp->queue) {
		struct call *call = take_head(qmp);
		bool there = tell(qmp, call, NULL, &story);

		call_free(call);
		if (!there)
			return;
	}
	qmp->ops->on_lost(qmp, &story, qmp->arg);
}

/* Takes the first call whose time is over; false: there is none. A call that was sent stays in
 * the queue for its answer, without a callback. Of the others only the returned copy is left. */
static bool take_late(struct qmp *qmp, struct call *ret)
{
	int64_t now = clock_mono_us();

	for (struct call **at = &qmp->queue; *at; at = &(*at)->next) {
		struct call *call = *at;

		if (!call->done || call->deadline > now)
			continue;
		*ret = *call;
		call->done = NULL;
		if (!call->sent) {
			*at = call->next;
			qmp->queued--;
			call_free(call);
		}
		return true;
	}
	return false;
}

static void on_late(void *arg)
{
	struct qmp *qmp = arg;
	struct err err = ERR_INIT;
	struct call late;

	err_set(&err, ERR_TIMEOUT, "QEMU did not answer in time");
	while (take_late(qmp, &late))
		if (!tell(qmp, &late, NULL, &err))
			return;
	push(qmp);
	arm(qmp);
}

/* ---- answers and events --------------------------------------------------------------------- */

static bool answered(struct qmp *qmp, const struct qmp_line *line)
{
	struct err err = ERR_INIT;
	struct call *call = qmp->queue;
	bool there;

	if (!call || call->sent < call->len || call->id != line->id) {
		err_set(&err, ERR_PROTOCOL, "QEMU sent an unexpected answer");
		lose(qmp, &err);
		return false;
	}
	take_head(qmp);
	push(qmp);
	arm(qmp);
	if (line->kind == QMP_LINE_ERROR) {
		err_set(&err, ERR_STATE, "%.400s", line->text);
		there = tell(qmp, call, NULL, &err);
	} else {
		there = tell(qmp, call, line->data, NULL);
	}
	call_free(call);
	return there;
}

static void on_capabilities(json_t *result, const struct err *err, void *arg)
{
	struct qmp *qmp = arg;

	(void)result;
	if (err)
		return; /* those that wait for on_ready have their own time-out */
	qmp->ready = true;
	if (qmp->ops->on_ready)
		qmp->ops->on_ready(qmp, qmp->arg);
}

static bool greeted(struct qmp *qmp)
{
	struct err err = ERR_INIT;

	if (qmp->greeted) {
		err_set(&err, ERR_PROTOCOL, "QEMU greeted twice");
		lose(qmp, &err);
		return false;
	}
	qmp->greeted = true;
	push(qmp);
	return true;
}

static bool happened(struct qmp *qmp, const struct qmp_line *line)
{
	_cleanup_json_ json_t *data = line->data ? json_incref(line->data) : json_object();
	bool freed = false, *outer = qmp->freed;

	if (!qmp->ready || !qmp->ops->on_event)
		return true;
	qmp->freed = &freed;
	qmp->ops->on_event(qmp, line->text, data, qmp->arg);
	if (freed) {
		if (outer)
			*outer = true;
		return false;
	}
	qmp->freed = outer;
	return true;
}

/* False: the qmp is lost or freed. */
static bool take_line(struct qmp *qmp, const char *text, size_t len)
{
	struct qmp_line line;
	struct err err = ERR_INIT;
	bool going;

	if (qmp_line_parse(text, len, &line, &err) < 0) {
		lose(qmp, &err);
		return false;
	}
	switch (line.kind) {
	case QMP_LINE_GREETING:
		going = greeted(qmp);
		break;
	case QMP_LINE_EVENT:
		going = happened(qmp, &line);
		break;
	default:
		going = answered(qmp, &line);
	}
	qmp_line_done(&line);
	return going;
}

/* The line is removed from the buffer first: the callback may free it. */
static void take_lines(struct qmp *qmp)
{
	struct err err = ERR_INIT;

	for (;;) {
		uint8_t *head = buf_head(&qmp->in), *end = NULL;
		_cleanup_free_ char *text = NULL;
		size_t len;

		if (qmp->in.len > qmp->looked)
			end = memchr(head + qmp->looked, '\n', qmp->in.len - qmp->looked);
		if (!end)
			break;
		len = (size_t)(end - head);
		text = xmemdup(head, len + 1);
		buf_eat(&qmp->in, len + 1);
		qmp->looked = 0;
		if (!take_line(qmp, text, len))
			return;
	}
	qmp->looked = qmp->in.len;
	if (qmp->in.len > QMP_LINE_MAX) {
		err_set(&err, ERR_PROTOCOL, "QEMU sent a line of more than %d bytes", QMP_LINE_MAX);
		lose(qmp, &err);
	}
}

static void on_fd(void *arg, unsigned ready)
{
	struct qmp *qmp = arg;
	struct err err = ERR_INIT;
	ssize_t n;

	if (ready & LOOP_WRITE) {
		push(qmp);
		return;
	}
	n = recv(qmp->fd, buf_room(&qmp->in, READ_BYTES), READ_BYTES, MSG_DONTWAIT);
	if (n > 0) {
		buf_grew(&qmp->in, (size_t)n);
		take_lines(qmp);
	} else if (n == 0) {
		err_set(&err, ERR_UNAVAILABLE, "QEMU closed its monitor");
		lose(qmp, &err);
	} else if (errno != EAGAIN && errno != EINTR) {
		err_sys(&err, errno, "read QEMU's monitor");
		err.kind = ERR_UNAVAILABLE;
		lose(qmp, &err);
	}
}

/* ---- sequences of commands ------------------------------------------------------------------ */

static void run_unlink(struct run *run)
{
	struct run **at = &run->qmp->runs;

	while (*at != run)
		at = &(*at)->next;
	*at = run->next;
}

static void run_free(struct run *run)
{
	for (size_t i = run->at; i < run->count; i++) {
		json_decref(run->steps[i].arguments);
		if (run->steps[i].fd >= 0)
			close(run->steps[i].fd);
	}
	free(run);
}

static void on_step(json_t *result, const struct err *err, void *arg);

static void next_step(struct run *run)
{
	struct qmp_step *step = &run->steps[run->at++];

	qmp_call(run->qmp, step->command, step->arguments, step->fd, on_step, run);
	if (step->fd >= 0)
		close(step->fd);
}

static void on_step(json_t *result, const struct err *err, void *arg)
{
	struct run *run = arg;
	qmp_done done = run->done;
	void *user = run->arg;
	struct err story;

	if (!err && run->at < run->count) {
		next_step(run);
		return;
	}
	if (err) {
		story = *err;
		err_wrap(&story, "%s", run->steps[run->at - 1].command);
		err = &story;
	}
	run_unlink(run);
	run_free(run);
	if (done)
		done(result, err, user);
}

void qmp_run(struct qmp *qmp, const struct qmp_step *steps, size_t count, qmp_done done, void *arg)
{
	struct run *run = xnew(struct run);

	assert(count > 0 && count <= QMP_STEPS_MAX);
	*run = (struct run){ .qmp = qmp, .count = count, .done = done, .arg = arg };
	memcpy(run->steps, steps, count * sizeof *steps);
	/* If a descriptor cannot be duplicated, QEMU will report it at its step. */
	for (size_t i = 0; i < count; i++)
		if (steps[i].fd >= 0)
			run->steps[i].fd = fcntl(steps[i].fd, F_DUPFD_CLOEXEC, 3);
	run->next = qmp->runs;
	qmp->runs = run;
	next_step(run);
}

/* ---- life ----------------------------------------------------------------------------------- */

struct qmp *qmp_new(struct loop *loop, int fd, const struct qmp_ops *ops, void *arg)
{
	struct qmp *qmp = xnew(struct qmp);

	*qmp = (struct qmp){ .loop = loop, .fd = fd, .ops = ops, .arg = arg };
	qmp->limit_ms = QMP_LIMIT_MS;
	qmp->watch = loop_fd_new(loop, fd, LOOP_READ, on_fd, qmp);
	qmp->timer = loop_timer_new(loop, on_late, qmp);
	qmp_call(qmp, "qmp_capabilities", NULL, -1, on_capabilities, qmp);
	return qmp;
}

void qmp_set_limit(struct qmp *qmp, uint64_t ms)
{
	qmp->limit_ms = ms;
}

void qmp_free(struct qmp *qmp)
{
	if (!qmp)
		return;
	if (qmp->freed)
		*qmp->freed = true;
	loop_undefer(qmp->loop, on_refused, qmp);
	for (struct run *run = qmp->runs, *next; run; run = next) {
		next = run->next;
		run_free(run);
	}
	call_free_all(qmp->queue);
	call_free_all(qmp->refused);
	loop_fd_free(qmp->watch);
	loop_timer_free(qmp->timer);
	close(qmp->fd);
	buf_done(&qmp->in);
	free(qmp);
}
