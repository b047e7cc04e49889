/* sandbox.h - a process of ours gives up what it does not need, before it reads what others sent
 *
 * What is left is a process of an unused user, in an empty read-only root of its own, without
 * capabilities, that cannot open a file, start a program, make a namespace, or inspect others or be
 * inspected. It keeps the descriptors it has. */
#pragma once
#include "base/err.h"
#include <sys/types.h>

enum sandbox_allow {
	SANDBOX_INET = 1, /* may make sockets of IPv4 and IPv6 */
	SANDBOX_FORK = 2, /* may make processes, which have the same limits */
};

/* Needs root and a single thread; uid is also the group. When a step fails, the process has to end:
 * one with privileges must not go on. */
int sandbox_enter(uid_t uid, unsigned allow, struct err *err);
