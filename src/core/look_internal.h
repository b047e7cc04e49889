/* look_internal.h - files of a stopped box, read from its disk
 *
 * A helper answers the same requests with the same bytes as box-init does (wire.h). It sees the
 * layers of the box merged as the box would; symlinks are always resolved inside. Volumes and
 * folders of the host are not part of a disk. */
#pragma once
#include "core/disk/disk.h"
#include "wire/wire.h"

struct look_spec {
	/* Output: WIRE_OP_STAT: one record. LIST: records. READ: one record, then the bytes.
	 * TAR_OUT: a tar. A record is a u32, the length of the wire_stat that follows it. */
	enum wire_op op;
	const char *path;	 /* absolute; copied */
	bool follow;		 /* STAT */
	uint64_t offset, length; /* READ; length 0: to the end */
};

/* Whether files of the box are read this way: only when it is stopped. A hibernated box is woken
 * instead, because its files in memory (/run, /dev/shm) are nowhere else. */
bool box_is_looked_at(const struct box *box);
int box_look_start(struct box *box, const struct look_spec *spec, const struct disk_stream_ops *ops,
	void *arg, struct disk_stream **ret, struct err *err);
