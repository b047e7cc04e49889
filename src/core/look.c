/* look.c - see look_internal.h */
#include "core/look_internal.h"
#include "base/buf.h"
#include "base/file.h"
#include "core/core_internal.h"
#include "core/stream_internal.h"
#include "view/view.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { CHUNK = 256 * 1024 };

bool box_is_looked_at(const struct box *box)
{
	return box->state == BOX_STOPPED && !box_is_gone(box) && !box->remove_wanted;
}

/* ---- in the helper -------------------------------------------------------------------------- */

static void put_record(struct buf *out, const char *name, const struct stat *st, const char *target)
{
	const struct wire_stat stat = wire_stat_from(name, st, target);
	struct buf record = BUF_INIT;

	wire_put_stat(&record, &stat);
	wire_put_u32(out, (uint32_t)record.len);
	buf_add(out, buf_head(&record), record.len);
	buf_done(&record);
}

/* Reads the target of the symlink name in dir, or of dir itself when name is "". */
static const char *read_target(int dir, const char *name, const struct stat *st, char out[PATH_MAX])
{
	ssize_t len = S_ISLNK(st->st_mode) ? readlinkat(dir, name, out, PATH_MAX - 1) : 0;

	out[MAX(len, 0)] = '\0';
	return out;
}

static int write_out(int out, struct buf *text, size_t from, struct err *err)
{
	if (text->len < from)
		return 0;
	if (fd_write_all(out, buf_head(text), text->len, err) < 0)
		return -1;
	buf_eat(text, text->len);
	return 0;
}

static int stat_path(const struct disk_stream *stream, int root, struct buf *text, struct err *err)
{
	_cleanup_close_ int fd = -1;
	char target[PATH_MAX];
	struct stat st;

	if (view_open_path(root, stream->file, O_PATH | (stream->look.follow ? 0 : O_NOFOLLOW), &fd,
		    err) < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "'%.300s'", stream->file);
	put_record(text, stream->file, &st, read_target(fd, "", &st, target));
	return 0;
}

static int list_folder(
	const struct disk_stream *stream, int root, int out, struct buf *text, struct err *err)
{
	struct dirent *entry;
	int fd, ret = 0;
	DIR *dir;

	if (view_open_path(root, stream->file, O_RDONLY | O_DIRECTORY, &fd, err) < 0)
		return -1;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return err_sys(err, errno, "read '%.300s'", stream->file);
	}
	while (ret == 0 && (errno = 0, entry = readdir(dir))) {
		char target[PATH_MAX];
		struct stat st;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
			fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		put_record(text, entry->d_name, &st,
			read_target(dirfd(dir), entry->d_name, &st, target));
		ret = write_out(out, text, STREAM_FLUSH, err);
	}
	closedir(dir);
	return ret;
}

static int send_bytes(
	const struct disk_stream *stream, int fd, int out, uint64_t left, struct err *err)
{
	_cleanup_free_ uint8_t *chunk = xcalloc(1, CHUNK);

	while (left) {
		ssize_t got = read(fd, chunk, (size_t)MIN(left, (uint64_t)CHUNK));

		if (got < 0)
			return err_sys(err, errno, "read '%.300s'", stream->file);
		if (!got)
			break;
		if (fd_write_all(out, chunk, (size_t)got, err) < 0)
			return -1;
		left -= (uint64_t)got;
	}
	return 0;
}

static int read_file(
	const struct disk_stream *stream, int root, int out, struct buf *text, struct err *err)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	/* The type is checked before opening for reading: opening a pipe would block. */
	if (view_open_path(root, stream->file, O_PATH, &fd, err) < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "'%.300s'", stream->file);
	if (S_ISDIR(st.st_mode))
		return err_set(err, ERR_INVALID, "'%.300s' is a folder", stream->file);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "'%.300s' is not a regular file", stream->file);
	close(steal_fd(&fd));
	if (view_open_path(root, stream->file, O_RDONLY | O_NONBLOCK | O_NOCTTY, &fd, err) < 0)
		return -1;
	if (stream->look.offset && lseek(fd, (off_t)stream->look.offset, SEEK_SET) < 0)
		return err_set(
			err, ERR_INVALID, "cannot read '%.300s' from that offset", stream->file);
	put_record(text, stream->file, &st, "");
	if (write_out(out, text, 0, err) < 0)
		return -1;
	return send_bytes(
		stream, fd, out, stream->look.length ? stream->look.length : UINT64_MAX, err);
}

/* The last component is the top of the archive; with a slash at the end, a symlink is followed. */
static int pack_path(const struct disk_stream *stream, int root, int out, struct err *err)
{
	_cleanup_free_ char *path = xstrdup(stream->file);
	size_t len = strlen(path);
	bool slash = len > 1 && path[len - 1] == '/';
	_cleanup_close_ int fd = -1, folder = -1;
	struct view_pack_spec spec = { .out = out, .path = "" };
	struct stat st;
	char *name;

	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	if (view_open_path(root, path, O_PATH | (slash ? 0 : O_NOFOLLOW), &fd, err) < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "'%.300s'", path);
	name = strrchr(path, '/') + 1;
	spec.top = *name ? name : ".";
	if (S_ISDIR(st.st_mode)) {
		spec.root = fd;
		return view_pack(&spec, NULL, err);
	}
	spec.path = spec.top;
	spec.top = NULL;
	name[-1] = '\0';
	if (view_open_path(root, *path ? path : "/", O_PATH | O_DIRECTORY, &folder, err) < 0)
		return -1;
	spec.root = folder;
	return view_pack(&spec, NULL, err);
}

static int make_look(struct disk_stream *stream, int out, struct err *err)
{
	_cleanup_close_ int root = -1;
	struct buf text = BUF_INIT;
	int ret = -1;

	if (stream_side_open(stream->yard, &stream->now, err) < 0 ||
		view_open((const char *const *)stream->now.layers, &root, err) < 0)
		return -1;
	switch (stream->look.op) {
	case WIRE_OP_STAT:
		ret = stat_path(stream, root, &text, err);
		break;
	case WIRE_OP_LIST:
		ret = list_folder(stream, root, out, &text, err);
		break;
	case WIRE_OP_READ:
		ret = read_file(stream, root, out, &text, err);
		break;
	default:
		ret = pack_path(stream, root, out, err);
	}
	if (ret == 0)
		ret = write_out(out, &text, 1, err);
	buf_done(&text);
	return ret;
}

/* ---- in the daemon -------------------------------------------------------------------------- */

int box_look_start(struct box *box, const struct look_spec *spec, const struct disk_stream_ops *ops,
	void *arg, struct disk_stream **ret, struct err *err)
{
	struct disk_stream *stream = disk_stream_new(box->yard, ops, arg, make_look);

	stream->look.op = spec->op;
	stream->look.follow = spec->follow;
	stream->look.offset = spec->offset;
	stream->look.length = spec->length;
	stream->file = xstrdup(spec->path);
	if (stream_side_of_box(box, &stream->now, err) < 0) {
		disk_stream_free(stream);
		return -1;
	}
	return disk_stream_start(stream, ret, err);
}
