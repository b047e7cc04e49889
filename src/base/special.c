/* special.c - the table of special ranges; see special.h */
#include "base/special.h"
#include "base/alloc.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define V4(bits, kind, ...)                                      \
	{                                                        \
		{ { 4, { __VA_ARGS__ } }, bits }, SPECIAL_##kind \
	}
#define V6(bits, kind, ...)                                      \
	{                                                        \
		{ { 6, { __VA_ARGS__ } }, bits }, SPECIAL_##kind \
	}

/* Metadata services of clouds come first: some lie in ranges that a rule may open, one is a public
 * address. The documentation ranges are not in the table: nothing answers there on a real network,
 * so they harm nobody, and tests use them as the internet. */
const struct special_range special_ranges[] = {
	V4(32, METADATA, 169, 254, 169, 254),
	V4(32, METADATA, 100, 100, 100, 200),
	V4(32, METADATA, 192, 0, 0, 192),
	V4(32, METADATA, 168, 63, 129, 16),
	V6(128, METADATA, 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54),
	V6(128, METADATA, 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54),
	V4(8, LOOPBACK, 127),
	V4(8, UNSPECIFIED, 0),
	V4(16, LINK_LOCAL, 169, 254),
	V4(4, MULTICAST, 224),
	V4(4, RESERVED, 240),
	V4(24, RELAYS, 192, 88, 99),
	V4(15, SYNTHETIC, 198, 18),
	V6(64, SYNTHETIC, 0xfd, 'b', 'o', 'x', 'y', 'a', 'r', 'd'),
	V6(128, LOOPBACK, [15] = 1),
	V6(128, UNSPECIFIED, 0),
	V6(10, LINK_LOCAL, 0xfe, 0x80),
	V6(10, SITE_LOCAL, 0xfe, 0xc0),
	V6(8, MULTICAST, 0xff),
	V6(48, NAT64, 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01),
	V6(32, TEREDO, 0x20, 0x01),
	V6(64, DISCARD, 0x01),
	V4(8, PRIVATE, 10),
	V4(12, PRIVATE, 172, 16),
	V4(16, PRIVATE, 192, 168),
	V4(10, CGNAT, 100, 64),
	V4(24, ASSIGNMENTS, 192, 0, 0),
	V6(7, PRIVATE, 0xfc),
	/* Only 2000::/3 of IPv6 is assigned to the public; these rows are all the rest. */
	V6(3, RESERVED, 0),
	V6(2, RESERVED, 0x40),
	V6(1, RESERVED, 0x80),
};
const size_t special_range_count = ARRAY_LEN(special_ranges);

static const char *const kind_names[] = {
	[SPECIAL_NONE] = NULL,
	[SPECIAL_METADATA] = "metadata",
	[SPECIAL_LOOPBACK] = "loopback",
	[SPECIAL_UNSPECIFIED] = "unspecified",
	[SPECIAL_LINK_LOCAL] = "link-local",
	[SPECIAL_SITE_LOCAL] = "site-local",
	[SPECIAL_MULTICAST] = "multicast",
	[SPECIAL_RESERVED] = "reserved",
	[SPECIAL_RELAYS] = "6to4 relays",
	[SPECIAL_SYNTHETIC] = "synthetic",
	[SPECIAL_NAT64] = "local NAT64",
	[SPECIAL_TEREDO] = "Teredo",
	[SPECIAL_DISCARD] = "discard",
	[SPECIAL_PRIVATE] = "private",
	[SPECIAL_CGNAT] = "shared (CGNAT)",
	[SPECIAL_ASSIGNMENTS] = "protocol assignments",
};
static_assert(ARRAY_LEN(kind_names) == SPECIAL_KIND_COUNT, "every kind has a name");

const char *special_kind_name(enum special_kind kind)
{
	return kind_names[kind];
}

enum special_kind special_kind_of(const struct address *address)
{
	for (size_t i = 0; i < ARRAY_LEN(special_ranges); i++)
		if (address_range_has(&special_ranges[i].range, address))
			return special_ranges[i].kind;
	return SPECIAL_NONE;
}

const struct address_range *special_range_of(enum special_kind kind, unsigned family)
{
	for (size_t i = 0; i < ARRAY_LEN(special_ranges); i++)
		if (special_ranges[i].kind == kind && special_ranges[i].range.base.family == family)
			return &special_ranges[i].range;
	abort();
}

bool host_is_loopback(const char *host)
{
	struct address address;

	return !strcmp(host, "localhost") ||
	       (address_parse(host, &address) && special_kind_of(&address) == SPECIAL_LOOPBACK);
}
