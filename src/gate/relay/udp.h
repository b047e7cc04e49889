/* udp.h - relays one UDP flow of a box: datagrams between two connected sockets
 *
 * Datagrams are dropped rather than queued when the other side takes none, or when the rate is used
 * up. The flow ends after UDP_RELAY_IDLE_MS of silence. */
#pragma once
#include "gate/relay/relay.h"

enum { UDP_RELAY_IDLE_MS = 60000, UDP_RELAY_BATCH = 16, UDP_DATAGRAM_MAX = 65507 };

struct udp_relay;
struct udp_relay_options {
	struct loop *loop;
	int client, server;		    /* connected, non-blocking; owned */
	struct quota *quotas[RELAY_QUOTAS]; /* as in relay.h */
	unsigned idle_ms;		    /* 0: UDP_RELAY_IDLE_MS */
	void (*moved)(void *arg, bool out); /* as in relay.h */
	void (*ended)(
		void *arg, const struct relay_report *report); /* once, from the loop; freed */
	void *arg;
};
struct udp_relay *udp_relay_new(const struct udp_relay_options *options);
/* Sends a datagram of the client that came before its socket existed. */
void udp_relay_send(struct udp_relay *relay, const void *data, size_t len);
void udp_relay_cut(struct udp_relay *relay, const char *why);
void udp_relay_figures(const struct udp_relay *relay, uint64_t *ret_out, uint64_t *ret_in);
void udp_relay_free(struct udp_relay *relay);
