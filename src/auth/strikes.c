/* strikes.c - see strikes.h */
#include "auth/strikes.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* A host has all addresses of its /64. */
static void peer_name(const char *peer, char *ret)
{
	struct in6_addr address;

	snprintf(ret, STRIKES_PEER_SIZE, "%s", peer);
	if (inet_pton(AF_INET6, peer, &address) != 1 || IN6_IS_ADDR_V4MAPPED(&address))
		return;
	memset(address.s6_addr + 8, 0, 8);
	inet_ntop(AF_INET6, &address, ret, STRIKES_PEER_SIZE);
}

static double count_now(const struct strikes_peer *peer, int64_t now_us)
{
	double left = peer->count - (double)(now_us - peer->at_us) / 1e6 * STRIKES_PER_SECOND;

	return left > 0 ? left : 0;
}

static struct strikes_peer *find(struct strikes *strikes, const char *name, int64_t now_us)
{
	struct strikes_peer *emptiest = &strikes->peers[0];

	for (unsigned i = 0; i < STRIKES_PEERS; i++) {
		struct strikes_peer *peer = &strikes->peers[i];

		if (!strcmp(peer->peer, name))
			return peer;
		if (count_now(peer, now_us) < count_now(emptiest, now_us))
			emptiest = peer;
	}
	*emptiest = (struct strikes_peer){ .at_us = now_us };
	snprintf(emptiest->peer, sizeof emptiest->peer, "%s", name);
	return emptiest;
}

bool strikes_add(struct strikes *strikes, const char *text, int64_t now_us)
{
	struct strikes_peer *peer;
	char name[STRIKES_PEER_SIZE];

	peer_name(text, name);
	peer = find(strikes, name, now_us);
	peer->count = count_now(peer, now_us);
	peer->at_us = now_us;
	if (peer->count >= STRIKES_MAX)
		return true;
	peer->count++;
	return false;
}
