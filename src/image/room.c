/* room.c - images must not fill the host's disk
 *
 * Unpacked layers and downloads lie on the disk of BOX_HOME, which boxes need too: pool.img
 * grows on it. So a job starts only if there is room, and checks again while it runs: archives
 * do not say how large they become, and others write as well. */
#include "image/image_internal.h"
#include "base/text.h"
#include "pool/pool.h"
#include <errno.h>

enum { ROOM_STEP = 8 * 1024 * 1024 };

int room_explain(struct err *err)
{
	if (err && err->kind == ERR_LIMIT && !*err->hint)
		err_hint(err, "make some space on the disk of BOX_HOME, or remove images: 'box "
			      "image rm', 'box image gc'");
	return -1;
}

uint64_t room_left(const struct images *images)
{
	uint64_t left;

	return pool_host_left(images->pool, &left, NULL) < 0 ? 0 : left;
}

int room_check(const struct images *images, uint64_t need, struct err *err)
{
	char has[16], wants[16];
	uint64_t left;

	if (pool_host_left(images->pool, &left, err) < 0)
		return -1;
	if (left && left >= need)
		return 0;
	if (need)
		err_set(err, ERR_LIMIT,
			"the disk of BOX_HOME has %s free for images, %s are needed",
			format_size(left, has), format_size(need, wants));
	else
		err_set(err, ERR_LIMIT, "the disk of BOX_HOME has no space left for images");
	return room_explain(err);
}

int room_take(struct room *room, uint64_t bytes, struct err *err)
{
	room->unchecked += bytes;
	if (room->unchecked < ROOM_STEP)
		return 0;
	room->unchecked = 0;
	return room_check(room->images, 0, err);
}
