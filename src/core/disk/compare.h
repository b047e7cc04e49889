/* compare.h - what differs between boxes: figures, and the trees on their disks
 *
 * The first box named is what the others are compared with. */
#pragma once
#include "base/json.h"
#include "core/disk/disk.h"

enum { COMPARE_BOXES_MAX = 16, COMPARE_FILES = 1000, COMPARE_FILES_MAX = 10000 };

/* {"name","id","state","disk_bytes","memory_bytes","processes","execs":null}; null where it cannot
 * be known (a box that does not run has no processes, a pool without quota does not count bytes).
 * New reference. */
json_t *box_figures_json(struct box *box);

/* The trees of two to COMPARE_BOXES_MAX different boxes of one yard, in whatever state they are; a
 * helper reads them. The stream is one JSON object without its opening brace:
 *   "files":[{"path","type","change":{NAME:"same|modified|added|removed",…},"size":{NAME:bytes or
 *   null,…}} …], "files_truncated":bool}
 * with paths sorted, and "path_b64" as well where one is not UTF-8. Of more than limit paths (1 to
 * COMPARE_FILES_MAX) some are left out, and each box has a share of those told. What a folder held
 * that is gone is not told one by one. */
int boxes_compare_start(struct box *const *boxes, size_t count, size_t limit,
	const struct disk_stream_ops *ops, void *arg, struct disk_stream **ret, struct err *err);
