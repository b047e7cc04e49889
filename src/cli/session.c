/* session.c - see session.h
 *
 * One poll loop over stdin, the WebSocket and signals. Signals are blocked except while we wait (in
 * ppoll) and while we write output, so none is lost between a look and a sleep, and a reader of our
 * output that hangs does not make us deaf.
 *
 *   raw terminal   every byte goes to the box, ^C and ^Z too; SIGWINCH becomes a resize
 *   otherwise	 INT TERM HUP QUIT become signal messages; a second INT within a second ends the
 *   client;
 * 		    ^Z stops the client as any program, and the box waits for us to read on
 *
 * Ctrl-p ctrl-q lets go wherever input comes from a terminal, also where that sends whole lines.
 *
 * A connection that breaks (the daemon is being restarted; box and program run on) is made anew for
 * up to ten seconds by attaching at the offset we have reached: the count of all bytes of both
 * streams, and of those we were told are lost. Input that was on its way in that moment may be
 * lost; output is not. */
#include "cli/session_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/terminal.h"
#include <errno.h>
#include <poll.h>

enum {
	RECONNECT_US = 10 * 1000000,
	RECONNECT_PAUSE_MS = 100,
	REPLY_US = 300000, /* time for a terminal to answer */
	EXIT_TIMEOUT = 124,
	LATE_US = 1000000, /* a running box reports a reached time limit within this time */
};

/* ---- output ---------------------------------------------------------------------------------- */

static void write_out(struct session *session, int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len && !session->end) {
		sigset_t before;
		ssize_t put;
		int why;

		sigprocmask(SIG_SETMASK, &session->outside, &before);
		put = write(fd, p, len);
		why = errno;
		sigprocmask(SIG_SETMASK, &before, NULL);
		if (put >= 0) {
			p += put;
			len -= (size_t)put;
		} else if (why == EINTR) {
			session_take_signals(session);
		} else if (why == EAGAIN) {
			ppoll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, NULL,
				&session->outside);
			session_take_signals(session);
		} else if (why == EPIPE) {
			session->end = END_PIPE;
		} else {
			err_sys(&session->err, why, "write output");
			session->end = END_ERROR;
			session->is_mute = true;
		}
	}
}

static void write_json(struct session *session, json_t *line)
{
	_cleanup_free_ char *text = json_text(line), *whole = xasprintf("%s\n", text);

	json_decref(line);
	write_out(session, STDOUT_FILENO, whole, strlen(whole));
}

static void write_json_output(struct session *session, uint8_t tag, const void *data, size_t len)
{
	bool plain = text_is_utf8(data, len);
	_cleanup_free_ char *encoded = plain ? NULL : base64_encode(data, len);

	write_json(session, json_pack("{s:s, s:s, s:I, s:o}", "type", "output", "stream",
				    tag == 2 ? "stderr" : "stdout", "offset",
				    (json_int_t)session->offset, plain ? "data" : "data_b64",
				    plain ? json_stringn(data, len) : json_string(encoded)));
}

/* Whether text contains a query to the terminal: its type, its colours, the cursor position. */
static bool asks_terminal(const char *text, size_t len)
{
	for (size_t i = 0; i + 2 < len; i++) {
		size_t end = i + 2;

		if (text[i] != '\033')
			continue;
		if (text[i + 1] == ']' || text[i + 1] == 'P') {
			while (end < len && text[end] != '\a' && text[end] != '\033' &&
				text[end] != '?')
				end++;
			if (text[i + 1] == 'P' || (end < len && text[end] == '?'))
				return true;
		} else if (text[i + 1] == '[') {
			while (end < len && text[end] < '@')
				end++;
			if (end < len && strchr("cnpqtu", text[end]))
				return true;
		}
	}
	return false;
}

/* Replayed output that contains such a query makes our terminal answer again, to a program that no
 * longer waits for it: a shell would take the answer for a command. So input is dropped until the
 * replay has been shown and answered. */
static void watch_replay(struct session *session, const void *data, size_t len)
{
	if (session->offset >= session->replay_end || !session->raw)
		return;
	session->replayed_at = clock_mono_us();
	session->asked |= asks_terminal(data, len);
}

static bool is_deaf(const struct session *session)
{
	return session->asked && (session->offset < session->replay_end ||
					 clock_mono_us() - session->replayed_at < REPLY_US);
}

static void on_data(uint8_t tag, const void *data, size_t len, void *arg)
{
	struct session *session = arg;

	watch_replay(session, data, len);
	if (session->cli->json)
		write_json_output(session, tag, data, len);
	else
		write_out(session, tag == 2 ? STDERR_FILENO : STDOUT_FILENO, data, len);
	session->offset += len;
}

/* ---- messages of the daemon ----------------------------------------------------------------- */

static const char *text_of(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static void take_start(struct session *session, json_t *message)
{
	const char *id = text_of(json_object_get(message, "exec"), "id");

	if (strlen(id) < sizeof session->exec)
		strcpy(session->exec, id);
	/* Output after a lost connection is new: its queries need their answers. */
	if (session->spec->body || session->started)
		return;
	session->started = true;
	session->replay_end = (uint64_t)json_integer_value(
		json_object_get(json_object_get(message, "exec"), "newest_offset"));
	if (session->spec->from_end && !session->offset)
		session->offset = session->replay_end;
}

static void take_gap(struct session *session, json_t *message)
{
	json_int_t lost = json_integer_value(json_object_get(message, "lost"));
	json_int_t offset = json_integer_value(json_object_get(message, "offset"));

	/* The message says where the gap begins; an attach at an offset that is no longer kept
	 * begins with one. */
	session->offset = (uint64_t)offset + (uint64_t)lost;
	if (!session->cli->json)
		cli_note(session->cli, "%lld bytes of output were lost", (long long)lost);
}

static void take_exit(struct session *session, json_t *message)
{
	bool timeout = !strcmp(text_of(message, "reason"), "timeout");

	session->exit_code = (int)json_integer_value(json_object_get(message, "exit_code")) & 0xff;
	if (timeout) {
		session->exit_code = EXIT_TIMEOUT;
		cli_note(session->cli, "the program reached its time limit");
	}
	session->killed = json_integer_value(json_object_get(message, "signal")) == SIGKILL;
	session->end = END_EXIT;
}

static void take_error(struct session *session, const char *text, size_t len)
{
	client_api_error(500, text, len, &session->err);
	/* The daemon reports this a little earlier than check_time would. */
	if (session->err.kind == ERR_TIMEOUT && session->deadline_us) {
		session->exit_code = EXIT_TIMEOUT;
		session->end = END_TIMEOUT;
		cli_note(session->cli, "%s", session->err.message);
		return;
	}
	/* A daemon that is being stopped says so; its successor takes over. */
	session->end =
		session->err.kind == ERR_UNAVAILABLE && session->exec[0] ? END_LOST : END_ERROR;
}

static void on_text(const char *text, size_t len, void *arg)
{
	struct session *session = arg;
	_cleanup_json_ json_t *message = json_loadb(text, len, 0, NULL);
	const char *type = text_of(message, "type");
	bool again = !strcmp(type, "start") && session->exec[0];

	if (session->end)
		return;
	if (session->cli->json && message && !again)
		write_json(session, json_incref(message));
	if (!strcmp(type, "start"))
		take_start(session, message);
	else if (!strcmp(type, "gap"))
		take_gap(session, message);
	else if (!strcmp(type, "exit"))
		take_exit(session, message);
	else if (!strcmp(type, "error"))
		take_error(session, text, len);
}

static const struct wsclient_ops socket_ops = { .on_text = on_text, .on_data = on_data };

/* ---- input ----------------------------------------------------------------------------------- */

static void send_eof(struct session *session)
{
	wsclient_send_text(session->ws, "{\"type\":\"eof\"}");
	session->sent_eof = true;
}

/* Finds ctrl-p ctrl-q, also across reads: a ctrl-p is held back until the next byte. */
static void send_keys(struct session *session, const uint8_t *data, size_t len)
{
	uint8_t out[INPUT_SIZE + 1];
	size_t count = 0;

	for (size_t i = 0; i < len; i++) {
		if (session->held_ctrl_p && data[i] == KEY_CTRL_Q) {
			session->end = END_DETACHED;
			break;
		}
		if (session->held_ctrl_p)
			out[count++] = KEY_CTRL_P;
		session->held_ctrl_p = data[i] == KEY_CTRL_P;
		if (!session->held_ctrl_p)
			out[count++] = data[i];
	}
	if (count)
		wsclient_send_data(session->ws, out, count);
}

static void read_input(struct session *session)
{
	ssize_t got = read(STDIN_FILENO, session->in, sizeof session->in);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got > 0 && is_deaf(session))
		return;
	if (got > 0 && session->keys) {
		send_keys(session, session->in, (size_t)got);
	} else if (got > 0) {
		wsclient_send_data(session->ws, session->in, (size_t)got);
	} else {
		session->input = false;
		if (session->raw) {
			/* The terminal was closed: as when ssh loses its line. */
			session->end = END_SIGNAL;
			session->exit_code = 128 + SIGHUP;
			if (session->spec->body)
				session_send_signal(session, "HUP");
		} else {
			send_eof(session);
		}
	}
}

/* ---- the connection ------------------------------------------------------------------------- */

static char *attach_path(const struct session *session, bool from_end)
{
	const char *box = session->spec->box, *input = session->spec->input ? "true" : "false";

	/* A program started here still gets signals, even without input. */
	if (session->spec->body)
		input = "true";
	if (from_end)
		return client_path("/v1/boxes/%s/execs/%s/attach?offset=end&stdin=%s", box,
			session->exec, input);
	return client_path("/v1/boxes/%s/execs/%s/attach?offset=%llu&stdin=%s", box, session->exec,
		(unsigned long long)session->offset, input);
}

static int begin(struct session *session, struct err *err)
{
	const struct session_spec *spec = session->spec;
	_cleanup_free_ char *path = NULL;

	if (spec->body)
		path = client_path("/v1/boxes/%s/exec", spec->box);
	else
		path = attach_path(session, spec->from_end);
	if (wsclient_open(session->cli->target, path, &socket_ops, session, &session->ws, err) < 0)
		return -1;
	if (spec->body) {
		_cleanup_free_ char *body = json_text(spec->body);

		wsclient_send_text(session->ws, body);
	} else {
		session_send_resize(session);
	}
	if (spec->body && !spec->input && !spec->tty)
		send_eof(session);
	return 0;
}

/* The program runs on: reconnects at the offset that was reached. */
static void reconnect(struct session *session)
{
	_cleanup_free_ char *path = attach_path(session, false);
	int64_t give_up = clock_mono_us() + RECONNECT_US;
	bool again_eof = session->sent_eof;
	struct err err = ERR_INIT;

	wsclient_free(steal_ptr(&session->ws));
	cli_note(session->cli, "connection to the daemon lost, trying again for %d seconds",
		RECONNECT_US / 1000000);
	session->end = END_NOT_YET;
	while (!session->end) {
		struct timespec pause = { .tv_nsec = RECONNECT_PAUSE_MS * 1000000 };

		ppoll(NULL, 0, &pause, &session->outside);
		session_take_signals(session);
		if (session->end)
			return;
		if (wsclient_open(session->cli->target, path, &socket_ops, session, &session->ws,
			    &err) == 0) {
			cli_note(session->cli, "connected again");
			session_send_resize(session);
			if (again_eof)
				send_eof(session);
			return;
		}
		if (err.kind != ERR_UNAVAILABLE || clock_mono_us() > give_up) {
			session->err = err;
			session->end = END_ERROR;
		}
	}
}

static void receive(struct session *session)
{
	int got = wsclient_receive(session->ws, &session->err);

	if (session->end || got > 0)
		return;
	session->end = got < 0 ? END_ERROR : END_LOST;
}

/* box-init keeps the time limit of a program, and no time passes in a suspended box: then only the
 * client ends. */
static const struct timespec *patience(const struct session *session, struct timespec *ret)
{
	int64_t left_us = session->deadline_us - clock_mono_us();

	if (!session->deadline_us)
		return NULL;
	left_us = MAX(left_us, 0);
	*ret = (struct timespec){ left_us / 1000000, left_us % 1000000 * 1000 };
	return ret;
}

static void check_time(struct session *session)
{
	_cleanup_free_ char *path = NULL;
	_cleanup_json_ json_t *box = NULL;

	if (!session->deadline_us || clock_mono_us() < session->deadline_us)
		return;
	session->deadline_us += LATE_US;
	path = client_path("/v1/boxes/%s", session->spec->box);
	if (client_get(session->cli->client, path, &box, NULL) < 0 ||
		!strcmp(text_of(box, "state"), "running"))
		return;
	session->exit_code = EXIT_TIMEOUT;
	session->end = END_TIMEOUT;
	cli_note(session->cli, "the program reached its time limit; box '%s' is %s",
		session->spec->box, text_of(box, "state"));
}

static void pump(struct session *session)
{
	receive(session);
	while (!session->end) {
		struct pollfd watch[2] = { { .fd = wsclient_get_fd(session->ws), .events = POLLIN },
			{ .fd = -1, .events = POLLIN } };
		struct timespec wait;

		/* A signal may have come while output was written; ppoll would not be woken by it
		 * again. */
		session_take_signals(session);
		if (session->end)
			break;
		if (wsclient_flush(session->ws) < 0)
			watch[0].events = POLLIN; /* read its last messages first */
		else if (wsclient_pending(session->ws))
			watch[0].events = POLLIN | POLLOUT;
		else if (session->input)
			watch[1].fd = STDIN_FILENO;
		if (ppoll(watch, 2, patience(session, &wait), &session->outside) < 0)
			continue;
		check_time(session);
		if (watch[0].revents & (POLLIN | POLLHUP | POLLERR))
			receive(session);
		if (!session->end && watch[1].revents)
			read_input(session);
	}
	if (session->end == END_DETACHED)
		wsclient_flush(session->ws);
}

/* Our output cannot be written any more, so the program gets HUP as over a lost line. Closing at
 * once could overtake that message: the daemon would fail to write to us before it reads. So
 * further output is dropped until the daemon closes; a program that ignores HUP is left behind
 * after a second. */
static void hang_up(struct session *session)
{
	struct pollfd watch = { .fd = wsclient_get_fd(session->ws), .events = POLLIN };
	int64_t give_up = clock_mono_us() + 1000000;

	session_send_signal(session, "HUP");
	while (clock_mono_us() < give_up && poll(&watch, 1, 100) >= 0)
		if (watch.revents && wsclient_receive(session->ws, NULL) <= 0)
			break;
}

/* A bare exit code 137 says little; the usual reason is memory. */
static void explain_kill(struct session *session)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/stats", session->spec->box);
	_cleanup_json_ json_t *stats = NULL;
	char limit[16];

	if (client_get(session->cli->client, path, &stats, NULL) < 0 ||
		json_integer_value(json_object_get(stats, "oom_kills")) == 0)
		return;
	format_size(
		(uint64_t)json_integer_value(json_object_get(stats, "memory_limit_bytes")), limit);
	cli_note(session->cli, "killed; the box has reached its memory limit of %s", limit);
}

static int finish(struct session *session)
{
	const char *box = session->spec->box;

	if ((session->end == END_PIPE || session->is_mute) && session->spec->body && session->ws)
		hang_up(session);
	wsclient_free(steal_ptr(&session->ws));
	terminal_restore();
	switch (session->end) {
	case END_PIPE:
		return 128 + SIGPIPE;
	case END_DETACHED:
		if (session->spec->ret_detached)
			*session->spec->ret_detached = true;
		if (!session->cli->quiet)
			fputc('\n', stderr); /* end the program's current line */
		cli_note(session->cli, "detached; 'box attach %s %s' comes back", box,
			session->exec);
		return 0;
	case END_SIGNAL:
		if (session->exec[0] && !session->raw)
			cli_note(session->cli, "left it running; 'box attach %s %s' comes back",
				box, session->exec);
		return session->exit_code;
	case END_TIMEOUT:
		return session->exit_code;
	case END_EXIT:
		if (session->spec->ret_exited)
			*session->spec->ret_exited = true;
		if (session->killed)
			explain_kill(session);
		return session->exit_code;
	default:
		if (session->err.kind == ERR_UNAVAILABLE && session->exec[0])
			cli_note(session->cli, "the program runs on; 'box attach %s %s' comes back",
				box, session->exec);
		else if (session->err.kind == ERR_LIMIT && session->exec[0])
			cli_note(session->cli, "the program waits; 'box attach %s %s' comes back",
				box, session->exec);
		return cli_fail(session->cli, &session->err);
	}
}

static int64_t deadline_of(const struct session_spec *spec)
{
	json_int_t ms = json_integer_value(json_object_get(spec->body, "timeout_ms"));

	return ms > 0 ? clock_mono_us() + ms * 1000 + LATE_US : 0;
}

int session_run(struct cli *cli, const struct session_spec *spec)
{
	struct session *session = xnew(struct session);
	struct err err = ERR_INIT;
	int ret;

	*session = (struct session){
		.cli = cli, .spec = spec, .input = spec->input, .offset = spec->offset
	};
	if (spec->exec && strlen(spec->exec) < sizeof session->exec)
		strcpy(session->exec, spec->exec);
	if (begin(session, &err) < 0) {
		free(session);
		return cli_fail(cli, &err);
	}
	session->deadline_us = deadline_of(spec);
	session->keys = spec->input && isatty(STDIN_FILENO);
	session->raw = session->keys && spec->tty;
	session_catch_signals(session);
	if (session->raw && terminal_raw(&session->err) < 0)
		session->end = END_ERROR;
	else if (session->keys && !session->raw)
		terminal_lines();
	while (!session->end) {
		pump(session);
		if (session->end == END_LOST && session->exec[0]) {
			reconnect(session);
		} else if (session->end == END_LOST) {
			err_set(&session->err, ERR_UNAVAILABLE, "the daemon closed the connection");
			session->end = END_ERROR;
		}
	}
	ret = finish(session);
	free(session);
	return ret;
}
