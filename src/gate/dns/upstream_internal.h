/* upstream_internal.h - the parts of upstream: servers and their health, the cache, queries */
#pragma once
#include "net/name_table.h"
#include "gate/dns/upstream.h"

/* ---- upstream_servers.c: which server to ask ------------------------------------------------ */

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
/* The best server whose bit in tried is not set; -1 when all are. Healthy ones come in their
 * order, then failed ones, the longest ago first. */
int upstream_servers_pick(const struct servers *servers, unsigned tried);
void upstream_servers_note(struct servers *servers, int server, bool worked);

/* ---- upstream_cache.c: the cache ------------------------------------------------------------ */

struct cache {
	struct name_table table;
	size_t max;
};

void upstream_cache_init(struct cache *cache, size_t max);
void upstream_cache_done(struct cache *cache);
/* Keeps a copy for result->ttl seconds; none if that is 0. */
void upstream_cache_put(struct cache *cache, const char *name, const struct dns_question *question,
	const struct dns_result *result);
/* Sets ttl to the time left. */
bool upstream_cache_get(
	struct cache *cache, const char *name, uint16_t type, struct dns_result *ret);
