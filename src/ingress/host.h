/* host.h - which box a Host header names; pure
 *
 *   web.localhost:30001        the default port of the box "web"
 *   8080-web.localhost:30001   port 8080 of it
 *   8080-web.boxes.example     the same below the configured domain */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { HOST_MAX = 253, HOST_LABEL_MAX = 63 };

struct host {
	char name[HOST_MAX + 1]; /* in lower case, without port and trailing dot */
	char label[HOST_LABEL_MAX +
		   1]; /* what precedes the domain; "": not a possible name of a box */
};

/* False when the host is neither below "localhost" nor below domain ("": none). */
bool host_parse(const char *text, const char *domain, struct host *ret);
/* "8080-web" is port 8080 of "web"; false for a label without a port. *ret_name points into
 * label. */
bool host_split_port(const char *label, const char **ret_name, uint16_t *ret_port);
