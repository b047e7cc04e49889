/* daemon.c - messages of the daemon
 *
 * An answer that somebody waits for is taken at once; all others wait for the loop, because they
 * may come while libssh is in the middle of a key exchange. The daemon is trusted: what it says is
 * checked for its form alone. */
#include "base/clock.h"
#include "base/strv.h"
#include "ssh/connection/connection_internal.h"
#include "sys/fdpass.h"
#include <stdio.h>

enum { TEXT_MAX = 1024 };

static int read_start(struct sshc *conn, struct wire_reader *in, struct err *err)
{
	_cleanup_free_ const char **greeting = NULL;
	const uint8_t *key;
	size_t len;

	wire_get_str(in, TEXT_MAX); /* the peer: for the daemon's own lines */
	conn->local = wire_get_u8(in);
	key = sshm_get_blob(in, SSHM_BLOB_MAX, &len);
	buf_add(&conn->host_key, key, len);
	conn->login_ms = wire_get_u32(in);
	greeting = wire_get_strv(in, 64);
	conn->greeting = strv_copy(greeting);
	conn->started = true;
	return wire_get_done(in, err);
}

static void keep_letter(struct sshc *conn, enum sshm_kind kind, const struct wire_reader *in,
	const int *fds, size_t count)
{
	size_t len = (size_t)(in->end - in->at);
	struct sshc_letter *letter = xcalloc(1, sizeof *letter + len);

	letter->kind = kind;
	letter->len = len;
	memcpy(letter->bytes, in->at, len);
	letter->fd_count = count;
	memcpy(letter->fds, fds, count * sizeof *fds);
	*conn->last_letter = letter;
	conn->last_letter = &letter->next;
	sshc_touch(conn);
}

static int on_message(void *arg, enum sshm_kind kind, struct wire_reader *in, int *fds,
	size_t count, struct err *err)
{
	struct sshc *conn = arg;

	if (kind == SSHM_START && !conn->started)
		return read_start(conn, in, err);
	if (kind == conn->awaited && !conn->answered) {
		fdpass_close(fds, count);
		buf_add(&conn->answer, in->at, (size_t)(in->end - in->at));
		conn->answered = true;
		return 0;
	}
	/* Whoever waits for an answer need not wait on. */
	if (kind == SSHM_END) {
		sshc_end(conn, "%s", wire_get_str(in, TEXT_MAX));
		return wire_get_done(in, err);
	}
	keep_letter(conn, kind, in, fds, count);
	return 0;
}

static void on_ended(void *arg, const struct err *err)
{
	(void)err;
	sshc_end(arg, "the server has gone");
}

const struct sshm_pipe_ops sshc_pipe_ops = { .message = on_message, .ended = on_ended };

int sshc_ask(struct sshc *conn, enum sshm_kind answer)
{
	uint64_t until = clock_mono_us() + (uint64_t)SSHC_ANSWER_MS * 1000;

	conn->answer.len = conn->answer.head = 0;
	conn->answered = false;
	conn->awaited = answer;
	sshm_pipe_send(conn->pipe, NULL, 0);
	while (!conn->answered && !conn->over) {
		uint64_t now = clock_mono_us();

		if (now >= until || sshm_pipe_wait(conn->pipe, (int)((until - now) / 1000) + 1) < 0)
			break;
	}
	conn->awaited = 0;
	if (conn->answered)
		return 0;
	sshc_end(conn, "the server does not answer");
	return -1;
}

/* ---- letters ------------------------------------------------------------------------------- */

static int on_running(struct sshc *conn, struct wire_reader *in, struct sshc_letter *letter)
{
	struct sshc_channel *channel = sshc_channel_find(conn, wire_get_u32(in));

	if (letter->fd_count == 0)
		return -1;
	/* The client may have closed it meanwhile. */
	if (!channel || channel->has_run)
		return 0;
	channel->has_run = true;
	sshc_channel_connect(channel, steal_fd(&letter->fds[0]),
		letter->fd_count > 1 ? steal_fd(&letter->fds[1]) : -1);
	return 0;
}

static int on_exit_code(struct sshc *conn, struct wire_reader *in)
{
	struct sshc_channel *channel = sshc_channel_find(conn, wire_get_u32(in));
	uint32_t code = wire_get_u32(in);
	const char *signal = wire_get_str(in, sizeof channel->exit_signal - 1);

	if (!channel)
		return 0;
	channel->exited = true;
	channel->exit_code = code;
	snprintf(channel->exit_signal, sizeof channel->exit_signal, "%s", signal);
	return 0;
}

static int on_dialled(struct sshc *conn, struct wire_reader *in, struct sshc_letter *letter)
{
	struct sshc_channel *channel = sshc_channel_find(conn, wire_get_u32(in));

	if (letter->fd_count != 1)
		return -1;
	if (channel && channel->kind == SSHC_DIALLING)
		sshc_dialled(channel, steal_fd(&letter->fds[0]));
	return 0;
}

static int on_refused(struct sshc *conn, struct wire_reader *in)
{
	struct sshc_channel *channel = sshc_channel_find(conn, wire_get_u32(in));
	uint32_t reason = wire_get_u32(in);
	const char *text = wire_get_str(in, TEXT_MAX);

	if (channel && channel->kind == SSHC_DIALLING)
		sshc_refused(channel, reason, text);
	return 0;
}

static int on_incoming(struct sshc *conn, struct wire_reader *in, struct sshc_letter *letter)
{
	struct sshc_incoming *incoming;

	if (letter->fd_count != 1)
		return -1;
	incoming = xnew(struct sshc_incoming);
	incoming->kind = (enum sshm_incoming_kind)wire_get_u8(in);
	incoming->address = xstrdup(wire_get_str(in, SSHC_NAME_MAX));
	incoming->port = wire_get_u16(in);
	incoming->from = xstrdup(wire_get_str(in, SSHC_NAME_MAX));
	incoming->from_port = wire_get_u16(in);
	sshc_incoming(conn, incoming, steal_fd(&letter->fds[0]));
	return 0;
}

static void open_letter(struct sshc *conn, struct sshc_letter *letter)
{
	struct wire_reader in = { letter->bytes, letter->bytes + letter->len, false };
	struct err err = ERR_INIT;
	int ret = -1;

	switch ((unsigned)letter->kind) {
	case SSHM_RUNNING:
		ret = on_running(conn, &in, letter);
		break;
	case SSHM_EXIT:
		ret = on_exit_code(conn, &in);
		break;
	case SSHM_DIALLED:
		ret = on_dialled(conn, &in, letter);
		break;
	case SSHM_REFUSED:
		ret = on_refused(conn, &in);
		break;
	case SSHM_INCOMING:
		ret = on_incoming(conn, &in, letter);
		break;
	}
	if (ret < 0 || wire_get_done(&in, &err) < 0)
		sshc_end(conn, "the server is confused");
}

void sshc_letters_settle(struct sshc *conn)
{
	while (conn->letters && !conn->over) {
		struct sshc_letter *letter = conn->letters;

		conn->letters = letter->next;
		if (!conn->letters)
			conn->last_letter = &conn->letters;
		open_letter(conn, letter);
		for (size_t i = 0; i < letter->fd_count; i++)
			if (letter->fds[i] >= 0)
				close(letter->fds[i]);
		free(letter);
	}
}
