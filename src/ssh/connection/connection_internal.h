/* connection_internal.h - see connection.h
 *
 * libssh calls back from within nearly all of its functions, those that write included. So
 * callbacks change fields, write to descriptors and send messages, but free nothing and close no
 * channel; sshc_settle does that, from the loop. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "ssh/connection/connection.h"
#include "ssh/message.h"
#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <libssh/server.h>
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct loop_fd;
struct loop_timer;

enum {
	SSHC_CLIENT_FD = 3,
	SSHC_DAEMON_FD = 4,
	SSHC_LOGIN_FAILURES_MAX = 6,
	SSHC_USER_MAX = 128,
	SSHC_ENV_BYTES_MAX = 32 * 1024,
	SSHC_NAME_MAX = 1024,		/* hosts and paths of forwarding */
	SSHC_UNSENT_MAX = 256 * 1024,	/* programs are not read above it */
	SSHC_UNSENT_STOP = 1024 * 1024, /* the client is not read above it */
	SSHC_CHUNK = 128 * 1024,
	SSHC_ANSWER_MS = 60 * 1000, /* the daemon has this long to answer */
	SSHC_REKEY_BYTES = 1024 * 1024 * 1024,
	SSHC_REKEY_MS = 3600 * 1000,
};

enum sshc_channel_kind {
	SSHC_SESSION = 1, /* a program */
	SSHC_DIALLING,	  /* to be accepted or refused when the daemon has dialled */
	SSHC_OPENING,	  /* ours, the client has not answered */
	SSHC_TUNNEL,	  /* bytes to and from a connection */
};

struct sshc_channel {
	struct sshc *conn;
	struct sshc_channel *next;
	uint32_t number;
	enum sshc_channel_kind kind;
	ssh_channel ssh; /* NULL while dialling */
	struct ssh_channel_callbacks_struct callbacks;

	/* a program to be */
	bool tty, asked, has_run;
	char term[64];
	uint16_t rows, cols;
	struct buf modes;
	char **env;
	size_t env_count, env_bytes;

	/* a channel to be */
	ssh_message opening; /* DIALLING: kept until it is answered */
	struct sshc_incoming *incoming;

	int data, err; /* -1: ended, or not there yet */
	struct loop_fd *data_watch, *err_watch;
	unsigned data_watched, err_watched;
	bool data_ended, err_ended; /* nothing more to read from it */
	bool input_full;	    /* data takes nothing now; the library keeps what came */
	bool input_dead;	    /* and will never */
	bool input_eof, input_shut; /* the client has ended it; data was told */
	struct buf hold;	    /* read, but not taken by the library: during a rekey */
	bool hold_err;
	bool sent_eof;
	bool exited;
	uint32_t exit_code;
	char exit_signal[16];
	bool closing;	    /* by us: close was sent */
	bool client_closed; /* by the client */
	bool dead;	    /* to be freed */
};

/* A connection that the daemon hands over for the client. */
struct sshc_incoming {
	enum sshm_incoming_kind kind;
	char *address, *from;
	uint16_t port, from_port;
};

struct sshc_listener {
	char *address;
	uint16_t port; /* 0: address is a path */
};

/* A message of the daemon that waits for sshc_settle. */
struct sshc_letter {
	struct sshc_letter *next;
	enum sshm_kind kind;
	int fds[SSHM_MESSAGE_FDS];
	size_t fd_count, len;
	uint8_t bytes[];
};

struct sshc {
	struct loop *loop;
	struct sshm_pipe *pipe;
	ssh_session session;
	ssh_event event;
	struct loop_fd *watch;
	struct loop_timer *deadline; /* of the login */

	bool local;
	struct buf host_key;
	char **greeting;
	uint32_t login_ms;

	unsigned watched; /* of the socket: enum loop_ready */
	bool started, begun, logged_in, greeted, agent_told;
	unsigned failures, permits;
	struct sshc_channel *channels;
	size_t channel_count;
	uint32_t last_number, last_ticket;
	struct sshc_listener listeners[SSHM_LISTENERS_MAX];
	size_t listener_count;
	struct sshc_letter *letters, **last_letter;
	bool settling;

	/* What sshc_ask waits for. */
	enum sshm_kind awaited;
	bool answered;
	struct buf answer;

	bool over;
	char why[256];
};

/* ---- process.c ----------------------------------------------------------------------------- */

/* Ends the connection soon. The first reason counts. */
void sshc_end(struct sshc *conn, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sshc_touch(struct sshc *conn);			    /* sshc_settle runs soon */
void sshc_escape(char *ret, size_t room, const char *text); /* printable ASCII */
bool sshc_is_printable(const char *text, size_t max);	    /* and 1 to max bytes, no spaces */

/* ---- privileges.c -------------------------------------------------------------------------- */

int sshc_drop_privileges(struct err *err);

/* ---- session.c ----------------------------------------------------------------------------- */

int sshc_session_open(struct sshc *conn, struct err *err);
void sshc_session_pump(struct sshc *conn); /* handles what the client sent, sends what can be */
void sshc_session_watch(struct sshc *conn);
void sshc_session_close(struct sshc *conn, const char *text);

/* ---- login.c ------------------------------------------------------------------------------- */

/* As a message callback of libssh: 0 answered, 1 to be refused. */
int sshc_login(struct sshc *conn, ssh_message message);

/* ---- request.c ----------------------------------------------------------------------------- */

int sshc_on_message(ssh_session session, ssh_message message, void *arg);

/* ---- channel.c ----------------------------------------------------------------------------- */

struct sshc_channel *sshc_channel_new(struct sshc *conn, enum sshc_channel_kind kind);
struct sshc_channel *sshc_channel_find(struct sshc *conn, uint32_t number);
void sshc_channel_bind(struct sshc_channel *channel, ssh_channel ssh);	    /* takes ssh */
void sshc_channel_connect(struct sshc_channel *channel, int data, int err); /* takes them */
void sshc_channel_settle(struct sshc_channel *channel);
void sshc_channels_sweep(struct sshc *conn); /* frees dead ones */

/* ---- forward.c ----------------------------------------------------------------------------- */

int sshc_dial(struct sshc *conn, ssh_message message);
int sshc_listen(struct sshc *conn, ssh_message message);
int sshc_unlisten(struct sshc *conn, ssh_message message);
void sshc_dialled(struct sshc_channel *channel, int fd); /* takes fd */
void sshc_refused(struct sshc_channel *channel, uint32_t reason, const char *text);
void sshc_incoming(struct sshc *conn, struct sshc_incoming *incoming, int fd); /* takes both */
void sshc_incoming_free(struct sshc_incoming *incoming);
void sshc_forward_settle(struct sshc_channel *channel); /* opens what is to be opened */

/* ---- daemon.c ------------------------------------------------------------------------------ */

extern const struct sshm_pipe_ops sshc_pipe_ops;
/* Sends the message that was begun and waits for its answer, which is then in conn->answer. Other
 * messages that come meanwhile are kept. -1: none came; the connection ends. */
int sshc_ask(struct sshc *conn, enum sshm_kind answer);
void sshc_letters_settle(struct sshc *conn);
