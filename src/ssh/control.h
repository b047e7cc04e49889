/* control.h - the control plane over SSH: our own command line as a process without privileges
 *
 * `ssh box@HOST ls --json` runs the program `box` again, with its ordinary table of commands
 * (cli/control.c), as a process that can do nothing: a user of its own, an empty root, no network,
 * no capabilities, system calls refused, limits, a pid namespace. Its one way out is a descriptor
 * on which it asks for connections to the API (client/given.h), which are the principal's
 * (auth/inner.h). So nothing is written twice, and words from a client decide nothing.
 *
 * The door calls
 *
 *   control_words    what a login name and a command are as words of the command line
 *   control_start    the process; its descriptors go to the process of the connection
 *   control_signal, control_resize, and at the end of the channel or connection control_hang_up */
#pragma once
#include "auth/auth.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct control;	 /* one process */
struct controls; /* all of them */
struct login_name;
struct loop;

enum {
	CONTROLS_MAX = 256,	      /* at once in the daemon */
	CONTROLS_OF_OWNER_MAX = 64,   /* of one owner */
	CONTROLS_OF_LOGIN_MAX = 16,   /* of one connection */
	CONTROL_CONNECTIONS_MAX = 64, /* to the API, a second, of one process */
};

/* loop and auth are borrowed. program is a path, or NULL: this program. */
struct controls *controls_new(struct loop *loop, struct auth *auth, const char *program);
void controls_free(struct controls *controls); /* kills all; calls nothing; accepts NULL */

/* The words for a login: `ssh box@`: the command split as a shell would (base/words.h), without one
 * none; `new@`, `fork+BOX@`, `try+BOX@`: what makes a box and runs command, a text for the box's
 * shell, in it. command NULL: the client asked for a shell. *ret is yours (strv_free). ERR_INVALID:
 * a quote is not closed, try+BOX without a command, or a login that is for a box. */
int control_words(
	const struct login_name *name, const char *command, bool tty, char ***ret, struct err *err);

struct control_spec {
	const struct principal *principal; /* copied */
	const void *login;		   /* the connection, to count its processes; not used */
	const char *const *words;	   /* of control_words */
	bool tty;
	const char *term; /* with tty: TERM; NULL or "": dumb */
	uint16_t rows, cols;
	const char *const *env; /* NAME=VALUE; only LANG and LC_* are passed on. May be NULL */
	/* Called once, from the loop, when the process and all it made have ended. signal is 0, or
	 * the number of the one that ended it. The control is gone. */
	void (*on_end)(int code, int signal, void *arg);
	void *arg;
};

/* The other ends of the process's stdin, stdout and stderr; yours to close. */
struct control_ends {
	int data;   /* a stream socket, or with tty the master of a terminal; blocking */
	int errors; /* a stream socket; -1 with tty */
};

/* Does not block. ERR_LIMIT: too many processes of this login, this owner, or of all. ERR_INVALID:
 * a word is longer than the kernel passes on (128 KiB). */
int control_start(struct controls *controls, const struct control_spec *spec, struct control **ret,
	struct control_ends *ret_ends, struct err *err);
void control_resize(struct control *control, uint16_t rows, uint16_t cols);
/* name without SIG: "INT". One that the command has no use for is dropped. */
void control_signal(struct control *control, const char *name);
/* The channel or connection has ended: the command gets HUP, has three seconds, and is killed; what
 * it had to remove (new --rm) is removed. on_end is not called any more; the control is gone. */
void control_hang_up(struct control *control);
