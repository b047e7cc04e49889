/* archive.h - trees of files as tar streams; run in a worker like the rest of files.h */
#pragma once
#include "guest/job.h"

int archive_out(struct job *job, struct err *err);
int archive_in(struct job *job, struct err *err);
/* What the disk has over the image, as a layer: ".wh." names for what was removed. */
int archive_upper(struct job *job, struct err *err);
/* The disk of a box with a kernel of its own (vm_get_disk), as the worker has it; -1: none.
 * Borrowed for ever. */
void archive_set_disk(int dir);
