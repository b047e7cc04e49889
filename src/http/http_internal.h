/* http_internal.h - what the files of src/http share
 *
 *   server.c     listeners, the list of connections, the clock of their limits
 *   conn.c       one connection: its stages, what it reads, when it ends
 *   conn_out.c   its sending side
 *   request.c    one request: what the handler may ask of it, its body
 *   reply.c      its answer
 *   websocket.c  a connection taken over by ws_accept
 *   pass.c       what a proxy needs: heads and answers as they come, tunnels
 *   tls.c        TLS below a connection
 *
 * Re-entrancy. The handler's callbacks (handler, body, drain, gone, WebSocket ones) are called from
 * conn_advance() and conn_end() alone, which run from the loop and never from inside a call the
 * handler made. So a call into this layer never calls back before it returns: an error met while
 * writing is noted in conn->broken, and the loop does the rest soon (conn_schedule). While
 * callbacks run conn->depth is above zero and keeps the connection's memory. */
#pragma once
#include "base/buf.h"
#include "http/parse.h"
#include "http/pass.h"
#include "http/server.h"
#include "http/url.h"
#include <sys/uio.h>

struct loop_fd;
struct loop_timer;
struct websocket;
struct http_listener;
struct http_tls;
struct ssl_st;

enum {
	HTTP_READ_SIZE = 256 * 1024,	       /* size of one read() with few connections */
	HTTP_READ_MIN = 16 * 1024,	       /* size of one read() with many connections */
	HTTP_READ_ALL = 32 * 1024 * 1024,      /* all connections share this */
	HTTP_SEND_AT_ONCE = 16 * 1024,	       /* fewer bytes than this wait for the end of the
					        * loop's round */
	HTTP_BUFFER_KEPT = 16 * 1024,	       /* memory an idle connection keeps */
	HTTP_OUT_MAX = 64 * 1024,	       /* with more bytes waiting, no request is read */
	HTTP_PIPELINE_MAX = HTTP_HEAD_MAX,     /* how much is read ahead while an answer is made */
	HTTP_UNWANTED_MAX = 1024 * 1024,       /* how much of a body is drained that the handler did
					        * not ask for */
	HTTP_LINGER_MAX = 64 * 1024 * 1024,    /* how much is discarded after the last answer */
	HTTP_SOCKET_OUT_MAX = 4 * 1024 * 1024, /* with more bytes waiting, a WebSocket is not
					        * read */
	HTTP_CONNECTIONS_MAX = 4096,	       /* for each transport */
};

/* All in milliseconds; tests make them short. */
struct http_limits {
	unsigned head;	  /* until the whole head has arrived */
	unsigned body;	  /* without a byte of a body */
	unsigned idle;	  /* between requests */
	unsigned write;	  /* while the client takes no byte */
	unsigned linger;  /* after the last answer */
	unsigned ping;	  /* silence on a WebSocket before a ping */
	unsigned silence; /* silence on a WebSocket that ends it */
	unsigned tick;	  /* interval of the check of all other limits */
};

struct http_server {
	struct loop *loop;
	http_handler handler;
	void *arg;
	struct {
		const struct http_front *front;
		void *arg;
	} fronts[HTTP_FRONTS_MAX]; /* asked in this order, before the handler */
	unsigned front_count;
	struct http_limits limits;
	struct http_listener *listeners;
	struct http_conn *conns;
	unsigned count[HTTP_TRANSPORT_COUNT];
	uint64_t last_request;
	struct http_conn *work; /* scheduled connections */
	bool work_pending;
	struct loop_timer *tick;
	bool ticking;
	bool stopping;
	struct loop_timer *grace;
	void (*stopped)(void *arg);
	void *stopped_arg;
	unsigned depth; /* callbacks running */
	bool freed;	/* freed as soon as depth is 0 */
	char *scratch;	/* HTTP_READ_SIZE bytes, the buffer of every read */
	time_t date_at;
	char date[40]; /* of the Date header */
};

enum conn_stage {
	CONN_HEAD,   /* no request */
	CONN_BODY,   /* the body is not complete; request is NULL if it was answered early */
	CONN_WAIT,   /* the request is complete, its answer is not */
	CONN_SOCKET, /* a WebSocket or a tunnel */
	CONN_FLUSH,  /* the last answer is on its way */
	CONN_LINGER, /* the last answer is sent; the client gets time to read it before the
		      * connection is closed */
};

struct http_conn {
	struct http_server *server;
	struct http_conn *prev, *next;
	struct http_conn *work_next;
	bool scheduled;
	int fd;
	struct loop_fd *watch;
	unsigned watched;
	enum http_transport transport;
	uid_t uid;
	void *who; /* of an inner connection */
	void (*free_who)(void *who);
	enum conn_stage stage;
	struct http_parse parse;
	struct http_request *request;
	struct websocket *ws;
	struct http_tunnel *tunnel;
	struct ssl_st *ssl; /* NULL: plain bytes, no TLS */
	struct buf in;	    /* read but not parsed yet */
	struct buf out;	    /* written but not sent yet */
	unsigned depth;
	bool dead;	    /* ended; its memory is freed when depth is 0 */
	bool broken;	    /* the socket failed, or the exchange cannot go on */
	bool eof;	    /* the client sends no more */
	bool blocked;	    /* the socket accepts no more for now */
	bool more;	    /* TLS holds bytes that the socket does not report */
	bool stalled;	    /* TLS must write before it can read on */
	bool keep;	    /* another request may follow this answer */
	bool fresh;	    /* no request came yet */
	bool cut;	    /* close without lingering: the answer is incomplete */
	size_t thrown;	    /* bytes discarded */
	char peer[48];	    /* its address, once asked for */
	int64_t head_since; /* when the first byte of the present head came, or when waiting for it
			     * began */
	int64_t in_since;   /* last byte in */
	int64_t out_since;  /* when the last byte was sent, or the first one began to wait */
};

enum body_mode { BODY_UNWANTED, BODY_WHOLE, BODY_STREAM };

struct http_request {
	struct http_conn *conn;
	uint64_t id;
	struct url url;
	void *data;
	void *asker;
	void (*free_asker)(void *asker);
	void (*filter)(json_t *value); /* or NULL */
	void (*gone)(struct http_request *request, void *arg);
	void *gone_arg;
	bool finished; /* further calls are ignored */
	enum body_mode body_mode;
	bool body_ended; /* the body was read completely */
	bool body_told;	 /* and the reader was told */
	bool paused;
	bool continued; /* 100 Continue was sent */
	size_t body_max;
	struct buf body;
	void (*on_whole)(struct http_request *request, const char *body, size_t len, void *arg);
	void (*on_data)(struct http_request *request, const void *data, size_t len, void *arg);
	void (*on_end)(struct http_request *request, void *arg);
	void *body_arg;
	struct buf headers; /* of the answer */
	bool begun;
	bool chunked;
	size_t low;
	bool above;
	void (*on_drain)(struct http_request *request, void *arg);
	void *drain_arg;
};

int64_t http_now_ms(void);

/* server.c */
/* For tests. */
void http_server_set_limits(struct http_server *server, const struct http_limits *limits);
void server_add_conn(struct http_server *server, struct http_conn *conn);
void server_remove_conn(struct http_server *server, struct http_conn *conn);
void server_enter(struct http_server *server);
void server_leave(struct http_server *server);	  /* the server may be gone afterwards */
void server_schedule(struct http_server *server); /* runs the scheduled connections soon */

/* conn.c */
struct http_conn *conn_new(
	struct http_server *server, int fd, enum http_transport transport, struct http_tls *tls);
void conn_schedule(struct http_conn *conn); /* conn_advance soon */
/* Continues as far as possible; conn may be gone afterwards. */
void conn_advance(struct http_conn *conn);
void conn_run_scheduled(struct http_conn *conn);
void conn_tick(struct http_conn *conn, int64_t now);
void conn_end(struct http_conn *conn);		/* at once; the owner of the request or WebSocket is
						 * told */
void conn_update_watch(struct http_conn *conn); /* watches the fd for what the stage needs */
void conn_answered(struct http_conn *conn);	/* the request is gone and its answer is in out */
/* Answers instead of the handler and closes the connection afterwards. */
void conn_refuse(struct http_conn *conn, int status, const struct err *why);

/* conn_out.c */
void conn_flush(struct http_conn *conn);
/* Queues bytes. They are sent at once if they are many, or if they are urgent and this is not
 * inside a callback (after which everything is sent); otherwise at the end of the loop's round.
 * Calls nothing back. */
void conn_write(struct http_conn *conn, const struct iovec *parts, unsigned count, bool urgent);

/* request.c */
struct http_request *request_new(struct http_conn *conn);
void request_free(struct http_request *request);
void request_gone(struct http_request *request); /* tells its owner and frees it */
bool request_wants_body(const struct http_request *request);
void request_take_body(struct http_request *request, const char *data, size_t len);
/* Refuses a body that is known to be too large; tells the reader when a complete body has ended. */
void request_check_body(struct http_request *request);

/* tls.c */
/* Like read() and sendmsg() of a socket that does not block; errno EAGAIN: later. */
struct ssl_st *tls_accept(struct http_tls *tls, int fd);
void tls_free(struct ssl_st *ssl);
ssize_t tls_read(struct http_conn *conn, void *data, size_t len);
ssize_t tls_write(struct http_conn *conn, const void *data, size_t len);
void tls_shut(struct http_conn *conn); /* tells the peer that we send no more */

/* reply.c */
bool reply_keeps(const struct http_conn *conn);
void reply_put_error(struct http_conn *conn, int status, const struct err *why);
void reply_error_as(struct http_request *request, int status, const struct err *err);
/* Called when bytes were queued: notes when they exceed the mark. */
void reply_note_drain(struct http_request *request);
/* Called when bytes were sent: true if the owner was told. */
bool reply_tell_drain(struct http_request *request);

/* websocket.c */
size_t ws_take(struct websocket *ws, const char *data, size_t len);
bool ws_wants_read(const struct websocket *ws);
bool ws_tell_drain(struct websocket *ws);
bool ws_is_over(const struct websocket *ws); /* nothing more is to be read or written */
void ws_tick(struct websocket *ws, int64_t now);
void ws_gone(struct websocket *ws); /* tells its owner and frees it */

/* pass.c */
bool fronts_take(struct http_server *server, struct http_request *request); /* true: taken */
size_t tunnel_take(struct http_tunnel *tunnel, const char *data, size_t len);
bool tunnel_wants_read(const struct http_tunnel *tunnel);
bool tunnel_tell_drain(struct http_tunnel *tunnel);
void tunnel_tell_eof(struct http_tunnel *tunnel);   /* the client sends no more */
bool tunnel_wants_shut(struct http_tunnel *tunnel); /* true once: everything is sent, and no more
						     * will come */
bool tunnel_is_over(const struct http_tunnel *tunnel);
void tunnel_gone(struct http_tunnel *tunnel); /* tells its owner and frees it */
