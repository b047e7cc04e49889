/* test_ns_mounts.c - what an instance of the ns driver sees of the host: layers, volumes, folders
 *
 * Runs in a mount namespace of its own, so that what it mounts goes with it. */
#include "ns_fixture.h"
#include <sys/mount.h>

enum { MANY = 60, OWNER = 1234, GROUP = 1235 };

static char paths[INSTANCE_LAYERS_MAX + 1][160];
static const char *names[INSTANCE_LAYERS_MAX + 2];

/* Does not outlive the next call. */
static const char *in_dir(const char *name)
{
	static char path[4][160];
	static unsigned next;
	char *out = path[next++ % ARRAY_LEN(path)];

	snprintf(out, sizeof path[0], "%s/%s", test.dir, name);
	return out;
}

static void put(const char *folder, const char *name, const char *text, mode_t mode)
{
	char path[256];
	int fd;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void put_program(const char *folder, const char *name, mode_t mode)
{
	_cleanup_free_ char *bytes = NULL;
	char path[256];
	size_t len;
	int fd;

	assert_int_equal(
		file_read(AT_FDCWD, getenv("BOX_TEST_INIT"), 64 << 20, &bytes, &len, NULL), 0);
	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, bytes, len, NULL), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void make_dir(const char *path)
{
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		fail_msg("mkdir %s: %s", path, strerror(errno));
}

static void mount_scratch(const char *path, unsigned long flags)
{
	make_dir(path);
	if (mount("t", path, "tmpfs", flags, "mode=0755") < 0)
		fail_msg("mount on %s: %s", path, strerror(errno));
}

/* Layers l0 (the top) to l(count-1); those from split on lie on another mount. */
static void make_layers(unsigned count, unsigned split)
{
	mount_scratch(in_dir("apart"), 0);
	for (unsigned i = 0; i < count; i++) {
		char text[16];

		snprintf(paths[i], sizeof paths[i], "%s/%s/l%u", test.dir,
			i < split ? "home" : "apart", i);
		make_dir(paths[i]);
		snprintf(paths[i], sizeof paths[i], "%s/%s/l%u/files", test.dir,
			i < split ? "home" : "apart", i);
		make_dir(paths[i]);
		snprintf(text, sizeof text, "%u", i);
		put(paths[i], "top", text, 0644);
		snprintf(text, sizeof text, "f%u", i);
		put(paths[i], text, text, 0644);
		names[i] = paths[i];
	}
	names[count] = NULL;
}

static void remove_layers(void)
{
	char path[160];

	umount2(in_dir("apart"), MNT_DETACH);
	for (unsigned i = 0; i <= INSTANCE_LAYERS_MAX; i++) {
		snprintf(path, sizeof path, "%s/home/l%u", test.dir, i);
		tree_remove(AT_FDCWD, path, NULL);
	}
}

static void expect_layers(struct seen *seen, unsigned count)
{
	char line[32], want[16];

	expect(seen, "read /top", "0");
	for (unsigned i = 0; i < count; i++) {
		snprintf(line, sizeof line, "read /f%u", i);
		snprintf(want, sizeof want, "f%u", i);
		expect(seen, line, want);
	}
	expect(seen, "stat /f1", "file 0:0 644");
	expect(seen, "write /f1", "ok");
	expect(seen, "write /dev/null", "ok");
}

static void start_stacked(unsigned count, unsigned split)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct seen seen;

	make_layers(count, split);
	spec.ns.layers = names;
	start_spec(&spec, &seen);
	expect_layers(&seen, count);
	stop(&seen);
	remove_layers();
	tree_remove(AT_FDCWD, test.disk, NULL);
	make_dir(test.disk);
}

static void test_ns_stacks_sixty_layers(void **state)
{
	(void)state;
	start_stacked(MANY, MANY);
}

static void test_ns_stacks_layers_of_several_mounts(void **state)
{
	(void)state;
	start_stacked(7, 3);
	start_stacked(2, 1);
}

static void test_ns_stacks_layers_reached_through_a_link(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct seen seen;

	(void)state;
	make_layers(3, 3);
	assert_int_equal(symlink(in_dir("home/l1"), in_dir("home/link")), 0);
	snprintf(paths[1], sizeof paths[1], "%s/home/link/files", test.dir);
	spec.ns.layers = names;
	start_spec(&spec, &seen);
	expect_layers(&seen, 3);
	stop(&seen);
	unlink(in_dir("home/link"));
	remove_layers();
}

static void test_ns_takes_no_more_layers_than_it_can(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct seen seen = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	start_stacked(INSTANCE_LAYERS_MAX, INSTANCE_LAYERS_MAX);
	make_layers(INSTANCE_LAYERS_MAX + 1, INSTANCE_LAYERS_MAX);
	spec.ns.layers = names;
	assert_int_equal(engine_start(test.engine, &spec, &ops, &seen, &seen.instance, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	names[0] = NULL;
	assert_int_equal(engine_start(test.engine, &spec, &ops, &seen, &seen.instance, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	remove_layers();
	expect_no_leftovers();
}

/* Where image and disk lie, nothing works that could hurt the host; in the box it does. */
static void test_ns_box_is_free_on_a_mount_that_is_not(void **state)
{
	struct instance_spec spec = spec_of(PROFILE_NESTED);
	const char *pool = in_dir("pool"), *layer, *layers[] = { NULL, NULL, NULL };
	char disk[160], docker[200];
	struct seen seen;

	(void)state;
	mount_scratch(pool, MS_NOSUID | MS_NODEV | MS_NOEXEC);
	layers[0] = in_dir("pool/one");
	layers[1] = layer = in_dir("pool/two");
	snprintf(disk, sizeof disk, "%s/disk", pool);
	make_dir(layers[0]);
	make_dir(layer);
	make_dir(disk);
	put_program(layer, "plain", 0755);
	put_program(layer, "setuid", 04755);
	spec.ns.layers = layers;
	spec.disk = disk;
	start_spec(&spec, &seen);
	expect(&seen, "run /plain", "exit 20");
	expect(&seen, "run /setuid", "exit 10");
	expect(&seen, "write /dev/null", "ok");
	snprintf(docker, sizeof docker, "%s/containers/docker", disk);
	put_program(docker, "plain", 0755);
	put_program(docker, "setuid", 04755);
	expect(&seen, "run /var/lib/docker/plain", "exit 20");
	expect(&seen, "run /var/lib/docker/setuid", "exit 10");
	stop(&seen);
	assert_int_equal(umount2(in_dir("pool"), MNT_DETACH), 0);
}

/* ---- volumes and folders -------------------------------------------------------------------- */

static const char *fresh_source(const char *name)
{
	const char *path = in_dir(name);

	umount2(path, MNT_DETACH);
	tree_remove(AT_FDCWD, path, NULL);
	make_dir(path);
	return path;
}

static void expect_owner(const char *folder, const char *name, uid_t uid, gid_t gid)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_uid, uid);
	assert_int_equal(st.st_gid, gid);
}

static void start_mounted(
	enum profile profile, const struct instance_mount *mounts, size_t count, struct seen *seen)
{
	struct instance_spec spec = spec_of(profile);

	spec.mounts = mounts;
	spec.mount_count = count;
	start_spec(&spec, seen);
}

/* Expects the start to fail, at once or in the child, and gives the error. */
static struct err start_refused(const struct instance_mount *mount)
{
	struct instance_spec spec = spec_of(PROFILE_STANDARD);
	struct seen seen = { 0 };
	struct err err = ERR_INIT;

	spec.mounts = mount;
	spec.mount_count = 1;
	if (engine_start(test.engine, &spec, &ops, &seen, &seen.instance, &err) == 0) {
		run_until_something();
		assert_true(seen.failed);
		err = seen.failure;
		instance_free(seen.instance);
	}
	expect_no_leftovers();
	return err;
}

static void test_ns_volume_holds_the_boxs_own_ids(void **state)
{
	const char *source = in_dir("volume");
	const struct instance_mount mount = { .source = source, .target = "/data/deep" };
	struct seen seen;

	(void)state;
	mount_scratch(source, MS_NOEXEC | MS_NODEV);
	put_program(source, "plain", 0755);
	put_program(source, "setuid", 04755);
	assert_int_equal(mknod(in_dir("volume/null"), S_IFCHR | 0666, makedev(1, 3)), 0);
	start_mounted(PROFILE_STANDARD, &mount, 1, &seen);
	expect(&seen, "write /data/deep/mine", "ok");
	expect(&seen, "stat /data/deep/mine", "file 0:0 644");
	expect_owner(source, "mine", 0, 0);
	expect(&seen, "run /data/deep/plain", "exit 20");
	expect(&seen, "run /data/deep/setuid", "exit 20");
	expect(&seen, "write /data/deep/null", "EACCES");
	stop(&seen);
	start_mounted(PROFILE_STANDARD, &mount, 1, &seen);
	expect(&seen, "read /data/deep/mine", "x");
	stop(&seen);
	umount2(in_dir("volume"), MNT_DETACH);
}

static void test_ns_folder_belongs_to_one_user_of_the_box(void **state)
{
	const char *source = fresh_source("folder");
	const struct instance_mount mounts[] = {
		{ .source = source,
			.target = "/mine",
			.map_owner = true,
			.owner_uid = OWNER,
			.owner_gid = GROUP },
		{ .source = source,
			.target = "/theirs",
			.map_owner = true,
			.owner_uid = OWNER,
			.owner_gid = GROUP,
			.box_uid = 1000,
			.box_gid = 1001 },
	};
	struct seen seen;

	(void)state;
	put(source, "secret", "s", 0600);
	put(source, "roots", "r", 0600);
	assert_int_equal(lchown(in_dir("folder/secret"), OWNER, GROUP), 0);
	assert_int_equal(lchown(source, OWNER, GROUP), 0);
	start_mounted(PROFILE_STANDARD, mounts, ARRAY_LEN(mounts), &seen);
	expect(&seen, "stat /mine/secret", "file 0:0 600");
	expect(&seen, "read /mine/secret", "s");
	expect(&seen, "write /mine/new", "ok");
	expect_owner(source, "new", OWNER, GROUP);
	expect(&seen, "stat /mine/roots", "file 65534:65534 600");
	expect(&seen, "read /mine/roots", "EACCES");
	expect(&seen, "stat /theirs/secret", "file 1000:1001 600");
	expect(&seen, "write /theirs/roots-own", "EOVERFLOW");
	stop(&seen);
}

static void try_to_write(enum profile profile)
{
	const char *source = fresh_source("folder");
	const struct instance_mount mount = {
		.source = source, .target = "/ro", .read_only = true, .map_owner = true
	};
	struct seen seen;

	put(source, "file", "f", 0644);
	assert_int_equal(mknod(in_dir("folder/null"), S_IFCHR | 0666, makedev(1, 3)), 0);
	start_mounted(profile, &mount, 1, &seen);
	expect(&seen, "read /ro/file", "f");
	expect(&seen, "write /ro/file", "EROFS");
	expect(&seen, "remount /ro", "EPERM");
	expect(&seen, "write /ro/file", "EROFS");
	expect(&seen, "read /ro/null", "EACCES");
	stop(&seen);
}

static void test_ns_read_only_stays_so(void **state)
{
	(void)state;
	try_to_write(PROFILE_STANDARD);
	try_to_write(PROFILE_NESTED); /* its root may mount and remount what is its own */
}

static void test_ns_nested_root_cannot_change_box_init(void **state)
{
	struct seen seen;

	(void)state;
	start(PROFILE_NESTED, &seen);
	ask(&seen, "remount /.boxyard");
	assert_string_not_equal(ask(&seen, "write /.boxyard/box-init"), "ok");
	assert_string_not_equal(ask(&seen, "write /.boxyard/new"), "ok");
	assert_string_not_equal(ask(&seen, "unlink /.boxyard/box-init"), "ok");
	stop(&seen);
}

static void test_ns_file_is_mounted_on_a_file(void **state)
{
	const char *source = fresh_source("folder");
	char file[200];
	struct instance_mount mount = { .source = file, .target = "/etc/deep/conf" };
	struct seen seen;
	struct err err;

	(void)state;
	snprintf(file, sizeof file, "%s/conf", source);
	put(source, "conf", "of the host", 0644);
	start_mounted(PROFILE_STANDARD, &mount, 1, &seen);
	expect(&seen, "read /etc/deep/conf", "of the host");
	stop(&seen);
	mount.target = "/etc";
	err = start_refused(&mount);
	assert_int_equal(err.kind, ERR_INVALID);
	assert_non_null(strstr(err.message, "'/etc'"));
}

static void test_ns_mount_is_not_led_elsewhere_by_a_link(void **state)
{
	const struct instance_mount inside = { .source = fresh_source("folder"),
		.target = "/link/inner" };
	const struct instance_mount at = { .source = inside.source, .target = "/link" };
	struct seen seen;
	struct err err;

	(void)state;
	start(PROFILE_STANDARD, &seen);
	expect(&seen, "symlink /link", "ok"); /* to /tmp */
	stop(&seen);
	err = start_refused(&inside);
	assert_int_equal(err.kind, ERR_INVALID);
	assert_non_null(strstr(err.message, "'/link/inner'"));
	err = start_refused(&at);
	assert_int_equal(err.kind, ERR_INVALID);
	assert_non_null(strstr(err.message, "'/link'"));
}

static void test_ns_places_the_box_needs_are_not_covered(void **state)
{
	static const char *const refused[] = { "/", "", "data", "/proc", "/proc/sys", "/sys/x",
		"/dev", "/dev/shm/x", "/run", "/run/boxyard", "/run/boxyard/x", "/.boxyard",
		"/.boxyard/x", "/a/../proc", "/./proc", "//proc", "/a//b", "/a/" };
	struct instance_mount mount = { .source = fresh_source("folder") };
	char path[300];
	struct seen seen;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		struct err err;

		mount.target = refused[i];
		err = start_refused(&mount);
		if (err.kind != ERR_INVALID)
			fail_msg("'%s': %s", refused[i], err.message);
	}
	memset(path, 'a', sizeof path - 1);
	path[0] = '/';
	path[sizeof path - 1] = '\0';
	mount.target = path;
	assert_int_equal(start_refused(&mount).kind, ERR_INVALID);
	mount.target = "/run/mine";
	start_mounted(PROFILE_STANDARD, &mount, 1, &seen);
	expect(&seen, "write /run/mine/x", "ok");
	stop(&seen);
	mount.target = "/process";
	start_mounted(PROFILE_STANDARD, &mount, 1, &seen);
	stop(&seen);
}

static void test_ns_bad_sources_are_told(void **state)
{
	static const struct {
		const char *name;
		enum err_kind kind;
		const char *word;
	} cases[] = {
		{ "link", ERR_INVALID, "symbolic link" },
		{ "pipe", ERR_INVALID, "neither" },
		{ "missing", ERR_NOT_FOUND, "missing" },
	};
	struct instance_mount mount = { .target = "/data" };
	struct err err;

	(void)state;
	fresh_source("folder");
	assert_int_equal(symlink("/etc", in_dir("folder/link")), 0);
	assert_int_equal(mkfifo(in_dir("folder/pipe"), 0600), 0);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char path[200];

		snprintf(path, sizeof path, "%s/folder/%s", test.dir, cases[i].name);
		mount.source = path;
		err = start_refused(&mount);
		assert_int_equal(err.kind, cases[i].kind);
		assert_non_null(strstr(err.message, cases[i].word));
	}
	mount.source = "/proc/self/fdinfo";
	err = start_refused(&mount);
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(err.message, "is on proc,"));
}

/* Whoever looked at the folder before saw no link and this owner; both may have changed since. */
static void test_ns_a_folder_changed_since_it_was_looked_at_is_refused(void **state)
{
	const char *source = fresh_source("folder");
	struct instance_mount mount = {
		.target = "/data", .map_owner = true, .owner_uid = OWNER, .owner_gid = GROUP
	};
	char path[200];
	struct err err;

	(void)state;
	assert_int_equal(mkdir(in_dir("folder/inner"), 0755), 0);
	assert_int_equal(lchown(in_dir("folder/inner"), OWNER, GROUP), 0);
	assert_int_equal(symlink(source, in_dir("on-the-way")), 0);
	snprintf(path, sizeof path, "%s/on-the-way/inner", test.dir);
	mount.source = path;
	err = start_refused(&mount);
	assert_non_null(strstr(err.message, "goes through a symbolic link"));
	snprintf(path, sizeof path, "%s/folder/inner", test.dir);
	assert_int_equal(lchown(path, 0, GROUP), 0);
	err = start_refused(&mount);
	assert_int_equal(err.kind, ERR_STATE);
	assert_int_equal(unlink(in_dir("on-the-way")), 0);
}

static void test_ns_what_is_mounted_below_a_source_stays_out(void **state)
{
	const char *source = fresh_source("folder");
	const struct instance_mount mount = { .source = source, .target = "/data" };
	struct seen seen;

	(void)state;
	mount_scratch(in_dir("folder/below"), 0);
	put(in_dir("folder/below"), "hidden", "h", 0644);
	start_mounted(PROFILE_STANDARD, &mount, 1, &seen);
	expect(&seen, "count /data/below", "0");
	stop(&seen);
	umount2(in_dir("folder/below"), MNT_DETACH);
}

static int count_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void test_ns_many_mounts_come_in_order_and_leak_nothing(void **state)
{
	static char targets[INSTANCE_MOUNTS_MAX + 1][64];
	struct instance_mount mounts[INSTANCE_MOUNTS_MAX + 1];
	const char *source = fresh_source("folder");
	struct instance_spec spec = spec_of(PROFILE_NESTED);
	struct seen seen = { 0 };
	struct err err = ERR_INIT;
	int before;

	(void)state;
	/* Each lies in the one before. */
	for (unsigned i = 0; i <= INSTANCE_MOUNTS_MAX; i++) {
		snprintf(targets[i], sizeof targets[i], "/m%s", i % 2 ? "/inner" : "");
		mounts[i] = (struct instance_mount){
			.source = source, .target = targets[i], .map_owner = i % 3 == 0
		};
	}
	start_mounted(PROFILE_NESTED, mounts, 2, &seen);
	stop(&seen);
	before = count_fds();
	for (int i = 0; i < 5; i++) {
		start_mounted(PROFILE_NESTED, mounts, INSTANCE_MOUNTS_MAX, &seen);
		expect(&seen, "write /m/inner/x", "ok");
		stop(&seen);
	}
	assert_int_equal(count_fds(), before);
	expect_owner(source, "x", 0, 0);
	spec.mounts = mounts;
	spec.mount_count = ARRAY_LEN(mounts);
	assert_int_equal(engine_start(test.engine, &spec, &ops, &seen, &seen.instance, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
}

static int make_apart(void **state)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	return make_home(state);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		NS_TEST_BOTH_WAYS(test_ns_stacks_sixty_layers),
		NS_TEST_BOTH_WAYS(test_ns_stacks_layers_of_several_mounts),
		NS_TEST_BOTH_WAYS(test_ns_stacks_layers_reached_through_a_link),
		NS_TEST_BOTH_WAYS(test_ns_takes_no_more_layers_than_it_can),
		NS_TEST_BOTH_WAYS(test_ns_box_is_free_on_a_mount_that_is_not),
		NS_TEST_BOTH_WAYS(test_ns_volume_holds_the_boxs_own_ids),
		NS_TEST(test_ns_folder_belongs_to_one_user_of_the_box),
		NS_TEST_BOTH_WAYS(test_ns_read_only_stays_so),
		NS_TEST(test_ns_nested_root_cannot_change_box_init),
		NS_TEST(test_ns_file_is_mounted_on_a_file),
		NS_TEST(test_ns_mount_is_not_led_elsewhere_by_a_link),
		NS_TEST(test_ns_places_the_box_needs_are_not_covered),
		NS_TEST(test_ns_bad_sources_are_told),
		NS_TEST(test_ns_a_folder_changed_since_it_was_looked_at_is_refused),
		NS_TEST(test_ns_what_is_mounted_below_a_source_stays_out),
		NS_TEST_BOTH_WAYS(test_ns_many_mounts_come_in_order_and_leak_nothing),
	};

	return cmocka_run_group_tests(tests, make_apart, remove_home);
}

int main(void)
{
	return run_ns_tests("test_ns_mounts", run);
}
