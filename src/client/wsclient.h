/* wsclient.h - the client end of a WebSocket to the daemon
 *
 * Text messages come whole; of binary messages (a tag byte, then data) the data is handed on in
 * pieces as it arrives, straight from the receive buffer. Sending never blocks: bytes wait here
 * until wsclient_flush() gets them out, so that both directions go on when one is slow. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wsclient;

struct wsclient_ops {
	void (*on_text)(const char *text, size_t len, void *arg);
	void (*on_data)(uint8_t tag, const void *data, size_t len, void *arg);
};

/* Connects and shakes hands; an API error comes back as that error. */
int wsclient_open(const char *socket_path, const char *path, const struct wsclient_ops *ops,
	void *arg, struct wsclient **ret, struct err *err);
void wsclient_free(struct wsclient *ws); /* hangs up; accepts NULL */

int wsclient_get_fd(
	const struct wsclient *ws); /* poll it for POLLIN, and POLLOUT while bytes are pending */
size_t wsclient_pending(const struct wsclient *ws);
void wsclient_send_text(struct wsclient *ws, const char *text);
void wsclient_send_data(struct wsclient *ws, const void *data, size_t len);
/* -1: the connection is over. */
int wsclient_flush(struct wsclient *ws);
/* Reads what is there, once; call it first right after opening, for bytes may have come along. 1:
 * go on; 0: the connection is over; -1 with err: nonsense came. */
int wsclient_receive(struct wsclient *ws, struct err *err);
