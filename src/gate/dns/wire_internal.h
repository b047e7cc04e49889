/* wire_internal.h - 16 and 32 bits as DNS messages carry them */
#pragma once
#include <stdint.h>

enum {
	DNS_FLAG_REPLY = 0x8000,
	DNS_FLAG_OPCODE = 0x7800,
	DNS_FLAG_TRUNCATED = 0x0200,
	DNS_FLAG_RECURSE = 0x0100,
	DNS_FLAG_RECURSES = 0x0080,
	DNS_FLAG_CHECKING_OFF = 0x0010,
	DNS_FLAG_RCODE = 0x000f,
	DNS_OPT_DNSSEC_OK = 0x8000,
};

static inline uint16_t dns_get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t dns_get32(const uint8_t *at)
{
	return (uint32_t)dns_get16(at) << 16 | dns_get16(at + 2);
}

static inline uint8_t *dns_put16(uint8_t *at, uint16_t value)
{
	at[0] = value >> 8;
	at[1] = value & 0xff;
	return at + 2;
}

static inline uint8_t *dns_put32(uint8_t *at, uint32_t value)
{
	return dns_put16(dns_put16(at, value >> 16), value & 0xffff);
}
