/* inlet.h - a port of a box's loopback that a front door listens on
 *
 * What programs of the box send there goes to the client of the front door (SSH's -R). The socket
 * is the daemon's, in the box's network namespace: it ends with the instance (a stop, a
 * hibernation), and copies of the box do not have it. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct box;
struct inlet;

struct inlet_ops {
	/* A program of the box has connected; fd is yours. */
	void (*accepted)(int fd, uint16_t from_port, void *arg);
	/* The instance has ended: the inlet is freed. It may be opened again when the box wakes. */
	void (*lost)(void *arg);
};

enum { INLETS_MAX = 32 }; /* of one box */

/* port 0: any free one, which *ret_port tells. Fails with ERR_STATE when the box does not run,
 * ERR_EXISTS when the port is taken, ERR_LIMIT, and ERR_UNSUPPORTED for a box with a kernel of its
 * own. */
int inlet_new(struct box *box, bool v6, uint16_t port, const struct inlet_ops *ops, void *arg,
	struct inlet **ret, uint16_t *ret_port, struct err *err);
void inlet_free(struct inlet *inlet); /* without a callback; accepts NULL */
