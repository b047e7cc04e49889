/* remote.h - which daemon the commands talk to: that of this machine or of another one
 *
 * A target is the path of a unix socket, or ssh://[USER@]HOST[:PORT][/SOCKET],
 * https://HOST[:PORT], http://HOST:PORT (this machine only: it is not encrypted) or
 * unix:///SOCKET. Dialling always gives a socket on which the daemon speaks plain HTTP: for ssh
 * its other end belongs to the ssh client, for https to a child of ours that speaks TLS. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct buf;

/* ERR_INVALID when text is none of those. *ret is for client_new; yours. */
int remote_read(const char *text, char **ret, struct err *err);
/* A target that is not a path, taken apart. */
struct remote_place {
	bool is_ssh;
	char user[64]; /* "" : none */
	char host[256];
	uint16_t port;	/* 0: the scheme's own */
	char path[108]; /* ssh: of the socket; "" : the usual one */
};
int remote_split(const char *target, struct remote_place *ret, struct err *err);
/* Another machine's, or a door that wants a token. */
bool remote_is(const char *target);

/* Set for all following requests. Borrowed; each but target may be NULL. token: for http and
 * https; cacert: a PEM file of certificates to trust besides those of the machine; home:
 * BOX_HOME of the daemon behind target, for unix sockets; other daemons (of a benchmark) have
 * other homes. */
void remote_use(const char *target, const char *token, const char *cacert, const char *home);

/* Appends the headers that depend on the target: Host, Authorization, Box-Home. */
void remote_add_head(struct buf *out, const char *target);
/* A connected blocking socket; the caller closes it. Not for plain paths. */
int remote_dial(const char *target, int *ret_fd, struct err *err);
/* Adds a hint to the error of a connection that broke before a response. */
void remote_hint(const char *target, struct err *err);

/* remote_tls.c: takes connected, a TCP connection; *ret_fd is a socket that carries the same
 * bytes decrypted. */
int remote_tls_start(
	int connected, const char *host, const char *cacert, int *ret_fd, struct err *err);
