/* criu_internal.h - what the files of this folder share */
#pragma once
#include "engine/ns/criu/criu_rpc.h"

/* ---- criu_process.c: the process ------------------------------------------------------------ */

struct criu_process {
	pid_t pid; /* also its process group and session, until it is reaped */
	int pidfd;
	int sock;   /* SEQPACKET, non-blocking */
	int output; /* memfd: what it printed */
};

/* Starts `criu swrk`. When we die it is killed, or it ends by itself at its next event. */
int criu_process_start(const struct criu_request *request, bool dies_with_us,
	struct criu_process *ret, struct err *err);
/* Kills it with all its children that have no session of their own. */
void criu_process_kill(const struct criu_process *process);
bool criu_process_reap(struct criu_process *process, bool *ret_by_signal, int *ret_value);
/* Call it after the kill and the reaping: reaps members of its group that are our children. False
 * while one of them is alive. */
bool criu_process_reap_group(const struct criu_process *process);
void criu_process_close(struct criu_process *process);
/* Parses a message of the new process itself, sent before CRIU runs, that says why it does not. */
bool criu_process_failed(const void *message, size_t len, struct err *ret);

/* ---- criu_request.c ------------------------------------------------------------------------- */

int criu_request_check(enum criu_type type, const struct criu_request *request, struct err *err);

/* ---- criu_log.c ----------------------------------------------------------------------------- */

/* Copies the end of a file, at most CRIU_LOG_MAX - 1 bytes from the start of a line on, printable,
 * into log (CRIU_LOG_MAX bytes); "" when there is none. The file is name in the directory fd, or fd
 * itself (name NULL). */
void criu_log_tail(int fd, const char *name, char *log);
/* The text of the next error line in log, without its time and place; returns where to continue,
 * NULL: none. ret is borrowed from log. */
const char *criu_log_next_error(const char *log, const char **ret, size_t *ret_len);
/* The process of the box in which an error happened, as our CRIU reports it: "process 17 (node)".
 * False and "": unknown. */
enum { CRIU_WHO_MAX = 64 };
bool criu_log_process(const char *log, char *out, size_t size);
/* The first error line in log, without its time and place; "" when there is none. */
void criu_log_error(const char *log, char *out, size_t size);
