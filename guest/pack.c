/* pack.c - a tree of files becomes a tar stream (archive_out, archive_upper)
 *
 * Folders before what is in them, files before folders. There is no recursion and one open folder:
 * names of folders that wait are kept a level, and ".." leads back up; if it does not lead where we
 * came from, somebody moved the tree while it was read. What lies at a longer path than
 * WIRE_PATH_MAX is named once, with that long name, which no reader of ours takes, and not entered:
 * folders nested without end cost neither memory nor the square of their number, and the one who
 * asked hears of it. Mount points are named, but not entered: /proc, /sys and /dev are not part of
 * a box's files. A file that changes while it is read keeps the size its header told: cut, or
 * filled with zeros. Hard links are told by the inode; there are only so many that we remember.
 *
 * The upper folder of an overlay is packed as a layer of a container image: a character device 0/0
 * is the whiteout ".wh.NAME", an opaque folder holds ".wh..wh..opq", and attributes come along. A
 * file whose own name begins so would mean something else there and is refused. */
#include "guest/archive.h"
#include "guest/path.h"
#include "tar/tar.h"
#include "tar/xattrs.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define WHITEOUT ".wh."
#define OPAQUE	 WHITEOUT WHITEOUT ".opq"

enum {
	LINKS_MAX = 1 << 18,
	BUCKETS = 1 << 12,
};

/* The name under which an inode went into the archive first. */
struct seen {
	dev_t dev;
	ino_t ino;
	struct seen *next;
	char name[];
};

/* A folder on the way down, with those in it that are still to be entered. */
struct level {
	struct buf names; /* each with a zero byte */
	size_t name_len;  /* of the path of this folder */
	dev_t dev;
	ino_t ino;
};

struct pack {
	struct job *job;
	bool layer; /* see above */
	struct xattrs xattrs;
	struct buf out; /* never more than one DATA frame for long */
	struct tar_entry entry;
	char name[WIRE_PATH_MAX + NAME_MAX + 2]; /* of the member we are at */
	char link[WIRE_PATH_MAX + 1];		 /* what it points to */
	size_t name_len;
	dev_t dev;
	struct level *levels;
	size_t depth, room;
	struct seen *seen[BUCKETS];
	unsigned seen_count;
};

static int flush(struct pack *pack, size_t keep_below, struct err *err)
{
	while (pack->out.len && pack->out.len >= keep_below) {
		size_t len = MIN(pack->out.len, (size_t)WIRE_DATA_MAX);

		if (job_data(pack->job, buf_head(&pack->out), len, err) < 0)
			return -1;
		buf_eat(&pack->out, len);
	}
	return 0;
}

static int put_zeros(struct pack *pack, uint64_t len, struct err *err)
{
	while (len) {
		size_t part = (size_t)MIN(len, (uint64_t)WIRE_DATA_MAX);

		memset(buf_room(&pack->out, part), 0, part);
		buf_grew(&pack->out, part);
		if (flush(pack, WIRE_DATA_MAX, err) < 0)
			return -1;
		len -= part;
	}
	return 0;
}

static int put_content(struct pack *pack, int fd, uint64_t size, struct err *err)
{
	uint64_t left = size;

	while (left) {
		size_t want = (size_t)MIN(left, (uint64_t)(WIRE_DATA_MAX - pack->out.len));
		ssize_t got = read(fd, buf_room(&pack->out, want), want);

		if (got < 0)
			return err_sys(err, errno, "read '%.300s'", pack->name);
		if (!got)
			break;
		buf_grew(&pack->out, (size_t)got);
		left -= (uint64_t)got;
		if (flush(pack, WIRE_DATA_MAX, err) < 0)
			return -1;
	}
	return put_zeros(pack, left + tar_fill(size), err);
}

static const char *seen_before(struct pack *pack, const struct stat *st)
{
	struct seen **bucket = &pack->seen[(st->st_ino ^ st->st_ino >> 12) % BUCKETS];
	struct seen *seen;

	for (seen = *bucket; seen; seen = seen->next)
		if (seen->ino == st->st_ino && seen->dev == st->st_dev)
			return seen->name;
	if (pack->seen_count++ >= LINKS_MAX)
		return NULL;
	seen = xcalloc(1, sizeof *seen + pack->name_len + 1);
	seen->dev = st->st_dev;
	seen->ino = st->st_ino;
	memcpy(seen->name, pack->name, pack->name_len);
	seen->next = *bucket;
	*bucket = seen;
	return NULL;
}

static enum tar_type type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return TAR_DIR;
	case S_IFLNK:
		return TAR_SYMLINK;
	case S_IFCHR:
		return TAR_CHAR;
	case S_IFBLK:
		return TAR_BLOCK_DEVICE;
	case S_IFIFO:
		return TAR_FIFO;
	default:
		return TAR_FILE;
	}
}

static void describe(struct pack *pack, const struct stat *st)
{
	struct tar_entry *entry = &pack->entry;

	entry->type = type_of(st->st_mode);
	entry->name = pack->name;
	entry->link = NULL;
	entry->size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
	entry->mode = st->st_mode & 07777;
	entry->uid = st->st_uid;
	entry->gid = st->st_gid;
	entry->mtime = st->st_mtim.tv_sec;
	entry->major = major(st->st_rdev);
	entry->minor = minor(st->st_rdev);
	entry->xattrs = NULL;
	entry->xattr_count = 0;
}

/* Attributes of the present member, of a layer alone. */
static int add_xattrs(struct pack *pack, int fd, struct err *err)
{
	if (!pack->layer)
		return 0;
	xattrs_done(&pack->xattrs);
	pack->xattrs = (struct xattrs){ .count = 0 };
	if (xattrs_read(fd, pack->name, &pack->xattrs, err) < 0)
		return -1;
	pack->entry.xattrs = pack->xattrs.list;
	pack->entry.xattr_count = pack->xattrs.count;
	return 0;
}

static int pack_file(struct pack *pack, int dir, const char *name, struct err *err)
{
	/* Checked again after opening: it might have become a fifo. */
	_cleanup_close_ int fd =
		openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	const char *first = NULL;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "open '%.300s'", pack->name);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	describe(pack, &st);
	if (st.st_nlink > 1)
		first = seen_before(pack, &st);
	if (first) {
		pack->entry.type = TAR_LINK;
		pack->entry.size = 0;
		pack->entry.link = first;
	} else if (add_xattrs(pack, fd, err) < 0) {
		return -1;
	}
	tar_put_header(&pack->out, &pack->entry);
	if (flush(pack, WIRE_DATA_MAX, err) < 0)
		return -1;
	return first ? 0 : put_content(pack, fd, pack->entry.size, err);
}

/* An empty file of that name beside the present member, or in it: what a layer says with it. */
static int put_mark(struct pack *pack, size_t folder_len, const char *name, struct err *err)
{
	_cleanup_free_ char *whole = xasprintf("%.*s/%s", (int)folder_len, pack->name, name);
	const struct tar_entry entry = { .type = TAR_FILE, .name = whole, .mode = 0600 };

	tar_put_header(&pack->out, &entry);
	return flush(pack, WIRE_DATA_MAX, err);
}

static size_t parent_len(const struct pack *pack, const char *name)
{
	return pack->name_len - strlen(name) - 1;
}

/* 1: the member is done with. */
static int pack_as_layer(
	struct pack *pack, const char *name, const struct stat *st, struct err *err)
{
	_cleanup_free_ char *mark = NULL;

	if (!strncmp(name, WHITEOUT, strlen(WHITEOUT)))
		return err_set(err, ERR_UNSUPPORTED,
			"'%.300s' begins with '" WHITEOUT
			"', which means a removed file in a layer",
			pack->name);
	if (!S_ISCHR(st->st_mode) || st->st_rdev)
		return 0;
	mark = xasprintf(WHITEOUT "%s", name);
	return put_mark(pack, parent_len(pack, name), mark, err) < 0 ? -1 : 1;
}

/* A folder of a layer: its attributes, and whether it hides what lies below. */
static int look_at_folder(
	struct pack *pack, int dir, const char *name, bool *ret_opaque, struct err *err)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char value = 0;

	*ret_opaque = false;
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
			       ? 0
			       : err_sys(err, errno, "open '%.300s'", pack->name);
	*ret_opaque = fgetxattr(fd, "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
	return add_xattrs(pack, fd, err);
}

/* Packs everything except the content of a folder. *ret_folder: it is a folder to enter. */
static int pack_member(
	struct pack *pack, int dir, const char *name, bool *ret_folder, struct err *err)
{
	bool opaque = false;
	struct stat st;
	ssize_t len;
	int done;

	*ret_folder = false;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "'%.300s'", pack->name);
	if (S_ISSOCK(st.st_mode))
		return 0;
	done = pack->layer ? pack_as_layer(pack, name, &st, err) : 0;
	if (done)
		return done < 0 ? -1 : 0;
	if (S_ISREG(st.st_mode))
		return pack_file(pack, dir, name, err);
	describe(pack, &st);
	if (S_ISLNK(st.st_mode)) {
		len = readlinkat(dir, name, pack->link, sizeof pack->link - 1);
		if (len < 0)
			return errno == ENOENT ? 0 : err_sys(err, errno, "'%.300s'", pack->name);
		pack->link[len] = '\0';
		pack->entry.link = pack->link;
	}
	if (pack->layer && S_ISDIR(st.st_mode) && look_at_folder(pack, dir, name, &opaque, err) < 0)
		return -1;
	*ret_folder =
		S_ISDIR(st.st_mode) && st.st_dev == pack->dev && pack->name_len <= WIRE_PATH_MAX;
	tar_put_header(&pack->out, &pack->entry);
	if (opaque && put_mark(pack, pack->name_len, OPAQUE, err) < 0)
		return -1;
	return flush(pack, WIRE_DATA_MAX, err);
}

/* ---- down and up again ---------------------------------------------------------------------- */

static void set_name(struct pack *pack, size_t at, const char *name)
{
	size_t len = strlen(name);

	pack->name[at] = '/';
	memcpy(pack->name + at + 1, name, len + 1);
	pack->name_len = at + 1 + len;
}

/* Packs the content of the folder fd except its folders, whose names are kept for later. Takes
 * fd. */
static int pack_children(struct pack *pack, int fd, struct level *level, struct err *err)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	int ret = 0;

	if (!dir) {
		close(fd);
		return err_sys(err, errno, "read '%.300s'", pack->name);
	}
	while (ret == 0 && (errno = 0, entry = readdir(dir))) {
		bool folder;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		set_name(pack, level->name_len, entry->d_name);
		ret = pack_member(pack, dirfd(dir), entry->d_name, &folder, err);
		if (ret == 0 && folder)
			buf_add(&level->names, entry->d_name, strlen(entry->d_name) + 1);
		errno = 0;
	}
	if (ret == 0 && errno)
		ret = err_sys(err, errno, "read '%.300s'", pack->name);
	closedir(dir);
	return ret;
}

/* Enters the folder fd, whose path is pack->name. */
static int enter(struct pack *pack, int fd, struct err *err)
{
	int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct level *level;
	struct stat st;

	if (again < 0 || fstat(again, &st) < 0) {
		err_sys(err, errno, "open '%.300s'", pack->name);
		cleanup_closep(&again);
		return -1;
	}
	if (pack->depth == pack->room) {
		pack->room = MAX(2 * pack->room, (size_t)64);
		xgrow(pack->levels, pack->room);
	}
	level = &pack->levels[pack->depth++];
	*level = (struct level){
		.name_len = pack->name_len, .dev = st.st_dev, .ino = st.st_ino, .names = BUF_INIT
	};
	return pack_children(pack, again, level, err);
}

/* 1: *at is the parent folder. */
static int leave(struct pack *pack, int *at, struct err *err)
{
	const struct level *level;
	struct stat st;
	int above;

	buf_done(&pack->levels[--pack->depth].names);
	if (!pack->depth)
		return 0;
	level = &pack->levels[pack->depth - 1];
	above = openat(*at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (above < 0)
		return err_sys(err, errno, "open '..' of '%.300s'", pack->name);
	close(*at);
	*at = above;
	pack->name_len = level->name_len;
	pack->name[pack->name_len] = '\0';
	if (fstat(above, &st) < 0 || st.st_ino != level->ino || st.st_dev != level->dev)
		return err_set(err, ERR_STATE, "'%.300s' was moved while it was read", pack->name);
	return 1;
}

/* Goes to the next folder of the current level, or back up. 0: done. */
static int go_on(struct pack *pack, int *at, struct err *err)
{
	struct level *level = &pack->levels[pack->depth - 1];
	char name[NAME_MAX + 1];
	int next;

	if (!level->names.len)
		return leave(pack, at, err);
	snprintf(name, sizeof name, "%s", (const char *)buf_head(&level->names));
	buf_eat(&level->names, strlen(name) + 1);
	set_name(pack, level->name_len, name);
	next = openat(*at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (next < 0) /* removed or replaced since */
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
			       ? 1
			       : err_sys(err, errno, "open '%.300s'", pack->name);
	close(*at);
	*at = next;
	return enter(pack, next, err) < 0 ? -1 : 1;
}

static int pack_tree(struct pack *pack, int dir, const char *name, struct err *err)
{
	_cleanup_close_ int at = -1;
	bool folder;
	int status;

	if (pack_member(pack, dir, name, &folder, err) < 0)
		return -1;
	if (!folder)
		return 0;
	at = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "open '%.300s'", pack->name);
	if (enter(pack, at, err) < 0)
		return -1;
	do
		status = go_on(pack, &at, err);
	while (status > 0);
	return status;
}

static int send_tree(struct pack *pack, int dir, const char *name, struct err *err)
{
	if (job_reply(pack->job, NULL, err) < 0 || pack_tree(pack, dir, name, err) < 0 ||
		put_zeros(pack, TAR_END_SIZE, err) < 0 || flush(pack, 0, err) < 0)
		return -1;
	return job_end(pack->job, err);
}

int archive_out(struct job *job, struct err *err)
{
	static struct pack pack;
	_cleanup_place_ struct place place = PLACE_INIT;
	struct stat st;
	size_t len = strlen(job->path);
	bool slash = len > 1 && job->path[len - 1] == '/';

	/* With a slash at the end, a symlink is followed. */
	if (path_find(job->path, slash, false, &place, err) < 0)
		return -1;
	if (fstatat(place.dir, place.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "'%.300s'", job->path);
	pack.job = job;
	pack.dev = st.st_dev;
	strcpy(pack.name, place.name);
	pack.name_len = strlen(pack.name);
	return send_tree(&pack, place.dir, place.name, err);
}

/* ---- the upper folder of an overlay --------------------------------------------------------- */

static int disk = -1;

void archive_set_disk(int dir)
{
	disk = dir;
}

int archive_upper(struct job *job, struct err *err)
{
	static struct pack pack;
	_cleanup_close_ int upper = -1;
	struct stat st;

	if (disk < 0)
		return err_set(err, ERR_UNSUPPORTED, "the files of this box are on the host");
	upper = openat(disk, "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (upper < 0 || fstat(upper, &st) < 0)
		return err_sys(err, errno, "open the box's own files");
	pack.job = job;
	pack.layer = true;
	pack.dev = st.st_dev;
	strcpy(pack.name, ".");
	pack.name_len = 1;
	return send_tree(&pack, upper, ".", err);
}
