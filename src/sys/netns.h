/* netns.h - runs a function in another network namespace
 *
 * For a process with one thread. Sockets belong to the namespace they were made in and stay valid
 * afterwards. */
#pragma once
#include "base/err.h"

/* Runs fn in the namespace behind netns and returns its result. If the process cannot come back it
 * ends, because it would do everything else in the wrong namespace. */
int netns_call(int netns, int (*fn)(void *arg, struct err *err), void *arg, struct err *err);
/* As netns_call, in a new namespace, which is yours to close. */
int netns_make(int (*fn)(void *arg, struct err *err), void *arg, int *ret_netns, struct err *err);
