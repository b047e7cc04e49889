/* test_pool_budget.c - disks that are counted together, and subvolumes in disks */
#include "pool_fixture.h"

enum { LIMIT = 40 };

static void open_counted(const char *mode)
{
	needs_loop();
	new_home();
	open_pool(mode);
	if (!pool_has_quota(test.pool)) {
		print_message("skipped: btrfs without quotas\n");
		skip();
	}
}

static uint64_t budget_used(const char *place, const char *id)
{
	uint64_t used = 0, limit;

	OK(pool_sync(test.pool, &err));
	OK(pool_budget_usage(test.pool, place, id, &used, &limit, &err));
	return used;
}

static void copy_same(const char *place, const char *id, const char *to_place, const char *to_id)
{
	OK(pool_disk_copy(test.pool, place, id, to_place, to_id, NULL, POOL_BUDGET_SAME, &err));
}

static void test_budget_holds_through_snapshots_and_going_back(void **state)
{
	int written = 0, answer = 0;

	(void)state;
	open_counted("loop");
	OK(pool_disk_make(test.pool, "boxes", "one", LIMIT * MIB, &err));
	/* Each turn: some data, a snapshot, the disk replaced by a copy of it. What was written
	 * before stays in use. */
	for (int i = 0; i < 8 && !answer; i++) {
		char file[8], snapshot[8];

		snprintf(file, sizeof file, "f%d", i);
		snprintf(snapshot, sizeof snapshot, "s%d", i);
		answer = put("boxes", "one", file, 12 * MIB);
		written += answer ? 0 : 12;
		copy_same("boxes", "one", "snapshots", snapshot);
		OK(pool_disk_discard(test.pool, "boxes", "one", &err));
		copy_same("snapshots", snapshot, "boxes", "one");
		OK(pool_disk_limit(test.pool, "boxes", "one", LIMIT * MIB, &err));
		WAIT_FOR(pool_trash_is_empty(test.pool), 10000);
	}
	assert_int_equal(answer, EDQUOT);
	assert_in_range(written, 24, LIMIT);
	assert_in_range(budget_used("boxes", "one"), (uint64_t)written * MIB, LIMIT * MIB);
	/* When all of it goes, all of it can be used again. */
	for (int i = 0; i < 8; i++) {
		char snapshot[8];

		snprintf(snapshot, sizeof snapshot, "s%d", i);
		OK(pool_disk_discard(test.pool, "snapshots", snapshot, &err));
	}
	OK(pool_disk_discard(test.pool, "boxes", "one", &err));
	WAIT_FOR(pool_trash_is_empty(test.pool), 10000);
	OK(pool_disk_make(test.pool, "boxes", "one", LIMIT * MIB, &err));
	assert_int_equal(put("boxes", "one", "f", 30 * MIB), 0);
}

static void test_budget_is_one_for_copies_of_one_owner(void **state)
{
	(void)state;
	open_counted("loop");
	OK(pool_disk_make(test.pool, "boxes", "one", LIMIT * MIB, &err));
	copy_same("boxes", "one", "boxes", "two");
	copy_same("boxes", "two", "boxes", "three");
	assert_int_equal(put("boxes", "one", "f", 15 * MIB), 0);
	assert_int_equal(put("boxes", "two", "f", 15 * MIB), 0);
	assert_int_equal(put("boxes", "three", "f", 15 * MIB), EDQUOT);
	/* It is raised by any of them. */
	OK(pool_budget_limit(test.pool, "boxes", "two", 80 * MIB, &err));
	assert_int_equal(put("boxes", "three", "g", 15 * MIB), 0);
	assert_in_range(budget_used("boxes", "one"), 45 * MIB, 60 * MIB);
}

static void test_budget_of_somebody_elses_copy_begins_at_nothing(void **state)
{
	(void)state;
	open_counted("loop");
	OK(pool_disk_make(test.pool, "boxes", "one", LIMIT * MIB, &err));
	assert_int_equal(put("boxes", "one", "f", 30 * MIB), 0);
	OK(pool_disk_copy(test.pool, "boxes", "one", "boxes", "two", NULL, POOL_BUDGET_OWN, &err));
	OK(pool_budget_limit(test.pool, "boxes", "two", LIMIT * MIB, &err));
	assert_int_equal(put("boxes", "two", "g", 30 * MIB), 0);
	assert_int_equal(put("boxes", "two", "h", 30 * MIB), EDQUOT);
}

struct both {
	struct pool_figures one, two;
};

static void see(const char *place, const char *id, const struct pool_figures *figures, void *arg)
{
	struct both *both = arg;

	(void)place;
	*(strcmp(id, "one") ? &both->two : &both->one) = *figures;
}

static void test_budget_is_in_the_figures_of_all(void **state)
{
	struct both both = { 0 };

	(void)state;
	open_counted("loop");
	OK(pool_disk_make(test.pool, "boxes", "one", LIMIT * MIB, &err));
	copy_same("boxes", "one", "boxes", "two");
	assert_int_equal(put("boxes", "one", "f", 10 * MIB), 0);
	assert_int_equal(put("boxes", "two", "f", 10 * MIB), 0);
	OK(pool_sync(test.pool, &err));
	OK(pool_usage_each(test.pool, see, &both, &err));
	assert_int_equal(both.one.budget_limit, LIMIT * MIB);
	assert_in_range(both.one.used, 10 * MIB, 12 * MIB);
	assert_in_range(both.two.used, 10 * MIB, 12 * MIB);
	assert_in_range(both.one.budget_used, 20 * MIB, 23 * MIB);
	assert_int_equal(both.two.budget_used, both.one.budget_used);
}

static void test_budget_of_disks_that_are_gone_goes(void **state)
{
	char path[160], line[400];
	int count = -1;
	FILE *list;

	(void)state;
	open_counted("loop");
	for (int i = 0; i < 20; i++) {
		char id[16];

		snprintf(id, sizeof id, "box%d", i);
		OK(pool_disk_make(test.pool, "boxes", id, LIMIT * MIB, &err));
		OK(pool_disk_discard(test.pool, "boxes", id, &err));
	}
	WAIT_FOR(pool_trash_is_empty(test.pool), 15000);
	/* Groups of level 66 that this file system still has. */
	snprintf(path, sizeof path, "%s/pool", test.home);
	snprintf(line, sizeof line,
		"ls /sys/fs/btrfs/$(stat -f -c %%i %s >/dev/null; findmnt -n -o UUID -T "
		"%s)/qgroups | "
		"grep -c ^66_",
		path, path);
	list = popen(line, "r");
	assert_non_null(list);
	assert_int_equal(fscanf(list, "%d", &count), 1);
	pclose(list);
	assert_in_range(count, 0, 2); /* the last ones wait for the next sweep */
}

/* ---- subvolumes in disks -------------------------------------------------------------------- */

static void make_inner(const char *folder, const char *name, bool read_only)
{
	struct btrfs_ioctl_vol_args args = { 0 };
	uint64_t flags = BTRFS_SUBVOL_RDONLY;
	char path[512];
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;

	assert_true(dir >= 0);
	snprintf(args.name, sizeof args.name, "%s", name);
	assert_int_equal(ioctl(dir, BTRFS_IOC_SUBVOL_CREATE, &args), 0);
	close(dir);
	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (read_only)
		assert_int_equal(ioctl(fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags), 0);
	close(fd);
}

static void set_read_only(const char *path)
{
	uint64_t flags = BTRFS_SUBVOL_RDONLY;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(ioctl(fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags), 0);
	close(fd);
}

static void fill_with_inner(const char *place, const char *id)
{
	_cleanup_free_ char *disk = pool_disk_path(test.pool, place, id);
	char path[512];

	snprintf(path, sizeof path, "%s/a", disk);
	mkdir(path, 0755);
	strcat(path, "/b c");
	mkdir(path, 0755);
	make_inner(path, "deep", false);
	strcat(path, "/deep");
	for (int i = 0; i < 20; i++) {
		make_inner(path, "x", false);
		make_inner(path, "y", true);
		strcat(path, "/x");
	}
	set_read_only(path);
	snprintf(path, sizeof path, "%s/a/b c/deep/x", disk);
	set_read_only(path);
}

static void test_disk_with_subvolumes_in_it_is_removed_with_them(void **state)
{
	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	OK(pool_disk_make(test.pool, "volumes", "one", 0, &err));
	fill_with_inner("volumes", "one");
	OK(pool_disk_discard(test.pool, "volumes", "one", &err));
	WAIT_FOR(pool_trash_is_empty(test.pool), 30000);
	OK(pool_disk_make(test.pool, "boxes", "two", 0, &err));
	fill_with_inner("boxes", "two");
	OK(pool_disk_destroy_here(test.pool, "boxes", "two", &err));
	assert_false(pool_disk_exists(test.pool, "boxes", "two"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PROMISE(test_budget_holds_through_snapshots_and_going_back),
		PROMISE(test_budget_is_one_for_copies_of_one_owner),
		PROMISE(test_budget_of_somebody_elses_copy_begins_at_nothing),
		PROMISE(test_budget_is_in_the_figures_of_all),
		PROMISE(test_budget_of_disks_that_are_gone_goes),
		PROMISE(test_disk_with_subvolumes_in_it_is_removed_with_them),
	};

	if (geteuid() != 0) {
		print_message("skipped: the pool needs root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
