/* sshd_internal.h - what the files of the SSH front door share */
#pragma once
#include "auth/auth.h"
#include "auth/keys.h"
#include "core/box.h"
#include "core/exec.h"
#include "core/login_name.h"
#include "core/yard.h"
#include "loop/loop.h"
#include "ssh/message.h"
#include "ssh/proxy.h"
#include "ssh/sshd.h"

struct hostkeys;
struct program;
struct forward;
struct listening;
struct command;
struct controls;

enum {
	PEER_ADDRESS_SIZE = 64,
	SESSION_ID_MAX = 64,
	LINGERS_MAX = 512, /* programs without a client that wait to be hung up */
};

/* A listening socket. */
struct sshd_listener {
	struct sshd *sshd;
	int fd;
	struct loop_fd *watch;
	bool local; /* the unix socket */
};

struct sshd {
	struct yard *yard;
	struct auth *auth;
	struct loop *loop;
	struct hostkeys *hostkeys;
	struct controls *controls;
	struct sshd_listener tcp, local;
	struct loop_timer *again; /* accepts again when there is room */
	struct peer *peers;
	struct peer *early;		    /* local ones whose process is not started yet */
	unsigned peer_count, outside_count; /* outside: not logged in yet */
	struct linger *lingers;
	struct loop_timer *linger_timer;
	char listens[128];
	uint16_t port; /* 0: none */
	bool stopping;
	void (*stopped)(void *arg);
	void *stopped_arg;
	struct loop_timer *stop_timer;
};

/* One connection. */
struct peer {
	struct sshd *sshd;
	struct peer *prev, *next;
	struct sshm_pipe *pipe;
	int pidfd;
	struct loop_fd *exit_watch;
	struct loop_timer *login_timer;
	char address[PEER_ADDRESS_SIZE]; /* without its port; "" : the unix socket */
	uint16_t port;
	uid_t uid; /* of a local one */
	bool local;
	/* Not "": what the connection is for, said before SSH: by a local client (proxy.h), or by a
	 * box that connected to another by its name. */
	char named[PROXY_NAME_MAX + 1];
	int early_fd; /* of a local client that has not said yet whether it names a box; or -1 */
	struct loop_fd *early_watch;
	bool from_box; /* a box logs in to another; principal is its own from the start */

	uint8_t session[SESSION_ID_MAX]; /* the hash of the first key exchange */
	size_t session_len;
	unsigned signs, tries;
	bool in; /* logged in */
	bool ended;
	char user[AUTH_SSH_USER_MAX + 1]; /* as the client asked for it */
	char refusal[512];		  /* why the last key was refused */
	struct principal principal;
	struct login_name login;
	struct err login_problem; /* .kind 0: login is valid */

	struct program *programs;
	struct forward *forwards;
	struct listening *listenings;
	struct command *commands;
};

/* ---- sshd.c --------------------------------------------------------------------------------- */

void sshd_peer_in(struct peer *peer);	/* it has logged in: others may come */
void sshd_peer_gone(struct peer *peer); /* its process has ended: frees it */

/* ---- peer.c --------------------------------------------------------------------------------- */

/* Starts talking with the process behind fd, which it takes, as it takes pidfd. */
void peer_start(struct peer *peer, int fd, int pidfd);
/* Ends it and all that belongs to it; programs linger. sshd_peer_gone follows. text (may be NULL)
 * is told to the client. */
void peer_end(struct peer *peer, const char *text);
void peer_done(struct peer *peer); /* releases what it holds */
/* Core works for the peer's principal until auth_leave. Fails when its credential is no longer
 * valid: the connection ends then. */
int peer_enter(struct peer *peer, const struct asker **ret_before, struct err *err);
/* Who it is, for texts: "203.0.113.7" or "local". */
const char *peer_from(const struct peer *peer);

/* ---- login.c -------------------------------------------------------------------------------- */

int login_sign(struct peer *peer, struct wire_reader *in, struct err *err);
int login_ask(struct peer *peer, struct wire_reader *in, struct err *err);
/* The connection ends: writes the event of one that never logged in. */
void login_ended(struct peer *peer, const char *why);

/* ---- run.c ---------------------------------------------------------------------------------- */

/* A request for a shell, a command or a subsystem; borrowed for the call. */
struct run {
	uint32_t channel;
	enum sshm_run_what what;
	const char *command;
	bool tty;
	const char *term;
	uint16_t rows, cols;
	const char **env;
};

int run_take(struct peer *peer, struct wire_reader *in, struct err *err);
/* The variable of the client's environment, or NULL. */
const char *run_env(const struct run *run, const char *name);

/* ---- program.c ------------------------------------------------------------------------------ */

/* A channel that shows text and ends with code: a refusal, or help. Takes nothing. */
void program_tell(struct peer *peer, const struct run *run, uint32_t code, const char *text);
/* Starts a program in the box for the channel; an error is told to the client. */
void program_start(
	struct peer *peer, struct box *box, const struct run *run, const struct exec_spec *spec);
void program_attach(struct peer *peer, struct box *box, const struct run *run,
	const struct exec_attach_spec *spec, bool tty);
/* Makes a connection inside the box, as the user of the login: DIALLED when it stands, REFUSED when
 * not. host with a '/' at its start: the path of a unix socket. */
void program_connect(
	struct peer *peer, struct box *box, uint32_t channel, const char *host, uint16_t port);
bool program_signal(struct peer *peer, uint32_t channel, const char *name);
bool program_resize(struct peer *peer, uint32_t channel, uint16_t rows, uint16_t cols);
bool program_closed(struct peer *peer, uint32_t channel); /* the client closed it */
void programs_detach(struct peer *peer);		  /* all: the connection ends */

/* ---- command.c ------------------------------------------------------------------------------ */

/* Starts the command that the login and the request mean; core works for the peer's principal. */
int command_start(struct peer *peer, const struct run *run, struct err *err);
void command_signal(struct peer *peer, uint32_t channel, const char *name);
void command_resize(struct peer *peer, uint32_t channel, uint16_t rows, uint16_t cols);
bool command_closed(struct peer *peer, uint32_t channel);
void commands_end(struct peer *peer);

/* ---- linger.c ------------------------------------------------------------------------------- */

/* The client of a program has gone: it is hung up after ssh_linger, unless a client joins it. */
void linger_add(struct sshd *sshd, const char *box, const char *exec, const char *owner,
	uint64_t offset, bool tty);
/* Takes the newest one of this box and owner, or the one with this id (not NULL), out of the list.
 * False: none. */
bool linger_take(struct sshd *sshd, const char *box, const char *owner, const char *id,
	char ret_exec[EXEC_ID_MAX + 1], uint64_t *ret_offset, bool *ret_tty);
void lingers_free(struct sshd *sshd);

/* ---- forward.c ------------------------------------------------------------------------------ */

int forward_dial(struct peer *peer, struct wire_reader *in, struct err *err);
int forward_listen(struct peer *peer, struct wire_reader *in, struct err *err);
int forward_unlisten(struct peer *peer, struct wire_reader *in, struct err *err);
/* Answers a DIAL; reason as in RFC 4254, 5.1. */
enum { REASON_PROHIBITED = 1, REASON_CONNECT_FAILED = 2, REASON_SHORTAGE = 4 };
void forward_refuse(struct peer *peer, uint32_t channel, unsigned reason, const char *text);
bool forward_closed(struct peer *peer, uint32_t channel);
void forwards_end(struct peer *peer);
