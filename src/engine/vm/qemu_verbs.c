/* qemu_verbs.c - the operations of a QEMU
 *
 * Each verb is a sequence of monitor commands, carried out one after the other. */
#include "engine/vm/qemu_internal.h"
#include "sys/procfd.h"
#include <signal.h>

static const struct {
	const char *name; /* QEMU's */
	enum qemu_status status;
} statuses[] = {
	{ "running", QEMU_RUNNING },
	{ "inmigrate", QEMU_WAITS },
	{ "prelaunch", QEMU_PAUSED },
	{ "paused", QEMU_PAUSED },
	{ "save-vm", QEMU_PAUSED },
	{ "suspended", QEMU_PAUSED },
	{ "finish-migrate", QEMU_PAUSED },
	{ "postmigrate", QEMU_PAUSED },
	{ "restore-vm", QEMU_PAUSED },
	{ "debug", QEMU_PAUSED },
	{ "io-error", QEMU_IO_ERROR },
	{ "shutdown", QEMU_SHUT_DOWN },
	{ "guest-panicked", QEMU_PANICKED },
	{ "internal-error", QEMU_PANICKED },
};

const char *qemu_status_name(enum qemu_status status)
{
	static const char *const names[] = {
		[QEMU_WAITS] = "waits for a state",
		[QEMU_RUNNING] = "running",
		[QEMU_PAUSED] = "paused",
		[QEMU_IO_ERROR] = "stopped by a disk error",
		[QEMU_SHUT_DOWN] = "shut down",
		[QEMU_PANICKED] = "panicked",
	};
	_Static_assert(ARRAY_LEN(names) == QEMU_STATUS_COUNT, "every status has a name");

	return names[status];
}

/* An unknown status means that it does not run. */
enum qemu_status qemu_status_of(json_t *result)
{
	const char *name = json_string_value(json_object_get(result, "status"));

	for (size_t i = 0; name && i < ARRAY_LEN(statuses); i++)
		if (strcmp(name, statuses[i].name) == 0)
			return statuses[i].status;
	return QEMU_PAUSED;
}

/* ---- a verb in progress --------------------------------------------------------------------- */

struct qemu_verb *qemu_verb_new(struct qemu *qemu, void *arg)
{
	struct qemu_verb *verb = xnew(struct qemu_verb);

	*verb = (struct qemu_verb){ .qemu = qemu, .arg = arg, .next = qemu->verbs, .fd = -1 };
	qemu->verbs = verb;
	return verb;
}

struct qemu_verb qemu_verb_take(struct qemu_verb *verb)
{
	struct qemu_verb copy = *verb, **at = &verb->qemu->verbs;

	while (*at != verb)
		at = &(*at)->next;
	*at = verb->next;
	if (verb->qemu->loading == verb)
		verb->qemu->loading = NULL;
	free(verb);
	return copy;
}

void qemu_verbs_forget(struct qemu *qemu)
{
	while (qemu->verbs) {
		qemu_move_cancel(qemu->verbs->move);
		if (qemu->verbs->fd >= 0)
			close(qemu->verbs->fd);
		qemu_verb_take(qemu->verbs);
	}
}

void qemu_verb_finish(struct qemu_verb *verb, const struct err *err)
{
	struct qemu_verb taken = qemu_verb_take(verb);

	if (taken.done)
		taken.done(taken.qemu, err, taken.arg);
}

static void on_done(json_t *result, const struct err *err, void *arg)
{
	(void)result;
	qemu_verb_finish(arg, err);
}

static void run(
	struct qemu *qemu, const struct qmp_step *steps, size_t count, qemu_done done, void *arg)
{
	struct qemu_verb *verb = qemu_verb_new(qemu, arg);

	verb->done = done;
	qmp_run(qemu->qmp, steps, count, on_done, verb);
}

/* ---- disks ---------------------------------------------------------------------------------- */

static size_t add_attach(struct qmp_step *steps, bool image, int fd)
{
	int set = image ? QEMU_SET_IMAGE : QEMU_SET_DISK;
	json_t *raw = qemu_node_raw(image, false);
	const struct qmp_step mine[] = {
		{ "add-fd", json_pack("{s:i}", "fdset-id", set), fd },
		{ "blockdev-add", qemu_node_file(image, set), -1 },
		{ "blockdev-reopen", json_pack("{s:[o]}", "options", raw), -1 },
	};

	if (fd < 0) {
		for (size_t i = 0; i < ARRAY_LEN(mine); i++)
			json_decref(mine[i].arguments);
		return 0;
	}
	memcpy(steps, mine, sizeof mine);
	return ARRAY_LEN(mine);
}

void qemu_attach(struct qemu *qemu, int image, int disk, qemu_done done, void *arg)
{
	struct qmp_step steps[QMP_STEPS_MAX];
	size_t count = add_attach(steps, true, image);

	count += add_attach(steps + count, false, disk);
	if (count == 0)
		steps[count++] = (struct qmp_step){ "query-status", NULL, -1 };
	run(qemu, steps, count, done, arg);
}

void qemu_resize(struct qemu *qemu, uint64_t bytes, qemu_done done, void *arg)
{
	struct qmp_step step = { "block_resize",
		json_pack("{s:s, s:I}", "node-name", "rw", "size", (json_int_t)bytes), -1 };

	run(qemu, &step, 1, done, arg);
}

/* ---- running -------------------------------------------------------------------------------- */

void qemu_cont(struct qemu *qemu, qemu_done done, void *arg)
{
	struct qmp_step step = { "cont", NULL, -1 };

	run(qemu, &step, 1, done, arg);
}

void qemu_stop(struct qemu *qemu, qemu_done done, void *arg)
{
	struct qmp_step step = { "stop", NULL, -1 };

	run(qemu, &step, 1, done, arg);
}

/* ---- queries -------------------------------------------------------------------------------- */

static void on_status(json_t *result, const struct err *err, void *arg)
{
	struct qemu_verb verb = qemu_verb_take(arg);

	verb.status(verb.qemu, err ? QEMU_PAUSED : qemu_status_of(result), err, verb.arg);
}

void qemu_query_status(struct qemu *qemu, qemu_status_done done, void *arg)
{
	struct qemu_verb *verb = qemu_verb_new(qemu, arg);

	verb->status = done;
	qmp_call(qemu->qmp, "query-status", NULL, -1, on_status, verb);
}

static uint64_t figure(json_t *stats, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(stats, name));

	return value > 0 ? (uint64_t)value : 0;
}

static void on_io(json_t *result, const struct err *err, void *arg)
{
	struct qemu_verb verb = qemu_verb_take(arg);
	struct qemu_io io = { 0 };
	json_t *device;
	size_t i;

	json_array_foreach (result, i, device) {
		json_t *stats = json_object_get(device, "stats");

		io.read_bytes += figure(stats, "rd_bytes");
		io.written_bytes += figure(stats, "wr_bytes");
	}
	verb.io(verb.qemu, err ? NULL : &io, err, verb.arg);
}

void qemu_query_io(struct qemu *qemu, qemu_io_done done, void *arg)
{
	struct qemu_verb *verb = qemu_verb_new(qemu, arg);

	verb->io = done;
	qmp_call(qemu->qmp, "query-blockstats", NULL, -1, on_io, verb);
}

static void on_console(json_t *result, const struct err *err, void *arg)
{
	struct qemu_verb verb = qemu_verb_take(arg);
	_cleanup_free_ char *text = NULL;

	if (json_is_string(result)) {
		text = xstrdup(json_string_value(result));
		qemu_make_printable(text);
	}
	verb.console(verb.qemu, err ? NULL : text ? text : "", err, verb.arg);
}

void qemu_read_console(struct qemu *qemu, qemu_console_done done, void *arg)
{
	struct qemu_verb *verb = qemu_verb_new(qemu, arg);

	verb->console = done;
	qmp_call(qemu->qmp, "ringbuf-read",
		json_pack("{s:s, s:i}", "device", "console", "size", QEMU_CONSOLE_BYTES), -1,
		on_console, verb);
}

/* ---- a guest that has ended ----------------------------------------------------------------- */

/* A kernel that panics resets the machine, as configured: its last console output distinguishes
 * it. The text comes from the guest and is for users only. */
static void on_last_words(struct qemu *qemu, const char *text, const struct err *err, void *arg)
{
	(void)err;
	(void)arg;
	if (text && *text) {
		free(qemu->console);
		qemu->console = xstrdup(text);
		if (qemu->guest_why == QEMU_END_RESET && strstr(text, "Kernel panic"))
			qemu->guest_why = QEMU_END_PANIC;
	}
	procfd_kill(qemu->pidfd, SIGKILL, NULL);
}

void qemu_guest_ended(struct qemu *qemu, enum qemu_why why)
{
	if (qemu->guest_ended)
		return;
	qemu->guest_ended = true;
	qemu->guest_why = why;
	qemu_read_console(qemu, on_last_words, NULL);
}
