/* members_internal.h - names that the members files share */
#pragma once
#include "engine/vm/members.h"

#define MEMBERS_PREFIX "member-" /* of their folders */
#define MEMBERS_MARK   "mark"	 /* a file in them: pid, start time, boot of the machine */

void members_write_mark(const struct qemu *qemu);
/* Ends the processes left in the folder run, and removes their folders. */
void members_sweep(const char *run);
