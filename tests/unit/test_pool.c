/* test_pool.c - disks, quotas, growth and the host's end, on real loop devices and real btrfs
 *
 * Needs root, loop devices, btrfs and mkfs.btrfs; the tests of the host's end mkfs.ext4. What is missing is
 * said and those tests are skipped. All mounts are made in a mount namespace of this program's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define MIB (UINT64_C(1) << 20)

static struct {
	char top[64];	/* everything of this program */
	char home[128]; /* of the present test */
	struct loop *loop;
	struct pool *pool;
	int homes;
	bool has_loop;
	/* what on_full was told */
	int host_full, pool_full;
	int told;
} test;

/* ---- helpers ---------------------------------------------------------------------------------------------- */

static void stop_loop(void *arg)
{
	(void)arg;
	loop_stop(test.loop);
}

static void spin(unsigned ms)
{
	struct loop_timer *timer = loop_timer_new(test.loop, stop_loop, NULL);

	loop_timer_start(timer, ms);
	loop_run(test.loop);
	loop_timer_free(timer);
}

/* Runs the loop until the condition holds; fails after the given time. */
#define WAIT_FOR(cond, ms)                                                     \
	do {                                                                   \
		int64_t _end = clock_mono_us() + (int64_t)(ms)*1000;           \
		while (!(cond)) {                                              \
			if (clock_mono_us() > _end)                            \
				fail_msg("not within %d ms: %s", (ms), #cond); \
			spin(20);                                              \
		}                                                              \
	} while (0)

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
	char line[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof line, fmt, args);
	va_end(args);
	if (system(line) != 0)
		fail_msg("failed: %s", line);
}

static void on_full(const char *what, bool full, const char *detail, void *arg)
{
	(void)arg;
	assert_true(*detail);
	test.told++;
	*(strcmp(what, "host") ? &test.pool_full : &test.host_full) = full;
}

static struct pool_config config_of(const char *mode)
{
	return (struct pool_config){ .loop = test.loop,
		.home = test.home,
		.mode = mode,
		.size = 512 * MIB,
		.on_full = on_full };
}

static void open_with(const struct pool_config *config)
{
	struct err err = ERR_INIT;

	if (pool_open(config, &test.pool, &err) < 0)
		fail_msg("pool_open: %s", err.message);
}

static void open_pool(const char *mode)
{
	struct pool_config config = config_of(mode);

	open_with(&config);
}

static void close_pool(void)
{
	pool_close(test.pool);
	test.pool = NULL;
}

static void new_home(void)
{
	snprintf(test.home, sizeof test.home, "%s/home%d", test.top, test.homes++);
	assert_int_equal(mkdir(test.home, 0700), 0);
}

#define OK(call)                                                \
	do {                                                    \
		struct err err = ERR_INIT;                      \
		if ((call) < 0)                                 \
			fail_msg("%s: %s", #call, err.message); \
	} while (0)
#define FAILS(want, call)                                                          \
	do {                                                                       \
		struct err err = ERR_INIT;                                         \
		assert_int_equal((call), -1);                                      \
		if (err.kind != (want))                                            \
			fail_msg("%s: kind %d: %s", #call, err.kind, err.message); \
	} while (0)

/* Appends len random bytes to a file of a disk; 0 or the errno. */
static int put(const char *place, const char *id, const char *name, size_t len)
{
	_cleanup_free_ char *disk = pool_disk_path(test.pool, place, id);
	_cleanup_free_ char *path = xasprintf("%s/%s", disk, name);
	static char random[1 << 20];
	int random_fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC), error = 0;
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	assert_true(read(random_fd, random, sizeof random) == sizeof random);
	close(random_fd);
	if (fd < 0)
		return errno;
	while (len && !error) {
		ssize_t n = write(fd, random, MIN(len, sizeof random));

		if (n < 0)
			error = errno;
		else
			len -= (size_t)n;
	}
	if (!error && fsync(fd) < 0)
		error = errno;
	close(fd);
	return error;
}

static bool disk_has(const char *place, const char *id, const char *name)
{
	_cleanup_free_ char *disk = pool_disk_path(test.pool, place, id);
	_cleanup_free_ char *path = xasprintf("%s/%s", disk, name);
	struct stat st;

	return lstat(path, &st) == 0;
}

static uint64_t file_blocks(const char *name)
{
	char path[192];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", test.home, name);
	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Loop devices bound to a file of this home. */
static int bound_devices(const char *name)
{
	char line[256], found[32] = "";
	FILE *pipe;

	snprintf(line, sizeof line,
		"cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -c '^%s/%s'", test.home,
		name);
	pipe = popen(line, "r");
	assert_non_null(fgets(found, sizeof found, pipe));
	pclose(pipe);
	return atoi(found);
}

static void wait_unbound(void)
{
	WAIT_FOR(bound_devices("pool.img") == 0, 5000);
}

static json_int_t json_number(const char *key)
{
	json_t *json = pool_json(test.pool);
	json_int_t value;

	assert_non_null(json);
	value = json_integer_value(json_object_get(json, key));
	json_decref(json);
	return value;
}

static void needs_loop(void)
{
	if (test.has_loop)
		return;
	print_message("skipped: no loop devices, btrfs or mkfs.btrfs here\n");
	skip();
}

static int teardown(void **state)
{
	(void)state;
	if (test.pool) {
		if (pool_destroy(test.pool, NULL) < 0)
			print_message("the pool of %s is left\n", test.home);
		test.pool = NULL;
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return 0;
}

/* ---- disks -------------------------------------------------------------------------------------------------- */

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
	OK(pool_disk_copy(test.pool, "boxes", "one", "layers", ".new-two", NULL, &err));
	FAILS(ERR_EXISTS,
		pool_disk_copy(test.pool, "boxes", "one", "layers", ".new-two", NULL, &err));
	OK(pool_disk_rename(test.pool, "layers", ".new-two", "two", &err));
	assert_int_equal(put("layers", "two", "only-in-the-copy", 10), 0);
	assert_true(disk_has("layers", "two", "f"));
	assert_false(disk_has("boxes", "one", "only-in-the-copy"));
	FAILS(ERR_NOT_FOUND, pool_disk_copy(test.pool, "boxes", "no", "layers", "x", NULL, &err));
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

/* ---- quota ----------------------------------------------------------------------------------------------------- */

struct seen {
	int count;
	uint64_t used, limit;
};

static void see(const char *place, const char *id, uint64_t used, uint64_t limit, void *arg)
{
	struct seen *seen = arg;

	seen->count++;
	if (!strcmp(place, "boxes") && !strcmp(id, "one"))
		*seen = (struct seen){ seen->count, used, limit };
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
	OK(pool_disk_copy(test.pool, "boxes", "one", "boxes", "two", NULL, &err));
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

/* ---- native: a btrfs of this test's own as the host ------------------------------------------------------------ */

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

static void unmount_host(void)
{
	assert_int_equal(umount2(test.home, 0), 0);
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

/* ---- life: kinds, restarts, growth ------------------------------------------------------------------------------- */

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

static int grown; /* 1: done, -1: failed */
static struct err grow_err;

static void on_grown(const struct err *err, void *arg)
{
	(void)arg;
	grown = err ? -1 : 1;
	if (err)
		grow_err = *err;
}

static void grow(uint64_t bytes)
{
	grown = 0;
	pool_grow(test.pool, bytes, on_grown, NULL);
	assert_int_equal(grown, 0); /* never from within the call */
	WAIT_FOR(grown, 5000);
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

/* ---- scrub ----------------------------------------------------------------------------------------------------------- */

static struct {
	int progress, done;
	uint64_t errors;
	bool failed;
} scrub;

static void on_scrub_progress(uint64_t done, uint64_t total, uint64_t errors, void *arg)
{
	(void)arg;
	(void)errors;
	assert_true(done <= total);
	scrub.progress++;
}

static void on_scrub_done(uint64_t errors, const struct err *err, void *arg)
{
	(void)arg;
	scrub.done++;
	scrub.errors = errors;
	scrub.failed = err != NULL;
}

static const struct pool_scrub_ops scrub_ops = { .on_progress = on_scrub_progress,
	.on_done = on_scrub_done };

/* Flips a byte of data that lies in the pool file. */
static void spoil(const char *marker)
{
	_cleanup_free_ char *block = xcalloc(1, MIB);
	char path[192];
	off_t at = 0;
	int fd;

	snprintf(path, sizeof path, "%s/pool.img", test.home);
	fd = open(path, O_RDWR | O_CLOEXEC);
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		ssize_t len = pread(fd, block, MIB, at / 4096 * 4096);
		char *found = len > 0 ? memmem(block, (size_t)len, marker, strlen(marker)) : NULL;

		if (found) {
			at = at / 4096 * 4096 + (found - block);
			assert_int_equal(pwrite(fd, "X", 1, at), 1);
			fsync(fd);
			close(fd);
			return;
		}
		at += len > 0 ? len : 4096;
	}
	fail_msg("the marker is not in the pool file");
}

static void run_scrub(void)
{
	scrub.done = scrub.progress = 0;
	OK(pool_scrub_start(test.pool, &scrub_ops, NULL, &err));
	FAILS(ERR_STATE, pool_scrub_start(test.pool, &scrub_ops, NULL, &err));
	WAIT_FOR(scrub.done, 10000);
	assert_false(scrub.failed);
	assert_true(scrub.progress > 0);
}

static void test_pool_scrub_finds_rot(void **state)
{
	static const char marker[] = "a sentence that is found in no other place of this file";
	_cleanup_free_ char *disk = NULL, *path = NULL;
	char text[8192] = "";
	int fd;

	(void)state;
	needs_loop();
	new_home();
	open_pool("loop");
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	disk = pool_disk_path(test.pool, "boxes", "one");
	path = xasprintf("%s/f", disk);
	memcpy(text, marker, sizeof marker);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_int_equal(write(fd, text, sizeof text), sizeof text);
	close(fd);
	OK(pool_sync(test.pool, &err));
	run_scrub();
	assert_int_equal(scrub.errors, 0);
	close_pool();
	wait_unbound();
	spoil(marker);
	open_pool("auto");
	run_scrub();
	assert_int_equal(scrub.errors, 1);
	scrub.done = 0;
	OK(pool_scrub_start(test.pool, &scrub_ops, NULL, &err));
	pool_scrub_cancel(test.pool);
	spin(50);
	assert_int_equal(scrub.done, 0);
}

/* ---- the host's end ------------------------------------------------------------------------------------------------- */

/* A small ext4 as the host's disk. */
static void mount_small_host(int mib)
{
	char image[128];

	if (access("/usr/sbin/mkfs.ext4", X_OK) < 0 && access("/sbin/mkfs.ext4", X_OK) < 0) {
		print_message("skipped: no mkfs.ext4\n");
		skip();
	}
	snprintf(image, sizeof image, "%s/host%d.img", test.top, test.homes);
	new_home();
	shell("truncate -s %dM %s && mkfs.ext4 -q -F -E nodiscard %s && mount -o loop %s %s", mib,
		image, image, image, test.home);
	test.host_full = test.pool_full = test.told = 0;
}

static uint64_t host_free(void)
{
	struct statfs fs;

	assert_int_equal(statfs(test.home, &fs), 0);
	return fs.f_bfree * (uint64_t)fs.f_bsize;
}

static uint64_t host_available(void)
{
	struct statfs fs;

	assert_int_equal(statfs(test.home, &fs), 0);
	return fs.f_bavail * (uint64_t)fs.f_bsize;
}

/* Somebody else takes what the host has, down to the last block if left is 0. */
static void fill_host(uint64_t left)
{
	static char zeros[1 << 20];
	char path[192];
	int fd;

	snprintf(path, sizeof path, "%s/filler", test.home);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	while (host_free() > left)
		if (write(fd, zeros, sizeof zeros) < 0)
			break;
	fsync(fd);
	close(fd);
}

static void check_healthy(void)
{
	_cleanup_free_ char *mounts = NULL;
	char *line;

	OK(pool_sync(test.pool, &err));
	OK(file_read(AT_FDCWD, "/proc/self/mountinfo", 1 << 20, &mounts, NULL, &err));
	line = strstr(mounts, pool_get_path(test.pool));
	assert_non_null(line);
	line[strcspn(line, "\n")] = '\0';
	assert_null(strstr(line, " ro,")); /* of the file system: btrfs has given up */
}

static void sum_of(const char *id, const char *name, char ret[65])
{
	_cleanup_free_ char *disk = pool_disk_path(test.pool, "boxes", id);
	char line[256];
	FILE *pipe;

	snprintf(line, sizeof line, "sha256sum %s/%s", disk, name);
	pipe = popen(line, "r");
	assert_int_equal(fread(ret, 1, 64, pipe), 64);
	ret[64] = '\0';
	pclose(pipe);
}

static void test_pool_survives_a_host_that_others_fill(void **state)
{
	struct pool_config config;
	char before[65], after[65], path[192];

	(void)state;
	needs_loop();
	mount_small_host(512);
	config = config_of("loop");
	config.size = 256 * MIB;
	open_with(&config);
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	assert_int_equal(put("boxes", "one", "f", 32 * MIB), 0);
	sum_of("one", "f", before);
	assert_true(file_blocks("pool.reserve") >= 7 * MIB);
	fill_host(0);
	assert_int_equal(host_available(), 0);
	WAIT_FOR(test.host_full, 3000);
	assert_int_equal(file_blocks("pool.reserve"), 0);
	assert_int_equal(put("boxes", "one", "g", 8 * MIB), EDQUOT);
	FAILS(ERR_LIMIT, pool_check_room(test.pool, 0, &err));
	OK(pool_disk_rename(test.pool, "boxes", "one", "uno", &err));
	check_healthy();
	snprintf(path, sizeof path, "%s/filler", test.home);
	assert_int_equal(unlink(path), 0);
	WAIT_FOR(!test.host_full, 3000);
	assert_true(file_blocks("pool.reserve") >= 7 * MIB);
	assert_int_equal(put("boxes", "uno", "h", 8 * MIB), 0);
	close_pool();
	wait_unbound();
	open_pool("auto");
	sum_of("uno", "f", after);
	assert_string_equal(before, after);
	OK(pool_destroy(test.pool, &err));
	test.pool = NULL;
	unmount_host();
}

/* A box that writes as fast as it can while the host has less than the pool's file promises: the page cache
 * takes it all, and only the group's limit stands between it and a read-only btrfs. */
static void test_pool_boxes_cannot_outrun_the_host(void **state)
{
	struct pool_config config;
	char before[65], after[65];
	int status, error;
	pid_t writer;

	(void)state;
	needs_loop();
	mount_small_host(512);
	config = config_of("loop");
	config.size = 400 * MIB;
	open_with(&config);
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	assert_int_equal(put("boxes", "one", "f", 32 * MIB), 0);
	sum_of("one", "f", before);
	fill_host(150 * MIB);
	spin(400); /* the daemon has seen it */
	writer = fork();
	if (writer == 0) {
		error = put("boxes", "one", "g", 350 * MIB);
		_exit(error == EDQUOT ? 0 : error ? 2 : 3);
	}
	while (waitpid(writer, &status, WNOHANG) == 0)
		spin(20);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	check_healthy();
	assert_true(host_free() > 16 * MIB);
	OK(pool_disk_discard(test.pool, "boxes", "none", &err));
	close_pool();
	wait_unbound();
	open_pool("auto");
	sum_of("one", "f", after);
	assert_string_equal(before, after);
	OK(pool_destroy(test.pool, &err));
	test.pool = NULL;
	unmount_host();
}

static void test_pool_is_never_larger_than_the_host_can_back(void **state)
{
	struct pool_config config;

	(void)state;
	needs_loop();
	mount_small_host(512);
	config = config_of("auto");
	config.size = UINT64_C(1) << 30;
	FAILS(ERR_LIMIT, pool_open(&config, &test.pool, &err));
	config.size = 0; /* half of it would be less than the least */
	FAILS(ERR_LIMIT, pool_open(&config, &test.pool, &err));
	config.size = 256 * MIB;
	open_with(&config);
	grow(512 * MIB);
	assert_int_equal(grown, -1);
	assert_int_equal(grow_err.kind, ERR_LIMIT);
	assert_true(*grow_err.hint);
	OK(pool_destroy(test.pool, &err));
	test.pool = NULL;
	unmount_host();
}

/* ---- a folder's copies ------------------------------------------------------------------------------------------------ */

static void test_pool_folder_copy_is_true(void **state)
{
	_cleanup_free_ char *from = NULL, *to = NULL, *text = NULL;
	struct stat a, b;
	char value[16] = "";
	int in, out;

	(void)state;
	new_home();
	open_pool("folder");
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	from = pool_disk_path(test.pool, "boxes", "one");
	to = pool_disk_path(test.pool, "layers", "two");
	shell("cd %s && mkdir -p upper/d work/big && echo hello >upper/f && ln upper/f "
	      "upper/d/hard && "
	      "ln -s /etc/shadow upper/link && mknod upper/gone c 0 0 && mkfifo upper/pipe && "
	      "chown 12:34 upper/f && chmod 4711 upper/f && truncate -s 64M upper/sparse && "
	      "touch -h -d 2001-02-03 upper/link upper/f upper/d",
		from);
	in = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fchdir(in), 0);
	assert_int_equal(lsetxattr("upper/d", "trusted.overlay.opaque", "y", 1, 0), 0);
	assert_int_equal(lsetxattr("upper/link", "trusted.mine", "z", 1, 0), 0);
	OK(pool_disk_copy(test.pool, "boxes", "one", "layers", "two", "upper", &err));
	out = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fchdir(out), 0);
	assert_int_equal(faccessat(out, "work", F_OK, 0), -1);
	OK(file_read(out, "upper/f", 64, &text, NULL, &err));
	assert_string_equal(text, "hello\n");
	fstatat(in, "upper/f", &a, 0);
	fstatat(out, "upper/f", &b, 0);
	assert_int_equal(b.st_mode, a.st_mode);
	assert_int_equal(b.st_uid, 12);
	assert_int_equal(b.st_gid, 34);
	assert_int_equal(b.st_nlink, 2);
	assert_int_equal(b.st_mtim.tv_sec, a.st_mtim.tv_sec);
	fstatat(out, "upper/d", &b, 0);
	assert_int_equal(b.st_mtim.tv_sec, a.st_mtim.tv_sec);
	fstatat(out, "upper/gone", &b, AT_SYMLINK_NOFOLLOW);
	assert_true(S_ISCHR(b.st_mode) && b.st_rdev == makedev(0, 0));
	fstatat(out, "upper/pipe", &b, AT_SYMLINK_NOFOLLOW);
	assert_true(S_ISFIFO(b.st_mode));
	fstatat(out, "upper/link", &b, AT_SYMLINK_NOFOLLOW);
	assert_true(S_ISLNK(b.st_mode));
	fstatat(out, "upper/sparse", &b, 0);
	assert_int_equal(b.st_size, 64 * MIB);
	assert_true(b.st_blocks < 100);
	assert_int_equal(lgetxattr("upper/d", "trusted.overlay.opaque", value, sizeof value), 1);
	assert_int_equal(lgetxattr("upper/link", "trusted.mine", value, sizeof value), 1);
	assert_int_equal(chdir("/"), 0);
	close(in);
	close(out);
}

static void test_pool_doctor_tells_of_a_folder(void **state)
{
	json_t *checks = json_array(), *first;

	(void)state;
	new_home();
	open_pool("folder");
	pool_probe(test.pool, checks);
	first = json_array_get(checks, 0);
	assert_false(json_is_true(json_object_get(first, "ok")));
	assert_false(json_is_true(json_object_get(first, "required")));
	assert_true(*json_string_value(json_object_get(first, "hint")));
	json_decref(checks);
	FAILS(ERR_UNSUPPORTED, pool_scrub_start(test.pool, &scrub_ops, NULL, &err));
	grow(MIB);
	assert_int_equal(grow_err.kind, ERR_UNSUPPORTED);
}

/* ---- deleted data ---------------------------------------------------------------------------------------------------- */

/* btrfs discards about ten seconds after the last use of a block, and nothing here asks for it. So a disk is
 * deleted before all other tests, and looked for after them. */
static struct {
	struct pool *pool;
	char home[128];
	uint64_t empty, filled;
} early;

static void swap_in_early(void)
{
	test.pool = early.pool;
	memcpy(test.home, early.home, sizeof test.home);
}

static void begin_early(void)
{
	new_home();
	memcpy(early.home, test.home, sizeof early.home);
	open_pool("loop");
	early.pool = test.pool;
	OK(pool_sync(test.pool, &err));
	early.empty = file_blocks("pool.img");
	OK(pool_disk_make(test.pool, "boxes", "one", 0, &err));
	assert_int_equal(put("boxes", "one", "f", 128 * MIB), 0);
	early.filled = file_blocks("pool.img");
	OK(pool_disk_discard(test.pool, "boxes", "one", &err));
	test.pool = NULL;
}

static void test_pool_deleted_data_returns_to_the_host(void **state)
{
	(void)state;
	needs_loop();
	swap_in_early();
	early.pool = NULL;
	assert_true(early.filled > early.empty + 127 * MIB);
	WAIT_FOR(file_blocks("pool.img") < early.empty + 16 * MIB, 30000);
}

/* ---------------------------------------------------------------------------------------------------------------------- */

static int group_setup(void **state)
{
	(void)state;
	log_open(STDERR_FILENO, LOG_LEVEL_ERROR);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	snprintf(test.top, sizeof test.top, "/tmp/test-pool-XXXXXX");
	if (!mkdtemp(test.top))
		return -1;
	test.loop = loop_new();
	test.has_loop = access("/dev/loop-control", W_OK) == 0 &&
			system("mkfs.btrfs --version >/dev/null 2>&1 && (grep -qw btrfs "
			       "/proc/filesystems || "
			       "modprobe btrfs 2>/dev/null)") == 0;
	if (test.has_loop)
		begin_early();
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	loop_free(test.loop);
	return tree_remove(AT_FDCWD, test.top, NULL);
}

#define PROMISE(fn) cmocka_unit_test_teardown(fn, teardown)

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
		PROMISE(test_pool_scrub_finds_rot),
		PROMISE(test_pool_survives_a_host_that_others_fill),
		PROMISE(test_pool_boxes_cannot_outrun_the_host),
		PROMISE(test_pool_is_never_larger_than_the_host_can_back),
		PROMISE(test_pool_folder_copy_is_true),
		PROMISE(test_pool_doctor_tells_of_a_folder),
		PROMISE(test_pool_deleted_data_returns_to_the_host),
	};

	if (geteuid() != 0) {
		print_message("skipped: the pool needs root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
