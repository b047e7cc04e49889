/* process.c - main of `box ssh-connection`: START, privileges, the loop, the end
 *
 * Everything that needs a file or a privilege happens before the first byte of the client is read.
 * Work that libssh's callbacks leave behind is done by settle(), from the loop. */
#include "base/log.h"
#include "base/strv.h"
#include "loop/loop.h"
#include "ssh/connection/connection_internal.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { START_MS = 10 * 1000, GOODBYE_MS = 1000 };

void sshc_escape(char *ret, size_t room, const char *text)
{
	size_t len = 0;

	for (; *text && len + 5 <= room; text++) {
		unsigned char c = (unsigned char)*text;

		if (c >= ' ' && c < 0x7f && c != '\\')
			ret[len++] = (char)c;
		else
			len += (size_t)snprintf(ret + len, room - len, "\\x%02x", c);
	}
	ret[len] = '\0';
}

bool sshc_is_printable(const char *text, size_t max)
{
	size_t len = strnlen(text, max + 1);

	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] >= 0x7f)
			return false;
	return len > 0 && len <= max;
}

static void settle(void *arg)
{
	struct sshc *conn = arg;

	conn->settling = false;
	if (!conn->over)
		sshc_letters_settle(conn);
	for (struct sshc_channel *channel = conn->channels; channel && !conn->over;
		channel = channel->next) {
		sshc_forward_settle(channel);
		sshc_channel_settle(channel);
	}
	if (conn->over) {
		loop_stop(conn->loop);
		return;
	}
	sshc_channels_sweep(conn);
	sshc_session_watch(conn);
}

void sshc_touch(struct sshc *conn)
{
	if (conn->settling)
		return;
	conn->settling = true;
	loop_defer(conn->loop, settle, conn);
}

void sshc_end(struct sshc *conn, const char *fmt, ...)
{
	char why[sizeof conn->why];
	va_list args;

	if (conn->over)
		return;
	va_start(args, fmt);
	vsnprintf(why, sizeof why, fmt, args);
	va_end(args);
	sshc_escape(conn->why, sizeof conn->why, why);
	conn->over = true;
	sshc_touch(conn);
}

static void on_deadline(void *arg)
{
	struct sshc *conn = arg;

	if (!conn->logged_in)
		sshc_end(conn, "no login within %u s", (conn->login_ms + 999) / 1000);
}

/* ---- life ---------------------------------------------------------------------------------- */

static int check_fds(void)
{
	if (fcntl(SSHC_CLIENT_FD, F_SETFD, FD_CLOEXEC) < 0 ||
		fcntl(SSHC_DAEMON_FD, F_SETFD, FD_CLOEXEC) < 0)
		return -1;
	return close_range(SSHC_DAEMON_FD + 1, ~0U, 0);
}

static int await_start(struct sshc *conn)
{
	while (!conn->started && !conn->over)
		if (sshm_pipe_wait(conn->pipe, START_MS) < 0)
			return -1;
	return conn->started ? 0 : -1;
}

/* A client that vanished is noticed after some minutes, also when nobody sends anything. */
static void set_socket(void)
{
	static const struct {
		int level, option, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 120 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 30 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 6 },
	};

	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		setsockopt(SSHC_CLIENT_FD, options[i].level, options[i].option, &options[i].value,
			sizeof options[i].value);
	fcntl(SSHC_CLIENT_FD, F_SETFL, O_NONBLOCK);
}

static void open_conn(struct sshc *conn)
{

	conn->last_letter = &conn->letters;
	conn->loop = loop_new();
	conn->pipe = sshm_pipe_new(conn->loop, SSHC_DAEMON_FD, &sshc_pipe_ops, conn);
	conn->deadline = loop_timer_new(conn->loop, on_deadline, conn);
	set_socket();
}

static void say_goodbye(struct sshc *conn)
{
	wire_put_str(sshm_pipe_begin(conn->pipe, SSHM_ENDED), conn->logged_in ? "" : conn->why);
	sshm_pipe_send(conn->pipe, NULL, 0);
	while (sshm_pipe_queued(conn->pipe) && sshm_pipe_wait(conn->pipe, GOODBYE_MS) == 0)
		;
}

int sshc_main(void)
{
	static const int ignored[] = { SIGPIPE, SIGINT, SIGHUP }; /* it ends with the daemon */
	struct sshc *conn = xnew(struct sshc);
	struct err err = ERR_INIT;

	prctl(PR_SET_NAME, "box-ssh");
	for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
		signal(ignored[i], SIG_IGN);
	if (check_fds() < 0) {
		fprintf(stderr, "box ssh-connection is started by the daemon\n");
		return 64;
	}
	open_conn(conn);
	if (await_start(conn) < 0)
		return 1;
	if (sshc_session_open(conn, &err) < 0 || sshc_drop_privileges(&err) < 0) {
		log_error("a connection is not served", kv_err(&err));
		return 1;
	}
	loop_timer_start(conn->deadline, conn->login_ms);
	sshc_session_pump(conn);
	sshc_touch(conn);
	loop_run(conn->loop);
	say_goodbye(conn);
	sshc_session_close(conn, conn->why);
	/* Nothing to tidy up: the process owns nothing but its memory. */
	_exit(0);
}

const char *ssh_library_version(void)
{
	static char version[32];
	const char *whole = ssh_version(0); /* "0.12.2/openssl/…" */

	snprintf(version, sizeof version, "%.*s", (int)strcspn(whole, "/"), whole);
	return version;
}
