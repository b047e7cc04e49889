/* test_ns_native.c - an instance whose image and disk lie in different subvolumes of one btrfs
 *
 * Such subvolumes number their files alike; what a box sees must not. Runs on a btrfs of its own,
 * in a mount namespace of its own: both go with the test. Needs root, a loop device and
 * mkfs.btrfs. */
#include "ns_fixture.h"
#include <linux/btrfs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/xattr.h>

enum { MANY = 60, PAGES = 256 };

static char base[64]; /* where the btrfs is mounted */
static char paths[INSTANCE_LAYERS_MAX][160];
static const char *names[INSTANCE_LAYERS_MAX + 1];

static const char *in_dir(const char *name)
{
	static char path[8][160];
	static unsigned next;
	char *out = path[next++ % ARRAY_LEN(path)];

	snprintf(out, sizeof path[0], "%s/%s", test.dir, name);
	return out;
}

static void put(const char *name, const char *bytes, size_t len, mode_t mode)
{
	int fd = open(in_dir(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		fail_msg("make '%s': %s", name, strerror(errno));
	assert_int_equal(fd_write_all(fd, bytes, len, NULL), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void put_text(const char *name, const char *text)
{
	put(name, text, strlen(text), 0644);
}

static void put_program(const char *name, mode_t mode)
{
	_cleanup_free_ char *bytes = NULL;
	size_t len;

	assert_int_equal(
		file_read(AT_FDCWD, getenv("BOX_TEST_INIT"), 64 << 20, &bytes, &len, NULL), 0);
	put(name, bytes, len, mode);
}

static void make_dirs(const char *const *dirs)
{
	for (; *dirs; dirs++)
		if (mkdir(in_dir(*dirs), 0755) < 0 && errno != EEXIST)
			fail_msg("mkdir '%s': %s", *dirs, strerror(errno));
}

/* from NULL: an empty one, else a snapshot. */
static void make_subvolume(const char *name, const char *from)
{
	struct btrfs_ioctl_vol_args args = { .fd = -1 };
	_cleanup_close_ int dir = open(test.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), source = -1;

	snprintf(args.name, sizeof args.name, "%s", name);
	if (from)
		args.fd = source = open(in_dir(from), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ioctl(dir, from ? BTRFS_IOC_SNAP_CREATE : BTRFS_IOC_SUBVOL_CREATE, &args) < 0)
		fail_msg("make subvolume '%s': %s", name, strerror(errno));
}

/* What the test before left. */
static void clear(void)
{
	static const char *const parts[] = { "own", "other", "saved", "upper", "lower", "layers" };

	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		tree_remove(AT_FDCWD, in_dir(parts[i]), NULL);
}

/* ---- an image: two layers of the host's, one that was saved from a box, the disk of another upon
 * it */

enum { SAVED, UPPER_LAYER, LOWER_LAYER, LAYERS };

static void make_image(void)
{
	static const char *const dirs[] = { "lower", "lower/dir", "lower/old", "lower/dev", "upper",
		"upper/dir", "upper/old", NULL };
	static const char *const saved[] = { "saved/upper", "saved/upper/dev", "saved/work", NULL };
	char name[32];

	clear();
	make_dirs(dirs);
	make_subvolume("saved", NULL);
	make_dirs(saved);
	put_text("lower/gone", "g");
	put_text("lower/removed", "r");
	put_text("lower/dir/low", "low");
	put_text("lower/old/hidden", "h");
	put_text("lower/dev/console", "c");
	put_text("lower/changed", "c");
	put_program("lower/plain", 0755);
	put_program("lower/setuid", 04755);
	put_text("upper/dir/high", "high");
	assert_int_equal(mknod(in_dir("upper/gone"), S_IFCHR, 0), 0);
	assert_int_equal(setxattr(in_dir("upper/old"), "trusted.overlay.opaque", "y", 1, 0), 0);
	put_text("saved/upper/dev/odd", "o");
	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof name, "saved/upper/s%u", i);
		put_text(name, "saved");
	}
	names[SAVED] = strcpy(paths[SAVED], in_dir("saved/upper"));
	names[UPPER_LAYER] = strcpy(paths[UPPER_LAYER], in_dir("upper"));
	names[LOWER_LAYER] = strcpy(paths[LOWER_LAYER], in_dir("lower"));
	names[LAYERS] = NULL;
	make_subvolume("own", "saved");
	assert_int_equal(rename(in_dir("own/upper"), in_dir("own/below")), 0);
}

static struct instance_spec spec_apart(size_t apart)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);

	spec.ns.layers = names;
	spec.ns.apart = apart;
	spec.disk = in_dir("own");
	return spec;
}

static void write_some(struct seen *seen)
{
	char line[32];

	for (unsigned i = 0; i < 100; i++) {
		snprintf(line, sizeof line, "write /n%u", i);
		expect(seen, line, "ok");
	}
}

static bool has_twins(struct seen *seen)
{
	const char *answer = ask(seen, "twins");
	bool none = !strncmp(answer, "none of ", 8);

	if (none && atoi(answer + 8) < 130)
		fail_msg("too few files were looked at: %s", answer);
	return !none;
}

/* Why all this is there. */
static void test_ns_subvolumes_number_their_files_alike(void **state)
{
	struct instance_spec spec;
	struct seen seen;

	(void)state;
	make_image();
	spec = spec_apart(0);
	start_spec(&spec, &seen);
	write_some(&seen);
	if (!has_twins(&seen))
		fail_msg("overlayfs tells subvolumes apart here: nobody needs `apart` any more");
	stop(&seen);
}

static void test_ns_no_two_files_look_alike_with_layers_apart(void **state)
{
	struct instance_spec spec;
	struct seen seen;

	(void)state;
	make_image();
	spec = spec_apart(2);
	start_spec(&spec, &seen);
	write_some(&seen);
	assert_false(has_twins(&seen));
	expect(&seen, "write /changed", "ok");
	expect(&seen, "write /s1", "ok");
	expect(&seen, "write /dir/low", "ok");
	assert_false(has_twins(&seen));
	stop(&seen);
	start_spec(&spec, &seen);
	write_some(&seen);
	assert_false(has_twins(&seen));
	stop(&seen);
}

static void expect_files(struct seen *seen)
{
	expect(seen, "read /s1", "saved");
	expect(seen, "read /dir/low", "low");
	expect(seen, "read /dir/high", "high");
	expect(seen, "stat /gone", "ENOENT");
	expect(seen, "count /old", "0");
	expect(seen, "stat /changed", "file 0:0 644");
	expect(seen, "run /plain", "exit 20");
	expect(seen, "run /setuid", "exit 10");
	expect(seen, "write /dev/null", "ok");
	expect(seen, "stat /dev/console", "ENOENT");
	expect(seen, "stat /dev/odd", "ENOENT");
	expect(seen, "stat /dev/shm", "dir 0:0 1777");
}

static void test_ns_layers_apart_are_layers_all_the_same(void **state)
{
	struct instance_spec spec;
	struct seen seen;

	(void)state;
	make_image();
	spec = spec_apart(2);
	start_spec(&spec, &seen);
	expect_files(&seen);
	expect(&seen, "unlink /removed", "ok");
	expect(&seen, "unlink /dir/high", "ok");
	expect(&seen, "unlink /dev/null", "ok");
	expect(&seen, "write /changed", "ok");
	stop(&seen);
	start_spec(&spec, &seen);
	expect(&seen, "stat /removed", "ENOENT");
	expect(&seen, "count /dir", "1");
	expect(&seen, "read /changed", "x");
	expect(&seen, "write /dev/null", "ok");
	expect(&seen, "stat /dev/odd", "ENOENT");
	stop(&seen);
	assert_int_equal(access(in_dir("lower/removed"), F_OK), 0);
}

/* A program that one box has read is in memory for all others. */
static void test_ns_boxes_share_the_memory_of_layers_apart(void **state)
{
	_cleanup_free_ char *bytes = xcalloc(PAGES, 4096);
	struct instance_spec spec, second;
	struct seen seen, other;
	int fd;

	(void)state;
	make_image();
	put("lower/big", bytes, PAGES * 4096, 0644);
	make_subvolume("other", NULL);
	spec = second = spec_apart(2);
	second.id = "t2";
	second.disk = in_dir("other");
	second.ns.uid_base = UID_BASE + 131072;
	start_spec(&spec, &seen);
	start_spec(&second, &other);
	fd = open(in_dir("lower/big"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	expect(&other, "resident /big", "0");
	close(fd);
	ask(&seen, "read /big");
	assert_true(atoi(ask(&other, "resident /big")) > 0);
	assert_int_equal(instance_kill(seen.instance, NULL), 0);
	while (!seen.ended)
		run_until_something();
	instance_free(seen.instance);
	stop(&other);
}

/* ---- many ----------------------------------------------------------------------------------- */

/* Layers l0 (the top) to l(count-1), each with a file of its own and one that all have. */
static void make_layers(unsigned count)
{
	static const char *const home[] = { "layers", NULL };
	char name[32], text[16];

	clear();
	make_dirs(home);
	make_subvolume("own", NULL);
	for (unsigned i = 0; i < count; i++) {
		const char *const dirs[] = { name, NULL };

		snprintf(name, sizeof name, "layers/l%u", i);
		make_dirs(dirs);
		names[i] = strcpy(paths[i], in_dir(name));
		snprintf(text, sizeof text, "%u", i);
		snprintf(name, sizeof name, "layers/l%u/top", i);
		put_text(name, text);
		snprintf(name, sizeof name, "layers/l%u/f%u", i, i);
		put_text(name, text);
	}
	names[count] = NULL;
}

static void start_many(unsigned count, size_t apart)
{
	struct instance_spec spec;
	struct seen seen;
	char line[32], want[16];

	make_layers(count);
	spec = spec_apart(apart);
	start_spec(&spec, &seen);
	expect(&seen, "read /top", "0");
	for (unsigned i = 0; i < count; i++) {
		snprintf(line, sizeof line, "read /f%u", i);
		snprintf(want, sizeof want, "%u", i);
		expect(&seen, line, want);
	}
	write_some(&seen);
	if (apart == count && strncmp(ask(&seen, "twins"), "none of ", 8))
		fail_msg("%u layers: %s", count, ask(&seen, "twins"));
	stop(&seen);
}

static ino_t number_of(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(in_dir(name), &st), 0);
	return st.st_ino;
}

/* Layers of several file systems, as when homes share images. The other one counts from the start:
 * it is brought to where the layer beside it is. */
static void test_ns_layers_apart_may_be_of_several_file_systems(void **state)
{
	static const char *const dirs[] = { "other", NULL };
	struct instance_spec spec;
	struct seen seen;
	char name[32] = "other/x";

	(void)state;
	make_layers(2);
	make_dirs(dirs);
	assert_int_equal(mount("t", in_dir("other"), "tmpfs", 0, "mode=0755"), 0);
	for (put_text(name, ""); number_of(name) + 1 < number_of("layers/l0/top");
		put_text(name, ""))
		unlink(in_dir(name));
	for (unsigned i = 0; i < 50; i++) {
		snprintf(name, sizeof name, "other/o%u", i);
		put_text(name, "o");
	}
	assert_true(number_of("other/o0") <= number_of("layers/l0/top"));
	names[1] = strcpy(paths[1], in_dir("other"));
	spec = spec_apart(2);
	start_spec(&spec, &seen);
	write_some(&seen);
	assert_false(has_twins(&seen));
	stop(&seen);
	umount2(in_dir("other"), MNT_DETACH);
}

static int count_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void test_ns_any_number_of_layers_may_be_apart(void **state)
{
	int before;

	(void)state;
	start_many(1, 1);
	before = count_fds();
	start_many(MANY, MANY);
	start_many(MANY, MANY - 1);
	start_many(MANY, 1);
	start_many(INSTANCE_LAYERS_MAX, INSTANCE_LAYERS_MAX);
	assert_int_equal(count_fds(), before);
}

static void test_ns_no_more_layers_are_apart_than_there_are(void **state)
{
	struct instance_spec spec;
	struct seen seen = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	make_layers(2);
	spec = spec_apart(3);
	assert_int_equal(engine_start(test.engine, &spec, &ops, &seen, &seen.instance, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	expect_no_leftovers();
}

/* ---- the btrfs ------------------------------------------------------------------------------ */

static int make_btrfs(void)
{
	char line[512];

	snprintf(line, sizeof line,
		"truncate -s 512M %s.img && mkfs.btrfs -q %s.img >/dev/null 2>&1 && "
		"mount -o loop %s.img %s",
		base, base, base, base);
	return system(line);
}

/* The loop device goes with the mount, which the file need not wait for. */
static int make_apart(void **state)
{
	const char *where = getenv("TMPDIR");
	char file[80];
	int status;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	snprintf(base, sizeof base, "%s/box-nat-XXXXXX", where ? where : "/tmp");
	if (!mkdtemp(base))
		return -1;
	status = make_btrfs();
	snprintf(file, sizeof file, "%s.img", base);
	unlink(file);
	if (status || setenv("TMPDIR", base, 1) < 0) {
		rmdir(base);
		return -1;
	}
	return make_home(state);
}

static int remove_apart(void **state)
{
	int status = remove_home(state);

	umount2(base, MNT_DETACH);
	rmdir(base);
	return status;
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		NS_TEST_BOTH_WAYS(test_ns_subvolumes_number_their_files_alike),
		NS_TEST_BOTH_WAYS(test_ns_no_two_files_look_alike_with_layers_apart),
		NS_TEST_BOTH_WAYS(test_ns_layers_apart_are_layers_all_the_same),
		NS_TEST_BOTH_WAYS(test_ns_boxes_share_the_memory_of_layers_apart),
		NS_TEST_BOTH_WAYS(test_ns_layers_apart_may_be_of_several_file_systems),
		NS_TEST_BOTH_WAYS(test_ns_any_number_of_layers_may_be_apart),
		NS_TEST_BOTH_WAYS(test_ns_no_more_layers_are_apart_than_there_are),
	};

	return cmocka_run_group_tests(tests, make_apart, remove_apart);
}

int main(void)
{
	if (access("/dev/loop-control", W_OK) < 0 ||
		system("command -v mkfs.btrfs >/dev/null 2>&1") != 0) {
		printf("test_ns_native: needs loop devices and mkfs.btrfs: skipped\n");
		return 77;
	}
	return run_ns_tests("test_ns_native", run);
}
