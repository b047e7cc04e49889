/* same.c - compares an entry of two trees; see view_internal.h
 *
 * Contents are read side by side. Where both files have a hole it is skipped, since a box can
 * make a file of any size at no cost. */
#include "view/view_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>

enum { CHUNK = 128 * 1024 };

static int open_side(const struct side *side, const char *path, int *ret, struct err *err)
{
	int type = S_ISDIR(side->st.st_mode) ? O_DIRECTORY : O_NONBLOCK | O_NOCTTY;

	*ret = openat(side->dir, side->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | type);
	if (*ret < 0 && errno != ENOENT)
		return err_sys(err, errno, "open '/%.300s'", path);
	return 0;
}

/* Offset of the next byte that may not be in a hole. */
static off_t next_data(int fd, off_t at, off_t size)
{
	off_t data = lseek(fd, at, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? size : at;
	return MIN(data, size);
}

/* Reads len bytes from at; past the end of a file that was truncated there are zeros. */
static int read_full(int fd, uint8_t *data, size_t len, off_t at, const char *path, struct err *err)
{
	while (len) {
		ssize_t got = pread(fd, data, len, at);

		if (got < 0)
			return err_sys(err, errno, "read '/%.300s'", path);
		if (!got)
			break;
		data += got;
		at += got;
		len -= (size_t)got;
	}
	memset(data, 0, len);
	return 0;
}

static int same_content(int a, int b, off_t size, const char *path, struct err *err)
{
	static uint8_t chunks[2][CHUNK];

	for (off_t at = 0; at < size;) {
		off_t data = MIN(next_data(a, at, size), next_data(b, at, size));
		size_t len = (size_t)MIN((off_t)CHUNK, size - data);

		if (read_full(a, chunks[0], len, data, path, err) < 0 ||
			read_full(b, chunks[1], len, data, path, err) < 0)
			return -1;
		if (memcmp(chunks[0], chunks[1], len) != 0)
			return 0;
		at = data + (off_t)len;
	}
	return 1;
}

static bool same_xattrs(const struct xattrs *a, const struct xattrs *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct tar_xattr *x = &a->list[i], *y = &b->list[i];

		if (strcmp(x->name, y->name) != 0 || x->len != y->len ||
			memcmp(x->value, y->value, x->len) != 0)
			return false;
	}
	return true;
}

static int compare_xattrs(int a, int b, const char *path, struct err *err)
{
	_cleanup_(xattrs_done) struct xattrs x = { .count = 0 }, y = { .count = 0 };

	if (xattrs_read(a, path, &x, err) < 0 || xattrs_read(b, path, &y, err) < 0)
		return -1;
	return same_xattrs(&x, &y);
}

/* Compares what needs an open file: contents and attributes. */
static int same_inside(
	const struct side *old, const struct side *new, const char *path, struct err *err)
{
	_cleanup_close_ int a = -1, b = -1;
	int same = 1;

	if (open_side(old, path, &a, err) < 0 || open_side(new, path, &b, err) < 0)
		return -1;
	if (a < 0 || b < 0)
		return 0;
	if (S_ISREG(new->st.st_mode))
		same = same_content(a, b, new->st.st_size, path, err);
	return same == 1 ? compare_xattrs(a, b, path, err) : same;
}

static int same_target(
	const struct side *old, const struct side *new, const char *path, struct err *err)
{
	char a[PATH_MAX], b[PATH_MAX];
	ssize_t a_len = readlinkat(old->dir, old->name, a, sizeof a),
		b_len = readlinkat(new->dir, new->name, b, sizeof b);

	return a_len >= 0 && a_len == b_len && !memcmp(a, b, (size_t)a_len);
}

int same_entry(const struct side *old, const struct side *new, const char *path, struct err *err)
{
	const struct stat *a = &old->st, *b = &new->st;

	if (a->st_mode != b->st_mode || a->st_uid != b->st_uid || a->st_gid != b->st_gid)
		return 0;
	switch (b->st_mode & S_IFMT) {
	case S_IFREG:
		return a->st_size == b->st_size ? same_inside(old, new, path, err) : 0;
	case S_IFDIR:
		return same_inside(old, new, path, err);
	case S_IFLNK:
		return same_target(old, new, path, err);
	case S_IFCHR:
	case S_IFBLK:
		return a->st_rdev == b->st_rdev;
	default:
		return 1;
	}
}
