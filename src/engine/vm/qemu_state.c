/* qemu_state.c - device states: loaded by a waiting QEMU, saved by a stopped one
 *
 * QEMU saves into a file in memory, and the daemon copies it from there: a QEMU that its guest
 * has broken into could keep the descriptor of a file and change an old state. */
#include "base/file.h"
#include "engine/vm/qemu_internal.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { LOAD_MS = 20000 };

/* ---- loading -------------------------------------------------------------------------------- */

static void load_ask(struct qemu *qemu);

static void load_finish(struct qemu *qemu, const struct err *err)
{
	struct qemu_verb *verb = qemu->loading;

	qemu_expect(qemu, NULL, 0);
	qemu_verb_finish(verb, err);
}

static void on_load_status(json_t *result, const struct err *err, void *arg)
{
	struct qemu *qemu = arg;
	struct err refused = ERR_INIT;

	qemu->asking = false;
	if (!qemu->loading)
		return;
	if (!err && qemu_status_of(result) == QEMU_WAITS) {
		if (qemu->ask_again)
			load_ask(qemu);
		return;
	}
	if (err && err->kind == ERR_UNAVAILABLE) { /* a QEMU that cannot load a state exits */
		err_set(&refused, ERR_PROTOCOL, "QEMU cannot load the state");
		err = &refused;
	} else if (!err && qemu_status_of(result) != QEMU_PAUSED) {
		err_set(&refused, ERR_PROTOCOL, "QEMU is %s after loading a state",
			qemu_status_name(qemu_status_of(result)));
		err = &refused;
	}
	load_finish(qemu, err);
}

static void load_ask(struct qemu *qemu)
{
	qemu->asking = true;
	qemu->ask_again = false;
	qmp_call(qemu->qmp, "query-status", NULL, -1, on_load_status, qemu);
}

static void on_migrating(json_t *result, const struct err *err, void *arg)
{
	struct qemu_verb *verb = arg;

	(void)result;
	if (err) {
		qemu_verb_finish(verb, err);
		return;
	}
	verb->qemu->loading = verb;
	qemu_expect(verb->qemu, "load its state", LOAD_MS);
	load_ask(verb->qemu);
}

/* QEMU reads the state while it answers other commands. It is asked at once whether it has
 * finished, and at each event MIGRATION; the event alone does not tell the status of the
 * machine. */
void qemu_load(struct qemu *qemu, int fd, qemu_done done, void *arg)
{
	struct qemu_verb *verb = qemu_verb_new(qemu, arg);
	struct qmp_step steps[] = {
		{ "getfd", json_pack("{s:s}", "fdname", "s"), fd },
		{ "migrate-incoming", json_pack("{s:s}", "uri", "fd:s"), -1 },
	};

	verb->done = done;
	qmp_run(qemu->qmp, steps, ARRAY_LEN(steps), on_migrating, verb);
}

void qemu_load_prepare(struct qemu *qemu)
{
	qmp_call(qemu->qmp, "migrate-set-capabilities",
		json_pack("{s:[{s:s, s:b}]}", "capabilities", "capability", "events", "state", 1),
		-1, NULL, NULL);
}

void qemu_load_event(struct qemu *qemu, const char *name)
{
	if (!qemu->loading || strcmp(name, "MIGRATION") != 0)
		return;
	if (qemu->asking)
		qemu->ask_again = true;
	else
		load_ask(qemu);
}

/* A QEMU that cannot load a state exits. */
void qemu_load_lost(struct qemu *qemu)
{
	struct err err = ERR_INIT;

	if (!qemu->loading)
		return;
	err_set(&err, ERR_PROTOCOL, "QEMU cannot load the state");
	qemu_verb_finish(qemu->loading, &err);
}

/* ---- saving --------------------------------------------------------------------------------- */

/* QEMU selects the descriptor of a set by its access mode: it needs a writable one. */
static int open_to_write(int memory, int *ret, struct err *err)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
	*ret = open(path, O_WRONLY | O_CLOEXEC);
	return *ret < 0 ? err_sys(err, errno, "open a file in memory") : 0;
}

static void remove_set(void *arg)
{
	struct qemu *qemu = arg;

	qemu->set_left = false;
	qmp_call(qemu->qmp, "remove-fd", json_pack("{s:i}", "fdset-id", QEMU_SET_STATE), -1, NULL,
		NULL);
}

void qemu_forget_saved(struct qemu *qemu)
{
	loop_undefer(qemu->loop, remove_set, qemu);
	if (qemu->saved >= 0)
		close(qemu->saved);
	qemu->saved = -1;
}

static int copy_state(int from, int to, struct err *err)
{
	_cleanup_free_ char *data = NULL;
	struct stat st;

	if (fstat(from, &st) < 0)
		return err_sys(err, errno, "look at the state of QEMU");
	if (st.st_size > QEMU_STATE_MAX)
		return err_set(err, ERR_TOO_LARGE, "QEMU wrote a state of more than %d bytes",
			QEMU_STATE_MAX);
	data = malloc((size_t)st.st_size + 1);
	if (!data || pread(from, data, (size_t)st.st_size, 0) != (ssize_t)st.st_size)
		return err_set(err, ERR_SYSTEM, "the state of QEMU cannot be read");
	return fd_write_all(to, data, (size_t)st.st_size, err);
}

/* The set is removed after the caller's next command, which mostly continues the guest. */
static void on_saved(json_t *result, const struct err *err, void *arg)
{
	struct qemu_verb *verb = arg;
	struct qemu *qemu = verb->qemu;
	struct err story = ERR_INIT;
	int to = verb->fd;

	(void)result;
	verb->fd = -1;
	if (!err && copy_state(qemu->saved, to, &story) < 0)
		err = &story;
	close(to);
	qemu_forget_saved(qemu);
	qemu->set_left = true;
	loop_defer(qemu->loop, remove_set, qemu);
	qemu_verb_finish(verb, err);
}

static int hand_over(struct qemu *qemu, struct qmp_step *ret, struct err *err)
{
	_cleanup_close_ int memory = memfd_create("state", MFD_CLOEXEC);
	int fd;

	if (memory < 0)
		return err_sys(err, errno, "memfd_create");
	if (open_to_write(memory, &fd, err) < 0)
		return -1;
	if (qemu->set_left) { /* the previous one is removed first */
		loop_undefer(qemu->loop, remove_set, qemu);
		remove_set(qemu);
	}
	*ret = (struct qmp_step){ "add-fd", json_pack("{s:i}", "fdset-id", QEMU_SET_STATE), fd };
	qemu->saved = steal_fd(&memory);
	return 0;
}

static void on_prepared(json_t *result, const struct err *err, void *arg)
{
	struct qemu_verb *verb = arg;

	(void)result;
	if (err)
		qemu_forget_saved(verb->qemu);
	qemu_verb_finish(verb, err);
}

static void on_impossible(json_t *result, const struct err *err, void *arg)
{
	struct qemu_verb *verb = arg;
	struct err story = ERR_INIT;

	(void)result;
	(void)err;
	if (verb->fd >= 0)
		close(verb->fd);
	verb->fd = -1;
	err_set(&story, ERR_LIMIT, "no file descriptor is left for the state of QEMU");
	qemu_verb_finish(verb, &story);
}

void qemu_prepare_save(struct qemu *qemu, qemu_done done, void *arg)
{
	struct qemu_verb *verb = qemu_verb_new(qemu, arg);
	struct qmp_step step = { "query-status", NULL, -1 };
	struct err err = ERR_INIT;

	verb->done = done;
	if (qemu->saved < 0 && hand_over(qemu, &step, &err) < 0) {
		qmp_run(qemu->qmp, &step, 1, on_impossible, verb);
		return;
	}
	qmp_run(qemu->qmp, &step, 1, on_prepared, verb);
	if (step.fd >= 0)
		close(step.fd);
}

void qemu_save(struct qemu *qemu, int fd, qemu_done done, void *arg)
{
	_cleanup_free_ char *path = xasprintf("/dev/fdset/%d", QEMU_SET_STATE);
	struct qemu_verb *verb = qemu_verb_new(qemu, arg);
	struct qmp_step steps[2] = { { "query-status", NULL, -1 } };
	struct err err = ERR_INIT;
	size_t count = 0;

	verb->done = done;
	verb->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (verb->fd < 0 || (qemu->saved < 0 && hand_over(qemu, &steps[count++], &err) < 0)) {
		qmp_run(qemu->qmp, steps, 1, on_impossible, verb);
		return;
	}
	steps[count++] = (struct qmp_step){ "xen-save-devices-state",
		json_pack("{s:s, s:b}", "filename", path, "live", 0), -1 };
	qmp_run(qemu->qmp, steps, count, on_saved, verb);
	if (count == 2)
		close(steps[0].fd);
}
