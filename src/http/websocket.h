/* websocket.h - WebSocket (RFC 6455) over a request, by wslay
 *
 * Messages from the client are bounded (max_message); a larger one closes the connection with
 * 1009. Pings are answered here; a ping is sent after 30 s of silence, and the connection ends
 * after 90. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_request;
struct websocket;

struct websocket_ops {
	void (*on_message)(
		struct websocket *ws, bool binary, const void *data, size_t len, void *arg);
	/* Called when fewer than 64 KiB wait, after more did. May be NULL. */
	void (*on_drain)(struct websocket *ws, void *arg);
	/* The connection has ended, from either side; the websocket is gone after this returns.
	 * Called once. */
	void (*on_close)(struct websocket *ws, void *arg);
};

/* Answers the request with 101 and takes over its connection; the request is gone after this.
 * NULL when the request is not a proper WebSocket handshake; then it has been answered with 400
 * or 426. */
struct websocket *ws_accept(struct http_request *request, size_t max_message,
	const struct websocket_ops *ops, void *arg);
void ws_send(struct websocket *ws, bool binary, const void *data, size_t len);
/* Sends a binary message of a one-byte tag and data, without copying them together first. */
void ws_send_tagged(struct websocket *ws, uint8_t tag, const void *data, size_t len);
size_t ws_pending(const struct websocket *ws);
/* Stops reading from the client; messages that came in the same 4 KiB are still delivered. */
void ws_pause(struct websocket *ws);
void ws_resume(struct websocket *ws);
void ws_close(struct websocket *ws, uint16_t code, const char *reason); /* on_close follows */
