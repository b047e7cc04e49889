/* address.c - addresses and ranges, and those that are closed by themselves
 *
 * An IPv6 address can carry an IPv4 one, and a router, a kernel or a NAT64 box then sends the
 * packet to the IPv4 address. So each is brought to the IPv4 address before anything is compared:
 * what is closed as 10.0.0.1 is closed as ::ffff:10.0.0.1, 64:ff9b::a00:1 and 2002:a00:1:: too. */
#include "policy/policy_internal.h"
#include "base/text.h"

static unsigned family_bits(unsigned family)
{
	return family == 4 ? 32 : 128;
}

int policy_addr_parse(const char *text, struct address *ret, struct err *err)
{
	if (!address_parse(text, ret))
		return err_set(err, ERR_INVALID, "'%.80s' is not an address", text);
	return 0;
}

static void mask(struct address *addr, unsigned bits)
{
	for (unsigned i = 0; i < 16; i++) {
		unsigned keep = bits > 8 * i ? MIN(bits - 8 * i, 8u) : 0;

		addr->bytes[i] &= (uint8_t)(0xff00 >> keep);
	}
}

/* Where IPv6 keeps an IPv4 address: behind which prefix, and from which byte on. */
static const struct {
	uint8_t prefix[16];
	uint8_t bits, from;
} carriers[] = {
	{ { [10] = 0xff, [11] = 0xff }, 96, 12 }, /* ::ffff:0:0/96 mapped */
	{ { [8] = 0xff, [9] = 0xff }, 96, 12 },	  /* ::ffff:0:0:0/96 translated */
	{ { 0x00, 0x64, 0xff, 0x9b }, 96, 12 },	  /* 64:ff9b::/96 NAT64 */
	{ { 0x20, 0x02 }, 16, 2 },		  /* 2002::/16 6to4 */
	{ { 0 }, 96, 12 },			  /* ::/96 compatible; not :: and ::1 */
};

static int carrier_of(const struct address *addr)
{
	static const uint8_t zero[15];

	if (addr->family != 6 || (!memcmp(addr->bytes, zero, 15) && addr->bytes[15] <= 1))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(carriers); i++)
		if (!memcmp(addr->bytes, carriers[i].prefix, carriers[i].bits / 8))
			return (int)i;
	return -1;
}

struct address policy_addr_normalise(const struct address *addr)
{
	int carrier = carrier_of(addr);
	struct address inner = { .family = 4 };

	if (carrier < 0)
		return *addr;
	memcpy(inner.bytes, addr->bytes + carriers[carrier].from, 4);
	return inner;
}

static int cidr_split(
	const char *text, char *host, size_t size, const char **ret_bits, struct err *err)
{
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : strlen(text);

	if (len >= size)
		return err_set(err, ERR_INVALID, "'%.80s' is not an address range", text);
	memcpy(host, text, len);
	host[len] = '\0';
	*ret_bits = slash ? slash + 1 : NULL;
	return 0;
}

int policy_cidr_parse(const char *text, struct policy_cidr *ret, struct err *err)
{
	char host[POLICY_ADDR_SIZE], fixed[POLICY_ADDR_SIZE];
	struct policy_cidr cidr = { 0 };
	const char *bits_text;
	uint64_t bits;

	if (cidr_split(text, host, sizeof host, &bits_text, err) < 0)
		return -1;
	if (policy_addr_parse(host, &cidr.base, NULL) < 0)
		return err_set(err, ERR_INVALID, "'%.80s' is not an address range", text);
	bits = family_bits(cidr.base.family);
	/* Leading zeros, as in /08, would have two meanings for people. */
	if (bits_text && ((bits_text[0] == '0' && bits_text[1]) ||
				 parse_u64("prefix", bits_text, 0, bits, &bits, NULL) < 0))
		return err_set(err, ERR_INVALID, "'%.80s': the prefix must be a number up to %u",
			text, family_bits(cidr.base.family));
	cidr.bits = (uint8_t)bits;
	if (carrier_of(&cidr.base) >= 0) {
		err_set(err, ERR_INVALID, "'%.80s' is an IPv4 address in IPv6 clothes", text);
		return err_hint(err, "write the IPv4 address or range; it holds for all its forms");
	}
	*ret = cidr;
	mask(&cidr.base, cidr.bits);
	if (memcmp(&cidr, ret, sizeof cidr)) {
		err_set(err, ERR_INVALID, "'%.80s' has bits set behind its prefix", text);
		return err_hint(err, "write %s/%u, or the address alone",
			address_format(&cidr.base, fixed), cidr.bits);
	}
	return 0;
}

bool policy_cidr_has(const struct policy_cidr *cidr, const struct address *addr)
{
	unsigned whole = cidr->bits / 8, rest = cidr->bits % 8;

	if (cidr->base.family != addr->family || memcmp(cidr->base.bytes, addr->bytes, whole) != 0)
		return false;
	return !rest || !((cidr->base.bytes[whole] ^ addr->bytes[whole]) >> (8 - rest));
}

bool cidr_covers(const struct policy_cidr *wide, const struct policy_cidr *narrow)
{
	return wide->bits <= narrow->bits && policy_cidr_has(wide, &narrow->base);
}

/* ---- what is closed by itself --------------------------------------------------------------- */

#define V4(bits, what, closed, ...)                            \
	{                                                      \
		{ { 4, { __VA_ARGS__ } }, bits }, what, closed \
	}
#define V6(bits, what, closed, ...)                            \
	{                                                      \
		{ { 6, { __VA_ARGS__ } }, bits }, what, closed \
	}

/* The first that holds an address counts. Metadata services of clouds come first: some are in
 * ranges that a rule may open, one is a public address. The ranges kept for documentation are not
 * here: nothing answers there on a real network, so an address there harms nobody, and tests can
 * play the internet with them. */
static const struct {
	struct policy_cidr cidr;
	const char *what;
	enum policy_closed closed;
} ranges[] = {
	V4(32, "metadata", POLICY_NEVER, 169, 254, 169, 254),
	V4(32, "metadata", POLICY_NEVER, 100, 100, 100, 200),
	V4(32, "metadata", POLICY_NEVER, 192, 0, 0, 192),
	V4(32, "metadata", POLICY_NEVER, 168, 63, 129, 16),
	V6(128, "metadata", POLICY_NEVER, 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54),
	V6(128, "metadata", POLICY_NEVER, 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54),
	V4(8, "loopback", POLICY_NEVER, 127),
	V4(8, "unspecified", POLICY_NEVER, 0),
	V4(16, "link-local", POLICY_NEVER, 169, 254),
	V4(4, "multicast", POLICY_NEVER, 224),
	V4(4, "reserved", POLICY_NEVER, 240),
	V4(24, "6to4 relays", POLICY_NEVER, 192, 88, 99),
	V4(15, "synthetic", POLICY_NEVER, 198, 18), /* the names of a box stand for these */
	V6(128, "loopback", POLICY_NEVER, [15] = 1),
	V6(128, "unspecified", POLICY_NEVER, 0),
	V6(10, "link-local", POLICY_NEVER, 0xfe, 0x80),
	V6(10, "site-local", POLICY_NEVER, 0xfe, 0xc0),
	V6(8, "multicast", POLICY_NEVER, 0xff),
	V6(48, "local NAT64", POLICY_NEVER, 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01),
	V6(32, "Teredo", POLICY_NEVER, 0x20, 0x01),
	V6(64, "discard", POLICY_NEVER, 0x01),
	V4(8, "private", POLICY_PRIVATE, 10),
	V4(12, "private", POLICY_PRIVATE, 172, 16),
	V4(16, "private", POLICY_PRIVATE, 192, 168),
	V4(10, "shared (CGNAT)", POLICY_PRIVATE, 100, 64),
	V4(24, "protocol assignments", POLICY_PRIVATE, 192, 0, 0),
	V6(7, "private", POLICY_PRIVATE, 0xfc),
	/* Of IPv6, only 2000::/3 is given out to the public: these are all the rest. */
	V6(3, "reserved", POLICY_NEVER, 0),
	V6(2, "reserved", POLICY_NEVER, 0x40),
	V6(1, "reserved", POLICY_NEVER, 0x80),
};

enum policy_closed policy_addr_closed(const struct address *addr, const char **ret_what)
{
	for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
		if (policy_cidr_has(&ranges[i].cidr, addr)) {
			*ret_what = ranges[i].what;
			return ranges[i].closed;
		}
	*ret_what = NULL;
	return POLICY_PUBLIC;
}

const char *policy_addr_special(const struct address *addr)
{
	struct address real = policy_addr_normalise(addr);
	const char *what;

	if (!real.family)
		return "none";
	policy_addr_closed(&real, &what);
	return what;
}

bool cidr_is_private(const struct policy_cidr *cidr)
{
	for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
		if (ranges[i].closed == POLICY_PRIVATE && cidr_covers(&ranges[i].cidr, cidr))
			return true;
	return false;
}

const char *cidr_never(const struct policy_cidr *cidr)
{
	for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
		if (cidr_covers(&ranges[i].cidr, cidr))
			return ranges[i].closed == POLICY_NEVER ? ranges[i].what : NULL;
	return NULL;
}

bool cidr_has_closed(const struct policy_cidr *cidr)
{
	for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
		if (cidr_covers(cidr, &ranges[i].cidr) && cidr->bits < ranges[i].cidr.bits)
			return true;
	return false;
}
