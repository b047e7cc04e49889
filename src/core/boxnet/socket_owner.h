/* socket_owner.h - the process in a box that made a connection, where the kernel lets us know
 *
 * The socket is asked for in the box's network namespace (NETLINK_SOCK_DIAG), its owner looked for
 * in /proc/PID/fd of the box's processes. Both take a part of a millisecond; the work is bounded,
 * for a box can have many of everything. A socket that is closed already, as after a refused
 * connection, has no owner any more. For the daemon's one thread. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "net/doors.h"
#include <stddef.h>
#include <sys/types.h>

enum {
	SOCKET_OWNER_PIDS_MAX = 512,
	SOCKET_OWNER_FDS_MAX = 4096,
	SOCKET_OWNER_MS_MAX = 3,
	SOCKET_OWNER_COMMAND_MAX = 200,
};

/* The box's socket with its own end at from. to is the other end as the box sees it; without an
 * address (family 0) any that has to's port is meant, which takes a walk through all sockets.
 * protocol is IPPROTO_TCP or IPPROTO_UDP. *ret_uid is the uid outside of who made the socket.
 * ERR_NOT_FOUND when there is none. */
int socket_owner_find(int netns, uint8_t protocol, const struct doors_endpoint *from,
	const struct doors_endpoint *to, ino_t *ret_inode, uid_t *ret_uid, struct err *err);
/* {"pid" as in the box,"uid" as the process itself sees it,"command"} of who holds a socket; new
 * reference, NULL: not found within bounds. */
json_t *socket_owner_holds(ino_t inode, const pid_t *pids, size_t count);
/* Both, for an event of the gate: {"from":"ADDRESS:PORT","protocol","port"} and "to":"ADDRESS:PORT"
 * (what the box sees) or, when there is no "name", "address". */
json_t *socket_owner_of_event(int netns, const json_t *event, const pid_t *pids, size_t count);

/* socket_owner_command.c: a command line as one line of at most SOCKET_OWNER_COMMAND_MAX bytes of
 * UTF-8, from the process whose folder in /proc proc is; its name in brackets when that cannot be
 * had in time (till: clock_mono_us). */
void socket_owner_command(int proc, int64_t till, char ret[SOCKET_OWNER_COMMAND_MAX + 1]);
/* ends the process that reads command lines; the next look starts another */
void socket_owner_close(void);
