/* message.c - queries of boxes and our replies; see message.h
 *
 * A reply contains the question once and points at it from each record, so its size is known
 * before it is written: header, question, 16 or 28 bytes per address, 11 bytes of OPT. */
#include "gate/dns/message.h"
#include "base/alloc.h"
#include "gate/dns/wire_internal.h"
#include <assert.h>

enum {
	OPT_SIZE = 11,
	ADDRESS_HEAD = 12, /* pointer, type, class, ttl, length */
	TYPE_META_FIRST =
		/* transfers, keys, obsolete mail types: queries about the server, not a name */
	128,
};

static_assert(DNS_HEADER + DNS_NAME_MAX + 4 + DNS_ADDRESSES_MAX * (ADDRESS_HEAD + 16) + OPT_SIZE <=
		      DNS_REPLY_MAX,
	"a reply always fits");

/* ---- queries -------------------------------------------------------------------------------- */

/* Options are not used, but a malformed list is refused. */
static bool options_are_whole(const uint8_t *at, size_t len)
{
	while (len >= 4) {
		size_t size = 4 + (size_t)dns_get16(at + 2);

		if (size > len)
			return false;
		at += size;
		len -= size;
	}
	return len == 0;
}

/* The only additional record that is accepted. It must be the last one in the message. */
static enum dns_rcode parse_opt(const uint8_t *at, size_t len, struct dns_query *query)
{
	if (len < OPT_SIZE || at[0] != 0 || dns_get16(at + 1) != DNS_TYPE_OPT)
		return DNS_FORMERR;
	if (len - OPT_SIZE != dns_get16(at + 9) ||
		!options_are_whole(at + OPT_SIZE, len - OPT_SIZE))
		return DNS_FORMERR;
	query->has_edns = true;
	query->udp_size = MAX(dns_get16(at + 3), DNS_UDP_MIN);
	query->dnssec_ok = dns_get16(at + 7) & DNS_OPT_DNSSEC_OK;
	return at[6] == 0 ? DNS_NOERROR : DNS_BADVERS;
}

static enum dns_rcode judge_question(const struct dns_query *query)
{
	if (query->type == 0 || query->type == DNS_TYPE_OPT)
		return DNS_FORMERR;
	if (query->class != DNS_CLASS_IN)
		return DNS_REFUSED;
	if (query->type >= TYPE_META_FIRST && query->type < DNS_TYPE_ANY)
		return DNS_REFUSED;
	return DNS_NOERROR;
}

enum dns_rcode dns_query_parse(const uint8_t *message, size_t len, struct dns_query *ret)
{
	size_t pos = DNS_HEADER;
	unsigned additional;
	enum dns_rcode rcode = DNS_NOERROR;

	if (len < DNS_HEADER || dns_get16(message + 2) & DNS_FLAG_REPLY)
		return DNS_DROP;
	ret->id = dns_get16(message);
	ret->flags = dns_get16(message + 2);
	ret->type = ret->class = 0;
	ret->name.len = 0;
	ret->text[0] = '\0';
	ret->is_host = ret->has_edns = ret->dnssec_ok = false;
	ret->udp_size = DNS_UDP_MIN;
	if (ret->flags & DNS_FLAG_OPCODE)
		return DNS_NOTIMP;
	additional = dns_get16(message + 10);
	if (dns_get16(message + 4) != 1 || dns_get16(message + 6) || dns_get16(message + 8) ||
		additional > 1 || ret->flags & DNS_FLAG_TRUNCATED)
		return DNS_FORMERR;
	if (!dns_name_read(message, len, &pos, &ret->name) || len - pos < 4) {
		ret->name.len = 0;
		return DNS_FORMERR;
	}
	ret->type = dns_get16(message + pos);
	ret->class = dns_get16(message + pos + 2);
	pos += 4;
	ret->is_host = dns_name_text(&ret->name, ret->text);
	if (additional)
		rcode = parse_opt(message + pos, len - pos, ret);
	else if (pos != len)
		rcode = DNS_FORMERR;
	return rcode == DNS_NOERROR ? judge_question(ret) : rcode;
}

/* ---- replies -------------------------------------------------------------------------------- */

size_t dns_reply_udp_max(const struct dns_query *query)
{
	return MIN(query->udp_size, DNS_UDP_SIZE);
}

static size_t address_size(const struct dns_query *query, const struct address *address)
{
	if (query->type == DNS_TYPE_A && address->family == 4)
		return 4;
	return query->type == DNS_TYPE_AAAA && address->family == 6 ? 16 : 0;
}

/* How many addresses the reply will contain, and their size as records. */
static size_t count_addresses(
	const struct dns_query *query, const struct dns_reply *reply, size_t *ret_size)
{
	size_t count = 0;

	*ret_size = 0;
	if (reply->rcode != DNS_NOERROR || !query->name.len)
		return 0;
	for (size_t i = 0; i < reply->count && count < DNS_ADDRESSES_MAX; i++) {
		size_t size = address_size(query, &reply->addresses[i]);

		if (!size)
			continue;
		*ret_size += ADDRESS_HEAD + size;
		count++;
	}
	return count;
}

static uint8_t *put_question(uint8_t *at, const struct dns_query *query)
{
	memcpy(at, query->name.wire, query->name.len);
	at = dns_put16(at + query->name.len, query->type);
	return dns_put16(at, query->class);
}

static uint8_t *put_addresses(
	uint8_t *at, const struct dns_query *query, const struct dns_reply *reply, size_t count)
{
	for (size_t i = 0; count; i++) {
		size_t size = address_size(query, &reply->addresses[i]);

		if (!size)
			continue;
		at = dns_put16(at, 0xc000 | DNS_HEADER);
		at = dns_put16(at, query->type);
		at = dns_put16(at, DNS_CLASS_IN);
		at = dns_put32(at, reply->ttl);
		at = dns_put16(at, size);
		memcpy(at, reply->addresses[i].bytes, size);
		at += size;
		count--;
	}
	return at;
}

static uint8_t *put_opt(uint8_t *at, const struct dns_query *query, enum dns_rcode rcode)
{
	*at++ = 0;
	at = dns_put16(at, DNS_TYPE_OPT);
	at = dns_put16(at, DNS_UDP_SIZE);
	at = dns_put16(at, (rcode >> 4) << 8);
	at = dns_put16(at, query->dnssec_ok ? DNS_OPT_DNSSEC_OK : 0);
	return dns_put16(at, 0);
}

size_t dns_reply_build(
	const struct dns_query *query, const struct dns_reply *reply, size_t max, uint8_t *out)
{
	size_t question = query->name.len ? query->name.len + 4u : 0, records;
	size_t count = count_addresses(query, reply, &records);
	uint16_t flags =
		DNS_FLAG_REPLY | DNS_FLAG_RECURSES |
		(query->flags & (DNS_FLAG_OPCODE | DNS_FLAG_RECURSE | DNS_FLAG_CHECKING_OFF)) |
		(reply->rcode & DNS_FLAG_RCODE);
	uint8_t *at = out;

	if (DNS_HEADER + question + records + (query->has_edns ? OPT_SIZE : 0) > max) {
		count = 0;
		flags |= DNS_FLAG_TRUNCATED;
	}
	at = dns_put16(at, query->id);
	at = dns_put16(at, flags);
	at = dns_put16(at, question ? 1 : 0);
	at = dns_put16(at, count);
	at = dns_put16(at, 0);
	at = dns_put16(at, query->has_edns ? 1 : 0);
	if (question)
		at = put_question(at, query);
	at = put_addresses(at, query, reply, count);
	if (query->has_edns)
		at = put_opt(at, query, reply->rcode);
	return at - out;
}
