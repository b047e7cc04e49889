/* mktar.c - see mktar.h
 *
 * fts walks the tree; each step puts an entry's header into a small buffer, and a file's bytes are read
 * straight into the caller's. Names over 100 bytes, long link targets and sizes over 8 GiB go into a pax
 * header before the entry. A file that shrinks while it is read is filled up with zeros, one that grows is
 * cut: the header has told its size already. */
#include "cli/mktar.h"
#include "base/alloc.h"
#include "base/buf.h"
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { BLOCK = 512 };
#define OCTAL_MAX 077777777777ull /* eleven digits */

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], rest[12];
};

struct mktar {
	const struct mktar_spec *spec;
	FTS *walk;
	size_t root_len; /* of the part of fts_path that top stands for */
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

static void put_octal(char *field, size_t size, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof text, "%0*llo", (int)size - 1, (unsigned long long)value);
	memcpy(field, text, size);
}

static void put_header(struct mktar *tar, struct header *header)
{
	const uint8_t *bytes = (const uint8_t *)header;
	unsigned sum = 0;

	memcpy(header->magic, "ustar", 6);
	memcpy(header->version, "00", 2);
	memset(header->checksum, ' ', sizeof header->checksum);
	for (size_t i = 0; i < BLOCK; i++)
		sum += bytes[i];
	put_octal(header->checksum, 7, sum);
	buf_add(&tar->out, header, BLOCK);
}

static void put_zeros(struct buf *out, size_t len)
{
	memset(buf_room(out, len), 0, len);
	buf_grew(out, len);
}

static uint64_t fill_of(uint64_t size)
{
	return (BLOCK - size % BLOCK) % BLOCK;
}

/* "LEN key=value\n", where LEN counts its own digits too. */
static void put_record(struct buf *pax, const char *key, const char *value)
{
	size_t body = strlen(key) + strlen(value) + 3, len = body + 1;
	char text[24];

	while (len != body + (size_t)snprintf(text, sizeof text, "%zu", len))
		len = body + strlen(text);
	buf_addf(pax, "%zu %s=%s\n", len, key, value);
}

static void put_pax(struct mktar *tar, const char *name, const char *link, uint64_t size)
{
	struct header header = { .type = 'x' };
	struct buf pax = BUF_INIT;
	char text[24];

	if (strlen(name) > sizeof header.name)
		put_record(&pax, "path", name);
	if (strlen(link) > sizeof header.link)
		put_record(&pax, "linkpath", link);
	if (size > OCTAL_MAX) {
		snprintf(text, sizeof text, "%llu", (unsigned long long)size);
		put_record(&pax, "size", text);
	}
	if (pax.len) {
		strcpy(header.name, "pax");
		put_octal(header.mode, sizeof header.mode, 0600);
		put_octal(header.uid, sizeof header.uid, 0);
		put_octal(header.gid, sizeof header.gid, 0);
		put_octal(header.size, sizeof header.size, pax.len);
		put_octal(header.mtime, sizeof header.mtime, 0);
		put_header(tar, &header);
		buf_add(&tar->out, buf_head(&pax), pax.len);
		put_zeros(&tar->out, fill_of(pax.len));
	}
	buf_done(&pax);
}

static void put_entry(struct mktar *tar, char type, const char *name, const char *link,
	const struct stat *status, uint64_t size)
{
	struct header header = { .type = type };
	bool keep = tar->spec->preserve;

	put_pax(tar, name, link, size);
	memcpy(header.name, name, MIN(strlen(name), sizeof header.name));
	memcpy(header.link, link, MIN(strlen(link), sizeof header.link));
	put_octal(header.mode, sizeof header.mode, status->st_mode & (keep ? 07777 : 0777));
	put_octal(header.uid, sizeof header.uid,
		keep && status->st_uid <= 07777777 ? status->st_uid : 0);
	put_octal(header.gid, sizeof header.gid,
		keep && status->st_gid <= 07777777 ? status->st_gid : 0);
	put_octal(header.size, sizeof header.size, size > OCTAL_MAX ? 0 : size);
	put_octal(header.mtime, sizeof header.mtime,
		status->st_mtime < 0 ? 0 : MIN((uint64_t)status->st_mtime, OCTAL_MAX));
	put_header(tar, &header);
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* The archive's name for what fts stands at; "" for the top of a contents-only archive. */
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
	put_entry(tar, '0', name, "", &status, (uint64_t)status.st_size);
	tar->left = (uint64_t)status.st_size;
	tar->fill = fill_of(tar->left);
	return 0;
}

static int put_symlink(struct mktar *tar, const FTSENT *at, const char *name, struct err *err)
{
	char target[PATH_MAX];
	ssize_t len = readlink(at->fts_accpath, target, sizeof target - 1);

	if (len < 0)
		return err_sys(err, errno, "read link '%s'", at->fts_path);
	target[len] = '\0';
	put_entry(tar, '2', name, target, at->fts_statp, 0);
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
		put_zeros(&tar->out, 2 * BLOCK);
		tar->ended = true;
		return 0;
	}
	name = entry_name(tar, at);
	switch (at->fts_info) {
	case FTS_D:
		if (*name)
			put_entry(tar, '5', name, "", at->fts_statp, 0);
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
