/* pack.c - a tree of files becomes a tar stream (archive_out)
 *
 * Folders before what is in them. Mount points are named, but not entered: /proc, /sys and /dev are not
 * part of a box's files. A file that changes while it is read keeps the size its header told: cut, or
 * filled with zeros. Hard links are told by the inode; there are only so many that we remember. */
#include "guest/archive.h"
#include "guest/path.h"
#include "tar/tar.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
	LINKS_MAX = 1 << 18,
	BUCKETS = 1 << 12,
	DEPTH_MAX = 1024,
};

/* The name under which an inode went into the archive first. */
struct seen {
	dev_t dev;
	ino_t ino;
	struct seen *next;
	char name[];
};

struct pack {
	struct job *job;
	struct buf out; /* never more than one DATA frame for long */
	struct tar_entry entry;
	char name[WIRE_PATH_MAX + 1]; /* of the member we are at */
	char link[WIRE_PATH_MAX + 1]; /* what it points to */
	size_t name_len;
	dev_t dev;
	unsigned depth;
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
}

static int pack_tree(struct pack *pack, int dir, const char *name, struct err *err);

static int pack_children(struct pack *pack, int fd, struct err *err)
{
	size_t kept = pack->name_len;
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	int ret = 0;

	if (!dir) {
		close(fd);
		return err_sys(err, errno, "read '%.300s'", pack->name);
	}
	while (ret == 0 && (errno = 0, entry = readdir(dir))) {
		size_t len = strlen(entry->d_name);

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (kept + 1 + len > WIRE_PATH_MAX) {
			ret = err_set(err, ERR_TOO_LARGE, "a path below '%.300s' is too long",
				pack->name);
			break;
		}
		pack->name[kept] = '/';
		memcpy(pack->name + kept + 1, entry->d_name, len + 1);
		pack->name_len = kept + 1 + len;
		ret = pack_tree(pack, dirfd(dir), entry->d_name, err);
		pack->name_len = kept;
		pack->name[kept] = '\0';
	}
	if (ret == 0 && errno)
		ret = err_sys(err, errno, "read '%.300s'", pack->name);
	closedir(dir);
	return ret;
}

static int pack_dir(
	struct pack *pack, int dir, const char *name, const struct stat *st, struct err *err)
{
	int fd, ret;

	tar_put_header(&pack->out, &pack->entry);
	if (flush(pack, WIRE_DATA_MAX, err) < 0)
		return -1;
	if (st->st_dev != pack->dev)
		return 0;
	if (pack->depth == DEPTH_MAX)
		return err_set(err, ERR_TOO_LARGE, "'%.300s' is nested too deep", pack->name);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "open '%.300s'", pack->name);
	pack->depth++;
	ret = pack_children(pack, fd, err);
	pack->depth--;
	return ret;
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
	}
	tar_put_header(&pack->out, &pack->entry);
	if (flush(pack, WIRE_DATA_MAX, err) < 0)
		return -1;
	return first ? 0 : put_content(pack, fd, pack->entry.size, err);
}

static int pack_tree(struct pack *pack, int dir, const char *name, struct err *err)
{
	struct stat st;
	ssize_t len;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "'%.300s'", pack->name);
	if (S_ISSOCK(st.st_mode))
		return 0;
	if (S_ISREG(st.st_mode))
		return pack_file(pack, dir, name, err);
	describe(pack, &st);
	if (S_ISDIR(st.st_mode))
		return pack_dir(pack, dir, name, &st, err);
	if (S_ISLNK(st.st_mode)) {
		len = readlinkat(dir, name, pack->link, sizeof pack->link - 1);
		if (len < 0)
			return errno == ENOENT ? 0 : err_sys(err, errno, "'%.300s'", pack->name);
		pack->link[len] = '\0';
		pack->entry.link = pack->link;
	}
	tar_put_header(&pack->out, &pack->entry);
	return flush(pack, WIRE_DATA_MAX, err);
}

int archive_out(struct job *job, struct err *err)
{
	static struct pack pack;
	_cleanup_place_ struct place place = PLACE_INIT;
	struct stat st;
	size_t len = strlen(job->path);
	bool slash = len > 1 && job->path[len - 1] == '/';

	/* With a slash at its end a symlink means what it points to. */
	if (path_find(job->path, slash, false, &place, err) < 0)
		return -1;
	if (fstatat(place.dir, place.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "'%.300s'", job->path);
	pack.job = job;
	pack.dev = st.st_dev;
	strcpy(pack.name, place.name);
	pack.name_len = strlen(pack.name);
	if (job_reply(job, NULL, err) < 0 || pack_tree(&pack, place.dir, place.name, err) < 0 ||
		put_zeros(&pack, TAR_END_SIZE, err) < 0 || flush(&pack, 0, err) < 0)
		return -1;
	return job_end(job, err);
}
