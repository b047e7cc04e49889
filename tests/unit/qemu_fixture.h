/* qemu_fixture.h - real QEMU processes for tests; needs root, QEMU, and BOX_TEST_GUEST naming
 * stand_in_guest
 *
 * All of it runs in a pid namespace of its own, so that no QEMU is left however a test ends. */
#pragma once
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "engine/vm/qemu.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { PATIENCE_MS = 20000 };
#define QEMU_PROGRAM "/usr/bin/qemu-system-x86_64"

static struct {
	struct loop *loop;
	char dir[64];
	const char *guest;
	char *preload; /* loaded into each; NULL: nothing */
	bool timed_out;
} test;

/* One QEMU and what was told of it. */
struct seen {
	struct qemu *qemu;
	bool ready, ended;
	struct qemu_end end;
	char said[512], console[4096], disk_error[128];
	/* of the last verb */
	bool done;
	struct err err;
	enum qemu_status status;
	struct qemu_io io;
	char text[8192];
};

static inline void need_qemu(void)
{
	if (access(QEMU_PROGRAM, X_OK) == 0 && test.guest && geteuid() == 0)
		return;
	print_message("SKIPPED: no " QEMU_PROGRAM " here, or not root; 'scripts/deps vm' "
		      "installs it\n");
	skip();
}

static inline void on_late(void *arg)
{
	(void)arg;
	test.timed_out = true;
	loop_stop(test.loop);
}

/* Runs the loop until the flag is set. */
static inline void await(const bool *flag)
{
	struct loop_timer *timer = loop_timer_new(test.loop, on_late, NULL);

	test.timed_out = false;
	loop_timer_start(timer, PATIENCE_MS);
	while (!*flag && !test.timed_out)
		loop_run(test.loop);
	loop_timer_free(timer);
	assert_false(test.timed_out);
}

static inline void on_pause_over(void *arg)
{
	*(bool *)arg = true;
	loop_stop(test.loop);
}

static inline void pause_ms(uint64_t ms)
{
	bool over = false;
	struct loop_timer *timer = loop_timer_new(test.loop, on_pause_over, &over);

	loop_timer_start(timer, ms);
	await(&over);
	loop_timer_free(timer);
}

/* ---- what a QEMU tells ---------------------------------------------------------------------- */

static inline void on_ready(struct qemu *qemu, void *arg)
{
	(void)qemu;
	((struct seen *)arg)->ready = true;
	loop_stop(test.loop);
}

static inline void on_disk_error(struct qemu *qemu, const char *reason, void *arg)
{
	struct seen *seen = arg;

	(void)qemu;
	snprintf(seen->disk_error, sizeof seen->disk_error, "%s", reason);
}

static inline void on_ended(struct qemu *qemu, const struct qemu_end *end, void *arg)
{
	struct seen *seen = arg;

	(void)qemu;
	seen->end = *end;
	snprintf(seen->said, sizeof seen->said, "%s", end->said);
	snprintf(seen->console, sizeof seen->console, "%s", end->console);
	seen->ended = seen->ready = seen->done = true;
	loop_stop(test.loop);
}

static const struct qemu_ops seen_ops = { on_ready, on_disk_error, on_ended };

static inline void on_verb(struct qemu *qemu, const struct err *err, void *arg)
{
	struct seen *seen = arg;

	(void)qemu;
	seen->done = true;
	if (err)
		seen->err = *err;
	else
		err_clear(&seen->err);
	loop_stop(test.loop);
}

static inline void on_status(
	struct qemu *qemu, enum qemu_status status, const struct err *err, void *arg)
{
	((struct seen *)arg)->status = status;
	on_verb(qemu, err, arg);
}

static inline void on_io(
	struct qemu *qemu, const struct qemu_io *io, const struct err *err, void *arg)
{
	if (io)
		((struct seen *)arg)->io = *io;
	on_verb(qemu, err, arg);
}

static inline void on_console(struct qemu *qemu, const char *text, const struct err *err, void *arg)
{
	struct seen *seen = arg;

	snprintf(seen->text, sizeof seen->text, "%s", text ? text : "");
	on_verb(qemu, err, arg);
}

/* await_verb(qemu_cont(seen.qemu, on_verb, &seen), &seen); */
#define await_verb(call, seen)        \
	do {                          \
		(seen)->done = false; \
		call;                 \
		await(&(seen)->done); \
	} while (0)

static inline void expect_verb(struct seen *seen)
{
	if (seen->err.kind)
		fail_msg("%s", seen->err.message);
	assert_false(seen->ended);
}

#define expect_done(call, seen)         \
	do {                            \
		await_verb(call, seen); \
		expect_verb(seen);      \
	} while (0)

static inline enum qemu_status status_of(struct seen *seen)
{
	expect_done(qemu_query_status(seen->qemu, on_status, seen), seen);
	return seen->status;
}

static inline const char *console_of(struct seen *seen)
{
	expect_done(qemu_read_console(seen->qemu, on_console, seen), seen);
	return seen->text;
}

/* Until the guest has written that. */
static inline void await_console(struct seen *seen, const char *text)
{
	int64_t until = clock_mono_us() + PATIENCE_MS * INT64_C(1000);

	while (!strstr(console_of(seen), text)) {
		if (clock_mono_us() > until)
			fail_msg("'%s' never came on the console", text);
		pause_ms(10);
	}
}

/* ---- starting and ending -------------------------------------------------------------------- */

static const struct qemu_machine small_machine = {
	.program = QEMU_PROGRAM,
	.ram_bytes = UINT64_C(128) << 20,
	.cpus = 1,
};

/* letter: what the guest does; NULL: it waits for a state. */
static inline void spawn(struct seen *seen, const char *name, const char *letter)
{
	_cleanup_free_ char *dir = xasprintf("%s/%s", test.dir, name);
	struct qemu_spec spec = {
		.machine = &small_machine,
		.dir = dir,
		.netns = -1,
		.tap = -1,
		.image = -1,
		.disk = -1,
		.kernel = letter ? test.guest : NULL,
		.cmdline = letter,
		.preload = test.preload,
		.cgroup = -1,
	};
	struct err err = ERR_INIT;

	*seen = (struct seen){ 0 };
	if (qemu_spawn(test.loop, &spec, &seen_ops, seen, &seen->qemu, &err) < 0)
		fail_msg("%s", err.message);
	await(&seen->ready);
	if (seen->ended)
		fail_msg("%s / %s", seen->end.err.message, seen->said);
}

static inline void finish(struct seen *seen)
{
	qemu_kill(seen->qemu);
	await(&seen->ended);
	assert_true(seen->end.killed);
	qemu_free(seen->qemu);
	seen->qemu = NULL;
}

static inline int setup(void **state)
{
	(void)state;
	test.guest = getenv("BOX_TEST_GUEST");
	test.loop = loop_new();
	snprintf(test.dir, sizeof test.dir, "/tmp/box-qemu-XXXXXX");
	return mkdtemp(test.dir) ? 0 : -1;
}

static inline int teardown(void **state)
{
	(void)state;
	tree_remove(AT_FDCWD, test.dir, NULL);
	loop_free(test.loop);
	return 0;
}

/* Runs fn in a pid namespace that ends with this process; what it returns is returned. */
static inline int run_apart(int (*fn)(void))
{
	int status = 0;
	pid_t pid;

	if (geteuid() != 0)
		return fn();
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0)
		return 1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
			mount("proc", "/proc", "proc", 0, NULL) < 0)
			_exit(1);
		exit(fn());
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
