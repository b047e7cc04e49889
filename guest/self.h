/* self.h - what the box asks for itself: `box fork` and the like, passed between programs inside
 * and the daemon
 *
 * A program in the box connects to a socket of packets, SELF_SOCKET in the abstract names of the
 * box's network namespace, sends one packet (the words of its request, as wire_put_strv) and gets
 * packets until the last:
 *
 *     u8 self_kind, then   OUT, ERR: bytes · DONE: u32 exit code · CHILD: str name, str id, str
 *                          parent, u32 index RESTORED: nothing
 *
 * Only root of the box is listened to. The request goes to the daemon, and stays when the daemon is
 * gone for a while: the next one gets it again. In a box that was forked or taken back, who had
 * asked for a fork or a snapshot is told that it is the copy (CHILD, RESTORED), as fork(2) answers
 * twice. */
#pragma once
#include "wire/wire.h"

struct channel;

#define SELF_SOCKET "boxyard"

enum self_kind {
	SELF_OUT = 1,
	SELF_ERR,
	SELF_DONE,
	SELF_CHILD,
	SELF_RESTORED,
};

/* test_path: where the daemon's socket is, beside which ours is then made; NULL: SELF_SOCKET. */
int self_listen(const char *test_path, struct err *err);

/* A daemon that answers requests has connected; the last one has disconnected. */
void self_daemon_came(void);
void self_daemon_left(void);

/* Holds requests while the box is given its identity. */
void self_hold(void);
/* Sends them again, as if nothing had happened. */
void self_release(void);
/* The same in a copy of the box that asked: forks and snapshots in progress are answered as the
 * copy. identity NULL: rolled back. */
void self_release_copy(const struct wire_identity *identity);

int self_open_answer(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
