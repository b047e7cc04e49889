/* ingress.h - the way in: HTTP requests for a box's name lead to a port in the box
 *
 *   http://web.localhost:30001/        the daemon's own port: the default port of the box "web"
 *   http://8080-web.localhost:30001/   port 8080 of it
 *   https://8080-web.DOMAIN/           the same by TLS, on a listener of its own (conf: url_listen,
 *                                      url_domain …)
 *
 * docs/urls.md tells what is promised. Requests come from a http_server, whose front this is; what
 * a request needs to know about boxes it asks through ingress_ops, so that all of it runs in tests
 * without one. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct auth;
struct http_request;
struct http_server;
struct ingress;
struct loop;
struct yard;

enum ingress_box_state {
	INGRESS_BOX_RUNS, /* or wakes by being connected to */
	INGRESS_BOX_STOPPED,
	INGRESS_BOX_SUSPENDED,
	INGRESS_BOX_BUSY
};

struct ingress_box {
	char id[33];
	char name[64];
	enum ingress_box_state state;
	uint16_t default_port;
};

enum { INGRESS_TOKEN_ID_MAX = 32 };

struct ingress_ops {
	/* By name or id; false: there is none. */
	bool (*find)(const char *name, struct ingress_box *ret, void *arg);
	bool (*is_public)(const char *box, uint16_t port, void *arg);
	/* A socket connecting to a port of the box, see box_port_connect. *ret_fd -1: the box is
	 * waking; asked again after ingress_box_woken. */
	int (*connect)(const char *box, uint16_t port, bool second, int *ret_fd, struct err *err,
		void *arg);
	/* Bytes go into the box by a connection that is there already. May be NULL. */
	void (*used)(const char *box, void *arg);
	/* Whether a token opens private ports of the box; ret_id (INGRESS_TOKEN_ID_MAX) is what a
	 * login remembers of it. ERR_LIMIT when peer, an address, has shown too many wrong ones. */
	int (*check_token)(const char *box, const char *peer, const char *secret, char *ret_id,
		struct err *err, void *arg);
	/* Whether it still does. */
	bool (*has_token)(const char *box, const char *id, void *arg);
	/* Peer has shown something else that is wrong; true: too many of that. */
	bool (*strike)(const char *peer, void *arg);
	/* Whether a code logs in to the box by this host; it does so once. ret_id as above. */
	bool (*take_code)(
		const char *box, const char *host, const char *code, char *ret_id, void *arg);
};

struct ingress_spec {
	struct loop *loop;
	const char *home;	 /* the key that signs logins is kept there */
	const char *domain;	 /* "" : boxes are below localhost alone */
	const char *tls_address; /* NULL: no TLS listener */
	uint16_t tls_port;
	const char *certificate, *key;
	const struct ingress_ops *ops;
	void *arg;
	void (*free_arg)(void *arg); /* called at the end, also of a failed start; may be NULL */
};

int ingress_new(const struct ingress_spec *spec, struct ingress **ret, struct err *err);
/* With the yard's configuration and boxes; auth is borrowed. */
int ingress_open(struct yard *yard, struct auth *auth, struct ingress **ret, struct err *err);
/* Becomes a front of this server: requests for boxes by TCP are taken, all others
 * left. */
void ingress_attach(struct ingress *ingress, struct http_server *server);
/* A box that connections wait for is awake; err: it will not be. */
void ingress_box_woken(struct ingress *ingress, const char *box, const struct err *err);
/* Reads the certificate again; what cannot be used is logged, and the old one stays. */
void ingress_reload(struct ingress *ingress);
uint16_t ingress_get_tls_port(const struct ingress *ingress);
/* Stops listening and lets exchanges end for at most grace_ms, then calls done. Without a TLS
 * listener at once. */
void ingress_stop(struct ingress *ingress, uint64_t grace_ms, void (*done)(void *arg), void *arg);
/* After the servers it is the front of. Accepts NULL. */
void ingress_free(struct ingress *ingress);
