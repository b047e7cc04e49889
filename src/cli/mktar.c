/* mktar.c - see mktar.h
 *
 * fts walks the tree; each step puts an entry's header into a small buffer, and a file's bytes are
 * read directly into the caller's. A file that shrinks while it is read is filled with zeros, one
 * that grows is cut: the header has already told its size. */
#include "cli/mktar.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "tar/tar.h"
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <sys/stat.h>

struct mktar {
	const struct mktar_spec *spec;
	FTS *walk;
	size_t root_len; /* length of the part of fts_path that top replaces */
	struct buf out;
	int fd; /* the file being read */
	uint64_t left;
	uint64_t fill; /* zeros after it */
	bool ended;
	uint64_t skipped;
};

int mktar_open(const struct mktar_spec *spec, struct mktar **ret, struct err *err)
{
	char *const paths[] = { (char *)spec->path, NULL };
	struct mktar *tar = xnew(struct mktar);

	tar->spec = spec;
	tar->fd = -1;
	tar->root_len = strlen(spec->path);
	tar->walk = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
	if (!tar->walk) {
		int why = errno;

		mktar_close(tar);
		return err_sys(err, why, "read '%s'", spec->path);
	}
	*ret = tar;
	return 0;
}

void mktar_close(struct mktar *tar)
{
	if (!tar)
		return;
	if (tar->walk)
		fts_close(tar->walk);
	if (tar->fd >= 0)
		close(tar->fd);
	buf_done(&tar->out);
	free(tar);
}

uint64_t mktar_skipped(const struct mktar *tar)
{
	return tar->skipped;
}

/* ---- headers --------------------------------------------------------------------------------- */

static void put_zeros(struct buf *out, size_t len)
{
	memset(buf_room(out, len), 0, len);
	buf_grew(out, len);
}

/* Without preserve, everything is owned by root. */
static void put_entry(struct mktar *tar, enum tar_type type, const char *name, const char *link,
	const struct stat *status)
{
	bool keep = tar->spec->preserve;
	struct tar_entry entry = {
		.type = type,
		.name = name,
		.link = link,
		.size = type == TAR_FILE ? (uint64_t)status->st_size : 0,
		.mode = status->st_mode & (keep ? 07777 : 0777),
		.uid = keep ? status->st_uid : 0,
		.gid = keep ? status->st_gid : 0,
		.mtime = status->st_mtime,
	};

	tar_put_header(&tar->out, &entry);
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* The name in the archive of the current entry; "" for the top of a contents-only archive. */
static char *entry_name(const struct mktar *tar, const FTSENT *at)
{
	const char *rest = at->fts_path + tar->root_len;

	rest += strspn(rest, "/");
	if (!*tar->spec->top)
		return xstrdup(rest);
	return *rest ? xasprintf("%s/%s", tar->spec->top, rest) : xstrdup(tar->spec->top);
}

static int begin_file(struct mktar *tar, const FTSENT *at, const char *name, struct err *err)
{
	int follow = at->fts_level == 0 ? 0 : O_NOFOLLOW;
	struct stat status;

	tar->fd = open(at->fts_accpath, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | follow);
	if (tar->fd < 0 || fstat(tar->fd, &status) < 0)
		return err_sys(err, errno, "open '%s'", at->fts_path);
	put_entry(tar, TAR_FILE, name, NULL, &status);
	tar->left = (uint64_t)status.st_size;
	tar->fill = tar_fill(tar->left);
	return 0;
}

static int put_symlink(struct mktar *tar, const FTSENT *at, const char *name, struct err *err)
{
	char target[PATH_MAX];
	ssize_t len = readlink(at->fts_accpath, target, sizeof target - 1);

	if (len < 0)
		return err_sys(err, errno, "read link '%s'", at->fts_path);
	target[len] = '\0';
	put_entry(tar, TAR_SYMLINK, name, target, at->fts_statp);
	return 0;
}

static int step(struct mktar *tar, struct err *err)
{
	FTSENT *at;
	_cleanup_free_ char *name = NULL;

	errno = 0;
	at = fts_read(tar->walk);
	if (!at) {
		if (errno)
			return err_sys(err, errno, "read '%s'", tar->spec->path);
		put_zeros(&tar->out, TAR_END_SIZE);
		tar->ended = true;
		return 0;
	}
	name = entry_name(tar, at);
	switch (at->fts_info) {
	case FTS_D:
		if (*name)
			put_entry(tar, TAR_DIR, name, NULL, at->fts_statp);
		return 0;
	case FTS_F:
		return begin_file(tar, at, name, err);
	case FTS_SL:
	case FTS_SLNONE:
		return put_symlink(tar, at, name, err);
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return err_sys(err, at->fts_errno, "read '%s'", at->fts_path);
	case FTS_DP:
		return 0;
	default:
		tar->skipped++;
		return 0;
	}
}

static int64_t read_content(struct mktar *tar, void *buf, size_t len, struct err *err)
{
	size_t want = (size_t)MIN((uint64_t)len, tar->left);
	ssize_t got = read(tar->fd, buf, want);

	if (got < 0)
		return err_sys(err, errno, "read");
	if (got == 0) {
		memset(buf, 0, want);
		got = (ssize_t)want;
	}
	tar->left -= (uint64_t)got;
	return got;
}

int64_t mktar_read(struct mktar *tar, void *buf, size_t len, struct err *err)
{
	size_t take;

	while (!tar->out.len) {
		if (tar->fd >= 0 && tar->left)
			return read_content(tar, buf, len, err);
		if (tar->fd >= 0) {
			close(steal_fd(&tar->fd));
			put_zeros(&tar->out, tar->fill);
		} else if (tar->ended) {
			return 0;
		} else if (step(tar, err) < 0) {
			return -1;
		}
	}
	take = MIN(tar->out.len, len);
	memcpy(buf, buf_head(&tar->out), take);
	buf_eat(&tar->out, take);
	return (int64_t)take;
}
