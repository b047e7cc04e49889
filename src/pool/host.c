/* host.c - how much space the host's disk can give to pool.img
 *
 * The file is sparse: btrfs sees its whole length, but the host allocates blocks only as they
 * are written. So the length is never more than the host could back at that moment, and some of
 * the host's disk is never given to the pool (keep). A file of allocated blocks, pool.reserve,
 * is deleted in an emergency: when the host's disk is full, btrfs can still write what it has in
 * memory, and stays healthy. */
#include "pool/pool_internal.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/vfs.h>

static uint64_t reserve_size(uint64_t total)
{
	return MIN(64 * MIB, total / 64) / MIB * MIB;
}

static uint64_t file_held(const char *path, uint64_t *ret_size)
{
	struct stat st;

	if (stat(path, &st) < 0)
		st = (struct stat){ 0 };
	if (ret_size)
		*ret_size = (uint64_t)st.st_size;
	return (uint64_t)st.st_blocks * 512;
}

int host_room_read(const struct pool *pool, struct host_room *ret, struct err *err)
{
	struct statfs fs;

	if (statfs(pool->home, &fs) < 0)
		return err_sys(err, errno, "statfs '%s'", pool->home);
	*ret = (struct host_room){
		.total = fs.f_blocks * (uint64_t)fs.f_bsize,
		.free = fs.f_bavail * (uint64_t)fs.f_bsize,
	};
	ret->keep = MIN(MAX(256 * MIB, ret->total / 100), ret->total / 16);
	ret->file_held = file_held(pool->image, &ret->file_size);
	return 0;
}

uint64_t host_room_backs(const struct host_room *room)
{
	uint64_t all = room->file_held + room->free;

	return all > room->keep ? (all - room->keep) / MIB * MIB : 0;
}

uint64_t host_room_left(const struct pool *pool, const struct host_room *room)
{
	uint64_t held = file_held(pool->reserve, NULL), want = reserve_size(room->total);
	/* The space of a deleted reserve is not for boxes. */
	uint64_t keep = room->keep + (held < want ? want - held : 0);

	return room->free > keep ? room->free - keep : 0;
}

/* Images stop before watch.c limits the boxes, and early enough that this limit can be lifted
 * again. */
int pool_host_left(const struct pool *pool, uint64_t *ret, struct err *err)
{
	struct host_room room;
	uint64_t left;

	if (host_room_read(pool, &room, err) < 0)
		return -1;
	left = pool->kind == POOL_LOOP ? host_room_left(pool, &room)
				       : room.free - MIN(room.free, room.keep);
	*ret = left - MIN(left, room.keep / 2);
	return 0;
}

void host_reserve_make(const struct pool *pool)
{
	_cleanup_close_ int fd = -1;
	struct host_room room;
	uint64_t size;

	if (host_room_read(pool, &room, NULL) < 0)
		return;
	size = reserve_size(room.total);
	if (!size || file_held(pool->reserve, NULL) >= size)
		return;
	fd = open(pool->reserve, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || fallocate(fd, 0, 0, (off_t)size) < 0)
		log_warn("cannot reserve disk blocks, continuing", kv_str("path", pool->reserve),
			kv_str("error", strerror(errno)));
}

void host_reserve_give_up(const struct pool *pool)
{
	_cleanup_close_ int fd = open(pool->reserve, O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, 0) < 0)
		log_warn("cannot give up the reserve of disk blocks",
			kv_str("error", strerror(errno)));
}
