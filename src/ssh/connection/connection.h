/* connection.h - the process of one SSH connection: `box ssh-connection`
 *
 * Speaks SSH with one client through libssh, without privileges, and asks the daemon for all else
 * (ssh/message.h). fd 3 is the client's socket, fd 4 the daemon's.
 *
 *   process.c     main: START, privileges, the loop, the end of the connection
 *   privileges.c  what is given up before the first byte of the client is read
 *   session.c     libssh's session: algorithms, key exchanges, signatures of the host key
 *   login.c       who the client says it is; the daemon decides
 *   request.c     what the client asks for: channels, programs, listeners
 *   channel.c     bytes between a channel and a descriptor, and the end of both
 *   forward.c     channels that lead elsewhere: dialled for the client, or opened towards it
 *   daemon.c      messages of the daemon
 *   absent.c      instead of all of them in a build without libssh */
#pragma once

/* Returns the exit code. */
int sshc_main(void);
/* Of libssh as linked, like "0.12.2"; NULL: this program was built without it. */
const char *ssh_library_version(void);
