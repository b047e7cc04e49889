/* sftp_path.c - requests about a path: attributes, folders, links, other names
 *
 * Paths are the client's own, as the user he logged in as: the kernel checks them. Relative ones
 * start at his home, where the server runs. */
#include "guest/sftp_internal.h"
#include "guest/user.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/statvfs.h>

enum { LINKS_MAX = 32 };

typedef char path_text[SFTP_PATH_MAX + 1];

/* The only field of many requests. */
static bool get_path(struct sftp_request *request, path_text path)
{
	sftp_get_text(request, path, sizeof(path_text));
	return !request->bad;
}

static bool get_two_paths(struct sftp_request *request, path_text first, path_text second)
{
	return get_path(request, first) && get_path(request, second);
}

/* ---- attributes ----------------------------------------------------------------------------- */

void sftp_stat(struct sftp *sftp, struct sftp_request *request)
{
	path_text path;
	struct stat st;

	(void)sftp;
	if (get_path(request, path))
		sftp_answer_stat(request, stat(path, &st), &st);
}

void sftp_lstat(struct sftp *sftp, struct sftp_request *request)
{
	path_text path;
	struct stat st;

	(void)sftp;
	if (get_path(request, path))
		sftp_answer_stat(request, lstat(path, &st), &st);
}

static int set_size(int fd, const char *path, uint64_t size)
{
	if (size > INT64_MAX) {
		errno = EINVAL;
		return -1;
	}
	return path ? truncate(path, (off_t)size) : ftruncate(fd, (off_t)size);
}

/* In the order in which none of them undoes another: a new owner takes away setuid, a new size
 * changes the time. */
void sftp_set_attrs(struct sftp_request *request, int fd, const char *path, int flags,
	const struct sftp_attrs *attrs)
{
	const struct timespec times[2] = { { .tv_sec = attrs->atime }, { .tv_sec = attrs->mtime } };
	int failed = 0;

	if ((attrs->flags & SFTP_ATTR_SIZE) && set_size(fd, path, attrs->size) < 0)
		failed = errno;
	if ((attrs->flags & SFTP_ATTR_OWNER) &&
		(path ? fchownat(AT_FDCWD, path, attrs->uid, attrs->gid, flags)
		      : fchown(fd, attrs->uid, attrs->gid)) < 0)
		failed = failed ? failed : errno;
	if ((attrs->flags & SFTP_ATTR_MODE) &&
		(path ? fchmodat(AT_FDCWD, path, attrs->mode, flags) : fchmod(fd, attrs->mode)) < 0)
		failed = failed ? failed : errno;
	if ((attrs->flags & SFTP_ATTR_TIMES) &&
		(path ? utimensat(AT_FDCWD, path, times, flags) : futimens(fd, times)) < 0)
		failed = failed ? failed : errno;
	sftp_answer_errno(request, failed);
}

void sftp_setstat(struct sftp *sftp, struct sftp_request *request)
{
	path_text path;
	struct sftp_attrs attrs;

	(void)sftp;
	sftp_get_text(request, path, sizeof path);
	sftp_get_attrs(request, &attrs);
	if (!request->bad)
		sftp_set_attrs(request, -1, path, 0, &attrs);
}

void sftp_lsetstat(struct sftp *sftp, struct sftp_request *request)
{
	path_text path;
	struct sftp_attrs attrs;

	(void)sftp;
	sftp_get_text(request, path, sizeof path);
	sftp_get_attrs(request, &attrs);
	if (request->bad)
		return;
	if (attrs.flags & SFTP_ATTR_SIZE) /* a link has none to be set */
		sftp_answer_code(request, SFTP_BAD_MESSAGE);
	else
		sftp_set_attrs(request, -1, path, AT_SYMLINK_NOFOLLOW, &attrs);
}

void sftp_answer_statvfs(struct sftp_request *request, int result, const struct statvfs *st)
{
	enum { READ_ONLY = 1, NO_SETUID = 2 };
	size_t mark;

	if (result < 0) {
		sftp_answer_errno(request, errno);
		return;
	}
	mark = sftp_begin(request, SFTP_EXTENDED_REPLY);
	sftp_put_u64(request->out, st->f_bsize);
	sftp_put_u64(request->out, st->f_frsize);
	sftp_put_u64(request->out, st->f_blocks);
	sftp_put_u64(request->out, st->f_bfree);
	sftp_put_u64(request->out, st->f_bavail);
	sftp_put_u64(request->out, st->f_files);
	sftp_put_u64(request->out, st->f_ffree);
	sftp_put_u64(request->out, st->f_favail);
	sftp_put_u64(request->out, st->f_fsid);
	sftp_put_u64(request->out, (st->f_flag & ST_RDONLY ? READ_ONLY : 0) |
					   (st->f_flag & ST_NOSUID ? NO_SETUID : 0));
	sftp_put_u64(request->out, st->f_namemax);
	sftp_end(request, mark);
}

void sftp_statvfs(struct sftp *sftp, struct sftp_request *request)
{
	path_text path;
	struct statvfs st;

	(void)sftp;
	if (get_path(request, path))
		sftp_answer_statvfs(request, statvfs(path, &st), &st);
}

/* ---- names ---------------------------------------------------------------------------------- */

void sftp_remove(struct sftp *sftp, struct sftp_request *request)
{
	path_text path;

	(void)sftp;
	if (get_path(request, path))
		sftp_answer_result(request, unlink(path));
}

void sftp_mkdir(struct sftp *sftp, struct sftp_request *request)
{
	path_text path;
	struct sftp_attrs attrs;

	(void)sftp;
	sftp_get_text(request, path, sizeof path);
	sftp_get_attrs(request, &attrs);
	if (!request->bad)
		sftp_answer_result(request,
			mkdir(path, attrs.flags & SFTP_ATTR_MODE ? attrs.mode : (mode_t)0777));
}

void sftp_rmdir(struct sftp *sftp, struct sftp_request *request)
{
	path_text path;

	(void)sftp;
	if (get_path(request, path))
		sftp_answer_result(request, rmdir(path));
}

/* What is at the new name stays. */
static int rename_to_new(const char *from, const char *to)
{
	struct stat st;

	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	/* A file system without it. */
	if (lstat(to, &st) == 0) {
		errno = EEXIST;
		return -1;
	}
	return rename(from, to);
}

void sftp_rename(struct sftp *sftp, struct sftp_request *request)
{
	path_text from, to;

	(void)sftp;
	if (get_two_paths(request, from, to))
		sftp_answer_result(request, rename_to_new(from, to));
}

void sftp_posix_rename(struct sftp *sftp, struct sftp_request *request)
{
	path_text from, to;

	(void)sftp;
	if (get_two_paths(request, from, to))
		sftp_answer_result(request, rename(from, to));
}

void sftp_hardlink(struct sftp *sftp, struct sftp_request *request)
{
	path_text from, to;

	(void)sftp;
	if (get_two_paths(request, from, to))
		sftp_answer_result(request, link(from, to));
}

/* Where it leads comes first, as OpenSSH has always sent it; the draft says the opposite. */
void sftp_symlink(struct sftp *sftp, struct sftp_request *request)
{
	path_text target, path;

	(void)sftp;
	if (get_two_paths(request, target, path))
		sftp_answer_result(request, symlink(target, path));
}

void sftp_readlink(struct sftp *sftp, struct sftp_request *request)
{
	path_text path, target;
	ssize_t len;

	(void)sftp;
	if (!get_path(request, path))
		return;
	len = readlink(path, target, sizeof target - 1);
	if (len < 0) {
		sftp_answer_errno(request, errno);
		return;
	}
	target[len] = '\0';
	sftp_answer_name(request, target);
}

/* ---- absolute paths ------------------------------------------------------------------------- */

/* Takes the first component off *left. */
static char *next_part(char **left)
{
	char *part = *left + strspn(*left, "/");
	size_t len = strcspn(part, "/");

	*left = part + len;
	if (**left)
		*(*left)++ = '\0';
	return part;
}

static void drop_last(char *path)
{
	char *slash = strrchr(path, '/');

	slash[slash == path] = '\0';
}

/* ret and name, or ENAMETOOLONG. */
static int add_part(path_text ret, const char *name)
{
	size_t len = strlen(ret);
	int more = snprintf(
		ret + len, sizeof(path_text) - len, "%s%s", ret[len - 1] == '/' ? "" : "/", name);

	if (len + (size_t)more <= SFTP_PATH_MAX)
		return 0;
	errno = ENAMETOOLONG;
	return -1;
}

/* ret ends in a link to target, with left after it: goes on from there. */
static int enter_link(path_text ret, const char *target, path_text left, const char *rest)
{
	path_text whole;

	if (strlen(target) + 1 + strlen(rest) > SFTP_PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(whole, target);
	strcat(whole, "/");
	strcat(whole, rest);
	strcpy(left, whole);
	if (*target == '/')
		strcpy(ret, "/");
	else
		drop_last(ret);
	return 0;
}

/* As realpath(3), but the last component need not exist. */
static int resolve(const char *path, path_text ret)
{
	path_text left, target;
	char *rest = left;
	unsigned links = 0;

	strcpy(left, path);
	strcpy(ret, "/");
	if (*path != '/' && !getcwd(ret, sizeof(path_text)))
		return -1;
	while (*rest) {
		const char *part = next_part(&rest);
		ssize_t len;

		if (!*part || !strcmp(part, "."))
			continue;
		if (!strcmp(part, "..")) {
			drop_last(ret);
			continue;
		}
		if (add_part(ret, part) < 0)
			return -1;
		len = readlink(ret, target, sizeof target - 1);
		if (len < 0 && errno == EINVAL)
			continue; /* no link */
		if (len < 0)
			return errno == ENOENT && !rest[strspn(rest, "/")] ? 0 : -1;
		if (++links > LINKS_MAX) {
			errno = ELOOP;
			return -1;
		}
		target[len] = '\0';
		if (enter_link(ret, target, left, rest) < 0)
			return -1;
		rest = left;
	}
	return 0;
}

static void answer_real(struct sftp_request *request, const char *path)
{
	path_text real;

	if (resolve(path, real) < 0)
		sftp_answer_errno(request, errno);
	else
		sftp_answer_name(request, real);
}

void sftp_realpath(struct sftp *sftp, struct sftp_request *request)
{
	path_text path;

	(void)sftp;
	if (get_path(request, path))
		answer_real(request, path);
}

/* "~", "~/…", "~user/…" */
void sftp_expand_path(struct sftp *sftp, struct sftp_request *request)
{
	path_text path, whole;
	size_t name;

	(void)sftp;
	if (!get_path(request, path))
		return;
	if (*path != '~') {
		answer_real(request, path);
		return;
	}
	name = strcspn(path, "/");
	snprintf(whole, sizeof whole, "%.*s", (int)name - 1, path + 1);
	if (!user_find_home(whole, whole, sizeof whole))
		sftp_answer_code(request, SFTP_NO_SUCH_FILE);
	else if (strlen(whole) + strlen(path + name) > SFTP_PATH_MAX)
		sftp_answer_errno(request, ENAMETOOLONG);
	else
		answer_real(request, strcat(whole, path + name));
}

void sftp_home_directory(struct sftp *sftp, struct sftp_request *request)
{
	path_text name, home;

	(void)sftp;
	if (!get_path(request, name))
		return;
	if (user_find_home(name, home, sizeof home))
		sftp_answer_name(request, home);
	else
		sftp_answer_code(request, SFTP_FAILURE);
}
