/* test_ns_preflight.c - what cannot be captured is named before it is tried
 *
 * A little box: PID 1 of a pid namespace of its own, in a group of its own, and a child that does
 * what the test is about. */
#include "engine/ns/ns_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "sys/clone.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <cmocka.h>

enum { PATIENCE_MS = 10000, CANNOT = 'n', READY = 'y' };

typedef bool (*act_fn)(void);

struct little {
	struct ns_engine engine; /* of which the look uses the groups alone */
	pid_t init;
	int pidfd;
	int group;
};

/* As in a box of the standard profile. */
static bool without_admin;

static int open_group(void **state)
{
	struct little *little = xnew(struct little);
	struct err err = ERR_INIT;
	char name[64];

	snprintf(name, sizeof name, "boxyard-test-preflight-%d", (int)getpid());
	little->pidfd = little->group = -1;
	if (cgroup_tree_open(name, &little->engine.cgroups, &err) < 0 ||
		cgroup_create(little->engine.cgroups, "b", &(struct cgroup_limits){ 0 }, &err) <
			0 ||
		cgroup_open_v2(little->engine.cgroups, "b", &little->group, &err) < 0) {
		print_error("%s\n", err.message);
		return -1;
	}
	*state = little;
	return 0;
}

/* PID 1 ends after everybody else in its pid namespace, children of ours included. */
static int close_group(void **state)
{
	struct little *little = *state;

	without_admin = false;
	cgroup_kill(little->engine.cgroups, "b", NULL);
	while (waitpid(-1, NULL, __WALL) > 0)
		continue;
	if (little->pidfd >= 0)
		close(little->pidfd);
	for (int i = 0; i < 1000 && cgroup_remove(little->engine.cgroups, "b", NULL) < 0; i++)
		usleep(2000);
	close(little->group);
	cgroup_tree_close(little->engine.cgroups);
	free(little);
	return 0;
}

static _Noreturn void be_child(act_fn act, int out)
{
	char word = CANNOT;

	prctl(PR_SET_NAME, "wor\nk\033er");
	if (act())
		word = READY;
	if (write(out, &word, 1) < 0)
		_exit(1);
	close(out);
	for (;;)
		pause();
}

/* Its first child is process 2. */
static _Noreturn void be_init(act_fn act, int count, int out)
{
	if (without_admin)
		prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN);
	for (int i = 0; i < count; i++)
		if (fork() == 0)
			be_child(act, out);
	close(out);
	for (;;)
		pause();
}

/* Skips when the machine cannot do it. */
static void begin(struct little *little, act_fn act, int count)
{
	struct clone_spec spec = { .namespaces = CLONE_NEWPID, .cgroup = little->group };
	struct err err = ERR_INIT;
	int pipes[2];

	if (little->group < 0) {
		print_message("SKIPPED: no cgroup v2 tree here\n");
		skip();
	}
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	little->init = clone_process(&spec, &little->pidfd, &err);
	if (little->init == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], 3);
		close_range(4, ~0u, 0);
		be_init(act, count, 3);
	}
	if (little->init < 0)
		fail_msg("%s", err.message);
	close(pipes[1]);
	for (int i = 0; i < count; i++) {
		struct pollfd poller = { .fd = pipes[0], .events = POLLIN };
		char word = CANNOT;

		assert_int_equal(poll(&poller, 1, PATIENCE_MS), 1);
		assert_int_equal(read(pipes[0], &word, 1), 1);
		if (word == READY)
			continue;
		close(pipes[0]);
		print_message("SKIPPED: this machine cannot do it\n");
		skip();
	}
	close(pipes[0]);
}

static void expect_fine(struct little *little)
{
	struct err err = ERR_INIT;

	if (ns_preflight(&little->engine, little->init, "b", &err) < 0)
		fail_msg("%s", err.message);
}

static void expect_refused(struct little *little, const char *message)
{
	struct err err = ERR_INIT;

	assert_int_equal(ns_preflight(&little->engine, little->init, "b", &err), -1);
	assert_int_equal(err.kind, ERR_STATE);
	assert_string_equal(err.message, message);
	assert_non_null(strstr(err.hint, "--disk-only"));
}

#define WHO  "process 2 (wor\\nk?er) "
#define TAIL ", which cannot be captured"

/* ---- what is fine --------------------------------------------------------------------------- */

static bool is_open(int fd)
{
	return fd >= 0;
}

static bool act_ordinary(void)
{
	sigset_t set;
	int pipes[2], terminal = posix_openpt(O_RDWR | O_NOCTTY);
	bool ok = true;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	ok = ok && is_open(eventfd(0, 0)) && is_open(epoll_create1(0)) && is_open(inotify_init());
	ok = ok && is_open(timerfd_create(CLOCK_MONOTONIC, 0)) && is_open(signalfd(-1, &set, 0));
	ok = ok && is_open((int)syscall(SYS_pidfd_open, getpid(), 0)) && pipe(pipes) == 0;
	ok = ok && is_open(socket(AF_INET, SOCK_STREAM, 0)) &&
	     is_open(socket(AF_INET6, SOCK_DGRAM, 0));
	ok = ok && is_open(socket(AF_NETLINK, SOCK_RAW, 0)) &&
	     socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pipes) == 0;
	ok = ok && is_open(memfd_create("m", 0)) && is_open(open("/dev/null", O_RDWR));
	ok = ok && is_open(open("/proc/self/ns/net", O_RDONLY)) && is_open(terminal);
	if (fork() == 0)
		_exit(0); /* a zombie */
	return ok;
}

static void test_ns_preflight_lets_ordinary_processes_pass(void **state)
{
	begin(*state, act_ordinary, 3);
	expect_fine(*state);
}

static void test_ns_preflight_of_an_ended_box(void **state)
{
	struct little *little = *state;
	struct pollfd poller;

	begin(little, act_ordinary, 1);
	poller = (struct pollfd){ .fd = little->pidfd, .events = POLLIN };
	cgroup_kill(little->engine.cgroups, "b", NULL);
	poll(&poller, 1, PATIENCE_MS);
	expect_fine(little);
}

/* ---- files ---------------------------------------------------------------------------------- */

static bool act_io_uring(void)
{
	char params[120] = { 0 };

	return is_open((int)syscall(SYS_io_uring_setup, 4, params));
}

static bool act_userfaultfd(void)
{
	return is_open((int)syscall(SYS_userfaultfd, 1));
}

static bool act_secret(void)
{
	return is_open((int)syscall(SYS_memfd_secret, 0));
}

static bool act_fscontext(void)
{
	return is_open((int)syscall(SYS_fsopen, "tmpfs", 0));
}

static bool act_landlock(void)
{
	uint64_t rules = 1;

	return is_open((int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0));
}

static bool act_mptcp(void)
{
	return is_open(socket(AF_INET, SOCK_STREAM, 262));
}

static bool act_vsock(void)
{
	return is_open(socket(AF_VSOCK, SOCK_STREAM, 0));
}

static bool act_device(void)
{
	return is_open(open("/dev/fuse", O_RDWR));
}

static bool act_thread_pidfd(void)
{
	return is_open((int)syscall(SYS_pidfd_open, getpid(), O_EXCL));
}

static bool act_space_file(void)
{
	int before = open("/proc/self/ns/net", O_RDONLY), other;

	if (unshare(CLONE_NEWNET) < 0)
		return false;
	other = open("/proc/self/ns/net", O_RDONLY);
	return is_open(other) && setns(before, CLONE_NEWNET) == 0;
}

#define REFUSED(name, act, why)                                    \
	static void test_ns_preflight_refuses_##name(void **state) \
	{                                                          \
		begin(*state, act, 1);                             \
		expect_refused(*state, WHO why TAIL);              \
	}
REFUSED(io_uring, act_io_uring, "uses io_uring")
REFUSED(userfaultfd, act_userfaultfd, "handles page faults of its own (userfaultfd)")
REFUSED(secret_memory, act_secret, "has secret memory (memfd_secret)")
REFUSED(half_a_mount, act_fscontext, "is about to mount a file system")
REFUSED(landlock_rules, act_landlock, "has a set of Landlock rules open")
REFUSED(vsock, act_vsock, "has a socket of the kind AF_VSOCK open")
REFUSED(devices, act_device, "has the device /dev/fuse open")
REFUSED(pidfd_of_a_thread, act_thread_pidfd, "watches a single thread (pidfd)")
REFUSED(open_namespaces, act_space_file, "holds another network namespace open")

static void test_ns_preflight_tells_go_programs_the_way_out(void **state)
{
	struct little *little = *state;
	struct err err = ERR_INIT;

	begin(little, act_mptcp, 1);
	expect_refused(little, WHO "has a socket of the kind MPTCP open" TAIL);
	ns_preflight(&little->engine, little->init, "b", &err);
	assert_non_null(strstr(err.hint, "GODEBUG=multipathtcp=0"));
}

/* ---- namespaces ----------------------------------------------------------------------------- */

#define SPACE(name, flag, why)             \
	static bool act_space_##name(void) \
	{                                  \
		return unshare(flag) == 0; \
	}                                  \
	REFUSED(name##_namespace, act_space_##name, "has a " why " namespace of its own")
SPACE(user, CLONE_NEWUSER, "user")
SPACE(net, CLONE_NEWNET, "network")

static void test_ns_preflight_refuses_user_namespace_in_a_standard_box(void **state)
{
	without_admin = true;
	begin(*state, act_space_user, 1);
	expect_refused(*state, WHO "has a user namespace of its own" TAIL);
}

SPACE(mnt, CLONE_NEWNS, "mount")
SPACE(ipc, CLONE_NEWIPC, "ipc")
SPACE(uts, CLONE_NEWUTS, "host name")
SPACE(cgroup, CLONE_NEWCGROUP, "cgroup")

/* The child of its child; the box knows it as 3. */
static bool act_space_pid(void)
{
	if (unshare(CLONE_NEWPID) < 0)
		return false;
	if (fork() == 0)
		for (;;)
			pause();
	return true;
}

static void test_ns_preflight_refuses_pid_namespace(void **state)
{
	begin(*state, act_space_pid, 1);
	expect_refused(*state, "process 3 (wor\\nk?er) has a pid namespace of its own" TAIL);
}

static void *unshare_net(void *arg)
{
	*(int *)arg = unshare(CLONE_NEWNET) == 0;
	for (;;)
		pause();
	return NULL;
}

static bool act_thread_space(void)
{
	volatile int done = -1;
	pthread_t thread;

	if (pthread_create(&thread, NULL, unshare_net, (void *)&done) != 0)
		return false;
	while (done < 0)
		usleep(500);
	return done == 1;
}
REFUSED(network_namespace_of_a_thread, act_thread_space,
	"has a thread with a network namespace of its own")

/* ---- who belongs to whom -------------------------------------------------------------------- */

/* Process 2 traces 3. */
static bool act_trace(void)
{
	pid_t child = fork();

	if (child == 0)
		for (;;)
			pause();
	return ptrace(PTRACE_SEIZE, child, NULL, NULL) == 0;
}

static void test_ns_preflight_refuses_traced_processes(void **state)
{
	begin(*state, act_trace, 1);
	expect_refused(*state, "process 3 (wor\\nk?er) is traced by process 2 (wor\\nk?er)" TAIL);
}

static bool act_nothing(void)
{
	return true;
}

static void test_ns_preflight_refuses_a_tracer_outside(void **state)
{
	struct little *little = *state;

	begin(little, act_nothing, 1);
	assert_int_equal(ptrace(PTRACE_SEIZE, little->init, NULL, NULL), 0);
	expect_refused(
		little, "process 1 (test_ns_preflig) is traced by a process outside the box" TAIL);
	assert_int_equal(ptrace(PTRACE_INTERRUPT, little->init, NULL, NULL), 0);
	waitpid(little->init, NULL, __WALL);
	assert_int_equal(ptrace(PTRACE_DETACH, little->init, NULL, NULL), 0);
}

/* A child of ours in the group, in none of the box's namespaces but by chance in all that are
 * looked at. */
static void test_ns_preflight_refuses_who_came_from_outside(void **state)
{
	struct little *little = *state;
	struct clone_spec spec = { .cgroup = little->group };
	struct err err = ERR_INIT;
	_cleanup_close_ int home = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	int pidfd = -1;
	pid_t pid;

	begin(little, act_nothing, 1);
	assert_int_equal(setns(little->pidfd, CLONE_NEWPID), 0);
	pid = clone_process(&spec, &pidfd, &err);
	if (pid == 0) {
		close_range(3, ~0u, 0);
		prctl(PR_SET_NAME, "intruder");
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	assert_int_equal(setns(home, CLONE_NEWPID), 0);
	usleep(20000);
	expect_refused(little, "process 3 (intruder) was put into the box from outside" TAIL);
	close(pidfd);
}

static bool act_vfork(void)
{
	volatile int *there = mmap(
		NULL, sizeof *there, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (there == MAP_FAILED)
		return false;
	if (fork() == 0 && vfork() == 0) {
		*there = 1;
		syscall(SYS_pause);
	}
	while (!*there)
		usleep(1000);
	usleep(400000); /* the one that waits for it has got there, on a busy machine too */
	return true;
}

static void test_ns_preflight_says_that_a_vfork_passes(void **state)
{
	struct little *little = *state;
	struct err err = ERR_INIT;

	begin(little, act_vfork, 1);
	assert_int_equal(ns_preflight(&little->engine, little->init, "b", &err), -1);
	assert_string_equal(err.message, "process 3 (wor\\nk?er) is about to start a program" TAIL);
	assert_int_equal(err.errno_value, EAGAIN);
	/* Also when everything stands still. */
	assert_int_equal(cgroup_freeze(little->engine.cgroups, "b", true, &err), 0);
	assert_int_equal(ns_preflight(&little->engine, little->init, "b", &err), -1);
	assert_int_equal(err.errno_value, EAGAIN);
	assert_int_equal(cgroup_freeze(little->engine.cgroups, "b", false, &err), 0);
}

static bool act_vfork_often(void)
{
	if (fork() == 0)
		for (;;) {
			pid_t pid = vfork();

			if (pid == 0) {
				execl("/bin/true", "true", (char *)NULL);
				_exit(1);
			}
			waitpid(pid, NULL, 0);
		}
	return true;
}

static bool is_frozen(struct little *little)
{
	_cleanup_free_ char *text = NULL;

	assert_int_equal(file_read(little->group, "cgroup.events", 4096, &text, NULL, NULL), 0);
	return strstr(text, "frozen 1") != NULL;
}

static void test_ns_hold_waits_for_the_right_moment(void **state)
{
	struct little *little = *state;
	unsigned missed = 0;

	begin(little, act_vfork_often, 2);
	for (int i = 0; i < 20; i++) {
		struct err err = ERR_INIT;

		/* On a loaded machine the moment may not come in time; mostly it does. */
		if (ns_hold(&little->engine, little->init, "b", false, &err) < 0 ||
			ns_preflight(&little->engine, little->init, "b", &err) < 0)
			missed++;
		else
			assert_true(is_frozen(little));
		assert_int_equal(cgroup_freeze(little->engine.cgroups, "b", false, &err), 0);
		usleep(1000);
	}
	assert_true(missed <= 6);
}

static void test_ns_hold_gives_up_and_leaves_the_box_as_it_was(void **state)
{
	struct little *little = *state;
	struct err err = ERR_INIT;

	begin(little, act_vfork, 1);
	assert_int_equal(ns_hold(&little->engine, little->init, "b", false, &err), -1);
	assert_int_equal(err.errno_value, EAGAIN);
	assert_false(is_frozen(little));
	assert_int_equal(cgroup_freeze(little->engine.cgroups, "b", true, &err), 0);
	assert_int_equal(ns_hold(&little->engine, little->init, "b", true, &err), -1);
	assert_true(is_frozen(little));
}

/* ---- groups in groups, figures -------------------------------------------------------------- */

static void test_ns_preflight_looks_into_groups_of_the_box(void **state)
{
	struct little *little = *state;
	pid_t pids[8];
	char path[64], text[16];
	int group;

	begin(little, act_io_uring, 1);
	assert_int_equal(cgroup_pids_below(little->engine.cgroups, "b", pids, 8), 2);
	group = openat(little->group, ".", O_RDONLY | O_DIRECTORY);
	assert_int_equal(mkdirat(group, "one", 0755), 0);
	assert_int_equal(mkdirat(group, "one/two", 0755), 0);
	snprintf(text, sizeof text, "%d", (int)MAX(pids[0], pids[1]));
	snprintf(path, sizeof path, "one/two/cgroup.procs");
	assert_int_equal(file_poke(group, path, text, NULL), 0);
	close(group);
	assert_int_equal(cgroup_pids(little->engine.cgroups, "b", pids, 8), 1);
	assert_int_equal(cgroup_pids_below(little->engine.cgroups, "b", pids, 8), 2);
	assert_int_equal(cgroup_pids_below(little->engine.cgroups, "b", pids, 1), 2);
	expect_refused(little, WHO "uses io_uring" TAIL);
}

static int64_t measure(struct little *little)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 20; i++) {
		int64_t from = clock_mono_us();

		expect_fine(little);
		best = MIN(best, clock_mono_us() - from);
	}
	return best;
}

static bool act_typical(void)
{
	return is_open(epoll_create1(0)) && is_open(eventfd(0, 0)) &&
	       is_open(socket(AF_INET, SOCK_STREAM, 0));
}

/* Bounds for a machine that is busy; the figures are printed. */
static void test_ns_preflight_is_quick(void **state)
{
	int64_t us;

	begin(*state, act_ordinary, 2);
	us = measure(*state);
	print_message("3 processes: %lld us\n", (long long)us);
	assert_true(us < 5000);
}

static void test_ns_preflight_is_quick_with_many(void **state)
{
	int64_t us;

	without_admin = true;
	begin(*state, act_typical, 99);
	us = measure(*state);
	print_message("100 processes: %lld us\n", (long long)us);
	assert_true(us < 50000);
}

#define LITTLE(fn) cmocka_unit_test_setup_teardown(fn, open_group, close_group)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		LITTLE(test_ns_preflight_lets_ordinary_processes_pass),
		LITTLE(test_ns_preflight_of_an_ended_box),
		LITTLE(test_ns_preflight_refuses_io_uring),
		LITTLE(test_ns_preflight_refuses_userfaultfd),
		LITTLE(test_ns_preflight_refuses_secret_memory),
		LITTLE(test_ns_preflight_refuses_half_a_mount),
		LITTLE(test_ns_preflight_refuses_landlock_rules),
		LITTLE(test_ns_preflight_refuses_vsock),
		LITTLE(test_ns_preflight_refuses_devices),
		LITTLE(test_ns_preflight_refuses_pidfd_of_a_thread),
		LITTLE(test_ns_preflight_refuses_open_namespaces),
		LITTLE(test_ns_preflight_tells_go_programs_the_way_out),
		LITTLE(test_ns_preflight_refuses_user_namespace),
		LITTLE(test_ns_preflight_refuses_user_namespace_in_a_standard_box),
		LITTLE(test_ns_preflight_refuses_net_namespace),
		LITTLE(test_ns_preflight_refuses_mnt_namespace),
		LITTLE(test_ns_preflight_refuses_ipc_namespace),
		LITTLE(test_ns_preflight_refuses_uts_namespace),
		LITTLE(test_ns_preflight_refuses_cgroup_namespace),
		LITTLE(test_ns_preflight_refuses_pid_namespace),
		LITTLE(test_ns_preflight_refuses_network_namespace_of_a_thread),
		LITTLE(test_ns_preflight_refuses_traced_processes),
		LITTLE(test_ns_preflight_refuses_a_tracer_outside),
		LITTLE(test_ns_preflight_refuses_who_came_from_outside),
		LITTLE(test_ns_preflight_says_that_a_vfork_passes),
		LITTLE(test_ns_hold_waits_for_the_right_moment),
		LITTLE(test_ns_hold_gives_up_and_leaves_the_box_as_it_was),
		LITTLE(test_ns_preflight_looks_into_groups_of_the_box),
		LITTLE(test_ns_preflight_is_quick),
		LITTLE(test_ns_preflight_is_quick_with_many),
	};

	if (geteuid() != 0) {
		printf("ns_preflight: needs root: skipped\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
