/* procstat.h - the few facts of /proc that identify a process */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { BOOT_ID_SIZE = 40 };

/* Field 22 of /proc/PID/stat: a pid together with this and the boot id is never used again. */
int procstat_start_time(pid_t pid, uint64_t *ret, struct err *err);
/* True when it was stopped by a signal, as by Ctrl-Z. */
bool procstat_is_stopped(pid_t pid);
/* Whether it has executed a program since it was forked. Works for zombies too. */
int procstat_has_execed(pid_t pid, bool *ret, struct err *err);
int procstat_boot_id(char ret[BOOT_ID_SIZE], struct err *err);
/* The outside id of id 0 in the process's user namespace, and how many ids follow it. */
int procstat_uid_map(pid_t pid, uint32_t *ret_base, uint32_t *ret_count, struct err *err);
/* Whether ids from first on are mapped in the process's user namespace, as a separate extent. */
int procstat_has_ids(pid_t pid, uint32_t first, bool *ret, struct err *err);
