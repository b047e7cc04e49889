/* beneath.c - see beneath.h */
#include "sys/beneath.h"
#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_once(int root, const char *path, int flags)
{
	struct open_how how = {
		.flags = (unsigned)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

int beneath_open(int root, const char *path, int flags, int *ret, struct err *err)
{
	int fd = -1;

	/* EAGAIN: something was renamed while the kernel resolved the path; a box may do that on
	 * purpose. */
	for (int tries = 0; tries < 16; tries++) {
		fd = open_once(root, path, flags);
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	if (fd < 0 && errno == ELOOP)
		return err_sys(err, ELOOP, "'/%s' goes through a symbolic link", path);
	if (fd < 0)
		return err_sys(err, errno, "open '/%s'", path);
	*ret = fd;
	return 0;
}

int in_root_open(int root, const char *path, int flags, int *ret, struct err *err)
{
	struct open_how how = {
		.flags = (unsigned)(flags | O_CLOEXEC),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = -1;

	for (int tries = 0; fd < 0 && tries < 16; tries++) {
		fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
		if (fd < 0 && errno != EAGAIN)
			return err_sys(err, errno, "'%.300s'", path);
	}
	if (fd < 0)
		return err_sys(err, EAGAIN, "'%.300s'", path);
	*ret = fd;
	return 0;
}

static int make_missing(int root, const char *path, mode_t mode, struct err *err)
{
	char part[256];
	size_t len = strlen(path);

	if (len >= sizeof part)
		return err_sys(err, ENAMETOOLONG, "make '/%s'", path);
	for (size_t end = 1; end <= len; end++) {
		int fd;

		if (path[end] != '/' && path[end] != '\0')
			continue;
		memcpy(part, path, end);
		part[end] = '\0';
		fd = open_once(root, part, O_PATH | O_DIRECTORY);
		if (fd >= 0) {
			close(fd);
			continue;
		}
		/* The parent was opened one round ago without following a link. Only the box itself
		 * could swap it, and would only cheat itself: mkdirat makes no more than an empty
		 * directory. */
		if (errno != ENOENT || mkdirat(root, part, mode) < 0)
			return err_sys(err, errno, "make '/%s'", part);
	}
	return 0;
}

int beneath_make_dir(int root, const char *path, mode_t mode, int *ret, struct err *err)
{
	int fd = open_once(root, path, O_PATH | O_DIRECTORY);

	if (fd < 0 && errno == ENOENT) {
		if (make_missing(root, path, mode, err) < 0)
			return -1;
		fd = open_once(root, path, O_PATH | O_DIRECTORY);
	}
	if (fd < 0 && (errno == ELOOP || errno == ENOTDIR)) {
		err_set(err, ERR_INVALID, "'/%s' is a symbolic link or not a directory", path);
		return err_hint(err, "a directory is needed there; the box replaced it");
	}
	if (fd < 0)
		return err_sys(err, errno, "open '/%s'", path);
	*ret = fd;
	return 0;
}

static int create_file(int root, const char *path, mode_t mode, struct err *err)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	_cleanup_close_ int parent = -1, file = -1;
	char folder[256] = ".";

	if (slash && (size_t)(slash - path) >= sizeof folder)
		return err_sys(err, ENAMETOOLONG, "make '/%s'", path);
	if (slash)
		snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
	if (beneath_make_dir(root, folder, 0755, &parent, err) < 0)
		return -1;
	file = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (file < 0)
		return err_sys(err, errno, "make '/%s'", path);
	return 0;
}

int beneath_make_file(int root, const char *path, mode_t mode, int *ret, struct err *err)
{
	_cleanup_close_ int fd = open_once(root, path, O_PATH);
	struct stat st;

	if (fd < 0 && errno == ENOENT) {
		if (create_file(root, path, mode, err) < 0)
			return -1;
		fd = open_once(root, path, O_PATH);
	}
	if (fd < 0 && errno != ELOOP && errno != ENOTDIR)
		return err_sys(err, errno, "open '/%s'", path);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		err_set(err, ERR_INVALID, "'/%s' is not a regular file", path);
		return err_hint(err, "a file is needed there; the box replaced it");
	}
	*ret = steal_fd(&fd);
	return 0;
}
