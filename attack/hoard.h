/* hoard.h - the attacks in the table of hoard.c
 *
 * Each call takes more and returns how much, in bytes or in kernel objects; 0: no more. It is
 * released when the process ends. */
#pragma once
#include <stdint.h>

enum { HOARD_CHUNK = 60000 };

typedef int64_t hoard_fn(void);
/* hoard_sockets.c */
hoard_fn hoard_ring, hoard_netlink, hoard_usersock, hoard_udp, hoard_returned, hoard_first,
	hoard_returned_tcp, hoard_unaccepted, hoard_unlisted, hoard_raw, hoard_tcp, hoard_unix;
/* hoard_networks.c */
hoard_fn hoard_elsewhere, hoard_neighbours;
