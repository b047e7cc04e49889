/* special.h - the ranges of addresses that are not the public internet, all in one table
 *
 * What is done about each is the business of those who ask: the policy closes them, the namespace
 * of a box lets some of them stay inside it. */
#pragma once
#include "base/address.h"
#include <stddef.h>

enum special_kind {
	SPECIAL_NONE, /* public */
	SPECIAL_METADATA,
	SPECIAL_LOOPBACK,
	SPECIAL_UNSPECIFIED,
	SPECIAL_LINK_LOCAL,
	SPECIAL_SITE_LOCAL,
	SPECIAL_MULTICAST,
	SPECIAL_RESERVED,
	SPECIAL_RELAYS,
	SPECIAL_SYNTHETIC, /* the names of a box stand for these */
	SPECIAL_NAT64,
	SPECIAL_TEREDO,
	SPECIAL_DISCARD,
	SPECIAL_PRIVATE,
	SPECIAL_CGNAT,
	SPECIAL_ASSIGNMENTS,
	SPECIAL_KIND_COUNT
};

struct special_range {
	struct address_range range;
	enum special_kind kind;
};

/* The first that holds an address counts. */
extern const struct special_range special_ranges[];
extern const size_t special_range_count;

const char *special_kind_name(enum special_kind kind); /* "link-local"; NULL of SPECIAL_NONE */
/* Takes the address as it is: an IPv4 one in IPv6 clothes is not unpacked. */
enum special_kind special_kind_of(const struct address *address);
/* The first range of a kind; family is 4 or 6. Aborts when there is none. */
const struct address_range *special_range_of(enum special_kind kind, unsigned family);
/* "localhost", or a loopback address as text. */
bool host_is_loopback(const char *host);
