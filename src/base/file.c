/* file.c - see file.h */
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

int file_read(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *err)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct buf buf = BUF_INIT;

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	for (;;) {
		ssize_t got = read(fd, buf_room(&buf, MIN(max + 1 - buf.len, 16384) + 1),
			MIN(max + 1 - buf.len, 16384));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			int saved = errno;

			buf_done(&buf);
			return err_sys(err, saved, "read '%s'", path);
		}
		if (got == 0)
			break;
		buf_grew(&buf, (size_t)got);
		if (buf.len > max) {
			buf_done(&buf);
			return err_set(
				err, ERR_TOO_LARGE, "'%s' is larger than %zu bytes", path, max);
		}
	}
	buf_str(&buf);
	if (ret_len)
		*ret_len = buf.len;
	*ret = (char *)buf.data;
	return 0;
}

int fd_write_all(int fd, const void *data, size_t len, struct err *err)
{
	const char *p = data;

	while (len) {
		ssize_t put = write(fd, p, len);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return err_sys(err, errno, "write");
		p += put;
		len -= (size_t)put;
	}
	return 0;
}

int file_write_atomic(
	int dirfd, const char *path, const void *data, size_t len, mode_t mode, struct err *err)
{
	_cleanup_free_ char *tmp = xasprintf("%s.tmp", path);
	_cleanup_close_ int fd =
		openat(dirfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);

	if (fd < 0)
		return err_sys(err, errno, "create '%s'", tmp);
	if (fd_write_all(fd, data, len, err) < 0)
		return err_wrap(err, "'%s'", tmp);
	if (fsync(fd) < 0)
		return err_sys(err, errno, "fsync '%s'", tmp);
	if (renameat(dirfd, tmp, dirfd, path) < 0)
		return err_sys(err, errno, "rename '%s' to '%s'", tmp, path);
	return 0;
}

int file_poke(int dirfd, const char *path, const char *text, struct err *err)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (write(fd, text, strlen(text)) < 0)
		return err_sys(err, errno, "write '%s' to '%s'", text, path);
	return 0;
}

bool fd_is_scarce(int fd)
{
	struct rlimit files;

	return getrlimit(RLIMIT_NOFILE, &files) == 0 &&
	       (rlim_t)fd + MAX(files.rlim_cur / 8, 32) >= files.rlim_cur;
}

int fd_set_nonblocking(int fd, struct err *err)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_sys(err, errno, "set non-blocking");
	return 0;
}

int dir_make_all(const char *path, mode_t mode, struct err *err)
{
	_cleanup_free_ char *copy = xstrdup(path);

	for (char *p = copy + 1; *p; p++)
		if (*p == '/') {
			*p = '\0';
			if (mkdir(copy, 0755) < 0 && errno != EEXIST)
				return err_sys(err, errno, "mkdir '%s'", copy);
			*p = '/';
		}
	if (mkdir(copy, mode) < 0 && errno != EEXIST)
		return err_sys(err, errno, "mkdir '%s'", copy);
	return 0;
}

/* ---- removing trees ---------------------------------------------------------------------------
 *
 * A tree may be deeper than the number of descriptors or the stack allows. Whatever lies below
 * DEPTH_MAX is moved up to the top of the tree and removed from there in another round. */

enum { DEPTH_MAX = 64 };

struct removal {
	int top;	/* the top folder of the tree */
	unsigned moved; /* how many folders were moved up; gives them their names */
	bool again;	/* folders were moved in this round, so another one is needed */
};

static int remove_below(struct removal *removal, int fd, unsigned depth, struct err *err);

static int move_up(struct removal *removal, int fd, const char *name, struct err *err)
{
	char to[32];

	do
		snprintf(to, sizeof to, ".deep-%u", removal->moved++);
	while (renameat2(fd, name, removal->top, to, 1 /* RENAME_NOREPLACE */) < 0 &&
		errno == EEXIST);
	if (faccessat(removal->top, to, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "move '%s' up", name);
	removal->again = true;
	return 0;
}

static int remove_entry(
	struct removal *removal, int fd, const char *name, unsigned depth, struct err *err)
{
	_cleanup_close_ int child = -1;

	if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return err_sys(err, errno, "remove '%s'", name);
	if (unlinkat(fd, name, AT_REMOVEDIR) == 0)
		return 0;
	if (depth >= DEPTH_MAX)
		return move_up(removal, fd, name, err);
	child = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (child < 0)
		return err_sys(err, errno, "open '%s'", name);
	if (depth == 0)
		removal->top = child;
	do {
		removal->again = depth ? removal->again : false;
		if (remove_below(removal, child, depth + 1, err) < 0)
			return -1;
	} while (depth == 0 && removal->again);
	if (unlinkat(fd, name, AT_REMOVEDIR) < 0)
		return err_sys(err, errno, "remove '%s'", name);
	return 0;
}

static int remove_below(struct removal *removal, int fd, unsigned depth, struct err *err)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	int ret = 0;

	if (!dir) {
		ret = err_sys(err, errno, "read a folder");
		cleanup_closep(&copy);
		return ret;
	}
	while (ret == 0 && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			ret = remove_entry(removal, fd, entry->d_name, depth, err);
	closedir(dir);
	return ret;
}

int tree_remove(int dirfd, const char *name, struct err *err)
{
	struct removal removal = { .top = -1 };

	return remove_entry(&removal, dirfd, name, 0, err);
}
