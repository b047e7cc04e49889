/* pidns.h - where a pid namespace has got to with its numbers
 *
 * The kernel counts up and begins again near the start when it has come to the end; what is in use
 * is skipped. Only a process in the namespace can ask or tell it, so both calls put one there for a
 * moment. It belongs to the caller's cgroup and is gone when the call returns; each call uses one
 * number up. */
#pragma once
#include "base/err.h"
#include <sys/types.h>

enum { PIDNS_MOST = 4 * 1024 * 1024 }; /* numbers the kernel can have at all */

/* pidfd: a process of the namespace. The number after which the kernel goes on. */
int pidns_get_last(int pidfd, pid_t *ret, struct err *err);
/* The next process gets the first free number above last. ERR_INVALID when this machine does not
 * count so far. */
int pidns_set_last(int pidfd, pid_t last, struct err *err);
