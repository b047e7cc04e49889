/* ingress.h - box URLs: HTTP requests for the name of a box go to a port in the box
 *
 *   http://web.localhost:30001/        the daemon's own port: the default port of the box "web"
 *   http://8080-web.localhost:30001/   port 8080 of it
 *   https://8080-web.DOMAIN/           the same with TLS, on a listener of its own (conf:
 *                                      url_listen, url_domain …)
 *
 * docs/urls.md says what is promised. Requests come from an http_server, which calls this as its
 * front; what a request needs to know about boxes it asks through ingress_ops, so that tests
 * need no boxes. */
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
	INGRESS_BOX_RUNS, /* or wakes when somebody connects to it */
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
	/* By name or id; false: there is no such box. */
	bool (*find)(const char *name, struct ingress_box *ret, void *arg);
	bool (*is_public)(const char *box, uint16_t port, void *arg);
	/* Opens a socket that connects to a port of the box, see box_port_connect. *ret_fd -1:
	 * the box is waking; asked again after ingress_box_woken. */
	int (*connect)(const char *box, uint16_t port, bool second, int *ret_fd, struct err *err,
		void *arg);
	/* Reports that bytes go into the box on an existing connection. May be NULL. */
	void (*used)(const char *box, void *arg);
	/* Checks whether a token opens private ports of the box; ret_id (INGRESS_TOKEN_ID_MAX)
	 * identifies it in a login. ERR_LIMIT when peer, an address, has sent too many wrong
	 * ones. */
	int (*check_token)(const char *box, const char *peer, const char *secret, char *ret_id,
		struct err *err, void *arg);
	/* Whether that token is still valid for the box. */
	bool (*has_token)(const char *box, const char *id, void *arg);
	/* Counts another wrong attempt of peer; true: there were too many. */
	bool (*strike)(const char *peer, void *arg);
	/* Whether a login code is valid for the box and this host; it is used up by this call.
	 * ret_id as above. */
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
/* Starts with the yard's configuration and boxes; auth is borrowed. */
int ingress_open(struct yard *yard, struct auth *auth, struct ingress **ret, struct err *err);
/* Becomes a front of this server: it takes TCP requests for boxes and leaves all others. */
void ingress_attach(struct ingress *ingress, struct http_server *server);
/* A box that connections wait for is awake; err: it could not be woken. */
void ingress_box_woken(struct ingress *ingress, const char *box, const struct err *err);
/* Reads the certificate again; if it cannot be used, that is logged and the old one stays. */
void ingress_reload(struct ingress *ingress);
uint16_t ingress_get_tls_port(const struct ingress *ingress);
/* Stops listening and lets exchanges end for at most grace_ms, then calls done. Without a TLS
 * listener it calls done at once. */
void ingress_stop(struct ingress *ingress, uint64_t grace_ms, void (*done)(void *arg), void *arg);
/* Call it after the servers whose front it is were freed. Accepts NULL. */
void ingress_free(struct ingress *ingress);
