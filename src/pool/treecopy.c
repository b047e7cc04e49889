/* treecopy.c - copies a tree with all attributes, where there are no snapshots
 *
 * Copies owners, modes, times, extended attributes (trusted ones too: overlay's whiteouts and
 * opaque folders use them), hard links, device nodes, sockets and pipes. Data is shared where
 * the file system supports it (FICLONE), else copied in the kernel without holes. No link is
 * followed: links made by a box may point anywhere.
 *
 * A box can make trees of any depth. There is no recursion, and only the deepest folders of the
 * path are open. A folder further up that is needed again is reopened from the top, together
 * with those below it; if it is another folder then, the tree was moved during the copy. ("..",
 * which would be shorter, makes the kernel check all folders above each time.) */
#include "pool/pool_internal.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

enum {
	OPEN_MAX = 128,	 /* levels with their folders open */
	STEP_MAX = 2048, /* bytes of a path in one call */
	/* longest path of a file that gets hard links; with a longer one, each link becomes a
	 * copy */
	LINK_PATH_MAX = 4095,
	NAMES_MAX = 65536,
	VALUE_MAX = 65536,
};

struct hard_link {
	dev_t dev;
	ino_t ino;
	char *path; /* in the copy, from its top */
};

/* A folder on the way down. */
struct level {
	/* name in the folder above; owner and times are copied after its contents */
	char *name;
	struct stat st; /* of the source */
	int in, out;	/* the folder in both trees; -1: closed for now */
	ino_t in_ino, out_ino;
	size_t path_len;  /* of its path */
	struct buf names; /* folders in it that are still to be copied, each with a zero byte */
};

struct copy {
	int from, top; /* of both trees */
	struct level *levels;
	size_t depth, room;
	struct buf path;	 /* of the current entry, from the top, NUL-terminated */
	struct hard_link *links; /* open addressing; path NULL: free */
	size_t count, cap;	 /* cap is a power of two */
	char *names, *value;	 /* for extended attributes */
};

/* ---- hard links ----------------------------------------------------------------------------- */

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

/* 1: a hard link to a file copied before was made. */
static int try_link(struct copy *copy, const struct stat *st, const char *path, int to,
	const char *name, struct err *err)
{
	struct hard_link *slot;

	if (st->st_nlink < 2 || S_ISDIR(st->st_mode) || strlen(path) > LINK_PATH_MAX)
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

/* ---- attributes ----------------------------------------------------------------------------- */

/* Uses /proc: there is no *at call for attributes of links, and none for O_PATH descriptors. */
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

/* Owner first: changing it clears setuid bits and file capabilities. */
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

/* ---- the kinds of files --------------------------------------------------------------------- */

static int copy_range(int in, int out, off_t from, off_t end, struct err *err)
{
	off_t to = from;

	while (from < end) {
		ssize_t n = copy_file_range(in, &from, out, &to, (size_t)(end - from), 0);

		if (n < 0 && errno != EINTR)
			return err_sys(err, errno, "copy data");
		if (n == 0)
			break; /* it was truncated meanwhile */
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

/* ---- down and up again ---------------------------------------------------------------------- */

static const char *set_path(struct copy *copy, size_t at, const char *name)
{
	copy->path.len = at;
	if (at)
		buf_add(&copy->path, "/", 1);
	buf_add(&copy->path, name, strlen(name) + 1);
	copy->path.len--;
	return (const char *)buf_head(&copy->path);
}

/* Copies one entry; of a folder only the folder itself. *ret_folder: it is one. */
static int copy_entry(struct copy *copy, int from, int to, const char *name, size_t at,
	bool *ret_folder, struct err *err)
{
	const char *path = set_path(copy, at, name);
	struct stat st;
	int made;

	*ret_folder = false;
	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "look at '%.300s'", path);
	made = try_link(copy, &st, path, to, name, err);
	if (made)
		return made < 0 ? -1 : 0;
	if (S_ISDIR(st.st_mode)) {
		*ret_folder = true;
		return mkdirat(to, name, 0700) < 0 ? err_sys(err, errno, "mkdir '%.300s'", path)
						   : 0;
	}
	if (S_ISREG(st.st_mode))
		made = copy_file(from, to, name, &st, err);
	else if (S_ISLNK(st.st_mode))
		made = copy_symlink(from, to, name, err);
	else if ((made = mknodat(to, name, st.st_mode, st.st_rdev)) < 0)
		err_sys(err, errno, "mknod '%.300s'", path);
	return made < 0 ? -1 : copy_owner_and_rest(copy, from, to, name, &st, err);
}

/* Copies all entries of the folder from, but not what its folders contain. */
static int copy_entries(struct copy *copy, int from, int to, struct level *level, struct err *err)
{
	int again = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = again < 0 ? NULL : fdopendir(again);
	struct dirent *entry;
	bool folder;
	int ret = 0;

	if (!dir) {
		ret = err_sys(err, errno, "read a folder");
		cleanup_closep(&again);
		return ret;
	}
	while (ret == 0 && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		ret = copy_entry(copy, from, to, entry->d_name, level->path_len, &folder, err);
		if (ret == 0 && folder)
			buf_add(&level->names, entry->d_name, strlen(entry->d_name) + 1);
	}
	closedir(dir);
	return ret;
}

static void level_close(struct level *level)
{
	cleanup_closep(&level->in);
	cleanup_closep(&level->out);
	level->in = level->out = -1;
}

static void level_done(struct level *level)
{
	level_close(level);
	free(level->name);
	buf_done(&level->names);
}

static int open_folder(int dir, const char *name, int *ret, struct err *err)
{
	*ret = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret < 0 ? err_sys(err, errno, "open '%.300s'", name) : 0;
}

/* Opens the folder at path below dir, in steps that the kernel accepts. path is changed
 * temporarily. */
static int open_far(int dir, char *path, int *ret, struct err *err)
{
	_cleanup_close_ int at = -1;

	if (open_folder(dir, ".", &at, err) < 0)
		return -1;
	while (*path) {
		size_t len = strlen(path), step = MIN(len, (size_t)STEP_MAX);
		struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
			.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
		int next;

		while (step < len && path[step] != '/')
			step--;
		path[step] = '\0';
		next = (int)syscall(SYS_openat2, at, path, &how, sizeof how);
		if (step < len)
			path[step++] = '/';
		if (next < 0)
			return err_sys(err, errno, "open a folder again");
		close(at);
		at = next;
		path += step;
	}
	*ret = steal_fd(&at);
	return 0;
}

static int check_same(const struct level *level, struct err *err)
{
	struct stat in, out;

	if (fstat(level->in, &in) < 0 || fstat(level->out, &out) < 0 ||
		in.st_ino != level->in_ino || out.st_ino != level->out_ino)
		return err_set(err, ERR_STATE, "a folder was moved while it was copied");
	return 0;
}

/* Opens the last levels again. */
static int reopen(struct copy *copy, struct err *err)
{
	size_t first = copy->depth > OPEN_MAX ? copy->depth - OPEN_MAX : 0;

	for (size_t i = first; i < copy->depth; i++) {
		struct level *level = &copy->levels[i], *above = i > first ? level - 1 : NULL;
		_cleanup_free_ char *path =
			above ? NULL
			      : xstrndup((const char *)buf_head(&copy->path), level->path_len);

		if (above ? open_folder(above->in, level->name, &level->in, err) < 0 ||
					open_folder(above->out, level->name, &level->out, err) < 0
			  : open_far(copy->from, path, &level->in, err) < 0 ||
					open_far(copy->top, path, &level->out, err) < 0)
			return -1;
		if (check_same(level, err) < 0)
			return -1;
	}
	return 0;
}

/* Descends into the folder name, which in and out are in both trees; its path is copy->path.
 * Takes both. */
static int enter(struct copy *copy, int in, int out, const char *name, struct err *err)
{
	struct level *level;
	struct stat st, to;

	if (copy->depth == copy->room) {
		copy->room = MAX(2 * copy->room, (size_t)64);
		xgrow(copy->levels, copy->room);
	}
	level = &copy->levels[copy->depth++];
	*level = (struct level){ .name = xstrdup(name),
		.in = in,
		.out = out,
		.path_len = copy->path.len,
		.names = BUF_INIT };
	if (fstat(in, &st) < 0 || fstat(out, &to) < 0)
		return err_sys(err, errno, "look at '%.300s'", name);
	level->st = st;
	level->in_ino = st.st_ino;
	level->out_ino = to.st_ino;
	if (copy->depth > OPEN_MAX)
		level_close(&copy->levels[copy->depth - 1 - OPEN_MAX]);
	return copy_entries(copy, in, out, level, err);
}

/* The folder is complete: goes back up, then sets its owner, mode, attributes and times, which
 * its contents would have changed. */
static int leave(struct copy *copy, struct err *err)
{
	struct level done = copy->levels[--copy->depth];
	const struct level *above = &copy->levels[copy->depth - 1];
	int ret = -1;

	if (above->in >= 0 || reopen(copy, err) == 0)
		ret = copy_owner_and_rest(copy, above->in, above->out, done.name, &done.st, err);
	level_done(&done);
	return ret;
}

static int go_into(struct copy *copy, struct level *level, struct err *err)
{
	_cleanup_free_ char *name = xstrdup((const char *)buf_head(&level->names));
	int in, out;

	buf_eat(&level->names, strlen(name) + 1);
	set_path(copy, level->path_len, name);
	if (open_folder(level->in, name, &in, err) < 0)
		return -1;
	if (open_folder(level->out, name, &out, err) < 0) {
		close(in);
		return -1;
	}
	return enter(copy, in, out, name, err);
}

/* Takes both. */
static int copy_tree(struct copy *copy, int in, int out, struct err *err)
{
	if (enter(copy, in, out, ".", err) < 0)
		return -1;
	for (;;) {
		struct level *level = &copy->levels[copy->depth - 1];

		if (level->names.len ? go_into(copy, level, err) < 0
				     : copy->depth > 1 && leave(copy, err) < 0)
			return -1;
		if (copy->depth == 1 && !copy->levels->names.len)
			return copy_owner_and_rest(copy, copy->levels->in, copy->levels->out, ".",
				&copy->levels->st, err);
	}
}

int tree_copy(int from, int to, struct err *err)
{
	struct copy copy = { .from = from,
		.top = to,
		.names = xcalloc(1, NAMES_MAX),
		.value = xcalloc(1, VALUE_MAX) };
	int in = -1, out = -1, ret = -1;

	if (open_folder(from, ".", &in, err) == 0 && open_folder(to, ".", &out, err) == 0)
		ret = copy_tree(&copy, in, out, err);
	else
		cleanup_closep(&in);
	while (copy.depth)
		level_done(&copy.levels[--copy.depth]);
	free(copy.levels);
	buf_done(&copy.path);
	for (size_t i = 0; i < copy.cap; i++)
		free(copy.links[i].path);
	free(copy.links);
	free(copy.names);
	free(copy.value);
	return ret;
}
