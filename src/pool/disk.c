/* disk.c - disks: one subvolume each, made ahead, renamed into place
 *
 * Making a subvolume takes a transaction; renaming one that waits in spares/ takes almost no
 * time. A spare gets its limit before its final name, so a disk in its place always has a limit,
 * even if the daemon dies. A timer refills the spares, one at a time, after the create that took
 * one has been answered. */
#include "pool/pool_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum {
	REFILL_MS = 20,
	REFILL_RETRY_MS = 5000,
};

#define HALF_COPY_PREFIX ".copy-" /* prefix of the name of a disk whose copy is not complete yet */

static const char *const places[] = {
	"boxes",
	"volumes",
	"layers",
	"views",
	"snapshots",
	"images",
	"workspaces",
	"spares",
	"trash",
};

static bool place_is_known(const char *place)
{
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (!strcmp(places[i], place))
			return true;
	return false;
}

static int id_check(const char *place, const char *id, struct err *err)
{
	if (!place_is_known(place))
		return err_set(err, ERR_INVALID, "the pool has no place '%s'", place);
	if (!*id || strlen(id) > 128 || strchr(id, '/') || !strcmp(id, ".") || !strcmp(id, ".."))
		return err_set(err, ERR_INVALID, "'%.40s' is not a valid name for a disk", id);
	return 0;
}

int place_open(const struct pool *pool, const char *place, int *ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", pool->path, place);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	*ret = fd;
	return 0;
}

int places_make(struct pool *pool, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		struct stat st;

		if (fstatat(pool->root, places[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		if (mkdirat(pool->root, places[i], 0700) < 0)
			return err_sys(err, errno, "mkdir '%s/%s'", pool->path, places[i]);
		if (fchmodat(pool->root, places[i], 0700, 0) < 0)
			return err_sys(err, errno, "chmod '%s/%s'", pool->path, places[i]);
	}
	return 0;
}

int places_sweep(struct pool *pool, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		int fd = openat(pool->root, places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		DIR *dir = fd < 0 ? NULL : fdopendir(fd);
		struct dirent *entry;
		int failed = 0;

		if (!dir)
			return err_sys(err, errno, "open '%s/%s'", pool->path, places[i]);
		while (!failed && (entry = readdir(dir)))
			if (text_has_prefix(entry->d_name, HALF_COPY_PREFIX))
				failed = trash_take(pool, fd, entry->d_name, err);
		closedir(dir);
		if (failed)
			return -1;
	}
	return 0;
}

int places_empty(const struct pool *pool, int root, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		int fd = openat(root, places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
		struct dirent *entry;
		int failed = 0;

		while (dir && !failed && (entry = readdir(dir)))
			if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
				failed = disk_destroy_at(pool, fd, entry->d_name, err);
		if (dir)
			closedir(dir);
		if (failed || disk_destroy_at(pool, root, places[i], err) < 0)
			return -1;
	}
	return 0;
}

/* ---- one disk ------------------------------------------------------------------------------- */

char *pool_disk_path(const struct pool *pool, const char *place, const char *id)
{
	return xasprintf("%s/%s/%s", pool->path, place, id);
}

bool pool_disk_exists(const struct pool *pool, const char *place, const char *id)
{
	_cleanup_free_ char *path = pool_disk_path(pool, place, id);
	struct stat st;

	return id_check(place, id, NULL) == 0 && lstat(path, &st) == 0;
}

static int make_at(const struct pool *pool, int dirfd, const char *name, struct err *err)
{
	if (pool->kind == POOL_FOLDER) {
		if (mkdirat(dirfd, name, 0755) < 0)
			return err_sys(err, errno, "make disk '%s'", name);
	} else if (btrfs_subvol_create(dirfd, name, &(struct btrfs_groups){ pool->group, 0 }, err) <
		   0)
		return -1;
	if (fchmodat(dirfd, name, 0755, 0) < 0) /* independent of the umask */
		return err_sys(err, errno, "chmod disk '%s'", name);
	return 0;
}

static int limit_at(int dirfd, const char *name, uint64_t limit, struct err *err)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "open disk '%s'", name);
	return quota_limit_disk(dirfd, fd, limit, err);
}

/* Sets the limits of a disk that is alone in its budget, and of the budget. */
static int limit_both_at(
	const struct pool *pool, int dirfd, const char *name, uint64_t limit, struct err *err)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t budget;

	if (fd < 0)
		return err_sys(err, errno, "open disk '%s'", name);
	if (quota_limit_disk(dirfd, fd, limit, err) < 0 ||
		budget_need(pool, dirfd, fd, &budget, err) < 0)
		return -1;
	return quota_limit(dirfd, budget, limit, err);
}

int disk_destroy_at(const struct pool *pool, int dirfd, const char *name, struct err *err)
{
	_cleanup_close_ int fd = -1;

	if (pool->kind != POOL_FOLDER) {
		fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 && btrfs_is_subvol(fd))
			return btrfs_subvol_destroy(dirfd, name, err);
	}
	return tree_remove(dirfd, name, err);
}

int pool_disk_make_here(const struct pool *pool, const char *place, const char *id, struct err *err)
{
	_cleanup_close_ int dirfd = -1;

	if (id_check(place, id, err) < 0 || place_open(pool, place, &dirfd, err) < 0)
		return -1;
	return make_at(pool, dirfd, id, err);
}

int pool_disk_destroy_here(
	const struct pool *pool, const char *place, const char *id, struct err *err)
{
	_cleanup_close_ int dirfd = -1;

	if (id_check(place, id, err) < 0 || place_open(pool, place, &dirfd, err) < 0)
		return -1;
	return disk_destroy_at(pool, dirfd, id, err);
}

int pool_disk_rename(
	struct pool *pool, const char *place, const char *id, const char *new_id, struct err *err)
{
	_cleanup_close_ int dirfd = -1;

	if (id_check(place, id, err) < 0 || id_check(place, new_id, err) < 0 ||
		place_open(pool, place, &dirfd, err) < 0)
		return -1;
	if (renameat2(dirfd, id, dirfd, new_id, RENAME_NOREPLACE) < 0)
		return err_sys(err, errno, "rename disk '%s/%s' to '%s'", place, id, new_id);
	return 0;
}

int pool_disk_discard(struct pool *pool, const char *place, const char *id, struct err *err)
{
	_cleanup_close_ int dirfd = -1;
	_cleanup_free_ char *half = xasprintf(HALF_COPY_PREFIX "%s", id);

	if (id_check(place, id, err) < 0 || place_open(pool, place, &dirfd, err) < 0)
		return -1;
	/* A killed helper may have left an unfinished copy. */
	if (trash_take(pool, dirfd, half, err) < 0)
		return -1;
	return trash_take(pool, dirfd, id, err);
}

/* ---- spares --------------------------------------------------------------------------------- */

/* False: there is no spare, and a disk must be made. */
static bool take_spare(
	struct pool *pool, int dirfd, const char *id, uint64_t limit, int *ret, struct err *err)
{
	_cleanup_close_ int spares = -1;

	while (pool->spare_count) {
		const char *name = pool->spares[--pool->spare_count];

		loop_timer_start(pool->spare_timer, REFILL_MS);
		if ((spares < 0 && place_open(pool, "spares", &spares, NULL) < 0) ||
			(limit && limit_both_at(pool, spares, name, limit, NULL) < 0))
			continue; /* somebody deleted it: the next open counts them again */
		*ret = renameat2(spares, name, dirfd, id, RENAME_NOREPLACE);
		if (*ret == 0)
			return true;
		if (errno == ENOENT)
			continue;
		err_sys(err, errno, "make disk '%s'", id);
		if (!limit || limit_both_at(pool, spares, name, 0, NULL) == 0)
			pool->spare_count++;
		return true;
	}
	return false;
}

int pool_disk_make(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err)
{
	_cleanup_close_ int dirfd = -1;
	int ret;

	if (limit && !pool_has_quota(pool))
		return err_set(err, ERR_UNSUPPORTED, "this pool cannot limit disks");
	if (id_check(place, id, err) < 0 || place_open(pool, place, &dirfd, err) < 0)
		return -1;
	if (take_spare(pool, dirfd, id, limit, &ret, err))
		return ret;
	if (make_at(pool, dirfd, id, err) < 0)
		return -1;
	if (limit ? limit_both_at(pool, dirfd, id, limit, err) < 0
		  : budget_need_at(pool, dirfd, id, err) < 0) {
		trash_take(pool, dirfd, id, NULL);
		return err_wrap(err, "make disk '%s'", id);
	}
	return 0;
}

static void refill(void *arg)
{
	_cleanup_close_ int spares = -1;
	struct pool *pool = arg;
	struct err err = ERR_INIT;
	char *name;

	if (pool->spare_count >= pool->spares_wanted || pool->host_full)
		return;
	name = pool->spares[pool->spare_count];
	random_id(name, POOL_NAME_LEN);
	if (place_open(pool, "spares", &spares, &err) < 0 ||
		make_at(pool, spares, name, &err) < 0 ||
		budget_need_at(pool, spares, name, &err) < 0) {
		log_warn("cannot make a disk in advance, continuing", kv_err(&err));
		loop_timer_start(pool->spare_timer, REFILL_RETRY_MS);
		return;
	}
	if (++pool->spare_count < pool->spares_wanted)
		loop_timer_start(pool->spare_timer, REFILL_MS);
}

/* A spare of an earlier daemon may already have a limit, but no name. */
static bool adopt_spare(struct pool *pool, int spares, const char *name)
{
	if (pool->spare_count >= pool->spares_wanted || strlen(name) != POOL_NAME_LEN)
		return false;
	if (fchmodat(spares, name, 0755, 0) < 0 ||
		(pool_has_quota(pool) && limit_both_at(pool, spares, name, 0, NULL) < 0))
		return false;
	strcpy(pool->spares[pool->spare_count++], name);
	return true;
}

void spares_open(struct pool *pool)
{
	int spares;
	struct dirent *entry;
	DIR *dir;

	pool->spare_timer = loop_timer_new(pool->loop, refill, pool);
	if (place_open(pool, "spares", &spares, NULL) < 0)
		return;
	dir = fdopendir(spares);
	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
			!adopt_spare(pool, spares, entry->d_name))
			trash_take(pool, spares, entry->d_name, NULL);
	if (dir)
		closedir(dir);
	else
		close(spares);
	spares_refill(pool);
}

void spares_refill(struct pool *pool)
{
	if (pool->spare_count < pool->spares_wanted)
		loop_timer_start(pool->spare_timer, REFILL_MS);
}

/* ---- copies --------------------------------------------------------------------------------- */

static int snapshot(const struct pool *pool, int source, int dirfd, const char *id,
	enum pool_budget budget, struct err *err)
{
	struct btrfs_groups groups = { .all = pool->group };

	if ((budget == POOL_BUDGET_SAME &&
		    budget_need(pool, dirfd, source, &groups.budget, err) < 0) ||
		btrfs_subvol_snapshot(dirfd, id, source, &groups, err) < 0)
		return -1;
	/* A snapshot inherits its source's limit. */
	if (pool_has_quota(pool) && limit_at(dirfd, id, 0, err) < 0)
		return -1;
	return budget == POOL_BUDGET_OWN ? budget_need_at(pool, dirfd, id, err) : 0;
}

/* Made under another name until it is complete: a copy takes long, and helpers may be killed. */
static int copy_plain(const struct pool *pool, int source, int dirfd, const char *id,
	const char *only, struct err *err)
{
	_cleanup_free_ char *tmp = xasprintf(HALF_COPY_PREFIX "%s", id);
	_cleanup_close_ int to = -1, from = -1, inner = -1;

	if (faccessat(dirfd, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return err_sys(err, EEXIST, "make disk '%s'", id);
	if (tree_remove(dirfd, tmp, err) < 0 || make_at(pool, dirfd, tmp, err) < 0)
		return -1;
	to = openat(dirfd, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (to < 0)
		return err_sys(err, errno, "open '%s'", tmp);
	if (only) {
		from = openat(source, only, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (from < 0 || mkdirat(to, only, 0755) < 0)
			return err_sys(err, errno, "copy '%s'", only);
		inner = openat(to, only, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (inner < 0)
			return err_sys(err, errno, "open '%s'", only);
	}
	if (tree_copy(only ? from : source, only ? inner : to, err) < 0) {
		tree_remove(dirfd, tmp, NULL);
		return -1;
	}
	if (renameat2(dirfd, tmp, dirfd, id, RENAME_NOREPLACE) < 0)
		return err_sys(err, errno, "rename '%s'", tmp);
	return 0;
}

int pool_disk_copy(const struct pool *pool, const char *place, const char *id, const char *to_place,
	const char *to_id, const char *only, enum pool_budget budget, struct err *err)
{
	_cleanup_close_ int source = -1, dirfd = -1;
	_cleanup_free_ char *path = pool_disk_path(pool, place, id);

	if (id_check(place, id, err) < 0 || id_check(to_place, to_id, err) < 0 ||
		(only && id_check(place, only, err) < 0) ||
		place_open(pool, to_place, &dirfd, err) < 0)
		return -1;
	source = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (source < 0)
		return err_sys(err, errno, "open disk '%s/%s'", place, id);
	if (pool->kind != POOL_FOLDER && btrfs_is_subvol(source))
		return snapshot(pool, source, dirfd, to_id, budget, err);
	return copy_plain(pool, source, dirfd, to_id, only, err);
}
