/* sftp_list.c - the content of folders as clients list it, with the names of users and groups
 *
 * Names come from the box's own files and are kept, those that are not there too: a folder of ten
 * thousand files asks for the same two names ten thousand times. */
#include "guest/sftp_internal.h"
#include "guest/user.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

enum {
	KEPT_MAX = 256,
	IDS_MAX = 1500,	    /* users or groups of one request; their names fit an answer */
	LIST_BYTES = 32000, /* of one answer; some clients take no more than 34,000 */
	LONG_NAME_MAX = 512,
	HALF_YEAR = 365 * 24 * 3600 / 2,
};

/* ---- names of users and groups -------------------------------------------------------------- */

struct kept_name {
	bool known;
	uint32_t id;
	char name[SFTP_NAME_MAX]; /* "": it has none */
};

static struct kept_name users[KEPT_MAX], groups[KEPT_MAX];

static const char *find_name(struct kept_name *kept, uint32_t id)
{
	struct kept_name *place = &kept[id % KEPT_MAX];

	if (place->known && place->id == id)
		return place->name;
	*place = (struct kept_name){ .known = true, .id = id };
	if (!(kept == users ? user_find_name : user_find_group_name)(
		    id, place->name, sizeof place->name))
		*place->name = '\0';
	return place->name;
}

static void put_names(struct buf *out, struct kept_name *kept, const uint8_t *ids, size_t len)
{
	struct sftp_request list = { .at = ids, .end = ids + len };
	size_t mark = out->len;

	sftp_put_u32(out, 0);
	while (list.at < list.end)
		sftp_put_text(out, find_name(kept, sftp_get_u32(&list)));
	sftp_store_u32(buf_head(out) + mark, (uint32_t)(out->len - mark - 4));
}

void sftp_users_groups(struct sftp *sftp, struct sftp_request *request)
{
	size_t uids_len, gids_len, mark;
	const uint8_t *uids = sftp_get_bytes(request, &uids_len);
	const uint8_t *gids = sftp_get_bytes(request, &gids_len);

	(void)sftp;
	request->bad |= uids_len % 4 || gids_len % 4;
	if (request->bad)
		return;
	if (uids_len > IDS_MAX * 4 || gids_len > IDS_MAX * 4) {
		sftp_answer_code(request, SFTP_FAILURE);
		return;
	}
	mark = sftp_begin(request, SFTP_EXTENDED_REPLY);
	put_names(request->out, users, uids, uids_len);
	put_names(request->out, groups, gids, gids_len);
	sftp_end(request, mark);
}

/* ---- a line of a list ----------------------------------------------------------------------- */

static char type_letter(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return 'd';
	case S_IFLNK:
		return 'l';
	case S_IFIFO:
		return 'p';
	case S_IFSOCK:
		return 's';
	case S_IFCHR:
		return 'c';
	case S_IFBLK:
		return 'b';
	default:
		return '-';
	}
}

static void put_mode(char ret[11], mode_t mode)
{
	static const char letters[] = "rwxrwxrwx";

	ret[0] = type_letter(mode);
	for (unsigned i = 0; i < 9; i++)
		ret[1 + i] = mode & (0400u >> i) ? letters[i] : '-';
	if (mode & S_ISUID)
		ret[3] = mode & S_IXUSR ? 's' : 'S';
	if (mode & S_ISGID)
		ret[6] = mode & S_IXGRP ? 's' : 'S';
	if (mode & S_ISVTX)
		ret[9] = mode & S_IXOTH ? 't' : 'T';
	ret[10] = '\0';
}

static void put_owner(char *ret, size_t size, struct kept_name *kept, uint32_t id)
{
	const char *name = find_name(kept, id);

	if (*name)
		snprintf(ret, size, "%s", name);
	else
		snprintf(ret, size, "%u", id);
}

void sftp_long_name(char *ret, size_t size, const char *name, const struct stat *st)
{
	char mode[11], user[SFTP_NAME_MAX], group[SFTP_NAME_MAX], when[32] = "?";
	time_t now = time(NULL);
	struct tm tm;

	put_mode(mode, st->st_mode);
	put_owner(user, sizeof user, users, st->st_uid);
	put_owner(group, sizeof group, groups, st->st_gid);
	if (localtime_r(&st->st_mtime, &tm))
		strftime(when, sizeof when,
			now - HALF_YEAR < st->st_mtime && st->st_mtime <= now ? "%b %e %H:%M"
									      : "%b %e  %Y",
			&tm);
	snprintf(ret, size, "%s %3lu %-8s %-8s %8llu %s %s", mode, (unsigned long)st->st_nlink,
		user, group, (unsigned long long)st->st_size, when, name);
}

/* ---- folders -------------------------------------------------------------------------------- */

static void put_entry(struct buf *out, const char *name, const struct stat *st)
{
	char line[LONG_NAME_MAX];

	sftp_long_name(line, sizeof line, name, st);
	sftp_put_text(out, name);
	sftp_put_text(out, line);
	sftp_put_attrs(out, st);
}

/* The next entries, as many as fit one answer: their number; 0 at the end, or with an error in
 * errno. */
static uint32_t put_entries(struct buf *out, const struct sftp_handle *handle)
{
	size_t mark = out->len;
	uint32_t count = 0;

	while (out->len - mark < LIST_BYTES) {
		struct dirent *entry;
		struct stat st;

		errno = 0;
		entry = readdir(handle->dir);
		if (!entry)
			break;
		/* Removed meanwhile. */
		if (fstatat(handle->fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		put_entry(out, entry->d_name, &st);
		count++;
	}
	return count;
}

void sftp_readdir(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *handle = sftp_get_handle(sftp, request);
	struct buf *out = request->out;
	size_t mark, count_at;
	uint32_t count;

	if (request->bad)
		return;
	if (!handle || !handle->dir) {
		sftp_answer_code(request, SFTP_FAILURE);
		return;
	}
	mark = sftp_begin(request, SFTP_NAME);
	count_at = out->len;
	sftp_put_u32(out, 0);
	count = put_entries(out, handle);
	if (count) {
		sftp_store_u32(buf_head(out) + count_at, count);
		sftp_end(request, mark);
		return;
	}
	out->len = mark;
	if (errno)
		sftp_answer_errno(request, errno);
	else
		sftp_answer_code(request, SFTP_EOF);
}
