/* port_internal.h - ports of the host that lead into boxes (port_listen.c, port_pipe.c), for
 * port.c */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct box;
struct loop;
struct network;
struct port_listener;
struct port_pipe;
struct yard;

/* ---- port_listen.c -------------------------------------------------------------------------- */

/* Listens on 127.0.0.1; host_port 0: any free one. Fails with ERR_EXISTS when it is taken. The
 * listener does not belong to the box yet. */
int port_listener_new(struct box *box, uint16_t port, uint16_t host_port,
	struct port_listener **ret, struct err *err);
void port_listener_free(struct port_listener *listener); /* closes its connections; accepts NULL */
uint16_t port_listener_get_host_port(const struct port_listener *listener);
/* Replaces the listener that the box has for this port. */
void port_listener_adopt(struct box *box, struct port_listener *listener);
void port_listener_drop(struct box *box, uint16_t port);
void port_listeners_drop(struct box *box);
void port_listeners_woken(struct box *box, bool awake); /* awake false: it will not wake */
/* For a box from the store; a failure is logged and remembered. Does nothing if it already
 * listens. */
void port_listener_restore(struct box *box, uint16_t port, uint16_t host_port);
/* Why the port does not listen; NULL: it does, or is not wanted. Borrowed. */
const char *port_listener_problem(const struct box *box, uint16_t port);
int port_listener_host_port(const struct box *box, uint16_t port); /* -1: does not listen */

/* ---- port_login.c --------------------------------------------------------------------------- */

void port_logins_drop(struct box *box);

/* ---- port_dial.c ---------------------------------------------------------------------------- */

/* Opens a connection to a server on the loopback of a box through box-init. *ret_fd behaves like a
 * connecting socket: it becomes writable when the connection is through, with an error when it is
 * refused. It is cut with the link to box-init. ERR_LIMIT when the box has too many. */
int port_dial(struct box *box, uint16_t port, int *ret_fd, struct err *err);
void port_dials_free(struct network *net); /* cuts all of them */

/* ---- port_pipe.c ---------------------------------------------------------------------------- */

/* Opens the box's end, in two tries: see box_port_connect. *ret_fd -1: not yet, see
 * port_pipe_retry. */
typedef int (*port_open_fn)(bool second, int *ret_fd, struct err *err, void *arg);
typedef void (*port_gone_fn)(struct port_pipe *pipe, void *arg);

/* Takes the client's socket. gone is called once when both directions have ended or one broke, not
 * after port_pipe_free. NULL: the box cannot be reached, and the client was closed. */
struct port_pipe *port_pipe_new(
	struct loop *loop, int client, port_open_fn open, port_gone_fn gone, void *arg);
/* used (may be NULL) is called for bytes from either end, at most ten times a second. */
void port_pipe_on_used(struct port_pipe *pipe, void (*used)(void *arg));
/* connected (may be NULL) is called once, when the box has accepted the connection; it must not
 * free the pipe. */
void port_pipe_on_connected(struct port_pipe *pipe, void (*connected)(void *arg));
/* The box is awake: opens its end; or it will not wake, and the client is closed. The pipe may be
 * freed by this. */
void port_pipe_retry(struct port_pipe *pipe, bool awake);
void port_pipe_free(struct port_pipe *pipe);
