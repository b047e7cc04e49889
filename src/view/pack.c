/* pack.c - writes a tree as a tar stream; see view.h
 *
 * Entries are collected in one buffer, file contents are read straight into it, and it is
 * written out whenever it is full. A file that changes while it is read keeps the size in its
 * header: it is cut, or filled with zeros. */
#include "view/view_internal.h"
#include "base/file.h"
#include "sys/beneath.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/sysmacros.h>

enum { PACK_BUFFER = 256 * 1024 };

void packer_done(struct packer *packer)
{
	buf_done(&packer->buf);
	links_done(&packer->links);
}

static int flush(struct packer *packer, size_t at_least, struct err *err)
{
	if (packer->buf.len < at_least)
		return 0;
	if (fd_write_all(packer->out, buf_head(&packer->buf), packer->buf.len, err) < 0)
		return err_wrap(err, "write the archive");
	packer->buf.head = packer->buf.len = 0;
	if (packer->progress)
		packer->progress(&packer->totals, packer->arg);
	return 0;
}

static int put_zeros(struct packer *packer, uint64_t len, struct err *err)
{
	while (len) {
		size_t part = (size_t)MIN(len, (uint64_t)(PACK_BUFFER - packer->buf.len));

		memset(buf_room(&packer->buf, part), 0, part);
		buf_grew(&packer->buf, part);
		len -= part;
		if (flush(packer, PACK_BUFFER, err) < 0)
			return -1;
	}
	return 0;
}

static int put_content(
	struct packer *packer, int fd, uint64_t size, const char *path, struct err *err)
{
	uint64_t left = size;

	while (left) {
		size_t want = (size_t)MIN(left, (uint64_t)(PACK_BUFFER - packer->buf.len));
		ssize_t got = read(fd, buf_room(&packer->buf, want), want);

		if (got < 0)
			return err_sys(err, errno, "read '/%.300s'", path);
		if (!got)
			break;
		buf_grew(&packer->buf, (size_t)got);
		left -= (uint64_t)got;
		packer->totals.bytes += (uint64_t)got;
		if (flush(packer, PACK_BUFFER, err) < 0)
			return -1;
	}
	packer->totals.bytes += left;
	return put_zeros(packer, left + tar_fill(size), err);
}

int packer_put_header(struct packer *packer, const struct tar_entry *entry, struct err *err)
{
	size_t len = strlen(entry->name) + (entry->link ? strlen(entry->link) : 0);

	if (len > TAR_PAX_MAX - TAR_XATTR_BYTES_MAX - 8 * 1024)
		return err_set(err, ERR_TOO_LARGE,
			"a path below '/%.100s' is too long for an archive", entry->name);
	tar_put_header(&packer->buf, entry);
	packer->totals.files++;
	return flush(packer, PACK_BUFFER, err);
}

int packer_check_name(const char *name, const char *path, struct err *err)
{
	if (strncmp(name, WHITEOUT, strlen(WHITEOUT)) != 0)
		return 0;
	return err_set(err, ERR_UNSUPPORTED,
		"'/%.300s' has a name that means a removed file in a layer", path);
}

int packer_finish(struct packer *packer, struct err *err)
{
	if (put_zeros(packer, TAR_END_SIZE, err) < 0)
		return -1;
	return flush(packer, 1, err);
}

/* ---- one entry, by type --------------------------------------------------------------------- */

static struct tar_entry describe(const char *path, const struct stat *st)
{
	static const char types[] = {
		[S_IFREG >> 12] = TAR_FILE,
		[S_IFLNK >> 12] = TAR_SYMLINK,
		[S_IFCHR >> 12] = TAR_CHAR,
		[S_IFBLK >> 12] = TAR_BLOCK_DEVICE,
		[S_IFDIR >> 12] = TAR_DIR,
		[S_IFIFO >> 12] = TAR_FIFO,
	};

	return (struct tar_entry){
		.type = (enum tar_type)types[(st->st_mode & S_IFMT) >> 12],
		.name = path,
		.size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
		.mode = st->st_mode & 07777,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.mtime = st->st_mtim.tv_sec,
		.major = major(st->st_rdev),
		.minor = minor(st->st_rdev),
	};
}

static int put_link(
	struct packer *packer, struct tar_entry *entry, const char *first, struct err *err)
{
	entry->type = TAR_LINK;
	entry->link = first;
	entry->size = 0;
	return packer_put_header(packer, entry, err);
}

static int put_file(
	struct packer *packer, int dir, const char *name, const char *path, struct err *err)
{
	_cleanup_close_ int fd =
		openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	_cleanup_(xattrs_done) struct xattrs xattrs = { .count = 0 };
	struct tar_entry entry;
	struct stat st;
	const char *first;

	if (fd < 0)
		return errno == ENOENT || errno == ELOOP
			       ? 0
			       : err_sys(err, errno, "open '/%.300s'", path);
	/* It was a regular file; if it is something else now, opening must not wait. */
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	entry = describe(path, &st);
	first = st.st_nlink > 1 ? links_seen(&packer->links, &st, path) : NULL;
	if (first)
		return put_link(packer, &entry, first, err);
	if (xattrs_read(fd, path, &xattrs, err) < 0)
		return -1;
	entry.xattrs = xattrs.list;
	entry.xattr_count = xattrs.count;
	if (packer_put_header(packer, &entry, err) < 0)
		return -1;
	return put_content(packer, fd, entry.size, path, err);
}

static int put_folder(struct packer *packer, int dir, const char *name, const char *path,
	const struct stat *st, struct err *err)
{
	_cleanup_close_ int fd = -1;
	_cleanup_(xattrs_done) struct xattrs xattrs = { .count = 0 };
	struct tar_entry entry = describe(path, st);

	if (walk_open_folder(dir, name, path, &fd, err) < 0)
		return -1;
	if (fd < 0)
		return 0;
	if (xattrs_read(fd, path, &xattrs, err) < 0)
		return -1;
	entry.xattrs = xattrs.list;
	entry.xattr_count = xattrs.count;
	return packer_put_header(packer, &entry, err);
}

static int put_symlink(struct packer *packer, int dir, const char *name, const char *path,
	const struct stat *st, struct err *err)
{
	struct tar_entry entry = describe(path, st);
	char target[PATH_MAX + 1];
	ssize_t len = readlinkat(dir, name, target, sizeof target - 1);

	if (len < 0)
		return errno == ENOENT || errno == EINVAL
			       ? 0
			       : err_sys(err, errno, "read link '/%.300s'", path);
	target[len] = '\0';
	entry.link = target;
	return packer_put_header(packer, &entry, err);
}

int packer_put(struct packer *packer, int dir, const char *name, const char *path,
	const struct stat *st, struct err *err)
{
	struct tar_entry entry;
	const char *first;

	if (S_ISSOCK(st->st_mode) || view_is_whiteout(st))
		return 0;
	if (S_ISREG(st->st_mode))
		return put_file(packer, dir, name, path, err);
	if (S_ISDIR(st->st_mode))
		return put_folder(packer, dir, name, path, st, err);
	entry = describe(path, st);
	first = st->st_nlink > 1 ? links_seen(&packer->links, st, path) : NULL;
	if (first)
		return put_link(packer, &entry, first, err);
	if (S_ISLNK(st->st_mode))
		return put_symlink(packer, dir, name, path, st, err);
	return packer_put_header(packer, &entry, err);
}

/* ---- a tree --------------------------------------------------------------------------------- */

/* What is done with each entry of a tree. */
typedef int (*visit_fn)(void *arg, int dir, const char *name, const char *path,
	const struct stat *st, struct err *err);

static int visit_item(
	struct walk *walk, const struct walk_item *item, visit_fn visit, void *arg, struct err *err)
{
	int dir = item->dirs[0], fd;
	struct stat st;

	/* Removed since its folder was read. */
	if (dir < 0)
		return 0;
	if (fstatat(dir, item->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "'/%.300s'", item->path);
	if (visit(arg, dir, item->name, item->path, &st, err) < 0)
		return -1;
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (walk_open_folder(dir, item->name, item->path, &fd, err) < 0)
		return -1;
	return fd < 0 ? 0 : walk_enter(walk, &fd, 0, 1, false, err);
}

static int visit_below(int top, visit_fn visit, void *arg, struct err *err)
{
	_cleanup_(walk_done) struct walk walk;
	struct walk_item item;
	int status;

	walk_init(&walk, 1);
	if (walk_enter(&walk, &top, 0, 1, false, err) < 0)
		return -1;
	while ((status = walk_next(&walk, &item, err)) == 1)
		if (visit_item(&walk, &item, visit, arg, err) < 0)
			return -1;
	return status;
}

/* A single file is visited under its own name. */
static int visit_one(int root, const char *path, visit_fn visit, void *arg, struct err *err)
{
	_cleanup_free_ char *folder = xstrdup(path);
	char *slash = strrchr(folder, '/');
	const char *name = slash ? path + (slash - folder) + 1 : path;
	_cleanup_close_ int dir = -1;
	struct stat st;

	if (slash)
		*slash = '\0';
	if (beneath_open(root, slash ? folder : ".", O_PATH | O_DIRECTORY, &dir, err) < 0)
		return -1;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "'/%.300s'", path);
	return visit(arg, dir, name, name, &st, err);
}

static int visit_tree(int root, const char *path, visit_fn visit, void *arg, struct err *err)
{
	_cleanup_free_ char *clean = xstrdup(path + strspn(path, "/"));
	struct err why = ERR_INIT;
	int top;

	for (size_t len = strlen(clean); len && clean[len - 1] == '/';)
		clean[--len] = '\0';
	if (beneath_open(root, *clean ? clean : ".", O_RDONLY | O_DIRECTORY, &top, &why) == 0)
		return visit_below(top, visit, arg, err);
	if (why.errno_value == ENOTDIR || why.errno_value == ELOOP)
		return visit_one(root, clean, visit, arg, err);
	if (err)
		*err = why;
	return -1;
}

int packer_check_path(const char *path, struct err *err)
{
	if (strlen(path) <= VIEW_PATH_MAX)
		return 0;
	err_set(err, ERR_TOO_LARGE,
		"'/%.60s...' is nested deeper than a path may be long (%d bytes)", path,
		VIEW_PATH_MAX);
	return err_hint(err, "remove that folder in the box");
}

static int visit_pack(void *arg, int dir, const char *name, const char *path, const struct stat *st,
	struct err *err)
{
	struct packer *packer = arg;
	_cleanup_free_ char *below = packer->top ? xasprintf("%s/%s", packer->top, path) : NULL;

	if (below)
		path = below;
	if (packer_check_path(path, err) < 0 ||
		(packer->as_layer && packer_check_name(name, path, err) < 0))
		return -1;
	return packer_put(packer, dir, name, path, st, err);
}

static int put_top(struct packer *packer, int root, struct err *err)
{
	struct stat st;

	if (!packer->top)
		return 0;
	if (fstat(root, &st) < 0)
		return err_sys(err, errno, "'%.300s'", packer->top);
	return packer_put(packer, root, ".", packer->top, &st, err);
}

int view_pack(const struct view_pack_spec *spec, struct view_totals *ret, struct err *err)
{
	_cleanup_(packer_done) struct packer packer = { .out = spec->out,
		.top = spec->top,
		.as_layer = spec->as_layer,
		.progress = spec->progress,
		.arg = spec->arg };

	if (put_top(&packer, spec->root, err) < 0 ||
		visit_tree(spec->root, spec->path, visit_pack, &packer, err) < 0 ||
		packer_finish(&packer, err) < 0)
		return -1;
	if (ret)
		*ret = packer.totals;
	return 0;
}

struct measure {
	struct links links;
	struct view_totals totals;
};

static int visit_measure(void *arg, int dir, const char *name, const char *path,
	const struct stat *st, struct err *err)
{
	struct measure *measure = arg;

	if (S_ISSOCK(st->st_mode) || view_is_whiteout(st))
		return 0;
	measure->totals.files++;
	if (S_ISREG(st->st_mode) && (st->st_nlink < 2 || !links_seen(&measure->links, st, "")))
		measure->totals.bytes += (uint64_t)st->st_size;
	return 0;
}

int view_measure(int root, const char *path, struct view_totals *ret, struct err *err)
{
	struct measure measure = { .totals = { 0 } };
	int status = visit_tree(root, path, visit_measure, &measure, err);

	links_done(&measure.links);
	if (status < 0)
		return -1;
	*ret = measure.totals;
	return 0;
}
