/* test_image_file.c - images as one file: what is in it, who waits for it, what damages it; needs
 * root */
#include "image_fixture.h"
#include "view/view.h"
#include <errno.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define ID "aaaaaaaaaa"
static const struct image_extra plain = { .key = "k1" };

struct answer {
	struct fixture *f;
	unsigned done, progressed;
	char *path;
	struct err err;
};

static void on_file_progress(const char *text, void *arg)
{
	struct answer *answer = arg;

	assert_non_null(strstr(text, "building the disk file of image 'tool'"));
	answer->progressed++;
}

static void on_file_done(const char *path, const struct err *err, void *arg)
{
	struct answer *answer = arg;

	assert_true(!path == !!err);
	answer->done++;
	if (err)
		answer->err = *err;
	free(answer->path);
	answer->path = path ? xstrdup(path) : NULL;
	loop_stop(answer->f->loop);
}
static const struct image_file_ops file_ops = { on_file_progress, on_file_done };

static struct image_file_wait *start(
	struct fixture *f, const struct image_extra *extra, struct answer *answer)
{
	const struct image *image = images_get(f->images, ID, NULL);
	struct image_file_wait *wait = NULL;
	struct err err = ERR_INIT;

	*answer = (struct answer){ .f = f };
	if (image_file_start(f->images, image, extra, &file_ops, answer, &wait, &err) < 0)
		fail_msg("%s", err.message);
	return wait;
}

static void wait_for(struct fixture *f, const struct answer *answer)
{
	for (int i = 0; i < 60 && !answer->done; i++)
		run_for(f, 500);
	assert_int_equal(answer->done, 1);
}

static char *make(struct fixture *f, const struct image_extra *extra)
{
	struct answer answer;

	start(f, extra, &answer);
	wait_for(f, &answer);
	if (!answer.path)
		fail_msg("%s", answer.err.message);
	assert_true(answer.progressed > 0);
	return answer.path;
}

/* ---- what is in it -------------------------------------------------------------------------- */

static char *in_layer(const struct fixture *f, const char *layer, const char *name)
{
	return xasprintf("%s/layers/%s/files/%s", f->home, layer, name);
}

static void put_text(const struct fixture *f, const char *layer, const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("layers/%s/files/%s", layer, name);

	put(f, path, text);
}

/* Two layers with everything that files can be. */
static void put_tree(struct fixture *f)
{
	static const char capability[20] = { 0, 0, 0, 2, 0, 4 };
	_cleanup_free_ char *ping = in_layer(f, "low", "usr/bin/ping");
	_cleanup_free_ char *pong = in_layer(f, "low", "usr/bin/pong");
	_cleanup_free_ char *etc = in_layer(f, "low", "etc"), *lib = in_layer(f, "low", "lib");
	_cleanup_free_ char *hole = in_layer(f, "low", "hole");
	_cleanup_free_ char *fifo = in_layer(f, "low", "fifo"), *tty = in_layer(f, "low", "tty");
	_cleanup_free_ char *gone = in_layer(f, "high", "gone");
	_cleanup_free_ char *opaque = in_layer(f, "high", "opaque");
	const struct timespec times[2] = { { 1000000000, 123456789 }, { 1234567890, 987654321 } };

	put_own(f, ID, "tool", 1000000, "", LAYERS("high", "low"));
	put_text(f, "low", "etc/passwd", "root:x:0:0::/:/bin/sh\n");
	put_text(f, "low", "usr/bin/ping", "ping");
	put_text(f, "low", "gone", "x");
	put_text(f, "low", "opaque/below", "x");
	put_text(f, "low", "hole", "");
	put_text(f, "high", "opaque/above", "y");
	put_text(f, "high", "etc/passwd", "changed");
	put_text(f, "high", "proc", "no folder");
	assert_int_equal(truncate(hole, 64 * 1024 * 1024), 0);
	assert_int_equal(link(ping, pong), 0);
	assert_int_equal(symlink("usr/lib", lib), 0);
	assert_int_equal(mkfifo(fifo, 0640), 0);
	assert_int_equal(mknod(tty, S_IFCHR | 0620, makedev(5, 0)), 0);
	assert_int_equal(mknod(gone, S_IFCHR, 0), 0);
	assert_int_equal(setxattr(opaque, "trusted.overlay.opaque", "y", 1, 0), 0);
	assert_int_equal(setxattr(etc, "trusted.mine", "1", 1, 0), 0);
	assert_int_equal(chown(ping, 123456, 654), 0);
	assert_int_equal(chmod(ping, 04751), 0);
	assert_int_equal(
		setxattr(ping, "security.capability", capability, sizeof capability, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, ping, times, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, lib, times, AT_SYMLINK_NOFOLLOW), 0);
	fixture_reopen(f);
}

/* The kernel reads it; a loop device goes with its mount. */
static bool mount_file(const char *path, const char *at)
{
	_cleanup_free_ char *command =
		xasprintf("mount -t erofs -o ro,loop %s %s 2>/dev/null", path, at);

	mkdir(at, 0755);
	return system(command) == 0;
}

static struct stat look(const char *root, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", root, name);
	struct stat st;

	if (lstat(path, &st) < 0)
		fail_msg("'%s' is missing: %s", name, strerror(errno));
	return st;
}

static void check_text(const char *root, const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", root, name), *got = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 4096, &got, NULL, NULL), 0);
	assert_string_equal(got, text);
}

static void check_tree(const char *root)
{
	_cleanup_free_ char *ping = xasprintf("%s/usr/bin/ping", root);
	_cleanup_free_ char *gone = xasprintf("%s/gone", root);
	_cleanup_free_ char *below = xasprintf("%s/opaque/below", root);
	struct stat st = look(root, "usr/bin/ping"), other = look(root, "usr/bin/pong");
	char value[32];

	assert_int_equal(st.st_uid, 123456);
	assert_int_equal(st.st_gid, 654);
	assert_int_equal(st.st_mode, S_IFREG | 04751);
	assert_int_equal(st.st_mtim.tv_sec, 1234567890);
	assert_int_equal(st.st_mtim.tv_nsec, 987654321);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(st.st_ino, other.st_ino);
	assert_int_equal(getxattr(ping, "security.capability", value, sizeof value), 20);
	st = look(root, "hole");
	assert_int_equal(st.st_size, 64 * 1024 * 1024);
	st = look(root, "tty");
	assert_int_equal(st.st_rdev, makedev(5, 0));
	assert_true(S_ISFIFO(look(root, "fifo").st_mode));
	st = look(root, "lib");
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(st.st_mtim.tv_nsec, 987654321);
	check_text(root, "etc/passwd", "changed");
	check_text(root, "opaque/above", "y");
	assert_int_equal(access(gone, F_OK), -1);
	assert_int_equal(access(below, F_OK), -1);
	assert_int_equal(getxattr(gone, "trusted.overlay.opaque", value, sizeof value), -1);
}

static void test_the_file_holds_what_the_image_does(void **state)
{
	static const char *const folders[] = { "proc", "workspace", "usr/local/bin", NULL };
	struct fixture *f = *state;
	_cleanup_free_ char *root = xasprintf("%s/mounted", f->home);
	_cleanup_free_ char *modules = xasprintf("%s/modules", f->home), *path = NULL;
	const struct image_extra extra = {
		.key = "k2", .modules = modules, .release = "6.1-x", .folders = folders
	};
	struct stat st;

	put_tree(f);
	put(f, "modules/kernel/fs/erofs.ko", "module");
	path = make(f, &extra);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	assert_true(st.st_size < 1024 * 1024); /* the hole takes none */
	if (!mount_file(path, root)) {
		print_message("this kernel has no erofs: what is in the file is not looked at\n");
		skip();
	}
	check_tree(root);
	check_text(root, "usr/lib/modules/6.1-x/kernel/fs/erofs.ko", "module");
	assert_true(S_ISDIR(look(root, "proc").st_mode));
	assert_true(S_ISDIR(look(root, "workspace").st_mode));
	assert_true(S_ISDIR(look(root, "usr/local/bin").st_mode));
	assert_int_equal(umount(root), 0);
}

static void test_the_same_image_gives_the_same_bytes(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = NULL, *again = NULL, *kept = NULL, *command = NULL;

	put_tree(f);
	path = make(f, &plain);
	kept = xasprintf("%s/kept", f->home);
	assert_int_equal(rename(path, kept), 0);
	run_for(f, 1100); /* another second on the clock */
	again = make(f, &plain);
	assert_string_equal(path, again);
	command = xasprintf("cmp %s %s", kept, again);
	assert_int_equal(system(command), 0);
}

/* ---- who waits for it ----------------------------------------------------------------------- */

static void test_two_share_one_build_and_one_may_leave(void **state)
{
	struct fixture *f = *state;
	struct answer first, second, third;
	struct image_file_wait *wait;
	const struct file_build *build;

	put_tree(f);
	assert_null(image_file_find(f->images, images_get(f->images, ID, NULL), &plain));
	wait = start(f, &plain, &first);
	build = f->images->builds;
	assert_non_null(build);
	start(f, &plain, &second);
	assert_ptr_equal(f->images->builds, build);
	image_file_cancel(wait);
	wait_for(f, &second);
	assert_int_equal(first.done, 0);
	assert_null(f->images->builds);
	/* Nobody waits: it is made all the same. */
	assert_int_equal(unlink(second.path), 0);
	image_file_cancel(start(f, &plain, &third));
	for (int i = 0; i < 100 && f->images->builds; i++)
		run_for(f, 100);
	assert_int_equal(access(second.path, F_OK), 0);
	assert_int_equal(third.done, 0);
	free(second.path);
}

static void test_a_build_that_is_cut_off_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	_cleanup_strv_ char **left = NULL;
	struct answer answer;

	put_tree(f);
	start(f, &plain, &answer);
	fixture_reopen(f);
	assert_int_equal(answer.done, 0);
	run_for(f, 500);
	left = folder_list(f->images->disks_path);
	assert_null(left);
	strv_free(left);
	left = folder_list(f->images->downloads_path);
	assert_null(left);
}

/* ---- damage, and its end -------------------------------------------------------------------- */

static void test_a_damaged_file_is_made_again(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = NULL, *found = NULL;
	const struct image *image;
	_cleanup_close_ int fd = -1;
	struct stat st;

	put_tree(f);
	image = images_get(f->images, ID, NULL);
	path = make(f, &plain);
	found = image_file_find(f->images, image, &plain);
	assert_string_equal(found, path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(pwrite(fd, "x", 1, 1024 + 100), 1);
	assert_null(image_file_find(f->images, image, &plain));
	assert_int_equal(access(path, F_OK), -1); /* it is gone at once */
	free(make(f, &plain));
	assert_int_equal(truncate(path, st.st_size - 4096), 0);
	assert_null(image_file_find(f->images, image, &plain));
	free(make(f, &plain));
	assert_int_equal(truncate(path, 100), 0);
	assert_null(image_file_find(f->images, image, &plain));
}

static json_int_t told(struct fixture *f, const char *key)
{
	_cleanup_json_ json_t *json = image_json(f->images, images_get(f->images, ID, NULL));

	return json_integer_value(json_object_get(json, key));
}

static void test_it_is_counted_and_goes_with_its_image(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = NULL, *orphan = NULL;
	json_int_t own;
	struct err err = ERR_INIT;

	put_tree(f);
	own = told(f, "own_bytes");
	assert_int_equal(told(f, "file_bytes"), 0);
	path = make(f, &plain);
	assert_true(told(f, "file_bytes") > 0);
	assert_int_equal(told(f, "own_bytes"), own + told(f, "file_bytes"));
	fixture_reopen(f);
	assert_true(told(f, "file_bytes") > 0);
	assert_int_equal(images_remove(f->images, ID, &err), 0);
	assert_int_equal(access(path, F_OK), -1);
	put(f, "image-files/bbbbbbbbbb-k1.erofs", "of nobody");
	put(f, "image-files/notes", "somebody's own");
	fixture_reopen(f);
	assert_false(is_there(f, "image-files/bbbbbbbbbb-k1.erofs"));
	assert_true(is_there(f, "image-files/notes"));
}

static void test_gc_takes_files_of_images_that_nobody_uses(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *dry = NULL, *wet = NULL;
	_cleanup_free_ char *path = NULL;
	struct err err = ERR_INIT;

	put_tree(f);
	path = make(f, &plain);
	dry = images_gc(f->images, true, &err);
	assert_int_equal(json_integer_value(json_object_get(dry, "files")), 1);
	assert_int_equal(access(path, F_OK), 0);
	wet = images_gc(f->images, false, &err);
	assert_true(json_equal(dry, wet));
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(told(f, "file_bytes"), 0);
}

static void test_without_the_program_it_says_what_to_install(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = xstrdup(getenv("PATH"));
	struct image_file_wait *wait;
	struct answer answer = { .f = f };
	struct err err = ERR_INIT;

	put_tree(f);
	setenv("PATH", "/nowhere", 1);
	assert_int_equal(image_file_start(f->images, images_get(f->images, ID, NULL), &plain,
				 &file_ops, &answer, &wait, &err),
		-1);
	setenv("PATH", path, 1);
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(err.hint, "erofs-utils"));
}

/* A home of its own with so little room that the image does not fit a second time. */
static void test_a_full_disk_is_told(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *noise = in_layer(f, "low", "noise");
	_cleanup_free_ char *command = xasprintf("head -c 40000000 /dev/urandom > %s", noise);
	struct answer answer;
	struct image_file_wait *wait;
	struct err err = ERR_INIT;

	fixture_close(f);
	assert_int_equal(mount("small", f->home, "tmpfs", 0, "size=64m,mode=755"), 0);
	fixture_open(f);
	put_tree(f);
	assert_int_equal(system(command), 0);
	answer = (struct answer){ .f = f };
	if (image_file_start(f->images, images_get(f->images, ID, NULL), &plain, &file_ops, &answer,
		    &wait, &err) == 0) {
		wait_for(f, &answer);
		assert_null(answer.path);
		err = answer.err;
	}
	assert_int_equal(err.kind, ERR_LIMIT);
	assert_non_null(strstr(err.hint, "space"));
	fixture_close(f);
	umount2(f->home, MNT_DETACH);
	fixture_open(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_the_file_holds_what_the_image_does),
		TEST(test_the_same_image_gives_the_same_bytes),
		TEST(test_two_share_one_build_and_one_may_leave),
		TEST(test_a_build_that_is_cut_off_leaves_nothing),
		TEST(test_a_damaged_file_is_made_again),
		TEST(test_it_is_counted_and_goes_with_its_image),
		TEST(test_gc_takes_files_of_images_that_nobody_uses),
		TEST(test_without_the_program_it_says_what_to_install),
		TEST(test_a_full_disk_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
