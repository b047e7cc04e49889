/* session.c - libssh's session: what is agreed on with the client, and when it is served
 *
 * The session does not block. Only its own socket is in its ssh_event; the loop watches that socket
 * and has the event look at it. */
#include "loop/loop.h"
#include "ssh/connection/connection_internal.h"
#include <libssh/box.h>

enum { SIGNATURE_MAX = 4096, FLUSH_MS = 500 };

/* Key exchanges that resist quantum computers first; none with groups that the server chooses. */
#define KEX                                                                                \
	"mlkem768x25519-sha256,sntrup761x25519-sha512,sntrup761x25519-sha512@openssh.com," \
	"curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,"               \
	"ecdh-sha2-nistp384,ecdh-sha2-nistp521,diffie-hellman-group16-sha512,"             \
	"diffie-hellman-group18-sha512"
#define CIPHERS                                                                        \
	"chacha20-poly1305@openssh.com,aes256-gcm@openssh.com,aes128-gcm@openssh.com," \
	"aes256-ctr,aes192-ctr,aes128-ctr"
#define MACS "hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com"
#define SIGNATURES                                                                        \
	"ssh-ed25519,sk-ssh-ed25519@openssh.com,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384," \
	"ecdsa-sha2-nistp521,sk-ecdsa-sha2-nistp256@openssh.com,rsa-sha2-512,rsa-sha2-256"

static size_t sign(void *arg, const uint8_t *hash, size_t len, uint8_t *signature, size_t room)
{
	struct sshc *conn = arg;
	struct wire_reader in;
	const uint8_t *blob;
	size_t blob_len;
	struct err err = ERR_INIT;

	sshm_put_blob(sshm_pipe_begin(conn->pipe, SSHM_SIGN), hash, len);
	if (sshc_ask(conn, SSHM_SIGNED) < 0)
		return 0;
	in = (struct wire_reader){ buf_head(&conn->answer),
		buf_head(&conn->answer) + conn->answer.len, false };
	blob = sshm_get_blob(&in, SIGNATURE_MAX, &blob_len);
	if (wire_get_done(&in, &err) < 0 || blob_len > room)
		return 0;
	memcpy(signature, blob, blob_len);
	return blob_len;
}

static int set_options(ssh_session session, struct err *err)
{
	static const struct {
		enum ssh_options_e option;
		const char *value;
	} lists[] = {
		{ SSH_OPTIONS_KEY_EXCHANGE, KEX },
		{ SSH_OPTIONS_HOSTKEYS, "ssh-ed25519" },
		{ SSH_OPTIONS_CIPHERS_C_S, CIPHERS },
		{ SSH_OPTIONS_CIPHERS_S_C, CIPHERS },
		{ SSH_OPTIONS_HMAC_C_S, MACS },
		{ SSH_OPTIONS_HMAC_S_C, MACS },
		{ SSH_OPTIONS_COMPRESSION_C_S, "none" },
		{ SSH_OPTIONS_COMPRESSION_S_C, "none" },
	};
	uint64_t rekey_bytes = SSHC_REKEY_BYTES;
	uint32_t rekey_s = SSHC_REKEY_MS / 1000;
	bool no = false;

	if (ssh_options_set(session, SSH_OPTIONS_PROCESS_CONFIG, &no) < 0)
		return err_set(err, ERR_SYSTEM, "libssh: %s", ssh_get_error(session));
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		if (ssh_options_set(session, lists[i].option, lists[i].value) < 0)
			return err_set(err, ERR_SYSTEM, "libssh: '%s': %s", lists[i].value,
				ssh_get_error(session));
	if (ssh_options_set(session, SSH_OPTIONS_REKEY_DATA, &rekey_bytes) < 0 ||
		ssh_options_set(session, SSH_OPTIONS_REKEY_TIME, &rekey_s) < 0)
		return err_set(err, ERR_SYSTEM, "libssh: %s", ssh_get_error(session));
	return 0;
}

static void on_client_ready(void *arg, unsigned ready)
{
	(void)ready;
	sshc_session_pump(arg);
}

int sshc_session_open(struct sshc *conn, struct err *err)
{
	ssh_set_log_level(SSH_LOG_NOLOG);
	if (box_ssh_init() < 0)
		return err_set(err, ERR_SYSTEM, "libssh does not start");
	conn->session = ssh_new();
	conn->event = ssh_event_new();
	if (!conn->session || !conn->event)
		return err_set(err, ERR_SYSTEM, "libssh has no memory");
	if (set_options(conn->session, err) < 0)
		return -1;
	box_ssh_set_signer(sign, conn);
	if (box_ssh_accept(conn->session, SSHC_CLIENT_FD, buf_head(&conn->host_key),
		    conn->host_key.len, SIGNATURES) < 0)
		return err_set(err, ERR_INVALID, "libssh does not take the host key or the socket");
	ssh_set_blocking(conn->session, 0);
	ssh_set_auth_methods(conn->session, SSH_AUTH_METHOD_PUBLICKEY);
	ssh_set_message_callback(conn->session, sshc_on_message, conn);
	conn->watch = loop_fd_new(conn->loop, SSHC_CLIENT_FD, LOOP_READ, on_client_ready, conn);
	conn->watched = LOOP_READ;
	return 0;
}

/* Sends our greeting; what follows of the key exchange comes by the event. */
static bool begin(struct sshc *conn)
{
	if (conn->begun)
		return true;
	conn->begun = true;
	return ssh_handle_key_exchange(conn->session) != SSH_ERROR &&
	       ssh_event_add_session(conn->event, conn->session) == SSH_OK;
}

void sshc_session_pump(struct sshc *conn)
{
	if (conn->over)
		return;
	if (!begin(conn) || ssh_event_dopoll(conn->event, 0) == SSH_ERROR ||
		!ssh_is_connected(conn->session) ||
		ssh_get_status(conn->session) & (SSH_CLOSED | SSH_CLOSED_ERROR)) {
		const char *why = ssh_get_error(conn->session);

		sshc_end(conn, "%s", why && *why ? why : "the client has gone");
	}
	sshc_touch(conn);
}

void sshc_session_watch(struct sshc *conn)
{
	unsigned ready = 0;

	if (box_ssh_unsent(conn->session) < SSHC_UNSENT_STOP)
		ready |= LOOP_READ;
	if (ssh_get_poll_flags(conn->session) & SSH_WRITE_PENDING)
		ready |= LOOP_WRITE;
	if (ready != conn->watched)
		loop_fd_set(conn->watch, ready);
	conn->watched = ready;
}

void sshc_session_close(struct sshc *conn, const char *text)
{
	if (!ssh_is_connected(conn->session))
		return;
	ssh_session_set_disconnect_message(conn->session, text);
	ssh_blocking_flush(conn->session, FLUSH_MS);
	ssh_disconnect(conn->session);
}
