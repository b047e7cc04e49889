/* request.c - what the client asks for after its login
 *
 * libssh hands over each request as a message: 0 answered, 1 to be refused by libssh, 2 kept and
 * answered later. All that comes from the client is bounded here. */
#include "base/strv.h"
#include "ssh/connection/connection_internal.h"
#include <ctype.h>
#include <libssh/box.h>
#include <stdio.h>

enum { ENV_NAME_MAX = 128, ENV_VALUE_MAX = 16 * 1024, SUBSYSTEM_MAX = 64, RESOURCE_SHORTAGE = 4 };

static struct sshc_channel *channel_of(struct sshc *conn, ssh_channel ssh)
{
	for (struct sshc_channel *channel = conn->channels; channel; channel = channel->next)
		if (channel->ssh == ssh && ssh)
			return channel;
	return NULL;
}

/* ---- programs ------------------------------------------------------------------------------ */

static void set_size(struct sshc_channel *channel, const struct box_ssh_terminal *terminal)
{
	channel->rows = (uint16_t)MIN(terminal->rows, UINT16_MAX);
	channel->cols = (uint16_t)MIN(terminal->cols, UINT16_MAX);
}

static int on_pty(struct sshc_channel *channel, ssh_message message)
{
	struct box_ssh_terminal terminal;

	if (!(channel->conn->permits & SSHM_PERMIT_PTY) || channel->asked || channel->tty)
		return 1;
	channel->tty = true;
	box_ssh_terminal(message, &terminal);
	set_size(channel, &terminal);
	if (terminal.term && sshc_is_printable(terminal.term, sizeof channel->term - 1))
		snprintf(channel->term, sizeof channel->term, "%s", terminal.term);
	if (terminal.modes && terminal.modes_len <= SSHM_BLOB_MAX)
		buf_add(&channel->modes, terminal.modes, terminal.modes_len);
	ssh_message_channel_request_reply_success(message);
	return 0;
}

static bool is_env_name(const char *name)
{
	size_t len = strnlen(name, ENV_NAME_MAX + 1);

	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && name[i] != '_')
			return false;
	return len > 0 && len <= ENV_NAME_MAX && !isdigit((unsigned char)name[0]);
}

static bool is_env_value(const char *value)
{
	size_t len = strnlen(value, ENV_VALUE_MAX + 1);

	for (size_t i = 0; i < len; i++)
		if (((unsigned char)value[i] < ' ' && value[i] != '\t') || value[i] == 0x7f)
			return false;
	return len <= ENV_VALUE_MAX;
}

static int on_env(struct sshc_channel *channel, ssh_message message)
{
	const char *name = ssh_message_channel_request_env_name(message),
		   *value = ssh_message_channel_request_env_value(message);
	_cleanup_free_ char *pair = NULL;
	size_t len;

	if (!name || !value || !is_env_name(name) || !is_env_value(value) || channel->asked)
		return 1;
	pair = xasprintf("%s=%s", name, value);
	len = strlen(pair) + 1;
	if (channel->env_count >= SSHM_ENV_MAX || channel->env_bytes + len > SSHC_ENV_BYTES_MAX)
		return 1;
	strv_add(&channel->env, pair);
	channel->env_count++;
	channel->env_bytes += len;
	ssh_message_channel_request_reply_success(message);
	return 0;
}

static int run(struct sshc_channel *channel, ssh_message message, enum sshm_run_what what,
	const char *command, size_t max)
{
	static const char *const none[] = { NULL };
	struct buf *out;

	if (channel->asked || !command || strnlen(command, max + 1) > max)
		return 1;
	channel->asked = true;
	out = sshm_pipe_begin(channel->conn->pipe, SSHM_RUN);
	wire_put_u32(out, channel->number);
	wire_put_u8(out, (uint8_t)what);
	wire_put_str(out, command);
	wire_put_u8(out, channel->tty);
	wire_put_str(out, channel->term);
	wire_put_u16(out, channel->rows);
	wire_put_u16(out, channel->cols);
	sshm_put_blob(out, buf_head(&channel->modes), channel->modes.len);
	wire_put_strv(out, channel->env ? (const char *const *)channel->env : none);
	sshm_pipe_send(channel->conn->pipe, NULL, 0);
	buf_done(&channel->modes);
	strv_free(channel->env);
	channel->env = NULL;
	ssh_message_channel_request_reply_success(message);
	return 0;
}

static int on_subsystem(struct sshc_channel *channel, ssh_message message)
{
	const char *name = ssh_message_channel_request_subsystem(message);

	if (!name || !sshc_is_printable(name, SUBSYSTEM_MAX))
		return 1;
	return run(channel, message, SSHM_RUN_SUBSYSTEM, name, SUBSYSTEM_MAX);
}

static int on_window_change(struct sshc_channel *channel, ssh_message message)
{
	struct box_ssh_terminal terminal;
	struct buf *out;

	if (!channel->tty)
		return 1;
	box_ssh_terminal(message, &terminal);
	set_size(channel, &terminal);
	if (!channel->asked || channel->exited)
		return 0;
	out = sshm_pipe_begin(channel->conn->pipe, SSHM_RESIZE);
	wire_put_u32(out, channel->number);
	wire_put_u16(out, channel->rows);
	wire_put_u16(out, channel->cols);
	sshm_pipe_send(channel->conn->pipe, NULL, 0);
	return 0;
}

static int on_channel_request(struct sshc *conn, ssh_message message)
{
	struct sshc_channel *channel =
		channel_of(conn, ssh_message_channel_request_channel(message));

	if (!channel || channel->kind != SSHC_SESSION || channel->client_closed)
		return 1;
	switch (ssh_message_subtype(message)) {
	case SSH_CHANNEL_REQUEST_PTY:
		return on_pty(channel, message);
	case SSH_CHANNEL_REQUEST_ENV:
		return on_env(channel, message);
	case SSH_CHANNEL_REQUEST_SHELL:
		return run(channel, message, SSHM_RUN_SHELL, "", 0);
	case SSH_CHANNEL_REQUEST_EXEC:
		return run(channel, message, SSHM_RUN_COMMAND,
			ssh_message_channel_request_command(message), SSHM_COMMAND_MAX);
	case SSH_CHANNEL_REQUEST_SUBSYSTEM:
		return on_subsystem(channel, message);
	case SSH_CHANNEL_REQUEST_WINDOW_CHANGE:
		return on_window_change(channel, message);
	default:
		return 1; /* X11 too */
	}
}

/* ---- channels ------------------------------------------------------------------------------ */

static int open_session(struct sshc *conn, ssh_message message)
{
	ssh_channel ssh = ssh_message_channel_request_open_reply_accept(message);

	if (!ssh)
		return 1;
	sshc_channel_bind(sshc_channel_new(conn, SSHC_SESSION), ssh);
	return 0;
}

static int on_open(struct sshc *conn, ssh_message message)
{
	if (conn->channel_count >= SSHM_CHANNELS_MAX) {
		box_ssh_refuse_open(message, RESOURCE_SHORTAGE, "too many channels");
		return 0;
	}
	switch (ssh_message_subtype(message)) {
	case SSH_CHANNEL_SESSION:
		return open_session(conn, message);
	case SSH_CHANNEL_DIRECT_TCPIP:
		return sshc_dial(conn, message);
	default:
		return 1;
	}
}

static int on_global(struct sshc *conn, ssh_message message)
{
	switch (ssh_message_subtype(message)) {
	case SSH_GLOBAL_REQUEST_TCPIP_FORWARD:
		return sshc_listen(conn, message);
	case SSH_GLOBAL_REQUEST_CANCEL_TCPIP_FORWARD:
		return sshc_unlisten(conn, message);
	default:
		return 1;
	}
}

static int on_service(struct sshc *conn, ssh_message message)
{
	const char *service = ssh_message_service_service(message);

	if (service && !strcmp(service, "ssh-userauth"))
		return 1; /* libssh agrees */
	sshc_end(conn, "the client asked for another service than ssh-userauth");
	return 0;
}

int sshc_on_message(ssh_session session, ssh_message message, void *arg)
{
	struct sshc *conn = arg;
	int type = ssh_message_type(message);

	(void)session;
	sshc_touch(conn);
	if (conn->over)
		return 0;
	if (type == SSH_REQUEST_AUTH)
		return sshc_login(conn, message);
	if (type == SSH_REQUEST_SERVICE)
		return on_service(conn, message);
	/* libssh has looked at its own state; this is ours. */
	if (!conn->logged_in) {
		sshc_end(conn, "a request before the login");
		return 0;
	}
	switch (type) {
	case SSH_REQUEST_CHANNEL_OPEN:
		return on_open(conn, message);
	case SSH_REQUEST_CHANNEL:
		return on_channel_request(conn, message);
	case SSH_REQUEST_GLOBAL:
		return on_global(conn, message);
	default:
		return 1;
	}
}
