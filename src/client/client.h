/* client.h - requests to the daemon over its unix socket, to another machine's (remote.h), or over
 * connections the daemon gives out itself (given.h); one connection, kept alive
 *
 * Blocking. A path is complete and made with client_path(). Errors of the API are returned as
 * the same struct err the daemon had; a daemon that does not answer is ERR_UNAVAILABLE with a
 * hint. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client;

/* Connects on first use. socket_path, or the result of remote_read or given_read, is borrowed for
 * the client's life. */
struct client *client_new(const char *socket_path);
void client_free(struct client *client); /* accepts NULL */

/* "/v1/boxes/%s/files?path=%s": each %s is percent-encoded, %llu and %% are as printf has them.
 * Yours to free. */
char *client_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Sends one small request and reads the whole response. body is consumed and may be NULL. *ret
 * is a new reference, json null for an empty response; NULL if it is not wanted. */
int client_call(struct client *client, const char *method, const char *path, json_t *body,
	json_t **ret, struct err *err);
int client_get(struct client *client, const char *path, json_t **ret, struct err *err);

struct client_request {
	const char *method;
	const char *path;
	const char *header; /* whole extra lines, "Name: value\r\n"; NULL: none */
	const void *body;   /* sent as is; NULL: none */
	size_t body_len;
	const char *body_type; /* NULL: application/json */

	/* Uploads a body instead: returns the number of bytes it put into buf, 0 at the end, -1
	 * with err. */
	int64_t (*read)(void *buf, size_t len, void *arg, struct err *err);
	int64_t read_size; /* known length, or -1: chunked */

	/* The body of a successful response as it comes, straight from the receive buffer.
	 * Returning -1 with err set ends the exchange with that error. NULL: dropped. */
	int (*data)(const void *data, size_t len, void *arg, struct err *err);
	/* Head of a successful response: its length, or -1 when it is not known. May be NULL. */
	int (*head)(int64_t length, void *arg, struct err *err);
	void *arg;
};

/* Any request. A status of 400 or more fails with the API's error. *ret_status may be NULL. A
 * signal that interrupts it while *client_interrupted is true ends it with ERR_CANCELLED. */
int client_do(struct client *client, const struct client_request *request, int *ret_status,
	struct err *err);

/* NDJSON: calls line for each object (borrowed). -1 with err from line ends it. */
typedef int (*client_line_fn)(
	json_t *object, const char *text, size_t len, void *arg, struct err *err);
int client_lines(struct client *client, const char *method, const char *path, json_t *body,
	client_line_fn line, void *arg, struct err *err);

/* A fresh connected blocking socket; the caller closes it. */
int client_dial(const char *socket_path, int *ret_fd, struct err *err);
/* The error in an API error body; falls back to the status. Always -1. */
int client_api_error(int status, const char *body, size_t len, struct err *err);

/* Set by a signal handler to end the running request. */
extern volatile bool client_interrupted;
