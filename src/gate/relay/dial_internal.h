/* dial_internal.h - what dial.c and dial_proxy.c share */
#pragma once
#include "gate/relay/dial.h"

struct dial_talk; /* the conversation with a proxy, up to its answer */

/* Asks the proxy behind fd (connected, non-blocking; borrowed) for a connection to host, a name or
 * an address, by CONNECT. done is called once, from the loop: with NULL on success, when none of
 * the following bytes was read; else with the error. The talk is freed. */
struct dial_talk *dial_talk_start(struct loop *loop, int fd, const struct dial_proxy *proxy,
	const char *host, uint16_t port, void (*done)(void *arg, const struct err *err), void *arg);
void dial_talk_cancel(struct dial_talk *talk); /* accepts NULL */
