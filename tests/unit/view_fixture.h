/* view_fixture.h - layers for the tests of view: a place for them, a plain comparison, archives
 * applied
 *
 * Needs root. Everything lies on a tmpfs in a mount namespace of its own, so nothing is left
 * behind. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/file.h"
#include "base/strv.h"
#include "tar/tar.h"
#include "view/view_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static char place[] = "/tmp/test-view-XXXXXX";

/* ---- a place of our own --------------------------------------------------------------------- */

static int setup(void **state)
{
	if (mount("test-view", place, "tmpfs", 0, "mode=0700") < 0 || chdir(place) < 0)
		return -1;
	umask(0);
	return 0;
}

static int teardown(void **state)
{
	if (chdir("/") < 0)
		return -1;
	return umount2(place, MNT_DETACH);
}

static char *in_place(const char *name)
{
	return xasprintf("%s/%s", place, name);
}

static void must(bool ok, const char *what, const struct err *err)
{
	if (!ok)
		fail_msg("%s: %s", what, err->message);
}

static int open_view(const char *const *layers)
{
	struct err err = ERR_INIT;
	int fd = -1;

	must(view_open(layers, &fd, &err) == 0, "view_open", &err);
	return fd;
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text), NULL), 0);
	close(fd);
}

/* ---- the plain comparison ------------------------------------------------------------------- */

struct names {
	char **list;
	size_t count;
};

static void names_add(struct names *names, int dir)
{
	int fd = dir < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (stream && (entry = readdir(stream))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		xgrow(names->list, names->count + 1);
		names->list[names->count++] = xstrdup(entry->d_name);
	}
	if (stream)
		closedir(stream);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_text(struct buf *out, int dir, const char *name, const struct stat *st)
{
	char path[PATH_MAX], value[256] = "";
	_cleanup_close_ int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;
	size_t len = 0;

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (!S_ISLNK(st->st_mode) && getxattr(path, "user.t", value, sizeof value - 1) > 0)
		buf_addf(out, "[%s]", value);
	if (S_ISLNK(st->st_mode)) {
		assert_true(readlinkat(dir, name, path, sizeof path) > 0);
		buf_addf(out, "%s", path);
	} else if (S_ISREG(st->st_mode)) {
		assert_int_equal(file_read(dir, name, 1 << 20, &text, &len, NULL), 0);
		buf_add(out, text, len);
	} else if (!S_ISDIR(st->st_mode)) {
		buf_addf(out, "%u:%u", major(st->st_rdev), minor(st->st_rdev));
	}
}

static bool looks_same(int a, int b, const char *name, const struct stat *x, const struct stat *y)
{
	struct buf old = BUF_INIT, new = BUF_INIT;
	bool same;

	if (x->st_mode != y->st_mode || x->st_uid != y->st_uid || x->st_gid != y->st_gid)
		return false;
	add_text(&old, a, name, x);
	add_text(&new, b, name, y);
	same = old.len == new.len && (!old.len || !memcmp(buf_head(&old), buf_head(&new), old.len));
	buf_done(&old);
	buf_done(&new);
	return same;
}

static int open_below(int dir, const char *name)
{
	return dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void brute(int a, int b, const char *path, struct buf *out)
{
	struct names names = { NULL, 0 };

	names_add(&names, a);
	names_add(&names, b);
	if (names.count)
		qsort(names.list, names.count, sizeof *names.list, by_name);
	for (size_t i = 0; i < names.count; i++) {
		const char *name = names.list[i];
		_cleanup_free_ char *full = xasprintf("%s%s%s", path, *path ? "/" : "", name);
		struct stat x, y;
		bool was = a >= 0 && fstatat(a, name, &x, AT_SYMLINK_NOFOLLOW) == 0,
		     is = b >= 0 && fstatat(b, name, &y, AT_SYMLINK_NOFOLLOW) == 0;

		if (i && !strcmp(name, names.list[i - 1]))
			continue;
		if (!is)
			buf_addf(out, "removed %s\n", full);
		else if (!was)
			buf_addf(out, "added %s\n", full);
		else if (!looks_same(a, b, name, &x, &y))
			buf_addf(out, "changed %s\n", full);
		if (is && S_ISDIR(y.st_mode)) {
			_cleanup_close_ int below_a = was ? open_below(a, name) : -1,
					    below_b = open_below(b, name);

			brute(below_a, below_b, full, out);
		}
	}
	for (size_t i = 0; i < names.count; i++)
		free(names.list[i]);
	free(names.list);
}

static int list_change(enum view_change change, const char *path, const struct stat *st, void *arg,
	struct err *err)
{
	buf_addf(arg, "%s %s\n", view_change_name(change), path);
	return 0;
}

static void assert_diff_is_right(const char *const *old, const char *const *new)
{
	_cleanup_close_ int a = open_view(old), b = open_view(new);
	struct buf expected = BUF_INIT, told = BUF_INIT;
	struct err err = ERR_INIT;

	brute(a, b, "", &expected);
	must(view_diff(old, new, list_change, &told, NULL, &err) == 0, "view_diff", &err);
	assert_string_equal(buf_str(&told), buf_str(&expected));
	buf_done(&told);
	buf_done(&expected);
}

static void assert_same_trees(int a, int b)
{
	struct buf differences = BUF_INIT;

	brute(a, b, "", &differences);
	assert_string_equal(buf_str(&differences), "");
	buf_done(&differences);
}

/* ---- applying an archive -------------------------------------------------------------------- */

static ssize_t read_fd(void *arg, void *data, size_t len, struct err *err)
{
	return read(*(int *)arg, data, len);
}

static void make_member(struct tar_reader *reader, int dir, const struct tar_entry *entry)
{
	static const mode_t types[] = { [TAR_CHAR - '0'] = S_IFCHR,
		[TAR_BLOCK_DEVICE - '0'] = S_IFBLK,
		[TAR_FIFO - '0'] = S_IFIFO };
	_cleanup_close_ int fd = -1;
	char data[5000], path[64];
	ssize_t got;
	struct stat st;
	bool there = fstatat(dir, entry->name, &st, AT_SYMLINK_NOFOLLOW) == 0;

	if (there && !(S_ISDIR(st.st_mode) && entry->type == TAR_DIR))
		assert_int_equal(tree_remove(dir, entry->name, NULL), 0);
	if (entry->type == TAR_DIR)
		assert_true(mkdirat(dir, entry->name, 0700) == 0 || errno == EEXIST);
	else if (entry->type == TAR_LINK)
		assert_int_equal(linkat(dir, entry->link, dir, entry->name, 0), 0);
	else if (entry->type == TAR_SYMLINK)
		assert_int_equal(symlinkat(entry->link, dir, entry->name), 0);
	else if (entry->type != TAR_FILE)
		assert_int_equal(mknodat(dir, entry->name, types[entry->type - '0'],
					 makedev(entry->major, entry->minor)),
			0);
	else
		fd = openat(dir, entry->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	while (fd >= 0 && (got = tar_read(reader, data, sizeof data, NULL)) > 0)
		assert_int_equal(fd_write_all(fd, data, (size_t)got, NULL), 0);
	if (entry->type == TAR_LINK)
		return;
	assert_int_equal(
		fchownat(dir, entry->name, entry->uid, entry->gid, AT_SYMLINK_NOFOLLOW), 0);
	if (entry->type != TAR_SYMLINK)
		assert_int_equal(fchmodat(dir, entry->name, entry->mode, 0), 0);
	if (fd < 0)
		fd = openat(dir, entry->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (entry->type == TAR_DIR || entry->type == TAR_FILE)
		removexattr(path, "user.t");
	for (size_t i = 0; i < entry->xattr_count; i++)
		assert_int_equal(setxattr(path, entry->xattrs[i].name, entry->xattrs[i].value,
					 entry->xattrs[i].len, 0),
			0);
}

/* The number of members. */
static uint64_t apply(int archive, int dir)
{
	static struct tar_reader reader;
	const struct tar_entry *entry;
	struct err err = ERR_INIT;
	uint64_t count = 0;
	int status;

	assert_int_equal(lseek(archive, 0, SEEK_SET), 0);
	reader = (struct tar_reader){ .read = read_fd, .arg = &archive };
	while ((status = tar_next(&reader, &entry, &err)) == 1) {
		const char *slash = strrchr(entry->name, '/');
		size_t folder = slash ? (size_t)(slash + 1 - entry->name) : 0;
		_cleanup_free_ char *gone = NULL;

		count++;
		if (strncmp(entry->name + folder, ".wh.", 4) != 0) {
			make_member(&reader, dir, entry);
			continue;
		}
		gone = xasprintf("%.*s%s", (int)folder, entry->name, entry->name + folder + 4);
		assert_int_equal(faccessat(dir, gone, F_OK, AT_SYMLINK_NOFOLLOW), 0);
		assert_int_equal(tree_remove(dir, gone, NULL), 0);
	}
	must(status == 0, "tar_next", &err);
	tar_reader_done(&reader);
	return count;
}

static int new_file(void)
{
	return open(place, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* A copy of the view by way of an archive. */
static int copy_view(const char *const *layers, const char *name)
{
	_cleanup_close_ int view = open_view(layers), archive = new_file();
	struct view_pack_spec spec = { .root = view, .path = "", .out = archive };
	struct view_totals totals, measured;
	struct err err = ERR_INIT;
	int dir;

	assert_int_equal(mkdir(name, 0755), 0);
	dir = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(view_pack(&spec, &totals, &err) == 0, "view_pack", &err);
	assert_int_equal(apply(archive, dir), totals.files);
	must(view_measure(view, "", &measured, &err) == 0, "view_measure", &err);
	assert_int_equal(measured.files, totals.files);
	assert_int_equal(measured.bytes, totals.bytes);
	assert_same_trees(view, dir);
	return dir;
}

static void assert_pack_leads_there(const char *const *old, const char *const *new)
{
	_cleanup_close_ int dir = copy_view(old, "copy"), view = open_view(new),
			    archive = new_file();
	struct view_totals totals;
	struct err err = ERR_INIT;

	must(view_diff_pack(old, new, archive, &totals, &err) == 0, "view_diff_pack", &err);
	assert_int_equal(apply(archive, dir), totals.files);
	assert_same_trees(dir, view);
	assert_int_equal(tree_remove(AT_FDCWD, "copy", NULL), 0);
}
