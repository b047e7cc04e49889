/* session_signals.c - how a session handles signals; see session.c */
#include "cli/session_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "cli/terminal.h"

static const struct {
	int number;
	const char *name; /* as the API calls it; NULL: not forwarded */
} caught[] = {
	{ SIGINT, "INT" },
	{ SIGTERM, "TERM" },
	{ SIGHUP, "HUP" },
	{ SIGQUIT, "QUIT" },
	{ SIGWINCH, NULL },
	{ SIGCONT, NULL },
	{ SIGTSTP, NULL },
};
static volatile sig_atomic_t arrived[ARRAY_LEN(caught)];

static void on_signal(int number)
{
	for (size_t i = 0; i < ARRAY_LEN(caught); i++)
		if (caught[i].number == number)
			arrived[i] = 1;
}

void session_catch_signals(struct session *session)
{
	struct sigaction action = { .sa_handler = on_signal };
	sigset_t ours;

	sigemptyset(&ours);
	for (size_t i = 0; i < ARRAY_LEN(caught); i++) {
		struct sigaction old;

		/* ^Z stops us like any program, unless the terminal must be restored first. Signals
		 * that nohup or a shell ignores stay ignored. */
		if (caught[i].number == SIGTSTP && !session->raw)
			continue;
		sigaction(caught[i].number, NULL, &old);
		if (old.sa_handler == SIG_IGN)
			continue;
		sigaction(caught[i].number, &action, NULL);
		sigaddset(&ours, caught[i].number);
	}
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &ours, &session->outside);
}

void session_send_resize(struct session *session)
{
	uint16_t rows, cols;
	char text[64];

	if (!session->spec->tty ||
		!terminal_size(session->raw ? STDIN_FILENO : STDOUT_FILENO, &rows, &cols))
		return;
	snprintf(text, sizeof text, "{\"type\":\"resize\",\"rows\":%u,\"cols\":%u}", rows, cols);
	wsclient_send_text(session->ws, text);
}

void session_send_signal(struct session *session, const char *name)
{
	char text[64];

	snprintf(text, sizeof text, "{\"type\":\"signal\",\"signal\":\"%s\"}", name);
	wsclient_send_text(session->ws, text);
	if (wsclient_flush(session->ws) < 0 && !session->end)
		session->end = END_LOST;
}

static void stop_ourselves(struct session *session)
{
	terminal_restore();
	raise(SIGSTOP);
	terminal_raw(NULL);
	session_send_resize(session);
}

/* INT, TERM, HUP, QUIT. In a raw terminal they do not come from keys: somebody wants this client to
 * end. */
static void take_ending_signal(struct session *session, int number, const char *name)
{
	bool watching = !session->spec->body && (number == SIGHUP || !session->spec->input);
	int64_t now = clock_mono_us();

	if (session->raw || watching || !session->ws ||
		(number == SIGINT && session->interrupted_at &&
			now - session->interrupted_at < 1000000)) {
		if (session->raw && session->spec->body && session->ws)
			session_send_signal(session, "HUP");
		session->end = END_SIGNAL;
		session->exit_code = 128 + number;
		return;
	}
	if (number == SIGINT)
		session->interrupted_at = now;
	session_send_signal(session, name);
}

void session_take_signals(struct session *session)
{
	for (size_t i = 0; i < ARRAY_LEN(caught); i++) {
		if (!arrived[i])
			continue;
		arrived[i] = 0;
		if (caught[i].name)
			take_ending_signal(session, caught[i].number, caught[i].name);
		else if (caught[i].number == SIGTSTP)
			stop_ourselves(session);
		else if (session->ws) {
			if (caught[i].number == SIGCONT && session->raw)
				terminal_raw(NULL);
			else if (caught[i].number == SIGCONT && session->keys)
				terminal_lines();
			session_send_resize(session);
		}
	}
}
