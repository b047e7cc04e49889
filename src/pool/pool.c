/* pool.c - the pool as a whole: opening, status, closing
 *
 * The order of opening: the kind and its mount (kind.c), the size if growth was interrupted,
 * quotas, the folders for the places, then the background work: trash, spares, and the watch
 * over free space.
 *
 * A new loop file is as large as half of what the host can back, at most 64 GiB: it is sparse,
 * takes only what is written, and grows automatically. */
#include "pool/pool_internal.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include "sys/procfd.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>

/* ---- open and close ------------------------------------------------------------------------- */

static struct pool *pool_new(const struct pool_config *config)
{
	struct pool *pool = xnew(struct pool);

	pool->loop = config->loop;
	pool->home = xstrdup(config->home);
	pool->path = xasprintf("%s/pool", config->home);
	pool->image = xasprintf("%s/pool.img", config->home);
	pool->reserve = xasprintf("%s/pool.reserve", config->home);
	pool->size_max = config->size_max;
	pool->spares_wanted = MIN(config->spares, (unsigned)POOL_SPARES_MAX);
	pool->on_full = config->on_full;
	pool->arg = config->arg;
	pool->root = pool->device = pool->trash_pidfd = -1;
	return pool;
}

static void pool_free(struct pool *pool)
{
	if (pool->root >= 0)
		close(pool->root);
	free(pool->home);
	free(pool->path);
	free(pool->image);
	free(pool->reserve);
	free(pool);
}

static int open_mounted(struct pool *pool, struct err *err)
{
	pool->root = open(pool->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (pool->root < 0)
		return err_sys(err, errno, "open '%s'", pool->path);
	if (fchmod(pool->root, 0700) < 0)
		return err_sys(err, errno, "chmod '%s'", pool->path);
	if (pool->kind == POOL_LOOP && loopfile_spread(pool, err) < 0)
		return err_wrap(err, "finish growing the pool");
	if (pool->kind != POOL_FOLDER) {
		if (btrfs_subvol_id(pool->root, &pool->root_id, err) < 0 ||
			btrfs_fsid(pool->root, pool->fsid, err) < 0)
			return -1;
		if (pool->kind == POOL_LOOP)
			loopfile_settle(pool);
		quota_open(pool);
	}
	return places_make(pool, err);
}

int pool_open(const struct pool_config *config, struct pool **ret, struct err *err)
{
	struct pool *pool = pool_new(config);
	struct err why = ERR_INIT;

	if (kind_open(pool, config->mode, config->size, &why) < 0 || open_mounted(pool, &why) < 0) {
		umount2(pool->path, MNT_DETACH); /* our mount, if opening got that far */
		pool_free(pool);
		if (err)
			*err = why;
		return -1;
	}
	trash_open(pool);
	if (places_sweep(pool, &why) < 0)
		log_warn("an incomplete copy of a disk was not removed", kv_err(&why));
	spares_open(pool);
	watch_open(pool);
	if (pool->kind == POOL_FOLDER)
		log_warn("the pool is a plain folder: no quotas, copies instead of snapshots",
			kv_str("why", pool->note));
	*ret = pool;
	return 0;
}

/* Ends everything in the daemon; the mount stays. */
static void stop_all(struct pool *pool)
{
	pool_scrub_cancel(pool);
	grow_close(pool);
	watch_close(pool);
	loop_timer_free(pool->spare_timer);
	trash_close(pool);
	if (pool->root >= 0)
		close(steal_fd(&pool->root));
}

void pool_close(struct pool *pool)
{
	if (!pool)
		return;
	/* A limit that protects the host's disk stays: boxes go on writing while no daemon runs. */
	stop_all(pool);
	umount2(pool->path, MNT_DETACH);
	pool_free(pool);
}

int pool_destroy(struct pool *pool, struct err *err)
{
	int value, ret;

	if (pool->trash_helper) {
		struct pollfd p = { .fd = pool->trash_pidfd, .events = POLLIN };

		procfd_kill(pool->trash_pidfd, SIGKILL, NULL);
		while (poll(&p, 1, -1) < 0 && errno == EINTR)
			;
		procfd_reap(pool->trash_pidfd, &value);
	}
	stop_all(pool);
	ret = kind_destroy(pool, err);
	pool_free(pool);
	return ret;
}

/* ---- status --------------------------------------------------------------------------------- */

const char *pool_get_path(const struct pool *pool)
{
	return pool->path;
}

enum pool_kind pool_get_kind(const struct pool *pool)
{
	return pool->kind;
}

json_t *pool_json(struct pool *pool)
{
	struct pool_space space = { 0 };
	struct host_room room = { 0 };
	uint64_t size_max = 0;
	bool full = pool->host_full || pool->pool_full;

	pool_space_read(pool, &space, NULL);
	host_room_read(pool, &room, NULL);
	if (pool->kind == POOL_LOOP)
		size_max = MIN(pool->size_max ? pool->size_max : UINT64_MAX,
			MAX(host_room_backs(&room), room.file_size));
	return json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:i,s:b,s:b,s:s}", "kind",
		pool_kind_name(pool->kind), "path", pool->path, "quota", quota_name(pool->quota),
		"total_bytes", (json_int_t)space.total, "used_bytes", (json_int_t)space.used,
		"free_bytes", (json_int_t)space.free, "file_bytes", (json_int_t)room.file_held,
		"host_free_bytes", (json_int_t)room.free, "size_max_bytes", (json_int_t)size_max,
		"spares", (int)pool->spare_count, "trash", (int)trash_count(pool), "direct_io",
		(int)pool->direct_io, "full", (int)full, "why",
		full ? pool->full_detail : pool->note);
}

static void add_check(
	json_t *checks, const char *name, bool ok, const char *detail, const char *hint)
{
	json_array_append_new(
		checks, json_pack("{s:s,s:b,s:s,s:s,s:b}", "name", name, "ok", (int)ok, "detail",
				detail, "hint", ok ? "" : hint, "required", 0));
}

/* The file system of a native pool is the host's: turning quotas on there affects others too. */
static void add_quota_check(struct pool *pool, json_t *checks)
{
	_cleanup_free_ char *detail = xasprintf("%s%s", quota_name(pool->quota),
		pool->kind == POOL_NATIVE && pool_has_quota(pool)
			? "; on for the whole btrfs that BOX_HOME lies on, not for the pool alone"
			: "");

	add_check(checks, "pool quota", pool_has_quota(pool), detail,
		"disks have no limits; simple quotas come with Linux 6.7");
}

void pool_probe(struct pool *pool, json_t *checks)
{
	_cleanup_free_ char *detail = NULL;

	if (pool->kind == POOL_FOLDER)
		detail = xasprintf("a plain folder: no disk limits, copies take time; %s",
			*pool->note ? pool->note : "the configuration wants it so");
	else
		detail = xasprintf("btrfs, %s", pool_kind_name(pool->kind));
	add_check(checks, "pool", pool->kind != POOL_FOLDER, detail,
		"install what is missing, then begin with an empty home: box down --purge");
	if (pool->kind == POOL_FOLDER)
		return;
	add_quota_check(pool, checks);
	if (pool->kind == POOL_LOOP)
		add_check(checks, "pool direct I/O", pool->direct_io,
			pool->direct_io ? "the loop device goes past the host's page cache"
					: "the host's file system refuses it",
			"data is cached twice; put the home on ext4, xfs or btrfs");
	add_check(checks, "pool room", !pool->host_full && !pool->pool_full,
		pool->host_full || pool->pool_full ? pool->full_detail : "enough",
		"free space on the host, remove boxes and images, or: box pool grow");
}

int pool_check_room(struct pool *pool, uint64_t need, struct err *err)
{
	struct pool_space space;
	char has[16], wants[16];
	uint64_t margin;

	if (pool->host_full) {
		err_set(err, ERR_LIMIT, "no room for another disk: %s", pool->full_detail);
		return err_hint(err, "free some space on the host's disk");
	}
	if (pool_space_read(pool, &space, err) < 0)
		return -1;
	if (space.free < pool_grow_below(&space) || space.free < need)
		grow_by_itself(pool);
	margin = pool_margin(&space);
	if (space.free >= margin && space.free - margin >= need)
		return 0;
	err_set(err, ERR_LIMIT, "the pool has %s free, %s are needed", format_size(space.free, has),
		format_size(need + margin, wants));
	return err_hint(err, pool->growing ? "it is growing: try again in a moment"
					   : "remove boxes or images, or: box pool grow");
}

int pool_sync(const struct pool *pool, struct err *err)
{
	_cleanup_close_ int fd = open(pool->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", pool->path);
	if (syncfs(fd) < 0)
		return err_sys(err, errno, "sync the pool");
	return 0;
}
