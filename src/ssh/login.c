/* login.c - who comes in by SSH: the daemon signs, and verifies by itself
 *
 * The process of a connection reads an attacker's bytes before any login, so its word is worth
 * nothing. The daemon signs the hash of the first key exchange with the host key: that hash is the
 * session's id, and a login is a signature by the client's key over this id, the user name and the
 * key (RFC 4252, section 7). The daemon puts these bytes together itself and verifies the
 * signature; the process only passes on what came. A process that lies can do no more than a client
 * that lies. */
#include "ssh/sshd_internal.h"
#include "ssh/hostkey.h"
#include "base/buf.h"
#include "sshkey/cert.h"
#include "sshkey/reader.h"
#include "sshkey/sshkey.h"
#include <endian.h>
#include <pwd.h>

enum {
	HASH_LEAST = 32,
	SIGNS_OUTSIDE = 4, /* key exchanges before a login */
	TRIES_MAX = 20,	   /* keys shown, with a signature or without */
	MSG_USERAUTH_REQUEST = 50,
};

/* ---- the host key --------------------------------------------------------------------------- */

int login_sign(struct peer *peer, struct wire_reader *in, struct err *err)
{
	uint8_t signature[HOSTKEY_SIGNATURE_SIZE];
	size_t len;
	const uint8_t *hash = sshm_get_blob(in, SESSION_ID_MAX, &len);

	if (wire_get_done(in, err) < 0)
		return -1;
	if (len < HASH_LEAST)
		return err_set(err, ERR_PROTOCOL, "a hash of %zu bytes", len);
	if (!peer->in && ++peer->signs > SIGNS_OUTSIDE)
		return err_set(err, ERR_PROTOCOL, "too many key exchanges before a login");
	if (!peer->session_len) {
		memcpy(peer->session, hash, len);
		peer->session_len = len;
	}
	if (hostkey_sign(hostkeys_get(peer->sshd->hostkeys, 0), hash, len, signature, err) < 0)
		return -1;
	sshm_put_blob(sshm_pipe_begin(peer->pipe, SSHM_SIGNED), signature, sizeof signature);
	sshm_pipe_send(peer->pipe, NULL, 0);
	return 0;
}

/* ---- the client's key ----------------------------------------------------------------------- */

static void put_string(struct buf *out, const void *data, size_t len)
{
	uint32_t big = htobe32((uint32_t)len);

	buf_add(out, &big, sizeof big);
	buf_add(out, data, len);
}

static void put_text(struct buf *out, const char *text)
{
	put_string(out, text, strlen(text));
}

/* What a client asked for, borrowed from its message. */
struct ask {
	const char *user, *algorithm;
	enum sshm_login_method method;
	const uint8_t *key, *signature;
	size_t key_len, signature_len;
	bool hostbound;
};

/* What the client has signed, put together by us. */
static void signed_bytes(const struct peer *peer, const struct ask *ask, struct buf *out)
{
	put_string(out, peer->session, peer->session_len);
	buf_add(out, &(uint8_t){ MSG_USERAUTH_REQUEST }, 1);
	put_text(out, ask->user);
	put_text(out, "ssh-connection");
	put_text(out, ask->hostbound ? "publickey-hostbound-v00@openssh.com" : "publickey");
	buf_add(out, &(uint8_t){ 1 }, 1);
	put_text(out, ask->algorithm);
	put_string(out, ask->key, ask->key_len);
	if (ask->hostbound) {
		struct bytes host = hostkey_get_blob(hostkeys_get(peer->sshd->hostkeys, 0));

		put_string(out, host.data, host.len);
	}
}

/* An algorithm without what says that the key is in a certificate or on a token. */
static size_t algorithm_stem(const char *name, size_t len)
{
	static const char *const suffixes[] = { "-cert-v01@openssh.com", "@openssh.com" };

	for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
		size_t tail = strlen(suffixes[i]);

		if (len > tail && !memcmp(name + len - tail, suffixes[i], tail))
			return len - tail;
	}
	return len;
}

/* The algorithm in the signature must be the one that was asked for (and signed). */
static bool is_same_algorithm(const struct ask *ask)
{
	struct ssh_reader in =
		ssh_reader_of((struct bytes){ .data = ask->signature, .len = ask->signature_len });
	struct bytes name = ssh_read_string(&in);
	size_t len = algorithm_stem(ask->algorithm, strlen(ask->algorithm));

	return !in.bad && algorithm_stem((const char *)name.data, name.len) == len &&
	       !memcmp(name.data, ask->algorithm, len);
}

static int verify(const struct peer *peer, const struct ask *ask, struct err *err)
{
	struct buf data = BUF_INIT;
	struct sshcert cert;
	struct sshkey key;
	int result = -1;

	if (sshkey_is_cert(ask->key, ask->key_len)) {
		if (sshcert_read(ask->key, ask->key_len, &cert, err) < 0)
			return -1;
		key = cert.key;
	} else if (sshkey_read(ask->key, ask->key_len, &key, err) < 0) {
		return -1;
	}
	if (!is_same_algorithm(ask))
		return err_set(err, ERR_UNAUTHORIZED, "the signature is of another algorithm");
	signed_bytes(peer, ask, &data);
	result = sshkey_verify(
		&key, ask->signature, ask->signature_len, buf_head(&data), data.len, err);
	buf_done(&data);
	return result;
}

static int read_ask(struct wire_reader *in, struct ask *ret, struct err *err)
{
	ret->user = wire_get_str(in, AUTH_SSH_USER_MAX);
	ret->method = (enum sshm_login_method)wire_get_u8(in);
	ret->algorithm = wire_get_str(in, 64);
	ret->key = sshm_get_blob(in, AUTH_SSH_BLOB_MAX, &ret->key_len);
	ret->hostbound = wire_get_u8(in) != 0;
	ret->signature = sshm_get_blob(in, SSHM_BLOB_MAX, &ret->signature_len);
	return wire_get_done(in, err);
}

static void answer(struct peer *peer, enum sshm_verdict verdict)
{
	unsigned restricted = peer->principal.restricted, permits = 0;
	struct buf *out = sshm_pipe_begin(peer->pipe, SSHM_VERDICT);

	permits |= restricted & KEY_NO_PTY ? 0 : SSHM_PERMIT_PTY;
	permits |= restricted & KEY_NO_FORWARDING ? 0 : SSHM_PERMIT_FORWARDING;
	permits |= restricted & KEY_NO_AGENT ? 0 : SSHM_PERMIT_AGENT;
	wire_put_u8(out, (uint8_t)verdict);
	wire_put_u32(out, verdict == SSHM_VERDICT_IN ? permits : 0);
	sshm_pipe_send(peer->pipe, NULL, 0);
}

static struct auth_ssh_ask auth_ask(const struct peer *peer, const struct ask *ask)
{
	bool cert = ask && sshkey_is_cert(ask->key, ask->key_len);

	return (struct auth_ssh_ask){
		.key = ask && !cert ? ask->key : NULL,
		.key_len = ask && !cert ? ask->key_len : 0,
		.cert = cert ? ask->key : NULL,
		.cert_len = cert ? ask->key_len : 0,
		.user = ask ? ask->user : peer->user,
		.peer = peer->address,
	};
}

/* What the connection is for: the user name says it, unless the connection itself does. */
static void read_name(struct peer *peer, const char *user)
{
	char text[PROXY_NAME_MAX + 1];
	const struct passwd *local = peer->from_box ? NULL : getpwuid(peer->uid);
	const char *name = user;

	if (*peer->named) {
		if (proxy_login(peer->named, user, local ? local->pw_name : "", text,
			    &peer->login_problem) < 0)
			return;
		name = text;
	}
	login_name_parse(name, strlen(name), &peer->login, &peer->login_problem);
}

static void enter(struct peer *peer, const char *user)
{
	snprintf(peer->user, sizeof peer->user, "%s", user);
	peer->in = true;
	read_name(peer, user);
	sshd_peer_in(peer);
	answer(peer, SSHM_VERDICT_IN);
}

static void refuse(struct peer *peer, const struct ask *ask, const struct err *why)
{
	snprintf(peer->user, sizeof peer->user, "%s", ask->user);
	snprintf(peer->refusal, sizeof peer->refusal, "%s", why->message);
	answer(peer, why->kind == ERR_LIMIT ? SSHM_VERDICT_CLOSE : SSHM_VERDICT_NO);
}

/* The connection is the credential: the unix socket, or one that a box made. */
static void ask_by_socket(struct peer *peer, const struct ask *ask)
{
	struct err err = ERR_INIT;

	if (!peer->local) {
		err_set(&err, ERR_UNAUTHORIZED, "no key was shown");
		refuse(peer, ask, &err);
		return;
	}
	if (!peer->from_box)
		auth_by_socket(peer->sshd->auth, peer->uid, &peer->principal);
	enter(peer, ask->user);
}

static void ask_by_key(struct peer *peer, const struct ask *ask)
{
	struct auth_ssh_ask question = auth_ask(peer, ask);
	struct err err = ERR_INIT;
	struct principal principal;

	question.proven = ask->signature_len > 0;
	if (question.proven && verify(peer, ask, &err) < 0) {
		auth_strike(peer->sshd->auth, peer->address, &err);
		refuse(peer, ask, &err);
		return;
	}
	if (auth_ssh_key(peer->sshd->auth, &question, &principal, &err) < 0) {
		/* A question is free: an agent shows all the keys it has. */
		if (!question.proven && err.kind == ERR_LIMIT)
			err.kind = ERR_UNAUTHORIZED;
		refuse(peer, ask, &err);
		return;
	}
	if (!question.proven) {
		answer(peer, SSHM_VERDICT_WOULD_DO);
		return;
	}
	peer->principal = principal;
	enter(peer, ask->user);
}

int login_ask(struct peer *peer, struct wire_reader *in, struct err *err)
{
	struct ask ask;

	if (read_ask(in, &ask, err) < 0)
		return -1;
	if (peer->in)
		return err_set(err, ERR_PROTOCOL, "a second login");
	if (!peer->session_len)
		return err_set(err, ERR_PROTOCOL, "a login before the key exchange");
	if (++peer->tries > TRIES_MAX)
		return err_set(err, ERR_PROTOCOL, "too many keys");
	if (ask.method == SSHM_LOGIN_NONE)
		ask_by_socket(peer, &ask);
	else if (ask.method == SSHM_LOGIN_KEY)
		ask_by_key(peer, &ask);
	else
		return err_set(err, ERR_PROTOCOL, "an unknown kind of login");
	return 0;
}

void login_ended(struct peer *peer, const char *why)
{
	struct auth_ssh_ask nobody = auth_ask(peer, NULL);

	if (peer->in || peer->ended)
		return;
	auth_ssh_refused(peer->sshd->auth, &nobody,
		*peer->refusal ? peer->refusal
		: *why	       ? why
			       : "no key was offered");
}
