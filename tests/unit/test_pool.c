/* test_pool.c - disks, quotas, kinds, restarts and growth, on real loop devices and real btrfs
 *
 * Needs root, loop devices, btrfs and mkfs.btrfs. What is missing is said and those tests are
 * skipped. */
#include "pool_fixture.h"

/* ---- disks ---------------------------------------------------------------------------------- */

static void check_disks(void)
{
	_cleanup_free_ char *path = pool_disk_path(test.pool, "boxes", "one");
	struct stat st;
	mode_t mask = umask(077);

	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	umask(mask);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	FAILS(ERR_EXISTS, pool_disk_make(test.pool, "boxes", "one", 0, &err));
	assert_int_equal(put("boxes", "one", "f", 1000), 0);
	OK(pool_disk_copy(
		test.pool, "boxes", "one", "layers", ".new-two", NULL, POOL_BUDGET_NONE, &err));
	FAILS(ERR_EXISTS, pool_disk_copy(test.pool, "boxes", "one", "layers", ".new-two", NULL,
				  POOL_BUDGET_NONE, &err));
	OK(pool_disk_rename(test.pool, "layers", ".new-two", "two", &err));
	assert_int_equal(put("layers", "two", "only-in-the-copy", 10), 0);
	assert_true(disk_has("layers", "two", "f"));
	assert_false(disk_has("boxes", "one", "only-in-the-copy"));
	FAILS(ERR_NOT_FOUND, pool_disk_copy(test.pool, "boxes", "no", "layers", "x", NULL,
				     POOL_BUDGET_NONE, &err));
	OK(pool_disk_discard(test.pool, "boxes", "one", &err));
	assert_false(pool_disk_exists(test.pool, "boxes", "one"));
	OK(pool_disk_discard(test.pool, "boxes", "one", &err));
	assert_true(pool_disk_exists(test.pool, "layers", "two"));
	OK(pool_disk_destroy_here(test.pool, "layers", "two", &err));
	assert_false(pool_disk_exists(test.pool, "layers", "two"));
	OK(pool_disk_make_here(test.pool, "volumes", "v", &err));
	OK(pool_disk_discard(test.pool, "volumes", "v", &err));
	assert_false(pool_trash_is_empty(test.pool));
	WAIT_FOR(pool_trash_is_empty(test.pool), 10000);
}

static void test_pool_disks_on_a_loop(void **state)
{
	(void)state;
	needs_loop();
	new_home();
	open_pool("auto");
	assert_int_equal(pool_get_kind(test.pool), POOL_LOOP);
	check_disks();
}

static void test_pool_disks_in_a_folder(void **state)
{
	(void)state;
	new_home();
	open_pool("folder");
	assert_int_equal(pool_get_kind(test.pool), POOL_FOLDER);
	assert_false(pool_has_quota(test.pool));
	check_disks();
	FAILS(ERR_UNSUPPORTED, pool_disk_make(test.pool, "boxes", "limited", MIB, &err));
}

static void test_pool_names_stay_in_their_place(void **state)
{
	static const char *const bad[] = { "", ".", "..", "a/b", "../boxes/x" };

	(void)state;
	new_home();
	open_pool("folder");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		FAILS(ERR_INVALID, pool_disk_make(test.pool, "boxes", bad[i], 0, &err));
		FAILS(ERR_INVALID, pool_disk_discard(test.pool, "boxes", bad[i], &err));
		assert_false(pool_disk_exists(test.pool, "boxes", bad[i]));
	}
	FAILS(ERR_INVALID, pool_disk_make(test.pool, "../..", "x", 0, &err));
}

static void test_pool_is_closed_to_others(void **state)
{
	_cleanup_free_ char *mounts = NULL;
	char *line;
	struct stat st;

	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	assert_int_equal(stat(pool_get_path(test.pool), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	OK(file_read(AT_FDCWD, "/proc/self/mountinfo", 1 << 20, &mounts, NULL, &err));
	line = strstr(mounts, pool_get_path(test.pool));
	assert_non_null(line);
	line[strcspn(line, "\n")] = '\0';
	assert_non_null(strstr(line, "nosuid,nodev,noexec,noatime"));
	assert_non_null(strstr(line, "discard=async"));
}

static void test_pool_spares_are_used_refilled_and_taken_over(void **state)
{
	struct pool_config config;
	json_int_t before;
	uint64_t used, limit;

	(void)state;
	needs_loop();
	new_home();
	config = config_of("loop");
	config.spares = 3;
	open_with(&config);
	WAIT_FOR(json_number("spares") == 3, 3000);
	OK(pool_disk_make(test.pool, "boxes", "one", 64 * MIB, &err));
	before = json_number("spares");
	assert_int_equal(before, 2);
	OK(pool_usage(test.pool, "boxes", "one", &used, &limit, &err));
	assert_int_equal(limit, 64 * MIB);
	FAILS(ERR_EXISTS, pool_disk_make(test.pool, "boxes", "one", 0, &err));
	assert_int_equal(json_number("spares"), 2); /* it was not lost over that */
	WAIT_FOR(json_number("spares") == 3, 3000);
	close_pool();
	open_with(&config);
	assert_int_equal(json_number("spares"), 3);
	close_pool();
	config.spares = 0;
	open_with(&config);
	assert_int_equal(json_number("spares"), 0);
	WAIT_FOR(pool_trash_is_empty(test.pool), 10000);
}

/* ---- quota ---------------------------------------------------------------------------------- */

struct seen {
	int count;
	uint64_t used, limit;
};

static void see(const char *place, const char *id, const struct pool_figures *figures, void *arg)
{
	struct seen *seen = arg;

	seen->count++;
	if (!strcmp(place, "boxes") && !strcmp(id, "one"))
		*seen = (struct seen){ seen->count, figures->used, figures->limit };
}

static void check_quota(void)
{
	struct seen seen = { 0 };
	uint64_t used, limit;

	OK(pool_disk_make(test.pool, "boxes", "one", 20 * MIB, &err));
	OK(pool_disk_make(test.pool, "volumes", "other", 0, &err));
	assert_int_equal(put("boxes", "one", "f", 8 * MIB), 0);
	OK(pool_usage(test.pool, "boxes", "one", &used, &limit, &err));
	assert_int_equal(limit, 20 * MIB);
	assert_in_range(used, 8 * MIB, 10 * MIB);
	assert_int_equal(put("boxes", "one", "f", 30 * MIB), EDQUOT);
	assert_int_equal(put("volumes", "other", "f", 30 * MIB), 0);
	/* Who hits a limit is in the figures of all at once: the event comes from them. */
	OK(pool_usage_each(test.pool, see, &seen, &err));
	assert_int_equal(seen.count, 2);
	assert_int_equal(seen.limit, 20 * MIB);
	assert_in_range(seen.used, 17 * MIB, 20 * MIB);
	OK(pool_disk_limit(test.pool, "boxes", "one", 60 * MIB, &err));
	OK(pool_budget_limit(test.pool, "boxes", "one", 0, &err));
	assert_int_equal(put("boxes", "one", "f", 10 * MIB), 0);
	OK(pool_disk_limit(test.pool, "boxes", "one", 0, &err));
	assert_int_equal(put("boxes", "one", "f", 60 * MIB), 0);
	OK(pool_usage(test.pool, "boxes", "one", &used, &limit, &err));
	assert_int_equal(limit, 0);
}

static void test_pool_quota_holds_a_disk(void **state)
{
	uint64_t used, limit;

	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	if (!pool_has_quota(test.pool)) {
		print_message("skipped: btrfs without quotas\n");
		skip();
	}
	check_quota();
	/* What a copy shares is not its own, and it has no limit until it gets one. */
	OK(pool_disk_limit(test.pool, "boxes", "one", 200 * MIB, &err));
	OK(pool_disk_copy(test.pool, "boxes", "one", "boxes", "two", NULL, POOL_BUDGET_OWN, &err));
	OK(pool_usage(test.pool, "boxes", "two", &used, &limit, &err));
	assert_int_equal(limit, 0);
	assert_in_range(used, 0, 4 * MIB);
	OK(pool_disk_limit(test.pool, "boxes", "two", 10 * MIB, &err));
	assert_int_equal(put("boxes", "two", "g", 20 * MIB), EDQUOT);
}

static void test_pool_a_full_disk_can_be_emptied(void **state)
{
	_cleanup_free_ char *path = NULL, *file = NULL;

	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	OK(pool_disk_make(test.pool, "boxes", "one", 16 * MIB, &err));
	assert_int_equal(put("boxes", "one", "f", 40 * MIB), EDQUOT);
	path = pool_disk_path(test.pool, "boxes", "one");
	file = xasprintf("%s/f", path);
	assert_int_equal(unlink(file), 0);
	OK(pool_sync(test.pool, &err));
	assert_int_equal(put("boxes", "one", "g", 8 * MIB), 0);
	OK(pool_disk_discard(test.pool, "boxes", "one", &err));
}

/* ---- native: a btrfs of this test's own as the host ----------------------------------------- */

static void mount_btrfs_host(bool full_quota)
{
	char image[128];

	snprintf(image, sizeof image, "%s/host%d.img", test.top, test.homes);
	new_home();
	shell("truncate -s 1G %s && mkfs.btrfs -q -f %s >/dev/null 2>&1 && mount -o loop %s %s",
		image, image, image, test.home);
	if (full_quota) {
		struct btrfs_ioctl_quota_ctl_args args = { .cmd = BTRFS_QUOTA_CTL_ENABLE };
		int fd = open(test.home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		assert_int_equal(ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args), 0);
		close(fd);
	}
}

static void test_pool_native_on_btrfs(void **state)
{
	struct stat st;
	char path[192];

	(void)state;
	needs_loop();
	mount_btrfs_host(false);
	open_pool("auto");
	assert_int_equal(pool_get_kind(test.pool), POOL_NATIVE);
	check_disks();
	check_quota();
	close_pool();
	open_pool("auto");
	assert_int_equal(pool_get_kind(test.pool), POOL_NATIVE);
	assert_true(disk_has("boxes", "one", "f"));
	OK(pool_destroy(test.pool, &err));
	test.pool = NULL;
	snprintf(path, sizeof path, "%s/pool", test.home);
	assert_int_equal(stat(path, &st), -1);
	unmount_host();
}

static void test_pool_uses_full_quotas_it_finds(void **state)
{
	json_t *json;

	(void)state;
	needs_loop();
	mount_btrfs_host(true);
	open_pool("native");
	json = pool_json(test.pool);
	assert_string_equal(json_string_value(json_object_get(json, "quota")), "full");
	json_decref(json);
	check_quota();
	OK(pool_destroy(test.pool, &err));
	test.pool = NULL;
	unmount_host();
}

/* ---- life: kinds, restarts, growth ---------------------------------------------------------- */

static void test_pool_keeps_its_kind(void **state)
{
	struct pool_config config;

	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	close_pool();
	config = config_of("folder");
	FAILS(ERR_STATE, pool_open(&config, &test.pool, &err));
	config = config_of("native");
	FAILS(ERR_STATE, pool_open(&config, &test.pool, &err));
	open_pool("auto");
	assert_int_equal(pool_get_kind(test.pool), POOL_LOOP);
	OK(pool_destroy(test.pool, &err));
	test.pool = NULL;

	open_pool("folder"); /* nothing is left of the other one */
	close_pool();
	open_pool("auto");
	assert_int_equal(pool_get_kind(test.pool), POOL_FOLDER);
	close_pool();
	config = config_of("loop");
	FAILS(ERR_STATE, pool_open(&config, &test.pool, &err));
	config = config_of("nonsense");
	FAILS(ERR_INVALID, pool_open(&config, &test.pool, &err));
	open_pool("auto");
}

static void test_pool_half_made_is_made_again(void **state)
{
	char path[192];
	struct stat st;

	(void)state;
	needs_loop();
	new_home();
	snprintf(path, sizeof path, "%s/pool.img.new", test.home);
	shell("truncate -s 512M %s", path);
	open_pool("auto");
	assert_int_equal(stat(path, &st), -1);
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
}

static void test_pool_garbage_is_told_and_left_alone(void **state)
{
	struct pool_config config;
	struct err why = ERR_INIT;
	char path[192];
	struct stat st;

	(void)state;
	needs_loop();
	new_home();
	snprintf(path, sizeof path, "%s/pool.img", test.home);
	shell("truncate -s 512M %s", path);
	config = config_of("auto");
	assert_int_equal(pool_open(&config, &test.pool, &why), -1);
	assert_non_null(strstr(why.message, "mount"));
	assert_true(*why.hint);
	assert_int_equal(stat(path, &st), 0);
	wait_unbound();
}

static void test_pool_lets_the_device_go(void **state)
{
	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	assert_int_equal(put("boxes", "one", "f", MIB), 0);
	assert_int_equal(bound_devices("pool.img"), 1);
	close_pool();
	wait_unbound();
	open_pool("loop");
	assert_true(disk_has("boxes", "one", "f"));
}

static void test_pool_finds_the_device_boxes_still_use(void **state)
{
	_cleanup_free_ char *path = NULL;
	struct stat before, after;
	int box;

	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	path = pool_disk_path(test.pool, "boxes", "one");
	box = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	assert_true(box >= 0);
	assert_int_equal(fstat(box, &before), 0);
	close_pool();
	assert_int_equal(bound_devices("pool.img"), 1);
	assert_int_equal(mkdirat(box, "written-without-a-daemon", 0755), 0);
	open_pool("auto");
	assert_int_equal(bound_devices("pool.img"), 1);
	assert_int_equal(stat(path, &after), 0);
	assert_true(before.st_dev == after.st_dev && before.st_ino == after.st_ino);
	assert_true(disk_has("boxes", "one", "written-without-a-daemon"));
	close(box);
}

static void test_pool_grows_while_in_use(void **state)
{
	struct pool_config config;

	(void)state;
	needs_loop();
	new_home();
	config = config_of("loop");
	config.size = 256 * MIB;
	open_with(&config);
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	assert_int_equal(put("boxes", "one", "f", 20 * MIB), 0);
	assert_int_equal(json_number("total_bytes"), 256 * MIB);
	grow(100 * MIB);
	assert_int_equal(grown, 1);
	assert_int_equal(json_number("total_bytes"), 356 * MIB);
	grow(0);
	assert_int_equal(grown, 1);
	assert_true(json_number("total_bytes") > (json_int_t)(356 * MIB));
	grow(UINT64_C(1) << 45);
	assert_int_equal(grown, -1);
	assert_int_equal(grow_err.kind, ERR_LIMIT);
	assert_int_equal(put("boxes", "one", "f", 300 * MIB), 0);
	grow(MIB);
	pool_grow(test.pool, MIB, on_grown, NULL);
	close_pool(); /* in the middle of it */
	open_pool("auto");
}

static void test_pool_finishes_growth_that_was_cut_short(void **state)
{
	char path[192];

	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	close_pool();
	wait_unbound();
	snprintf(path, sizeof path, "%s/pool.img", test.home);
	assert_int_equal(truncate(path, 700 * MIB), 0);
	open_pool("auto");
	assert_int_equal(json_number("total_bytes"), 700 * MIB);
	/* And with the device still bound at the old size. */
	assert_int_equal(truncate(path, 800 * MIB), 0);
	close_pool();
	open_pool("auto");
	assert_int_equal(json_number("total_bytes"), 800 * MIB);
}

static void test_pool_grows_by_itself_up_to_its_end(void **state)
{
	struct pool_config config;

	(void)state;
	needs_loop();
	new_home();
	config = config_of("loop");
	config.size = 256 * MIB;
	config.size_max = 400 * MIB;
	open_with(&config);
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	assert_int_equal(put("boxes", "one", "f", 190 * MIB), 0);
	WAIT_FOR(json_number("total_bytes") > (json_int_t)(256 * MIB), 5000);
	assert_int_equal(put("boxes", "one", "f", 400 * MIB), ENOSPC);
	WAIT_FOR(json_number("total_bytes") == (json_int_t)(400 * MIB), 15000);
	test.pool_full = 0;
	assert_int_equal(put("boxes", "one", "f", 400 * MIB), ENOSPC);
	WAIT_FOR(test.pool_full, 5000);
	assert_int_equal(json_number("total_bytes"), 400 * MIB);
	FAILS(ERR_LIMIT, pool_check_room(test.pool, 0, &err));
	OK(pool_disk_discard(test.pool, "boxes", "one", &err));
	WAIT_FOR(!test.pool_full, 15000);
	OK(pool_check_room(test.pool, 100 * MIB, &err));
	FAILS(ERR_LIMIT, pool_check_room(test.pool, UINT64_C(1) << 40, &err));
}

static void test_pool_destroy_leaves_nothing(void **state)
{
	struct dirent *entry;
	DIR *dir;

	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	OK(pool_disk_make(test.pool, "boxes", "two", 0, &err));
	OK(pool_disk_discard(test.pool, "boxes", "two", &err));
	spin(220); /* the trash helper is at work */
	OK(pool_destroy(test.pool, &err));
	test.pool = NULL;
	dir = opendir(test.home);
	while ((entry = readdir(dir)))
		assert_int_equal(entry->d_name[0], '.');
	closedir(dir);
	assert_int_equal(bound_devices("pool.img"), 0);
}

static void test_pool_trash_of_a_dead_daemon_is_emptied(void **state)
{
	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	for (int i = 0; i < 100; i++) {
		char id[16];

		snprintf(id, sizeof id, "box%d", i);
		OK(pool_disk_make(test.pool, "boxes", id, 0, &err));
		OK(pool_disk_discard(test.pool, "boxes", id, &err));
	}
	close_pool(); /* before the helper started */
	open_pool("auto");
	assert_false(pool_trash_is_empty(test.pool));
	WAIT_FOR(pool_trash_is_empty(test.pool), 15000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PROMISE(test_pool_disks_on_a_loop),
		PROMISE(test_pool_disks_in_a_folder),
		PROMISE(test_pool_names_stay_in_their_place),
		PROMISE(test_pool_is_closed_to_others),
		PROMISE(test_pool_spares_are_used_refilled_and_taken_over),
		PROMISE(test_pool_quota_holds_a_disk),
		PROMISE(test_pool_a_full_disk_can_be_emptied),
		PROMISE(test_pool_native_on_btrfs),
		PROMISE(test_pool_uses_full_quotas_it_finds),
		PROMISE(test_pool_keeps_its_kind),
		PROMISE(test_pool_half_made_is_made_again),
		PROMISE(test_pool_garbage_is_told_and_left_alone),
		PROMISE(test_pool_lets_the_device_go),
		PROMISE(test_pool_finds_the_device_boxes_still_use),
		PROMISE(test_pool_grows_while_in_use),
		PROMISE(test_pool_finishes_growth_that_was_cut_short),
		PROMISE(test_pool_grows_by_itself_up_to_its_end),
		PROMISE(test_pool_destroy_leaves_nothing),
		PROMISE(test_pool_trash_of_a_dead_daemon_is_emptied),
	};

	if (geteuid() != 0) {
		print_message("skipped: the pool needs root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
