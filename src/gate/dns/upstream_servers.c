/* upstream_servers.c - the upstream servers and their health
 *
 * A server that fails is avoided for a second, then two, four ... up to a minute. Avoided means
 * asked last, not never: when all fail, all are still tried. */
#include "base/alloc.h"
#include "base/clock.h"
#include "gate/dns/upstream_internal.h"
#include <netinet/in.h>

enum { AVOID_MIN_US = 1000 * 1000, AVOID_DOUBLINGS_MAX = 6 };

void upstream_servers_set(struct servers *servers, const struct upstream_server *list, size_t count)
{
	*servers = (struct servers){ .count = MIN(count, (size_t)RESOLV_SERVERS_MAX) };
	for (size_t i = 0; i < servers->count; i++)
		servers->list[i].to = list[i];
}

int upstream_servers_pick(const struct servers *servers, unsigned tried)
{
	int64_t now = clock_mono_us(), best_until = INT64_MAX;
	int best = -1;

	for (size_t i = 0; i < servers->count; i++) {
		int64_t until = servers->list[i].avoid_until;

		if (until <= now)
			until = 0; /* healthy, or due to be tried again */
		if (tried & 1u << i || until >= best_until)
			continue;
		best = (int)i;
		best_until = until;
	}
	return best;
}

void upstream_servers_note(struct servers *servers, int which, bool worked)
{
	struct server *server = &servers->list[which];

	if (worked) {
		server->fails = 0;
		server->avoid_until = 0;
		return;
	}
	server->avoid_until = clock_mono_us() + ((int64_t)AVOID_MIN_US << server->fails);
	server->fails = MIN(server->fails + 1, AVOID_DOUBLINGS_MAX);
}

size_t upstream_servers_from_conf(const struct resolv_conf *conf, struct upstream_server *ret)
{
	size_t count = 0;

	for (size_t i = 0; i < conf->server_count; i++) {
		const struct resolv_server *from = &conf->servers[i];
		struct upstream_server *to = &ret[count];
		unsigned scope = from->scope[0] ? if_nametoindex(from->scope) : 0;

		if (from->scope[0] && !scope)
			continue;
		*to = (struct upstream_server){ 0 };
		if (from->address.family == 4) {
			struct sockaddr_in *in = (struct sockaddr_in *)&to->address;

			*in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(53) };
			memcpy(&in->sin_addr, from->address.bytes, 4);
			to->len = sizeof *in;
		} else {
			struct sockaddr_in6 *in = (struct sockaddr_in6 *)&to->address;

			*in = (struct sockaddr_in6){ .sin6_family = AF_INET6,
				.sin6_port = htons(53),
				.sin6_scope_id = scope };
			memcpy(&in->sin6_addr, from->address.bytes, 16);
			to->len = sizeof *in;
		}
		count++;
	}
	return count;
}
