/* untar_make.c - makes a file, folder or link below the target from one entry of an archive
 *
 * The user chose the target folder; every name below it is hostile. Each is opened relative to the
 * target with openat2, which refuses to leave it and to follow any symlink. Folders get their final
 * mode and time at the end, since new entries would change the time and the mode may forbid
 * them. */
#include "cli/untar_internal.h"
#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { FOLDERS_MAX = 1 << 20, FOLDER_BYTES_MAX = 64 << 20 };

/* ---- places ---------------------------------------------------------------------------------- */

static int refuse(struct err *err, int why, const char *name)
{
	if (why == ELOOP || why == EXDEV)
		return err_set(
			err, ERR_FORBIDDEN, "'%.200s' leads through a symlink; not followed", name);
	return err_sys(err, why, "'%.200s'", name);
}

/* All names must begin with the folder that was asked for, which comes first. */
static int check_top(struct untar *untar, const char *name, struct err *err)
{
	size_t len = strcspn(name, "/");

	if (!untar->spec.top)
		return 0;
	if (!untar->asked) {
		if (untar->entry->type != TAR_DIR || name[len])
			return err_set(err, ERR_PROTOCOL,
				"a folder was asked for, and the box sent '%.200s'", name);
		untar->asked = xstrndup(name, len);
		return 0;
	}
	if (strlen(untar->asked) != len || memcmp(name, untar->asked, len) != 0)
		return err_set(err, ERR_FORBIDDEN,
			"the box sent '%.200s', which was not asked for; it is ignored", name);
	/* The folder itself a second time, as something else. */
	if (!name[len] && untar->entry->type != TAR_DIR)
		return err_set(err, ERR_PROTOCOL,
			"a folder was asked for, and the box sent '%.200s' as something else",
			name);
	return 0;
}

/* The archive's name as a path below the target: without empty and "." components, the first one
 * replaced as the spec says. "" is the target itself. */
static int map_name(struct untar *untar, const char *name, char *ret, struct err *err)
{
	const char *top = untar->spec.top;
	size_t at = 0;
	bool first = true;

	if (*name == '/')
		return err_set(
			err, ERR_INVALID, "the archive contains the absolute name '%.200s'", name);
	if (check_top(untar, name, err) < 0)
		return -1;
	ret[0] = '\0';
	for (const char *p = name; *p; p += strspn(p, "/")) {
		size_t len = strcspn(p, "/");
		const char *part = p;

		p += len;
		if (len == 0 || (len == 1 && part[0] == '.' && !first))
			continue;
		if (len == 2 && part[0] == '.' && part[1] == '.')
			return err_set(
				err, ERR_INVALID, "the archive contains the name '%.200s'", name);
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
			return err_set(err, ERR_TOO_LARGE,
				"it is nested deeper than a path may be long (%d bytes)", PATH_MAX);
		if (at)
			ret[at++] = '/';
		memcpy(ret + at, part, len);
		at += len;
		ret[at] = '\0';
	}
	return 0;
}

/* Opens (O_PATH) the folder that contains path, made if missing; *ret_last is path's last
 * component. */
static int open_parent(
	const struct untar *untar, char *path, const char **ret_last, int *ret, struct err *err)
{
	char *slash = strrchr(path, '/');
	int fd;

	*ret_last = slash ? slash + 1 : path;
	if (!slash) {
		fd = outdir_open_beneath(untar->spec.dir_fd, ".", O_PATH | O_DIRECTORY);
	} else {
		*slash = '\0';
		fd = outdir_open_beneath(untar->spec.dir_fd, path, O_PATH | O_DIRECTORY);
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
			fd = outdir_open_beneath(untar->spec.dir_fd, path, O_PATH | O_DIRECTORY);
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
	return mode & 0777 & ~(untar->spec.preserve ? 0 : untar->umask);
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
	fd = outdir_open_beneath(parent, last, O_PATH | O_DIRECTORY);
	if (fd < 0 && errno == ENOTDIR)
		return err_set(err, ERR_EXISTS, "'%.200s' exists and is not a folder", path);
	return fd < 0 ? refuse(err, errno, path) : 0;
}

/* ---- what was made -------------------------------------------------------------------------- */

/* A file from the archive. A hard link to anything else in the target would give a file of the user
 * to the box's archive. */
struct made {
	dev_t dev;
	ino_t ino;
};

static struct made *made_slot(const struct untar *untar, dev_t dev, ino_t ino)
{
	size_t at = (size_t)((ino ^ (uint64_t)dev << 32) * UINT64_C(0x9e3779b97f4a7c15) >> 20);

	for (;; at++) {
		struct made *made = &untar->made[at & (untar->made_room - 1)];

		if (!made->ino || (made->ino == ino && made->dev == dev))
			return made;
	}
}

static void remember_file(struct untar *untar, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return;
	if (2 * (untar->made_count + 1) > untar->made_room) {
		struct made *old = untar->made;
		size_t room = untar->made_room;

		untar->made_room = MAX(2 * room, (size_t)1024);
		untar->made = xnewn(struct made, untar->made_room);
		for (size_t i = 0; i < room; i++)
			if (old[i].ino)
				*made_slot(untar, old[i].dev, old[i].ino) = old[i];
		free(old);
	}
	*made_slot(untar, st.st_dev, st.st_ino) = (struct made){ st.st_dev, st.st_ino };
	untar->made_count++;
}

static bool is_made_here(const struct untar *untar, int dir, const char *name)
{
	struct stat st;

	return untar->made_room && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISREG(st.st_mode) && made_slot(untar, st.st_dev, st.st_ino)->ino;
}

/* ---- files and links ------------------------------------------------------------------------ */

static int make_link(struct untar *untar, int parent, const char *temp, struct err *err)
{
	const char *link = untar->entry->link;
	char target[PATH_MAX], *slash;
	_cleanup_close_ int from = -1;
	const char *last;

	if (map_name(untar, link, target, err) < 0)
		return -1;
	slash = strrchr(target, '/');
	last = slash ? slash + 1 : target;
	if (slash)
		*slash = '\0';
	from = outdir_open_beneath(untar->spec.dir_fd, slash ? target : ".", O_PATH | O_DIRECTORY);
	if (from < 0)
		return refuse(err, errno, link);
	if (!is_made_here(untar, from, last))
		return err_set(err, ERR_FORBIDDEN,
			"the archive links to '%.200s', which is not a file in it", link);
	return linkat(from, last, parent, temp, 0) < 0 ? refuse(err, errno, link) : 0;
}

static int make_any_link(
	struct untar *untar, int parent, const char *last, const char *path, struct err *err)
{
	char temp[OUTFILE_TEMP_SIZE];

	outfile_temp_name(temp);
	if (untar->entry->type == TAR_LINK) {
		if (make_link(untar, parent, temp, err) < 0)
			return -1;
	} else if (symlinkat(untar->entry->link, parent, temp) < 0) {
		return refuse(err, errno, path);
	}
	return outfile_rename(parent, temp, last, err);
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
	if (open_parent(untar, path, &last, &parent, err) < 0)
		return -1;
	if (entry->type != TAR_FILE)
		return make_any_link(untar, parent, last, path, err);
	if (outfile_create(parent, last, &untar->file, err) < 0)
		return -1;
	remember_file(untar, untar->file.fd);
	return 0;
}

int untar_end_file(struct untar *untar, struct err *err)
{
	const struct tar_entry *entry = untar->entry;
	int fd = untar->file.fd;
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = entry->mtime } };

	if (fd < 0)
		return 0;
	if (entry->sparse && ftruncate(fd, (off_t)entry->real_size) < 0)
		return refuse(err, errno, entry->name);
	if (untar->spec.preserve && geteuid() == 0 && fchown(fd, entry->uid, entry->gid) < 0)
		return refuse(err, errno, entry->name);
	if (untar->spec.preserve)
		futimens(fd, times);
	return outfile_finish(&untar->file, final_mode(untar, entry->mode), true, err);
}

void untar_end_folders(struct untar *untar)
{
	/* Backwards: deeper folders come later, and must still be reachable. */
	for (size_t i = untar->folder_count; i-- > 0;) {
		const struct folder *folder = &untar->folders[i];
		struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
			{ .tv_sec = folder->mtime } };
		_cleanup_close_ int fd = outdir_open_beneath(
			untar->spec.dir_fd, folder->name, O_RDONLY | O_DIRECTORY);

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
