/* forward.c - channels that lead elsewhere
 *
 * -L, -D: the client asks for a channel, the daemon dials, and the channel is accepted or refused
 * by what it says. -R, -A: the daemon hands over a connection, and a channel is opened towards the
 * client.
 *
 * Answers to requests for listeners have no number: SSH wants them in the order of the requests, so
 * nothing else of the client is handled until the daemon has answered. */
#include "ssh/connection/connection_internal.h"
#include <libssh/box.h>

enum { PROHIBITED = 1 };

/* A path or a name of a host, as the request says it is. "" is any address of a listener. */
static bool is_place(const char *name, bool is_path, bool may_be_empty)
{
	if (!name || strnlen(name, SSHC_NAME_MAX + 1) > SSHC_NAME_MAX)
		return false;
	if (!*name)
		return may_be_empty && !is_path;
	return sshc_is_printable(name, SSHC_NAME_MAX) && (name[0] == '/') == is_path;
}

/* ---- dialled for the client ---------------------------------------------------------------- */

int sshc_dial(struct sshc *conn, ssh_message message)
{
	const char *host = ssh_message_channel_request_open_destination(message),
		   *from = ssh_message_channel_request_open_originator(message);
	bool is_path = box_ssh_is_path(message);
	struct sshc_channel *channel;
	char escaped[256];
	struct buf *out;

	if (!(conn->permits & SSHM_PERMIT_FORWARDING)) {
		box_ssh_refuse_open(message, PROHIBITED, "forwarding is not allowed here");
		return 0;
	}
	if (!is_place(host, is_path, false)) {
		box_ssh_refuse_open(message, PROHIBITED, "the destination is not well-formed");
		return 0;
	}
	sshc_escape(escaped, sizeof escaped, from ? from : "");
	channel = sshc_channel_new(conn, SSHC_DIALLING);
	channel->opening = message;
	out = sshm_pipe_begin(conn->pipe, SSHM_DIAL);
	wire_put_u32(out, channel->number);
	wire_put_str(out, host);
	wire_put_u16(out,
		is_path ? 0 : (uint16_t)ssh_message_channel_request_open_destination_port(message));
	wire_put_str(out, escaped);
	wire_put_u16(out, (uint16_t)ssh_message_channel_request_open_originator_port(message));
	sshm_pipe_send(conn->pipe, NULL, 0);
	return 2;
}

void sshc_dialled(struct sshc_channel *channel, int fd)
{
	ssh_channel ssh = ssh_message_channel_request_open_reply_accept(channel->opening);

	if (!ssh) {
		close(fd);
		channel->dead = true;
		return;
	}
	channel->kind = SSHC_TUNNEL;
	sshc_channel_bind(channel, ssh);
	sshc_channel_connect(channel, fd, -1);
}

void sshc_refused(struct sshc_channel *channel, uint32_t reason, const char *text)
{
	char escaped[256];

	sshc_escape(escaped, sizeof escaped, text);
	box_ssh_refuse_open(channel->opening, reason, escaped);
	channel->dead = true;
}

/* ---- listeners ----------------------------------------------------------------------------- */

static struct sshc_listener *find_listener(struct sshc *conn, const char *address, uint16_t port)
{
	for (size_t i = 0; i < conn->listener_count; i++) {
		struct sshc_listener *listener = &conn->listeners[i];

		if (listener->port == port && (!address || !strcmp(listener->address, address)))
			return listener;
	}
	return NULL;
}

static uint16_t port_of(ssh_message message)
{
	return box_ssh_is_path(message) ? 0 : (uint16_t)ssh_message_global_request_port(message);
}

/* The port; -1: it does not listen. */
static int ask_listen(struct sshc *conn, const char *address, uint16_t port)
{
	struct buf *out = sshm_pipe_begin(conn->pipe, SSHM_LISTEN);
	uint32_t ticket = ++conn->last_ticket;
	struct wire_reader in;
	struct err err = ERR_INIT;
	bool same, ok;

	wire_put_u32(out, ticket);
	wire_put_str(out, address);
	wire_put_u16(out, port);
	if (sshc_ask(conn, SSHM_LISTENING) < 0)
		return -1;
	in = (struct wire_reader){ buf_head(&conn->answer),
		buf_head(&conn->answer) + conn->answer.len, false };
	same = wire_get_u32(&in) == ticket;
	ok = wire_get_u8(&in);
	port = wire_get_u16(&in);
	return wire_get_done(&in, &err) == 0 && same && ok ? port : -1;
}

int sshc_listen(struct sshc *conn, ssh_message message)
{
	const char *address = ssh_message_global_request_address(message);
	bool is_path = box_ssh_is_path(message);
	int port;

	if (!(conn->permits & SSHM_PERMIT_FORWARDING) || !is_place(address, is_path, true) ||
		conn->listener_count >= SSHM_LISTENERS_MAX)
		return 1;
	port = ask_listen(conn, address, port_of(message));
	if (port < 0 || (port == 0) != is_path)
		return 1;
	conn->listeners[conn->listener_count++] =
		(struct sshc_listener){ xstrdup(address), (uint16_t)port };
	ssh_message_global_request_reply_success(message, (uint16_t)port);
	return 0;
}

int sshc_unlisten(struct sshc *conn, ssh_message message)
{
	const char *address = ssh_message_global_request_address(message);
	struct sshc_listener *listener =
		address ? find_listener(conn, address, port_of(message)) : NULL;
	struct buf *out;

	if (!listener)
		return 1;
	out = sshm_pipe_begin(conn->pipe, SSHM_UNLISTEN);
	wire_put_str(out, listener->address);
	wire_put_u16(out, listener->port);
	sshm_pipe_send(conn->pipe, NULL, 0);
	free(listener->address);
	*listener = conn->listeners[--conn->listener_count];
	ssh_message_global_request_reply_success(message, 0);
	return 0;
}

/* ---- opened towards the client ------------------------------------------------------------- */

void sshc_incoming_free(struct sshc_incoming *incoming)
{
	if (!incoming)
		return;
	free(incoming->address);
	free(incoming->from);
	free(incoming);
}

/* A client knows its listeners by the address it asked for. */
static bool name_as_asked(struct sshc *conn, struct sshc_incoming *incoming)
{
	struct sshc_listener *listener;

	if (incoming->kind == SSHM_INCOMING_AGENT)
		return conn->agent_told;
	listener = find_listener(conn, incoming->address, incoming->port);
	if (!listener && incoming->kind == SSHM_INCOMING_TCP)
		listener = find_listener(conn, NULL, incoming->port);
	if (!listener)
		return false;
	free(incoming->address);
	incoming->address = xstrdup(listener->address);
	return true;
}

void sshc_incoming(struct sshc *conn, struct sshc_incoming *incoming, int fd)
{
	struct sshc_channel *channel;
	ssh_channel ssh = NULL;

	if (conn->channel_count < SSHM_CHANNELS_MAX && name_as_asked(conn, incoming))
		ssh = ssh_channel_new(conn->session);
	if (!ssh) {
		sshc_incoming_free(incoming);
		close(fd);
		return;
	}
	channel = sshc_channel_new(conn, SSHC_OPENING);
	channel->incoming = incoming;
	sshc_channel_bind(channel, ssh);
	sshc_channel_connect(channel, fd, -1);
}

void sshc_forward_settle(struct sshc_channel *channel)
{
	struct sshc_incoming *incoming = channel->incoming;
	int status;

	if (channel->kind != SSHC_OPENING || channel->dead)
		return;
	if (incoming->kind == SSHM_INCOMING_AGENT)
		status = ssh_channel_open_auth_agent(channel->ssh);
	else if (incoming->kind == SSHM_INCOMING_PATH)
		status = box_ssh_open_path(channel->ssh, incoming->address);
	else
		status = ssh_channel_open_reverse_forward(channel->ssh, incoming->address,
			incoming->port, incoming->from, incoming->from_port);
	if (status == SSH_AGAIN)
		return;
	if (status == SSH_OK)
		channel->kind = SSHC_TUNNEL;
	else
		channel->dead = true;
}
