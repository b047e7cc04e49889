/* test_ns_guard.c - what all boxes and the machine have together: who loses when it runs short, and
 * how sockets are added up */
#include "ns_fixture.h"
#include "engine/ns/ns_internal.h"
#include "sys/cgroup.h"

enum { PIDS_MAX = 64 };

/* Of the process of the box that has most of them. */
static uint64_t most_files(struct seen *seen)
{
	struct ns_instance *instance = ns_instance_of(seen->instance);
	pid_t pids[PIDS_MAX];
	size_t count = cgroup_pids_below(
		ns_engine_of(test.engine)->cgroups, instance->group, pids, PIDS_MAX);
	uint64_t most = 0;

	for (size_t i = 0; i < MIN(count, (size_t)PIDS_MAX); i++)
		most = MAX(most, guard_count_fds(pids[i]));
	return most;
}

static void wait_for_less(struct seen *seen, uint64_t files)
{
	for (int64_t end = clock_mono_us() + PATIENCE_MS * 1000LL; most_files(seen) >= files;) {
		assert_true(clock_mono_us() < end);
		usleep(1000);
	}
}

static void test_guard_takes_files_from_the_greediest(void **state)
{
	struct ns_engine *engine = ns_engine_of(test.engine);
	struct instance_spec second = spec_of(PROFILE_STANDARD);
	struct seen greedy, other;
	char disk[96];

	(void)state;
	start(PROFILE_STANDARD, &greedy);
	snprintf(disk, sizeof disk, "%s/disk-2", test.dir);
	assert_int_equal(mkdir(disk, 0755), 0);
	second.id = "t2";
	second.disk = disk;
	second.uid_base += 65536;
	start_spec(&second, &other);
	expect(&greedy, "files 100", "ok");
	expect(&greedy, "files 300", "ok");
	expect(&other, "files 200", "ok");
	/* Nobody has more than is fair. */
	guard_take_back(engine, "open files", 1000, guard_count_fds);
	assert_true(most_files(&greedy) >= 300 && most_files(&other) >= 200);
	/* The largest of the box with the most; then the other box has the most. */
	guard_take_back(engine, "open files", 150, guard_count_fds);
	wait_for_less(&greedy, 200);
	assert_true(most_files(&greedy) >= 100 && most_files(&other) >= 200);
	guard_take_back(engine, "open files", 150, guard_count_fds);
	wait_for_less(&other, 100);
	assert_true(most_files(&greedy) >= 100);
	/* Below what is fair again. */
	guard_take_back(engine, "open files", 150, guard_count_fds);
	assert_true(most_files(&greedy) >= 100);
	/* Who is left is box-init, and stays. */
	assert_true(guard_kill_largest(ns_instance_of(greedy.instance), guard_count_fds));
	wait_for_less(&greedy, 100);
	expect(&greedy, "hostname", "first");
	expect(&other, "hostname", "first");
	assert_int_equal(instance_kill(other.instance, NULL), 0);
	while (!other.ended)
		run_until_something();
	instance_free(other.instance);
	stop(&greedy);
}

static void test_guard_counts_open_files(void **state)
{
	uint64_t before = guard_count_fds(getpid());
	int fds[50];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = dup(0);
	assert_int_equal(guard_count_fds(getpid()), before + ARRAY_LEN(fds));
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
	assert_int_equal(guard_count_fds(0), 0);
}

static void test_guard_knows_when_little_is_left(void **state)
{
	(void)state;
	assert_false(guard_is_scarce(0, 1000));
	assert_false(guard_is_scarce(750, 1000));
	assert_true(guard_is_scarce(751, 1000));
	assert_true(guard_is_scarce(UINT64_MAX, 1000));
	assert_false(guard_is_scarce(UINT64_MAX, 0));
	/* As large as the kernel lets it be. */
	assert_false(guard_is_scarce(100000, INT64_MAX));
}

static void test_sockets_are_added_up(void **state)
{
	static const char netlink[] =
		"sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    "
		"Drops    Inode\n"
		"0000000000000000 0   1          00000000 1000     7        0     2        0       "
		" 17\n"
		"0000000000000000 15  4294963001 00000001 212992   0        0     2        9       "
		" 18\n";
	static const char raw[] =
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid "
		" timeout inode\n"
		"  17: 00000000:0011 00000000:0000 07 00000010:00034000 00:00000000 00000000     0 "
		"       0 1 2 0 0\n"
		"   1: 00000000:0001 00000000:0000 07 00000000:000000FF 00:00000000 00000000     0 "
		"       0 1 2 0 0\n";

	(void)state;
	assert_int_equal(sockets_add_up(netlink, 4, false), 1000 + 212992);
	assert_int_equal(sockets_add_up(raw, 4, true), 0x10 + 0x34000 + 0xff);
	/* Empty, no more than the names, cut off, shorter than it should be. */
	assert_int_equal(sockets_add_up("", 4, false), 0);
	assert_int_equal(sockets_add_up("sk Eth\n", 4, false), 0);
	assert_int_equal(sockets_add_up("sk Eth", 4, true), 0);
	assert_int_equal(sockets_add_up("sk\n0 1 2 3 44", 4, false), 44);
	assert_int_equal(sockets_add_up("sk\n0 1\n5 1 2 3 44\n", 4, false), 44);
	assert_int_equal(sockets_add_up("sl\n0 1\n5:5 1 2 3 2:2\n", 4, true), 4);
	assert_int_equal(sockets_add_up("sl\n0 1 2 3 44\n", 4, true), 0);
	assert_int_equal(sockets_add_up("sl\n\n\n", 4, true), 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_guard_counts_open_files),
		cmocka_unit_test(test_guard_knows_when_little_is_left),
		cmocka_unit_test(test_sockets_are_added_up),
		NS_TEST(test_guard_takes_files_from_the_greediest),
	};

	return cmocka_run_group_tests(tests, make_home, remove_home);
}

int main(void)
{
	return run_ns_tests("test_ns_guard", run);
}
