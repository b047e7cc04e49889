/* members_internal.h - how the members files find each other's leavings */
#pragma once
#include "engine/vm/members.h"

#define MEMBERS_PREFIX "member-" /* of their folders */
#define MEMBERS_MARK   "mark"	 /* a file in them: pid, start time, boot of the machine */

void members_write_mark(const struct qemu *qemu);
/* Ends what is left in the folder run, and removes it. */
void members_sweep(const char *run);
