/* clone.h - starts a process by clone3, in namespaces and a cgroup from its first instruction */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct clone_spec {
	uint64_t namespaces; /* CLONE_NEW* flags */
	bool sibling;	     /* the caller's parent becomes the child's parent: it reaps the child,
			      * not the caller */
	int cgroup; /* directory of the cgroup v2 group the child starts in; -1: the caller's
		     * group */
};

/* Like fork: returns the child's pid, and 0 in the child; -1 with err. *ret_pidfd is close-on-exec
 * and yours. In the child all signals are blocked and have their default action, so that no handler
 * of the parent can run there; clone_reset_signals() unblocks them right before exec. The caller
 * must be single-threaded. Fails with ERR_UNSUPPORTED when the kernel lacks clone3 or a flag. */
pid_t clone_process(const struct clone_spec *spec, int *ret_pidfd, struct err *err);
void clone_reset_signals(void);
/* Gives signals their default action and leaves them blocked, also for the program that follows:
 * PID 1 of a namespace loses what comes before it has handlers. */
void clone_hold_signals(void);
