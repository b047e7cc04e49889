/* tree.c - saves a box's memory file systems as one file, and restores them
 *
 * CRIU is told nothing about /run and /dev/shm of a box: it would start a tar for each. While the
 * box is frozen their content is written into one file, and read back into a new mount by a
 * restore.
 *
 * The file is a sequence of entries as the tree is walked: a header, a name (one component), and
 * what the type needs: extents of a file, the target of a symlink, the path of the first name of a
 * hard link. A folder's entries follow it up to an END. Owners are the box's own ids, so that
 * another range can be used. Sockets are left out: CRIU binds them again.
 *
 * The walk checks the type of everything before it opens it, and follows no symlink: the box made
 * the tree, even if it is frozen now. We wrote the file ourselves, and read it back into a mount
 * that nobody else sees yet; it is bounded all the same. */
#include "engine/ns/ns_internal.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
	MAGIC = 0x45455254, /* "TREE" */
	DEPTH_MAX = 128,
	LINK_MAX = 4096, /* a path, with its NUL */
	CHUNK = 256 * 1024,
	NAME_BUCKETS = 16384,
};

enum kind { KIND_DIR = 1, KIND_FILE, KIND_LINK, KIND_HARD, KIND_FIFO, KIND_END, KIND_ROOT };

struct head {
	uint32_t kind;
	uint32_t mode;
	uint32_t uid, gid; /* the box's own */
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t name_len;
	uint64_t size; /* of a file; else of the text that follows the name */
};

struct extent {
	uint64_t at, len; /* len 0: the last one */
};

struct first_name {
	ino_t ino;
	char *path;
	struct first_name *next;
};

struct walk {
	uint32_t base;
	int root;
	uint64_t mount; /* the mount that is walked; others on it are not */
	FILE *file;
	char *chunk;
	char path[LINK_MAX];
	struct first_name *names[NAME_BUCKETS]; /* by inode: a box may have a million of them */
};

static void walk_done(struct walk *walk)
{
	for (size_t i = 0; i < NAME_BUCKETS; i++)
		while (walk->names[i]) {
			struct first_name *name = walk->names[i];

			walk->names[i] = name->next;
			free(name->path);
			free(name);
		}
	free(walk->chunk);
	if (walk->file)
		fclose(walk->file);
}

/* ---- writing -------------------------------------------------------------------------------- */

static int put(struct walk *walk, const void *data, size_t len, struct err *err)
{
	if (len && fwrite(data, len, 1, walk->file) != 1)
		return err_sys(err, errno, "write a file system of the box");
	return 0;
}

static bool is_shared(uint32_t id)
{
	return id >= NS_SHARED_FIRST && id - NS_SHARED_FIRST < NS_SHARED_COUNT;
}

static bool is_inner(const struct walk *walk, uint32_t id)
{
	return (id >= walk->base && id - walk->base < NS_IDS) || is_shared(id);
}

static uint32_t inner(const struct walk *walk, uint32_t id)
{
	if (!is_inner(walk, id))
		return 65534;
	return is_shared(id) ? id - NS_SHARED_FIRST + NS_IDS : id - walk->base;
}

static uint32_t outer(const struct walk *walk, uint32_t id)
{
	return id < NS_IDS ? walk->base + id : id - NS_IDS + NS_SHARED_FIRST;
}

static int put_head(struct walk *walk, enum kind kind, const struct stat *st, const char *name,
	uint64_t size, struct err *err)
{
	struct head head = {
		.kind = kind,
		.mode = st->st_mode & 07777,
		.uid = inner(walk, st->st_uid),
		.gid = inner(walk, st->st_gid),
		.mtime_s = st->st_mtim.tv_sec,
		.mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
		.name_len = (uint32_t)strlen(name),
		.size = size,
	};

	if (put(walk, &head, sizeof head, err) < 0)
		return -1;
	return put(walk, name, head.name_len, err);
}

static int put_range(struct walk *walk, int fd, uint64_t at, uint64_t len, struct err *err)
{
	struct extent extent = { at, len };

	if (put(walk, &extent, sizeof extent, err) < 0)
		return -1;
	while (len) {
		ssize_t got = pread(fd, walk->chunk, MIN(len, (uint64_t)CHUNK), (off_t)at);

		if (got <= 0)
			return err_sys(err, got < 0 ? errno : EIO, "read '%s'", walk->path);
		if (put(walk, walk->chunk, (size_t)got, err) < 0)
			return -1;
		at += (uint64_t)got;
		len -= (uint64_t)got;
	}
	return 0;
}

static int put_data(struct walk *walk, int fd, off_t size, struct err *err)
{
	const struct extent last = { 0, 0 };
	off_t at = 0;

	while (at < size) {
		off_t from = lseek(fd, at, SEEK_DATA), to;

		if (from < 0 && errno == ENXIO)
			break;
		to = from < 0 ? -1 : lseek(fd, from, SEEK_HOLE);
		if (to < 0)
			return err_sys(err, errno, "read '%s'", walk->path);
		to = MIN(to, size);
		if (to > from &&
			put_range(walk, fd, (uint64_t)from, (uint64_t)(to - from), err) < 0)
			return -1;
		at = to;
	}
	return put(walk, &last, sizeof last, err);
}

static int put_file(
	struct walk *walk, int dir, const char *name, const struct stat *st, struct err *err)
{
	_cleanup_close_ int fd =
		openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOATIME);
	struct stat opened;

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", walk->path);
	if (fstat(fd, &opened) < 0 || opened.st_ino != st->st_ino || !S_ISREG(opened.st_mode))
		return err_set(err, ERR_STATE, "'%s' changed while it was read", walk->path);
	if (put_head(walk, KIND_FILE, st, name, (uint64_t)st->st_size, err) < 0)
		return -1;
	return put_data(walk, fd, st->st_size, err);
}

static int put_text(struct walk *walk, enum kind kind, const struct stat *st, const char *name,
	const char *text, struct err *err)
{
	size_t len = strlen(text);

	if (put_head(walk, kind, st, name, len, err) < 0)
		return -1;
	return put(walk, text, len, err);
}

static int put_link(
	struct walk *walk, int dir, const char *name, const struct stat *st, struct err *err)
{
	char target[LINK_MAX];
	ssize_t len = readlinkat(dir, name, target, sizeof target - 1);

	if (len < 0)
		return err_sys(err, errno, "read link '%s'", walk->path);
	target[len] = '\0';
	return put_text(walk, KIND_LINK, st, name, target, err);
}

/* 1: it is another name of an earlier file, and was written as such. */
static int put_hard_link(
	struct walk *walk, const char *name, const struct stat *st, struct err *err)
{
	struct first_name **bucket = &walk->names[st->st_ino % NAME_BUCKETS], *first;

	if (st->st_nlink < 2)
		return 0;
	for (first = *bucket; first; first = first->next)
		if (first->ino == st->st_ino)
			return put_text(walk, KIND_HARD, st, name, first->path, err) < 0 ? -1 : 1;
	first = xnew(struct first_name);
	*first = (struct first_name){ st->st_ino, xstrdup(walk->path), *bucket };
	*bucket = first;
	return 0;
}

static int mount_of(int dir, const char *name, uint64_t *ret, struct err *err)
{
	struct statx st = { 0 };

	if (statx(dir, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_MNT_ID,
		    &st) < 0)
		return err_sys(err, errno, "look at a file system of the box");
	if (!(st.stx_mask & STATX_MNT_ID))
		return err_set(err, ERR_UNSUPPORTED, "the kernel does not tell mounts apart");
	*ret = st.stx_mnt_id;
	return 0;
}

/* A mount point is saved as an empty folder. What is mounted there is not part of this file system
 * but CRIU's affair; and we could read more of it than the box can, for example a file of /proc or
 * /sys. */
static int put_mount_point(
	struct walk *walk, const struct stat *st, const char *name, struct err *err)
{
	const struct extent last = { 0, 0 };

	if (S_ISDIR(st->st_mode))
		return put_head(walk, KIND_DIR, st, name, 0, err) < 0
			       ? -1
			       : put_head(walk, KIND_END, st, "", 0, err);
	return put_head(walk, KIND_FILE, st, name, 0, err) < 0 ? -1
							       : put(walk, &last, sizeof last, err);
}

static int put_dir(struct walk *walk, int dir, unsigned depth, struct err *err);

static int put_entry(struct walk *walk, int dir, const char *name, unsigned depth, struct err *err)
{
	struct stat st;
	uint64_t mount;
	int linked;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "look at '%s'", walk->path);
	if (mount_of(dir, name, &mount, err) < 0)
		return -1;
	if (mount != walk->mount)
		return put_mount_point(walk, &st, name, err);
	if (!is_inner(walk, st.st_uid) || !is_inner(walk, st.st_gid))
		return err_set(err, ERR_STATE, "'%s' belongs to nobody in the box", walk->path);
	if (S_ISDIR(st.st_mode)) {
		_cleanup_close_ int inside = openat(
			dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME);

		if (inside < 0)
			return err_sys(err, errno, "open '%s'", walk->path);
		if (put_head(walk, KIND_DIR, &st, name, 0, err) < 0)
			return -1;
		return put_dir(walk, inside, depth + 1, err);
	}
	linked = S_ISREG(st.st_mode) ? put_hard_link(walk, name, &st, err) : 0;
	if (linked)
		return linked < 0 ? -1 : 0;
	if (S_ISREG(st.st_mode))
		return put_file(walk, dir, name, &st, err);
	if (S_ISLNK(st.st_mode))
		return put_link(walk, dir, name, &st, err);
	return S_ISFIFO(st.st_mode) ? put_head(walk, KIND_FIFO, &st, name, 0, err) : 0;
}

static int put_dir(struct walk *walk, int dir, unsigned depth, struct err *err)
{
	int copy = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	DIR *entries = copy < 0 ? NULL : fdopendir(copy);
	size_t len = strlen(walk->path);
	struct dirent *entry;
	struct stat none = { 0 };
	int status = 0;

	if (!entries) {
		err_sys(err, errno, "read '/%s'", walk->path);
		if (copy >= 0)
			close(copy);
		return -1;
	}
	if (depth > DEPTH_MAX)
		status = err_set(err, ERR_LIMIT, "'/%.80s' is deeper than %d folders", walk->path,
			DEPTH_MAX);
	while (status == 0 && (entry = readdir(entries))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (len + strlen(entry->d_name) + 2 > sizeof walk->path) {
			status =
				err_set(err, ERR_LIMIT, "'/%.80s' has too long a path", walk->path);
			break;
		}
		snprintf(walk->path + len, sizeof walk->path - len, "%s%s", len ? "/" : "",
			entry->d_name);
		status = put_entry(walk, dir, entry->d_name, depth, err);
		walk->path[len] = '\0';
	}
	closedir(entries);
	return status < 0 ? -1 : put_head(walk, KIND_END, &none, "", 0, err);
}

static int walk_init(struct walk *walk, int fd, const char *mode, uint32_t base, struct err *err)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	*walk = (struct walk){ .base = base, .root = -1 };
	walk->file = copy < 0 ? NULL : fdopen(copy, mode);
	walk->chunk = xcalloc(CHUNK, 1);
	if (walk->file)
		return 0;
	err_sys(err, errno, "open a file system of the box");
	if (copy >= 0)
		close(copy);
	walk_done(walk);
	return -1;
}

int tree_save(int dir, uint32_t base, int out, struct err *err)
{
	struct walk walk;
	uint32_t magic = MAGIC;
	struct stat st;
	int status = -1;

	if (walk_init(&walk, out, "w", base, err) < 0)
		return -1;
	if (fstat(dir, &st) < 0)
		err_sys(err, errno, "look at a file system of the box");
	else if (mount_of(dir, "", &walk.mount, err) == 0 &&
		 put(&walk, &magic, sizeof magic, err) == 0 &&
		 put_head(&walk, KIND_ROOT, &st, "", 0, err) == 0)
		status = put_dir(&walk, dir, 0, err);
	if (status == 0 && fflush(walk.file) != 0)
		status = err_sys(err, errno, "write a file system of the box");
	walk_done(&walk);
	return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int damaged(struct err *err)
{
	return err_set(err, ERR_PROTOCOL, "a file system in the checkpoint is damaged");
}

static int get(struct walk *walk, void *data, size_t len, struct err *err)
{
	return len && fread(data, len, 1, walk->file) != 1 ? damaged(err) : 0;
}

static int get_text(struct walk *walk, char *text, uint64_t len, struct err *err)
{
	if (len >= LINK_MAX || get(walk, text, (size_t)len, err) < 0)
		return damaged(err);
	text[len] = '\0';
	return strlen(text) == len ? 0 : damaged(err);
}

static int make_data(struct walk *walk, int fd, uint64_t size, struct err *err)
{
	struct extent extent;

	if (ftruncate(fd, (off_t)size) < 0)
		return err_sys(err, errno, "make a file of the box");
	for (;;) {
		if (get(walk, &extent, sizeof extent, err) < 0)
			return -1;
		if (!extent.len)
			return 0;
		if (extent.at > size || extent.len > size - extent.at)
			return damaged(err);
		while (extent.len) {
			size_t len = (size_t)MIN(extent.len, (uint64_t)CHUNK);

			if (get(walk, walk->chunk, len, err) < 0)
				return -1;
			if (pwrite(fd, walk->chunk, len, (off_t)extent.at) != (ssize_t)len)
				return err_sys(err, errno, "write a file of the box");
			extent.at += len;
			extent.len -= len;
		}
	}
}

static int make_file(
	struct walk *walk, int dir, const char *name, const struct head *head, struct err *err)
{
	_cleanup_close_ int fd =
		openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_sys(err, errno, "make '%s'", name);
	return make_data(walk, fd, head->size, err);
}

static int dress(const struct walk *walk, int dir, const char *name, const struct head *head,
	struct err *err)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
		{ .tv_sec = head->mtime_s, .tv_nsec = (long)head->mtime_ns } };

	if (head->uid > INT32_MAX || head->gid > INT32_MAX || head->mtime_ns > 999999999)
		return damaged(err);
	if (fchownat(dir, name, outer(walk, head->uid), outer(walk, head->gid),
		    AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "chown '%s'", name);
	if (head->kind != KIND_LINK && fchmodat(dir, name, head->mode & 07777, 0) < 0)
		return err_sys(err, errno, "chmod '%s'", name);
	utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW);
	return 0;
}

static int make_dir(
	struct walk *walk, int dir, const struct head *own, unsigned depth, struct err *err);

static int make_entry(
	struct walk *walk, int dir, const struct head *head, unsigned depth, struct err *err)
{
	char name[256], text[LINK_MAX];
	int status = 0;

	if (head->name_len > 255 || get(walk, name, head->name_len, err) < 0)
		return damaged(err);
	name[head->name_len] = '\0';
	if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return damaged(err);
	if (head->kind == KIND_DIR) {
		_cleanup_close_ int inside = -1;

		if (mkdirat(dir, name, 0700) < 0)
			return err_sys(err, errno, "make '%s'", name);
		inside = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (inside < 0)
			return err_sys(err, errno, "open '%s'", name);
		return make_dir(walk, inside, head, depth + 1, err);
	}
	if (head->kind == KIND_FILE)
		status = make_file(walk, dir, name, head, err);
	else if (head->kind == KIND_FIFO)
		status = mknodat(dir, name, S_IFIFO | 0600, 0) < 0
				 ? err_sys(err, errno, "make '%s'", name)
				 : 0;
	else if (head->kind != KIND_LINK && head->kind != KIND_HARD)
		return damaged(err);
	else if (get_text(walk, text, head->size, err) < 0)
		return -1;
	else if (head->kind == KIND_HARD)
		return linkat(walk->root, text, dir, name, 0) < 0
			       ? err_sys(err, errno, "link '%s'", name)
			       : 0;
	else if (symlinkat(text, dir, name) < 0)
		return err_sys(err, errno, "make '%s'", name);
	return status < 0 ? -1 : dress(walk, dir, name, head, err);
}

/* A folder gets its owner, mode and time after its content. */
static int make_dir(
	struct walk *walk, int dir, const struct head *own, unsigned depth, struct err *err)
{
	struct head head;

	if (depth > DEPTH_MAX)
		return damaged(err);
	for (;;) {
		if (get(walk, &head, sizeof head, err) < 0)
			return -1;
		if (head.kind == KIND_END)
			return head.name_len ? damaged(err) : dress(walk, dir, ".", own, err);
		if (make_entry(walk, dir, &head, depth, err) < 0)
			return -1;
	}
}

int tree_load(int dir, uint32_t base, int in, struct err *err)
{
	struct walk walk;
	struct head head;
	uint32_t magic = 0;
	int status = -1;

	if (walk_init(&walk, in, "r", base, err) < 0)
		return -1;
	walk.root = dir;
	if (get(&walk, &magic, sizeof magic, err) == 0 &&
		get(&walk, &head, sizeof head, err) == 0) {
		if (magic != MAGIC || head.kind != KIND_ROOT || head.name_len)
			damaged(err);
		else
			status = make_dir(&walk, dir, &head, 0, err);
	}
	walk_done(&walk);
	return status;
}
