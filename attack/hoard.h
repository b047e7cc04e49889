/* hoard.h - the hoards that hoard.c has in its table
 *
 * Each call takes some more and says how much, in bytes or in what the kernel counts; 0: no more.
 * What it took is not given back before its process ends. */
#pragma once
#include <stdint.h>

enum { HOARD_CHUNK = 60000 };

typedef int64_t hoard_fn(void);
/* hoard_sockets.c */
hoard_fn hoard_ring, hoard_netlink, hoard_usersock, hoard_udp, hoard_returned, hoard_first,
	hoard_returned_tcp, hoard_unaccepted, hoard_unlisted, hoard_raw, hoard_tcp, hoard_unix;
/* hoard_networks.c */
hoard_fn hoard_elsewhere, hoard_neighbours;
