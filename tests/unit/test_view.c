/* test_view.c - layers as overlayfs makes them: merged, packed, compared
 *
 * Layers are made by random work in real overlay mounts, and what view_diff tells is held against a
 * plain comparison of the two merged trees. */
#include "view_fixture.h"
#include <ftw.h>
#include <sched.h>

/* ---- random work ---------------------------------------------------------------------------- */

static unsigned seed;
static char **found;

static unsigned any(unsigned below)
{
	return (unsigned)rand_r(&seed) % below;
}

static int add_found(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	strv_add(&found, path);
	return 0;
}

static const char *any_path(const char *top)
{
	strv_free(found);
	found = NULL;
	nftw(top, add_found, 20, FTW_PHYS);
	return found[any((unsigned)strv_len((const char *const *)found))];
}

/* A name in a folder that is there, if what was picked is one. */
static char *any_new(const char *top)
{
	static const char *const names[] = { "a", "b", "c", "d.txt", "a-", "with\nnewline",
		"caf\xc3\xa9" };

	return xasprintf("%s/%s", any_path(top), names[any(ARRAY_LEN(names))]);
}

static void put_text(const char *path, int flags)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0644);
	char text[16];
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		snprintf(text, sizeof text, "%u", any(5));
		assert_int_equal(fd_write_all(fd, text, strlen(text), NULL), 0);
	}
	if (fd >= 0)
		close(fd);
}

/* Much of it fails, for the path is the wrong kind of thing; the rest is enough. */
static void do_something(const char *top)
{
	_cleanup_free_ char *a = any_new(top), *b = any_new(top), *c = xstrdup(any_path(top));
	bool is_top = !strcmp(c, top);

	switch (any(16)) {
	case 0:
	case 1:
		put_text(a, O_TRUNC);
		break;
	case 2:
		put_text(c, O_APPEND);
		break;
	case 3:
	case 4:
		mkdir(a, any(2) ? 0755 : 01777);
		break;
	case 5:
		if (!is_top)
			fchmodat(AT_FDCWD, c, any(2) ? 0700 : 04755, AT_SYMLINK_NOFOLLOW);
		break;
	case 6:
		lchown(c, any(3), any(3));
		break;
	case 7:
		rename(a, b);
		break;
	case 8:
		if (!is_top)
			tree_remove(AT_FDCWD, c, NULL);
		break;
	case 9: /* a folder over what was there: opaque */
		if (!is_top && tree_remove(AT_FDCWD, c, NULL) == 0)
			mkdir(c, 0755);
		break;
	case 10: /* a file in place of it */
		if (!is_top && tree_remove(AT_FDCWD, c, NULL) == 0)
			put_text(c, 0);
		break;
	case 11:
		link(c, a);
		break;
	case 12:
		symlink(any(2) ? "a" : "../b", a);
		break;
	case 13:
		if (any(2))
			mkfifo(a, 0600);
		else
			mknod(a, S_IFCHR | 0666, makedev(1, 3 + 2 * any(2)));
		break;
	case 14:
		lsetxattr(c, "user.t", any(2) ? "x" : "y", 1, 0);
		break;
	case 15: /* touched, not changed */
		utimensat(AT_FDCWD, c, NULL, AT_SYMLINK_NOFOLLOW);
		break;
	}
}

/* Mounts the layers with a new one called name on top, works in it, and unmounts. */
static void make_layer(const char *const *layers, const char *name, unsigned steps)
{
	_cleanup_free_ char *upper = in_place(name), *work = in_place("work"),
			    *merged = in_place("merged");
	struct buf options = BUF_INIT;

	mkdir(work, 0700);
	mkdir(merged, 0700);
	assert_int_equal(mkdir(upper, 0755), 0);
	for (size_t i = 0; layers[i]; i++)
		buf_addf(&options, "%s%s", i ? ":" : "redirect_dir=nofollow,lowerdir=", layers[i]);
	buf_addf(&options, ",upperdir=%s,workdir=%s", upper, work);
	assert_int_equal(mount("overlay", merged, "overlay", 0, buf_str(&options)), 0);
	buf_done(&options);
	for (unsigned i = 0; i < steps; i++)
		do_something(merged);
	assert_int_equal(umount(merged), 0);
	assert_int_equal(tree_remove(AT_FDCWD, work, NULL), 0);
}

static void test_view_diff_equals_plain_comparison(void **state)
{
	_cleanup_free_ char *base = in_place("base"), *a = in_place("a"), *b = in_place("b"),
			    *c = in_place("c"), *d = in_place("d");
	const char *const on_base[] = { base, NULL }, *const on_a[] = { a, base, NULL },
			  *const on_b[] = { b, a, base, NULL },
			  *const on_c[] = { c, b, a, base, NULL },
			  *const on_d[] = { d, a, base, NULL };
	const char *const *const stacks[] = { on_base, on_a, on_b, on_c, on_d };
	unsigned rounds = getenv("BOX_TEST_ROUNDS") ? (unsigned)atoi(getenv("BOX_TEST_ROUNDS")) : 6;

	for (unsigned round = 0; round < rounds; round++) {
		const char *const names[] = { "base", "a", "b", "c", "d" };

		seed = round;
		assert_int_equal(mkdir("base", 0755), 0);
		for (unsigned i = 0; i < 120; i++)
			do_something(base);
		make_layer(on_base, "a", 40);
		make_layer(on_a, "b", 40);
		make_layer(on_b, "c", 40);
		make_layer(on_a, "d", 40);
		for (size_t i = 0; i < ARRAY_LEN(stacks); i++)
			for (size_t j = 0; j < ARRAY_LEN(stacks); j++) {
				assert_diff_is_right(stacks[i], stacks[j]);
				assert_pack_leads_there(stacks[i], stacks[j]);
			}
		for (size_t i = 0; i < ARRAY_LEN(names); i++)
			assert_int_equal(tree_remove(AT_FDCWD, names[i], NULL), 0);
	}
	strv_free(found);
	found = NULL;
}

/* ---- promises ------------------------------------------------------------------------------- */

static void make_two_layers(void)
{
	mkdir("low", 0755);
	mkdir("low/dir", 0755);
	mkdir("high", 0755);
	mkdir("high/dir", 0755);
	write_text("low/dir/below", "1");
	write_text("low/hidden", "2");
	write_text("high/dir/above", "3");
	assert_int_equal(mknod("high/hidden", S_IFCHR, 0), 0);
}

static void test_view_by_mount_is_the_same(void **state)
{
	_cleanup_free_ char *low = in_place("low"), *high = in_place("high"), *mounts = NULL;
	const char *const layers[] = { high, low, NULL };
	_cleanup_close_ int view = -1, other = -1;
	struct err err = ERR_INIT;

	make_two_layers();
	view = open_view(layers);
	must(view_open_by_mount(layers, &other, &err) == 0, "view_open_by_mount", &err);
	assert_same_trees(view, other);
	assert_int_equal(faccessat(other, "dir/below", F_OK, 0), 0);
	assert_int_equal(faccessat(other, "hidden", F_OK, 0), -1);
	assert_int_equal(openat(view, "new", O_CREAT | O_WRONLY | O_CLOEXEC, 0600), -1);
	assert_int_equal(
		file_read(AT_FDCWD, "/proc/self/mountinfo", 1 << 20, &mounts, NULL, NULL), 0);
	assert_null(strstr(mounts, high));
}

static void test_view_of_one_layer_shows_no_whiteouts(void **state)
{
	_cleanup_free_ char *high = in_place("high");
	const char *const layers[] = { high, NULL };
	int dir;

	make_two_layers();
	mkfifo("high/fifo", 0600);
	assert_int_equal(unlink("high/hidden"), 0);
	dir = copy_view(layers, "copy");
	assert_int_equal(mknod("high/hidden", S_IFCHR, 0), 0);
	assert_int_equal(mknod("high/dir/hidden", S_IFCHR, 0), 0);
	{
		_cleanup_close_ int view = open_view(layers), archive = new_file();
		struct view_pack_spec spec = { .root = view, .path = "", .out = archive };
		struct view_totals totals;

		assert_int_equal(view_pack(&spec, &totals, NULL), 0);
		assert_int_equal(totals.files, 3);
		assert_int_equal(apply(archive, dir), 3);
		assert_int_equal(faccessat(dir, "hidden", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	}
	close(dir);
}

static void test_view_stat_follows_no_links(void **state)
{
	_cleanup_free_ char *high = in_place("high"), *low = in_place("low");
	const char *const layers[] = { high, low, NULL };
	struct stat st;

	make_two_layers();
	write_text("high/dir/text", "seven..");
	assert_int_equal(symlink("/etc/passwd", "high/link"), 0);
	assert_int_equal(symlink("dir", "high/dirlink"), 0);
	unlink("high/gone");
	write_text("low/gone", "x");
	assert_int_equal(mknod("high/gone", S_IFCHR, 0), 0);
	{
		_cleanup_close_ int view = open_view(layers);

		assert_true(view_stat(view, "dir/text", &st) && st.st_size == 7);
		assert_true(view_stat(view, "link", &st) && S_ISLNK(st.st_mode));
		assert_false(view_stat(view, "dirlink/text", &st));
		assert_false(view_stat(view, "gone", &st));
		assert_false(view_stat(view, "../low/gone", &st));
		assert_false(view_stat(view, "none/at/all", &st));
	}
}

static void test_view_pack_takes_folders_and_files_by_path(void **state)
{
	_cleanup_free_ char *low = in_place("low"), *high = in_place("high");
	const char *const layers[] = { high, low, NULL };
	_cleanup_close_ int view = -1, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct view_pack_spec spec = { .out = null };
	struct view_totals totals;
	struct err err = ERR_INIT;

	make_two_layers();
	assert_int_equal(symlink("/etc", "high/way-out"), 0);
	spec.root = view = open_view(layers);
	spec.path = "/dir/";
	assert_int_equal(view_pack(&spec, &totals, &err), 0);
	assert_int_equal(totals.files, 2);
	spec.path = "dir/above";
	assert_int_equal(view_pack(&spec, &totals, &err), 0);
	assert_int_equal(totals.files, 1);
	assert_int_equal(totals.bytes, 1);
	spec.path = "way-out";
	assert_int_equal(view_pack(&spec, &totals, &err), 0); /* the link itself */
	assert_int_equal(totals.files, 1);
	assert_int_equal(totals.bytes, 0);
	spec.path = "dir/none";
	assert_int_equal(view_pack(&spec, &totals, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	spec.path = "way-out/passwd";
	assert_int_equal(view_pack(&spec, &totals, &err), -1);
	spec.path = "dir/../../etc";
	assert_int_equal(view_pack(&spec, &totals, &err), -1);
}

static void test_view_gnu_tar_reads_what_is_packed(void **state)
{
	_cleanup_free_ char *low = in_place("low"), *high = in_place("high"),
			    *copy = in_place("copy"), *long_name = NULL;
	const char *const layers[] = { high, low, NULL };
	_cleanup_close_ int view = -1, dir = -1;
	struct view_pack_spec spec = { .path = "" };
	struct view_totals totals;
	struct err err = ERR_INIT;
	FILE *tar;
	char command[200];

	make_two_layers();
	long_name = xasprintf("high/dir/%0200d", 1);
	write_text(long_name, "long");
	assert_int_equal(setxattr(long_name, "user.t", "two\nlines", 9, 0), 0);
	assert_int_equal(lchown(long_name, 3000000, 12), 0);
	assert_int_equal(chmod(long_name, 06751), 0);
	assert_int_equal(link(long_name, "high/link"), 0);
	mkdir(copy, 0755);
	spec.root = view = open_view(layers);
	snprintf(command, sizeof command, "tar -C %s -xpf - --xattrs --numeric-owner", copy);
	tar = popen(command, "we");
	assert_non_null(tar);
	spec.out = fileno(tar);
	must(view_pack(&spec, &totals, &err) == 0, "view_pack", &err);
	assert_int_equal(pclose(tar), 0);
	dir = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_same_trees(view, dir);
}

enum { DEEP = 10000 };

static void make_deep(const char *top)
{
	int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (unsigned i = 0; i < DEEP; i++) {
		int next;

		assert_int_equal(mkdirat(fd, "deep", 0755), 0);
		/* Visited after the folder, so the walk comes back to each level. */
		assert_int_equal(mknodat(fd, "last", S_IFREG | 0644, 0), 0);
		next = openat(fd, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(fd);
		fd = next;
	}
	close(fd);
}

static int count_change(enum view_change change, const char *path, const struct stat *st, void *arg,
	struct err *err)
{
	assert_int_equal(change, VIEW_ADDED);
	++*(unsigned *)arg;
	return 0;
}

static void test_view_walks_trees_of_any_depth(void **state)
{
	_cleanup_free_ char *low = in_place("low"), *high = in_place("high");
	const char *const old[] = { low, NULL }, *const new[] = { high, low, NULL };
	_cleanup_close_ int view = -1, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct view_pack_spec spec = { .path = "", .out = null };
	struct view_totals totals;
	struct err err = ERR_INIT;
	unsigned count = 0;
	uint64_t too_deep;

	mkdir("low", 0755);
	mkdir("high", 0755);
	make_deep("high");
	spec.root = view = open_view(new);
	must(view_measure(view, "", &totals, &err) == 0, "view_measure", &err);
	assert_int_equal(totals.files, 2 * DEEP);
	/* "deep/" for each level: told as far as a path reaches, and packed not at all. */
	must(view_diff(old, new, count_change, &count, &too_deep, &err) == 0, "view_diff", &err);
	assert_int_equal(count, 2 * ((VIEW_PATH_MAX + 1) / 5));
	assert_int_equal(too_deep, 2);
	assert_int_equal(view_pack(&spec, NULL, &err), -1);
	assert_int_equal(err.kind, ERR_TOO_LARGE);
	err = (struct err)ERR_INIT;
	assert_int_equal(view_diff_pack(old, new, null, NULL, &err), -1);
	assert_int_equal(err.kind, ERR_TOO_LARGE);
}

static void test_view_diff_sees_what_an_opaque_folder_hides(void **state)
{
	_cleanup_free_ char *low = in_place("low"), *high = in_place("high"),
			    *top = in_place("top");
	const char *const old[] = { low, NULL }, *const new[] = { high, low, NULL },
			  *const newer[] = { top, high, low, NULL };
	struct buf told = BUF_INIT;
	struct err err = ERR_INIT;

	assert_int_equal(dir_make_all("low/dir/sub/below", 0755, NULL), 0);
	write_text("low/dir/sub/below/file", "1");
	assert_int_equal(dir_make_all("high/dir/sub/below", 0755, NULL), 0);
	assert_int_equal(setxattr("high/dir", "trusted.overlay.opaque", "y", 1, 0), 0);
	must(view_diff(old, new, list_change, &told, NULL, &err) == 0, "view_diff", &err);
	assert_string_equal(buf_str(&told), "removed dir/sub/below/file\n");
	buf_done(&told);

	/* A mark two layers down hides as much. */
	assert_int_equal(tree_remove(AT_FDCWD, "high/dir", NULL), 0);
	assert_int_equal(mknod("high/dir", S_IFCHR, 0), 0);
	assert_int_equal(dir_make_all("top/dir/sub/below", 0755, NULL), 0);
	must(view_diff(old, newer, list_change, &told, NULL, &err) == 0, "view_diff", &err);
	assert_string_equal(buf_str(&told), "removed dir/sub/below/file\n");
	buf_done(&told);
}

static void test_view_diff_refuses_redirects(void **state)
{
	_cleanup_free_ char *low = in_place("low"), *high = in_place("high");
	const char *const old[] = { low, NULL }, *const new[] = { high, low, NULL };
	struct buf told = BUF_INIT;
	struct err err = ERR_INIT;

	make_two_layers();
	assert_int_equal(setxattr("high/dir", "trusted.overlay.redirect", "other", 5, 0), 0);
	assert_int_equal(view_diff(old, new, list_change, &told, NULL, &err), -1);
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(err.message, "'/dir'"));
	buf_done(&told);
}

static void test_view_diff_passes_over_common_holes(void **state)
{
	_cleanup_free_ char *low = in_place("low"), *high = in_place("high");
	const char *const old[] = { low, NULL }, *const new[] = { high, low, NULL };
	const char *const files[] = { "low/same", "high/same", "low/other", "high/other" };
	struct buf told = BUF_INIT;
	struct err err = ERR_INIT;

	mkdir("low", 0755);
	mkdir("high", 0755);
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		write_text(files[i], "x");
		assert_int_equal(truncate(files[i], 1ll << 42), 0); /* hours to read */
	}
	{
		_cleanup_close_ int fd = open("high/other", O_WRONLY | O_CLOEXEC);

		assert_int_equal(pwrite(fd, "y", 1, (1ll << 42) - 1), 1);
	}
	must(view_diff(old, new, list_change, &told, NULL, &err) == 0, "view_diff", &err);
	assert_string_equal(buf_str(&told), "changed other\n");
	buf_done(&told);
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		IN_PLACE(test_view_diff_equals_plain_comparison),
		IN_PLACE(test_view_by_mount_is_the_same),
		IN_PLACE(test_view_of_one_layer_shows_no_whiteouts),
		IN_PLACE(test_view_stat_follows_no_links),
		IN_PLACE(test_view_pack_takes_folders_and_files_by_path),
		IN_PLACE(test_view_gnu_tar_reads_what_is_packed),
		IN_PLACE(test_view_walks_trees_of_any_depth),
		IN_PLACE(test_view_diff_sees_what_an_opaque_folder_hides),
		IN_PLACE(test_view_diff_refuses_redirects),
		IN_PLACE(test_view_diff_passes_over_common_holes),
	};
	int failed;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		print_message("needs root: skipped\n");
		return 77;
	}
	if (!mkdtemp(place))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(place);
	return failed;
}
