/* dial.h - connects to a name outside, from the host
 *
 * The name is resolved by upstream (A and AAAA at once), each address is shown to the caller, who
 * may refuse it, and the rest are tried as in RFC 8305: the next one 250 ms after the last, the
 * first that answers wins. With a proxy (the host has no other way out) the name is passed to it by
 * CONNECT and nothing is resolved here. */
#pragma once
#include "base/address.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct upstream;
struct dial;

enum {
	DIAL_TIMEOUT_MS = 15000,
	DIAL_NEXT_MS = 250,
	DIAL_ADDRESSES_MAX = 8, /* tried of one name */
};

/* How the host connects outside, from its environment: HTTPS_PROXY
 * (http://[user:password@]host:port), NO_PROXY. */
struct dial_proxy {
	char host[256]; /* a name or an address; "": no proxy */
	uint16_t port;
	char *authorization; /* value of Proxy-Authorization, or NULL; owned */
	char **exempt;	     /* NO_PROXY: names, ".suffix", addresses, CIDRs, "*"; owned; or NULL */
};
/* Either text may be NULL or "": none. ERR_INVALID says what is wrong (https:// and socks
 * proxies are ERR_UNSUPPORTED). */
int dial_proxy_parse(
	const char *proxy, const char *no_proxy, struct dial_proxy *ret, struct err *err);
void dial_proxy_done(struct dial_proxy *proxy);
/* Whether name or address is reached without the proxy; true when there is none. */
bool dial_proxy_is_exempt(
	const struct dial_proxy *proxy, const char *name, const struct address *address);

struct dial_target {
	const char *name;	/* "": only the address */
	struct address address; /* family 0: by name */
	uint16_t port;
	bool allow_private; /* upstream may answer with private addresses */
};

struct dial_ops {
	/* Whether this address may be connected to. Called for each before anything is sent there;
	 * also when target.address is reached by a proxy, never for the proxy's own. Must not
	 * cancel the dial. */
	bool (*may)(void *arg, const struct address *address);
	/* Exactly once, from the loop, never from within dial_start: fd connected and non-blocking,
	 * yours; -1 with err (ERR_FORBIDDEN when no address was allowed or the proxy refused,
	 * ERR_NOT_FOUND for no such name, ERR_TIMEOUT, ERR_LIMIT without descriptors,
	 * ERR_UNAVAILABLE or the like for the rest). The dial is freed. address: family 0 by a
	 * proxy. */
	void (*done)(void *arg, int fd, const struct address *address, const struct err *err);
};

struct dial_settings {
	struct loop *loop;
	struct upstream *upstream;
	struct upstream_share *share;	/* borrowed; may be NULL */
	const struct dial_proxy *proxy; /* borrowed; may be NULL */
	unsigned timeout_ms;		/* 0: DIAL_TIMEOUT_MS */
	unsigned next_ms;		/* 0: DIAL_NEXT_MS */
};

/* target and settings are copied. */
struct dial *dial_start(const struct dial_settings *settings, const struct dial_target *target,
	const struct dial_ops *ops, void *arg);
void dial_cancel(struct dial *dial); /* accepts NULL; done is not called */
