/* upstream.h - asks the host's resolvers for the addresses of a name
 *
 * Equal queries at the same time become one; answers are cached for their TTL, within bounds. A
 * server that fails is avoided for longer and longer times. Each query has a socket of its own,
 * and so its own port, a random id and mixed case: a forged answer would have to guess all of
 * them. */
#pragma once
#include "base/address.h"
#include "base/alloc.h"
#include "base/err.h"
#include "gate/dns/message.h"
#include "net/resolv_conf.h"
#include <sys/socket.h>

struct loop;
struct upstream;
struct upstream_ask; /* one request of a caller; freed when its fn was called or it was cancelled */

struct upstream_server {
	struct sockaddr_storage address;
	socklen_t len;
};

struct upstream_options {
	const struct upstream_server *servers; /* copied; RESOLV_SERVERS_MAX at most; may be none */
	size_t server_count;
	unsigned timeout_ms;	   /* for each try; 0: 2000 */
	unsigned attempts;	   /* rounds over the servers; 0: 2 */
	unsigned questions_max;	   /* queries in flight; 0: 256 */
	unsigned asks_max;	   /* requests waiting for those; 0: 4096 */
	unsigned cache_max;	   /* answers kept; 0: 4096 */
	unsigned ttl_min;	   /* seconds an answer is kept at least; 0: 5 */
	unsigned ttl_max;	   /* and at most; 0: 3600 */
	unsigned negative_ttl_max; /* for negative answers; 0: 60 */
};

enum upstream_status {
	UPSTREAM_FOUND,
	UPSTREAM_EMPTY,	  /* the name exists, without addresses of that type */
	UPSTREAM_NO_NAME, /* the name does not exist */
	UPSTREAM_PRIVATE, /* it has only private addresses, and these are not allowed */
	UPSTREAM_FAILED,  /* no server gave a usable answer */
};

struct upstream_result {
	enum upstream_status status;
	uint32_t ttl; /* seconds, after clamping; for a cached answer the time left */
	size_t count;
	struct address addresses[DNS_ADDRESSES_MAX];
	unsigned private_count; /* addresses removed because they are not public */
};

enum upstream_flags {
	UPSTREAM_ALLOW_PRIVATE = 1, /* answers may lead into private ranges */
};

typedef void (*upstream_fn)(void *arg, const struct upstream_result *result);

/* Counts the queries in flight of one asker: when there are too many, the asker with the most
 * loses its oldest to one with fewer. So thousands of names that nobody answers do not keep
 * others from asking. Owned by the caller, zeroed at first; outlives its requests. */
struct upstream_share {
	unsigned questions;
};

struct upstream *upstream_new(struct loop *loop, const struct upstream_options *options);
/* Drops all requests without calling them. Not from within a callback. Accepts NULL. */
void upstream_free(struct upstream *upstream);
/* Replaces the servers, as when the host's resolv.conf changed; queries in flight start again.
 * The cache stays. */
void upstream_set_servers(
	struct upstream *upstream, const struct upstream_server *servers, size_t count);
/* The servers of a resolv.conf as socket addresses; ret has room for RESOLV_SERVERS_MAX. A
 * server on an interface that does not exist is left out. Returns how many. */
size_t upstream_servers_from_conf(const struct resolv_conf *conf, struct upstream_server *ret);

/* Asks for type (DNS_TYPE_A or DNS_TYPE_AAAA) of name. fn is called once, from the loop, never
 * from within this call; before that, *ret can be cancelled. Fails with ERR_INVALID for an
 * invalid host name, ERR_LIMIT when too much is in flight. share may be NULL. */
int upstream_ask_as(struct upstream *upstream, struct upstream_share *share, const char *name,
	uint16_t type, unsigned flags, upstream_fn fn, void *arg, struct upstream_ask **ret,
	struct err *err);
int upstream_ask(struct upstream *upstream, const char *name, uint16_t type, unsigned flags,
	upstream_fn fn, void *arg, struct upstream_ask **ret, struct err *err);
void upstream_cancel(struct upstream_ask *ask); /* accepts NULL */
/* Looks in the cache only; false when it has nothing. name as text, lower-case. */
bool upstream_recall(struct upstream *upstream, const char *name, uint16_t type, unsigned flags,
	struct upstream_result *ret);

DEFINE_CLEANUP(upstream_free, struct upstream)
