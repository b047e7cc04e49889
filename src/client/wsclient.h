/* wsclient.h - the client end of a WebSocket to the daemon
 *
 * Text messages are delivered complete; the data of binary messages (a tag byte, then data) is
 * delivered in pieces as it arrives, straight from the receive buffer. Sending never blocks:
 * bytes are queued until wsclient_flush() sends them, so that both directions continue when one
 * is slow. */
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

/* Connects and makes the handshake; an API error is returned as that error. */
int wsclient_open(const char *socket_path, const char *path, const struct wsclient_ops *ops,
	void *arg, struct wsclient **ret, struct err *err);
void wsclient_free(struct wsclient *ws); /* closes the connection; accepts NULL */

int wsclient_get_fd(
	const struct wsclient *ws); /* poll it for POLLIN, and POLLOUT while bytes are pending */
size_t wsclient_pending(const struct wsclient *ws);
void wsclient_send_text(struct wsclient *ws, const char *text);
void wsclient_send_data(struct wsclient *ws, const void *data, size_t len);
/* -1: the connection has ended. */
int wsclient_flush(struct wsclient *ws);
/* Reads what is available, once; call it right after opening, because bytes may have come with
 * the handshake. 1: continue; 0: the connection has ended; -1 with err: a protocol error. */
int wsclient_receive(struct wsclient *ws, struct err *err);
