/* server.h - answers the DNS queries of boxes, over UDP and TCP
 *
 * Each box has its own sockets, made where only that box can reach them: the socket of a query
 * identifies the box. Only names that decide() allows are ever looked up; a denied name appears
 * only in the log.
 *
 * A box above its rate is not answered more slowly but read more slowly: its queries wait in the
 * kernel's buffer, which drops the excess at no cost for us. */
#pragma once
#include "base/alloc.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct upstream;
struct synthetic;
struct dns_server;
struct dns_box; /* a box as the server knows it */

enum dns_verdict {
	DNS_DENY_NXDOMAIN,    /* the name does not exist */
	DNS_DENY_REFUSED,     /* the name may exist, but is refused */
	DNS_SYNTHETIC,	      /* an address that stands for the name */
	DNS_UPSTREAM,	      /* the real addresses; not those in private ranges */
	DNS_UPSTREAM_PRIVATE, /* the real addresses, whatever they are */
	DNS_MALFORMED,	      /* without a call of decide: no valid query, or not a host name */
	/* also without it: the box is over its rate; logged once each time, without a name */
	DNS_LIMITED,
	DNS_VERDICT_COUNT
};

struct dns_event {
	const char *name; /* as text, see dns_name.h; "" for a malformed query */
	uint16_t type;
	enum dns_verdict verdict;
	int rcode; /* as answered; -1 when there was no answer */
	bool tcp;
	unsigned addresses;	  /* in the answer */
	unsigned private_refused; /* addresses removed because they are private */
	int64_t took_us;	  /* from reading the query to writing the answer */
};

/* Called from the loop with the box's arg. They must not free the box or the server. */
struct dns_server_ops {
	/* name is a host name, lower-case, without a dot at its end. */
	enum dns_verdict (*decide)(void *arg, const char *name, uint16_t type);
	void (*log)(void *arg, const struct dns_event *event); /* may be NULL */
};

struct dns_server_options {
	const struct dns_server_ops *ops; /* borrowed */
	struct upstream *upstream; /* borrowed; NULL: queries that need it are answered SERVFAIL */
	unsigned ttl;		   /* seconds of a synthetic address; 0: 60 */
	unsigned pending_max;	   /* queries of a box that wait for upstream; 0: 64 */
	unsigned conns_max;	   /* TCP connections of a box; 0: 16 */
	unsigned idle_ms;	   /* a connection without a complete query is closed; 0: 10000 */
};

/* A rate that several boxes share. Zeroed by its owner; it outlives them. */
struct dns_rate {
	int64_t saved_us, filled_at;
};

struct dns_box_options {
	const int *udp; /* bound, non-blocking sockets; the box owns and closes them */
	size_t udp_count;
	const int *tcp; /* listening; owned in the same way */
	size_t tcp_count;
	void *arg; /* for ops */
	struct synthetic
		*synthetic; /* borrowed; NULL: queries that need one are answered SERVFAIL */
	bool ipv6;	    /* answer AAAA with addresses; else with none */
	unsigned rate;	    /* queries a second; 0: 1000 */
	unsigned burst;	    /* and at once; 0: as many as rate */
	struct dns_rate
		/* borrowed: shared by boxes with the same rate and burst; NULL: its own */
		*together;
};

enum { DNS_BOX_SOCKETS_MAX = 4 }; /* of each kind */

struct dns_server *dns_server_new(struct loop *loop, const struct dns_server_options *options);
void dns_server_free(struct dns_server *server); /* with its boxes; accepts NULL */
/* Starts to answer. Ended by dns_box_free, or with the server. The sockets are taken over only
 * on success. ERR_INVALID for too many sockets. */
int dns_server_add(struct dns_server *server, const struct dns_box_options *options,
	struct dns_box **ret, struct err *err);
void dns_box_free(struct dns_box *box); /* closes its sockets; accepts NULL */

DEFINE_CLEANUP(dns_server_free, struct dns_server)
