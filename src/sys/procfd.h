/* procfd.h - processes by pidfd: no signal or question ever reaches a later process with the same
 * pid */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <sys/types.h>

int procfd_open(pid_t pid, int *ret, struct err *err); /* ERR_NOT_FOUND when it does not run */
bool procfd_is_alive(int pidfd);
/* a process that has ended is not an error */
int procfd_kill(int pidfd, int signal, struct err *err);

enum procfd_status {
	PROCFD_RUNNING,
	PROCFD_EXITED,	 /* value is the exit code */
	PROCFD_SIGNALED, /* value is the signal */
	PROCFD_GONE,	 /* ended, but not our child, and the kernel does not tell how */
};

/* Reaps the process if it is our child and has ended; otherwise asks the kernel for the status.
 * Does not block. */
enum procfd_status procfd_reap(int pidfd, int *ret_value);
