/* retar.c - see retar.h */
#include "cli/retar.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "tar/tar.h"

enum { FILL_MAX = 64 * 1024 };

struct retar {
	struct retar_spec spec;
	struct tar_reader reader;
	struct buf out;
	char *asked; /* the first component of all names; NULL: no entry yet */
	bool in_file;
	uint64_t at;   /* bytes of the current file written so far */
	uint64_t size; /* of the current file */
	bool ended;
};

static ssize_t read_old(void *arg, void *data, size_t len, struct err *err)
{
	struct retar *retar = arg;

	return (ssize_t)retar->spec.read(data, len, retar->spec.arg, err);
}

struct retar *retar_new(const struct retar_spec *spec)
{
	struct retar *retar = xnew(struct retar);

	retar->spec = *spec;
	retar->reader.read = read_old;
	retar->reader.arg = retar;
	return retar;
}

void retar_free(struct retar *retar)
{
	if (!retar)
		return;
	tar_reader_done(&retar->reader);
	buf_done(&retar->out);
	free(retar->asked);
	free(retar);
}

/* The new name, yours to free; "" for the folder itself when only its content is copied. */
static int rename_entry(struct retar *retar, const char *name, char **ret, struct err *err)
{
	size_t len = strcspn(name, "/");
	const char *rest = name + len + strspn(name + len, "/"), *top = retar->spec.top;

	if (!retar->asked)
		retar->asked = xstrndup(name, len);
	if (!len || strlen(retar->asked) != len || memcmp(name, retar->asked, len) != 0)
		return err_set(err, ERR_FORBIDDEN,
			"the box sent '%.200s', which was not asked for; it is ignored", name);
	*ret = !*rest ? xstrdup(top) : *top ? xasprintf("%s/%s", top, rest) : xstrdup(rest);
	return 0;
}

static void put_zeros(struct retar *retar, uint64_t len)
{
	memset(buf_room(&retar->out, (size_t)len), 0, (size_t)len);
	buf_grew(&retar->out, (size_t)len);
}

static int put_entry(struct retar *retar, const struct tar_entry *old, struct err *err)
{
	_cleanup_free_ char *name = NULL, *link = NULL;
	struct tar_entry entry = *old;
	bool keep = retar->spec.preserve;

	if (!retar->asked && old->type != TAR_DIR)
		return err_set(err, ERR_PROTOCOL,
			"a folder was asked for, and the box sent '%.200s'", old->name);
	if (rename_entry(retar, old->name, &name, err) < 0 ||
		(old->type == TAR_LINK && rename_entry(retar, old->link, &link, err) < 0))
		return -1;
	if (!*name || (old->type != TAR_FILE && old->type != TAR_DIR && old->type != TAR_LINK &&
			      old->type != TAR_SYMLINK))
		return 0;
	entry.name = name;
	if (link)
		entry.link = link;
	entry.mode &= keep ? 07777 : 0777;
	if (!keep)
		entry.uid = entry.gid = 0;
	entry.size = old->type == TAR_FILE ? old->real_size : 0;
	tar_put_header(&retar->out, &entry);
	retar->in_file = old->type == TAR_FILE;
	retar->at = 0;
	retar->size = entry.size;
	return 0;
}

static int next_entry(struct retar *retar, struct err *err)
{
	const struct tar_entry *entry;
	int status = tar_next(&retar->reader, &entry, err);

	if (status < 0)
		return err_wrap(err, "the archive from the box is damaged, or nested too deep");
	if (status == 0) {
		put_zeros(retar, TAR_END_SIZE);
		retar->ended = true;
		return 0;
	}
	return put_entry(retar, entry, err);
}

/* The next piece of the current file; holes are filled. */
static int next_content(struct retar *retar, struct err *err)
{
	uint64_t from = tar_offset(&retar->reader);
	uint8_t chunk[FILL_MAX];
	ssize_t got;

	if (from > retar->at) {
		uint64_t hole = MIN(from - retar->at, (uint64_t)FILL_MAX);

		put_zeros(retar, hole);
		retar->at += hole;
		return 0;
	}
	got = tar_read(&retar->reader, chunk, sizeof chunk, err);
	if (got < 0)
		return err_wrap(err, "the archive from the box is damaged");
	if (got > 0) {
		buf_add(&retar->out, chunk, (size_t)got);
		retar->at += (uint64_t)got;
	} else if (retar->at < retar->size) {
		uint64_t hole = MIN(retar->size - retar->at, (uint64_t)FILL_MAX);

		put_zeros(retar, hole);
		retar->at += hole;
	} else {
		put_zeros(retar, tar_fill(retar->size));
		retar->in_file = false;
	}
	return 0;
}

int64_t retar_read(struct retar *retar, void *buf, size_t len, struct err *err)
{
	size_t take;

	while (!retar->out.len) {
		if (retar->ended)
			return 0;
		if ((retar->in_file ? next_content(retar, err) : next_entry(retar, err)) < 0)
			return -1;
	}
	take = MIN(retar->out.len, len);
	memcpy(buf, buf_head(&retar->out), take);
	buf_eat(&retar->out, take);
	return (int64_t)take;
}
