/* connect.h - a connection made inside the box, over stdin and stdout
 *
 *     connect HOST PORT      connect PATH      (a unix socket)
 *
 * For front doors whose clients want to reach something as the box does (ssh -L, -D, -W): the
 * program is one of the box's, so its policy, meters and audit log hold for it. Writes one byte,
 * '+', when the connection stands, then what comes; fails with a line on stderr and exit code 1. */
#pragma once

#define CONNECT_PROGRAM "connect"

int connect_main(int argc, char **argv); /* the exit code */
