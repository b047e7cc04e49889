/* ingress_internal.h - what the files of the way in share
 *
 *   ingress.c   opening and closing; a request finds its box and port
 *   login.c     who may come in: tokens, cookies, the login page
 *   page.c      what is said when there is no answer of a box
 *   exchange.c  one request on its way into a box, and the answer on its way out
 *   backend.c   a connection into a box; those that wait to be used again
 *   host.c headers.c answer.c sign.c   pure parts
 *   boxes.c     the boxes of a yard, as ingress_ops wants them
 *
 * Callbacks of a backend come from the loop alone, never from inside a call made to it. */
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
	INGRESS_READ_ALL = 32 * 1024 * 1024, /* what all connections share */
	INGRESS_BUCKETS = 256,
	INGRESS_IDLE_MAX = 1024,     /* connections kept for later, in all */
	INGRESS_IDLE_PER_PORT = 128, /* and of them to one port of a box */
	INGRESS_BUSY_PER_PORT = 2048,
};

/* All in milliseconds; tests make them short. */
struct ingress_limits {
	unsigned connect;
	unsigned idle; /* of a connection into a box */
	unsigned tick;
};

/* One port of one box: there while there are connections to it. */
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

/* ---- a request that was found to be for a box ----------------------------------------------- */

struct aim {
	struct host host;
	struct ingress_box box;
	uint16_t port;
	char token[INGRESS_TOKEN_ID_MAX]; /* that let it in; "" : the port is public */
};

/* exchange.c: from here on the request is its own. */
void exchange_start(struct ingress *ingress, struct http_request *request, const struct aim *aim);
/* Ends those that would not be let in any more. */
void exchanges_check(struct ingress *ingress);

/* login.c */
int login_open(struct ingress *ingress, const char *home, struct err *err); /* the key */
/* Whether the request may pass to a private port, and by which token; false after answering. */
bool login_check(struct ingress *ingress, struct http_request *request, struct aim *aim);
/* A request for one of our own paths in a box's host. */
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
	void (*on_drain)(struct backend *backend, void *owner); /* all that was written is sent */
	/* The box closed its side (failed 0), or it broke: an errno. The last call except
	 * on_drain. */
	void (*on_end)(struct backend *backend, int failed, void *owner);
};

/* A connection that waited, or a new one: the ops tell when it is there. ERR_LIMIT: too many; else
 * nothing listens. The owner ends it with backend_keep or backend_close. */
int backend_open(struct ingress *ingress, const char *box, uint16_t port, bool fresh,
	const struct backend_ops *ops, void *owner, struct backend **ret, struct err *err);
bool backend_is_reused(const struct backend *backend);
/* Bytes go by it; told to the box's keeper, anew at once, else now and then. */
void backend_used(struct backend *backend, bool anew);
/* Why the box did not wake for it; NULL: it did. */
const struct err *backend_problem(const struct backend *backend);
bool backend_is_connected(const struct backend *backend);
struct answer *backend_answer(struct backend *backend);
/* Queued when the socket does not take it all; never fails here (on_end tells). */
void backend_write(struct backend *backend, const struct iovec *parts, unsigned count);
bool backend_is_broken(const struct backend *backend); /* what is written goes nowhere */
size_t backend_pending(const struct backend *backend);
void backend_shut(struct backend *backend);		  /* nothing more will be written */
void backend_pause(struct backend *backend, bool paused); /* no on_data meanwhile */
/* The exchange is over and the connection good for another; wait_ms 0: as long as ours wait. */
void backend_keep(struct backend *backend, unsigned wait_ms);
void backend_close(struct backend *backend); /* accepts NULL */
void backends_open(struct ingress *ingress);
/* How much memory one connection may use for data in transit: less when there are many. It bounds
 * what is read at once, and what may wait for a client before the box waits too. */
size_t backends_share(const struct ingress *ingress);
void backends_tick(struct ingress *ingress); /* something has begun that the tick looks at */
void backends_close(struct ingress *ingress);
/* For tests. */
void ingress_set_limits(struct ingress *ingress, const struct ingress_limits *limits);
