/* test_ns_guard.c - what all boxes and the machine have together: who loses when it runs short, and
 * how sockets are added up */
#include "ns_fixture.h"
#include "engine/ns/ns_internal.h"
#include "engine/ns/sockets.h"
#include "sys/cgroup.h"
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

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
	second.ns.uid_base += 65536;
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
	assert_int_equal(socket_tables_sum(netlink, 4, false), 1000 + 212992);
	assert_int_equal(socket_tables_sum(raw, 4, true), 0x10 + 0x34000 + 0xff);
	/* Empty, no more than the names, cut off, shorter than it should be. */
	assert_int_equal(socket_tables_sum("", 4, false), 0);
	assert_int_equal(socket_tables_sum("sk Eth\n", 4, false), 0);
	assert_int_equal(socket_tables_sum("sk Eth", 4, true), 0);
	assert_int_equal(socket_tables_sum("sk\n0 1 2 3 44", 4, false), 44);
	assert_int_equal(socket_tables_sum("sk\n0 1\n5 1 2 3 44\n", 4, false), 44);
	assert_int_equal(socket_tables_sum("sl\n0 1\n5:5 1 2 3 2:2\n", 4, true), 4);
	assert_int_equal(socket_tables_sum("sl\n0 1 2 3 44\n", 4, true), 0);
	assert_int_equal(socket_tables_sum("sl\n\n\n", 4, true), 0);
}

static void test_sockets_without_a_table_are_told_apart(void **state)
{
	static const char protocols[] =
		"protocol  size sockets  memory press maxhdr  slab module     cl co di\n"
		"UNIX-STREAM 1152     20      -1   NI       0   yes  kernel      y  n  n\n"
		"UNIX      1152      3      -1   NI       0   yes  kernel      y  n  n\n"
		"RAWv6     1344      1      -1   NI       0   yes  kernel      y  y  y\n"
		"RAW       1152      7      -1   NI       0   yes  kernel      y  y  y\n"
		"TCP       2304    900      72   no     192   yes  kernel      y  y  y\n"
		"NETLINK   1096      2      -1   NI       0   no   kernel      n  n  n\n";

	(void)state;
	assert_int_equal(socket_tables_untold(protocols, 1000), 1000 - 20 - 3 - 1 - 7 - 2);
	assert_int_equal(socket_tables_untold(protocols, 30), 0);
	assert_int_equal(socket_tables_untold("", 30), 30);
	assert_int_equal(socket_tables_untold("x\nRAW", 30), 30);
}

/* One raw-like queue that no table tells of: UDP, disconnected with a message in it. A copy of the
 * descriptor and a child with the same one count nothing more. */
static void test_sockets_are_asked_once_each(void **state)
{
	struct sockaddr_in self = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr nobody = { .sa_family = AF_UNSPEC };
	int to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0), copy;
	pid_t pids[2] = { getpid() };
	struct held before = socket_walk(pids, 1), held;
	socklen_t len = sizeof self;
	char text[3000] = "";

	(void)state;
	assert_int_equal(bind(to, (struct sockaddr *)&self, sizeof self), 0);
	assert_int_equal(getsockname(to, (struct sockaddr *)&self, &len), 0);
	assert_int_equal(sendto(from, text, sizeof text, 0, (struct sockaddr *)&self, len), 3000);
	assert_int_equal(connect(to, &nobody, sizeof nobody), 0);
	copy = dup(to);
	pids[1] = fork();
	if (pids[1] == 0) {
		pause();
		_exit(0);
	}
	held = socket_walk(pids, 2);
	kill(pids[1], SIGKILL);
	waitpid(pids[1], NULL, 0);
	close(to);
	close(from);
	close(copy);
	assert_int_equal(held.uncounted, before.uncounted);
	assert_in_range(held.counted - before.counted, 3000, 5999);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_guard_counts_open_files),
		cmocka_unit_test(test_guard_knows_when_little_is_left),
		cmocka_unit_test(test_sockets_are_added_up),
		cmocka_unit_test(test_sockets_without_a_table_are_told_apart),
		cmocka_unit_test(test_sockets_are_asked_once_each),
		NS_TEST(test_guard_takes_files_from_the_greediest),
	};

	return cmocka_run_group_tests(tests, make_home, remove_home);
}

int main(void)
{
	return run_ns_tests("test_ns_guard", run);
}
