/* output_internal.h - output of a box that is being stopped, and the file it goes to */
#pragma once
#include "core/core_internal.h"

#define OUTPUT_DIR "output" /* below the home; a file a box */

enum { OUTPUT_EXECS_MAX = 64 };

/* Asks the box for its output and, as soon as it is on its way, to shut down; without grace it is
 * killed when all has come. Either is done even if box-init does not answer. False: it cannot be
 * asked, and nothing is under way. */
bool output_save(struct box *box, uint64_t grace_ms);
void output_write(struct box *box);	  /* the instance has ended: what came is kept */
void output_forget(struct box *box);	  /* what is being collected; the file stays */
void output_remove(struct box *box);	  /* both */
void output_sweep(struct yard *yard);	  /* files of boxes that are not there */
char *output_path(const struct box *box); /* yours */
