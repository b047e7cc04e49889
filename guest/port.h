/* port.h - the daemon's connections over a port of a VM, one after the other
 *
 * A port is one stream for ever. When nobody is connected on the host's side it hangs up (poll) and
 * takes nothing; a daemon that goes and another that comes within the same moment are not told
 * apart. So we greet whoever comes, the daemon is silent until it has read that, and one that reads
 * none comes again (link/link.h). */
#pragma once
#include "base/err.h"
#include <stdbool.h>

/* Takes fd, non-blocking. Nobody is served before port_serve(). */
void port_open(int fd);
/* Whether who connects is greeted. Either way, what there is of a connection ends. */
void port_serve(bool serve);
