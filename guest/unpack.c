/* unpack.c - a tar stream becomes a tree of files (archive_in)
 *
 * Everything stays below the target folder: names with ".." or a leading slash are refused, and
 * folders are opened with RESOLVE_BENEATH, so that a symlink the archive planted cannot lead the
 * next member out. In "/" itself nothing can lead out, and links may be absolute there.
 *
 * What is in the way of a member is removed first, unless it is a folder. Modes and times of
 * folders are set at the end, because what comes into them would change the one and may be kept out
 * by the other. */
#include "guest/archive.h"
#include "guest/path.h"
#include "tar/tar.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { LATER_BYTES_MAX = 64 * 1024 * 1024 };

/* A folder whose mode and time are set at the end. */
struct later {
	struct later *next;
	mode_t mode;
	struct timespec mtime;
	char name[];
};

struct unpack {
	struct job *job;
	const uint8_t *data; /* rest of the present DATA frame */
	size_t len;
	bool end;
	int top;
	uint64_t resolve;
	int parent; /* folder of the last member, kept open because the next is often beside it */
	char parent_name[WIRE_PATH_MAX + 1];
	struct later *later;
	size_t later_bytes;
	uint64_t files, bytes;
	struct tar_reader reader;
};

static ssize_t read_stream(void *arg, void *data, size_t len, struct err *err)
{
	struct unpack *unpack = arg;

	if (!unpack->len && !unpack->end) {
		ssize_t got = job_take(unpack->job, &unpack->data, err);

		if (got < 0)
			return -1;
		unpack->len = (size_t)got;
		unpack->end = got == 0;
	}
	len = MIN(len, unpack->len);
	memcpy(data, unpack->data, len);
	unpack->data += len;
	unpack->len -= len;
	return (ssize_t)len;
}

static int check_name(const char *member, const char *name, struct err *err)
{
	if (*name == '/')
		return err_set(
			err, ERR_INVALID, "member '%.200s': absolute names are refused", member);
	for (const char *p = name; *p;) {
		size_t len = strcspn(p, "/");

		if (len == 2 && !memcmp(p, "..", 2))
			return err_set(err, ERR_INVALID,
				"member '%.200s': names with '..' are refused", member);
		p += len;
		p += strspn(p, "/");
	}
	return 0;
}

static int fail(struct err *err, int errno_value, const char *member)
{
	if (errno_value == EXDEV || errno_value == ELOOP)
		return err_set(err, ERR_INVALID, "member '%.200s' leads out of the folder", member);
	return err_sys(err, errno_value, "member '%.200s'", member);
}

static int open_below(struct unpack *unpack, const char *name)
{
	return open_how(unpack->top, *name ? name : ".", O_PATH | O_DIRECTORY, 0, unpack->resolve);
}

/* Opens the folder name below the top, making what is missing on the way. name is cut for a
 * while. */
static int open_parent(struct unpack *unpack, char *name, const char *member, struct err *err)
{
	int dir = open_below(unpack, name);
	char *slash = strrchr(name, '/');
	char *last = slash ? slash + 1 : name;
	int above;

	if (dir >= 0)
		return dir;
	if (errno != ENOENT || !*name)
		return fail(err, errno, member);
	if (slash)
		*slash = '\0';
	above = open_parent(unpack, slash ? name : last + strlen(last), member, err);
	if (slash)
		*slash = '/';
	if (above < 0)
		return -1;
	if (mkdirat(above, last, 0755) < 0 && errno != EEXIST) {
		fail(err, errno, member);
		close(above);
		return -1;
	}
	close(above);
	dir = open_below(unpack, name);
	return dir < 0 ? fail(err, errno, member) : dir;
}

/* The folder and last component of a name; the folder is unpack->parent afterwards. */
static int go_to(struct unpack *unpack, const char *name, const char *member, const char **ret_last,
	struct err *err)
{
	char folder[WIRE_PATH_MAX + 1];
	const char *slash = strrchr(name, '/');
	size_t len = slash ? (size_t)(slash - name) : 0;

	memcpy(folder, name, len);
	folder[len] = '\0';
	*ret_last = slash ? slash + 1 : name;
	if (unpack->parent >= 0 && !strcmp(folder, unpack->parent_name))
		return 0;
	cleanup_closep(&unpack->parent);
	unpack->parent = open_parent(unpack, folder, member, err);
	if (unpack->parent < 0)
		return -1;
	strcpy(unpack->parent_name, folder);
	return 0;
}

static void set_times(int dir, const char *name, const struct tar_entry *entry)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { entry->mtime, entry->mtime_ns } };

	utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW);
}

/* Sets the owner where possible; a failure does not fail the file. */
static void set_owner(int dir, const char *name, const struct tar_entry *entry)
{
	if (fchownat(dir, name, entry->uid, entry->gid, AT_SYMLINK_NOFOLLOW) < 0)
		errno = 0;
}

static int write_content(
	struct unpack *unpack, int fd, const struct tar_entry *entry, struct err *err)
{
	static uint8_t chunk[WIRE_DATA_MAX];

	for (;;) {
		uint64_t at = tar_offset(&unpack->reader);
		ssize_t got = tar_read(&unpack->reader, chunk, sizeof chunk, err);

		if (got < 0)
			return -1;
		if (!got)
			break;
		if (entry->sparse && lseek(fd, (off_t)at, SEEK_SET) < 0)
			return fail(err, errno, entry->name);
		if (fd_write_all(fd, chunk, (size_t)got, err) < 0)
			return err_wrap(err, "member '%.200s'", entry->name);
		unpack->bytes += (uint64_t)got;
	}
	if (entry->sparse && ftruncate(fd, (off_t)entry->real_size) < 0)
		return fail(err, errno, entry->name);
	return 0;
}

static int make_file(
	struct unpack *unpack, const char *last, const struct tar_entry *entry, struct err *err)
{
	_cleanup_close_ int fd = openat(
		unpack->parent, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { entry->mtime, entry->mtime_ns } };

	if (fd < 0)
		return fail(err, errno, entry->name);
	if (write_content(unpack, fd, entry, err) < 0)
		return -1;
	/* The owner first: changing it clears setuid. */
	if (fchown(fd, entry->uid, entry->gid) < 0)
		errno = 0;
	if (fchmod(fd, entry->mode) < 0)
		return fail(err, errno, entry->name);
	futimens(fd, times);
	return 0;
}

static int make_link(
	struct unpack *unpack, const char *last, const struct tar_entry *entry, struct err *err)
{
	char folder[WIRE_PATH_MAX + 1];
	char *slash;
	_cleanup_close_ int from = -1;

	if (check_name(entry->name, entry->link, err) < 0)
		return -1;
	strcpy(folder, entry->link);
	slash = strrchr(folder, '/');
	if (slash)
		*slash = '\0';
	from = open_below(unpack, slash ? folder : "");
	if (from < 0 || linkat(from, slash ? slash + 1 : folder, unpack->parent, last, 0) < 0)
		return fail(err, errno, entry->name);
	return 0;
}

static int make_node(
	struct unpack *unpack, const char *last, const struct tar_entry *entry, struct err *err)
{
	mode_t type = entry->type == TAR_FIFO	? S_IFIFO
		      : entry->type == TAR_CHAR ? S_IFCHR
						: S_IFBLK;

	if (mknodat(unpack->parent, last, type | entry->mode, makedev(entry->major, entry->minor)) <
		0)
		return fail(err, errno, entry->name);
	set_owner(unpack->parent, last, entry);
	set_times(unpack->parent, last, entry);
	return 0;
}

static int make_symlink(
	struct unpack *unpack, const char *last, const struct tar_entry *entry, struct err *err)
{
	if (symlinkat(entry->link, unpack->parent, last) < 0)
		return fail(err, errno, entry->name);
	set_owner(unpack->parent, last, entry);
	set_times(unpack->parent, last, entry);
	return 0;
}

static void finish_dir(struct unpack *unpack, const struct later *later)
{
	_cleanup_close_ int fd =
		open_how(unpack->top, later->name, O_RDONLY | O_DIRECTORY, 0, unpack->resolve);
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, later->mtime };

	/* Removed or replaced by a later member: nothing to finish. */
	if (fd < 0 || fchmod(fd, later->mode) < 0)
		return;
	futimens(fd, times);
}

static int make_dir(
	struct unpack *unpack, const char *last, const struct tar_entry *entry, struct err *err)
{
	size_t len = strlen(entry->name);
	_cleanup_close_ int fd = -1;
	struct later *later;

	if (mkdirat(unpack->parent, last, 0700) < 0 && errno != EEXIST)
		return fail(err, errno, entry->name);
	fd = open_how(unpack->top, entry->name, O_RDONLY | O_DIRECTORY, 0, unpack->resolve);
	if (fd < 0)
		return fail(err, errno, entry->name);
	if (fchown(fd, entry->uid, entry->gid) < 0)
		errno = 0;
	if (unpack->later_bytes > LATER_BYTES_MAX)
		return fchmod(fd, entry->mode) < 0 ? fail(err, errno, entry->name) : 0;
	later = xcalloc(1, sizeof *later + len + 1);
	later->mode = entry->mode;
	later->mtime = (struct timespec){ entry->mtime, entry->mtime_ns };
	memcpy(later->name, entry->name, len);
	later->next = unpack->later;
	unpack->later = later;
	unpack->later_bytes += sizeof *later + len + 1;
	return 0;
}

/* Removes what is in the way of a member that is not a folder. */
static int clear_way(struct unpack *unpack, const char *last, const char *member, struct err *err)
{
	if (unlinkat(unpack->parent, last, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno == EISDIR || errno == EPERM)
		return err_set(
			err, ERR_EXISTS, "member '%.200s': a folder is there already", member);
	return fail(err, errno, member);
}

static int make_member(struct unpack *unpack, const struct tar_entry *entry, struct err *err)
{
	const char *last;

	if (check_name(entry->name, entry->name, err) < 0 ||
		go_to(unpack, entry->name, entry->name, &last, err) < 0)
		return -1;
	if (entry->type == TAR_DIR)
		return make_dir(unpack, last, entry, err);
	if (!strcmp(last, "."))
		return err_set(err, ERR_INVALID, "member '%.200s' is no folder", entry->name);
	/* A hard link to itself would remove its own source. */
	if (entry->type == TAR_LINK && !strcmp(entry->link, entry->name))
		return err_set(err, ERR_INVALID, "member '%.200s' links to itself", entry->name);
	if (clear_way(unpack, last, entry->name, err) < 0)
		return -1;
	unpack->files++;
	switch (entry->type) {
	case TAR_LINK:
		return make_link(unpack, last, entry, err);
	case TAR_SYMLINK:
		return make_symlink(unpack, last, entry, err);
	case TAR_FILE:
		return make_file(unpack, last, entry, err);
	default:
		return make_node(unpack, last, entry, err);
	}
}

/* Reads the padding after the end of the archive. */
static int drain(struct unpack *unpack, struct err *err)
{
	uint8_t waste[4096];
	ssize_t got;

	while ((got = read_stream(unpack, waste, sizeof waste, err)) > 0)
		continue;
	return (int)got;
}

int archive_in(struct job *job, struct err *err)
{
	static struct unpack unpack;
	const struct tar_entry *entry;
	struct buf reply = BUF_INIT;
	int got;

	if (path_check(job->path, err) < 0)
		return -1;
	unpack.job = job;
	unpack.parent = -1;
	unpack.reader.read = read_stream;
	unpack.reader.arg = &unpack;
	unpack.resolve =
		RESOLVE_NO_MAGICLINKS |
		(strspn(job->path, "/") == strlen(job->path) ? RESOLVE_IN_ROOT : RESOLVE_BENEATH);
	unpack.top = path_open(AT_FDCWD, job->path, O_PATH | O_DIRECTORY, 0, err);
	if (unpack.top < 0)
		return -1;
	while ((got = tar_next(&unpack.reader, &entry, err)) > 0)
		if (make_member(&unpack, entry, err) < 0)
			return -1;
	if (got < 0 || drain(&unpack, err) < 0)
		return -1;
	/* The list runs backwards: the deepest folders first. */
	for (struct later *later = unpack.later; later; later = later->next)
		finish_dir(&unpack, later);
	wire_put_u64(&reply, unpack.files);
	wire_put_u64(&reply, unpack.bytes);
	return job_reply(job, &reply, err);
}
