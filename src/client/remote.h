/* remote.h - which daemon commands talk to: that of this machine, or another's
 *
 * A target is the path of a unix socket, or ssh://[USER@]HOST[:PORT][/SOCKET], https://HOST[:PORT],
 * http://HOST:PORT (this machine alone, the way is not encrypted) or unix:///SOCKET. Whatever it
 * is, dialling gives a socket on which the daemon speaks plain HTTP: for ssh the other end is held
 * by the ssh client, for https by a child of ours that speaks TLS. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct buf;

/* ERR_INVALID when it is none of those. *ret is what client_new takes; yours. */
int remote_read(const char *text, char **ret, struct err *err);
/* Another machine's, or a door that wants a token. */
bool remote_is(const char *target);

/* Said with every request from now on. Borrowed; each but target may be NULL. token: for http and
 * https; cacert: a PEM file that says whom to trust besides the machine's own store; home: of the
 * daemon that is meant by target, for unix sockets; other daemons (of a benchmark) have homes of
 * their own. */
void remote_use(const char *target, const char *token, const char *cacert, const char *home);

/* The lines of a request's head that depend on whom it goes to: Host, Authorization, Box-Home. */
void remote_add_head(struct buf *out, const char *target);
/* A connected blocking socket; the caller closes it. Not for plain paths. */
int remote_dial(const char *target, int *ret_fd, struct err *err);
/* After a connection that broke before it answered: what to try. */
void remote_hint(const char *target, struct err *err);

/* remote_tls.c: takes connected, a TCP connection; *ret_fd is a socket with the same conversation
 * in plain bytes. */
int remote_tls_start(
	int connected, const char *host, const char *cacert, int *ret_fd, struct err *err);
