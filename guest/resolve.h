/* resolve.h - a host name as addresses, by the box's own /etc/hosts and resolver
 *
 * A static program has no name service, and wants none: it would load the box's libraries. */
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { RESOLVE_MAX = 8 };

struct resolved {
	struct sockaddr_storage address[RESOLVE_MAX]; /* with the port */
	size_t count;				      /* at least 1 */
};

/* Blocks for some seconds at most. ERR_NOT_FOUND: there is no such name, or the policy of the box
 * does not allow it. */
int resolve(const char *host, uint16_t port, struct resolved *ret, struct err *err);
