/* test_ns_life.c - how an instance of the ns driver begins and ends, and what survives what */
#include "ns_fixture.h"

/* ---- life ----------------------------------------------------------------------------------- */

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
	spec.ns.layers = (const char *const[]){ "/nonexistent", NULL };
	assert_int_equal(engine_start(test.engine, &spec, &ops, &seen, &seen.instance, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_non_null(strstr(err.message, "image"));
	expect_no_leftovers();
}

/* A second driver on the same home, as the next daemon would open it. The first one's process stays
 * the parent, so the end comes to the second as to a stranger. */
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
	spec.ns.uid_base++;
	assert_int_equal(
		engine_adopt(test.engine, &spec, &mark, &ops, &again, &again.instance, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	spec.ns.uid_base--;

	assert_int_equal(
		engine_adopt(test.engine, &spec, &mark, &ops, &again, &again.instance, &err), 0);
	expect(&again, "hostname", "first");
	stop(&again);
	assert_int_equal(
		engine_adopt(test.engine, &spec, &mark, &ops, &again, &again.instance, &err), -1);
}

/* ---- frozen --------------------------------------------------------------------------------- */

static uint64_t cpu_used(struct seen *seen)
{
	struct instance_stats stats;
	struct err err = ERR_INIT;

	assert_int_equal(instance_stats(seen->instance, &stats, &err), 0);
	return stats.cpu_us;
}

static bool works(struct seen *seen)
{
	uint64_t before = cpu_used(seen);

	usleep(60000);
	return cpu_used(seen) > before;
}

static void set_frozen(struct seen *seen, bool frozen)
{
	struct err err = ERR_INIT;

	if (instance_freeze(seen->instance, frozen, &err) < 0)
		fail_msg("freeze: %s", err.message);
}

static void test_ns_frozen_box_stands_still(void **state)
{
	struct seen seen;
	struct err err = ERR_INIT;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "busy", "ok");
	assert_true(works(&seen));
	for (int i = 0; i < 3; i++) {
		set_frozen(&seen, true);
		set_frozen(&seen, true);
		assert_false(works(&seen));
		set_frozen(&seen, false);
		assert_true(works(&seen));
	}
	expect(&seen, "hostname", "first");
	kill(instance_get_mark(seen.instance)->pid, SIGKILL);
	while (!seen.ended)
		run_until_something();
	assert_int_equal(instance_freeze(seen.instance, true, &err), -1);
	assert_int_equal(err.kind, ERR_STATE);
	instance_free(seen.instance);
	expect_no_leftovers();
}

static void test_ns_frozen_box_can_be_killed_and_swept(void **state)
{
	struct seen seen;
	struct err err = ERR_INIT;

	(void)state;
	start(PROFILE_NESTED, &seen);
	expect(&seen, "busy", "ok");
	set_frozen(&seen, true);
	stop(&seen);
	start(PROFILE_STANDARD, &seen);
	set_frozen(&seen, true);
	instance_free(seen.instance);
	assert_int_equal(engine_sweep(test.engine, "t1", &err), 0);
	expect_no_leftovers();
	while (waitpid(-1, NULL, WNOHANG) > 0)
		continue;
}

static void test_ns_frozen_box_is_adopted(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct instance_mark mark;
	struct seen seen, again = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "busy", "ok");
	set_frozen(&seen, true);
	mark = *instance_get_mark(seen.instance);
	instance_free(seen.instance);
	assert_int_equal(
		engine_adopt(test.engine, &spec, &mark, &ops, &again, &again.instance, &err), 0);
	assert_false(works(&again));
	set_frozen(&again, false);
	assert_true(works(&again));
	expect(&again, "hostname", "first");
	set_frozen(&again, true);
	stop(&again);
	assert_int_equal(again.end, INSTANCE_END_KILLED);
}

static void test_ns_sweep_ends_what_nobody_owns(void **state)
{
	struct seen seen;
	struct err err = ERR_INIT;
	json_t *left;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	instance_free(seen.instance);
	left = groups_leftovers(test.config.groups);
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

/* ---- layers, attached and detached ---------------------------------------------------------- */

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

static int run(void)
{
	const struct CMUnitTest tests[] = {
		NS_TEST(test_ns_end_is_told_with_its_reason),
		NS_TEST(test_ns_kill_during_start_fails_the_start),
		NS_TEST(test_ns_kill_before_ready_is_told_fails_the_start),
		NS_TEST_BOTH_WAYS(test_ns_missing_image_leaves_nothing),
		NS_TEST_BOTH_WAYS(test_ns_adopts_what_runs_and_nothing_else),
		NS_TEST_BOTH_WAYS(test_ns_box_of_a_killed_daemon_is_adopted),
		NS_TEST_BOTH_WAYS(test_ns_layers_do_not_stay_attached),
		NS_TEST_BOTH_WAYS(test_ns_probe_names_the_way_of_layers),
		NS_TEST(test_ns_frozen_box_stands_still),
		NS_TEST(test_ns_frozen_box_can_be_killed_and_swept),
		NS_TEST(test_ns_frozen_box_is_adopted),
		NS_TEST(test_ns_sweep_ends_what_nobody_owns),
		NS_TEST_BOTH_WAYS(test_ns_goes_on_when_the_spawner_is_lost),
		NS_TEST(test_ns_hostname_can_change),
	};

	return cmocka_run_group_tests(tests, make_home, remove_home);
}

int main(void)
{
	return run_ns_tests("test_ns_life", run);
}
