/* test_criu.c - runs of criu: a real one with a real tree of processes, and programs that only pretend
 *
 * The tree is stand_in_tree.c on a root of its own, in namespaces of its own. Needs root; the tests with the real
 * program need BOX_TEST_CRIU (scripts/criu makes it) and BOX_TEST_TREE, and say aloud when they are skipped. */
#include "criu/criu.h"
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

/* ---- one run ------------------------------------------------------------------------------------------------------- */

static void answer_later(void *arg)
{
	criu_answer(((struct seen *)arg)->criu, true, NULL);
}

static void act(struct seen *seen)
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

static void on_event(struct criu *criu, const struct criu_event *event, void *arg)
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

static void on_done(
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

static const struct criu_ops ops = { on_event, on_done };

static void time_over(void *arg)
{
	(void)arg;
	test.timed_out = true;
	loop_stop(test.loop);
}

typedef int (*start_fn)(struct loop *loop, const struct criu_request *request,
	const struct criu_ops *ops, void *arg, struct criu **ret, struct err *err);

static void run(start_fn start, const struct criu_request *request, struct seen *seen)
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

static void expect_success(const struct seen *seen)
{
	if (seen->err.kind != ERR_NONE)
		fail_msg("%s\n%s", seen->err.message, seen->log);
	assert_true(seen->done);
}

/* No child is left, dead or alive. */
static void expect_no_children(void)
{
	siginfo_t info = { 0 };

	assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT), -1);
	assert_int_equal(errno, ECHILD);
}

static int count_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* ---- programs that pretend ------------------------------------------------------------------------------------------ */

/* A shell script as criu; its socket is fd 3. */
static struct criu_request pretend(const char *script)
{
	struct criu_request request = CRIU_REQUEST_INIT;
	_cleanup_free_ char *text = xasprintf("#!/bin/sh\n%s\n", script);

	snprintf(test.fake, sizeof test.fake, "%s/fake", test.dir);
	assert_int_equal(file_write_atomic(AT_FDCWD, test.fake, text, strlen(text), 0755, NULL), 0);
	request.program = test.fake;
	request.images = test.images;
	request.pid = getpid();
	return request;
}

static void test_criu_bad_requests_are_refused_before_anything_runs(void **state)
{
	struct criu_request request = CRIU_REQUEST_INIT;
	const char *many[CRIU_STRINGS_MAX + 2];
	struct err err = ERR_INIT;
	struct criu *criu;

	(void)state;
	assert_int_equal(criu_check(test.loop, &request, &ops, NULL, &criu, &err), -1);
	request.program = "/bin/true";
	request.pid = 1;
	assert_int_equal(criu_dump(test.loop, &request, &ops, NULL, &criu, &err), -1);
	request.images = test.images;
	request.pid = 0;
	assert_int_equal(criu_dump(test.loop, &request, &ops, NULL, &criu, &err), -1);
	request.limit_ms = 0;
	assert_int_equal(criu_restore(test.loop, &request, &ops, NULL, &criu, &err), -1);
	request.limit_ms = 1;
	for (size_t i = 0; i <= CRIU_STRINGS_MAX; i++)
		many[i] = "x";
	many[CRIU_STRINGS_MAX + 1] = NULL;
	request.external = many;
	assert_int_equal(criu_restore(test.loop, &request, &ops, NULL, &criu, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	expect_no_children();
}

static void test_criu_missing_program_is_told(void **state)
{
	struct criu_request request = CRIU_REQUEST_INIT;
	struct seen seen = { .act = ACT_NONE };

	(void)state;
	request.program = "/nowhere/criu";
	run(criu_check, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_NOT_FOUND);
	assert_non_null(strstr(seen.err.message, "criu check: execute '/nowhere/criu'"));
	expect_no_children();
}

static int refuse_to_prepare(void *arg, struct err *err)
{
	return err_set(err, ERR_LIMIT, "%s", (const char *)arg);
}

static void test_criu_failed_preparation_is_told(void **state)
{
	struct criu_request request = pretend("exit 0");
	struct seen seen = { .act = ACT_NONE };

	(void)state;
	request.prepare = refuse_to_prepare;
	request.prepare_arg = "no room";
	run(criu_dump, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_LIMIT);
	assert_string_equal(seen.err.message, "criu dump: no room");
	expect_no_children();
}

static void test_criu_that_dies_is_told_with_what_it_printed(void **state)
{
	struct criu_request request = pretend("echo 'Error (x.c:1): out of luck' >&2; exit 3");
	struct seen seen = { .act = ACT_NONE };

	(void)state;
	run(criu_dump, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_UNAVAILABLE);
	assert_string_equal(seen.err.message, "criu dump: criu ended with code 3: out of luck");
	assert_string_equal(seen.log, "Error (x.c:1): out of luck\n");
	request = pretend("kill -9 $$");
	seen = (struct seen){ .act = ACT_NONE };
	run(criu_restore, &request, &seen);
	assert_string_equal(seen.err.message, "criu restore: criu ended with signal 9");
	expect_no_children();
}

static void test_criu_nonsense_ends_it(void **state)
{
	static const struct {
		start_fn start;
		const char *script;
	} rows[] = {
		{ criu_dump, "printf '\\377\\377' >&3; sleep 60" },
		/* an answer to something else */
		{ criu_dump, "printf '\\010\\012\\020\\001\\122\\004\\010\\004\\020\\002' >&3; "
			     "sleep 60" },
		/* two events at once */
		{ criu_dump, "e='\\010\\006\\020\\001\\052\\012\\012\\010pre-dump'; printf $e >&3; "
			     "printf $e >&3; sleep 60" },
		/* two answers */
		{ criu_dump, "printf '\\010\\001\\020\\001' >&3; printf '\\010\\001\\020\\001' "
			     ">&3; sleep 60" },
		/* an event of a check */
		{ criu_check,
			"printf '\\010\\006\\020\\001\\052\\012\\012\\010pre-dump' >&3; sleep 60" },
		/* what the process says before the exec, too late */
		{ criu_check, "printf '\\000' >&3; sleep 60" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct criu_request request = pretend(rows[i].script);
		struct seen seen = { .at = CRIU_PRE_DUMP, .act = ACT_WAIT };

		run(rows[i].start, &request, &seen);
		assert_int_equal(seen.err.kind, ERR_PROTOCOL);
		expect_no_children();
	}
}

/* A child that has a child, whose pid is returned. */
static pid_t start_stranger(pid_t *ret_child)
{
	pid_t inner = 0;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	*ret_child = fork();
	if (*ret_child == 0) {
		inner = fork();
		if (inner > 0 && write(ends[1], &inner, sizeof inner) < 0)
			_exit(1);
		close(ends[1]);
		for (;;)
			pause();
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &inner, sizeof inner), sizeof inner);
	close(ends[0]);
	return inner;
}

/* What criu claims to have restored is killed when something fails: only a child of ours may be one. */
static void test_criu_cannot_name_a_stranger_as_restored(void **state)
{
	pid_t child, stranger = start_stranger(&child);
	struct seen seen = { .act = ACT_NONE };
	struct criu_request request;
	char script[512];

	(void)state;
	snprintf(script, sizeof script,
		"p=%d; o() { printf '\\\\%%03o' $1; }\n"
		"printf \"\\\\010\\\\002\\\\020\\\\001\\\\042\\\\005\\\\010$(o $((p & 127 | 128)))"
		"$(o $((p >> 7 & 127 | 128)))$(o $((p >> 14 & 127 | 128)))$(o $((p >> 21)))\" >&3",
		(int)stranger);
	request = pretend(script);
	run(criu_restore, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_PROTOCOL);
	assert_non_null(strstr(seen.err.message, "no child of ours"));
	assert_int_equal(kill(stranger, 0), 0);
	kill(stranger, SIGKILL);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	expect_no_children();
}

static void test_criu_over_its_time_is_killed_with_all_it_started(void **state)
{
	struct criu_request request = pretend("sleep 61 & sleep 62");
	struct seen seen = { .act = ACT_NONE };
	int64_t before = clock_mono_us();

	(void)state;
	request.limit_ms = 100;
	run(criu_dump, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_TIMEOUT);
	assert_non_null(strstr(seen.err.message, "not done after 100 ms"));
	assert_true(clock_mono_us() - before < 2000000);
	expect_no_children();
}

/* ---- the real program ------------------------------------------------------------------------------------------------ */

static void need_criu(void)
{
	if (test.program)
		return;
	print_message("SKIPPED: no BOX_TEST_CRIU and BOX_TEST_TREE here; 'scripts/criu' builds the "
		      "program\n");
	skip();
}

struct tree {
	pid_t pid;
	int pidfd;
};

static _Noreturn void become_tree(const char *root)
{
	int out;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount(root, root, NULL, MS_BIND, NULL) < 0 || chdir(root) < 0 ||
		syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
		chdir("/") < 0)
		_exit(20);
	out = open("/out", O_CREAT | O_RDWR, 0600);
	if (out < 0 || dup2(out, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(21);
	close_range(3, ~0u, 0);
	setsid();
	clone_reset_signals();
	execl("/tree", "tree", (char *)NULL);
	_exit(22);
}

static unsigned counted(const char *root)
{
	_cleanup_free_ char *text = NULL;
	char path[128];

	snprintf(path, sizeof path, "%s/count", root);
	if (file_read(AT_FDCWD, path, 64, &text, NULL, NULL) < 0)
		return 0;
	return (unsigned)atoi(text);
}

static void fail_tree(const char *root, int pidfd)
{
	int value = 0;
	enum procfd_status status = procfd_reap(pidfd, &value);

	fail_msg("the tree stopped at %u: %s %d", counted(root),
		status == PROCFD_RUNNING  ? "hangs"
		: status == PROCFD_EXITED ? "exit code"
					  : "signal",
		value);
}

/* Both processes run, and what they check of themselves is right: 70 steps hold a check of their memory. */
static void expect_counting(const char *root, int pidfd)
{
	unsigned from = counted(root);
	int64_t until = clock_mono_us() + PATIENCE_MS * 1000LL;

	while (counted(root) < from + 70) {
		if (!procfd_is_alive(pidfd) || clock_mono_us() > until)
			fail_tree(root, pidfd);
		usleep(2000);
	}
}

static void tree_start(const char *root, struct tree *ret)
{
	struct clone_spec spec = {
		.namespaces =
			CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS,
		.cgroup = -1,
	};
	struct err err = ERR_INIT;
	char path[128];

	snprintf(path, sizeof path, "%s/count", root);
	unlink(path);
	ret->pid = clone_process(&spec, &ret->pidfd, &err);
	if (ret->pid == 0)
		become_tree(root);
	if (ret->pid < 0)
		fail_msg("%s", err.message);
	expect_counting(root, ret->pidfd);
}

static void tree_end(struct tree *tree)
{
	struct pollfd p = { .fd = tree->pidfd, .events = POLLIN };
	int value;

	procfd_kill(tree->pidfd, SIGKILL, NULL);
	poll(&p, 1, PATIENCE_MS);
	assert_int_not_equal(procfd_reap(tree->pidfd, &value), PROCFD_RUNNING);
	close(tree->pidfd);
}

static const char *const external[] = { "mnt[]:ms", NULL };

static struct criu_request real(void)
{
	struct criu_request request = CRIU_REQUEST_INIT;

	request.program = test.program;
	request.images = test.images;
	request.scratch = test.scratch_fd;
	request.external = external;
	request.empty_ns = CLONE_NEWNET;
	request.log_level = 2;
	return request;
}

/* The scratch is /tmp already. */
static int attach_root(void *arg, struct err *err)
{
	_cleanup_close_ int target = open("/tmp/root", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return mount_attach(*(int *)arg, target, err);
}

static void dump(struct tree *tree, bool leave_running, struct seen *seen)
{
	struct criu_request request = real();

	request.pid = tree->pid;
	request.leave_running = leave_running;
	run(criu_dump, &request, seen);
}

static void restore(const char *root, struct seen *seen)
{
	struct criu_request request = real();
	struct err err = ERR_INIT;
	_cleanup_close_ int fd = -1;

	if (mount_clone(AT_FDCWD, root, &fd, &err) < 0)
		fail_msg("%s", err.message);
	request.root = "/tmp/root";
	request.prepare = attach_root;
	request.prepare_arg = &fd;
	run(criu_restore, &request, seen);
}

#define DUMP_EVENTS "pre-dump network-lock query-ext-files post-dump network-unlock "
#define RESTORE_EVENTS                                                                    \
	"pre-restore setup-namespaces post-setup-namespaces post-restore network-unlock " \
	"pre-resume post-resume "

static void test_criu_tells_its_version_and_checks_the_kernel(void **state)
{
	struct seen seen = { .act = ACT_NONE };
	struct criu_request request = real();

	(void)state;
	need_criu();
	run(criu_ask_version, &request, &seen);
	expect_success(&seen);
	assert_true(seen.result.version.major >= 4);
	seen = (struct seen){ .act = ACT_NONE };
	run(criu_check, &request, &seen);
	expect_success(&seen);
	expect_no_children();
}

static void test_criu_dumps_and_the_tree_goes_on(void **state)
{
	struct seen seen = { .at = CRIU_NETWORK_LOCK, .act = ACT_LATER };
	struct tree tree;

	(void)state;
	need_criu();
	tree_start(test.root, &tree);
	dump(&tree, true, &seen);
	expect_success(&seen);
	assert_string_equal(seen.events, DUMP_EVENTS);
	assert_string_equal(seen.log, "");
	assert_int_equal(faccessat(test.images, "inventory.img", F_OK, 0), 0);
	expect_counting(test.root, tree.pidfd);
	tree_end(&tree);
	expect_no_children();
}

static void test_criu_restores_what_it_dumped(void **state)
{
	struct seen seen = { .act = ACT_NONE };
	struct tree tree, again;
	unsigned before;

	(void)state;
	need_criu();
	tree_start(test.root, &tree);
	dump(&tree, false, &seen);
	expect_success(&seen);
	tree_end(&tree); /* it is dead; only to reap it */
	before = counted(test.root);
	usleep(20000);
	assert_int_equal(counted(test.root), before);

	seen = (struct seen){ .at = CRIU_SETUP_NAMESPACES, .act = ACT_LATER };
	restore(test.root, &seen);
	expect_success(&seen);
	assert_string_equal(seen.events, RESTORE_EVENTS);
	assert_true(seen.result.pid > 0 && seen.result.pid == seen.pid_at_setup);
	again = (struct tree){ seen.result.pid, seen.result.pidfd };
	expect_counting(test.root, again.pidfd);
	assert_true(counted(test.root) > before);
	tree_end(&again);
	expect_no_children();
}

/* Whatever becomes of the run, at whatever event: the tree is as before. */
static void test_criu_failed_dump_harms_nobody(void **state)
{
	static const struct {
		enum criu_event_kind at;
		int act;
		enum err_kind kind;
		const char *text;
	} rows[] = {
		{ CRIU_PRE_DUMP, ACT_REFUSE, ERR_LIMIT, "criu dump: the disk is full" },
		{ CRIU_NETWORK_LOCK, ACT_REFUSE, ERR_LIMIT, "criu dump: the disk is full" },
		{ CRIU_POST_DUMP, ACT_REFUSE, ERR_LIMIT, "criu dump: the disk is full" },
		{ CRIU_POST_DUMP, ACT_CANCEL, ERR_CANCELLED, "criu dump: dump was cancelled" },
		{ CRIU_POST_DUMP, ACT_WAIT, ERR_TIMEOUT,
			"criu dump: not done after 1000 ms, at post-dump" },
		{ CRIU_PRE_DUMP, ACT_FREE, ERR_NONE, "" },
		{ CRIU_NETWORK_LOCK, ACT_FREE, ERR_NONE, "" },
		{ CRIU_QUERY_EXT_FILES, ACT_FREE, ERR_NONE, "" },
		{ CRIU_POST_DUMP, ACT_FREE, ERR_NONE, "" },
		{ CRIU_NETWORK_UNLOCK, ACT_FREE, ERR_NONE, "" },
	};
	struct criu_request request;
	struct tree tree;

	(void)state;
	need_criu();
	tree_start(test.root, &tree);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct seen seen = { .at = rows[i].at, .act = rows[i].act };

		request = real();
		request.pid = tree.pid;
		request.leave_running = rows[i].at == CRIU_NETWORK_UNLOCK;
		request.limit_ms = rows[i].act == ACT_WAIT ? 1000 : 20000;
		run(criu_dump, &request, &seen);
		assert_int_equal(seen.err.kind, rows[i].kind);
		assert_string_equal(seen.err.message, rows[i].text);
		expect_counting(test.root, tree.pidfd);
	}
	tree_end(&tree);
	expect_no_children();
}

/* Who traces the process, 0: nobody. */
static int tracer_of(pid_t pid)
{
	_cleanup_free_ char *text = NULL;
	char path[64];
	const char *found;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	if (file_read(AT_FDCWD, path, 8192, &text, NULL, NULL) < 0)
		return 0;
	found = strstr(text, "TracerPid:");
	return found ? atoi(found + strlen("TracerPid:")) : 0;
}

static void kill_caller(pid_t caller, unsigned ms)
{
	usleep(ms * 1000);
	kill(caller, SIGKILL);
	assert_int_equal(waitpid(caller, NULL, 0), caller);
}

/* In a caller of its own: a loop is not shared. */
static void be_another(void)
{
	loop_free(test.loop);
	test.loop = loop_new();
}

static void test_criu_undoes_a_dump_whose_caller_is_killed(void **state)
{
	int64_t until = clock_mono_us() + PATIENCE_MS * 1000LL;
	struct tree tree;

	(void)state;
	need_criu();
	tree_start(test.root, &tree);
	for (unsigned ms = 1; ms <= 28; ms += 3) {
		pid_t caller = fork();

		if (caller == 0) {
			struct seen seen = { .act = ACT_NONE };

			be_another();
			dump(&tree, true, &seen);
			_exit(0);
		}
		kill_caller(caller, ms);
		expect_counting(test.root, tree.pidfd);
		while (tracer_of(tree.pid) && clock_mono_us() < until)
			usleep(1000);
		assert_int_equal(tracer_of(tree.pid), 0);
	}
	tree_end(&tree);
	expect_no_children();
}

/* Children of ours, adopted ones too, that lead a session and are in no pid namespace: criu itself. What it made is
 * killed. */
static int count_criu(void)
{
	char path[64], *text = NULL, *rest;
	int count = 0;

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	assert_int_equal(file_read(AT_FDCWD, path, 4096, &text, NULL, NULL), 0);
	for (char *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
		_cleanup_free_ char *status = NULL;
		char leads[64];

		snprintf(path, sizeof path, "/proc/%s/status", word);
		if (file_read(AT_FDCWD, path, 8192, &status, NULL, NULL) < 0)
			continue;
		snprintf(leads, sizeof leads, "NSsid:\t%s\n", word);
		if (strstr(status, leads))
			count += !strstr(status, "State:\tZ");
		else
			kill(atoi(word), SIGKILL);
	}
	free(text);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return count;
}

static void test_criu_dies_with_the_caller_of_a_restore(void **state)
{
	struct seen seen = { .act = ACT_NONE };
	struct tree tree;

	(void)state;
	need_criu();
	tree_start(test.root, &tree);
	dump(&tree, false, &seen);
	expect_success(&seen);
	tree_end(&tree);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	for (unsigned ms = 2; ms <= 26; ms += 4) {
		int64_t until = clock_mono_us() + 2000000;
		pid_t caller = fork();

		if (caller == 0) {
			be_another();
			seen = (struct seen){ .at = CRIU_POST_RESTORE, .act = ACT_WAIT };
			restore(test.root, &seen);
			_exit(0);
		}
		kill_caller(caller, ms);
		while (count_criu() && clock_mono_us() < until)
			usleep(1000);
		assert_int_equal(count_criu(), 0);
	}
	while (waitpid(-1, NULL, 0) > 0)
		;
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	expect_no_children();
}

static void kill_now(void *arg)
{
	struct seen *seen = arg;

	if (!seen->done && !seen->freed) {
		criu_free(steal_ptr(&seen->criu));
		seen->freed = true;
	}
	loop_stop(test.loop);
}

static void test_criu_failed_restore_leaves_nobody(void **state)
{
	static const enum criu_event_kind at[] = { CRIU_PRE_RESTORE, CRIU_SETUP_NAMESPACES,
		CRIU_POST_SETUP_NAMESPACES, CRIU_POST_RESTORE, CRIU_NETWORK_UNLOCK,
		CRIU_PRE_RESUME };
	struct seen seen = { .act = ACT_NONE };
	struct tree tree;
	unsigned before;
	int fds;

	(void)state;
	need_criu();
	tree_start(test.root, &tree);
	dump(&tree, false, &seen);
	expect_success(&seen);
	tree_end(&tree);
	before = counted(test.root);
	fds = count_fds();
	for (size_t i = 0; i < ARRAY_LEN(at); i++) {
		seen = (struct seen){ .at = at[i], .act = ACT_FREE };
		restore(test.root, &seen);
		expect_no_children();
		seen = (struct seen){ .at = at[i], .act = ACT_REFUSE };
		restore(test.root, &seen);
		assert_string_equal(seen.err.message, "criu restore: the disk is full");
		expect_no_children();
	}
	for (unsigned ms = 1; ms <= 12; ms++) {
		struct loop_timer *timer = loop_timer_new(test.loop, kill_now, &seen);

		seen = (struct seen){ .at = CRIU_PRE_RESUME, .act = ACT_FREE };
		loop_timer_start(timer, ms);
		restore(test.root, &seen);
		loop_timer_free(timer);
		expect_no_children();
	}
	assert_int_equal(count_fds(), fds);
	assert_int_equal(counted(test.root), before);
}

static void test_criu_says_why(void **state)
{
	struct seen seen = { .act = ACT_NONE };
	struct criu_request request;
	struct tree tree;
	_cleanup_close_ int image = -1;

	(void)state;
	need_criu();
	request = real();
	request.pid = 4194303;
	run(criu_dump, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_NOT_FOUND);
	assert_non_null(strstr(seen.log, "4194303"));

	tree_start(test.root, &tree);
	seen = (struct seen){ .act = ACT_NONE };
	dump(&tree, false, &seen);
	expect_success(&seen);
	tree_end(&tree);
	image = openat(test.images, "core-1.img", O_WRONLY | O_CLOEXEC);
	assert_true(image >= 0 && ftruncate(image, 100) == 0);
	seen = (struct seen){ .act = ACT_NONE };
	restore(test.root, &seen);
	assert_int_equal(seen.err.kind, ERR_SYSTEM);
	assert_non_null(strstr(seen.err.message, "criu restore: "));
	assert_non_null(strstr(seen.log, "Error ("));
	expect_no_children();
}

/* ---- set-up -------------------------------------------------------------------------------------------------------- */

static int open_loop(void **state)
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

static int close_loop(void **state)
{
	(void)state;
	loop_free(test.loop);
	close(test.images);
	return 0;
}

static int copy_tree(void)
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
static int make_dir(void **state)
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

static int remove_dir(void **state)
{
	(void)state;
	close(test.scratch_fd);
	umount2(test.scratch, MNT_DETACH);
	return tree_remove(AT_FDCWD, test.dir, NULL);
}

#define CRIU_TEST(fn) cmocka_unit_test_setup_teardown(fn, open_loop, close_loop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CRIU_TEST(test_criu_bad_requests_are_refused_before_anything_runs),
		CRIU_TEST(test_criu_missing_program_is_told),
		CRIU_TEST(test_criu_failed_preparation_is_told),
		CRIU_TEST(test_criu_that_dies_is_told_with_what_it_printed),
		CRIU_TEST(test_criu_nonsense_ends_it),
		CRIU_TEST(test_criu_cannot_name_a_stranger_as_restored),
		CRIU_TEST(test_criu_over_its_time_is_killed_with_all_it_started),
		CRIU_TEST(test_criu_tells_its_version_and_checks_the_kernel),
		CRIU_TEST(test_criu_dumps_and_the_tree_goes_on),
		CRIU_TEST(test_criu_restores_what_it_dumped),
		CRIU_TEST(test_criu_failed_dump_harms_nobody),
		CRIU_TEST(test_criu_undoes_a_dump_whose_caller_is_killed),
		CRIU_TEST(test_criu_dies_with_the_caller_of_a_restore),
		CRIU_TEST(test_criu_failed_restore_leaves_nobody),
		CRIU_TEST(test_criu_says_why),
	};

	if (geteuid() != 0) {
		printf("test_criu: SKIPPED: needs root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
