/* result.c - our queries to upstream and their replies; see message.h
 *
 * A reply is walked once for each alias: the records of the current name are used, all others
 * ignored, wherever they are in the section. Both numbers are bounded. */
#include "base/alloc.h"
#include "base/text.h"
#include "gate/dns/message.h"
#include "gate/dns/wire_internal.h"

enum {
	ALIASES_MAX = 16,
	RECORDS_MAX = 512, /* of one section */
};

struct record {
	struct dns_name owner;
	uint16_t type;
	uint16_t class;
	uint32_t ttl;
	size_t data; /* offset of its data in the message */
	size_t data_len;
};

struct walk {
	const uint8_t *message;
	size_t len;
	size_t pos;
};

/* ---- queries -------------------------------------------------------------------------------- */

size_t dns_question_build(struct dns_question *question, uint8_t *out)
{
	uint8_t *at = out;

	random_bytes(&question->id, sizeof question->id);
	dns_name_mix_case(&question->name);
	at = dns_put16(at, question->id);
	at = dns_put16(at, DNS_FLAG_RECURSE);
	at = dns_put16(at, 1);
	at = dns_put16(at, 0);
	at = dns_put16(at, 0);
	at = dns_put16(at, 1);
	memcpy(at, question->name.wire, question->name.len);
	at = dns_put16(at + question->name.len, question->type);
	at = dns_put16(at, DNS_CLASS_IN);
	*at++ = 0;
	at = dns_put16(at, DNS_TYPE_OPT);
	at = dns_put16(at, DNS_UDP_SIZE);
	at = dns_put32(at, 0);
	at = dns_put16(at, 0);
	return at - out;
}

/* ---- replies -------------------------------------------------------------------------------- */

static bool read_record(struct walk *walk, struct record *ret)
{
	const uint8_t *at;

	if (!dns_name_read(walk->message, walk->len, &walk->pos, &ret->owner) ||
		walk->len - walk->pos < 10)
		return false;
	at = walk->message + walk->pos;
	ret->type = dns_get16(at);
	ret->class = dns_get16(at + 2);
	ret->ttl = dns_get32(at + 4);
	if (ret->ttl > INT32_MAX)
		ret->ttl = 0;
	ret->data_len = dns_get16(at + 8);
	ret->data = walk->pos + 10;
	if (ret->data_len > walk->len - ret->data)
		return false;
	walk->pos = ret->data + ret->data_len;
	return true;
}

/* Reads a name that fills a record's data. */
static bool read_target(const struct walk *walk, const struct record *record, struct dns_name *ret)
{
	size_t pos = record->data;

	return dns_name_read(walk->message, record->data + record->data_len, &pos, ret) &&
	       pos == record->data + record->data_len;
}

static bool take_address(const struct walk *walk, const struct record *record, uint32_t ttl,
	struct dns_result *result)
{
	const uint8_t *data = walk->message + record->data;

	if (record->data_len != (record->type == DNS_TYPE_A ? 4 : 16))
		return false;
	if (result->count == DNS_ADDRESSES_MAX)
		return true;
	result->addresses[result->count++] =
		record->type == DNS_TYPE_A ? address_v4(data) : address_v6(data);
	result->ttl = MIN(result->ttl, ttl);
	return true;
}

/* One walk over the answers: the addresses of *name, and where it leads if it is an alias.
 * Returns -1 malformed, 0 no alias, 1 *name is the next name. */
static int walk_answers(struct walk walk, unsigned records, const struct dns_question *question,
	struct dns_name *name, struct dns_result *result)
{
	struct dns_name target = { 0 };
	struct record record;

	for (unsigned i = 0; i < records; i++) {
		if (!read_record(&walk, &record))
			return -1;
		if (record.class != DNS_CLASS_IN || !dns_name_equal(&record.owner, name))
			continue;
		if (record.type == question->type &&
			!take_address(&walk, &record, record.ttl, result))
			return -1;
		if (record.type == DNS_TYPE_CNAME) {
			if (!read_target(&walk, &record, &target))
				return -1;
			result->ttl = MIN(result->ttl, record.ttl);
		}
	}
	if (!target.len || result->count)
		return 0;
	*name = target;
	return 1;
}

/* How long a negative answer is valid, from the SOA in the authority section (RFC 2308). */
static bool read_negative_ttl(struct walk *walk, unsigned records, struct dns_result *result)
{
	struct record record;

	result->ttl = 0;
	for (unsigned i = 0; i < records; i++) {
		if (!read_record(walk, &record))
			return false;
		if (record.type != DNS_TYPE_SOA || record.class != DNS_CLASS_IN ||
			record.data_len < 22)
			continue;
		result->ttl = MIN(
			record.ttl, dns_get32(walk->message + record.data + record.data_len - 4));
	}
	return true;
}

static bool skip_records(struct walk *walk, unsigned records)
{
	struct record record;

	for (unsigned i = 0; i < records; i++)
		if (!read_record(walk, &record))
			return false;
	return true;
}

static bool read_sections(
	struct walk *walk, const struct dns_question *question, struct dns_result *ret)
{
	unsigned answers = dns_get16(walk->message + 6), authorities = dns_get16(walk->message + 8);
	struct dns_name name = question->name;
	int more = 1;

	if (answers > RECORDS_MAX || authorities > RECORDS_MAX)
		return false;
	ret->ttl = UINT32_MAX;
	for (unsigned i = 0; more && i < ALIASES_MAX; i++) {
		more = walk_answers(*walk, answers, question, &name, ret);
		if (more < 0)
			return false;
	}
	if (more)
		return false; /* a loop of aliases, or too many */
	if (ret->count)
		return true;
	return skip_records(walk, answers) && read_negative_ttl(walk, authorities, ret);
}

enum dns_match dns_result_parse(const uint8_t *message, size_t len,
	const struct dns_question *question, struct dns_result *ret)
{
	struct walk walk = { message, len, DNS_HEADER };
	struct dns_name asked;
	enum dns_match match;
	uint16_t flags;

	if (len < DNS_HEADER || dns_get16(message) != question->id)
		return DNS_MATCH_STRANGER;
	flags = dns_get16(message + 2);
	if (!(flags & DNS_FLAG_REPLY) || flags & DNS_FLAG_OPCODE || dns_get16(message + 4) != 1)
		return DNS_MATCH_STRANGER;
	if (!dns_name_read(message, len, &walk.pos, &asked) || len - walk.pos < 4)
		return DNS_MATCH_STRANGER;
	if (!dns_name_equal(&asked, &question->name) ||
		dns_get16(message + walk.pos) != question->type ||
		dns_get16(message + walk.pos + 2) != DNS_CLASS_IN)
		return DNS_MATCH_STRANGER;
	walk.pos += 4;
	match = dns_name_equal_case(&asked, &question->name) ? DNS_MATCH : DNS_MATCH_CASE;
	*ret = (struct dns_result){ .rcode = flags & DNS_FLAG_RCODE,
		.truncated = flags & DNS_FLAG_TRUNCATED };
	if (ret->truncated)
		return match;
	return read_sections(&walk, question, ret) ? match : DNS_MATCH_BROKEN;
}
