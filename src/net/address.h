/* address.h - an IPv4 or IPv6 address as a value, and whether it belongs to the public internet */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct net_address {
	uint8_t family;	   /* 4 or 6; 0 is none */
	uint8_t bytes[16]; /* network order; IPv4 uses the first four, the rest is zero */
};

enum { NET_ADDRESS_TEXT_MAX = 46 };

struct net_address net_address_v4(const uint8_t bytes[4]);
struct net_address net_address_v6(const uint8_t bytes[16]);
/* "192.0.2.1" or "2001:db8::1", nothing else: no port, no scope, no octal. */
bool net_address_parse(const char *text, struct net_address *ret);
/* out needs NET_ADDRESS_TEXT_MAX bytes. Returns out. */
char *net_address_format(const struct net_address *address, char *out);
bool net_address_equal(const struct net_address *a, const struct net_address *b);
/* The IPv4 address that an IPv6 one only wraps (mapped, translated, compatible, NAT64, 6to4); any
 * other as it is. */
struct net_address net_address_real(const struct net_address *address);
/* Why a name of the public internet must not lead there: "private", "loopback", "link-local" ...;
 * NULL for a public address. Wrapped addresses are judged by what they wrap. */
const char *net_address_special(const struct net_address *address);
