/* compare.h - differences between boxes: figures, and the trees on their disks
 *
 * The others are compared with the first box. */
#pragma once
#include "base/json.h"
#include "core/disk/disk.h"

enum { COMPARE_BOXES_MAX = 16, COMPARE_FILES = 1000, COMPARE_FILES_MAX = 10000 };

/* {"name","id","state","disk_bytes","memory_bytes","processes","execs":null}; null where it is
 * unknown (a box that does not run has no processes, a pool without quota does not count bytes).
 * New reference. */
json_t *box_figures_json(struct box *box);

/* Compares the trees of two to COMPARE_BOXES_MAX different boxes of one yard, in any state; a
 * helper reads them. The stream is one JSON object without its opening brace:
 *   "files":[{"path","type","change":{NAME:"same|modified|added|removed",…},"size":{NAME:bytes or
 *   null,…}} …], "files_truncated":bool}
 * with paths sorted, and "path_b64" as well where one is not UTF-8. Above limit paths (1 to
 * COMPARE_FILES_MAX) some are left out, and each box has a share of the rest. The contents of a
 * removed folder are not listed one by one. */
int boxes_compare_start(struct box *const *boxes, size_t count, size_t limit,
	const struct disk_stream_ops *ops, void *arg, struct disk_stream **ret, struct err *err);
