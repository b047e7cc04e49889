/* relay.h - one TCP connection of a box, relayed to its destination
 *
 *   accepted -> (first bytes checked) -> dialled -> both ways, until both have ended
 *
 * On port 443 nothing is dialled before the client's TLS hello named the right host; on port 80
 * (and where the policy has methods or paths) nothing before a whole allowed HTTP request. On other
 * ports the dial begins at once, because servers may speak first, and the first bytes are checked
 * as they come: TLS and HTTP are checked there too. Bytes move by splice() through pipes that are
 * lent while something is in them; what must be examined is copied. At most RELAY_CHUNK bytes move
 * for one connection before the others get their turn. A client that does not read stops the
 * server's sending, and the other way round. Half-closed connections stay until the other half
 * ends, too. A refused connection ends with RST. */
#pragma once
#include "base/address.h"
#include "base/err.h"
#include "net/dns_name.h"
#include <stdbool.h>
#include <stdint.h>

struct dial;
struct dial_settings;
struct dial_target;
struct loop;
struct quota;
struct relay;
/* what all relays of a process share: pipes, the ring of those waiting for their rate */
struct relay_hub;

enum {
	RELAY_CHUNK = 256 * 1024,
	RELAY_FIRST_MS = 10000, /* for the first bytes, where they are waited for */
	RELAY_HALF_MS = 120000, /* of silence after one side has ended */
	RELAY_QUOTAS = 3,
};

/* The process ignores SIGPIPE from then on: splice() raises it. */
struct relay_hub *relay_hub_new(struct loop *loop);
void relay_hub_free(struct relay_hub *hub); /* after its relays; accepts NULL */

enum relay_check {
	RELAY_FREE,  /* dial at once; look at the first bytes as they come */
	RELAY_TLS,   /* must be TLS with the right name, before dialling */
	RELAY_HTTP,  /* must be HTTP, each request is asked for, before dialling */
	RELAY_BLIND, /* looked at no further */
};

/* Something was seen that must be allowed. */
struct relay_seen {
	enum { RELAY_SEEN_SNI, RELAY_SEEN_NO_SNI, RELAY_SEEN_REQUEST } kind;
	const char *name;   /* SNI or Host, lower-case; "" : none */
	const char *method; /* of a request */
	const char *path;
	bool ech;
};

enum relay_end {
	RELAY_END_DONE,	     /* both sides ended normally */
	RELAY_END_RESET,     /* one side failed */
	RELAY_END_REFUSED,   /* by the policy, because of what was seen: why says it */
	RELAY_END_UNREACHED, /* the dial failed */
	RELAY_END_BUDGET,    /* a quota's budget is spent */
	RELAY_END_TIMEOUT,   /* nothing came within its time */
	RELAY_END_CUT,	     /* by relay_cut */
	RELAY_END_COUNT
};
const char *relay_end_name(enum relay_end end);

struct relay_report {
	enum relay_end end;
	char why[128];		      /* for the user; "" when there is nothing to say */
	uint64_t bytes_out, bytes_in; /* from the box, into the box */
	int64_t duration_us;
	struct address address; /* destination; family 0: not known */
};

/* Called from the loop, never from within a call to this file. They may cut relays, this one too,
 * but free none. */
struct relay_ops {
	bool (*seen)(void *arg, const struct relay_seen *seen); /* false: refused */
	bool (*may)(void *arg, const struct address *address);	/* as in dial.h */
	void (*dialled)(
		void *arg, const struct address *address); /* it is connected; may be NULL */
	/* Bytes were written to the server (out) or to the client just now; must not free the
	 * relay. May be NULL. */
	void (*moved)(void *arg, bool out);
	void (*ended)(void *arg, const struct relay_report *report); /* once; the relay is freed */
};

struct relay_options {
	struct relay_hub *hub;
	int client; /* accepted, non-blocking; owned by the relay */
	enum relay_check check;
	const struct dial_settings *dial; /* borrowed */
	const struct dial_target *target; /* copied; NULL: a server is given by relay_connect */
	/* borrowed; NULL: none. Bytes count for all of them; the caller counts connections */
	struct quota *quotas[RELAY_QUOTAS];
	const struct relay_ops *ops;
	void *arg;
};

struct relay *relay_new(const struct relay_options *options);
/* Gives the server to a relay without target, connected or connecting, owned from now on; -1: it
 * cannot be reached. */
void relay_connect(struct relay *relay, int server, const struct err *err);
/* Resets both sides; ended is called from the loop. why is copied. */
void relay_cut(struct relay *relay, const char *why);
/* The bytes so far. */
void relay_figures(const struct relay *relay, uint64_t *ret_out, uint64_t *ret_in);
/* Ends without callbacks, when the process ends. Accepts NULL. */
void relay_free(struct relay *relay);
