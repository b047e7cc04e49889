/* spool.c - the files of an image archive, written to disk to be read in any order
 *
 * An image archive has its index anywhere, often at its end, so its files are written into a
 * scratch folder first. There they are called by numbers: names of the archive are only
 * compared, never used as paths. Links between members (older archives of Docker use them for
 * layers that occur twice) are resolved in the list only. */
#include "image/oci_internal.h"
#include "image/spool.h"
#include "base/file.h"
#include "tar/tar.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum { MEMBERS_MAX = 2000, LINKS_MAX = 8, CHUNK = 1024 * 1024 };
#define BYTES_MAX (128ull << 30)

struct member {
	char *name;
	char *link; /* name of another one, or NULL */
	unsigned file;
};

struct spool {
	int dir;
	struct member *list;
	size_t count;
	uint64_t bytes;
	uint8_t *chunk;
	struct room room;
};

/* Joins name to the folder that base lies in (NULL: none) and removes ".", ".." and doubled
 * slashes. NULL when it leads out of the archive. Yours. */
static char *name_join(const char *base, const char *name)
{
	const char *slash = base ? strrchr(base, '/') : NULL;
	_cleanup_free_ char *whole =
		xasprintf("%.*s/%s", slash ? (int)(slash - base) : 0, base ? base : "", name);
	char *out = xcalloc(1, strlen(whole) + 2), *end = out;

	for (const char *at = whole; *at;) {
		size_t len = strcspn(at, "/");

		if (len == 2 && !memcmp(at, "..", 2)) {
			if (end == out) {
				free(out);
				return NULL;
			}
			do
				*end = '\0';
			while (end > out && *--end != '/');
			*end = '\0';
		} else if (len && !(len == 1 && *at == '.')) {
			if (end > out)
				*end++ = '/';
			memcpy(end, at, len);
			end += len;
			*end = '\0';
		}
		at += len + (at[len] == '/');
	}
	return out;
}

char *spool_clean_name(const char *name)
{
	return name_join(NULL, name);
}

static int save_file(
	struct spool *spool, struct tar_reader *reader, unsigned number, struct err *err)
{
	_cleanup_close_ int fd = -1;
	char name[16];
	ssize_t got;

	snprintf(name, sizeof name, "%u", number);
	fd = openat(spool->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, errno, "create a file for the archive");
	while ((got = tar_read(reader, spool->chunk, CHUNK, err)) > 0) {
		spool->bytes += (uint64_t)got;
		if (spool->bytes > BYTES_MAX)
			return err_set(err, ERR_LIMIT, "the archive holds more than %llu GiB",
				BYTES_MAX >> 30);
		if (room_take(&spool->room, (uint64_t)got, err) < 0 ||
			fd_write_all(fd, spool->chunk, (size_t)got, err) < 0)
			return room_explain(err);
	}
	return (int)got;
}

static int take_member(struct spool *spool, struct tar_reader *reader,
	const struct tar_entry *entry, struct err *err)
{
	_cleanup_free_ char *name = NULL, *link = NULL;
	struct member *member;

	if (entry->type != TAR_FILE && entry->type != TAR_SYMLINK && entry->type != TAR_LINK)
		return 0;
	if (entry->sparse)
		return err_set(
			err, ERR_UNSUPPORTED, "sparse files in image archives are not supported");
	if (spool->count == MEMBERS_MAX)
		return err_set(err, ERR_LIMIT, "the archive holds more than %d files", MEMBERS_MAX);
	name = spool_clean_name(entry->name);
	if (entry->type != TAR_FILE)
		link = name_join(entry->type == TAR_SYMLINK ? name : NULL, entry->link);
	if (!name || (entry->type != TAR_FILE && !link))
		return err_set(err, ERR_INVALID, "the name leads out of the archive");
	xgrow(spool->list, spool->count + 1);
	member = &spool->list[spool->count++];
	*member = (struct member){
		.name = steal_ptr(&name), .link = steal_ptr(&link), .file = (unsigned)spool->count
	};
	return entry->type == TAR_FILE ? save_file(spool, reader, member->file, err) : 0;
}

int spool_fill(struct spool *spool, read_fn read, void *arg, struct err *err)
{
	struct tar_reader *reader = xnew(struct tar_reader);
	const struct tar_entry *entry;
	int more;

	reader->read = read;
	reader->arg = arg;
	while ((more = tar_next(reader, &entry, err)) == 1)
		if (take_member(spool, reader, entry, err) < 0) {
			more = err_wrap(err, "member '%.200s'", entry->name);
			break;
		}
	tar_reader_done(reader);
	free(reader);
	return more;
}

/* The last member of a name counts, as when unpacking. */
static const struct member *find(const struct spool *spool, const char *name)
{
	for (size_t i = spool->count; i > 0; i--)
		if (!strcmp(spool->list[i - 1].name, name))
			return &spool->list[i - 1];
	return NULL;
}

bool spool_has(const struct spool *spool, const char *name)
{
	return find(spool, name) != NULL;
}

int spool_open_file(const struct spool *spool, const char *name, int *ret, struct err *err)
{
	const struct member *member = find(spool, name);
	char file[16];
	int fd;

	for (int i = 0; member && member->link; i++)
		member = i < LINKS_MAX ? find(spool, member->link) : NULL;
	if (!member)
		return err_set(err, ERR_INVALID, "'%.200s' is missing in the archive", name);
	snprintf(file, sizeof file, "%u", member->file);
	fd = openat(spool->dir, file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "open '%.200s' of the archive", name);
	*ret = fd;
	return 0;
}

json_t *spool_read_json(const struct spool *spool, const char *name,
	const struct oci_blob *expected, struct err *err)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *text = NULL;
	char path[64], digest[DIGEST_SIZE];
	json_t *json;
	size_t len;

	if (spool_open_file(spool, name, &fd, err) < 0)
		return NULL;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (file_read(AT_FDCWD, path, OCI_JSON_MAX, &text, &len, err) < 0) {
		err_wrap(err, "'%.200s'", name);
		return NULL;
	}
	digest_of(text, len, digest);
	if (expected && (strcmp(digest, expected->digest) || len != expected->size)) {
		err_set(err, ERR_INVALID, "'%.200s' has digest %s, expected %s", name, digest,
			expected->digest);
		return NULL;
	}
	json = json_parse(text, len, err);
	if (!json)
		err_wrap(err, "'%.200s'", name);
	return json;
}

struct spool *spool_new(const struct images *images, int dir)
{
	struct spool *spool = xnew(struct spool);

	spool->dir = dir;
	spool->room.images = images;
	spool->chunk = xcalloc(1, CHUNK);
	return spool;
}

void spool_free(struct spool *spool)
{
	if (!spool)
		return;
	for (size_t i = 0; i < spool->count; i++) {
		free(spool->list[i].name);
		free(spool->list[i].link);
	}
	free(spool->list);
	free(spool->chunk);
	free(spool);
}
