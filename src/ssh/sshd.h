/* sshd.h - the SSH front door: `ssh ada@HOST` is a shell in box ada
 *
 * Nothing runs in a box for it. The daemon listens (ssh_listen, and a unix socket for local users)
 * and hands each connection to a process of its own without privileges, which speaks SSH
 * (ssh/connection). That process asks for everything over one socket (message.h): the daemon signs
 * with the host key, verifies logins, starts programs and opens connections into the box.
 *
 *   sshd.c      listens, starts the processes, limits how many
 *   peer.c      one connection: its messages
 *   login.c     who it is
 *   run.c       what a request for a shell, a command or a subsystem means
 *   command.c   a command of the control plane (control.h)
 *   program.c   a program of a box and its sockets to the process
 *   linger.c    programs whose client has gone
 *   forward.c   ports of a box for the client */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct auth;
struct sshd;
struct yard;

/* Listens as the settings say. yard and auth are borrowed. */
int sshd_open(struct yard *yard, struct auth *auth, struct sshd **ret, struct err *err);
const char *sshd_listens(const struct sshd *sshd); /* for the log; NULL: nowhere */
/* Reads the host keys again. */
void sshd_reload(struct sshd *sshd);
/* Accepts nothing new, tells clients that the daemon ends, and calls done when all processes have
 * gone, after grace_ms at the latest. Programs in boxes run on. */
void sshd_stop(struct sshd *sshd, uint64_t grace_ms, void (*done)(void *arg), void *arg);
void sshd_close(struct sshd *sshd); /* accepts NULL */
