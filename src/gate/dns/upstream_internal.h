/* upstream_internal.h - the pieces of upstream: servers and their health, kept answers,
 * questions */
#pragma once
#include "net/name_table.h"
#include "gate/dns/upstream.h"

/* ---- upstream_servers.c: whom to ask -------------------------------------------------------- */

struct server {
	struct upstream_server to;
	unsigned fails;	     /* in a row */
	int64_t avoid_until; /* clock_mono_us */
};

struct servers {
	struct server list[RESOLV_SERVERS_MAX];
	size_t count;
};

void upstream_servers_set(
	struct servers *servers, const struct upstream_server *list, size_t count);
/* The best one not yet in the set of bits tried; -1 when all are. Healthy ones come in their order,
 * after them those that failed, the longest ago first. */
int upstream_servers_pick(const struct servers *servers, unsigned tried);
void upstream_servers_note(struct servers *servers, int server, bool worked);

/* ---- upstream_cache.c: answers kept --------------------------------------------------------- */

struct cache {
	struct name_table table;
	size_t max;
};

void upstream_cache_init(struct cache *cache, size_t max);
void upstream_cache_done(struct cache *cache);
/* Keeps a copy for result->ttl seconds; of 0 none. */
void upstream_cache_put(struct cache *cache, const char *name, const struct dns_question *question,
	const struct dns_result *result);
/* With ttl as what is left of it. */
bool upstream_cache_get(
	struct cache *cache, const char *name, uint16_t type, struct dns_result *ret);
