/* proc.h - the processes of the box as /proc shows them */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "wire/wire.h"
#include <sys/types.h>

/* Opens /proc; before any program of the box runs. */
int proc_open(struct err *err);
/* In a child: keeps /proc as descriptor fd, until a program is executed; and executes box-init's
 * own program from there, wherever that lies. Returns only with an error in errno. */
void proc_keep(int fd);
void proc_execute_self(int fd, const char *const *argv);
/* Signals every process of the session and all their descendants. leader_lives: the session's first
 * process was not reaped yet. Without /proc only its process group gets the signal. */
void proc_signal_session(pid_t session, bool leader_lives, int number);

/* The results of the two ops. Reading may hang, so only a worker calls these; it opens /proc
 * again. */
int proc_put_processes(struct buf *out, struct err *err);
int proc_put_stats(struct buf *out, struct err *err);
