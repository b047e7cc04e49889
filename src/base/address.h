/* address.h - an IPv4 or IPv6 address as a value, and ranges of them; which are special is in
 * special.h */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct address {
	uint8_t family;	   /* 4 or 6; 0: no address */
	uint8_t bytes[16]; /* network byte order; IPv4 uses the first four, the rest is zero */
};

enum { ADDRESS_TEXT_MAX = 46 };

struct address address_v4(const uint8_t bytes[4]);
struct address address_v6(const uint8_t bytes[16]);
/* Reads "192.0.2.1" or "2001:db8::1" and nothing else: no port, no scope, no octal numbers. */
bool address_parse(const char *text, struct address *ret);
/* Writes the address as text, or "none", into out (ADDRESS_TEXT_MAX bytes). Returns out. */
char *address_format(const struct address *address, char *out);
bool address_equal(const struct address *a, const struct address *b);

struct address_range {
	struct address base; /* the bits after the prefix are 0 */
	uint8_t bits;
};
bool address_range_has(const struct address_range *range, const struct address *address);
bool address_range_covers(const struct address_range *wide, const struct address_range *narrow);
