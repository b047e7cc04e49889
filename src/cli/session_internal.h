/* session_internal.h - the state of a session, shared by its loop and its signals */
#pragma once
#include "cli/cli.h"
#include "cli/session.h"
#include "client/wsclient.h"
#include <signal.h>

enum { INPUT_SIZE = 64 * 1024 };

enum session_end {
	END_NOT_YET,
	END_EXIT,     /* the program ended: exit_code */
	END_ERROR,    /* err says why */
	END_DETACHED, /* by the detach keys */
	END_PIPE,     /* our output cannot be written */
	END_TIMEOUT,  /* the time limit has passed, and the program cannot end: exit_code */
	END_SIGNAL,   /* we got a signal to end: exit_code */
	END_LOST,     /* the connection broke; try again */
};

struct session {
	struct cli *cli;
	const struct session_spec *spec;
	struct wsclient *ws;
	char exec[64];	 /* id; "" until it is known */
	uint64_t offset; /* of the next byte of output */
	enum session_end end;
	int exit_code;
	struct err err;
	bool keys;    /* stdin is a terminal */
	bool raw;     /* every byte of it goes to the program */
	bool input;   /* stdin is still to be forwarded */
	bool is_mute; /* output cannot be written */
	bool killed;  /* by SIGKILL */
	bool sent_eof;
	bool held_ctrl_p;
	uint64_t replay_end; /* attach: output up to here is a replay */
	int64_t replayed_at; /* when the last of the replay was shown */
	bool asked;	     /* the replay queries the terminal; see watch_replay() */
	bool started;	     /* attach: the first start message has come */
	/* when the time limit should have been reported at the latest; 0: no limit */
	int64_t deadline_us;
	int64_t interrupted_at; /* when INT was forwarded last */
	sigset_t outside;	/* signal mask while waiting */
	uint8_t in[INPUT_SIZE];
};

/* From here on signals are blocked, except while the session waits or writes. */
void session_catch_signals(struct session *session);
/* Handles arrived signals; may end the session. */
void session_take_signals(struct session *session);
void session_send_signal(struct session *session, const char *name); /* "HUP" */
void session_send_resize(struct session *session);
