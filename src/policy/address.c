/* address.c - addresses and ranges, and which of them are closed by default
 *
 * An IPv6 address can carry an IPv4 address, and a router, a kernel or a NAT64 gateway then sends
 * the packet to that IPv4 address. So every address is reduced to the IPv4 address before anything
 * is compared: what is closed as 10.0.0.1 is closed as ::ffff:10.0.0.1, 64:ff9b::a00:1 and
 * 2002:a00:1:: too. */
#include "policy/policy_internal.h"
#include "base/special.h"
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

/* How IPv6 carries an IPv4 address: after which prefix, and from which byte on. */
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

int policy_cidr_parse(const char *text, struct address_range *ret, struct err *err)
{
	char host[POLICY_ADDR_SIZE], fixed[POLICY_ADDR_SIZE];
	struct address_range cidr = { 0 };
	const char *bits_text;
	uint64_t bits;

	if (cidr_split(text, host, sizeof host, &bits_text, err) < 0)
		return -1;
	if (policy_addr_parse(host, &cidr.base, NULL) < 0)
		return err_set(err, ERR_INVALID, "'%.80s' is not an address range", text);
	bits = family_bits(cidr.base.family);
	/* Leading zeros, as in /08, could be read in two ways. */
	if (bits_text && ((bits_text[0] == '0' && bits_text[1]) ||
				 parse_u64("prefix", bits_text, 0, bits, &bits, NULL) < 0))
		return err_set(err, ERR_INVALID, "'%.80s': the prefix must be a number up to %u",
			text, family_bits(cidr.base.family));
	cidr.bits = (uint8_t)bits;
	if (carrier_of(&cidr.base) >= 0) {
		err_set(err, ERR_INVALID, "'%.80s' is an IPv4 address inside an IPv6 address",
			text);
		return err_hint(err, "write the IPv4 address or range; it covers all IPv6 forms");
	}
	*ret = cidr;
	mask(&cidr.base, cidr.bits);
	if (memcmp(&cidr, ret, sizeof cidr)) {
		err_set(err, ERR_INVALID, "'%.80s' has bits set after its prefix", text);
		return err_hint(err, "write %s/%u, or the address alone",
			address_format(&cidr.base, fixed), cidr.bits);
	}
	return 0;
}

/* ---- what is closed by default -------------------------------------------------------------- */

static enum policy_closed closed_of(enum special_kind kind)
{
	switch (kind) {
	case SPECIAL_NONE:
		return POLICY_PUBLIC;
	case SPECIAL_PRIVATE:
	case SPECIAL_CGNAT:
	case SPECIAL_ASSIGNMENTS:
		return POLICY_PRIVATE;
	default:
		return POLICY_NEVER;
	}
}

enum policy_closed policy_addr_closed(const struct address *addr, const char **ret_what)
{
	enum special_kind kind = special_kind_of(addr);

	*ret_what = special_kind_name(kind);
	return closed_of(kind);
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

bool cidr_is_private(const struct address_range *cidr)
{
	for (size_t i = 0; i < special_range_count; i++)
		if (closed_of(special_ranges[i].kind) == POLICY_PRIVATE &&
			address_range_covers(&special_ranges[i].range, cidr))
			return true;
	return false;
}

const char *cidr_never(const struct address_range *cidr)
{
	for (size_t i = 0; i < special_range_count; i++) {
		enum special_kind kind = special_ranges[i].kind;

		if (address_range_covers(&special_ranges[i].range, cidr))
			return closed_of(kind) == POLICY_NEVER ? special_kind_name(kind) : NULL;
	}
	return NULL;
}

bool cidr_has_closed(const struct address_range *cidr)
{
	for (size_t i = 0; i < special_range_count; i++)
		if (address_range_covers(cidr, &special_ranges[i].range) &&
			cidr->bits < special_ranges[i].range.bits)
			return true;
	return false;
}
