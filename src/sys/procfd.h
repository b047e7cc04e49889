/* procfd.h - processes by handle: no signal and no question ever reaches a successor of the same
 * pid */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <sys/types.h>

int procfd_open(pid_t pid, int *ret, struct err *err); /* ERR_NOT_FOUND when it does not run */
bool procfd_is_alive(int pidfd);
int procfd_kill(int pidfd, int signal, struct err *err); /* a process already dead is no error */

enum procfd_status {
	PROCFD_RUNNING,
	PROCFD_EXITED,	 /* value is the exit code */
	PROCFD_SIGNALED, /* value is the signal */
	PROCFD_GONE,	 /* ended, but not our child and the kernel no longer tells how */
};

/* Reaps the process if it is our child and has ended; asks the kernel for the status if it is not.
 * Does not block. */
enum procfd_status procfd_reap(int pidfd, int *ret_value);
