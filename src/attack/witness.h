/* witness.h - a process that listens in a network namespace and records everything that reaches
 * it
 *
 * It answers every client, so that a hole is seen from inside the box too: HTTP on port 80,
 * something like TLS on 443, 853 and 8443, DNS on 53, an echo on all other ports. It records
 * lines:
 *
 *   syn 10.0.0.1:80            a packet that opens a connection, even if nobody listens (only with
 *                              .link)
 *   udp [fd00::1]:53           a datagram
 *   ip 47 10.0.0.1             a packet of another protocol
 *   tcp 203.0.113.10:80        an accepted connection
 *   data 203.0.113.10:80 GET / HTTP/1.1..Host: allowed.test....
 *   closed 203.0.113.10:80
 *   dns A allowed.test
 *   unix */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct witness;

struct witness_spec {
	const char *link;	 /* interface whose packets are recorded; NULL: none */
	const uint16_t *ports;	 /* TCP and UDP, all addresses, both families; ends with 0 */
	const char *unix_socket; /* abstract name; NULL: none */
};

/* Starts it in the network namespace of the caller. It ends with the caller. */
int witness_start(const struct witness_spec *spec, struct witness **ret, struct err *err);
void witness_stop(struct witness *witness); /* accepts NULL */
/* Waits until everything in transit has arrived and returns the lines since the last call, yours
 * to free. */
char *witness_take(struct witness *witness);
