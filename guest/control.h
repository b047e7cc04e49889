/* control.h - box-init's end of the second port of a VM; see wire/control.h */
#pragma once
#include "wire/control.h"

/* Takes fd, non-blocking. The box serves nobody until it is told who it is. */
void control_open(int fd);

/* ---- control_job.c: answers that may take a while, in processes of their own ---------------- */

/* Writes the answer's payload into out, or fails. Runs in the child. */
typedef int (*control_job_fn)(const void *arg, struct buf *out, struct err *err);
/* payload is borrowed. */
typedef void (*control_job_done)(
	uint64_t tag, const struct err *err, const void *payload, size_t len);
/* arg is copied with the process. Fails when too many jobs run. */
int control_job_start(
	control_job_fn fn, const void *arg, uint64_t tag, control_job_done done, struct err *err);

/* ---- control_look.c: figures of the guest's kernel ------------------------------------------ */

void control_look_stats(struct control_stats *ret);
void control_look_timer(struct control_timer *ret);
/* text of /proc/timer_list; running: a program runs now. For tests too. */
void control_read_timers(const char *text, bool running, struct control_timer *ret);

/* ---- control_socket.c ----------------------------------------------------------------------- */

/* comm and command of who lie here. */
struct control_socket_owner {
	struct control_who who;
	char comm[CONTROL_COMM_MAX + 1], command[CONTROL_PATH_MAX + 1];
};
int control_find_owner(
	const struct control_flow *flow, struct control_socket_owner *ret, struct err *err);
/* Connections of TCP that lead out of the machine: whether there are any; ends them all. */
bool control_has_connections(void);
void control_end_connections(void);
