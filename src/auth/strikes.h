/* strikes.h - counts wrong credentials of each peer
 *
 * A bucket per peer fills with each wrong credential and drains over time. The table is bounded: a
 * new peer replaces the one with the emptiest bucket. Tokens have 190 bits, so this is not what
 * keeps guesses out; it keeps their noise and cost down, and does not affect others. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
	STRIKES_MAX = 20,
	STRIKES_PER_SECOND = 2, /* drained */
	STRIKES_PEERS = 256,
	STRIKES_PEER_SIZE = 48,
};

struct strikes {
	struct strikes_peer {
		char peer[STRIKES_PEER_SIZE];
		double count;
		int64_t at_us; /* when count was valid */
	} peers[STRIKES_PEERS];
};

/* Counts one more for peer (an address as text; IPv6 counts by its first 64 bits). True: too many.
 * now_us: a monotonic clock. */
bool strikes_add(struct strikes *strikes, const char *peer, int64_t now_us);
