/* channel.c - bytes between a channel and a descriptor, and the end of both
 *
 * From the client: libssh offers what came; what the descriptor does not take stays in libssh's
 * buffer, bounded by the channel's window, until the descriptor is writable. To the client: the
 * descriptor is read no further than the client's window and while little is unsent; during a rekey
 * libssh takes nothing, and what was read is held here.
 *
 * A program's channel ends when its output has ended and the daemon has told the exit code; a
 * tunnel's when both directions have ended; any channel when the client closes it. */
#include "base/strv.h"
#include "loop/loop.h"
#include "ssh/connection/connection_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <libssh/box.h>
#include <sys/socket.h>

/* ---- from the client ----------------------------------------------------------------------- */

static void end_input(struct sshc_channel *channel)
{
	channel->input_dead = true;
	sshc_touch(channel->conn);
}

/* How much was taken. */
static size_t write_input(struct sshc_channel *channel, const uint8_t *bytes, size_t len)
{
	size_t done = 0;

	while (done < len && !channel->input_full && !channel->input_dead) {
		ssize_t wrote = write(channel->data, bytes + done, len - done);

		if (wrote >= 0) {
			done += (size_t)wrote;
		} else if (errno == EAGAIN) {
			channel->input_full = true;
			sshc_touch(channel->conn);
		} else if (errno != EINTR) {
			end_input(channel);
		}
	}
	return channel->input_dead ? len : done;
}

static int on_data(
	ssh_session session, ssh_channel ssh, void *data, uint32_t len, int is_stderr, void *arg)
{
	struct sshc_channel *channel = arg;

	(void)session;
	(void)ssh;
	if (is_stderr || channel->input_dead || channel->closing)
		return (int)len;
	if (channel->data < 0 || channel->input_full)
		return 0;
	return (int)write_input(channel, data, len);
}

static void on_eof(ssh_session session, ssh_channel ssh, void *arg)
{
	struct sshc_channel *channel = arg;

	(void)session;
	(void)ssh;
	channel->input_eof = true;
	sshc_touch(channel->conn);
}

static void on_close(ssh_session session, ssh_channel ssh, void *arg)
{
	struct sshc_channel *channel = arg;

	(void)session;
	(void)ssh;
	channel->input_eof = true;
	channel->client_closed = true;
	sshc_touch(channel->conn);
}

static void drain_input(struct sshc_channel *channel)
{
	while (!channel->input_full && channel->data >= 0) {
		size_t len, taken;
		const uint8_t *bytes = box_ssh_input(channel->ssh, &len);

		if (!len)
			break;
		taken = write_input(channel, bytes, len);
		if (!taken)
			break;
		box_ssh_input_taken(channel->ssh, taken);
	}
}

static bool has_input(struct sshc_channel *channel)
{
	size_t len;

	box_ssh_input(channel->ssh, &len);
	return len > 0 && !channel->input_dead;
}

/* ---- requests that libssh does not make messages of ---------------------------------------- */

static void on_signal(ssh_session session, ssh_channel ssh, const char *name, void *arg)
{
	struct sshc_channel *channel = arg;
	struct buf *out;

	(void)session;
	(void)ssh;
	if (channel->kind != SSHC_SESSION || !channel->asked || channel->exited ||
		!sshc_is_printable(name, 16))
		return;
	out = sshm_pipe_begin(channel->conn->pipe, SSHM_SIGNAL);
	wire_put_u32(out, channel->number);
	wire_put_str(out, name);
	sshm_pipe_send(channel->conn->pipe, NULL, 0);
}

static void on_agent(ssh_session session, ssh_channel ssh, void *arg)
{
	struct sshc *conn = ((struct sshc_channel *)arg)->conn;

	(void)session;
	(void)ssh;
	if (conn->agent_told)
		return;
	conn->agent_told = true;
	sshm_pipe_begin(conn->pipe, SSHM_AGENT);
	sshm_pipe_send(conn->pipe, NULL, 0);
}

/* ---- to the client ------------------------------------------------------------------------- */

static uint8_t chunk[SSHC_CHUNK];

/* How much the library took. */
static size_t send_output(
	struct sshc_channel *channel, const uint8_t *bytes, size_t len, bool is_err)
{
	int took = is_err ? ssh_channel_write_stderr(channel->ssh, bytes, (uint32_t)len)
			  : ssh_channel_write(channel->ssh, bytes, (uint32_t)len);

	/* Nobody wants it any more: the client has closed the channel, or the connection ends. */
	if (took < 0)
		return len;
	return (size_t)took;
}

static bool may_send(struct sshc_channel *channel)
{
	return (channel->kind == SSHC_SESSION || channel->kind == SSHC_TUNNEL) &&
	       !channel->closing && !channel->client_closed && !channel->hold.len &&
	       ssh_channel_window_size(channel->ssh) > 0 &&
	       box_ssh_unsent(channel->conn->session) < SSHC_UNSENT_MAX &&
	       !box_ssh_is_rekeying(channel->conn->session);
}

static void read_output(struct sshc_channel *channel, int fd, bool *ended, bool is_err)
{
	size_t room = MIN((size_t)SSHC_CHUNK, (size_t)ssh_channel_window_size(channel->ssh));
	ssize_t got = read(fd, chunk, room);
	size_t took;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		*ended = true;
		return;
	}
	took = send_output(channel, chunk, (size_t)got, is_err);
	if (took < (size_t)got) {
		buf_add(&channel->hold, chunk + took, (size_t)got - took);
		channel->hold_err = is_err;
	}
}

static void on_data_ready(void *arg, unsigned ready)
{
	struct sshc_channel *channel = arg;

	sshc_touch(channel->conn);
	if (ready & LOOP_WRITE)
		channel->input_full = false;
	if (ready & LOOP_READ && !channel->data_ended && may_send(channel))
		read_output(channel, channel->data, &channel->data_ended, false);
}

static void on_err_ready(void *arg, unsigned ready)
{
	struct sshc_channel *channel = arg;

	(void)ready;
	sshc_touch(channel->conn);
	if (!channel->err_ended && may_send(channel))
		read_output(channel, channel->err, &channel->err_ended, true);
}

static void send_held(struct sshc_channel *channel)
{
	size_t took;

	if (!channel->hold.len || box_ssh_is_rekeying(channel->conn->session) ||
		!ssh_channel_window_size(channel->ssh))
		return;
	took = send_output(channel, buf_head(&channel->hold), channel->hold.len, channel->hold_err);
	buf_eat(&channel->hold, took);
	if (!channel->hold.len)
		buf_done(&channel->hold);
}

/* ---- the end ------------------------------------------------------------------------------- */

static bool output_is_over(const struct sshc_channel *channel)
{
	bool never_ran = channel->exited && !channel->has_run;

	return ((channel->data_ended && channel->err_ended) || never_ran) && !channel->hold.len;
}

static void send_end(struct sshc_channel *channel)
{
	if (channel->kind == SSHC_SESSION) {
		if (channel->exit_signal[0])
			ssh_channel_request_send_exit_signal(
				channel->ssh, channel->exit_signal, 0, "", "");
		else
			ssh_channel_request_send_exit_status(channel->ssh, (int)channel->exit_code);
	}
	channel->closing = true;
	ssh_channel_close(channel->ssh);
}

static void settle_ends(struct sshc_channel *channel)
{
	bool over;

	if (channel->input_eof && !channel->input_shut && channel->data >= 0 &&
		!has_input(channel)) {
		channel->input_shut = true;
		shutdown(channel->data, SHUT_WR); /* a terminal is none, and stays open */
	}
	if (channel->closing || (channel->client_closed && !channel->sent_eof))
		return;
	if (output_is_over(channel) && !channel->sent_eof) {
		channel->sent_eof = true;
		ssh_channel_send_eof(channel->ssh);
	}
	over = channel->kind == SSHC_SESSION ? channel->exited
					     : channel->input_shut || channel->input_dead;
	if (over && channel->sent_eof)
		send_end(channel);
}

static void settle_closed(struct sshc_channel *channel)
{
	if (!channel->client_closed)
		return;
	/* What the client sent through a tunnel before it closed it still has to arrive. */
	if (channel->kind == SSHC_TUNNEL && has_input(channel) && !channel->closing)
		return;
	if (channel->kind == SSHC_SESSION && channel->asked && !channel->exited) {
		/* OpenSSH closes a channel as soon as both directions have ended, and still waits
		 * for the exit code. */
		if (channel->sent_eof)
			return;
		wire_put_u32(sshm_pipe_begin(channel->conn->pipe, SSHM_CLOSED), channel->number);
		sshm_pipe_send(channel->conn->pipe, NULL, 0);
	}
	channel->dead = true;
}

static void watch(struct sshc_channel *channel)
{
	bool sends = may_send(channel);
	unsigned ready = 0;

	if (channel->data_watch) {
		if (sends && !channel->data_ended)
			ready |= LOOP_READ;
		if (channel->input_full && !channel->input_dead)
			ready |= LOOP_WRITE;
		if (ready != channel->data_watched)
			loop_fd_set(channel->data_watch, ready);
		channel->data_watched = ready;
	}
	ready = sends && !channel->err_ended ? LOOP_READ : 0;
	if (channel->err_watch && ready != channel->err_watched) {
		loop_fd_set(channel->err_watch, ready);
		channel->err_watched = ready;
	}
}

void sshc_channel_settle(struct sshc_channel *channel)
{
	if (channel->dead || !channel->ssh)
		return;
	if (channel->kind != SSHC_SESSION && channel->kind != SSHC_TUNNEL)
		return;
	drain_input(channel);
	send_held(channel);
	settle_ends(channel);
	settle_closed(channel);
	watch(channel);
}

/* ---- life ---------------------------------------------------------------------------------- */

struct sshc_channel *sshc_channel_new(struct sshc *conn, enum sshc_channel_kind kind)
{
	struct sshc_channel *channel = xnew(struct sshc_channel);

	channel->conn = conn;
	channel->kind = kind;
	channel->number = ++conn->last_number;
	channel->data = channel->err = -1;
	channel->next = conn->channels;
	conn->channels = channel;
	conn->channel_count++;
	return channel;
}

struct sshc_channel *sshc_channel_find(struct sshc *conn, uint32_t number)
{
	for (struct sshc_channel *channel = conn->channels; channel; channel = channel->next)
		if (channel->number == number && !channel->dead)
			return channel;
	return NULL;
}

void sshc_channel_bind(struct sshc_channel *channel, ssh_channel ssh)
{
	channel->ssh = ssh;
	channel->callbacks = (struct ssh_channel_callbacks_struct){ .userdata = channel,
		.channel_data_function = on_data,
		.channel_eof_function = on_eof,
		.channel_close_function = on_close,
		.channel_signal_function = on_signal };
	/* Where there is a function, libssh agrees to the request. */
	if (channel->conn->permits & SSHM_PERMIT_AGENT && channel->kind == SSHC_SESSION)
		channel->callbacks.channel_auth_agent_req_function = on_agent;
	ssh_callbacks_init(&channel->callbacks);
	ssh_set_channel_callbacks(ssh, &channel->callbacks);
}

void sshc_channel_connect(struct sshc_channel *channel, int data, int err)
{
	struct loop *loop = channel->conn->loop;

	channel->data = data;
	channel->err = err;
	fcntl(data, F_SETFL, O_NONBLOCK);
	channel->data_watch = loop_fd_new(loop, data, 0, on_data_ready, channel);
	if (err >= 0) {
		fcntl(err, F_SETFL, O_NONBLOCK);
		channel->err_watch = loop_fd_new(loop, err, 0, on_err_ready, channel);
	} else {
		channel->err_ended = true;
	}
	sshc_touch(channel->conn);
}

static void release(struct sshc_channel *channel)
{
	loop_fd_free(channel->data_watch);
	loop_fd_free(channel->err_watch);
	if (channel->data >= 0)
		close(channel->data);
	if (channel->err >= 0)
		close(channel->err);
	if (channel->ssh) {
		ssh_remove_channel_callbacks(channel->ssh, &channel->callbacks);
		ssh_channel_free(channel->ssh);
	}
	ssh_message_free(channel->opening);
	sshc_incoming_free(channel->incoming);
	strv_free(channel->env);
	buf_done(&channel->modes);
	buf_done(&channel->hold);
	free(channel);
}

void sshc_channels_sweep(struct sshc *conn)
{
	struct sshc_channel **at = &conn->channels;

	while (*at) {
		struct sshc_channel *channel = *at;

		if (!channel->dead) {
			at = &channel->next;
			continue;
		}
		*at = channel->next;
		conn->channel_count--;
		release(channel);
	}
}
