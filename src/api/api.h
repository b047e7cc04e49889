/* api.h - the REST front door: authenticates, translates, calls core; holds no box state */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct api;
struct auth;
struct http_server;
struct yard;

/* Ends the daemon: purge removes everything first, hibernate puts boxes on disk. */
typedef void (*api_shutdown_fn)(bool purge, bool hibernate, void *arg);

/* Answers those who asked for a shutdown with hibernate: failed, borrowed, as in
 * yard_hibernate_all. */
void api_hibernated(struct api *api, json_t *failed);

/* Listens on the Unix socket and TCP address of conf. auth is borrowed. */
int api_open(struct yard *yard, struct auth *auth, api_shutdown_fn shutdown, void *arg,
	struct api **ret, struct err *err);
/* Stops accepting, lets exchanges finish for at most grace_ms, then calls done. */
void api_stop(struct api *api, uint64_t grace_ms, void (*done)(void *arg), void *arg);
void api_close(struct api *api); /* accepts NULL */
/* Reads the certificate of the TCP listener again, if it has one. */
void api_reload(struct api *api);
uint16_t api_get_port(const struct api *api); /* of the TCP listener; 0: closed */
/* For other front doors that share its listeners. */
struct http_server *api_get_server(struct api *api);
/* The OpenAPI 3.1 document, from the route table. New reference. */
json_t *api_openapi(void);
