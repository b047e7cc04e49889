/* upper.h - what a box with a kernel of its own has over its image, as an archive */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct box;
struct yard;

/* Its files are in a file system of its own kernel: nobody looks into its disk from outside. */
bool box_has_own_kernel(const struct box *box);
/* A socket from which image_unpack_upper reads; yours, for a helper. It blocks. place and disk: a
 * disk in the pool that is a copy of the box's; NULL: the box's own, through the box if it runs or
 * sleeps. What goes wrong later is told in the archive. */
int upper_open(struct box *box, const char *place, const char *disk, int *ret, struct err *err);
uint64_t upper_bytes_max(const struct box *box); /* more cannot come from an honest one */
void uppers_close(struct yard *yard);
