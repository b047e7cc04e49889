/* socket_owner.h - finds the process in a box that made a connection, where the kernel tells
 *
 * The socket is looked up in the box's network namespace (NETLINK_SOCK_DIAG), its owner in
 * /proc/PID/fd of the box's processes. Both take a part of a millisecond; the work is bounded,
 * because a box can have many of everything. A socket that is already closed, as after a refused
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

/* Finds the box's socket with its own end at from. to is the other end as the box sees it; without
 * an address (family 0) any socket with to's port matches, which takes a walk through all sockets.
 * protocol is IPPROTO_TCP or IPPROTO_UDP. *ret_uid is the uid on the host that made the socket.
 * Fails with ERR_NOT_FOUND when there is none. */
int socket_owner_find(int netns, uint8_t protocol, const struct doors_endpoint *from,
	const struct doors_endpoint *to, ino_t *ret_inode, uid_t *ret_uid, struct err *err);
/* {"pid" as in the box,"uid" as the process itself sees it,"command"} of the process that holds a
 * socket; new reference, NULL: not found within bounds. */
json_t *socket_owner_holds(ino_t inode, const pid_t *pids, size_t count);
/* Both, for an event of the gate: {"from":"ADDRESS:PORT","protocol","port"} and "to":"ADDRESS:PORT"
 * (what the box sees) or, when there is no "name", "address". */
json_t *socket_owner_of_event(int netns, const json_t *event, const pid_t *pids, size_t count);
/* The connection alone. False: the event does not tell. */
bool socket_owner_read_event(const json_t *event, uint8_t *ret_protocol,
	struct doors_endpoint *ret_from, struct doors_endpoint *ret_to);

/* socket_owner_command.c: the command line as one line of at most SOCKET_OWNER_COMMAND_MAX bytes of
 * UTF-8. proc: the process's folder in /proc. Gives the process name in brackets when the command
 * line cannot be read in time (till: clock_mono_us). */
void socket_owner_command(int proc, int64_t till, char ret[SOCKET_OWNER_COMMAND_MAX + 1]);
/* Joins arguments (NUL between them) with spaces; anything but printable UTF-8 becomes '?'. A
 * character cut by the end is left out. out holds len + 1 bytes. */
void socket_owner_line(const char *text, size_t len, char *out);
/* Ends the process that reads command lines; the next lookup starts another. */
void socket_owner_close(void);
