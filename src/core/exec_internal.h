/* exec_internal.h - a program's way from its description to box-init */
#pragma once
#include "core/core_internal.h"
#include "core/exec.h"

int exec_spec_check(const struct exec_spec *spec, struct err *err);
/* A spec that outlives the call it came with. */
struct exec_spec exec_spec_copy(const struct exec_spec *spec);
void exec_spec_free(struct exec_spec *spec); /* of a copy */
/* Called when the program may start: box as it is then, or NULL with err when it has gone. */
typedef void (*exec_ready)(struct box *box, const struct err *err, void *arg);
/* Before a program is started for a client: wakes the box and takes the snapshot, if the box wants
 * one (auto.c). ready is called exactly once, possibly before this returns; a snapshot that fails
 * keeps nobody from starting. argv is borrowed for the call. */
void box_before_exec(struct box *box, const char *const *argv, exec_ready ready, void *arg);
/* stopped: the box, so that it does not run any more whatever is said. ret borrows from info. */
void exec_info_from(const struct wire_exec_info *info, bool stopped, struct exec_info *ret);
/* Asks box-init for the program, in the name of who; a box that sleeps is woken. The channel hears
 * the rest. */
int exec_open(struct box *box, const struct exec_spec *spec, const char *who,
	const struct chan_ops *ops, void *arg, struct chan **ret, struct err *err);
