/* grow.c - grows pool.img while it is in use
 *
 * A helper makes the file longer, tells the loop device, and resizes btrfs: each step may wait
 * for the disk. If the helper dies in between, the next open finishes the work (loopfile.c). */
#include "pool/pool_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include <errno.h>
#include <sys/socket.h>

#define STEP_LEAST     (16 * MIB) /* a smaller step is not worth it */
#define RETRY_US       (10 * 1000000)
#define GROW_BYTES_MAX (UINT64_C(1) << 50)

/* A result that is known at once but reported from the loop. */
struct grow_answer {
	struct pool *pool;
	struct grow_answer *next;
	struct err err;
	pool_done done;
	void *arg;
};

static void unlink_answer(struct grow_answer *answer)
{
	struct grow_answer **at = &answer->pool->answers;

	while (*at != answer)
		at = &(*at)->next;
	*at = answer->next;
}

static void tell_answer(void *arg)
{
	_cleanup_free_ struct grow_answer *answer = arg;

	unlink_answer(answer);
	answer->done(&answer->err, answer->arg);
}

static void answer_later(struct pool *pool, const struct err *err, pool_done done, void *arg)
{
	struct grow_answer *answer = xnew(struct grow_answer);

	*answer = (struct grow_answer){
		.pool = pool, .next = pool->answers, .err = *err, .done = done, .arg = arg
	};
	pool->answers = answer;
	loop_defer(pool->loop, tell_answer, answer);
}

/* ---- the helper ----------------------------------------------------------------------------- */

static int run_grow(int sock, void *arg)
{
	const struct pool *pool = arg;
	struct err err = ERR_INIT;

	if (truncate(pool->image, (off_t)pool->grow_target) < 0)
		err_sys(&err, errno, "make '%s' longer", pool->image);
	else if (loopfile_spread(pool, &err) == 0)
		return 0;
	send(sock, &err, sizeof err, 0);
	return 1;
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct pool *pool = arg;

	if (len == sizeof pool->grow_err)
		memcpy(&pool->grow_err, message, len);
}

static void on_exit_grow(int code, void *arg)
{
	struct pool *pool = arg;
	pool_done done = pool->grow_done;

	pool->growing = NULL;
	pool->grow_done = NULL;
	if (code && !pool->grow_err.kind)
		err_set(&pool->grow_err, ERR_SYSTEM, "the helper that grows the pool died");
	if (code)
		pool->grow_not_before_us = clock_mono_us() + RETRY_US;
	else
		log_info("pool grown", kv_int("bytes", (int64_t)pool->grow_target));
	if (done)
		done(code ? &pool->grow_err : NULL, pool->grow_arg);
	else if (code)
		log_warn("cannot grow the pool", kv_err(&pool->grow_err));
}

static int start(struct pool *pool, uint64_t target, struct err *err)
{
	static const struct helper_ops ops = {
		.run = run_grow, .on_message = on_message, .on_exit = on_exit_grow, .light = true
	};

	pool->grow_target = target;
	err_clear(&pool->grow_err);
	return helper_start(pool->loop, &ops, pool, NULL, 0, &pool->growing, err);
}

/* ---- how much ------------------------------------------------------------------------------- */

static int refuse(const struct host_room *room, struct err *err)
{
	char size[16], left[16], keep[16];

	err_set(err, ERR_LIMIT,
		"the pool file of %s cannot grow that much: the host's disk has %s free and keeps "
		"%s",
		format_size(room->file_size, size), format_size(room->free, left),
		format_size(room->keep, keep));
	return err_hint(err, "free some space on the host, or remove boxes and images");
}

/* bytes 0: a step, or as much of it as there is room for. */
static int find_target(
	const struct host_room *room, uint64_t bytes, uint64_t most, uint64_t *ret, struct err *err)
{
	uint64_t size = room->file_size, step = MAX(size / 4, MIN(GIB, size / 2));
	uint64_t top = MIN(host_room_backs(room), most), target;

	if (bytes > GROW_BYTES_MAX)
		return err_set(err, ERR_INVALID, "the pool cannot grow by that much");
	target = (size + (bytes ? bytes : step) + MIB - 1) / MIB * MIB;
	if (!bytes)
		target = MIN(target, top);
	if (target > top || target < size + (bytes ? 1 : STEP_LEAST))
		return refuse(room, err);
	*ret = target;
	return 0;
}

void pool_grow(struct pool *pool, uint64_t bytes, pool_done done, void *arg)
{
	struct err err = ERR_INIT;
	struct host_room room;
	uint64_t target;

	if (pool->kind != POOL_LOOP) {
		err_set(&err, ERR_UNSUPPORTED, "a pool of kind '%s' is as large as the host's disk",
			pool_kind_name(pool->kind));
		answer_later(pool, &err, done, arg);
	} else if (pool->growing) {
		err_set(&err, ERR_STATE, "the pool is growing already");
		answer_later(pool, &err, done, arg);
	} else if (host_room_read(pool, &room, &err) < 0 ||
		   find_target(&room, bytes, UINT64_MAX, &target, &err) < 0 ||
		   start(pool, target, &err) < 0)
		answer_later(pool, &err, done, arg);
	else {
		pool->grow_done = done;
		pool->grow_arg = arg;
	}
}

void grow_by_itself(struct pool *pool)
{
	uint64_t most = pool->size_max ? pool->size_max : UINT64_MAX, target;
	struct err err = ERR_INIT;
	struct host_room room;

	if (pool->kind != POOL_LOOP || pool->growing || pool->host_full ||
		clock_mono_us() < pool->grow_not_before_us)
		return;
	if (host_room_read(pool, &room, &err) == 0 &&
		find_target(&room, 0, most, &target, &err) == 0 && start(pool, target, &err) == 0) {
		pool->cannot_grow = false;
		return;
	}
	pool->grow_not_before_us = clock_mono_us() + RETRY_US;
	if (!pool->cannot_grow && room.file_size < most)
		log_warn("the pool is nearly full and cannot grow", kv_err(&err));
	pool->cannot_grow = true;
}

void grow_close(struct pool *pool)
{
	struct grow_answer *answer;

	helper_free(pool->growing);
	while ((answer = pool->answers)) {
		pool->answers = answer->next;
		loop_undefer(pool->loop, tell_answer, answer);
		free(answer);
	}
}
