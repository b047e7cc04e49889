/* address.c - see address.h
 *
 * The ranges kept for documentation count as public: nothing answers there on a real network, so a name
 * that leads there harms nobody, and tests can play the internet with them. */
#include "net/address.h"
#include "base/alloc.h"
#include <arpa/inet.h>

struct range {
	uint8_t bytes[16];
	uint8_t bits;
	const char *word;
};

static const struct range v4_ranges[] = {
	{ { 0 }, 8, "this-network" }, { { 10 }, 8, "private" },
	{ { 100, 64 }, 10,
		"shared" }, /* carrier NAT; clouds put metadata and internal services here */
	{ { 127 }, 8, "loopback" }, { { 169, 254 }, 16, "link-local" },
	{ { 172, 16 }, 12, "private" }, { { 192, 0, 0 }, 24, "reserved" },
	{ { 192, 88, 99 }, 24, "reserved" }, /* 6to4 relays */
	{ { 192, 168 }, 16, "private" },
	{ { 198, 18 }, 15, "synthetic" }, /* benchmarks by the book, ours inside boxes */
	{ { 224 }, 4, "multicast" }, { { 240 }, 4, "reserved" }, /* and broadcast */
};

static const struct range v6_ranges[] = {
	{ { [15] = 1 }, 128, "loopback" }, { { 0xfe, 0x80 }, 10, "link-local" },
	{ { 0xfe, 0xc0 }, 10, "private" }, /* site-local, of old */
	{ { 0xfc }, 7, "private" }, { { 0xff }, 8, "multicast" },
	{ { 0x20, 0x01 }, 32, "reserved" }, /* Teredo: hides an IPv4 address */
};

static const struct range v6_global = { { 0x20 }, 3, NULL };

/* Where an IPv6 address carries an IPv4 one. */
static const struct wrapping {
	struct range range;
	uint8_t offset;
} wrappings[] = {
	{ { { [10] = 0xff, 0xff }, 96, "mapped" }, 12 },
	{ { { 0 }, 96, "compatible" }, 12 },
	{ { { 0x00, 0x64, 0xff, 0x9b }, 96, "nat64" }, 12 },
	{ { { 0x20, 0x02 }, 16, "6to4" }, 2 },
};

static bool in_range(const struct range *range, const uint8_t *bytes)
{
	unsigned whole = range->bits / 8, rest = range->bits % 8;

	if (memcmp(range->bytes, bytes, whole))
		return false;
	return !rest || !((range->bytes[whole] ^ bytes[whole]) >> (8 - rest));
}

struct net_address net_address_v4(const uint8_t bytes[4])
{
	struct net_address address = { .family = 4 };

	memcpy(address.bytes, bytes, 4);
	return address;
}

struct net_address net_address_v6(const uint8_t bytes[16])
{
	struct net_address address = { .family = 6 };

	memcpy(address.bytes, bytes, 16);
	return address;
}

bool net_address_parse(const char *text, struct net_address *ret)
{
	struct net_address address = { 0 };

	if (inet_pton(AF_INET, text, address.bytes) == 1)
		address.family = 4;
	else if (inet_pton(AF_INET6, text, address.bytes) == 1)
		address.family = 6;
	else
		return false;
	*ret = address;
	return true;
}

char *net_address_format(const struct net_address *address, char *out)
{
	if (!address->family || !inet_ntop(address->family == 4 ? AF_INET : AF_INET6,
					address->bytes, out, NET_ADDRESS_TEXT_MAX))
		strcpy(out, "none");
	return out;
}

bool net_address_equal(const struct net_address *a, const struct net_address *b)
{
	return a->family == b->family && !memcmp(a->bytes, b->bytes, sizeof a->bytes);
}

struct net_address net_address_real(const struct net_address *address)
{
	static const uint8_t nothing[15];

	if (address->family != 6)
		return *address;
	/* :: and ::1 are no compatible addresses. */
	if (!memcmp(address->bytes, nothing, sizeof nothing) && address->bytes[15] <= 1)
		return *address;
	for (size_t i = 0; i < ARRAY_LEN(wrappings); i++)
		if (in_range(&wrappings[i].range, address->bytes))
			return net_address_v4(address->bytes + wrappings[i].offset);
	return *address;
}

const char *net_address_special(const struct net_address *address)
{
	struct net_address real = net_address_real(address);
	const struct range *ranges = real.family == 4 ? v4_ranges : v6_ranges;
	size_t count = real.family == 4 ? ARRAY_LEN(v4_ranges) : ARRAY_LEN(v6_ranges);

	for (size_t i = 0; i < count; i++)
		if (in_range(&ranges[i], real.bytes))
			return ranges[i].word;
	/* Beyond 2000::/3 nothing is given out to the public. */
	return real.family == 4 || (real.family == 6 && in_range(&v6_global, real.bytes))
		       ? NULL
		       : "reserved";
}
