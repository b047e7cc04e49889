/* output_internal.h - output of a box that is being stopped, and the file it goes to */
#pragma once
#include "core/core_internal.h"

#define OUTPUT_DIR "output" /* in the home; one file per box */

enum { OUTPUT_EXECS_MAX = 64 };

/* Asks box-init for the output and, once it is being sent, to shut down; without grace the box is
 * killed when all output has come. Both happen even if box-init does not answer. False: box-init
 * cannot be asked, and nothing was started. */
bool output_save(struct box *box, uint64_t grace_ms);
void output_write(struct box *box);	  /* the instance has ended: writes the file */
void output_forget(struct box *box);	  /* drops what was collected; the file stays */
void output_remove(struct box *box);	  /* drops what was collected, and the file */
void output_sweep(struct yard *yard);	  /* removes files of boxes that no longer exist */
char *output_path(const struct box *box); /* yours */

/* Plays the kept output of a stopped box. box_output_list answers like WIRE_OP_EXEC_LIST;
 * box_output_play like WIRE_OP_EXEC_ATTACH, at once and with NULL for the channel; its ops need
 * on_reply, on_gap, on_time, on_data, on_exit and on_closed. A program whose end was not reported
 * is listed as running. Fails with ERR_STATE, and why, when nothing was kept. */
int box_output_list(const struct box *box, struct buf *ret, struct err *err);
int box_output_play(const struct box *box, const struct wire_attach_spec *spec,
	const struct chan_ops *ops, void *arg, struct err *err);
