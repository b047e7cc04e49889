/* path.c - see path.h */
#include "guest/path.h"
#include "base/alloc.h"
#include "wire/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { LINKS_MAX = 40 };

void place_done(struct place *place)
{
	cleanup_closep(&place->dir);
}

int path_check(const char *path, struct err *err)
{
	if (*path != '/')
		return err_set(err, ERR_INVALID, "path '%.300s' is not absolute", path);
	for (const char *p = path; *p;) {
		size_t len = strcspn(p, "/");

		if (len == 2 && p[0] == '.' && p[1] == '.')
			return err_set(err, ERR_INVALID, "path '%.300s' holds '..'", path);
		p += len;
		p += strspn(p, "/");
	}
	return 0;
}

int open_how(int dir, const char *path, int flags, mode_t mode, unsigned long long resolve)
{
	struct open_how how = {
		.flags = (unsigned)flags | O_CLOEXEC,
		.mode = mode,
		.resolve = resolve,
	};

	return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

/* After an ELOOP: it means a magic link, or a circle of symlinks. The second also stops a lookup
 * that follows all. */
static int fail_loop(int dir, const char *name, const char *path, struct err *err)
{
	_cleanup_close_ int any = openat(dir, name, O_PATH | O_CLOEXEC);

	if (any >= 0)
		return err_set(
			err, ERR_INVALID, "path '%.300s' goes through a magic link of /proc", path);
	return err_sys(err, ELOOP, "'%.300s'", path);
}

int path_open(int dir, const char *path, int flags, mode_t mode, struct err *err)
{
	int fd = open_how(dir, path, flags, mode, RESOLVE_NO_MAGICLINKS);

	if (fd >= 0)
		return fd;
	if (errno == ELOOP && !(flags & O_NOFOLLOW))
		return fail_loop(dir, path, path, err);
	return err_sys(err, errno, "'%.300s'", path);
}

/* Splits path into its folder ("" when it has none) and last component, without trailing
 * slashes. */
static int split(const char *path, char *folder, size_t size, char name[256], struct err *err)
{
	size_t len = strlen(path);
	const char *last;

	while (len > 1 && path[len - 1] == '/')
		len--;
	last = memrchr(path, '/', len);
	last = last ? last + 1 : path;
	if ((size_t)(path + len - last) > NAME_MAX || (size_t)(last - path) >= size)
		return err_sys(err, ENAMETOOLONG, "'%.300s'", path);
	memcpy(folder, path, (size_t)(last - path));
	folder[last - path] = '\0';
	memcpy(name, last, (size_t)(path + len - last));
	name[path + len - last] = '\0';
	if (!*name)
		strcpy(name, ".");
	return 0;
}

/* If the place is a symlink, moves to where it points. 1: moved, 0: no symlink. */
static int follow_once(struct place *place, const char *path, struct err *err)
{
	char target[PATH_MAX], folder[PATH_MAX];
	_cleanup_close_ int here = -1;
	ssize_t len = readlinkat(place->dir, place->name, target, sizeof target - 1);

	if (len < 0)
		return 0;
	target[len] = '\0';
	/* The text of a magic link is not where it leads. */
	here = open_how(place->dir, place->name, O_PATH, 0, RESOLVE_NO_MAGICLINKS);
	if (here < 0 && errno == ELOOP)
		return fail_loop(place->dir, place->name, path, err);
	if (split(target, folder, sizeof folder, place->name, err) < 0)
		return -1;
	if (*folder) {
		int dir = path_open(place->dir, folder, O_PATH | O_DIRECTORY, 0, err);

		if (dir < 0)
			return -1;
		close(place->dir);
		place->dir = dir;
	}
	return 1;
}

int path_find(const char *path, bool follow, bool parents, struct place *ret, struct err *err)
{
	_cleanup_place_ struct place place = PLACE_INIT;
	char folder[WIRE_PATH_MAX + 1];
	int moved;

	if (path_check(path, err) < 0 || split(path, folder, sizeof folder, place.name, err) < 0)
		return -1;
	place.dir = parents ? path_make_dirs(folder, 0755, err)
			    : path_open(AT_FDCWD, folder, O_PATH | O_DIRECTORY, 0, err);
	if (place.dir < 0)
		return -1;
	for (int links = 0; follow; links++) {
		if (links == LINKS_MAX)
			return err_sys(err, ELOOP, "'%.300s'", path);
		moved = follow_once(&place, path, err);
		if (moved < 0)
			return -1;
		if (!moved)
			break;
	}
	*ret = place;
	place.dir = -1;
	return 0;
}

int path_make_dirs(const char *path, mode_t mode, struct err *err)
{
	_cleanup_close_ int dir = path_open(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0, err);

	while (dir >= 0) {
		char name[256];
		size_t len;
		int next;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (!len)
			return steal_fd(&dir);
		if (len > NAME_MAX)
			return err_sys(err, ENAMETOOLONG, "'%.300s'", path);
		memcpy(name, path, len);
		name[len] = '\0';
		path += len;
		if (mkdirat(dir, name, path[strspn(path, "/")] ? 0755 : mode) < 0 &&
			errno != EEXIST)
			return err_sys(err, errno, "make folder '%s'", name);
		next = path_open(dir, name, O_PATH | O_DIRECTORY, 0, err);
		close(dir);
		dir = next;
	}
	return -1;
}
