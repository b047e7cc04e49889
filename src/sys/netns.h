/* netns.h - work in another network namespace for a moment
 *
 * For a process with one thread. Sockets belong to the namespace they were made in and stay good
 * afterwards. */
#pragma once
#include "base/err.h"

/* fn runs in the namespace behind netns; its result is returned. A process that could not come back
 * would do everything in the wrong place: it ends. */
int netns_call(int netns, int (*fn)(void *arg, struct err *err), void *arg, struct err *err);
/* The same in a namespace made for it, which is yours to close. */
int netns_make(int (*fn)(void *arg, struct err *err), void *arg, int *ret_netns, struct err *err);
