/* sftp.h - files over SFTP, version 3 with OpenSSH's extensions; an ordinary process of the box
 *
 * The server is box-init's own program, executed again under the name SFTP_PROGRAM: the image needs
 * nothing for it. It runs as the user who logged in, from his home, and the kernel checks what he
 * may do; paths are not confined. Requests come on stdin, answers go to stdout, until stdin
 * ends. */
#pragma once
#include "base/buf.h"
#include "base/err.h"

#define SFTP_PROGRAM "sftp-server" /* as it is listed, and argv[0] by which main() knows it */

int sftp_main(void); /* the exit code */

/* ---- the server without its streams --------------------------------------------------------- */

struct sftp;

struct sftp *sftp_new(void);
void sftp_free(struct sftp *sftp); /* closes what is open; accepts NULL */
/* Serves the request at the head of in and drops it there; its answer is added to out. 1: it was
 * served, perhaps by an answer that says what is wrong with it; 0: more bytes are needed; -1: this
 * is not SFTP (ERR_PROTOCOL), and what follows cannot be understood. May block in the kernel. */
int sftp_serve(struct sftp *sftp, struct buf *in, struct buf *out, struct err *err);
