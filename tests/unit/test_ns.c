/* test_ns.c - the ns driver with real instances; needs root, and BOX_TEST_INIT naming stand_in_init
 *
 * Each test starts an instance on an empty root, asks the stand-in for box-init inside what it sees and
 * may do, and ends it. Everything lives in a directory of the test's own and a cgroup tree of its own. */
#include "engine/engine.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <cmocka.h>

enum { UID_BASE = 3000000, PATIENCE_MS = 15000 };

/* One test's instance and what it was told. */
struct seen {
	struct instance *instance;
	bool ready, failed, ended;
	struct err failure;
	enum instance_end end;
	char detail[256];
	uint64_t oom_kills;
};

static struct {
	char dir[64];
	struct loop *loop;
	struct engine *engine;
	struct engine_config config;
	char home[96], rootfs[96], disk[96];
	bool timed_out;
} test;

static void on_ready(struct instance *instance, void *arg)
{
	(void)instance;
	((struct seen *)arg)->ready = true;
	loop_stop(test.loop);
}

static void on_failed(struct instance *instance, const struct err *err, void *arg)
{
	(void)instance;
	((struct seen *)arg)->failed = true;
	((struct seen *)arg)->failure = *err;
	loop_stop(test.loop);
}

static void on_ended(
	struct instance *instance, enum instance_end end, const char *detail, void *arg)
{
	struct seen *seen = arg;

	(void)instance;
	seen->ended = true;
	seen->end = end;
	snprintf(seen->detail, sizeof seen->detail, "%s", detail);
	loop_stop(test.loop);
}

static void on_oom(struct instance *instance, uint64_t kills, void *arg)
{
	(void)instance;
	((struct seen *)arg)->oom_kills += kills;
	loop_stop(test.loop);
}

static const struct instance_ops ops = { on_ready, on_failed, on_ended, on_oom };

static void time_over(void *arg)
{
	(void)arg;
	test.timed_out = true;
	loop_stop(test.loop);
}

static void run_until_something(void)
{
	struct loop_timer *timer = loop_timer_new(test.loop, time_over, NULL);

	test.timed_out = false;
	loop_timer_start(timer, PATIENCE_MS);
	loop_run(test.loop);
	loop_timer_free(timer);
	assert_false(test.timed_out);
}

static struct instance_spec spec_of(enum profile profile)
{
	return (struct instance_spec){
		.id = "t1",
		.hostname = "first",
		.rootfs = test.rootfs,
		.disk = test.disk,
		.uid_base = UID_BASE,
		.profile = profile,
	};
}

static void start_spec(const struct instance_spec *spec, struct seen *seen)
{
	struct err err = ERR_INIT;

	*seen = (struct seen){ 0 };
	if (engine_start(test.engine, spec, &ops, seen, &seen->instance, &err) < 0)
		fail_msg("start: %s", err.message);
	run_until_something();
	if (seen->failed)
		fail_msg("start: %s", seen->failure.message);
	assert_true(seen->ready);
}

static void start(enum profile profile, struct seen *seen)
{
	struct instance_spec spec = spec_of(profile);

	start_spec(&spec, seen);
}

/* One line to the stand-in and its answer, which stays valid until the next. */
static const char *ask(struct seen *seen, const char *line)
{
	static char answer[8192];
	_cleanup_close_ int fd = -1;
	struct err err = ERR_INIT;
	struct pollfd poller;
	size_t len = 0;

	if (instance_connect(seen->instance, &fd, &err) < 0)
		fail_msg("connect: %s", err.message);
	dprintf(fd, "%s\n", line);
	poller = (struct pollfd){ .fd = fd, .events = POLLIN };
	while (len < sizeof answer - 1 && poll(&poller, 1, PATIENCE_MS) > 0) {
		ssize_t got = read(fd, answer + len, sizeof answer - 1 - len);

		if (got <= 0)
			break;
		len += (size_t)got;
		if (answer[len - 1] == '\n')
			break;
	}
	answer[len] = '\0';
	answer[strcspn(answer, "\n")] = '\0';
	return answer;
}

static void expect(struct seen *seen, const char *line, const char *want)
{
	const char *got = ask(seen, line);

	if (strcmp(got, want) != 0)
		fail_msg("'%s' gave '%s', not '%s'", line, got, want);
}

static void expect_no_leftovers(void)
{
	json_t *left = engine_leftovers(test.engine);

	assert_int_equal(json_array_size(left), 0);
	json_decref(left);
}

static void stop(struct seen *seen)
{
	struct err err = ERR_INIT;

	assert_int_equal(instance_kill(seen->instance, &err), 0);
	while (!seen->ended)
		run_until_something();
	instance_free(seen->instance);
	seen->instance = NULL;
	expect_no_leftovers();
}

/* ---- isolation ----------------------------------------------------------------------------------------- */

static void test_ns_has_namespaces_of_its_own(void **state)
{
	static const char *const kinds[] = { "user", "pid", "mnt", "net", "ipc", "uts", "cgroup",
		"time" };
	struct seen seen;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		char path[64], line[80], ours[64] = "";

		snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
		snprintf(line, sizeof line, "link %s", path);
		assert_true(readlink(path, ours, sizeof ours - 1) > 0);
		assert_string_not_equal(ask(&seen, line), ours);
	}
	expect(&seen, "link /proc/self", "1");
	expect(&seen, "hostname", "first");
	expect(&seen, "count /proc/self/fd",
		"6"); /* 0-2, the listener, this connection, the directory */
	expect(&seen, "loopback 127.0.0.1", "ok");
	stop(&seen);
}

static void test_ns_root_owns_its_disk_and_the_disk_holds_plain_ids(void **state)
{
	struct seen seen;
	struct stat st;
	char path[160];

	(void)state;
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "write /etc/mine", "ok");
	expect(&seen, "write /mine", "ok");
	snprintf(path, sizeof path, "%s/upper/etc/mine", test.disk);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 0);
	stop(&seen);
}

static void test_ns_standard_cannot_reach_the_kernel(void **state)
{
	struct seen seen;
	char line[64];

	(void)state;
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "mknod /node", "EPERM");
	expect(&seen, "mount /tmp", "EPERM");
	expect(&seen, "umount /run/boxyard", "EPERM");
	expect(&seen, "unshare 10000000", "EPERM"); /* CLONE_NEWUSER */
	expect(&seen, "unshare 400", "ok");	    /* CLONE_FILES is no namespace */
	expect(&seen, "clone 10000000", "EPERM");
	snprintf(line, sizeof line, "syscall %d", (int)SYS_clone3);
	expect(&seen, line, "ENOSYS");
	snprintf(line, sizeof line, "syscall %d", (int)SYS_io_uring_setup);
	expect(&seen, line, "ENOSYS");
	snprintf(line, sizeof line, "syscall %d", (int)SYS_bpf);
	expect(&seen, line, "EPERM");
	assert_non_null(strstr(ask(&seen, "read /proc/self/mountinfo"), " /proc/sys ro,"));
	expect(&seen, "write /sys/x", "EROFS");
	expect(&seen, "read /proc/sys/user/max_user_namespaces", "0;");
	expect(&seen, "read /proc/kallsyms", "");
	expect(&seen, "count /sys/firmware", "0");
	assert_non_null(strstr(ask(&seen, "read /proc/self/status"), "CapBnd:\t00000000a80425fb;"));
	stop(&seen);
}

static void test_ns_nested_can_make_namespaces_and_mounts(void **state)
{
	struct seen seen;

	(void)state;
	start(PROFILE_NESTED, &seen);
	expect(&seen, "mount /tmp", "ok");
	expect(&seen, "unshare 10020000", "ok"); /* CLONE_NEWUSER | CLONE_NEWNS */
	expect(&seen, "mknod /node", "EPERM");
	expect(&seen, "write /var/lib/containers/x", "ok");
	stop(&seen);
}

static void test_ns_nested_owns_its_cgroup(void **state)
{
	json_t *facts = engine_describe(test.engine);
	bool has_v2 = strstr(json_string_value(json_object_get(facts, "cgroup")), "v2") != NULL;
	struct seen seen;

	(void)state;
	json_decref(facts);
	if (!has_v2) {
		print_message("no cgroup v2 tree here: skipped\n");
		skip();
	}
	start(PROFILE_NESTED, &seen);
	expect(&seen, "mkdir /sys/fs/cgroup/inner", "ok");
	expect(&seen, "mkdir /sys/fs/cgroup/inner/deeper", "ok");
	stop(&seen);
}

/* ---- what a box can do to itself ---------------------------------------------------------------------- */

static void test_ns_socket_and_init_cannot_be_removed(void **state)
{
	struct seen seen;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "unlink /run/boxyard/init.sock", "EROFS");
	expect(&seen, "unlink /.boxyard/box-init", "EROFS");
	expect(&seen, "rmdir /proc", "EBUSY");
	expect(&seen, "hostname", "first");
	stop(&seen);
}

static void test_ns_starts_again_after_dev_was_removed(void **state)
{
	struct seen seen;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "unlink /dev/null", "ok");
	expect(&seen, "unlink /dev/zero", "ok");
	expect(&seen, "write /dev/zero", "ok");
	expect(&seen, "unlink /dev/ptmx", "ok");
	expect(&seen, "rmdir /workspace", "ok");
	stop(&seen);
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "write /dev/null", "ok");
	expect(&seen, "link /dev/ptmx", "pts/ptmx");
	stop(&seen);
}

static void test_ns_refuses_a_link_where_it_mounts(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct seen seen = { 0 };
	struct err err = ERR_INIT;
	char path[160];

	(void)state;
	/* What a nested box could leave behind: /proc as a link, in its own layer. */
	snprintf(path, sizeof path, "%s/upper", test.disk);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof path, "%s/upper/proc", test.disk);
	assert_int_equal(symlink("/tmp", path), 0);
	assert_int_equal(engine_start(test.engine, &spec, &ops, &seen, &seen.instance, &err), 0);
	run_until_something();
	assert_true(seen.failed);
	assert_int_equal(seen.failure.kind, ERR_INVALID);
	assert_non_null(strstr(seen.failure.message, "/proc"));
	instance_free(seen.instance);
	expect_no_leftovers();
}

static void test_ns_is_not_led_to_another_socket(void **state)
{
	struct seen seen;
	struct err err = ERR_INIT;
	int fd = -1;

	(void)state;
	start(PROFILE_NESTED, &seen);
	/* Over another connection than the checked one: root of a nested box may unmount what it likes. */
	expect(&seen, "umount /run/boxyard", "ok");
	expect(&seen, "rmdir /run/boxyard", "ok");
	expect(&seen, "symlink /run/boxyard", "ok");
	expect(&seen, "hostname", "first"); /* the socket that was opened first is kept */
	/* A daemon that comes later finds a link. */
	{
		struct instance_mark mark = *instance_get_mark(seen.instance);
		struct instance_spec spec = spec_of(PROFILE_NESTED);

		instance_free(seen.instance);
		assert_int_equal(
			engine_adopt(test.engine, &spec, &mark, &ops, &seen, &seen.instance, &err),
			0);
		assert_int_equal(instance_connect(seen.instance, &fd, &err), -1);
		assert_int_equal(err.errno_value, ELOOP);
	}
	stop(&seen);
}

/* ---- life ------------------------------------------------------------------------------------------------ */

static void test_ns_end_is_told_with_its_reason(void **state)
{
	struct seen seen;
	struct err err = ERR_INIT;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	ask(&seen, "exit 0");
	run_until_something();
	assert_int_equal(seen.end, INSTANCE_END_EXITED);
	assert_string_equal(seen.detail, "shut down");
	instance_free(seen.instance);

	start(PROFILE_STANDARD, &seen);
	ask(&seen, "exit 3");
	run_until_something();
	assert_string_equal(seen.detail, "box-init exited with code 3");
	instance_free(seen.instance);

	start(PROFILE_STANDARD, &seen);
	kill(instance_get_mark(seen.instance)->pid, SIGKILL);
	run_until_something();
	assert_int_equal(seen.end, INSTANCE_END_KILLED);
	assert_string_equal(seen.detail, "box-init was killed by signal 9");
	assert_int_equal(instance_connect(seen.instance, &(int){ -1 }, &err), -1);
	instance_free(seen.instance);
	expect_no_leftovers();
}

/* The process has become another program than this one, though the loop has not been told yet. */
static void wait_for_exec(pid_t pid)
{
	char path[32], ours[256] = "", theirs[256] = "";

	assert_true(readlink("/proc/self/exe", ours, sizeof ours - 1) > 0);
	snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	for (int tries = 0; tries < PATIENCE_MS; tries++) {
		ssize_t len = readlink(path, theirs, sizeof theirs - 1);

		theirs[MAX(len, 0)] = '\0';
		if (len > 0 && strcmp(ours, theirs) != 0)
			return;
		usleep(1000);
	}
	fail_msg("the box was never executed");
}

static void kill_during_start(bool after_exec)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct seen seen = { 0 };
	struct err err = ERR_INIT;

	assert_int_equal(engine_start(test.engine, &spec, &ops, &seen, &seen.instance, &err), 0);
	if (after_exec)
		wait_for_exec(instance_get_mark(seen.instance)->pid);
	assert_int_equal(instance_kill(seen.instance, &err), 0);
	run_until_something();
	assert_true(seen.failed);
	assert_false(seen.ready);
	assert_int_equal(seen.failure.kind, ERR_CANCELLED);
	instance_free(seen.instance);
	expect_no_leftovers();
}

/* How far the child got by then must not matter: on a busy machine it may be done already. */
static void test_ns_kill_during_start_fails_the_start(void **state)
{
	(void)state;
	kill_during_start(false);
}

static void test_ns_kill_before_ready_is_told_fails_the_start(void **state)
{
	(void)state;
	kill_during_start(true);
}

static void test_ns_missing_image_leaves_nothing(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct seen seen = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	spec.rootfs = "/nonexistent";
	assert_int_equal(engine_start(test.engine, &spec, &ops, &seen, &seen.instance, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_non_null(strstr(err.message, "image"));
	expect_no_leftovers();
}

/* A second driver on the same home, as the next daemon would open it. The first one's process stays the
 * parent, so the end comes to the second as to a stranger. */
static void test_ns_adopts_what_runs_and_nothing_else(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct instance_mark mark, wrong;
	struct seen seen, again = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	mark = *instance_get_mark(seen.instance);
	instance_free(seen.instance);

	wrong = mark;
	wrong.start_time++;
	assert_int_equal(
		engine_adopt(test.engine, &spec, &wrong, &ops, &again, &again.instance, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	wrong = mark;
	wrong.boot[0] ^= 1;
	assert_int_equal(
		engine_adopt(test.engine, &spec, &wrong, &ops, &again, &again.instance, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	spec.id = "t2";
	assert_int_equal(
		engine_adopt(test.engine, &spec, &mark, &ops, &again, &again.instance, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	spec.id = "t1";
	spec.uid_base++;
	assert_int_equal(
		engine_adopt(test.engine, &spec, &mark, &ops, &again, &again.instance, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	spec.uid_base--;

	assert_int_equal(
		engine_adopt(test.engine, &spec, &mark, &ops, &again, &again.instance, &err), 0);
	expect(&again, "hostname", "first");
	stop(&again);
	assert_int_equal(
		engine_adopt(test.engine, &spec, &mark, &ops, &again, &again.instance, &err), -1);
}

static void test_ns_sweep_ends_what_nobody_owns(void **state)
{
	struct seen seen;
	struct err err = ERR_INIT;
	json_t *left;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	instance_free(seen.instance);
	left = engine_leftovers(test.engine);
	assert_int_equal(json_array_size(left), 1);
	assert_string_equal(json_string_value(json_array_get(left, 0)), "t1");
	json_decref(left);
	assert_int_equal(engine_sweep(test.engine, "t1", &err), 0);
	expect_no_leftovers();
	assert_int_equal(engine_sweep(test.engine, "t1", &err), 0);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		continue;
}

/* The pid of the child of ours that carries this name. */
static pid_t child_named(const char *name)
{
	_cleanup_free_ char *list = NULL;
	char path[64];

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	if (file_read(AT_FDCWD, path, 65536, &list, NULL, NULL) < 0)
		return 0;
	for (char *at = list; *at;) {
		_cleanup_free_ char *comm = NULL;
		long pid = strtol(at, &at, 10);

		at += *at == ' ';
		snprintf(path, sizeof path, "/proc/%ld/comm", pid);
		if (file_read(AT_FDCWD, path, 64, &comm, NULL, NULL) == 0 &&
			!strncmp(comm, name, strlen(name)))
			return (pid_t)pid;
	}
	return 0;
}

static pid_t find_spawner(void)
{
	pid_t pid = 0;

	for (int tries = 0; !pid && tries < 200; tries++) {
		pid = child_named("box-spawner"); /* it names itself after its birth */
		usleep(5000);
	}
	if (!pid) {
		print_message("the kernel does not list children: skipped\n");
		skip();
	}
	return pid;
}

static void test_ns_goes_on_when_the_spawner_is_lost(void **state)
{
	struct seen seen;
	pid_t spawner = find_spawner();

	(void)state;
	kill(spawner, SIGKILL);
	usleep(50000);
	start(PROFILE_STANDARD, &seen);
	assert_int_not_equal(child_named("box-spawner"), spawner);
	stop(&seen);
}

/* ---- layers, attached and detached ------------------------------------------------------------------ */

/* Mounts below our home that a process sees. */
static int layer_mounts(pid_t pid)
{
	_cleanup_free_ char *text = NULL;
	char path[96];
	int count = 0;

	snprintf(path, sizeof path, "/proc/%d/mountinfo", (int)pid);
	if (file_read(AT_FDCWD, path, 4 << 20, &text, NULL, NULL) < 0)
		return -1;
	snprintf(path, sizeof path, " %s", test.home);
	for (const char *at = text; (at = strstr(at, path)); at++)
		count++;
	return count;
}

static bool attaches(void)
{
	const char *way = getenv("BOX_NS_LAYERS");

	return way && !strcmp(way, "attached");
}

static void test_ns_layers_do_not_stay_attached(void **state)
{
	int idle = attaches() ? 1 : 0; /* what they are attached on */
	pid_t spawner = find_spawner();
	struct seen seen;
	json_t *checks = json_array();
	struct err err = ERR_INIT;

	(void)state;
	for (int i = 0; i < 3; i++) {
		start(PROFILE_NESTED, &seen);
		assert_int_equal(engine_probe(test.engine, checks, &err), 0);
		expect(&seen, "write /mine", "ok");
		stop(&seen);
	}
	json_decref(checks);
	for (int tries = 0; layer_mounts(spawner) != idle && tries < 1000; tries++)
		usleep(2000); /* the last ones are taken off after the answer */
	assert_int_equal(layer_mounts(spawner), idle);
	assert_int_equal(layer_mounts(getpid()), 0);
}

static void test_ns_probe_names_the_way_of_layers(void **state)
{
	json_t *checks = json_array(), *check;
	struct err err = ERR_INIT;
	size_t i;

	(void)state;
	assert_int_equal(engine_probe(test.engine, checks, &err), 0);
	json_array_foreach (checks, i, check)
		if (!strcmp(json_string_value(json_object_get(check, "name")), "overlay"))
			assert_non_null(strstr(json_string_value(json_object_get(check, "detail")),
				attaches() ? "attached" : "detached"));
	json_decref(checks);
}

/* In a process of its own: starts a box, tells its mark and is killed before anything else. */
static _Noreturn void live_shortly(int mark_fd)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct engine_config config = test.config;
	struct seen seen = { 0 };
	struct engine *engine;

	config.loop = loop_new();
	if (engine_open(&engine_ns, &config, &engine, NULL) < 0 ||
		engine_start(engine, &spec, &ops, &seen, &seen.instance, NULL) < 0 ||
		write(mark_fd, instance_get_mark(seen.instance), sizeof(struct instance_mark)) < 0)
		_exit(1);
	raise(SIGKILL);
	_exit(1);
}

static void test_ns_box_of_a_killed_daemon_is_adopted(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct instance_mark mark;
	struct seen seen = { 0 };
	struct err err = ERR_INIT;
	int pair[2], status;
	pid_t daemon;

	(void)state;
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	daemon = fork();
	assert_true(daemon >= 0);
	if (daemon == 0)
		live_shortly(pair[1]);
	close(pair[1]);
	assert_int_equal(read(pair[0], &mark, sizeof mark), sizeof mark);
	close(pair[0]);
	assert_int_equal(waitpid(daemon, &status, 0), daemon);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(layer_mounts(getpid()), 0);
	if (engine_adopt(test.engine, &spec, &mark, &ops, &seen, &seen.instance, &err) < 0)
		fail_msg("adopt: %s", err.message);
	expect(&seen, "hostname", "first");
	expect(&seen, "write /mine", "ok");
	stop(&seen);
	assert_int_equal(seen.end, INSTANCE_END_KILLED);
}

static void test_ns_hostname_can_change(void **state)
{
	struct seen seen;
	struct err err = ERR_INIT;
	char before[65] = "", after[65] = "";

	(void)state;
	gethostname(before, sizeof before);
	start(PROFILE_STANDARD, &seen);
	assert_int_equal(instance_set_hostname(seen.instance, "second", &err), 0);
	expect(&seen, "hostname", "second");
	gethostname(after, sizeof after);
	assert_string_equal(before, after);
	stop(&seen);
}

/* ---- limits -------------------------------------------------------------------------------------------------- */

static bool can_limit(const char *name)
{
	json_t *facts = engine_describe(test.engine);
	json_t *limits = json_object_get(facts, "cgroup_limits");
	bool found = false;
	size_t i;
	json_t *item;

	json_array_foreach (limits, i, item)
		found = found || !strcmp(json_string_value(item), name);
	json_decref(facts);
	if (!found)
		print_message("no cgroup controller '%s' here: skipped\n", name);
	return found;
}

static void test_ns_memory_kill_is_told(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct instance_stats stats;
	struct seen seen;
	struct err err = ERR_INIT;

	(void)state;
	if (!can_limit("memory"))
		skip();
	spec.limits.memory_bytes = 64 << 20;
	start_spec(&spec, &seen);
	expect(&seen, "eat 16", "exit 0");
	expect(&seen, "eat 256", "signal 9");
	while (!seen.oom_kills)
		run_until_something();
	assert_int_equal(seen.oom_kills, 1);
	assert_int_equal(instance_stats(seen.instance, &stats, &err), 0);
	assert_int_equal(stats.oom_kills, 1);
	assert_true(stats.memory_peak_bytes > 16 << 20 && stats.memory_peak_bytes <= 64 << 20);
	stop(&seen);
	assert_int_equal(seen.end, INSTANCE_END_KILLED);

	start_spec(&spec, &seen);
	ask(&seen, "eat-self 256");
	while (!seen.ended)
		run_until_something();
	assert_int_equal(seen.end, INSTANCE_END_MEMORY);
	assert_string_equal(seen.detail, "memory limit of 64M reached");
	instance_free(seen.instance);
	expect_no_leftovers();
}

static void test_ns_pids_are_limited(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct seen seen;

	(void)state;
	if (!can_limit("pids"))
		skip();
	spec.limits.pids = 20;
	start_spec(&spec, &seen);
	expect(&seen, "forks 100", "exit 11");
	stop(&seen);
}

static void test_ns_cpu_is_limited_and_counted(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct instance_stats stats;
	struct seen seen;
	struct err err = ERR_INIT;

	(void)state;
	if (!can_limit("cpu"))
		skip();
	spec.limits.cpu_milli = 200;
	start_spec(&spec, &seen);
	expect(&seen, "spin 300", "exit 0");
	assert_int_equal(instance_stats(seen.instance, &stats, &err), 0);
	assert_true(stats.cpu_us > 30000);
	assert_true(stats.throttled_us > 0);
	stop(&seen);
}

/* ---- the machine ----------------------------------------------------------------------------------------------- */

static void test_ns_probe_agrees_that_boxes_run(void **state)
{
	struct err err = ERR_INIT;
	json_t *checks = json_array();
	size_t i;
	json_t *check;

	(void)state;
	if (engine_probe(test.engine, checks, &err) < 0)
		fail_msg("probe: %s", err.message);
	assert_true(json_array_size(checks) >= 8);
	json_array_foreach (checks, i, check) {
		assert_true(json_is_string(json_object_get(check, "name")));
		assert_true(json_is_boolean(json_object_get(check, "ok")));
		assert_true(json_is_string(json_object_get(check, "detail")));
		assert_true(json_is_string(json_object_get(check, "hint")));
		assert_true(json_is_boolean(json_object_get(check, "required")));
	}
	json_decref(checks);
	expect_no_leftovers();
}

static int count_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void test_ns_many_lives_leak_no_descriptor(void **state)
{
	struct seen seen;
	int before;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	stop(&seen);
	before = count_fds();
	for (int i = 0; i < 30; i++) {
		start(i % 2 ? PROFILE_NESTED : PROFILE_STANDARD, &seen);
		stop(&seen);
	}
	assert_int_equal(count_fds(), before);
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

/* A driver of its own for each test, so that one that failed cannot disturb the next. */
static int open_engine(void **state)
{
	static char name[64];
	struct err err = ERR_INIT;

	(void)state;
	tree_remove(AT_FDCWD, test.disk, NULL);
	if (mkdir(test.disk, 0755) < 0)
		return -1;
	snprintf(name, sizeof name, "boxyard-test-%d", (int)getpid());
	test.loop = loop_new();
	test.config = (struct engine_config){
		.loop = test.loop, .home = test.home, .run = test.dir, .name = name
	};
	if (engine_open(&engine_ns, &test.config, &test.engine, &err) < 0) {
		print_error("open: %s\n", err.message);
		return -1;
	}
	return 0;
}

static int close_engine(void **state)
{
	json_t *left = engine_leftovers(test.engine);
	size_t i;
	json_t *id;

	(void)state;
	json_array_foreach (left, i, id)
		engine_sweep(test.engine, json_string_value(id), NULL);
	json_decref(left);
	engine_close(test.engine);
	loop_free(test.loop);
	return 0;
}

static int open_attached(void **state)
{
	setenv("BOX_NS_LAYERS", "attached", 1);
	return open_engine(state);
}

static int open_detached(void **state)
{
	setenv("BOX_NS_LAYERS", "detached", 1);
	return open_engine(state);
}

static int close_either(void **state)
{
	unsetenv("BOX_NS_LAYERS");
	return close_engine(state);
}

static int make_home(void **state)
{
	static const char *const dirs[] = { "home", "rootfs", "rootfs/etc", "rootfs/var" };
	char path[160];
	const char *where = getenv("TMPDIR");

	(void)state;
	snprintf(test.dir, sizeof test.dir, "%s/box-test-ns-XXXXXX", where ? where : "/tmp");
	if (!mkdtemp(test.dir))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		snprintf(path, sizeof path, "%s/%s", test.dir, dirs[i]);
		mkdir(path, 0755);
	}
	snprintf(test.home, sizeof test.home, "%s/home", test.dir);
	snprintf(test.rootfs, sizeof test.rootfs, "%s/rootfs", test.dir);
	snprintf(test.disk, sizeof test.disk, "%s/disk", test.dir);
	return setenv("BOX_INIT", getenv("BOX_TEST_INIT"), 1);
}

static int remove_home(void **state)
{
	(void)state;
	return tree_remove(AT_FDCWD, test.dir, NULL);
}

#define NS_TEST(fn) cmocka_unit_test_setup_teardown(fn, open_engine, close_engine)
#define NS_TEST_BOTH_WAYS(fn)                                            \
	{ #fn " (attached)", fn, open_attached, close_either, NULL },    \
	{                                                                \
#fn " (detached)", fn, open_detached, close_either, NULL \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		NS_TEST(test_ns_has_namespaces_of_its_own),
		NS_TEST_BOTH_WAYS(test_ns_root_owns_its_disk_and_the_disk_holds_plain_ids),
		NS_TEST(test_ns_standard_cannot_reach_the_kernel),
		NS_TEST(test_ns_nested_can_make_namespaces_and_mounts),
		NS_TEST(test_ns_nested_owns_its_cgroup),
		NS_TEST(test_ns_socket_and_init_cannot_be_removed),
		NS_TEST(test_ns_starts_again_after_dev_was_removed),
		NS_TEST(test_ns_refuses_a_link_where_it_mounts),
		NS_TEST(test_ns_is_not_led_to_another_socket),
		NS_TEST(test_ns_end_is_told_with_its_reason),
		NS_TEST(test_ns_kill_during_start_fails_the_start),
		NS_TEST(test_ns_kill_before_ready_is_told_fails_the_start),
		NS_TEST_BOTH_WAYS(test_ns_missing_image_leaves_nothing),
		NS_TEST_BOTH_WAYS(test_ns_adopts_what_runs_and_nothing_else),
		NS_TEST_BOTH_WAYS(test_ns_box_of_a_killed_daemon_is_adopted),
		NS_TEST_BOTH_WAYS(test_ns_layers_do_not_stay_attached),
		NS_TEST_BOTH_WAYS(test_ns_probe_names_the_way_of_layers),
		NS_TEST(test_ns_sweep_ends_what_nobody_owns),
		NS_TEST_BOTH_WAYS(test_ns_goes_on_when_the_spawner_is_lost),
		NS_TEST(test_ns_hostname_can_change),
		NS_TEST(test_ns_memory_kill_is_told),
		NS_TEST(test_ns_pids_are_limited),
		NS_TEST(test_ns_cpu_is_limited_and_counted),
		NS_TEST(test_ns_probe_agrees_that_boxes_run),
		NS_TEST_BOTH_WAYS(test_ns_many_lives_leak_no_descriptor),
	};

	if (geteuid() != 0 || !getenv("BOX_TEST_INIT")) {
		printf("test_ns: needs root and BOX_TEST_INIT: skipped\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, make_home, remove_home);
}
