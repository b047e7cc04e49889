/* port.h - the daemon's connections over a port of a VM, one after the other
 *
 * A port is one endless stream. When nobody is connected on the host's side it hangs up (poll)
 * and accepts nothing; a reconnection within a moment is not noticed. So box-init sends a
 * greeting to whoever connects, the daemon is silent until it has read that, and a daemon that
 * reads none connects again (link/link.h). */
#pragma once
#include "base/err.h"
#include <stdbool.h>

/* Takes fd, non-blocking. Nobody is served before port_serve(). */
void port_open(int fd);
/* Whether new connections are greeted. In either case the present one ends. */
void port_serve(bool serve);
