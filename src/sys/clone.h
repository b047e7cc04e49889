/* clone.h - a new process by clone3, in namespaces and a cgroup from its first instruction */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct clone_spec {
	uint64_t namespaces; /* CLONE_NEW* flags */
	bool sibling;	     /* the caller's parent becomes its parent: it reaps, not the caller */
	int cgroup; /* directory of a cgroup v2 group the child is born in; -1: the caller's */
};

/* Like fork: returns the child's pid, and 0 in the child; -1 with err. *ret_pidfd is close-on-exec
 * and yours. In the child all signals are blocked and their handlers are the default, so that no
 * handler of the parent's can run there; clone_reset_signals() lifts that right before exec. The
 * caller must be single-threaded. ERR_UNSUPPORTED when the kernel lacks clone3 or a flag. */
pid_t clone_process(const struct clone_spec *spec, int *ret_pidfd, struct err *err);
void clone_reset_signals(void);
