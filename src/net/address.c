/* address.c - see address.h
 *
 * What is special, and what wraps an IPv4 address, the policy knows: one table for names that are
 * resolved and for addresses that are dialled. */
#include "net/address.h"
#include "base/alloc.h"
#include "policy/policy.h"
#include <arpa/inet.h>

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

static void normalise(const struct net_address *address, struct policy_addr *ret)
{
	ret->family = address->family;
	memcpy(ret->bytes, address->bytes, sizeof ret->bytes);
	*ret = policy_addr_normalise(ret);
}

struct net_address net_address_real(const struct net_address *address)
{
	struct policy_addr addr;

	normalise(address, &addr);
	return address->family == 6 && addr.family == 4 ? net_address_v4(addr.bytes) : *address;
}

const char *net_address_special(const struct net_address *address)
{
	struct policy_addr addr;
	const char *what;

	normalise(address, &addr);
	if (!addr.family)
		return "none";
	policy_addr_closed(&addr, &what);
	return what;
}
