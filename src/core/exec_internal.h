/* exec_internal.h - from an exec_spec to a request to box-init */
#pragma once
#include "core/core_internal.h"
#include "core/exec.h"

int exec_spec_check(const struct exec_spec *spec, struct err *err);
/* A copy of a spec that outlives the call. */
struct exec_spec exec_spec_copy(const struct exec_spec *spec);
void exec_spec_free(struct exec_spec *spec); /* of a copy */
/* Called when the program may start; box is NULL, with err, when the box was removed. */
typedef void (*exec_ready)(struct box *box, const struct err *err, void *arg);
/* Prepares the start of a client's program: wakes the box and takes the automatic snapshot, if the
 * box has that set (auto.c). ready is called exactly once, possibly before this returns; a failed
 * snapshot does not prevent the start. argv is borrowed for the call. */
void box_before_exec(struct box *box, const char *const *argv, exec_ready ready, void *arg);
/* stopped: the box has stopped, so the program is not reported as running. ret borrows from
 * info. */
void exec_info_from(const struct wire_exec_info *info, bool stopped, struct exec_info *ret);
/* Asks box-init to start the program, in the name of who; a sleeping box is woken. The rest comes
 * over the channel. */
int exec_open(struct box *box, const struct exec_spec *spec, const char *who,
	const struct chan_ops *ops, void *arg, struct chan **ret, struct err *err);
