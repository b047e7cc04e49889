/* fuzz_dns.c - arbitrary bytes as a question of a box and as a reply from above
 *
 * A question that was understood is answered in every way; each answer keeps to its bounds and is
 * read again as a reply to that question, with the addresses that were put in. A reply is read as
 * an answer to a fixed question, which the seeds match. */
#include "base/alloc.h"
#include "gate/dns/message.h"
#include "net/resolv_conf.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* ---- seeds ---------------------------------------------------------------------------------- */

#define SEED(text)                     \
	{                              \
		text, sizeof(text) - 1 \
	}
#define ASKED "\1a\4test\0\0\1\0\1"

static const struct {
	const char *bytes;
	size_t len;
} seeds[] = {
	SEED("\x12\x34\1\0\0\1\0\0\0\0\0\0" ASKED),
	SEED("\x12\x34\1\0\0\1\0\0\0\0\0\1" ASKED "\0\0\x29\x10\0\0\0\x80\0\0\x0c\0\x0a\0\x08"
	     "12345678"),
	SEED("\x12\x34\x81\x80\0\1\0\2\0\0\0\0" ASKED "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\1\2\3\4"
	     "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\5\6\7\x08"),
	SEED("\x12\x34\x81\x80\0\1\0\3\0\0\0\0" ASKED "\xc0\x0c\0\5\0\1\0\0\0\x3c\0\4\1b\xc0\x0e"
	     "\1b\xc0\x0e\0\5\0\1\0\0\0\x3c\0\4\1c\xc0\x0e"
	     "\1c\xc0\x0e\0\1\0\1\0\0\0\x3c\0\4\1\2\3\4"),
	SEED("\x12\x34\x81\x83\0\1\0\0\0\1\0\0" ASKED "\4test\0\0\6\0\1\0\0\0\x64\0\x16\0\0"
	     "\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\x1e"),
	SEED("nameserver fe80::1%eth0\nsearch a.test b.test\noptions ndots:2 timeout:1\n"),
};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	if (seed % 32 == 0 || !size) {
		size_t which = seed / 32 % ARRAY_LEN(seeds);

		size = MIN(seeds[which].len, max_size);
		memcpy(data, seeds[which].bytes, size);
	}
	return LLVMFuzzerMutate(data, size, max_size);
}

/* ---- questions ------------------------------------------------------------------------------ */

static void check_text(const struct dns_query *query)
{
	struct dns_name again;

	assert(strlen(query->text) < DNS_TEXT_MAX);
	for (const char *at = query->text; *at; at++)
		assert(*at > ' ' && *at < 0x7f && !(*at >= 'A' && *at <= 'Z'));
	/* a host name as text means the name that was asked, and only a host name does */
	assert(dns_name_parse(query->text, &again) == query->is_host);
	assert(!query->is_host || dns_name_equal(&again, &query->name));
}

static void check_reply(const struct dns_query *query, const struct dns_reply *reply, size_t max)
{
	uint8_t out[DNS_REPLY_MAX];
	size_t len = dns_reply_build(query, reply, max, out);
	struct dns_question question = {
		.id = query->id, .type = query->type, .name = query->name
	};
	struct dns_result result;

	assert(len >= DNS_HEADER && len <= max);
	if (!query->name.len || query->class != DNS_CLASS_IN || query->flags & 0x7800)
		return;
	assert(dns_result_parse(out, len, &question, &result) == DNS_MATCH);
	assert(result.rcode == (reply->rcode & 15u));
	if (result.truncated)
		return;
	for (size_t i = 0; i < result.count; i++)
		assert(result.addresses[i].family == (query->type == DNS_TYPE_A ? 4 : 6));
}

static void read_query(const uint8_t *data, size_t size)
{
	struct address addresses[DNS_ADDRESSES_MAX + 1];
	struct dns_reply reply = {
		.addresses = addresses, .count = ARRAY_LEN(addresses), .ttl = 1
	};
	struct dns_query query;
	enum dns_rcode rcode = dns_query_parse(data, size, &query);

	if (rcode == DNS_DROP)
		return;
	check_text(&query);
	for (size_t i = 0; i < ARRAY_LEN(addresses); i++)
		addresses[i] = (struct address){ .family = i % 3 ? 6 : 4 };
	reply.rcode = rcode;
	check_reply(&query, &reply, DNS_UDP_MIN);
	check_reply(&query, &reply, dns_reply_udp_max(&query));
	reply.rcode = DNS_REFUSED;
	check_reply(&query, &reply, DNS_REPLY_MAX);
}

/* ---- replies -------------------------------------------------------------------------------- */

static void read_result(const uint8_t *data, size_t size)
{
	struct dns_question question = { .id = 0x1234, .type = DNS_TYPE_A };
	struct dns_result result;
	enum dns_match match;

	assert(dns_name_parse("a.test", &question.name));
	for (int i = 0; i < 2; i++) {
		match = dns_result_parse(data, size, &question, &result);
		if (match == DNS_MATCH || match == DNS_MATCH_CASE) {
			assert(result.count <= DNS_ADDRESSES_MAX);
			assert(result.truncated || result.count || result.ttl <= INT32_MAX);
			for (size_t j = 0; j < result.count; j++)
				assert(result.addresses[j].family == (i ? 6 : 4));
		}
		question.type = DNS_TYPE_AAAA;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct resolv_conf conf;

	read_query(data, size);
	read_result(data, size);
	resolv_conf_parse((const char *)data, size, &conf);
	assert(conf.server_count >= 1 && conf.server_count <= RESOLV_SERVERS_MAX);
	assert(conf.search_count <= RESOLV_SEARCH_MAX);
	return 0;
}
