/* pidns.h - reads and sets the last pid of a pid namespace
 *
 * The kernel counts pids up and starts again near the beginning when it reaches the end; pids in
 * use are skipped. Only a process in the namespace can read or set the counter, so both calls put
 * one there for a moment. It belongs to the caller's cgroup and has ended when the call returns;
 * each call uses up one pid. */
#pragma once
#include "base/err.h"
#include <sys/types.h>

enum { PIDNS_MOST = 4 * 1024 * 1024 }; /* the largest number of pids a kernel can have */

/* pidfd: a process of the namespace. *ret is the pid after which the kernel continues. */
int pidns_get_last(int pidfd, pid_t *ret, struct err *err);
/* The next process gets the first free pid above last. Fails with ERR_INVALID when pids of this
 * machine do not go that far. */
int pidns_set_last(int pidfd, pid_t last, struct err *err);
