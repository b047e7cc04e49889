/* server_internal.h - shared by the UDP side, the TCP side and the answering of a dns_server */
#pragma once
#include "base/buf.h"
#include "gate/dns/message.h"
#include "gate/dns/server.h"
#include "gate/dns/upstream.h"
#include <sys/socket.h>

enum {
	DNS_BATCH = 32,	       /* packets read and answered with one call each */
	DNS_PACKET_MAX = 1500, /* a longer query is malformed */
	DNS_CONTROL_MAX = 64,  /* the address and interface that a packet came by */
	DNS_TCP_QUESTION_MAX = 4096,
};

struct dns_conn;

/* Where a query came from and its answer goes to. */
struct dns_origin {
	struct dns_conn *conn; /* by TCP */
	int fd;		       /* by UDP, with the header it was received with */
	const struct msghdr *from;
};

struct dns_door {
	struct dns_box *box;
	int fd;
	struct loop_fd *watch;
};

/* A query that waits for upstream. */
struct dns_pending {
	struct dns_box *box;
	struct dns_pending *next, **at;
	struct upstream_ask *ask;
	struct dns_query query;
	enum dns_verdict verdict;
	int64_t start;
	struct dns_conn *conn; /* NULL: over UDP, and the following is set */
	int fd;
	struct sockaddr_storage to;
	socklen_t to_len;
	uint8_t control[DNS_CONTROL_MAX] __attribute__((aligned(8)));
	size_t control_len;
};

struct dns_batch; /* the buffers of one batch over UDP */

struct dns_server {
	struct loop *loop;
	struct dns_server_options options;
	struct dns_batch *batch;
	struct dns_box *boxes;
};

struct dns_box {
	struct dns_server *server;
	struct dns_box_options options;
	struct dns_box *next, **at;
	struct dns_door udp[DNS_BOX_SOCKETS_MAX], tcp[DNS_BOX_SOCKETS_MAX];
	size_t udp_count, tcp_count;
	struct dns_conn *conns;
	unsigned conn_count;
	struct dns_pending *pendings;
	unsigned pending_count;
	/* A token bucket that holds time: a query costs 1 / rate seconds. */
	int64_t cost_us, full_us;
	struct dns_rate own, *rate;
	struct loop_timer *pause;
	bool paused;
};

/* ---- server.c -------------------------------------------------------------------------------- */

/* How many of wanted queries may be read now. With 0 the box is paused and resumes
 * automatically. */
unsigned dns_box_allowance(struct dns_box *box, unsigned wanted);
void dns_box_spend(struct dns_box *box, unsigned questions);
void dns_box_pause(struct dns_box *box, unsigned ms);

/* ---- answer.c -------------------------------------------------------------------------------- */

/* Answers one message into out (DNS_REPLY_MAX bytes). Returns the length of the reply; 0 when there
 * is none, or none yet: it is then sent when upstream has answered. */
size_t dns_box_answer(struct dns_box *box, const struct dns_origin *origin, const uint8_t *message,
	size_t len, uint8_t *out);
void dns_pending_cancel(struct dns_pending *pending);

/* ---- udp.c ----------------------------------------------------------------------------------- */

struct dns_batch *dns_batch_new(void);
int dns_udp_prepare(int fd, struct err *err);
void dns_udp_ready(void *door, unsigned ready); /* a loop_fd_fn */
void dns_udp_send(const struct dns_pending *pending, const uint8_t *reply, size_t len);

/* ---- tcp.c ----------------------------------------------------------------------------------- */

void dns_tcp_ready(void *door, unsigned ready); /* a loop_fd_fn: somebody connects */
void dns_conn_free(struct dns_conn *conn);
/* A pending query of conn has ended: its answer, or len 0 for none. */
void dns_conn_answered(struct dns_conn *conn, const uint8_t *reply, size_t len);
/* The box may be read again. */
void dns_conns_resume(struct dns_box *box);
