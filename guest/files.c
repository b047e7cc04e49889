/* files.c - see files.h */
#include "guest/files.h"
#include "guest/path.h"
#include "base/file.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	RECORD_MAX = NAME_MAX + PATH_MAX + 64, /* one wire_stat of a listing */
	MODE_BITS = 07777,
	TMP_LEN = 12,
};

static void put_stat(struct buf *out, const char *name, const struct stat *st, const char *target)
{
	const struct wire_stat stat = wire_stat_from(name, st, target);

	wire_put_stat(out, &stat);
}

/* Reads the target of the symlink name in dir, or of dir itself when name is "". */
static const char *read_target(int dir, const char *name, const struct stat *st, char out[PATH_MAX])
{
	ssize_t len = S_ISLNK(st->st_mode) ? readlinkat(dir, name, out, PATH_MAX - 1) : 0;

	out[MAX(len, 0)] = '\0';
	return out;
}

static int reply_stat(struct job *job, const char *name, const struct stat *st, const char *target,
	struct err *err)
{
	struct buf out = BUF_INIT;
	int ret;

	put_stat(&out, name, st, target);
	ret = job_reply(job, &out, err);
	buf_done(&out);
	return ret;
}

int files_stat(struct job *job, struct err *err)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	char target[PATH_MAX];

	if (path_check(job->path, err) < 0)
		return -1;
	fd = path_open(AT_FDCWD, job->path, O_PATH | (job->flag ? 0 : O_NOFOLLOW), 0, err);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "'%.300s'", job->path);
	return reply_stat(job, job->path, &st, read_target(fd, "", &st, target), err);
}

static int list_entries(struct job *job, DIR *dir, struct buf *out, struct err *err)
{
	struct dirent *entry;

	while ((errno = 0, entry = readdir(dir))) {
		struct stat st;
		char target[PATH_MAX];

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		/* It may have been removed meanwhile. */
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		put_stat(out, entry->d_name, &st,
			read_target(dirfd(dir), entry->d_name, &st, target));
		if (out->len + RECORD_MAX <= WIRE_DATA_MAX)
			continue;
		if (job_data(job, buf_head(out), out->len, err) < 0)
			return -1;
		buf_eat(out, out->len);
	}
	if (errno)
		return err_sys(err, errno, "read '%.300s'", job->path);
	return out->len ? job_data(job, buf_head(out), out->len, err) : 0;
}

int files_list(struct job *job, struct err *err)
{
	struct buf out = BUF_INIT;
	DIR *dir;
	int fd;

	if (path_check(job->path, err) < 0)
		return -1;
	fd = path_open(AT_FDCWD, job->path, O_RDONLY | O_DIRECTORY, 0, err);
	if (fd < 0)
		return -1;
	dir = fdopendir(fd);
	if (!dir)
		return err_sys(err, errno, "read '%.300s'", job->path);
	if (job_reply(job, NULL, err) < 0 || list_entries(job, dir, &out, err) < 0)
		return -1;
	return job_end(job, err);
}

static int check_regular(const char *path, const struct stat *st, struct err *err)
{
	if (S_ISDIR(st->st_mode))
		return err_set(err, ERR_INVALID, "'%.300s' is a directory", path);
	if (!S_ISREG(st->st_mode))
		return err_set(err, ERR_INVALID, "'%.300s' is not a regular file", path);
	return 0;
}

int files_read(struct job *job, struct err *err)
{
	static uint8_t chunk[WIRE_DATA_MAX];
	_cleanup_close_ int fd = -1;
	struct stat st;
	uint64_t left = job->length ? job->length : UINT64_MAX;

	if (path_check(job->path, err) < 0)
		return -1;
	/* Opening a fifo or a device must neither block nor become our terminal. */
	fd = path_open(AT_FDCWD, job->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, err);
	if (fd < 0 && (err->errno_value == ENXIO || err->errno_value == ENODEV))
		return err_set(err, ERR_INVALID, "'%.300s' is not a regular file", job->path);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "'%.300s'", job->path);
	if (check_regular(job->path, &st, err) < 0)
		return -1;
	if (job->offset > INT64_MAX || (job->offset && lseek(fd, (off_t)job->offset, SEEK_SET) < 0))
		return err_set(
			err, ERR_INVALID, "cannot read '%.300s' from that offset", job->path);
	if (reply_stat(job, job->path, &st, "", err) < 0)
		return -1;
	while (left) {
		ssize_t got = read(fd, chunk, (size_t)MIN(left, (uint64_t)sizeof chunk));

		if (got < 0)
			return err_sys(err, errno, "read '%.300s'", job->path);
		if (!got)
			break;
		if (job_data(job, chunk, (size_t)got, err) < 0)
			return -1;
		left -= (uint64_t)got;
	}
	return job_end(job, err);
}

/* ---- writing -------------------------------------------------------------------------------- */

static int receive(struct job *job, int fd, struct err *err)
{
	const uint8_t *data;
	ssize_t len;

	while ((len = job_take(job, &data, err)) > 0)
		if (fd_write_all(fd, data, (size_t)len, err) < 0)
			return err_wrap(err, "'%.300s'", job->path);
	return (int)len;
}

/* Keeps the owner and mode of the old file, unless a mode is given. */
static int dress(struct job *job, int fd, const struct stat *old, struct err *err)
{
	mode_t mode = job->mode & MODE_BITS;

	if (old && fchown(fd, old->st_uid, old->st_gid) < 0)
		return err_sys(err, errno, "keep the owner of '%.300s'", job->path);
	if (!job->mode)
		mode = old ? old->st_mode & MODE_BITS : 0644;
	if (fchmod(fd, mode) < 0)
		return err_sys(err, errno, "set the mode of '%.300s'", job->path);
	return 0;
}

static int write_beside(struct job *job, const struct place *place, const char *tmp,
	const struct stat *old, struct stat *ret, struct err *err)
{
	_cleanup_close_ int fd =
		openat(place->dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_sys(err, errno, "write beside '%.300s'", job->path);
	if (receive(job, fd, err) < 0 || dress(job, fd, old, err) < 0 || fstat(fd, ret) < 0 ||
		renameat(place->dir, tmp, place->dir, place->name) < 0) {
		if (!err->kind)
			err_sys(err, errno, "'%.300s'", job->path);
		unlinkat(place->dir, tmp, 0);
		return -1;
	}
	return 0;
}

int files_write(struct job *job, struct err *err)
{
	_cleanup_place_ struct place place = PLACE_INIT;
	char tmp[32] = ".boxyard-";
	struct stat old, made;
	bool there;

	if (path_find(job->path, true, job->flag, &place, err) < 0)
		return -1;
	there = fstatat(place.dir, place.name, &old, AT_SYMLINK_NOFOLLOW) == 0;
	if (!there && errno != ENOENT)
		return err_sys(err, errno, "'%.300s'", job->path);
	if (there && check_regular(job->path, &old, err) < 0)
		return -1;
	random_id(tmp + strlen(tmp), TMP_LEN);
	if (write_beside(job, &place, tmp, there ? &old : NULL, &made, err) < 0)
		return -1;
	return reply_stat(job, job->path, &made, "", err);
}

/* ---- the rest ------------------------------------------------------------------------------- */

int files_mkdir(struct job *job, struct err *err)
{
	_cleanup_place_ struct place place = PLACE_INIT;
	_cleanup_close_ int dir = -1;
	mode_t mode = job->mode ? job->mode & MODE_BITS : 0755;

	if (path_find(job->path, false, job->flag, &place, err) < 0)
		return -1;
	if (mkdirat(place.dir, place.name, mode) == 0)
		return job_reply(job, NULL, err);
	if (errno != EEXIST || !job->flag)
		return err_sys(err, errno, "make folder '%.300s'", job->path);
	/* With parents, an existing folder is accepted. */
	dir = path_open(place.dir, place.name, O_PATH | O_DIRECTORY, 0, err);
	if (dir < 0)
		return err_wrap(err, "make folder");
	return job_reply(job, NULL, err);
}

int files_remove(struct job *job, struct err *err)
{
	_cleanup_place_ struct place place = PLACE_INIT;
	struct stat st;

	if (path_find(job->path, false, false, &place, err) < 0)
		return -1;
	if (!strcmp(place.name, "."))
		return err_set(err, ERR_INVALID, "'%.300s' cannot be removed", job->path);
	if (fstatat(place.dir, place.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "'%.300s'", job->path);
	if (job->flag) {
		if (tree_remove(place.dir, place.name, err) < 0)
			return err_wrap(err, "'%.300s'", job->path);
	} else if (unlinkat(place.dir, place.name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0) {
		if (errno == ENOTEMPTY)
			return err_set(err, ERR_INVALID,
				"folder '%.300s' is not empty; ask for recursive", job->path);
		return err_sys(err, errno, "remove '%.300s'", job->path);
	}
	return job_reply(job, NULL, err);
}

int files_rename(struct job *job, struct err *err)
{
	_cleanup_place_ struct place from = PLACE_INIT;
	_cleanup_place_ struct place to = PLACE_INIT;

	if (path_find(job->path, false, false, &from, err) < 0 ||
		path_find(job->to, false, false, &to, err) < 0)
		return -1;
	if (renameat(from.dir, from.name, to.dir, to.name) < 0)
		return err_sys(err, errno, "rename '%.200s' to '%.200s'", job->path, job->to);
	return job_reply(job, NULL, err);
}

int files_chmod(struct job *job, struct err *err)
{
	_cleanup_place_ struct place place = PLACE_INIT;

	if (path_find(job->path, true, false, &place, err) < 0)
		return -1;
	if (fchmodat(place.dir, place.name, job->mode & MODE_BITS, 0) < 0)
		return err_sys(err, errno, "'%.300s'", job->path);
	return job_reply(job, NULL, err);
}
