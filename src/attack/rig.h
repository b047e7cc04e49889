/* rig.h - the test network for attacks: a daemon that can reach nothing but our own "world"
 *
 *   boxes -> daemon in the *site* namespace -> veth -> *world* namespace, where every address is a
 *   local one
 *
 * The only route out of the site leads into the world, which has no route out. So a hole shows
 * as something that a witness in the world received, never as traffic to a real address. In the
 * site, a second witness stands for the services of a host: it listens on all its addresses, its
 * loopback and an abstract socket, and no box may reach it.
 *
 *   site   192.0.2.2/30, 2001:db8:77::2/64 on out0; 10.77.0.2/30, fd77::2/64 on lan0; 127.0.0.1
 *   world  everything else, by out0's other end up0; DNS at 203.0.113.53 and everywhere
 *
 * The calling process moves into the site and stays there. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <sys/types.h>

#define RIG_RESOLVER   "203.0.113.53"
#define RIG_HOST_V4    "192.0.2.2"
#define RIG_HOST_V6    "2001:db8:77::2"
#define RIG_LAN_V4     "10.77.0.2"
#define RIG_LAN_V6     "fd77::2"
#define RIG_UNIX       "box-attack-host"
#define RIG_IMAGE      "attacker"
#define RIG_API_PORT   30001
#define RIG_HOST_PORT  7777
#define RIG_HOST_PORT2 5432

struct witness;

struct rig {
	char *folder; /* of the daemon; contains all its files */
	char *audit;  /* its audit log */
	struct witness *world, *host;
	pid_t daemon; /* 0: none */
	bool keep;
};

/* Makes the namespaces and starts the witnesses. */
int rig_open(struct rig *ret, struct err *err);
/* Starts the daemon, with an image that contains only box-attacker. */
int rig_start(struct rig *rig, struct err *err);
/* Kills the daemon (SIGKILL); rig_restart starts another on the same home. */
void rig_kill_daemon(struct rig *rig);
int rig_restart(struct rig *rig, struct err *err);
/* Purges the daemon, ends the witnesses, removes the folder. Anything left behind is an error. */
int rig_close(struct rig *rig, struct err *err);

/* Runs a `box` command against the daemon; words end with NULL. */
int rig_box(struct rig *rig, const char *const *words, struct buf *ret_out, int *ret_code,
	struct err *err);
/* Starts such a command and leaves it running, with its stdout in *ret_fd (non-blocking). */
int rig_spawn(
	struct rig *rig, const char *const *words, pid_t *ret_pid, int *ret_fd, struct err *err);
/* The pid of the daemon's gate; 0: none now. */
pid_t rig_gate_pid(const struct rig *rig);
/* True after ^C or a similar signal: the running check is finished, then everything is removed. */
bool rig_is_stopping(void);
