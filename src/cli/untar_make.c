/* untar_make.c - one member of an archive becomes a file, folder or link below the target
 *
 * The target folder is the user's choice; every name below it is an attacker's. Each is opened relative to the
 * target with openat2, which refuses to leave it and to follow any symlink. Folders get their final mode and
 * time at the end, since what comes into them would change the one and may be kept out by the other. */
#include "cli/untar_internal.h"
#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { FOLDERS_MAX = 1 << 20, FOLDER_BYTES_MAX = 64 << 20 };

/* ---- places ---------------------------------------------------------------------------------- */

static int open_beneath(int dir, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, dir, *path ? path : ".", &how, sizeof how);
}

static int refuse(struct err *err, int why, const char *name)
{
	if (why == ELOOP || why == EXDEV)
		return err_set(
			err, ERR_FORBIDDEN, "'%.200s' leads through a symlink; not followed", name);
	return err_sys(err, why, "'%.200s'", name);
}

/* The archive's name as a path below the target: without empty and "." components, its first one replaced as
 * the spec says. "" is the target itself. */
static int map_name(const struct untar *untar, const char *name, char *ret, struct err *err)
{
	const char *top = untar->spec.top;
	size_t at = 0;
	bool first = true;

	if (*name == '/')
		return err_set(
			err, ERR_INVALID, "the archive holds the absolute name '%.200s'", name);
	ret[0] = '\0';
	for (const char *p = name; *p; p += strspn(p, "/")) {
		size_t len = strcspn(p, "/");
		const char *part = p;

		p += len;
		if (len == 0 || (len == 1 && part[0] == '.' && !first))
			continue;
		if (len == 2 && part[0] == '.' && part[1] == '.')
			return err_set(
				err, ERR_INVALID, "the archive holds the name '%.200s'", name);
		if (first && top) {
			part = top;
			len = strlen(top);
		} else if (len == 1 && part[0] == '.') {
			len = 0;
		}
		first = false;
		if (!len)
			continue;
		if (at + len + 2 > PATH_MAX)
			return err_set(err, ERR_TOO_LARGE, "the archive holds a name over %d bytes",
				PATH_MAX);
		if (at)
			ret[at++] = '/';
		memcpy(ret + at, part, len);
		at += len;
		ret[at] = '\0';
	}
	return 0;
}

/* An O_PATH fd of the folder that path lies in, made if missing; *ret_last is path's last component. */
static int open_parent(
	const struct untar *untar, char *path, const char **ret_last, int *ret, struct err *err)
{
	char *slash = strrchr(path, '/');
	int fd;

	*ret_last = slash ? slash + 1 : path;
	if (!slash) {
		fd = open_beneath(untar->spec.dir_fd, ".", O_PATH | O_DIRECTORY);
	} else {
		*slash = '\0';
		fd = open_beneath(untar->spec.dir_fd, path, O_PATH | O_DIRECTORY);
		if (fd < 0 && errno == ENOENT) {
			_cleanup_close_ int above = -1;
			const char *last;

			if (open_parent(untar, path, &last, &above, err) < 0) {
				*slash = '/';
				return -1;
			}
			if (mkdirat(above, last, 0755) < 0 && errno != EEXIST) {
				refuse(err, errno, path);
				*slash = '/';
				return -1;
			}
			fd = open_beneath(untar->spec.dir_fd, path, O_PATH | O_DIRECTORY);
		}
		*slash = '/';
	}
	if (fd < 0)
		return refuse(err, errno, path);
	*ret = fd;
	return 0;
}

/* ---- making things --------------------------------------------------------------------------- */

static mode_t final_mode(const struct untar *untar, mode_t mode)
{
	return untar->spec.preserve ? mode & 07777 : mode & 0777 & ~untar->umask;
}

static int remember_folder(struct untar *untar, const char *path, struct err *err)
{
	const struct tar_entry *entry = untar->entry;

	untar->folder_bytes += strlen(path);
	if (untar->folder_count >= FOLDERS_MAX || untar->folder_bytes > FOLDER_BYTES_MAX)
		return err_set(err, ERR_LIMIT,
			"the archive has more than %d folders, or %d MiB of their names",
			FOLDERS_MAX, FOLDER_BYTES_MAX >> 20);
	if ((untar->folder_count & (untar->folder_count + 1)) == 0)
		xgrow(untar->folders, 2 * (untar->folder_count + 1));
	untar->folders[untar->folder_count++] = (struct folder){ xstrdup(path),
		final_mode(untar, entry->mode), entry->uid, entry->gid, entry->mtime };
	return 0;
}

static int make_folder(struct untar *untar, char *path, struct err *err)
{
	_cleanup_close_ int parent = -1, fd = -1;
	const char *last;

	if (!*path)
		return 0; /* the target itself, which is there */
	if (open_parent(untar, path, &last, &parent, err) < 0)
		return -1;
	if (mkdirat(parent, last, 0700) == 0)
		return remember_folder(untar, path, err);
	if (errno != EEXIST)
		return refuse(err, errno, path);
	fd = open_beneath(parent, last, O_PATH | O_DIRECTORY);
	if (fd < 0 && errno == ENOTDIR)
		return err_set(err, ERR_EXISTS, "'%.200s' is there and is no folder", path);
	return fd < 0 ? refuse(err, errno, path) : 0;
}

static int clear_way(int parent, const char *last, const char *path, struct err *err)
{
	if (unlinkat(parent, last, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno == EISDIR || errno == EPERM)
		return err_set(err, ERR_EXISTS, "'%.200s' is there and is a folder", path);
	return refuse(err, errno, path);
}

static int make_file(
	struct untar *untar, int parent, const char *last, const char *path, struct err *err)
{
	untar->fd =
		openat(parent, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return untar->fd < 0 ? refuse(err, errno, path) : 0;
}

static int make_link(
	struct untar *untar, int parent, const char *last, const char *path, struct err *err)
{
	char target[PATH_MAX];
	_cleanup_close_ int from = -1;
	const char *target_last;

	if (map_name(untar, untar->entry->link, target, err) < 0 ||
		open_parent(untar, target, &target_last, &from, err) < 0)
		return -1;
	return linkat(from, target_last, parent, last, 0) < 0 ? refuse(err, errno, path) : 0;
}

int untar_make_entry(struct untar *untar, struct err *err)
{
	const struct tar_entry *entry = untar->entry;
	_cleanup_close_ int parent = -1;
	const char *last;
	char path[PATH_MAX];

	if (map_name(untar, entry->name, path, err) < 0)
		return -1;
	if (entry->type == TAR_DIR)
		return make_folder(untar, path, err);
	if (entry->type > TAR_SYMLINK || !*path) {
		untar->skipped++;
		return 0;
	}
	untar->files++;
	if (open_parent(untar, path, &last, &parent, err) < 0 ||
		clear_way(parent, last, path, err) < 0)
		return -1;
	if (entry->type == TAR_LINK)
		return make_link(untar, parent, last, path, err);
	if (entry->type == TAR_SYMLINK)
		return symlinkat(entry->link, parent, last) < 0 ? refuse(err, errno, path) : 0;
	return make_file(untar, parent, last, path, err);
}

int untar_end_file(struct untar *untar, struct err *err)
{
	const struct tar_entry *entry = untar->entry;
	_cleanup_close_ int fd = steal_fd(&untar->fd);
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = entry->mtime } };

	if (fd < 0)
		return 0;
	if (entry->sparse && ftruncate(fd, (off_t)entry->real_size) < 0)
		return refuse(err, errno, entry->name);
	/* The owner first: changing it takes set-user-id bits away. */
	if (untar->spec.preserve && geteuid() == 0 && fchown(fd, entry->uid, entry->gid) < 0)
		return refuse(err, errno, entry->name);
	if (fchmod(fd, final_mode(untar, entry->mode)) < 0)
		return refuse(err, errno, entry->name);
	if (untar->spec.preserve)
		futimens(fd, times);
	return 0;
}

void untar_end_folders(struct untar *untar)
{
	/* Backwards: what lies deeper comes later, and must still be reachable. */
	for (size_t i = untar->folder_count; i-- > 0;) {
		const struct folder *folder = &untar->folders[i];
		struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
			{ .tv_sec = folder->mtime } };
		_cleanup_close_ int fd =
			open_beneath(untar->spec.dir_fd, folder->name, O_RDONLY | O_DIRECTORY);

		if (fd < 0)
			continue;
		if (untar->spec.preserve && geteuid() == 0 &&
			fchown(fd, folder->uid, folder->gid) < 0)
			continue;
		fchmod(fd, folder->mode);
		if (untar->spec.preserve)
			futimens(fd, times);
	}
}
