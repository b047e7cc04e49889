/* tunnel.h - a connection from a front door to a port of a box, carried by the daemon
 *
 * For front doors whose clients ask for a port of a box by themselves (SSH's -L and -D). A sleeping
 * box is woken, and bytes that pass keep it awake, as with ports of the host. */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct box;
struct tunnel;

struct tunnel_ops {
	/* The server in the box accepted the connection. Comes first, once, unless failed does. */
	void (*connected)(void *arg);
	/* The connection has ended, or nothing listens there: the tunnel is freed. connected was
	 * called before, or not. */
	void (*gone)(void *arg);
};

/* Takes fd, one end of a stream socket; its other end is the client's. Fails with ERR_STATE when
 * the box neither runs nor can be woken, ERR_UNAVAILABLE when nothing can listen there. Callbacks
 * come from the loop, never from inside this call. */
int tunnel_new(struct box *box, uint16_t port, int fd, const struct tunnel_ops *ops, void *arg,
	struct tunnel **ret, struct err *err);
void tunnel_free(struct tunnel *tunnel); /* cuts it, without a callback; accepts NULL */
