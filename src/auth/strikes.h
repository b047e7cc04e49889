/* strikes.h - who shows wrong credentials again and again
 *
 * A bucket for each peer fills with each wrong one and runs out with time. The table is bounded: a
 * new peer takes the place of the one whose bucket is emptiest. Tokens have 190 bits, so this is
 * not what keeps guesses out; it keeps their noise and cost down, and leaves others alone. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
	STRIKES_MAX = 20,
	STRIKES_PER_SECOND = 2, /* run out */
	STRIKES_PEERS = 256,
	STRIKES_PEER_SIZE = 48,
};

struct strikes {
	struct strikes_peer {
		char peer[STRIKES_PEER_SIZE];
		double count;
		int64_t at_us; /* when count was right */
	} peers[STRIKES_PEERS];
};

/* One more of peer (an address as text; of IPv6 the first 64 bits are who it is). True: it has had
 * too many. now_us: a clock that only goes forward. */
bool strikes_add(struct strikes *strikes, const char *peer, int64_t now_us);
