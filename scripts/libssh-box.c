/* box.c - what our libssh has in addition; compiled into it by scripts/libssh, see libssh-box.h */
#include "config.h"

#include "libssh/box.h"
#include "libssh/buffer.h"
#include "libssh/callbacks.h"
#include "libssh/channels.h"
#include "libssh/crypto.h"
#include "libssh/messages.h"
#include "libssh/misc.h"
#include "libssh/packet.h"
#include "libssh/pki.h"
#include "libssh/poll.h"
#include "libssh/priv.h"
#include "libssh/server.h"
#include "libssh/session.h"
#include "libssh/socket.h"
#include "libssh/ssh2.h"
#include <openssl/crypto.h>
#include <string.h>

enum {
	SIGNATURE_MAX = 4096,
	WINDOW = 2 * 1024 * 1024, /* as OpenSSH has it: an upload over a long line needs it */
	WINDOW_SMALL = 256 * 1024,
	CHANNELS_WITH_LARGE_WINDOW = 8,
	PACKET_MAX = 32768,
};

static box_ssh_signer sign_fn;
static void *sign_arg;

void box_ssh_set_signer(box_ssh_signer signer, void *arg)
{
	sign_fn = signer;
	sign_arg = arg;
}

int box_ssh_signs(void)
{
	return sign_fn != NULL;
}

ssh_string box_ssh_sign(ssh_session session)
{
	struct ssh_crypto_struct *crypto =
		session->next_crypto ? session->next_crypto : session->current_crypto;
	uint8_t signature[SIGNATURE_MAX];
	ssh_string blob;
	size_t len;

	if (crypto->secret_hash == NULL)
		return NULL;
	len = sign_fn(
		sign_arg, crypto->secret_hash, crypto->digest_len, signature, sizeof signature);
	if (len == 0 || len > sizeof signature) {
		ssh_set_error(session, SSH_FATAL, "the host key did not sign");
		return NULL;
	}
	blob = ssh_string_new(len);
	if (blob == NULL || ssh_string_fill(blob, signature, len) < 0) {
		SSH_STRING_FREE(blob);
		return NULL;
	}
	return blob;
}

int box_ssh_init(void)
{
	OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
	return ssh_init();
}

int box_ssh_accept(ssh_session session, int fd, const uint8_t *host_key, size_t len,
	const char *signature_algorithms)
{
	ssh_poll_handle handle;
	ssh_string blob;
	int rc;

	session->server = 1;
	session->server_opts.custombanner = strdup("Boxyard");
	SAFE_FREE(session->opts.pubkey_accepted_types);
	session->opts.pubkey_accepted_types = strdup(signature_algorithms);
	ssh_socket_free(session->socket);
	session->socket = ssh_socket_new(session);
	if (session->opts.pubkey_accepted_types == NULL || session->socket == NULL)
		return SSH_ERROR;
	if (ssh_socket_set_fd(session->socket, fd) != SSH_OK)
		return SSH_ERROR;
	handle = ssh_socket_get_poll_handle(session->socket);
	if (handle == NULL)
		return SSH_ERROR;
	ssh_socket_set_connected(session->socket, handle);

	blob = ssh_string_new(len);
	if (blob == NULL)
		return SSH_ERROR;
	rc = ssh_string_fill(blob, host_key, len);
	if (rc == 0)
		rc = ssh_pki_import_pubkey_blob(blob, &session->srv.ed25519_key);
	SSH_STRING_FREE(blob);
	if (rc == SSH_OK && ssh_key_type(session->srv.ed25519_key) != SSH_KEYTYPE_ED25519)
		rc = SSH_ERROR;
	return rc;
}

/* ---- logins -------------------------------------------------------------------------------- */

/* 1: read; 0: another method; -1: malformed, and the connection ends. */
int box_ssh_read_login(
	ssh_session session, ssh_buffer packet, const char *method, ssh_message message)
{
	struct ssh_auth_request *login = &message->auth_request;
	ssh_string host_key = NULL;
	uint8_t is_signed = 0;
	int rc;

	login->box_hostbound = strcmp(method, "publickey-hostbound-v00@openssh.com") == 0;
	if (!login->box_hostbound && strcmp(method, "publickey") != 0)
		return 0;
	rc = ssh_buffer_unpack(packet, "bsS", &is_signed, &login->sigtype, &login->box_key);
	/* The host key is part of what is signed: the daemon puts its own there. */
	if (rc == SSH_OK && login->box_hostbound) {
		rc = ssh_buffer_unpack(packet, "S", &host_key);
		SSH_STRING_FREE(host_key);
	}
	if (rc == SSH_OK && is_signed)
		rc = ssh_buffer_unpack(packet, "S", &login->box_signature);
	if (rc != SSH_OK || ssh_buffer_get_len(packet) != 0) {
		ssh_set_error(session, SSH_FATAL, "a malformed login");
		session->session_state = SSH_SESSION_STATE_ERROR;
		return -1;
	}
	login->method = SSH_AUTH_METHOD_PUBLICKEY;
	return 1;
}

int box_ssh_login(ssh_message message, struct box_ssh_login *ret)
{
	struct ssh_auth_request *login = &message->auth_request;

	if (message->type != SSH_REQUEST_AUTH || login->box_key == NULL || login->sigtype == NULL)
		return -1;
	*ret = (struct box_ssh_login){
		.algorithm = login->sigtype,
		.key = ssh_string_data(login->box_key),
		.key_len = ssh_string_len(login->box_key),
		.is_signed = login->box_signature != NULL,
		.is_hostbound = login->box_hostbound,
	};
	if (login->box_signature != NULL) {
		ret->signature = ssh_string_data(login->box_signature);
		ret->signature_len = ssh_string_len(login->box_signature);
	}
	return 0;
}

int box_ssh_login_would_do(ssh_message message)
{
	struct ssh_auth_request *login = &message->auth_request;
	int rc = ssh_buffer_pack(message->session->out_buffer, "bsS", SSH2_MSG_USERAUTH_PK_OK,
		login->sigtype, login->box_key);

	return rc == SSH_OK ? ssh_packet_send(message->session) : rc;
}

/* ---- channels ------------------------------------------------------------------------------ */

void box_ssh_terminal(ssh_message message, struct box_ssh_terminal *ret)
{
	struct ssh_channel_request *request = &message->channel_request;

	*ret = (struct box_ssh_terminal){
		.term = request->TERM, .rows = request->height, .cols = request->width
	};
	if (request->modes != NULL) {
		ret->modes = ssh_string_data(request->modes);
		ret->modes_len = ssh_string_len(request->modes);
	}
}

int box_ssh_is_path(ssh_message message)
{
	return message->type == SSH_REQUEST_GLOBAL ? message->global_request.box_path
						   : message->channel_request_open.box_path;
}

/* 1: read; 0: another request; -1: malformed. The port, which a path has not, is not 0: a success
 * would be answered with the port that was found. */
int box_ssh_read_listen(ssh_buffer packet, const char *request, ssh_message message)
{
	int cancel = strcmp(request, "cancel-streamlocal-forward@openssh.com") == 0;

	if (!cancel && strcmp(request, "streamlocal-forward@openssh.com") != 0)
		return 0;
	message->global_request.type =
		cancel ? SSH_GLOBAL_REQUEST_CANCEL_TCPIP_FORWARD : SSH_GLOBAL_REQUEST_TCPIP_FORWARD;
	message->global_request.box_path = 1;
	message->global_request.bind_port = 1;
	if (ssh_buffer_unpack(packet, "s", &message->global_request.bind_address) != SSH_OK)
		return -1;
	return 1;
}

int box_ssh_refuse_open(ssh_message message, uint32_t reason, const char *text)
{
	ssh_session session = message->session;
	int rc = ssh_buffer_pack(session->out_buffer, "bddss", SSH2_MSG_CHANNEL_OPEN_FAILURE,
		message->channel_request_open.sender, reason, text, "");

	return rc == SSH_OK ? ssh_packet_send(session) : rc;
}

int box_ssh_open_path(ssh_channel channel, const char *path)
{
	ssh_buffer payload = ssh_buffer_new();
	int rc;

	if (payload == NULL)
		return SSH_ERROR;
	rc = ssh_buffer_pack(payload, "ss", path, "");
	if (rc == SSH_OK)
		rc = box_ssh_channel_open(channel, "forwarded-streamlocal@openssh.com",
			box_ssh_window(channel->session), PACKET_MAX, payload);
	SSH_BUFFER_FREE(payload);
	return rc;
}

/* ---- buffers ------------------------------------------------------------------------------- */

uint32_t box_ssh_window(ssh_session session)
{
	return ssh_list_count(session->channels) <= CHANNELS_WITH_LARGE_WINDOW ? WINDOW
									       : WINDOW_SMALL;
}

const uint8_t *box_ssh_input(ssh_channel channel, size_t *ret_len)
{
	*ret_len = channel->stdout_buffer ? ssh_buffer_get_len(channel->stdout_buffer) : 0;
	return *ret_len ? ssh_buffer_get(channel->stdout_buffer) : NULL;
}

int box_ssh_input_taken(ssh_channel channel, size_t len)
{
	ssh_buffer_pass_bytes(channel->stdout_buffer, (uint32_t)len);
	/* After its end nothing more comes. */
	if (channel->remote_eof || channel->state != SSH_CHANNEL_STATE_OPEN)
		return SSH_OK;
	return box_ssh_grow_window(channel->session, channel);
}

size_t box_ssh_unsent(ssh_session session)
{
	return session->socket ? (size_t)ssh_socket_buffered_write_bytes(session->socket) : 0;
}

int box_ssh_is_rekeying(ssh_session session)
{
	return session->dh_handshake_state != DH_STATE_FINISHED;
}
