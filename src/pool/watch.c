/* watch.c - acts before the pool or the host's disk is full
 *
 * Once a second, more often when space is short, a timer checks the pool and the host's disk.
 *
 * A full pool is harmless: btrfs says "no space left" and stays healthy. A little before that,
 * the pool grows.
 *
 * A full host is not: btrfs has promised blocks that the sparse file cannot get, writes below it
 * fail and it becomes read-only. So all disks are in one quota group. While the host has less
 * space left than the file could still take, the group may write no more than that: its limit
 * follows the host's free space. A box cannot outrun it, however fast it writes into the page
 * cache, because the kernel checks the limit when it accepts the bytes. Only other programs can
 * fill the host; against them some of the host's disk is kept free. When that is used up,
 * nothing may be written at all ("Disk quota exceeded" in the boxes) and the reserve is deleted,
 * so that accepted data can still be written. All of this is undone automatically when there is
 * room again. */
#include "pool/pool_internal.h"
#include "base/log.h"
#include "base/text.h"
#include "base/clock.h"
#include "loop/loop.h"
#include <errno.h>
#include <stdio.h>
#include <sys/vfs.h>

enum {
	LOOK_MS = 1000,
	LOOK_TIGHT_MS = 100,
	GROUP_STOP = 1, /* a limit of one byte */
};
#define TIGHT (4 * GIB)

int pool_space_read(const struct pool *pool, struct pool_space *ret, struct err *err)
{
	struct statfs fs;

	if (fstatfs(pool->root, &fs) < 0)
		return err_sys(err, errno, "statfs '%s'", pool->path);
	ret->total = fs.f_blocks * (uint64_t)fs.f_bsize;
	ret->free = fs.f_bavail * (uint64_t)fs.f_bsize;
	ret->used = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	return 0;
}

uint64_t pool_grow_below(const struct pool_space *space)
{
	return MIN(MAX(GIB, space->total / 100 * 15), space->total / 4);
}

uint64_t pool_margin(const struct pool_space *space)
{
	return MIN(64 * MIB, space->total / 32);
}

/* ---- the host ------------------------------------------------------------------------------- */

static void tell(struct pool *pool, const char *what, bool full, const char *detail)
{
	if (full)
		log_warn("no room left", kv_str("what", what), kv_str("detail", detail));
	else
		log_info("room again", kv_str("what", what), kv_str("detail", detail));
	if (pool->on_full)
		pool->on_full(what, full, detail, pool->arg);
}

static void limit_group(struct pool *pool, uint64_t limit)
{
	struct err err = ERR_INIT;

	if (!pool->group || limit == pool->group_limit)
		return;
	if (quota_limit_group(pool, limit, &err) < 0)
		log_warn("cannot limit what all disks may write", kv_err(&err));
}

/* Adjusts how much all disks may still write to the host's free space; only when it differs by a
 * quarter, because each change is a write to the pool. */
static void follow_host(struct pool *pool, const struct host_room *room, uint64_t left)
{
	uint64_t used, may;

	if (!pool->group)
		return;
	if (left >= room->file_size - MIN(room->file_size, room->file_held)) {
		limit_group(pool, 0); /* the host can back all of the file */
		return;
	}
	if (quota_group_used(pool, &used, NULL) < 0)
		return;
	may = pool->group_limit > used ? pool->group_limit - used : 0;
	if (!pool->group_limit || may > left || may < left / 2)
		limit_group(pool, MAX(used + left / 4 * 3, GROUP_STOP));
}

static void brake(struct pool *pool, const struct host_room *room)
{
	char left[16];

	pool->host_full = true;
	limit_group(pool, GROUP_STOP);
	host_reserve_give_up(pool);
	snprintf(pool->full_detail, sizeof pool->full_detail,
		"the host's disk has %s left: boxes cannot write until there is more",
		format_size(room->free, left));
	tell(pool, "host", true, pool->full_detail);
}

static void release_brake(struct pool *pool, const struct host_room *room, uint64_t left)
{
	char text[16], detail[64];

	pool->host_full = false;
	host_reserve_make(pool);
	follow_host(pool, room, left);
	snprintf(detail, sizeof detail, "the host's disk has %s left",
		format_size(room->free, text));
	tell(pool, "host", false, detail);
	spares_refill(pool);
}

/* True when space is short. */
static bool look_at_host(struct pool *pool)
{
	struct host_room room;
	uint64_t left;

	if (pool->kind != POOL_LOOP || host_room_read(pool, &room, NULL) < 0)
		return false;
	left = host_room_left(pool, &room);
	if (!pool->host_full && !left)
		brake(pool, &room);
	else if (pool->host_full && left > room.keep / 4)
		release_brake(pool, &room, left);
	else if (!pool->host_full)
		follow_host(pool, &room, left);
	return pool->host_full || left < TIGHT;
}

/* ---- the pool ------------------------------------------------------------------------------- */

static void look_at_pool(struct pool *pool)
{
	struct pool_space space;
	char left[16], detail[96];
	bool full;

	if (pool_space_read(pool, &space, NULL) < 0)
		return;
	if (space.free < pool_grow_below(&space))
		grow_by_itself(pool);
	full = space.free < pool_margin(&space) * (pool->pool_full ? 2 : 1) && !pool->growing;
	if (full == pool->pool_full)
		return;
	pool->pool_full = full;
	snprintf(detail, sizeof detail, "the pool has %s left", format_size(space.free, left));
	if (full)
		snprintf(pool->full_detail, sizeof pool->full_detail, "%s", detail);
	tell(pool, "pool", full, detail);
}

static void look(void *arg)
{
	struct pool *pool = arg;
	bool tight = look_at_host(pool);

	look_at_pool(pool);
	loop_timer_start(pool->watch_timer, tight ? LOOK_TIGHT_MS : LOOK_MS);
}

void watch_open(struct pool *pool)
{
	if (pool->kind == POOL_LOOP)
		host_reserve_make(pool);
	pool->watch_timer = loop_timer_new(pool->loop, look, pool);
	look_at_host(pool); /* before the first box writes */
	loop_timer_start(pool->watch_timer, LOOK_TIGHT_MS);
}

void watch_close(struct pool *pool)
{
	loop_timer_free(pool->watch_timer);
}
