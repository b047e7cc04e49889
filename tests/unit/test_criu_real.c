/* test_criu_real.c - runs of the real criu with a real tree of processes
 *
 * The tree is stand_in_tree.c on a root of its own, in namespaces of its own. Needs BOX_TEST_CRIU
 * (scripts/criu makes it) and BOX_TEST_TREE, and says aloud when it skips. */
#include "criu_fixture.h"

/* ---- the real program ----------------------------------------------------------------------- */

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

/* Both processes run, and what they check of themselves is right: 70 steps hold a check of their
 * memory. */
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
		{ CRIU_PRE_DUMP, ACT_REFUSE, ERR_LIMIT, "capture: the disk is full" },
		{ CRIU_NETWORK_LOCK, ACT_REFUSE, ERR_LIMIT, "capture: the disk is full" },
		{ CRIU_POST_DUMP, ACT_REFUSE, ERR_LIMIT, "capture: the disk is full" },
		{ CRIU_POST_DUMP, ACT_CANCEL, ERR_CANCELLED, "capture: dump was cancelled" },
		{ CRIU_POST_DUMP, ACT_WAIT, ERR_TIMEOUT,
			"capture: not done after 1000 ms, while the disk was copied" },
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

/* Children of ours, adopted ones too, that lead a session and are in no pid namespace: criu itself.
 * What it made is killed. */
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
		assert_string_equal(seen.err.message, "restore: the disk is full");
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
	assert_non_null(strstr(seen.err.message, "CRIU could not restore "));
	assert_non_null(strstr(seen.log, "Error ("));
	expect_no_children();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CRIU_TEST(test_criu_tells_its_version_and_checks_the_kernel),
		CRIU_TEST(test_criu_dumps_and_the_tree_goes_on),
		CRIU_TEST(test_criu_restores_what_it_dumped),
		CRIU_TEST(test_criu_failed_dump_harms_nobody),
		CRIU_TEST(test_criu_undoes_a_dump_whose_caller_is_killed),
		CRIU_TEST(test_criu_dies_with_the_caller_of_a_restore),
		CRIU_TEST(test_criu_failed_restore_leaves_nobody),
		CRIU_TEST(test_criu_says_why),
	};

	return run_criu_tests("test_criu_real", tests, ARRAY_LEN(tests));
}
