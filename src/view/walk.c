/* walk.c - walks several trees at once; see view_internal.h
 *
 * It keeps a stack of frames, one for each folder between the top and the current position, each
 * with the folder's fd in every tree and the sorted names to visit. Trees may have any depth:
 * there is no recursion, no whole path is given to the kernel, and only the deepest frames keep
 * their fds open. A frame that is needed again is reopened from the top, together with those
 * above it, which will be needed next. No link is followed, so the walk stays in the tree
 * whatever changes meanwhile; what was removed counts as missing. */
#include "view/view_internal.h"
#include "sys/beneath.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>

enum {
	FDS_OPEN = 256, /* open at a time, approximately */
	WALK_CLOSED = -2,
	NAMES_MAX = 1 << 30, /* bytes of names in one folder */
	STEP_MAX = 2048,     /* bytes of a path in one call */
};

void walk_init(struct walk *walk, size_t width)
{
	*walk = (struct walk){ .width = width };
}

static void frame_close(const struct walk *walk, struct walk_frame *frame)
{
	for (size_t i = 0; i < walk->width; i++)
		if (frame->fds[i] >= 0) {
			close(frame->fds[i]);
			frame->fds[i] = WALK_CLOSED;
		}
	frame->open = false;
}

static void frame_done(const struct walk *walk, struct walk_frame *frame)
{
	frame_close(walk, frame);
	free(frame->fds);
	free(frame->order);
	buf_done(&frame->names);
}

void walk_done(struct walk *walk)
{
	while (walk->depth)
		frame_done(walk, &walk->frames[--walk->depth]);
	free(walk->frames);
	buf_done(&walk->path);
}

/* ---- names ---------------------------------------------------------------------------------- */

static int read_names(struct walk_frame *frame, int fd, const char *path, struct err *err)
{
	alignas(struct dirent64) char entries[32 * 1024];
	ssize_t got;

	while ((got = getdents64(fd, entries, sizeof entries)) > 0) {
		for (char *at = entries; at < entries + got;) {
			const struct dirent64 *entry = (const struct dirent64 *)at;

			at += entry->d_reclen;
			if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
				continue;
			buf_add(&frame->names, entry->d_name, strlen(entry->d_name) + 1);
			frame->count++;
		}
		if (frame->names.len > NAMES_MAX)
			return err_set(err, ERR_LIMIT, "'/%.300s' contains too many files", path);
	}
	/* The folder was removed while it was read. */
	if (got < 0 && errno != ENOENT)
		return err_sys(err, errno, "read '/%.300s'", path);
	return 0;
}

static int compare(const void *a, const void *b, void *arg)
{
	const char *names = arg;

	return strcmp(names + *(const uint32_t *)a, names + *(const uint32_t *)b);
}

static void sort_names(struct walk_frame *frame)
{
	char *names = (char *)buf_head(&frame->names);
	size_t kept = 0;
	uint32_t at = 0;

	frame->order = xnewn(uint32_t, frame->count + 1);
	for (size_t i = 0; i < frame->count; i++) {
		frame->order[i] = at;
		at += (uint32_t)strlen(names + at) + 1;
	}
	qsort_r(frame->order, frame->count, sizeof *frame->order, compare, names);
	/* A name that is in several trees is visited once. */
	for (size_t i = 0; i < frame->count; i++)
		if (!i || strcmp(names + frame->order[i], names + frame->order[kept - 1]) != 0)
			frame->order[kept++] = frame->order[i];
	frame->count = kept;
}

/* ---- frames --------------------------------------------------------------------------------- */

int walk_enter(
	struct walk *walk, const int *fds, size_t from, size_t to, bool whole, struct err *err)
{
	size_t keep = MAX(2, FDS_OPEN / walk->width);
	struct walk_frame *frame;

	if (walk->depth == walk->room) {
		walk->room = MAX(16, 2 * walk->room);
		xgrow(walk->frames, walk->room);
	}
	/* The first frame stays open: all others can be reached from it. */
	if (walk->depth > keep)
		frame_close(walk, &walk->frames[walk->depth - keep]);
	frame = &walk->frames[walk->depth++];
	*frame = (struct walk_frame){ .fds = xmemdup(fds, walk->width * sizeof *fds),
		.open = true,
		.path_len = walk->path.len,
		.whole = whole };
	for (size_t i = from; i < to; i++)
		if (fds[i] >= 0 && read_names(frame, fds[i], buf_str(&walk->path), err) < 0)
			return -1;
	sort_names(frame);
	return 0;
}

/* Opens the folder path below dir, in pieces that the kernel accepts. A missing folder is no
 * error: -1. */
static int open_steps(int dir, const char *path, int *ret, struct err *err)
{
	_cleanup_close_ int at = -1;
	_cleanup_free_ char *copy = xstrdup(path);
	char *rest = copy;
	struct err why = ERR_INIT;

	while (*rest) {
		size_t len = strlen(rest), cut = len;
		int next;

		if (len > STEP_MAX)
			for (cut = STEP_MAX; rest[cut] != '/';)
				cut--;
		if (cut < len)
			rest[cut++] = '\0';
		if (beneath_open(at >= 0 ? at : dir, rest, O_RDONLY | O_DIRECTORY, &next, &why) <
			0) {
			*ret = -1;
			if (why.errno_value == ENOENT || why.errno_value == ENOTDIR ||
				why.errno_value == ELOOP)
				return 0;
			if (err)
				*err = why;
			return -1;
		}
		cleanup_closep(&at);
		at = next;
		rest += cut;
	}
	*ret = steal_fd(&at);
	return 0;
}

/* The path from one frame to a deeper one. */
static char *path_between(
	const struct walk *walk, const struct walk_frame *above, const struct walk_frame *below)
{
	size_t from = above->path_len ? above->path_len + 1 : 0;

	return xstrndup((char *)buf_head(&walk->path) + from, below->path_len - from);
}

static int reopen_from(const struct walk *walk, const struct walk_frame *above,
	struct walk_frame *frame, struct err *err)
{
	_cleanup_free_ char *path = path_between(walk, above, frame);

	for (size_t i = 0; i < walk->width; i++) {
		if (frame->fds[i] != WALK_CLOSED)
			continue;
		frame->fds[i] = -1;
		if (above->fds[i] >= 0 && open_steps(above->fds[i], path, &frame->fds[i], err) < 0)
			return -1;
	}
	frame->open = true;
	return 0;
}

/* The last frame is needed again, and soon those above it. */
static int reopen(struct walk *walk, struct err *err)
{
	size_t last = walk->depth - 1, batch = MAX(2, FDS_OPEN / walk->width) / 2;
	size_t from = last > batch ? last - batch : 1, above;

	above = walk->frames[from - 1].open ? from - 1 : 0;
	for (; from <= last; above = from++)
		if (!walk->frames[from].open &&
			reopen_from(walk, &walk->frames[above], &walk->frames[from], err) < 0)
			return -1;
	return 0;
}

int walk_open_folder(int dir, const char *name, const char *path, int *ret, struct err *err)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
		return err_sys(err, errno, "open '/%.300s'", path);
	*ret = fd;
	return 0;
}

int walk_next(struct walk *walk, struct walk_item *ret, struct err *err)
{
	struct walk_frame *frame;
	const char *name;

	while (walk->depth &&
		walk->frames[walk->depth - 1].next == walk->frames[walk->depth - 1].count) {
		frame_done(walk, &walk->frames[--walk->depth]);
		if (walk->depth)
			walk->path.len = walk->frames[walk->depth - 1].path_len;
	}
	if (!walk->depth)
		return 0;
	frame = &walk->frames[walk->depth - 1];
	walk->path.len = frame->path_len;
	if (!frame->open && reopen(walk, err) < 0)
		return -1;
	name = (char *)buf_head(&frame->names) + frame->order[frame->next++];
	if (frame->path_len)
		buf_add_str(&walk->path, "/");
	buf_add_str(&walk->path, name);
	*ret = (struct walk_item){ .path = buf_str(&walk->path),
		.name = name,
		.dirs = frame->fds,
		.whole = frame->whole };
	return 1;
}
