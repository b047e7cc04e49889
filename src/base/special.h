/* special.h - all address ranges that are not the public internet, in one table
 *
 * The callers decide what to do about each range: the policy denies them, the network namespace of
 * a box keeps some of them local. */
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
	SPECIAL_SYNTHETIC, /* addresses that stand for the names a box looks up */
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

/* The first row that contains an address is the one that counts. */
extern const struct special_range special_ranges[];
extern const size_t special_range_count;

const char *special_kind_name(enum special_kind kind); /* such as "link-local"; NULL for
						        * SPECIAL_NONE */
/* Looks the address up as it is: an IPv4-mapped IPv6 address is not unpacked. */
enum special_kind special_kind_of(const struct address *address);
/* The first range of a kind; family is 4 or 6. Aborts when the table has none. */
const struct address_range *special_range_of(enum special_kind kind, unsigned family);
/* True for "localhost" and for a loopback address as text. */
bool host_is_loopback(const char *host);
