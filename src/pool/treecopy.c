/* treecopy.c - a tree copied as true as can be, where there are no snapshots
 *
 * Owners, modes, times, extended attributes (trusted ones too: overlay's whiteouts and opaque folders are
 * such), hard links, device nodes, sockets and pipes. Data is shared where the file system can (FICLONE),
 * else copied in the kernel, holes left out. Nothing is followed: what a box made may point anywhere. */
#include "pool/pool_internal.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

enum {
	DEPTH_MAX = 256, /* three descriptors each */
	NAMES_MAX = 65536,
	VALUE_MAX = 65536,
};

struct hard_link {
	dev_t dev;
	ino_t ino;
	char *path; /* in the copy, from its top */
};

struct copy {
	int top;
	struct hard_link *links; /* open addressing; path NULL: free */
	size_t count, cap;	 /* cap is a power of two */
	char *names, *value;	 /* for extended attributes */
};

/* ---- hard links -------------------------------------------------------------------------------------------- */

static struct hard_link *link_slot(struct copy *copy, dev_t dev, ino_t ino)
{
	size_t at = ((size_t)ino * 0x9e3779b97f4a7c15u ^ (size_t)dev) & (copy->cap - 1);

	while (copy->links[at].path && (copy->links[at].ino != ino || copy->links[at].dev != dev))
		at = (at + 1) & (copy->cap - 1);
	return &copy->links[at];
}

static void links_grow(struct copy *copy)
{
	struct hard_link *old = copy->links;
	size_t cap = copy->cap;

	copy->cap = MAX(cap * 2, (size_t)256);
	copy->links = xnewn(struct hard_link, copy->cap);
	for (size_t i = 0; i < cap; i++)
		if (old[i].path)
			*link_slot(copy, old[i].dev, old[i].ino) = old[i];
	free(old);
}

/* 1: it was made as another name of a file copied before. */
static int try_link(struct copy *copy, const struct stat *st, const char *path, int to,
	const char *name, struct err *err)
{
	struct hard_link *slot;

	if (st->st_nlink < 2 || S_ISDIR(st->st_mode))
		return 0;
	if (copy->count * 2 >= copy->cap)
		links_grow(copy);
	slot = link_slot(copy, st->st_dev, st->st_ino);
	if (slot->path) {
		if (linkat(copy->top, slot->path, to, name, 0) < 0)
			return err_sys(err, errno, "link '%s'", path);
		return 1;
	}
	*slot = (struct hard_link){ .dev = st->st_dev, .ino = st->st_ino, .path = xstrdup(path) };
	copy->count++;
	return 0;
}

/* ---- what a file has besides its data ------------------------------------------------------------------------- */

/* By way of /proc: there is no *at call for attributes of links, and none for O_PATH descriptors. */
static char *proc_path(int dirfd, const char *name)
{
	return xasprintf("/proc/self/fd/%d/%s", dirfd, name);
}

static int copy_xattrs(struct copy *copy, int from, int to, const char *name, struct err *err)
{
	_cleanup_free_ char *source = proc_path(from, name), *target = proc_path(to, name);
	ssize_t len = llistxattr(source, copy->names, NAMES_MAX);

	if (len < 0 && errno == EOPNOTSUPP)
		return 0;
	if (len < 0)
		return err_sys(err, errno, "list attributes of '%s'", name);
	for (const char *at = copy->names; at < copy->names + len; at += strlen(at) + 1) {
		ssize_t size = lgetxattr(source, at, copy->value, VALUE_MAX);

		if (size < 0 && errno == ENODATA)
			continue;
		if (size < 0 || lsetxattr(target, at, copy->value, (size_t)size, 0) < 0)
			return err_sys(err, errno, "copy attribute '%s' of '%s'", at, name);
	}
	return 0;
}

/* Owner first: changing it takes setuid bits and file capabilities away. */
static int copy_owner_and_rest(struct copy *copy, int from, int to, const char *name,
	const struct stat *st, struct err *err)
{
	struct timespec times[2] = { st->st_atim, st->st_mtim };

	if (fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "chown '%s'", name);
	if (!S_ISLNK(st->st_mode) && fchmodat(to, name, st->st_mode & 07777, 0) < 0)
		return err_sys(err, errno, "chmod '%s'", name);
	if (copy_xattrs(copy, from, to, name, err) < 0)
		return -1;
	if (utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "set times of '%s'", name);
	return 0;
}

/* ---- the kinds of files ----------------------------------------------------------------------------------------- */

static int copy_range(int in, int out, off_t from, off_t end, struct err *err)
{
	off_t to = from;

	while (from < end) {
		ssize_t n = copy_file_range(in, &from, out, &to, (size_t)(end - from), 0);

		if (n < 0 && errno != EINTR)
			return err_sys(err, errno, "copy data");
		if (n == 0)
			break; /* it became shorter meanwhile */
	}
	return 0;
}

static int copy_data(int in, int out, off_t size, struct err *err)
{
	off_t data = 0, hole;

	if (!size || ioctl(out, FICLONE, in) == 0)
		return 0;
	while (data < size && (data = lseek(in, data, SEEK_DATA)) >= 0) {
		hole = lseek(in, data, SEEK_HOLE);
		if (hole < 0 || copy_range(in, out, data, MIN(hole, size), err) < 0)
			return hole < 0 ? err_sys(err, errno, "find data") : -1;
		data = hole;
	}
	if (data < 0 && errno != ENXIO) /* ENXIO: only a hole is left */
		return err_sys(err, errno, "find data");
	if (ftruncate(out, size) < 0)
		return err_sys(err, errno, "set the length");
	return 0;
}

static int copy_file(int from, int to, const char *name, const struct stat *st, struct err *err)
{
	_cleanup_close_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_close_ int out = -1;

	if (in < 0)
		return err_sys(err, errno, "open '%s'", name);
	out = openat(to, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return err_sys(err, errno, "create '%s'", name);
	if (copy_data(in, out, st->st_size, err) < 0)
		return err_wrap(err, "copy '%s'", name);
	return 0;
}

static int copy_symlink(int from, int to, const char *name, struct err *err)
{
	char target[4097];
	ssize_t len = readlinkat(from, name, target, sizeof target - 1);

	if (len < 0)
		return err_sys(err, errno, "read link '%s'", name);
	target[len] = '\0';
	if (symlinkat(target, to, name) < 0)
		return err_sys(err, errno, "make link '%s'", name);
	return 0;
}

static int copy_tree(
	struct copy *copy, int from, int to, const char *path, int depth, struct err *err);

static int copy_dir(struct copy *copy, int from, int to, const char *name, const char *path,
	int depth, struct err *err)
{
	_cleanup_close_ int in =
		openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int out = -1;

	if (in < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (mkdirat(to, name, 0700) < 0)
		return err_sys(err, errno, "mkdir '%s'", path);
	out = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (out < 0)
		return err_sys(err, errno, "open the copy of '%s'", path);
	return copy_tree(copy, in, out, path, depth + 1, err);
}

static int copy_entry(struct copy *copy, int from, int to, const char *name, const char *dir,
	int depth, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s%s%s", dir, *dir ? "/" : "", name);
	struct stat st;
	int made;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "look at '%s'", path);
	made = try_link(copy, &st, path, to, name, err);
	if (made)
		return made < 0 ? -1 : 0;
	if (S_ISDIR(st.st_mode))
		made = copy_dir(copy, from, to, name, path, depth, err);
	else if (S_ISREG(st.st_mode))
		made = copy_file(from, to, name, &st, err);
	else if (S_ISLNK(st.st_mode))
		made = copy_symlink(from, to, name, err);
	else if ((made = mknodat(to, name, st.st_mode, st.st_rdev)) < 0)
		err_sys(err, errno, "mknod '%s'", path);
	/* After the contents: making those changes a folder's times. */
	return made < 0 ? -1 : copy_owner_and_rest(copy, from, to, name, &st, err);
}

static int copy_tree(
	struct copy *copy, int from, int to, const char *path, int depth, struct err *err)
{
	struct dirent *entry;
	int ret = 0;
	DIR *dir;

	if (depth > DEPTH_MAX)
		return err_set(err, ERR_LIMIT, "folders nested more than %d deep", DEPTH_MAX);
	dir = fdopendir(openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (!dir)
		return err_sys(err, errno, "read folder '%s'", path);
	while (ret == 0 && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			ret = copy_entry(copy, from, to, entry->d_name, path, depth, err);
	closedir(dir);
	return ret;
}

int tree_copy(int from, int to, struct err *err)
{
	struct copy copy = {
		.top = to, .names = xcalloc(1, NAMES_MAX), .value = xcalloc(1, VALUE_MAX)
	};
	struct stat st;
	int ret = -1;

	if (fstat(from, &st) < 0)
		err_sys(err, errno, "look at the folder to copy");
	else if (copy_tree(&copy, from, to, "", 0, err) == 0)
		ret = copy_owner_and_rest(&copy, from, to, ".", &st, err);
	for (size_t i = 0; i < copy.cap; i++)
		free(copy.links[i].path);
	free(copy.links);
	free(copy.names);
	free(copy.value);
	return ret;
}
