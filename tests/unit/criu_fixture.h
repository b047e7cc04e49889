/* criu_fixture.h - one run of criu, what it told, and a place of its own for it
 *
 * In a mount namespace of the test's own. Needs root. */
#pragma once
#include "engine/ns/criu/criu.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "loop/loop.h"
#include "sys/clone.h"
#include "sys/mountfd.h"
#include "sys/procfd.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <cmocka.h>

enum { PATIENCE_MS = 20000 };

static struct {
	char dir[64], root[80], scratch[80], fake[80];
	int images, scratch_fd;
	const char *program; /* the real one; NULL: none here */
	const char *tree;
	struct loop *loop;
	bool timed_out;
} test;

/* What a run told, and what is to be done at one of its events. */
struct seen {
	struct criu *criu;
	char events[512]; /* their names, each with a space */
	enum criu_event_kind at;
	enum { ACT_NONE, ACT_REFUSE, ACT_CANCEL, ACT_FREE, ACT_WAIT, ACT_LATER } act;
	pid_t pid_at_setup;
	bool done, freed;
	struct err err;
	struct criu_result result;
	char log[CRIU_LOG_MAX];
};

/* ---- one run -------------------------------------------------------------------------------- */

static inline void answer_later(void *arg)
{
	criu_answer(((struct seen *)arg)->criu, true, NULL);
}

static inline void act(struct seen *seen)
{
	struct err reason = ERR_INIT;

	switch (seen->act) {
	case ACT_REFUSE:
		err_set(&reason, ERR_LIMIT, "the disk is full");
		criu_answer(seen->criu, false, &reason);
		break;
	case ACT_CANCEL:
		criu_cancel(seen->criu);
		break;
	case ACT_FREE:
		criu_free(steal_ptr(&seen->criu));
		seen->freed = true;
		loop_stop(test.loop);
		break;
	case ACT_LATER:
		loop_defer(test.loop, answer_later, seen);
		break;
	case ACT_WAIT: /* for the time limit */
	case ACT_NONE:
		break;
	}
}

static inline void on_event(struct criu *criu, const struct criu_event *event, void *arg)
{
	struct seen *seen = arg;
	size_t len = strlen(seen->events);

	seen->criu = criu;
	snprintf(
		seen->events + len, sizeof seen->events - len, "%s ", criu_event_name(event->kind));
	if (event->kind == CRIU_SETUP_NAMESPACES) {
		seen->pid_at_setup = event->pid;
		assert_true(event->pidfd >= 0 && procfd_is_alive(event->pidfd));
	}
	if (event->kind == seen->at && seen->act != ACT_NONE)
		act(seen);
	else
		criu_answer(criu, true, NULL);
}

static inline void on_done(
	struct criu *criu, const struct criu_result *result, const struct err *err, void *arg)
{
	struct seen *seen = arg;

	seen->done = true;
	seen->err = *err;
	seen->result = *result;
	snprintf(seen->log, sizeof seen->log, "%s", result->log);
	criu_free(criu);
	loop_stop(test.loop);
}

static const struct criu_ops ops = { .on_event = on_event, .on_done = on_done };

static inline void time_over(void *arg)
{
	(void)arg;
	test.timed_out = true;
	loop_stop(test.loop);
}

typedef int (*start_fn)(struct loop *loop, const struct criu_request *request,
	const struct criu_ops *ops, void *arg, struct criu **ret, struct err *err);

static inline void run(start_fn start, const struct criu_request *request, struct seen *seen)
{
	struct loop_timer *timer = loop_timer_new(test.loop, time_over, NULL);
	struct err err = ERR_INIT;

	if (start(test.loop, request, &ops, seen, &seen->criu, &err) < 0)
		fail_msg("start: %s", err.message);
	test.timed_out = false;
	loop_timer_start(timer, PATIENCE_MS);
	loop_run(test.loop);
	loop_timer_free(timer);
	assert_false(test.timed_out);
	assert_true(seen->done || seen->freed);
}

static inline void expect_success(const struct seen *seen)
{
	if (seen->err.kind != ERR_NONE)
		fail_msg("%s\n%s", seen->err.message, seen->log);
	assert_true(seen->done);
}

/* No child is left, dead or alive. */
static inline void expect_no_children(void)
{
	siginfo_t info = { 0 };

	assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT), -1);
	assert_int_equal(errno, ECHILD);
}

static inline int count_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* ---- set-up --------------------------------------------------------------------------------- */

static inline int open_loop(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof path, "%s/images", test.dir);
	tree_remove(AT_FDCWD, path, NULL);
	if (mkdir(path, 0700) < 0)
		return -1;
	test.images = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	test.loop = loop_new();
	return 0;
}

static inline int close_loop(void **state)
{
	(void)state;
	loop_free(test.loop);
	close(test.images);
	return 0;
}

static inline int copy_tree(void)
{
	_cleanup_free_ char *bytes = NULL;
	struct err err = ERR_INIT;
	char path[128];
	size_t len;

	snprintf(path, sizeof path, "%s/tree", test.root);
	if (file_read(AT_FDCWD, test.tree, 16 << 20, &bytes, &len, &err) < 0 ||
		file_write_atomic(AT_FDCWD, path, bytes, len, 0755, &err) < 0) {
		print_error("%s\n", err.message);
		return -1;
	}
	return 0;
}

/* In a mount namespace of the test's own: nothing is left mounted, whatever happens. */
static inline int make_dir(void **state)
{
	const char *where = getenv("TMPDIR");
	char path[128];

	(void)state;
	snprintf(test.dir, sizeof test.dir, "%s/box-test-criu-XXXXXX", where ? where : "/tmp");
	if (!mkdtemp(test.dir))
		return -1;
	snprintf(test.root, sizeof test.root, "%s/root", test.dir);
	snprintf(test.scratch, sizeof test.scratch, "%s/scratch", test.dir);
	snprintf(path, sizeof path, "%s/root", test.scratch);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mkdir(test.root, 0755) < 0 || mkdir(test.scratch, 0755) < 0 ||
		mount("tmpfs", test.scratch, "tmpfs", 0, NULL) < 0 || mkdir(path, 0755) < 0)
		return -1;
	test.scratch_fd = open(test.scratch, O_PATH | O_DIRECTORY | O_CLOEXEC);
	test.program = getenv("BOX_TEST_CRIU");
	test.tree = getenv("BOX_TEST_TREE");
	if (!test.program || !test.tree || access(test.program, X_OK) < 0)
		test.program = NULL;
	return test.program ? copy_tree() : 0;
}

static inline int remove_dir(void **state)
{
	(void)state;
	close(test.scratch_fd);
	umount2(test.scratch, MNT_DETACH);
	return tree_remove(AT_FDCWD, test.dir, NULL);
}

#define CRIU_TEST(fn) cmocka_unit_test_setup_teardown(fn, open_loop, close_loop)

static inline int run_criu_tests(const char *name, const struct CMUnitTest *tests, size_t count)
{
	if (geteuid() != 0) {
		printf("%s: SKIPPED: needs root\n", name);
		return 77;
	}
	return _cmocka_run_group_tests(name, tests, count, make_dir, remove_dir);
}
