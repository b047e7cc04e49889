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

/* Of a box that has stopped, what was kept of its programs: as WIRE_OP_EXEC_LIST answers, and as
 * WIRE_OP_EXEC_ATTACH does, at once and with NULL for the channel; ops needs on_reply, on_gap,
 * on_time, on_data, on_exit and on_closed. One that was running still when last heard of is told as
 * running: how it ended is not known. ERR_STATE: nothing was kept, and why. */
int box_output_list(const struct box *box, struct buf *ret, struct err *err);
int box_output_play(const struct box *box, const struct wire_attach_spec *spec,
	const struct chan_ops *ops, void *arg, struct err *err);
