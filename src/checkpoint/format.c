/* format.c - the list at the head of a packed checkpoint and the digest at its end
 *
 *   list:     "boxstate" u32 version, u32 count, u64 total, u8 length of the id, id,
 *             then for each file: u8 length of the name, name, u64 size
 *   trailer:  u32 0x184d2a5b, u32 79, u64 length of all before it, "sha256:" and 64 hex digits
 *
 * Numbers are little-endian. There is only one way to write a list, and only that one is
 * accepted. */
#include "checkpoint/checkpoints_internal.h"
#include "base/buf.h"
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static const char magic[8] = { 'b', 'o', 'x', 's', 't', 'a', 't', 'e' };
enum { VERSION = 1 };

bool checkpoint_name_is_good(const char *name, size_t len)
{
	static const char good[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	if (!len || len > CHECKPOINT_NAME_MAX ||
		(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'))))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!name[i] || !strchr(good, name[i]))
			return false;
	return true;
}

void checkpoint_list_done(struct checkpoint_list *list)
{
	free(list->files);
	*list = (struct checkpoint_list){ 0 };
}

/* ---- from a directory ----------------------------------------------------------------------- */

static int compare_files(const void *a, const void *b)
{
	return strcmp(((const struct checkpoint_file *)a)->name,
		((const struct checkpoint_file *)b)->name);
}

static int add_file(
	struct checkpoint_list *list, size_t *room, int dir, const char *name, struct err *err)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "look at '%s'", name);
	if (!S_ISREG(st.st_mode) || !checkpoint_name_is_good(name, strlen(name)))
		return err_set(err, ERR_INVALID, "'%s' is not a file of a checkpoint", name);
	if (list->count == CHECKPOINT_FILES_MAX)
		return err_set(err, ERR_TOO_LARGE, "a checkpoint has at most %d files",
			CHECKPOINT_FILES_MAX);
	if ((uint64_t)st.st_size > CHECKPOINT_FILE_MAX)
		return err_set(err, ERR_TOO_LARGE, "'%s' is too large", name);
	if (list->count == *room) {
		*room = MAX(64, *room * 2);
		xgrow(list->files, *room);
	}
	list->files[list->count].size = (uint64_t)st.st_size;
	strcpy(list->files[list->count++].name, name);
	list->total += (uint64_t)st.st_size;
	return 0;
}

int checkpoint_list_scan(int dir, struct checkpoint_list *ret, struct err *err)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = 0;
	DIR *folder = copy < 0 ? NULL : fdopendir(copy);
	struct checkpoint_list list = { 0 };
	struct dirent *entry;
	size_t room = 0;

	if (!folder) {
		err_sys(err, errno, "read the folder of a checkpoint");
		cleanup_closep(&copy);
		return -1;
	}
	while (!failed && (errno = 0, entry = readdir(folder)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			failed = add_file(&list, &room, dir, entry->d_name, err);
	if (!failed && errno)
		failed = err_sys(err, errno, "read the folder of a checkpoint");
	if (!failed && list.total > CHECKPOINT_TOTAL_MAX)
		failed = err_set(err, ERR_TOO_LARGE, "the checkpoint is too large");
	closedir(folder);
	if (failed) {
		checkpoint_list_done(&list);
		return -1;
	}
	if (list.count)
		qsort(list.files, list.count, sizeof *list.files, compare_files);
	*ret = list;
	return 0;
}

/* ---- as bytes ------------------------------------------------------------------------------- */

static void put_u32(struct buf *out, uint32_t value)
{
	value = htole32(value);
	buf_add(out, &value, sizeof value);
}

static void put_u64(struct buf *out, uint64_t value)
{
	value = htole64(value);
	buf_add(out, &value, sizeof value);
}

static void put_text(struct buf *out, const char *text)
{
	uint8_t len = (uint8_t)strlen(text);

	buf_add(out, &len, 1);
	buf_add(out, text, len);
}

void checkpoint_list_put(struct buf *out, const char *id, const struct checkpoint_list *list)
{
	buf_add(out, magic, sizeof magic);
	put_u32(out, VERSION);
	put_u32(out, (uint32_t)list->count);
	put_u64(out, list->total);
	put_text(out, id);
	for (size_t i = 0; i < list->count; i++) {
		put_text(out, list->files[i].name);
		put_u64(out, list->files[i].size);
	}
}

struct cursor {
	const uint8_t *at;
	size_t left;
};

static bool get(struct cursor *cursor, void *ret, size_t len)
{
	if (cursor->left < len)
		return false;
	memcpy(ret, cursor->at, len);
	cursor->at += len;
	cursor->left -= len;
	return true;
}

static bool get_u32(struct cursor *cursor, uint32_t *ret)
{
	bool ok = get(cursor, ret, sizeof *ret);

	*ret = ok ? le32toh(*ret) : 0;
	return ok;
}

static bool get_u64(struct cursor *cursor, uint64_t *ret)
{
	bool ok = get(cursor, ret, sizeof *ret);

	*ret = ok ? le64toh(*ret) : 0;
	return ok;
}

/* Reads at most max bytes into a text of max + 1. */
static bool get_text(struct cursor *cursor, char *ret, size_t max)
{
	uint8_t len;

	if (!get(cursor, &len, 1) || len > max || !get(cursor, ret, len))
		return false;
	ret[len] = '\0';
	return strlen(ret) == len;
}

static const char *get_head(
	struct cursor *cursor, const char *id, struct checkpoint_list *list, uint32_t *ret_count)
{
	char found[sizeof magic], found_id[CHECKPOINT_ID_MAX + 1];
	uint32_t version;

	if (!get(cursor, found, sizeof found) || memcmp(found, magic, sizeof magic))
		return "it does not begin as a state does";
	if (!get_u32(cursor, &version) || version != VERSION)
		return "it was written by another version of box";
	if (!get_u32(cursor, ret_count) || *ret_count > CHECKPOINT_FILES_MAX ||
		!get_u64(cursor, &list->total) || list->total > CHECKPOINT_TOTAL_MAX)
		return "its list of files makes no sense";
	if (!get_text(cursor, found_id, CHECKPOINT_ID_MAX) || strcmp(found_id, id))
		return "it is another state";
	return NULL;
}

static const char *get_files(struct cursor *cursor, struct checkpoint_list *list, uint32_t count)
{
	uint64_t total = 0;

	for (; list->count < count; list->count++) {
		struct checkpoint_file *file = &list->files[list->count];

		if (!get_text(cursor, file->name, CHECKPOINT_NAME_MAX) ||
			!checkpoint_name_is_good(file->name, strlen(file->name)) ||
			(list->count && strcmp(file[-1].name, file->name) >= 0))
			return "its list has a name that cannot be";
		if (!get_u64(cursor, &file->size) || file->size > CHECKPOINT_FILE_MAX)
			return "its list has a size that cannot be";
		total += file->size;
	}
	if (cursor->left || total != list->total)
		return "its list of files makes no sense";
	return NULL;
}

int checkpoint_list_get(const uint8_t *data, size_t len, const char *id,
	struct checkpoint_list *ret, const char **ret_why)
{
	struct cursor cursor = { data, len };
	struct checkpoint_list list = { 0 };
	const char *why;
	uint32_t count;

	why = get_head(&cursor, id, &list, &count);
	if (!why) {
		list.files = xnewn(struct checkpoint_file, count + 1);
		why = get_files(&cursor, &list, count);
	}
	if (why) {
		checkpoint_list_done(&list);
		*ret_why = why;
		return -1;
	}
	*ret = list;
	return 0;
}

void checkpoint_trailer_put(
	uint8_t out[CHECKPOINT_TRAILER_SIZE], uint64_t length, const char *digest)
{
	uint32_t head[2] = { htole32(0x184d2a5b), htole32(CHECKPOINT_TRAILER_SIZE - 8) };

	length = htole64(length);
	memcpy(out, head, 8);
	memcpy(out + 8, &length, 8);
	memcpy(out + 16, digest, CHECKPOINT_TRAILER_SIZE - 16);
}
