/* test_unpack.c - archives of layers become folders: whole, in order, and never outside of them
 *
 * Needs root: whiteouts are devices, opaque folders have attributes only root may set. */
#include "source_fixture.h"
#include "image/oci_internal.h"
#include "base/file.h"
#include "tar/tar.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <cmocka.h>

static char base[] = "/tmp/test-unpack-XXXXXX";
static char *layers[8]; /* lowest first */
static size_t layer_count;
static struct buf tar;
static struct unpack_totals totals;

/* ---- making archives ------------------------------------------------------------------------ */

static void put_zeros(size_t len)
{
	memset(buf_room(&tar, len), 0, len);
	buf_grew(&tar, len);
}

static void put_entry(const struct tar_entry *entry, const char *content)
{
	tar_put_header(&tar, entry);
	buf_add(&tar, content, entry->size);
	put_zeros(tar_fill(entry->size));
}

static void put_file(const char *name, const char *content)
{
	put_entry(&(struct tar_entry){ .type = TAR_FILE,
			  .name = name,
			  .size = strlen(content),
			  .mode = 0644,
			  .mtime = 1000 },
		content);
}

static void put_dir(const char *name, uint32_t mode)
{
	put_entry(&(struct tar_entry){ .type = TAR_DIR, .name = name, .mode = mode, .mtime = 2000 },
		"");
}

static void put_link(enum tar_type type, const char *name, const char *to)
{
	put_entry(&(struct tar_entry){ .type = type, .name = name, .link = to, .mode = 0777 }, "");
}

/* ---- unpacking them ------------------------------------------------------------------------- */

/* What was put becomes the next layer. */
static int unpack_with(struct unpack_spec *spec, struct err *err)
{
	struct source source;
	const char *lowers[ARRAY_LEN(layers) + 1] = { NULL };
	_cleanup_close_ int dir = -1;
	int code;

	put_zeros(TAR_END_SIZE);
	source = (struct source){ buf_head(&tar), tar.len, 3000 };
	for (size_t i = 0; i < layer_count; i++)
		lowers[layer_count - 1 - i] = layers[i];
	layers[layer_count] = xasprintf("%s/layer%zu", base, layer_count);
	assert_int_equal(mkdir(layers[layer_count], 0755), 0);
	dir = open(layers[layer_count], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	layer_count++;
	spec->dir = dir;
	spec->lowers = lowers;
	spec->read = read_source;
	spec->arg = &source;
	code = unpack_layer(spec, &totals, err);
	assert_true(code < 0 || source.len == 0);
	buf_done(&tar);
	tar = (struct buf)BUF_INIT;
	return code;
}

static int unpack(struct err *err)
{
	return unpack_with(
		&(struct unpack_spec){ .whiteouts = true, .bytes_max = 1 << 20, .files_max = 1000 },
		err);
}

static void unpack_well(void)
{
	struct err err = ERR_INIT;

	if (unpack(&err) < 0)
		fail_msg("%s", err.message);
}

static void refuse(enum err_kind kind)
{
	struct err err = ERR_INIT;

	assert_int_equal(unpack(&err), -1);
	if (err.kind != kind)
		fail_msg("kind %d: %s", err.kind, err.message);
}

/* In the last layer. */
static char *path_of(const char *name)
{
	static char path[8192];

	snprintf(path, sizeof path, "%s/%s", layers[layer_count - 1], name);
	return path;
}

static struct stat stat_of(const char *name)
{
	struct stat st;

	if (lstat(path_of(name), &st) < 0)
		fail_msg("'%s': %s", name, strerror(errno));
	return st;
}

static bool is_there(const char *name)
{
	struct stat st;

	return lstat(path_of(name), &st) == 0;
}

static void assert_content(const char *name, const char *content)
{
	_cleanup_free_ char *text = NULL;
	struct err err = ERR_INIT;

	if (file_read(AT_FDCWD, path_of(name), 1 << 20, &text, NULL, &err) < 0)
		fail_msg("%s", err.message);
	assert_string_equal(text, content);
}

static bool is_whiteout(const char *name)
{
	struct stat st = stat_of(name);

	return layer_is_whiteout(&st);
}

static bool is_opaque(const char *name)
{
	char value[4];

	return getxattr(path_of(name), "trusted.overlay.opaque", value, sizeof value) == 1 &&
	       value[0] == 'y';
}

static int set_up(void **state)
{
	(void)state;
	strcpy(base + strlen(base) - 6, "XXXXXX");
	return mkdtemp(base) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	buf_done(&tar);
	tar = (struct buf)BUF_INIT;
	while (layer_count)
		free(layers[--layer_count]);
	return tree_remove(AT_FDCWD, base, NULL);
}

/* ---- one layer ------------------------------------------------------------------------------ */

static void test_unpack_keeps_what_files_are(void **state)
{
	static const char capability[] = "\x01\x00\x00\x02\x00\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
	const struct tar_xattr xattrs[] = { { "user.note", "hello", 5 },
		{ "security.capability", capability, 20 }, { "trusted.overlay.opaque", "y", 1 },
		{ "security.selinux", "x", 1 } };
	char value[32], link[32];
	struct stat st;

	(void)state;
	put_entry(&(struct tar_entry){ .type = TAR_DIR,
			  .name = "./",
			  .mode = 0711,
			  .uid = 7,
			  .gid = 8,
			  .mtime = 5000 },
		"");
	put_dir("d", 01777);
	put_entry(&(struct tar_entry){ .type = TAR_FILE,
			  .name = "./d/su",
			  .size = 3,
			  .mode = 06755,
			  .uid = 1000,
			  .gid = 1001,
			  .mtime = 1234567890,
			  .xattrs = xattrs,
			  .xattr_count = ARRAY_LEN(xattrs) },
		"abc");
	put_link(TAR_LINK, "d/hard", "d/su");
	put_link(TAR_SYMLINK, "d/soft", "/etc/passwd");
	put_entry(&(struct tar_entry){ .type = TAR_FIFO, .name = "d/pipe", .mode = 0640, .uid = 5 },
		"");
	put_entry(
		&(struct tar_entry){
			.type = TAR_CHAR, .name = "d/null", .mode = 0666, .major = 1, .minor = 3 },
		"");
	put_entry(&(struct tar_entry){ .type = TAR_CHAR, .name = "d/hole", .mode = 0 }, "");
	unpack_well();

	st = stat_of("");
	assert_int_equal(st.st_mode & 07777, 0711);
	assert_int_equal(st.st_uid, 7);
	assert_int_equal(st.st_mtime, 5000);
	st = stat_of("d");
	assert_int_equal(st.st_mode & 07777, 01777);
	assert_int_equal(st.st_mtime, 2000);
	assert_content("d/su", "abc");
	st = stat_of("d/su");
	assert_int_equal(st.st_mode & 07777, 06755);
	assert_int_equal(st.st_uid, 1000);
	assert_int_equal(st.st_gid, 1001);
	assert_int_equal(st.st_mtime, 1234567890);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(st.st_ino, stat_of("d/hard").st_ino);
	assert_int_equal(getxattr(path_of("d/su"), "user.note", value, sizeof value), 5);
	assert_int_equal(getxattr(path_of("d/su"), "security.capability", value, sizeof value), 20);
	assert_int_equal(
		getxattr(path_of("d/su"), "trusted.overlay.opaque", value, sizeof value), -1);
	assert_int_equal(readlink(path_of("d/soft"), link, sizeof link), 11);
	st = stat_of("d/pipe");
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(st.st_uid, 5);
	assert_false(is_there("d/null"));
	assert_false(is_there("d/hole"));
	assert_int_equal(totals.devices, 2);
	assert_int_equal(totals.xattrs, 2);
}

/* A folder below a set-group-id one is born with that bit and that group. */
static void test_unpack_folders_take_nothing_from_the_one_above(void **state)
{
	(void)state;
	put_entry(&(struct tar_entry){ .type = TAR_DIR, .name = "d", .mode = 02755, .gid = 7 }, "");
	put_dir("d/e", 0700);
	unpack_well();
	assert_int_equal(stat_of("d").st_mode & 07777, 02755);
	assert_int_equal(stat_of("d/e").st_mode & 07777, 0700);
	assert_int_equal(stat_of("d/e").st_gid, 0);
}

static void test_unpack_leaves_out_attributes_too_large_for_the_disk(void **state)
{
	_cleanup_free_ char *large = xcalloc(1, 20000);
	const struct tar_xattr xattrs[] = { { "user.large", large, 20000 },
		{ "user.small", "s", 1 } };

	(void)state;
	put_entry(&(struct tar_entry){ .type = TAR_FILE,
			  .name = "f",
			  .mode = 0644,
			  .size = 1,
			  .xattrs = xattrs,
			  .xattr_count = 2 },
		"x");
	unpack_well();
	assert_content("f", "x");
	assert_int_equal(getxattr(path_of("f"), "user.small", large, 20000), 1);
}

static void test_unpack_makes_missing_folders(void **state)
{
	(void)state;
	put_file("/a/b//c/./file", "x");
	unpack_well();
	assert_content("a/b/c/file", "x");
	assert_int_equal(stat_of("a/b").st_mode & 07777, 0755);
	assert_int_equal(totals.files, 4);
}

static void test_unpack_later_members_replace(void **state)
{
	(void)state;
	put_file("a", "file");
	put_dir("a", 0700); /* folder over file */
	put_file("a/inside", "1");
	put_dir("b", 0755);
	put_file("b/inside", "2");
	put_file("b", "file now"); /* file over a full folder */
	put_link(TAR_SYMLINK, "c", "a");
	put_dir("c", 0711); /* folder over link: not through it */
	put_file("c/x", "3");
	put_file("d", "first");
	put_file("d", "second");
	put_link(TAR_SYMLINK, "e", "d");
	put_file("e", "not through the link");
	put_dir("f", 0700);
	put_dir("f", 0755); /* the same folder again keeps what it holds */
	unpack_well();
	assert_content("a/inside", "1");
	assert_content("b", "file now");
	assert_content("c/x", "3");
	assert_true(S_ISDIR(stat_of("c").st_mode));
	assert_false(is_there("a/x"));
	assert_content("d", "second");
	assert_content("e", "not through the link");
	assert_int_equal(stat_of("f").st_mode & 07777, 0755);
}

static void test_unpack_follows_links_inside_only(void **state)
{
	(void)state;
	put_dir("usr", 0755);
	put_dir("usr/bin", 0755);
	put_link(TAR_SYMLINK, "bin", "usr/bin");
	put_file("bin/tool", "1");
	put_link(TAR_SYMLINK, "abs", "/usr/bin");
	put_file("abs/other", "2");
	put_link(TAR_SYMLINK, "out", "../../../../../../../../tmp");
	put_file("out/escaped", "3");
	put_link(TAR_SYMLINK, "usr/up", "../../..");
	put_file("usr/up/top", "4");
	unpack_well();
	assert_content("usr/bin/tool", "1");
	assert_content("usr/bin/other", "2");
	assert_content("tmp/escaped", "3");
	assert_content("top", "4");
	assert_int_equal(access("/tmp/escaped", F_OK), -1);
}

static void test_unpack_link_that_changes_leads_elsewhere(void **state)
{
	(void)state;
	put_dir("one", 0755);
	put_dir("two", 0755);
	put_link(TAR_SYMLINK, "at", "one");
	put_file("at/x", "in one");
	put_link(TAR_SYMLINK, "at", "two");
	put_file("at/x", "in two");
	put_dir("at", 0755);
	put_file("at/x", "in at");
	unpack_well();
	assert_content("one/x", "in one");
	assert_content("two/x", "in two");
	assert_content("at/x", "in at");
}

static void test_unpack_refuses_what_leads_out(void **state)
{
	static const char *const names[] = { "../x", "a/../../x", "..", "a/..", "/../x" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		put_file(names[i], "x");
		refuse(ERR_INVALID);
	}
	assert_int_equal(stat_of("").st_nlink, 2);
}

static void test_unpack_refuses_hard_links_to_outside(void **state)
{
	(void)state;
	put_link(TAR_LINK, "x", "../../../../etc/passwd");
	refuse(ERR_INVALID);
	put_link(TAR_LINK, "x", "/etc/passwd"); /* of the layer, which has none */
	refuse(ERR_INVALID);
	put_dir("d", 0755);
	put_link(TAR_LINK, "x", "d");
	refuse(ERR_INVALID);
	put_link(TAR_SYMLINK, "etc", "/etc");
	put_link(TAR_LINK, "x", "etc/passwd");
	refuse(ERR_INVALID);
}

static void test_unpack_hard_link_to_itself_keeps_the_file(void **state)
{
	(void)state;
	put_file("a", "kept");
	put_link(TAR_LINK, "./a", "a");
	put_link(TAR_SYMLINK, "s", "a");
	put_link(TAR_LINK, "t", "s"); /* to the link, not through it */
	unpack_well();
	assert_content("a", "kept");
	assert_int_equal(stat_of("s").st_ino, stat_of("t").st_ino);
}

static void test_unpack_refuses_what_is_no_folder(void **state)
{
	(void)state;
	put_file("a", "x");
	put_file("a/b", "y");
	refuse(ERR_INVALID);
	put_link(TAR_SYMLINK, "l", "l");
	put_file("l/b", "y"); /* round and round */
	refuse(ERR_INVALID);
	put_file("./", "");
	unpack_well(); /* a slash at its end makes it a folder: the root */
	put_link(TAR_SYMLINK, ".", "x");
	refuse(ERR_INVALID);
}

static void test_unpack_bounds_bombs(void **state)
{
	char deep[1200], name[32];
	struct err err = ERR_INIT;

	(void)state;
	put_file("a", "0123456789");
	assert_int_equal(
		unpack_with(&(struct unpack_spec){ .bytes_max = 9, .files_max = 10 }, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	for (int i = 0; i < 11; i++) {
		snprintf(name, sizeof name, "f%d", i);
		put_file(name, "");
	}
	assert_int_equal(
		unpack_with(&(struct unpack_spec){ .bytes_max = 1000, .files_max = 10 }, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	put_file("x/b/c/d/e/f/g/h/i/j/k", ""); /* folders nobody announced count, too */
	assert_int_equal(
		unpack_with(&(struct unpack_spec){ .bytes_max = 9000, .files_max = 10 }, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	for (size_t i = 0; i + 2 < sizeof deep; i += 2)
		memcpy(deep + i, "d/", 3);
	put_file(deep, "x");
	refuse(ERR_INVALID);
}

static void test_unpack_sparse_files(void **state)
{
	/* pax 1.0: the map comes before the content. */
	static const char records[] = "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
				      "25 GNU.sparse.name=holes\n31 GNU.sparse.realsize=1000000\n";
	static uint8_t content[TAR_BLOCK + 8];
	struct tar_entry header = { .type = TAR_FILE, .name = "x", .size = sizeof records - 1 };
	struct stat st;
	char at[4];
	_cleanup_close_ int fd = -1;
	size_t start;

	(void)state;
	start = tar.len;
	put_entry(&header, records);
	buf_head(&tar)[start + 156] = 'x';
	/* The checksum changes with the type: 'x' instead of '0'. */
	snprintf((char *)buf_head(&tar) + start + 148, 7, "%06o",
		(unsigned)strtoul((char *)buf_head(&tar) + start + 148, NULL, 8) + 'x' - '0');
	memcpy(content, "2\n4096\n4\n999996\n4\n", 18);
	memcpy(content + TAR_BLOCK, "abcdwxyz", 8);
	tar_put_header(&tar, &(struct tar_entry){ .type = TAR_FILE,
				     .name = "GNUSparseFile.0/holes",
				     .size = sizeof content,
				     .mode = 0600 });
	buf_add(&tar, content, sizeof content);
	put_zeros(tar_fill(sizeof content));
	unpack_well();
	st = stat_of("holes");
	assert_int_equal(st.st_size, 1000000);
	assert_true(st.st_blocks < 100);
	fd = open(path_of("holes"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(pread(fd, at, 4, 4096), 4);
	assert_memory_equal(at, "abcd", 4);
	assert_int_equal(pread(fd, at, 4, 999996), 4);
	assert_memory_equal(at, "wxyz", 4);
}

static void test_unpack_whiteouts_are_plain_names_of_a_rootfs(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	put_file(".wh.a", "x");
	assert_int_equal(
		unpack_with(&(struct unpack_spec){ .bytes_max = 9, .files_max = 9 }, &err), 0);
	assert_content(".wh.a", "x");
}

/* ---- over other layers ---------------------------------------------------------------------- */

static void put_base(void)
{
	put_entry(
		&(struct tar_entry){
			.type = TAR_DIR, .name = ".", .mode = 0751, .gid = 4, .mtime = 88 },
		"");
	put_entry(
		&(struct tar_entry){
			.type = TAR_DIR, .name = "usr", .mode = 0711, .uid = 3, .mtime = 77 },
		"");
	put_dir("usr/bin", 0755);
	put_file("usr/bin/old", "old");
	put_link(TAR_SYMLINK, "bin", "usr/bin");
	put_dir("etc", 0755);
	put_file("etc/a", "a");
	put_file("etc/b", "b");
	unpack_well();
}

static void test_unpack_leads_through_links_of_lower_layers(void **state)
{
	(void)state;
	put_base();
	put_file("bin/new", "new");
	unpack_well();
	assert_content("usr/bin/new", "new");
	assert_false(is_there("bin"));
	/* The folder is like the one below, and so is the root. */
	assert_int_equal(stat_of("").st_mode & 07777, 0751);
	assert_int_equal(stat_of("").st_gid, 4);
	assert_int_equal(stat_of("").st_mtime, 88);
	assert_int_equal(stat_of("usr").st_mode & 07777, 0711);
	assert_int_equal(stat_of("usr").st_uid, 3);
	assert_int_equal(stat_of("usr").st_mtime, 77);
	assert_false(is_opaque("usr"));
	/* And two layers up, with nothing of it in between. */
	put_file("unrelated", "");
	unpack_well();
	put_file("bin/third", "3");
	put_dir("bin", 0755); /* from here on it is a folder of its own */
	put_file("bin/fourth", "4");
	unpack_well();
	assert_content("usr/bin/third", "3");
	assert_content("bin/fourth", "4");
}

static void test_unpack_whiteouts_hide_lower_layers(void **state)
{
	(void)state;
	put_base();
	put_file("etc/.wh.a", "");
	put_file("etc/.wh.nothing", "");
	put_file(".wh.usr", "");
	unpack_well();
	assert_true(is_whiteout("etc/a"));
	assert_false(is_there("etc/nothing")); /* hides nothing, so it is not there */
	assert_true(is_whiteout("usr"));
	/* Above that: what is hidden is not there, links through it make new folders. */
	put_file("bin/tool", "1");
	put_file("etc/.wh.a", "");
	unpack_well();
	assert_content("usr/bin/tool", "1");
	assert_int_equal(stat_of("usr").st_mode & 07777, 0755);
	assert_false(is_there("etc/a"));
}

static void test_unpack_order_of_whiteouts_makes_no_difference(void **state)
{
	for (int before = 0; before < 2; before++) {
		tear_down(state);
		set_up(state);
		put_base();
		if (before) {
			put_file(".wh.usr", "");
			put_file("etc/.wh.a", "");
		}
		put_dir("usr", 0755);
		put_file("usr/mine", "x");
		put_file("etc/a", "mine");
		if (!before) {
			put_file(".wh.usr", "");
			put_file("etc/.wh.a", "");
		}
		unpack_well();
		assert_content("usr/mine", "x");
		assert_true(is_opaque("usr"));
		assert_content("etc/a", "mine");
		/* usr/bin is hidden now, so nothing of it is copied. */
		put_file("usr/bin/x", "");
		unpack_well();
		assert_int_equal(stat_of("usr/bin").st_mtime == 2000, 0);
	}
}

static void test_unpack_opaque_folders(void **state)
{
	(void)state;
	put_base();
	put_file("etc/new", "n");
	put_file("etc/.wh..wh..opq", "");
	put_file("etc/.wh..wh.plnk", "");
	put_file("etc/.wh.b", ""); /* hidden already */
	unpack_well();
	assert_true(is_opaque("etc"));
	assert_content("etc/new", "n");
	assert_false(is_there("etc/.wh..wh..opq"));
	assert_false(is_there("etc/b"));
	put_file("etc/.wh.", "");
	refuse(ERR_INVALID);
	put_file("etc/.wh...", "");
	refuse(ERR_INVALID);
}

/* overlayfs takes no notice of an opaque root. */
static void test_unpack_opaque_root_hides_every_name(void **state)
{
	for (int before = 0; before < 2; before++) {
		tear_down(state);
		set_up(state);
		put_base();
		put_file("second", "2");
		unpack_well();
		if (before)
			put_file(".wh..wh..opq", "");
		put_file("etc/mine", "m");
		put_file("second", "mine");
		if (!before)
			put_file("./.wh..wh..opq", "");
		unpack_well();
		assert_true(is_whiteout("usr"));
		assert_true(is_whiteout("bin"));
		assert_true(is_opaque("etc"));
		assert_content("etc/mine", "m");
		assert_content("second", "mine");
	}
}

static void test_unpack_file_then_folder_hides_the_lower_one(void **state)
{
	(void)state;
	put_base();
	put_file("etc", "file");
	put_dir("etc", 0755);
	unpack_well();
	assert_true(is_opaque("etc"));
}

static void test_unpack_hard_link_to_a_lower_file_copies_it_up(void **state)
{
	(void)state;
	put_base();
	put_link(TAR_LINK, "bin/alias", "bin/old");
	unpack_well();
	assert_content("usr/bin/alias", "old");
	assert_int_equal(stat_of("usr/bin/alias").st_ino, stat_of("usr/bin/old").st_ino);
	assert_int_equal(stat_of("usr/bin/old").st_mtime, 1000);
	put_file(".wh.etc", "");
	put_link(TAR_LINK, "x", "etc"); /* a whiteout is nothing to link to */
	refuse(ERR_INVALID);
}

static void test_unpack_lowest_layer_has_no_whiteouts(void **state)
{
	(void)state;
	put_file("a/.wh.b", "");
	put_file("a/.wh..wh..opq", "");
	put_file("c", "");
	unpack_well();
	assert_false(is_there("a/b"));
	assert_false(is_there("a/.wh.b"));
}

static void test_unpack_needs_root(void **state)
{
	(void)state;
	print_message("unpacking needs root\n");
	skip();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_unpack_keeps_what_files_are),
		TEST(test_unpack_folders_take_nothing_from_the_one_above),
		TEST(test_unpack_leaves_out_attributes_too_large_for_the_disk),
		TEST(test_unpack_makes_missing_folders),
		TEST(test_unpack_later_members_replace),
		TEST(test_unpack_follows_links_inside_only),
		TEST(test_unpack_link_that_changes_leads_elsewhere),
		TEST(test_unpack_refuses_what_leads_out),
		TEST(test_unpack_refuses_hard_links_to_outside),
		TEST(test_unpack_hard_link_to_itself_keeps_the_file),
		TEST(test_unpack_refuses_what_is_no_folder),
		TEST(test_unpack_bounds_bombs),
		TEST(test_unpack_sparse_files),
		TEST(test_unpack_whiteouts_are_plain_names_of_a_rootfs),
		TEST(test_unpack_leads_through_links_of_lower_layers),
		TEST(test_unpack_whiteouts_hide_lower_layers),
		TEST(test_unpack_order_of_whiteouts_makes_no_difference),
		TEST(test_unpack_opaque_folders),
		TEST(test_unpack_opaque_root_hides_every_name),
		TEST(test_unpack_file_then_folder_hides_the_lower_one),
		TEST(test_unpack_hard_link_to_a_lower_file_copies_it_up),
		TEST(test_unpack_lowest_layer_has_no_whiteouts),
	};

	const struct CMUnitTest skipped[] = { cmocka_unit_test(test_unpack_needs_root) };

	if (geteuid() != 0)
		return cmocka_run_group_tests(skipped, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
