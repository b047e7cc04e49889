/* message.h - what the daemon and the process of one SSH connection say to each other
 *
 * The process (`box ssh-connection`, ssh/connection) speaks SSH with the client and has no
 * privileges. It owns no key and decides nothing: the daemon signs with the host key, verifies
 * logins, starts programs and opens connections. The two share one SOCK_SEQPACKET socket; a packet
 * is one message: u8 kind, then its fields as wire.h encodes them, and descriptors. A message that
 * is not exactly as described here ends the connection: the process reads an attacker's bytes and
 * may be under his control.
 *
 *     process -> daemon
 *   SIGN      blob hash                             of a key exchange; SIGNED answers. The first
 *                                                   one is the session's id
 *   LOGIN     str user, u8 login_method, str algorithm, blob key, u8 hostbound, blob signature
 *                                                   VERDICT answers. Without a signature it is the
 *                                                   question whether this key would do
 *   RUN       u32 channel, u8 run_what, str command, u8 tty, str term, u16 rows, u16 cols,
 *             blob modes, strv env                  RUNNING answers, and always EXIT later
 *   SIGNAL    u32 channel, str name                 without SIG: "TERM"
 *   RESIZE    u32 channel, u16 rows, u16 cols
 *   CLOSED    u32 channel                           the client closed it: programs run on
 *   DIAL      u32 channel, str host, u16 port, str from, u16 from_port
 *             host with a '/' at its start: the path of a unix socket in the box
 *                                                   DIALLED or REFUSED answers
 *   LISTEN    u32 ticket, str address, u16 port     LISTENING answers; address as with host
 *   UNLISTEN  str address, u16 port
 *   AGENT     -                                     the client offers its agent; INCOMING for each
 *                                                   use, if the policy allows it
 *   ENDED     str why                               of a connection that ends without a login, for
 *                                                   the event; "" after one
 *     daemon -> process
 *   START     str peer, u8 local, blob host key (public, SSH format), u32 login_ms,
 *             strv greeting                         comes first. local: a unix socket, "none" may do
 *   SIGNED    blob signature                        SSH format: string algorithm, string signature
 *   VERDICT   u8 verdict, u32 permits               enum sshm_permit
 *   RUNNING   u32 channel, fd data, fd stderr       stderr is missing with tty. data is a stream
 *                                                   socket (shut for writing at the end of input)
 *                                                   or the master of a terminal (EIO at its end)
 *   EXIT      u32 channel, u32 code, str signal     signal "TERM" or "": exited with code. Output
 *                                                   may still be in the sockets: read to their end
 *   DIALLED   u32 channel, fd
 *   REFUSED   u32 channel, u32 reason, str text     reason as in RFC 4254, 5.1
 *   LISTENING u32 ticket, u8 ok, u16 port
 *   INCOMING  u8 incoming_kind, str address, u16 port, str from, u16 from_port, fd
 *                                                   the process opens a channel to the client
 *   END       str text                              the daemon ends the connection and says why
 *
 * blob: u32 length and as many bytes. Numbers of channels are the process's own: from 1, rising,
 * never used again. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "wire/wire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;

enum sshm_kind {
	SSHM_SIGN = 1,
	SSHM_LOGIN,
	SSHM_RUN,
	SSHM_SIGNAL,
	SSHM_RESIZE,
	SSHM_CLOSED,
	SSHM_DIAL,
	SSHM_LISTEN,
	SSHM_UNLISTEN,
	SSHM_AGENT,
	SSHM_ENDED,
	SSHM_FROM_PROCESS_COUNT,

	SSHM_START = 64,
	SSHM_SIGNED,
	SSHM_VERDICT,
	SSHM_RUNNING,
	SSHM_EXIT,
	SSHM_DIALLED,
	SSHM_REFUSED,
	SSHM_LISTENING,
	SSHM_INCOMING,
	SSHM_END,
};

enum sshm_login_method { SSHM_LOGIN_NONE = 1, SSHM_LOGIN_KEY };
enum sshm_verdict { SSHM_VERDICT_NO, SSHM_VERDICT_WOULD_DO, SSHM_VERDICT_IN, SSHM_VERDICT_CLOSE };
enum sshm_permit { SSHM_PERMIT_PTY = 1, SSHM_PERMIT_FORWARDING = 2, SSHM_PERMIT_AGENT = 4 };
enum sshm_run_what { SSHM_RUN_SHELL = 1, SSHM_RUN_COMMAND, SSHM_RUN_SUBSYSTEM };
enum sshm_incoming_kind { SSHM_INCOMING_TCP = 1, SSHM_INCOMING_PATH, SSHM_INCOMING_AGENT };

enum {
	SSHM_MESSAGE_MAX = 192 * 1024, /* one packet */
	SSHM_MESSAGE_FDS = 2,
	SSHM_COMMAND_MAX = 128 * 1024,
	SSHM_ENV_MAX = 256,	     /* variables */
	SSHM_BLOB_MAX = 16 * 1024,   /* keys, signatures, modes of a terminal */
	SSHM_CHANNELS_MAX = 256,     /* open at once on one connection */
	SSHM_LISTENERS_MAX = 16,     /* at once on one connection */
	SSHM_QUEUE_MAX = 1024 * 1024 /* bytes of messages that the other side has not read */
};

/* ---- the pipe: one end of the socket, non-blocking, over the loop
 * ----------------------------- */

struct sshm_pipe;

struct sshm_pipe_ops {
	/* A message; in is at the first field. fds (count) belong to the callee. Returns -1 with
	 * err when the message is malformed: ended is called with it. */
	int (*message)(void *arg, enum sshm_kind kind, struct wire_reader *in, int *fds,
		size_t count, struct err *err);
	/* The other side has gone (ERR_UNAVAILABLE), sent something malformed (ERR_PROTOCOL) or
	 * does not read (ERR_LIMIT). The last callback; the pipe is still to be freed. */
	void (*ended)(void *arg, const struct err *err);
};

/* Takes fd. */
struct sshm_pipe *sshm_pipe_new(
	struct loop *loop, int fd, const struct sshm_pipe_ops *ops, void *arg);
void sshm_pipe_free(struct sshm_pipe *pipe); /* accepts NULL; not from within message */
/* Starts a message: write its fields into the buffer with wire_put_*, then send it. The descriptors
 * are duplicated by the kernel: the caller keeps its own, and may close them at once (a message
 * that cannot be sent now keeps copies). */
struct buf *sshm_pipe_begin(struct sshm_pipe *pipe, enum sshm_kind kind);
void sshm_pipe_send(struct sshm_pipe *pipe, const int *fds, size_t count);
size_t sshm_pipe_queued(const struct sshm_pipe *pipe); /* bytes the other side has not taken */
/* Blocks until something was read or written, without the loop; message is called as from the loop.
 * For the process, which can do nothing else until the daemon has answered. -1: nothing happened
 * within ms, or the pipe is broken (ended is called later, from the loop). */
int sshm_pipe_wait(struct sshm_pipe *pipe, int ms);

void sshm_put_blob(struct buf *out, const void *data, size_t len);
/* Borrowed from the message; a blob longer than max is bad. */
const uint8_t *sshm_get_blob(struct wire_reader *in, size_t max, size_t *ret_len);
