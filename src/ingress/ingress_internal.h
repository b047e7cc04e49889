/* ingress_internal.h - shared by the files of this folder
 *
 *   ingress.c   opening and closing; a request finds its box and port
 *   login.c     who may use a private port: tokens, cookies, the login page
 *   page.c      our own error pages, when there is no response of a box
 *   exchange.c  one request to a box, and its response
 *   backend.c   a connection into a box; the pool of idle ones
 *   host.c headers.c answer.c   pure parts
 *   boxes.c     the boxes of a yard, for ingress_ops
 *
 * Callbacks of a backend come from the loop only, never from inside a call to it. */
#pragma once
#include "base/alloc.h"
#include "base/buf.h"
#include "base/sha256.h"
#include "http/pass.h"
#include <sys/uio.h>
#include "http/server.h"
#include "ingress/answer.h"
#include "ingress/headers.h"
#include "ingress/host.h"
#include "ingress/ingress.h"

struct backend;
struct http_tls;
struct loop_fd;
struct loop_timer;

enum {
	INGRESS_READ_SIZE = 256 * 1024, /* at most, and with few connections; see backends_share */
	INGRESS_READ_MIN = 16 * 1024,
	INGRESS_READ_ALL = 32 * 1024 * 1024, /* shared by all connections */
	INGRESS_BUCKETS = 256,
	INGRESS_IDLE_MAX = 1024,     /* idle connections kept open, in all */
	INGRESS_IDLE_PER_PORT = 128, /* and of them to one port of a box */
	INGRESS_BUSY_PER_PORT = 2048,
};

/* All in milliseconds; tests make them short. */
struct ingress_limits {
	unsigned connect;
	unsigned idle; /* of a connection into a box */
	unsigned tick;
};

/* One port of one box: exists while there are connections to it. */
struct target {
	char box[33];
	uint16_t port;
	struct target *next; /* of its bucket */
	struct backend *idle;
	unsigned idle_count, busy_count;
};

struct ingress {
	struct loop *loop;
	struct ingress_ops ops;
	void *arg;
	void (*free_arg)(void *arg);
	char *domain;
	struct ingress_limits limits;
	uint8_t key[SHA256_SIZE];
	struct http_tls *tls;
	struct http_server *server; /* TLS */
	uint16_t tls_port;
	struct target *targets[INGRESS_BUCKETS];
	struct backend *backends; /* all */
	unsigned backend_count, idle_count;
	struct exchange *exchanges; /* all */
	struct loop_timer *tick;
	bool ticking;
	unsigned round; /* of ingress_box_woken */
	char *scratch;	/* INGRESS_READ_SIZE */
};

/* ---- a request for a box -------------------------------------------------------------------- */

struct aim {
	struct host host;
	struct ingress_box box;
	uint16_t port;
	/* of the token that was accepted; "": the port is public */
	char token[INGRESS_TOKEN_ID_MAX];
};

/* exchange.c: takes the request over. */
void exchange_start(struct ingress *ingress, struct http_request *request, const struct aim *aim);
/* Ends exchanges that would no longer be accepted. */
void exchanges_check(struct ingress *ingress);

/* login.c */
int login_open(struct ingress *ingress, const char *home, struct err *err); /* the key */
/* Whether the request may pass to a private port, and by which token; on false it has been
 * answered. */
bool login_check(struct ingress *ingress, struct http_request *request, struct aim *aim);
/* True for one of our own paths on the host of a box. */
bool login_is_own_path(const struct http_request *request);
void login_answer(struct ingress *ingress, struct http_request *request, const struct aim *aim);

/* page.c */
struct page {
	int status;
	enum err_kind kind; /* for the JSON form */
	const char *title;
	const char *text;
	const char *hint; /* "" : none; shown as a command */
};
bool page_wants_html(const struct http_request *request);
/* HTML for browsers, JSON for others. */
void page_reply(struct http_request *request, const struct page *page);
void page_reply_html(struct http_request *request, int status, const char *title, struct buf *body);
void page_add_escaped(struct buf *out, const char *text);

/* ---- backend.c ------------------------------------------------------------------------------ */

struct backend_ops {
	void (*on_connected)(struct backend *backend, void *owner);
	/* The bytes are borrowed. */
	void (*on_data)(struct backend *backend, const char *data, size_t len, void *owner);
	void (*on_drain)(struct backend *backend, void *owner); /* all written bytes were sent */
	/* The box closed its side (failed 0), or the connection broke: an errno. The last
	 * callback except on_drain. */
	void (*on_end)(struct backend *backend, int failed, void *owner);
};

/* Takes an idle connection, or opens a new one: the ops report when it is connected. ERR_LIMIT:
 * too many; else nothing listens. The owner ends it with backend_keep or backend_close. */
int backend_open(struct ingress *ingress, const char *box, uint16_t port, bool fresh,
	const struct backend_ops *ops, void *owner, struct backend **ret, struct err *err);
bool backend_is_reused(const struct backend *backend);
/* Reports to the box that bytes go by this connection: at once if anew, else from time to time. */
void backend_used(struct backend *backend, bool anew);
/* Why the box did not wake up; NULL: it did. */
const struct err *backend_problem(const struct backend *backend);
bool backend_is_connected(const struct backend *backend);
struct answer *backend_answer(struct backend *backend);
/* Queues what the socket does not take; errors are reported by on_end only. */
void backend_write(struct backend *backend, const struct iovec *parts, unsigned count);
bool backend_is_broken(const struct backend *backend); /* written bytes are lost */
size_t backend_pending(const struct backend *backend);
void backend_shut(struct backend *backend);		  /* ends the sending direction */
void backend_pause(struct backend *backend, bool paused); /* no on_data meanwhile */
/* The exchange has ended and the connection can be used again; wait_ms 0: kept for our default
 * time. */
void backend_keep(struct backend *backend, unsigned wait_ms);
void backend_close(struct backend *backend); /* accepts NULL */
void backends_open(struct ingress *ingress);
/* How much memory one connection may use for data in transit: less when there are many. It bounds
 * what is read at once, and what may wait for a client before the box waits too. */
size_t backends_share(const struct ingress *ingress);
void backends_tick(struct ingress *ingress); /* starts the timer that checks timeouts */
void backends_close(struct ingress *ingress);
/* For tests. */
void ingress_set_limits(struct ingress *ingress, const struct ingress_limits *limits);
