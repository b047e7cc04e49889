/* box.h - what our libssh has in addition: see scripts/libssh-changes
 *
 * One connection a process: the signer belongs to the process. */
#ifndef LIBSSH_BOX_H
#define LIBSSH_BOX_H

#include <libssh/libssh.h>
#include <stddef.h>
#include <stdint.h>

struct ssh_buffer_struct;

/* Signs the hash of a key exchange. Writes the signature (SSH format, at most room bytes) and
 * returns its length; 0: there is none, and the connection ends. */
typedef size_t (*box_ssh_signer)(
	void *arg, const uint8_t *hash, size_t len, uint8_t *signature, size_t room);
void box_ssh_set_signer(box_ssh_signer signer, void *arg);

/* As ssh_init, without a settings file of OpenSSL. */
int box_ssh_init(void);
/* Makes a server of session, on a connected socket, with a public host key (SSH format) and the
 * algorithms of signatures to announce. */
int box_ssh_accept(ssh_session session, int fd, const uint8_t *host_key, size_t len,
	const char *signature_algorithms);

/* A login by public key, as the client sent it; borrowed from the message. Without a signature it
 * is the question whether the key would do. -1: the message is none. */
struct box_ssh_login {
	const char *algorithm;
	const uint8_t *key, *signature;
	size_t key_len, signature_len;
	int is_signed, is_hostbound;
};
int box_ssh_login(ssh_message message, struct box_ssh_login *ret);
int box_ssh_login_would_do(ssh_message message); /* answers the question with yes */

/* Of a request for a terminal, or of its new size; borrowed from the message. */
struct box_ssh_terminal {
	const char *term;
	uint32_t rows, cols;
	const uint8_t *modes; /* as RFC 4254, 8 encodes them; NULL: none */
	size_t modes_len;
};
void box_ssh_terminal(ssh_message message, struct box_ssh_terminal *ret);
int box_ssh_is_path(ssh_message message); /* of a channel or listener: the name is a path */
int box_ssh_refuse_open(ssh_message message, uint32_t reason, const char *text);
/* As ssh_channel_open_reverse_forward, for a listener on a path. */
int box_ssh_open_path(ssh_channel channel, const char *path);

/* What the channel received and nobody has taken; borrowed until the next call of the library. */
const uint8_t *box_ssh_input(ssh_channel channel, size_t *ret_len);
int box_ssh_input_taken(ssh_channel channel, size_t len);
size_t box_ssh_unsent(ssh_session session); /* bytes that the socket has not taken */
int box_ssh_is_rekeying(ssh_session session);

/* For the changed source itself. */
int box_ssh_signs(void);
ssh_string box_ssh_sign(ssh_session session);
int box_ssh_read_login(ssh_session session, struct ssh_buffer_struct *packet, const char *method,
	ssh_message message);
int box_ssh_read_listen(
	struct ssh_buffer_struct *packet, const char *request, ssh_message message);
uint32_t box_ssh_window(ssh_session session);
int box_ssh_grow_window(ssh_session session, ssh_channel channel);
int box_ssh_channel_open(ssh_channel channel, const char *type, uint32_t window,
	uint32_t maxpacket, struct ssh_buffer_struct *payload);

#endif
