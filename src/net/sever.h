/* sever.h - connections of a network namespace whose other end is not in it
 *
 * A restored box finds its TCP connections as they were, those to the outside too, whose other end
 * knows nothing of it. They are ended before anything in the box runs: programs see the end at once
 * (ECONNABORTED) and connect anew. Connections within the box have both ends in the namespace and
 * live on. */
#pragma once
#include "base/err.h"
#include <stddef.h>

/* How many sockets of the namespace the caller is in are connected; for netns_call (arg: size_t
 * *). */
int sever_count(void *arg, struct err *err);
/* Those in the namespace the caller is in; for netns_call (arg: size_t *, may be NULL: raised by
 * how many were ended). ERR_UNSUPPORTED when the kernel cannot (CONFIG_INET_DIAG_DESTROY). */
int sever_outside(void *arg, struct err *err);
