/* address.c - see address.h */
#include "base/address.h"
#include <arpa/inet.h>
#include <string.h>

struct address address_v4(const uint8_t bytes[4])
{
	struct address address = { .family = 4 };

	memcpy(address.bytes, bytes, 4);
	return address;
}

struct address address_v6(const uint8_t bytes[16])
{
	struct address address = { .family = 6 };

	memcpy(address.bytes, bytes, 16);
	return address;
}

bool address_parse(const char *text, struct address *ret)
{
	struct address address = { 0 };

	if (inet_pton(AF_INET, text, address.bytes) == 1)
		address.family = 4;
	else if (inet_pton(AF_INET6, text, address.bytes) == 1)
		address.family = 6;
	else
		return false;
	*ret = address;
	return true;
}

char *address_format(const struct address *address, char *out)
{
	if (!address->family || !inet_ntop(address->family == 4 ? AF_INET : AF_INET6,
					address->bytes, out, ADDRESS_TEXT_MAX))
		strcpy(out, "none");
	return out;
}

bool address_equal(const struct address *a, const struct address *b)
{
	return a->family == b->family && !memcmp(a->bytes, b->bytes, sizeof a->bytes);
}

bool address_range_has(const struct address_range *range, const struct address *address)
{
	unsigned whole = range->bits / 8, rest = range->bits % 8;

	if (range->base.family != address->family ||
		memcmp(range->base.bytes, address->bytes, whole) != 0)
		return false;
	return !rest || !((range->base.bytes[whole] ^ address->bytes[whole]) >> (8 - rest));
}

bool address_range_covers(const struct address_range *wide, const struct address_range *narrow)
{
	return wide->bits <= narrow->bits && address_range_has(wide, &narrow->base);
}
