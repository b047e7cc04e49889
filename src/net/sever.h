/* sever.h - closes connections of a network namespace whose other end is not in it
 *
 * A restored box has its TCP connections as they were, including those to the outside, whose other
 * end knows nothing of the restore. They are aborted before anything in the box runs: programs see
 * ECONNABORTED at once and reconnect. Connections within the box have both ends in the namespace
 * and stay open. */
#pragma once
#include "base/err.h"
#include <stddef.h>

/* Counts the connected sockets of the caller's namespace; for netns_call (arg: size_t *). */
int sever_count(void *arg, struct err *err);
/* Closes those in the caller's namespace; for netns_call (arg: size_t *, may be NULL: increased by
 * their number). Fails with ERR_UNSUPPORTED when the kernel cannot do it
 * (CONFIG_INET_DIAG_DESTROY). */
int sever_outside(void *arg, struct err *err);
