/* test_ns.c - what an instance of the ns driver is: its walls, its limits, what it can do to
 * itself */
#include "ns_fixture.h"

/* ---- isolation ------------------------------------------------------------------------------ */

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

/* ---- what a box can do to itself ------------------------------------------------------------ */

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
	stop(&seen);
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "write /dev/null", "ok");
	expect(&seen, "link /dev/ptmx", "pts/ptmx");
	stop(&seen);
}

static void test_ns_workspace_comes_back_unless_it_was_replaced(void **state)
{
	struct seen seen;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "stat /workspace", "dir 0:0 755");
	expect(&seen, "write /workspace/kept", "ok");
	stop(&seen);
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "read /workspace/kept", "x");
	expect(&seen, "unlink /workspace/kept", "ok");
	expect(&seen, "rmdir /workspace", "ok");
	expect(&seen, "stat /workspace", "ENOENT");
	stop(&seen);
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "stat /workspace", "dir 0:0 755");
	expect(&seen, "rmdir /workspace", "ok");
	expect(&seen, "symlink /workspace", "ok");
	stop(&seen);
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "link /workspace", "/tmp");
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
	/* Over another connection than the checked one: root of a nested box may unmount what it
	 * likes. */
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

/* ---- limits --------------------------------------------------------------------------------- */

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
	struct instance_stats stats;
	struct seen seen;
	struct err err = ERR_INIT;

	(void)state;
	if (!can_limit("pids"))
		skip();
	spec.limits.pids = 20;
	start_spec(&spec, &seen);
	assert_int_equal(instance_pids_refused(seen.instance), 0);
	expect(&seen, "forks 100", "exit 11");
	assert_true(instance_pids_refused(seen.instance) >= 1);
	assert_int_equal(instance_stats(seen.instance, &stats, &err), 0);
	assert_int_equal(stats.pids_refused, instance_pids_refused(seen.instance));
	stop(&seen);
}

static void test_ns_limits_change_and_are_lifted(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct limits limits = { .memory_bytes = 64 << 20, .pids = 20, .cpu_milli = 1000 };
	struct seen seen;
	struct err err = ERR_INIT;

	(void)state;
	if (!can_limit("memory") || !can_limit("pids") || !can_limit("cpu"))
		skip();
	spec.limits = limits;
	start_spec(&spec, &seen);
	limits.memory_bytes = 256 << 20;
	limits.pids = 0;
	assert_int_equal(instance_set_limits(seen.instance, &limits, &err), 0);
	expect(&seen, "eat 128", "exit 0");
	expect(&seen, "forks 100", "exit 0");
	limits = (struct limits){ 0 };
	assert_int_equal(instance_set_limits(seen.instance, &limits, &err), 0);
	expect(&seen, "eat 300", "exit 0");
	limits = (struct limits){ .memory_bytes = 64 << 20, .pids = 150 };
	assert_int_equal(instance_set_limits(seen.instance, &limits, &err), 0);
	expect(&seen, "eat 128", "signal 9");
	expect(&seen, "forks 100", "exit 11");
	stop(&seen);
}

static void test_ns_memory_limit_below_what_is_used_is_refused(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct limits limits = { .memory_bytes = 32 << 20, .pids = 1 };
	struct instance_stats stats;
	struct seen seen;
	struct err err = ERR_INIT;

	(void)state;
	if (!can_limit("memory") || !can_limit("pids"))
		skip();
	start_spec(&spec, &seen);
	expect(&seen, "hold 100", "ok");
	do {
		usleep(5000);
		assert_int_equal(instance_stats(seen.instance, &stats, &err), 0);
	} while (stats.memory_bytes < 100 << 20);
	assert_int_equal(instance_set_limits(seen.instance, &limits, &err), -1);
	assert_int_equal(err.kind, ERR_STATE);
	assert_non_null(strstr(err.message, "limit of 32M"));
	/* Nothing of it counts, and nobody was killed for it. */
	expect(&seen, "eat 16", "exit 0");
	assert_int_equal(instance_stats(seen.instance, &stats, &err), 0);
	assert_int_equal(stats.oom_kills, 0);
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

/* ---- the machine ---------------------------------------------------------------------------- */

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

static int run(void)
{
	const struct CMUnitTest tests[] = {
		NS_TEST(test_ns_has_namespaces_of_its_own),
		NS_TEST_BOTH_WAYS(test_ns_root_owns_its_disk_and_the_disk_holds_plain_ids),
		NS_TEST(test_ns_standard_cannot_reach_the_kernel),
		NS_TEST(test_ns_nested_can_make_namespaces_and_mounts),
		NS_TEST(test_ns_nested_owns_its_cgroup),
		NS_TEST(test_ns_socket_and_init_cannot_be_removed),
		NS_TEST(test_ns_starts_again_after_dev_was_removed),
		NS_TEST(test_ns_workspace_comes_back_unless_it_was_replaced),
		NS_TEST(test_ns_refuses_a_link_where_it_mounts),
		NS_TEST(test_ns_is_not_led_to_another_socket),
		NS_TEST(test_ns_memory_kill_is_told),
		NS_TEST(test_ns_pids_are_limited),
		NS_TEST(test_ns_limits_change_and_are_lifted),
		NS_TEST(test_ns_memory_limit_below_what_is_used_is_refused),
		NS_TEST(test_ns_cpu_is_limited_and_counted),
		NS_TEST(test_ns_probe_agrees_that_boxes_run),
		NS_TEST_BOTH_WAYS(test_ns_many_lives_leak_no_descriptor),
	};

	return cmocka_run_group_tests(tests, make_home, remove_home);
}

int main(void)
{
	return run_ns_tests("test_ns", run);
}
