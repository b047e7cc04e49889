/* login.c - logins: the client's claim goes to the daemon as it came, and the daemon decides
 *
 * Passwords do not exist here. A name or key out of bounds is refused without asking. After too
 * many refusals the connection ends. */
#include "loop/loop.h"
#include "ssh/connection/connection_internal.h"
#include <libssh/box.h>

enum { ALGORITHM_MAX = 128, GREETING_MAX = 4096 };

static void greet(struct sshc *conn)
{
	struct buf text = BUF_INIT;
	ssh_string banner;

	if (conn->greeted)
		return;
	conn->greeted = true;
	for (size_t i = 0; conn->greeting && conn->greeting[i]; i++)
		buf_addf(&text, "%s\r\n", conn->greeting[i]);
	if (text.len && text.len <= GREETING_MAX) {
		banner = ssh_string_from_char(buf_str(&text));
		ssh_send_issue_banner(conn->session, banner);
		ssh_string_free(banner);
	}
	buf_done(&text);
}

/* Returns the verdict; SSHM_VERDICT_CLOSE when there is none. */
static enum sshm_verdict ask(struct sshc *conn, const char *user, const struct box_ssh_login *login)
{
	struct buf *out = sshm_pipe_begin(conn->pipe, SSHM_LOGIN);
	struct wire_reader in;
	struct err err = ERR_INIT;
	uint8_t verdict;

	wire_put_str(out, user);
	wire_put_u8(out, login ? SSHM_LOGIN_KEY : SSHM_LOGIN_NONE);
	wire_put_str(out, login ? login->algorithm : "");
	sshm_put_blob(out, login ? login->key : NULL, login ? login->key_len : 0);
	wire_put_u8(out, login ? (uint8_t)login->is_hostbound : 0);
	sshm_put_blob(out, login ? login->signature : NULL, login ? login->signature_len : 0);
	if (sshc_ask(conn, SSHM_VERDICT) < 0)
		return SSHM_VERDICT_CLOSE;
	in = (struct wire_reader){ buf_head(&conn->answer),
		buf_head(&conn->answer) + conn->answer.len, false };
	verdict = wire_get_u8(&in);
	conn->permits = wire_get_u32(&in);
	if (wire_get_done(&in, &err) < 0)
		return SSHM_VERDICT_CLOSE;
	return (enum sshm_verdict)verdict;
}

static int refuse(struct sshc *conn)
{
	if (++conn->failures < SSHC_LOGIN_FAILURES_MAX)
		return 1;
	sshc_end(conn, "too many logins were refused");
	return 0;
}

static void let_in(struct sshc *conn, ssh_message message)
{
	conn->logged_in = true;
	loop_timer_stop(conn->deadline);
	ssh_message_auth_reply_success(message, 0);
}

static bool is_bounded(const struct box_ssh_login *login)
{
	return sshc_is_printable(login->algorithm, ALGORITHM_MAX) && login->key_len > 0 &&
	       login->key_len <= SSHM_BLOB_MAX && login->signature_len <= SSHM_BLOB_MAX &&
	       (!login->is_signed || login->signature_len > 0);
}

static int login_by_key(struct sshc *conn, ssh_message message, const char *user)
{
	struct box_ssh_login login;

	if (box_ssh_login(message, &login) < 0 || !is_bounded(&login))
		return refuse(conn);
	switch (ask(conn, user, &login)) {
	case SSHM_VERDICT_WOULD_DO:
		if (login.is_signed)
			return refuse(conn);
		box_ssh_login_would_do(message);
		return 0;
	case SSHM_VERDICT_IN:
		if (!login.is_signed)
			return refuse(conn);
		let_in(conn, message);
		return 0;
	case SSHM_VERDICT_NO:
		return refuse(conn);
	case SSHM_VERDICT_CLOSE:
		break;
	}
	sshc_end(conn, "the login was refused");
	return 0;
}

/* Clients begin with it, to hear what else there is: it counts only where it may do. */
static int login_by_nothing(struct sshc *conn, ssh_message message, const char *user)
{
	if (!conn->local)
		return 1;
	switch (ask(conn, user, NULL)) {
	case SSHM_VERDICT_IN:
		let_in(conn, message);
		return 0;
	case SSHM_VERDICT_CLOSE:
		sshc_end(conn, "the login was refused");
		return 0;
	case SSHM_VERDICT_NO:
	case SSHM_VERDICT_WOULD_DO:
		break;
	}
	return refuse(conn);
}

int sshc_login(struct sshc *conn, ssh_message message)
{
	const char *user = ssh_message_auth_user(message);

	if (conn->logged_in || conn->over)
		return 1;
	greet(conn);
	if (!user || !sshc_is_printable(user, SSHC_USER_MAX))
		return refuse(conn);
	switch ((unsigned)ssh_message_subtype(message)) {
	case SSH_AUTH_METHOD_PUBLICKEY:
		return login_by_key(conn, message, user);
	case SSH_AUTH_METHOD_NONE:
		return login_by_nothing(conn, message, user);
	default:
		return refuse(conn);
	}
}
