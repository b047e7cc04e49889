/* exec.h - the programs started through a front door, their output and their end
 *
 * An exec belongs to the box: connections come and go, it stays until its program is over, and its
 * journal stays a while longer. */
#pragma once
#include "wire/wire.h"
#include <sys/resource.h>
#include <sys/types.h>

struct channel;
struct exec;

/* Ops; see ops.h. */
int exec_open_start(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
int exec_open_warm_up(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
int exec_open_attach(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
int exec_open_list(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
int exec_open_signal(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);

/* A child ended; true if it was the program of an exec. */
bool exec_reaped(pid_t pid, int status, const struct rusage *usage);
/* Signals everything that descends from an exec; for shutting down when we are not PID 1. */
void exec_signal_all(int number);
/* Refuses to start programs from now on. */
void exec_refuse_more(void);

unsigned exec_count_running(void);
/* Whether a reader has not been sent all output and the exit yet, or output was not read. */
bool exec_has_news(void);
uint64_t exec_journal_memory(void);
/* The id of the exec whose session or program this process is, or NULL. */
const char *exec_id_of(pid_t pid, pid_t session);
