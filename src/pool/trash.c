/* trash.c - deletes disks
 *
 * A disk is renamed into trash/, which takes no time at any size, and deleted from there by a
 * forked helper, one at a time. The helper outlives the daemon on purpose: half-deleted disks
 * are of no use. What a dead daemon left there is deleted by the next one.
 *
 * A deleted subvolume is only unlinked; the kernel's cleaner frees its blocks in the background.
 * The helper waits for the cleaner after every few disks, so that the cleaner's backlog stays
 * bounded and space returns steadily. */
#include "pool/pool_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include "sys/clone.h"
#include "sys/procfd.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs_tree.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum {
	GATHER_MS = 200, /* one helper for many disks */
	ASK_MS = 1000,
	BATCH = 32, /* subvolumes deleted before we wait for the cleaner */
	CLEANER_ASK_US = 50 * 1000,
	CLEANER_ASKS = 1200, /* a minute; then we go on */
};

/* ---- in the helper -------------------------------------------------------------------------- */

static bool count_one(const struct btrfs_item *item, void *arg)
{
	(void)item;
	++*(unsigned *)arg;
	return true;
}

/* Counts subvolumes that are deleted and not yet cleaned up: each has an item in the root tree. */
static unsigned uncleaned(int fd)
{
	struct btrfs_range range = { .tree = BTRFS_ROOT_TREE_OBJECTID,
		.first_objectid = BTRFS_ORPHAN_OBJECTID,
		.last_objectid = BTRFS_ORPHAN_OBJECTID,
		.first_type = BTRFS_ORPHAN_ITEM_KEY,
		.last_type = BTRFS_ORPHAN_ITEM_KEY,
		.last_offset = UINT64_MAX };
	unsigned count = 0;

	return btrfs_search(fd, &range, count_one, &count, NULL) < 0 ? 0 : count;
}

/* The cleaner starts after a commit, and the space it frees is usable after another one. */
static void wait_for_cleaner(int fd)
{
	btrfs_start_commit(fd);
	for (int i = 0; i < CLEANER_ASKS && uncleaned(fd); i++)
		usleep(CLEANER_ASK_US);
	btrfs_start_commit(fd);
}

static int empty_all(const struct pool *pool, int dirfd)
{
	DIR *dir = fdopendir(dup(dirfd));
	struct dirent *entry;
	unsigned count = 0;
	int ret = 0;

	if (!dir)
		return 1;
	rewinddir(dir);
	while ((entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (disk_destroy_at(pool, dirfd, entry->d_name, NULL) < 0)
			ret = 1;
		else if (pool->kind != POOL_FOLDER && ++count % BATCH == 0)
			wait_for_cleaner(dirfd);
	}
	closedir(dir);
	if (pool->kind != POOL_FOLDER) {
		wait_for_cleaner(dirfd);
		quota_sweep(pool);
	}
	return ret;
}

static _Noreturn void helper_main(const struct pool *pool, int dirfd)
{
	prctl(PR_SET_NAME, "box-trash");
	setpriority(PRIO_PROCESS, 0, 10);
	if (dirfd > 3)
		close_range(3, (unsigned)dirfd - 1, 0);
	close_range((unsigned)dirfd + 1, ~0U, 0);
	setsid();
	clone_reset_signals();
	_exit(empty_all(pool, dirfd));
}

/* ---- in the daemon -------------------------------------------------------------------------- */

static void on_helper_end(void *arg, unsigned ready)
{
	struct pool *pool = arg;
	int value = 0;
	enum procfd_status status = procfd_reap(pool->trash_pidfd, &value);

	(void)ready;
	if (status == PROCFD_RUNNING)
		return;
	loop_fd_free(steal_ptr(&pool->trash_watch));
	close(steal_fd(&pool->trash_pidfd));
	pool->trash_helper = 0;
	if (status != PROCFD_EXITED || value)
		log_warn("some removed disks are still in the trash", kv_str("path", pool->path));
	if (pool->trash_more)
		loop_timer_start(pool->trash_timer, GATHER_MS);
}

static void start_helper(void *arg)
{
	struct clone_spec spec = { .cgroup = -1 };
	_cleanup_close_ int dirfd = -1;
	struct pool *pool = arg;
	struct err err = ERR_INIT;

	if (pool->trash_helper)
		return; /* the next one is started when it ends */
	pool->trash_more = false;
	if (place_open(pool, "trash", &dirfd, &err) == 0)
		pool->trash_helper = clone_process(&spec, &pool->trash_pidfd, &err);
	if (dirfd >= 0 && pool->trash_helper == 0)
		helper_main(pool, dirfd);
	if (dirfd < 0 || pool->trash_helper < 0) {
		log_warn("cannot empty the trash now", kv_err(&err));
		pool->trash_helper = 0;
		loop_timer_start(pool->trash_timer, ASK_MS);
		return;
	}
	pool->trash_watch =
		loop_fd_new(pool->loop, pool->trash_pidfd, LOOP_READ, on_helper_end, pool);
}

static void wake(struct pool *pool)
{
	if (pool->trash_helper)
		pool->trash_more = true;
	else
		loop_timer_start(pool->trash_timer, GATHER_MS);
}

int trash_take(struct pool *pool, int dirfd, const char *name, struct err *err)
{
	_cleanup_close_ int trash = -1;
	char random[POOL_NAME_LEN + 1];
	int failed = 0;

	if (place_open(pool, "trash", &trash, err) < 0)
		return -1;
	random_id(random, POOL_NAME_LEN);
	if (renameat(dirfd, name, trash, random) < 0) {
		if (errno == ENOENT)
			return 0;
		/* The place is a subvolume of its own; or the pool is too full for a rename,
		 * while btrfs keeps blocks reserved for deleting. */
		if (errno == EXDEV || errno == ENOSPC || errno == EDQUOT)
			failed = disk_destroy_at(pool, dirfd, name, err);
		else
			failed = err_sys(err, errno, "move '%s' to the trash", name);
	}
	if (!failed)
		wake(pool);
	return failed;
}

unsigned trash_count(const struct pool *pool)
{
	struct dirent *entry;
	unsigned count = 0;
	int fd;
	DIR *dir;

	if (place_open(pool, "trash", &fd, NULL) < 0)
		return 0;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return 0;
	}
	while ((entry = readdir(dir)))
		count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(dir);
	return count;
}

bool pool_trash_is_empty(struct pool *pool)
{
	return !pool->trash_helper && !trash_count(pool);
}

void trash_open(struct pool *pool)
{
	pool->trash_pidfd = -1;
	pool->trash_timer = loop_timer_new(pool->loop, start_helper, pool);
	if (trash_count(pool))
		wake(pool);
}

void trash_close(struct pool *pool)
{
	loop_timer_free(pool->trash_timer);
	loop_fd_free(pool->trash_watch);
	if (pool->trash_pidfd >= 0)
		close(pool->trash_pidfd);
}
