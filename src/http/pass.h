/* pass.h - what a proxy needs of the server: heads as they came, answers as they come, and raw
 * connections
 *
 * A front gets requests before their target is parsed and answers them like any other handler.
 * Instead of http_reply_begin() it may use http_pass_begin(), or turn the connection into a
 * tunnel. */
#pragma once
#include "base/buf.h"
#include "http/parse.h"
#include "http/server.h"

/* Several fronts share a server's listeners. Each request goes to the first front that wants it, in
 * the order they were added; when none does, to the server's handler. */
struct http_front {
	/* Decides by host, path or headers (http_request_head); changes nothing. */
	bool (*wants)(const struct http_request *request, void *arg);
	http_handler handle;
};

enum { HTTP_FRONTS_MAX = 8 };
/* front and arg are borrowed for the server's life. At most HTTP_FRONTS_MAX. */
void http_server_add_front(struct http_server *server, const struct http_front *front, void *arg);
/* The strictly parsed head; target and headers as they were sent, in order (the target only for a
 * front). */
const struct http_head *http_request_head(const struct http_request *request);
/* The client's address as text; "" for the unix socket. */
const char *http_request_peer(struct http_request *request);

enum { HTTP_LENGTH_UNKNOWN = -1, HTTP_LENGTH_NONE = -2 };

struct http_pass {
	int status;
	const char *reason; /* no control bytes */
	const struct buf
		*headers; /* whole lines, "Name: value\r\n"; none about framing or the connection */
	int64_t length;	  /* length of the body, or one of the enum above: NONE for 204, 304 */
	bool trailers;	  /* the body, of unknown length, may end with http_pass_trailers */
};

/* Used instead of http_reply_begin; http_reply_write and http_reply_end follow. At most length
 * bytes may be written; with fewer, end by http_reply_error, which cuts the connection. */
void http_pass_begin(struct http_request *request, const struct http_pass *pass);
/* Used instead of http_reply_end: whole lines, as above. */
void http_pass_trailers(struct http_request *request, const struct buf *lines);

/* ---- tunnels: after "101 Switching Protocols" the connection carries raw bytes both ways ----- */

struct http_tunnel;

struct http_tunnel_ops {
	void (*on_data)(struct http_tunnel *tunnel, const void *data, size_t len, void *arg);
	void (*on_eof)(struct http_tunnel *tunnel,
		void *arg); /* the client sends no more; it may still read */
	void (*on_drain)(struct http_tunnel *tunnel, void *arg); /* less than 64 KiB wait again */
	void (*on_gone)(struct http_tunnel *tunnel,
		void *arg); /* the last call; both directions have ended, or the connection broke */
};

/* Answers 101 with these headers. The request is finished. */
struct http_tunnel *http_tunnel_accept(struct http_request *request, const struct buf *headers,
	const struct http_tunnel_ops *ops, void *arg);
void http_tunnel_write(struct http_tunnel *tunnel, const void *data, size_t len);
size_t http_tunnel_pending(const struct http_tunnel *tunnel);
void http_tunnel_pause(struct http_tunnel *tunnel); /* no on_data until resumed */
void http_tunnel_resume(struct http_tunnel *tunnel);
void http_tunnel_shut(struct http_tunnel *tunnel); /* nothing more will be written */
void http_tunnel_cut(struct http_tunnel *tunnel);  /* at once; on_gone comes from the loop */
