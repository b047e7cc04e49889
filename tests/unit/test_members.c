/* test_members.c - QEMU processes that wait: taken, made again, ended, swept */
#include "qemu_fixture.h"
#include "engine/vm/members.h"
#include "engine/vm/ram.h"
#include "net/doors.h"
#include "sys/netns.h"
#include <dirent.h>
#include <net/if.h>

static struct {
	struct members *members;
	struct groups *groups;
	char run[96];
	char *preload; /* NULL: without */
	struct doors_plan *doors;
} world;

struct taker {
	struct members_take *take;
	struct member member;
	struct err err;
	bool done;
	struct seen seen;
};

static void on_taken(const struct member *member, const struct err *err, void *arg)
{
	struct taker *taker = arg;

	taker->take = NULL;
	if (member) {
		taker->member = *member;
		taker->seen.qemu = member->qemu;
		taker->seen.ready = true;
		qemu_set_ops(member->qemu, &seen_ops, &taker->seen);
	} else {
		taker->err = *err;
	}
	taker->done = true;
	loop_stop(test.loop);
}

static void open_members(unsigned count)
{
	struct members_config config = {
		.loop = test.loop,
		.run = world.run,
		.count = count,
		.preload = world.preload,
		.doors = world.doors,
		.groups = world.groups,
	};
	struct err err = ERR_INIT;

	if (members_open(&config, &world.members, &err) < 0)
		fail_msg("%s", err.message);
}

static void take(struct taker *taker, const struct qemu_machine *machine)
{
	*taker = (struct taker){ 0 };
	members_take(world.members, machine, on_taken, taker, &taker->take);
}

static void expect_taken(struct taker *taker)
{
	await(&taker->done);
	if (taker->err.kind)
		fail_msg("%s", taker->err.message);
	assert_int_equal(status_of(&taker->seen), QEMU_WAITS);
}

static void end(struct taker *taker)
{
	_cleanup_free_ char *dir = xstrdup(qemu_get_dir(taker->seen.qemu));

	finish(&taker->seen);
	qemu_remove_dir(dir);
}

static void await_ready(unsigned count)
{
	int64_t until = clock_mono_us() + PATIENCE_MS * INT64_C(1000);

	while (members_ready(world.members, &small_machine) != count) {
		if (clock_mono_us() > until)
			fail_msg("%u are ready, not %u",
				members_ready(world.members, &small_machine), count);
		pause_ms(5);
	}
}

static unsigned count_folders(void)
{
	DIR *dir = opendir(world.run);
	struct dirent *entry;
	unsigned count = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

static int set_up(void **state)
{
	struct groups_config config = { .name = "boxyard-test-members" };

	if (setup(state) < 0)
		return -1;
	snprintf(world.run, sizeof world.run, "%s/vm", test.dir);
	return geteuid() == 0 ? groups_open(&config, &world.groups, NULL) : 0;
}

static int tear_down(void **state)
{
	members_close(world.members);
	world.members = NULL;
	groups_close(world.groups);
	world.groups = NULL;
	if (world.doors)
		doors_plan_free(world.doors);
	world.doors = NULL;
	free(world.preload);
	world.preload = NULL;
	return teardown(state);
}

/* ---- promises ------------------------------------------------------------------------------- */

static void test_taken_ones_are_made_again(void **state)
{
	struct taker taker;

	(void)state;
	need_qemu();
	open_members(2);
	members_prepare(world.members, &small_machine);
	await_ready(2);
	take(&taker, &small_machine);
	expect_taken(&taker);
	await_ready(2);
	end(&taker);
	members_close(world.members);
	world.members = NULL;
	assert_int_equal(count_folders(), 0);
}

static void test_many_takers_get_one_each(void **state)
{
	enum { TAKERS = 4 };
	struct taker takers[TAKERS];

	(void)state;
	need_qemu();
	open_members(0);
	for (int i = 0; i < TAKERS; i++)
		take(&takers[i], &small_machine);
	for (int i = 0; i < TAKERS; i++)
		expect_taken(&takers[i]);
	for (int i = 0; i < TAKERS; i++)
		for (int j = 0; j < i; j++)
			assert_true(takers[i].member.qemu != takers[j].member.qemu);
	for (int i = 0; i < TAKERS; i++)
		end(&takers[i]);
	assert_int_equal(members_ready(world.members, &small_machine), 0);
}

static void test_taker_of_a_machine_that_cannot_be_is_told(void **state)
{
	struct qemu_machine machine = small_machine;
	struct taker taker;

	(void)state;
	need_qemu();
	open_members(1);
	machine.program = "/usr/bin/false";
	take(&taker, &machine);
	await(&taker.done);
	assert_int_equal(taker.err.kind, ERR_UNAVAILABLE);
	assert_int_equal(count_folders(), 0);
}

static void test_cancelled_take_is_not_called(void **state)
{
	struct taker taker, other;

	(void)state;
	need_qemu();
	open_members(0);
	take(&taker, &small_machine);
	take(&other, &small_machine);
	members_cancel(taker.take);
	expect_taken(&other);
	assert_false(taker.done);
	end(&other);
}

/* Of the only member there is. */
static pid_t pid_of_member(void)
{
	DIR *dir = opendir(world.run);
	_cleanup_free_ char *text = NULL;
	struct dirent *entry;
	char path[512];

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			break;
	assert_non_null(entry);
	snprintf(path, sizeof path, "%s/%s/mark", world.run, entry->d_name);
	closedir(dir);
	assert_int_equal(file_read(AT_FDCWD, path, 256, &text, NULL, NULL), 0);
	return atoi(text);
}

static void test_member_that_dies_is_replaced(void **state)
{
	(void)state;
	need_qemu();
	open_members(1);
	members_prepare(world.members, &small_machine);
	await_ready(1);
	assert_int_equal(kill(pid_of_member(), SIGKILL), 0);
	await_ready(0);
	await_ready(1);
	assert_int_equal(count_folders(), 1);
}

/* Leaves what a daemon that was killed leaves: folder, mark, process. */
static pid_t leave_member(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		test.loop = loop_new();
		open_members(1);
		members_prepare(world.members, &small_machine);
		await_ready(1);
		_exit(0); /* ends nothing */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(count_folders(), 1);
	return pid_of_member();
}

/* We are PID 1 here: what lost its parent is our child. */
static void expect_end_of(pid_t pid)
{
	int64_t until = clock_mono_us() + PATIENCE_MS * INT64_C(1000);
	int status;

	while (waitpid(pid, &status, WNOHANG) != pid) {
		if (clock_mono_us() > until)
			fail_msg("QEMU %d still runs", (int)pid);
		usleep(5000);
	}
}

static void test_leavings_of_a_dead_daemon_are_swept(void **state)
{
	pid_t pid;

	(void)state;
	need_qemu();
	pid = leave_member();
	assert_int_equal(kill(pid, 0), 0);
	open_members(0);
	assert_int_equal(count_folders(), 0);
	expect_end_of(pid);
}

static void with_preload(void)
{
	struct err err = ERR_INIT;

	if (ram_library_write(test.dir, &world.preload, &err) < 0)
		fail_msg("%s", err.message);
}

static void test_member_with_the_library_ends_with_its_daemon(void **state)
{
	(void)state;
	need_qemu();
	with_preload();
	expect_end_of(leave_member());
}

static void on_ram(const struct err *err, void *arg)
{
	on_verb(NULL, err, arg);
}

static void on_ram_lost(struct ram_link *link, const struct err *err, void *arg)
{
	(void)link;
	on_verb(NULL, err, arg);
}

static void test_taken_one_is_kept_only_when_told(void **state)
{
	struct taker kept, left;
	struct ram_link *link;

	(void)state;
	need_qemu();
	with_preload();
	open_members(0);
	take(&kept, &small_machine);
	take(&left, &small_machine);
	expect_taken(&kept);
	expect_taken(&left);
	link = ram_link_new(test.loop, kept.member.ram, qemu_get_mark(kept.seen.qemu).pid,
		small_machine.ram_bytes, on_ram_lost, &kept.seen);
	expect_done(ram_link_keep(link, on_ram, &kept.seen), &kept.seen);
	ram_link_free(link);
	close(left.member.ram);
	await(&left.seen.ended);
	qemu_remove_dir(qemu_get_dir(left.seen.qemu));
	qemu_free(left.seen.qemu);
	assert_int_equal(status_of(&kept.seen), QEMU_WAITS);
	end(&kept);
}

static int has_card(void *arg, struct err *err)
{
	(void)err;
	*(bool *)arg = if_nametoindex("eth0") != 0;
	return 0;
}

static void test_taken_one_runs_in_its_own_network(void **state)
{
	_cleanup_free_ char *path = NULL;
	struct stat ours, theirs;
	struct taker taker;
	struct err err = ERR_INIT;
	bool card = false;

	(void)state;
	need_qemu();
	if (doors_prepare(&world.doors, &err) < 0)
		fail_msg("%s", err.message);
	open_members(0);
	take(&taker, &small_machine);
	await(&taker.done);
	if (taker.err.kind == ERR_UNSUPPORTED) {
		print_message("SKIPPED: %s\n", taker.err.message);
		skip();
	}
	expect_taken(&taker);
	path = xasprintf("/proc/%d/ns/net", (int)qemu_get_mark(taker.seen.qemu).pid);
	assert_int_equal(stat(path, &theirs), 0);
	assert_int_equal(fstat(taker.member.netns, &ours), 0);
	assert_int_equal(ours.st_ino, theirs.st_ino);
	assert_int_equal(netns_call(taker.member.netns, has_card, &card, NULL), 0);
	assert_true(card);
	close(taker.member.netns);
	end(&taker);
}

static void test_taken_one_is_moved_into_its_group(void **state)
{
	static const struct cgroup_limits limits = { .memory_bytes = UINT64_C(300) << 20 };
	struct cgroup_tree *tree = groups_get_cgroups(world.groups);
	struct taker taker;
	pid_t pid;
	int64_t from;

	(void)state;
	need_qemu();
	open_members(0);
	take(&taker, &small_machine);
	expect_taken(&taker);
	pid = qemu_get_mark(taker.seen.qemu).pid;
	assert_int_equal(cgroup_create(tree, "b1", &limits, NULL), 0);
	from = clock_mono_us();
	expect_done(qemu_move(taker.seen.qemu, tree, "b1", on_verb, &taker.seen), &taker.seen);
	print_message("moved in %.1f ms\n", (double)(clock_mono_us() - from) / 1000);
	assert_true(cgroup_holds(tree, "b1", pid));
	assert_false(cgroup_is_populated(tree, MEMBERS_GROUP));
	await_verb(qemu_move(taker.seen.qemu, tree, "none", on_verb, &taker.seen), &taker.seen);
	assert_int_equal(taker.seen.err.kind, ERR_NOT_FOUND);
	end(&taker);
	assert_int_equal(cgroup_remove(tree, "b1", NULL), 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
#define row(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		row(test_taken_ones_are_made_again),
		row(test_many_takers_get_one_each),
		row(test_taker_of_a_machine_that_cannot_be_is_told),
		row(test_cancelled_take_is_not_called),
		row(test_member_that_dies_is_replaced),
		row(test_leavings_of_a_dead_daemon_are_swept),
		row(test_member_with_the_library_ends_with_its_daemon),
		row(test_taken_one_is_kept_only_when_told),
		row(test_taken_one_runs_in_its_own_network),
		row(test_taken_one_is_moved_into_its_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_apart(run);
}
