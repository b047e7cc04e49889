/* peer.c - one SSH connection, as the daemon sees it: messages of its process, checked and obeyed
 *
 *   START -> (SIGN, LOGIN …) -> logged in -> RUN, DIAL, LISTEN … -> the process ends
 *
 * Before the login SIGN and LOGIN are all there is. A message that does not fit ends the
 * connection: its process is under a client's control, or has a bug. */
#include "ssh/sshd_internal.h"
#include "ssh/hostkey.h"
#include "base/alloc.h"
#include "base/log.h"
#include "sys/procfd.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum {
	LOGIN_MS = 20 * 1000,	   /* told to the process */
	LOGIN_GRACE_MS = 2 * 1000, /* then it is killed */
	END_MS = 2 * 1000,	   /* for the process to tell the client why it ends */
};

static int take_signal(struct peer *peer, struct wire_reader *in, struct err *err)
{
	uint32_t channel = wire_get_u32(in);
	const char *name = wire_get_str(in, 16);

	if (wire_get_done(in, err) < 0)
		return -1;
	if (!program_signal(peer, channel, name))
		command_signal(peer, channel, name);
	return 0;
}

static int take_resize(struct peer *peer, struct wire_reader *in, struct err *err)
{
	uint32_t channel = wire_get_u32(in);
	uint16_t rows = wire_get_u16(in), cols = wire_get_u16(in);

	if (wire_get_done(in, err) < 0)
		return -1;
	if (!program_resize(peer, channel, rows, cols))
		command_resize(peer, channel, rows, cols);
	return 0;
}

static int take_closed(struct peer *peer, struct wire_reader *in, struct err *err)
{
	uint32_t channel = wire_get_u32(in);

	if (wire_get_done(in, err) < 0)
		return -1;
	if (!program_closed(peer, channel) && !command_closed(peer, channel))
		forward_closed(peer, channel);
	return 0;
}

/* An agent of the client is offered to no box yet; the process tells the client so. */
static int take_agent(struct peer *peer, struct wire_reader *in, struct err *err)
{
	(void)peer;
	return wire_get_done(in, err);
}

static int take_ended(struct peer *peer, struct wire_reader *in, struct err *err)
{
	const char *why = wire_get_str(in, 400);

	if (wire_get_done(in, err) < 0)
		return -1;
	login_ended(peer, why);
	peer->ended = true;
	return 0;
}

static const struct {
	enum sshm_kind kind;
	bool outside; /* before the login too */
	int (*take)(struct peer *peer, struct wire_reader *in, struct err *err);
} messages[] = {
	{ SSHM_SIGN, true, login_sign },
	{ SSHM_LOGIN, true, login_ask },
	{ SSHM_ENDED, true, take_ended },
	{ SSHM_RUN, false, run_take },
	{ SSHM_SIGNAL, false, take_signal },
	{ SSHM_RESIZE, false, take_resize },
	{ SSHM_CLOSED, false, take_closed },
	{ SSHM_DIAL, false, forward_dial },
	{ SSHM_LISTEN, false, forward_listen },
	{ SSHM_UNLISTEN, false, forward_unlisten },
	{ SSHM_AGENT, false, take_agent },
};

static int on_message(void *arg, enum sshm_kind kind, struct wire_reader *in, int *fds,
	size_t count, struct err *err)
{
	struct peer *peer = arg;

	while (count)
		close(fds[--count]); /* none is ever wanted */
	for (size_t i = 0; i < ARRAY_LEN(messages); i++)
		if (messages[i].kind == kind && (peer->in || messages[i].outside))
			return messages[i].take(peer, in, err);
	return err_set(err, ERR_PROTOCOL, "message %d does not fit here", (int)kind);
}

static void on_ended(void *arg, const struct err *err)
{
	struct peer *peer = arg;

	if (err->kind != ERR_UNAVAILABLE)
		log_warn("an SSH connection was ended", kv_str("peer", peer_from(peer)),
			kv_err(err));
	login_ended(peer, "the connection broke");
	peer->ended = true;
	peer_end(peer, NULL);
}

static void on_exit_of_process(void *arg, unsigned ready)
{
	struct peer *peer = arg;
	int value = 0;

	(void)ready;
	procfd_reap(peer->pidfd, &value);
	login_ended(peer, "the connection broke");
	peer_end(peer, NULL);
	sshd_peer_gone(peer);
}

static void on_late(void *arg)
{
	struct peer *peer = arg;

	if (!peer->in)
		login_ended(peer, "no login in time");
	peer->ended = true;
	procfd_kill(peer->pidfd, SIGKILL, NULL);
}

static void say_start(struct peer *peer)
{
	static const char *const nothing[] = { NULL };
	struct buf *out = sshm_pipe_begin(peer->pipe, SSHM_START);
	struct bytes blob = hostkey_get_blob(hostkeys_get(peer->sshd->hostkeys, 0));

	wire_put_str(out, peer->address);
	wire_put_u8(out, peer->local);
	sshm_put_blob(out, blob.data, blob.len);
	wire_put_u32(out, LOGIN_MS);
	wire_put_strv(out, nothing);
	sshm_pipe_send(peer->pipe, NULL, 0);
}

void peer_start(struct peer *peer, int fd, int pidfd)
{
	static const struct sshm_pipe_ops ops = { .message = on_message, .ended = on_ended };
	struct loop *loop = peer->sshd->loop;

	peer->pidfd = pidfd;
	peer->pipe = sshm_pipe_new(loop, fd, &ops, peer);
	peer->exit_watch = loop_fd_new(loop, pidfd, LOOP_READ, on_exit_of_process, peer);
	peer->login_timer = loop_timer_new(loop, on_late, peer);
	loop_timer_start(peer->login_timer, LOGIN_MS + LOGIN_GRACE_MS);
	say_start(peer);
}

void peer_end(struct peer *peer, const char *text)
{
	programs_detach(peer);
	commands_end(peer);
	forwards_end(peer);
	if (text) {
		wire_put_str(sshm_pipe_begin(peer->pipe, SSHM_END), text);
		sshm_pipe_send(peer->pipe, NULL, 0);
		loop_timer_start(peer->login_timer, END_MS);
	} else {
		procfd_kill(peer->pidfd, SIGKILL, NULL);
	}
}

void peer_done(struct peer *peer)
{
	loop_timer_free(peer->login_timer);
	loop_fd_free(peer->exit_watch);
	sshm_pipe_free(peer->pipe);
	close(peer->pidfd);
}

int peer_enter(struct peer *peer, const struct asker **ret_before, struct err *err)
{
	struct principal now;

	/* A key that was removed while its connection is open lets nothing in any more. */
	if (auth_again(peer->sshd->auth, &peer->principal, &now, err) < 0)
		return err_wrap(err, "this login is no longer valid");
	peer->principal = now;
	*ret_before = auth_enter(peer->sshd->auth, &peer->principal);
	return 0;
}

const char *peer_from(const struct peer *peer)
{
	return peer->local ? "local" : peer->address;
}
