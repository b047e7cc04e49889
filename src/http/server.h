/* server.h - HTTP/1.1 server: keep-alive, bodies streamed both ways, chunked, limits, timeouts,
 * WebSocket
 *
 * The handler is called once a request's head is complete and must, then or later, give exactly one
 * answer: http_reply(), http_reply_error(), http_reply_begin()..http_reply_end(), or ws_accept(). A
 * request is valid until its answer is complete or its on_gone was called, whichever is first;
 * after that it must not be touched. Bodies are kept in memory only when the handler asks for it.
 *
 * Limits (a breach is answered 4xx and the connection closed): head 16 KiB, 64 header lines, 30 s
 * for the head to arrive, 60 s without a byte of a body, 60 s idle between requests, 2 min in which
 * the client takes no byte of an answer that waits. Always refused: both Content-Length and
 * Transfer-Encoding, repeated Content-Length or Host, transfer codings other than chunked,
 * obs-fold, NUL or control bytes in headers, a missing Host in HTTP/1.1. HTTP/1.0 with keep-alive
 * is answered and closed. `Expect: 100-continue` is answered when the handler first wants the body.
 * A body that the handler does not ask for is drained up to 1 MiB, otherwise the connection is
 * closed. Each transport has at most 4096 connections; TCP fewer, if that would take the last
 * eighth of the process's fds. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct loop;
struct http_server;
struct http_request;

enum http_transport {
	HTTP_TRANSPORT_UNIX,
	HTTP_TRANSPORT_TCP,
	HTTP_TRANSPORT_TLS,
	HTTP_TRANSPORT_INNER, /* http_server_add */
	HTTP_TRANSPORT_COUNT
};

typedef void (*http_handler)(struct http_request *request, void *arg);

struct http_server *http_server_new(struct loop *loop, http_handler handler, void *arg);
/* Replaces a stale socket file; the owner stays, group and mode are set. */
int http_server_listen_unix(
	struct http_server *server, const char *path, gid_t group, mode_t mode, struct err *err);
/* port 0 picks one, which *ret_port tells. address is a numeric IPv4 or IPv6 address. */
int http_server_listen_tcp(struct http_server *server, const char *address, uint16_t port,
	uint16_t *ret_port, struct err *err);
/* Checks whether the address could be listened on now. */
int http_server_probe_tcp(const char *address, uint16_t port, struct err *err);
struct http_tls;
/* As http_server_listen_tcp, with TLS (see tls.h); tls is borrowed for the server's life. */
int http_server_listen_tls(struct http_server *server, const char *address, uint16_t port,
	struct http_tls *tls, uint16_t *ret_port, struct err *err);
/* A connection that no listener accepted: fd is one end of a socketpair that the daemon made for
 * somebody whom another front door has let in. who is attached to each of its requests. Takes fd
 * and who, which free_who frees with the connection. ERR_LIMIT: there are too many of them;
 * ERR_UNAVAILABLE: the server stops. */
int http_server_add(struct http_server *server, int fd, void *who, void (*free_who)(void *who),
	struct err *err);
/* Stops listening, ends idle connections, lets running requests finish for at most grace_ms, then
 * calls done. */
void http_server_stop(
	struct http_server *server, uint64_t grace_ms, void (*done)(void *arg), void *arg);
void http_server_free(
	struct http_server *server); /* cuts what is left; on_gone is called for each */
unsigned http_server_get_connections(const struct http_server *server);

/* ---- the request ---------------------------------------------------------------------------- */

const char *http_request_method(const struct http_request *request); /* "GET" */
const char *http_request_path(
	const struct http_request *request); /* percent-decoded, no query, no NUL */
const char *http_request_header(
	const struct http_request *request, const char *name); /* NULL if absent */
/* The percent-decoded value of a query key; NULL if absent, "" for a key without value.
 * Borrowed. */
const char *http_request_query(const struct http_request *request, const char *key);
/* Calls fn for each query pair in order; stops when fn returns false. */
void http_request_each_query(const struct http_request *request,
	bool (*fn)(const char *key, const char *value, void *arg), void *arg);
enum http_transport http_request_transport(const struct http_request *request);
uid_t http_request_peer_uid(
	const struct http_request *request); /* by the unix socket: who connected */
/* What http_server_add was given, borrowed; NULL for other connections. */
const void *http_request_inner_who(const struct http_request *request);
uint64_t http_request_id(const struct http_request *request); /* for logs */
bool http_request_wants_websocket(const struct http_request *request);
void http_request_set_data(struct http_request *request, void *data); /* one slot for the handler */
void *http_request_get_data(const struct http_request *request);
/* Attaches who asks to the request, which frees it at its end. */
void http_request_set_asker(
	struct http_request *request, void *asker, void (*free_asker)(void *asker));
void *http_request_get_asker(const struct http_request *request); /* NULL until set */
/* Passes every JSON answer through fn first, so that one place removes what the asker may not
 * see. */
void http_request_filter_json(struct http_request *request, void (*fn)(json_t *value));
/* For answers that are written as text: applies the same filter to a part. */
void http_request_filter(const struct http_request *request, json_t *value);

/* Called once if the client goes away (or the server is freed) before the answer is complete, or if
 * this layer had to answer itself because the body was too large, malformed or late. Callbacks are
 * never made from inside a call to this layer. */
void http_request_on_gone(struct http_request *request,
	void (*fn)(struct http_request *request, void *arg), void *arg);

/* Collects the whole body, at most max bytes; a larger one is answered 413 and fn is never called.
 * body is NUL-terminated, borrowed for the call. */
void http_request_read_body(struct http_request *request, size_t max,
	void (*fn)(struct http_request *request, const char *body, size_t len, void *arg),
	void *arg);
/* Delivers the body as it comes; on_end is called after the last byte. The reader calls
 * http_request_body_pause() when it has enough for now and ..._resume() when it wants more. */
void http_request_stream_body(struct http_request *request,
	void (*on_data)(struct http_request *request, const void *data, size_t len, void *arg),
	void (*on_end)(struct http_request *request, void *arg), void *arg);
void http_request_body_pause(struct http_request *request);
void http_request_body_resume(struct http_request *request);

/* ---- the answer ----------------------------------------------------------------------------- */

/* Adds a header to the answer that follows; value must not hold CR or LF. */
void http_reply_header(struct http_request *request, const char *name, const char *value);
void http_reply(struct http_request *request, int status, const char *content_type,
	const void *body, size_t len);
void http_reply_json(
	struct http_request *request, int status, json_t *value); /* takes the reference */
/* Answers {"error":{"code","message","hint"}} with the status of the error's kind. After
 * http_reply_begin it cuts the connection instead, so that nobody takes the answer for complete. */
void http_reply_error(struct http_request *request, const struct err *err);

/* Begins a streamed answer: chunked for 1.1, until close for 1.0. HEAD gets the head alone. */
void http_reply_begin(struct http_request *request, int status, const char *content_type);
void http_reply_write(struct http_request *request, const void *data, size_t len);
size_t http_reply_pending(
	const struct http_request *request); /* bytes the client has not taken yet */
/* Calls fn each time fewer than low bytes wait, after more did. */
void http_reply_on_drain(struct http_request *request, size_t low,
	void (*fn)(struct http_request *request, void *arg), void *arg);
void http_reply_end(struct http_request *request);
