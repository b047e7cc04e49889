/* test_pool_full.c - rot, a host that runs full, plain folders, deleted data, on real loop devices
 * and real btrfs
 *
 * Needs root, loop devices, btrfs, mkfs.btrfs and mkfs.ext4. What is missing is said and those
 * tests are skipped. */
#include "pool_fixture.h"

/* ---- scrub ---------------------------------------------------------------------------------- */

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

/* ---- the host's end ------------------------------------------------------------------------- */

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

/* A box that writes as fast as it can while the host has less than the pool's file promises: the
 * page cache takes it all, and only the group's limit stands between it and a read-only btrfs. */
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

/* ---- a folder's copies ---------------------------------------------------------------------- */

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
	OK(pool_disk_copy(
		test.pool, "boxes", "one", "layers", "two", "upper", POOL_BUDGET_NONE, &err));
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

/* A helper that is killed over a copy leaves a part of it. */
static void test_pool_half_made_copies_go(void **state)
{
	_cleanup_free_ char *one = NULL, *two = NULL;

	(void)state;
	new_home();
	open_pool("folder");
	one = pool_disk_path(test.pool, "snapshots", ".copy-one");
	two = pool_disk_path(test.pool, "layers", ".copy-two");
	shell("mkdir -p %s/upper %s/upper", one, two);
	OK(pool_disk_discard(test.pool, "snapshots", "one", &err));
	assert_int_equal(access(one, F_OK), -1);
	assert_int_equal(access(two, F_OK), 0);
	close_pool();
	open_pool("folder");
	assert_int_equal(access(two, F_OK), -1);
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

/* ---- deleted data --------------------------------------------------------------------------- */

/* btrfs discards about ten seconds after the last use of a block, and nothing here asks for it. So
 * a disk is deleted before all other tests, and looked for after them. */
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

static int set_up_early(void **state)
{
	if (group_setup(state) < 0)
		return -1;
	if (test.has_loop)
		begin_early();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PROMISE(test_pool_scrub_finds_rot),
		PROMISE(test_pool_survives_a_host_that_others_fill),
		PROMISE(test_pool_boxes_cannot_outrun_the_host),
		PROMISE(test_pool_is_never_larger_than_the_host_can_back),
		PROMISE(test_pool_folder_copy_is_true),
		PROMISE(test_pool_half_made_copies_go),
		PROMISE(test_pool_doctor_tells_of_a_folder),
		PROMISE(test_pool_deleted_data_returns_to_the_host),
	};

	if (geteuid() != 0) {
		print_message("skipped: the pool needs root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up_early, group_teardown);
}
