/* test_dns_message.c - names, questions and replies: what is read, what is refused, what is
 * written */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "gate/dns/message.h"
#include "net/resolv_conf.h"
#include "policy/policy.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define BYTES(...)  ((const uint8_t[]){ __VA_ARGS__ })
#define PARSE(q, s) dns_query_parse((const uint8_t *)(s), sizeof(s) - 1, (q))

/* id 0x1234, RD, one question */
#define HEAD	 "\x12\x34\x01\x00\0\1\0\0\0\0\0\0"
#define HEAD_OPT "\x12\x34\x01\x00\0\1\0\0\0\0\0\1"
#define NAME	 "\3WwW\7example\4test\0"
#define A_IN	 "\0\1\0\1"
#define OPT4096	 "\0\0\x29\x10\0\0\0\x80\0\0\0"

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

/* ---- questions ------------------------------------------------------------------------------ */

static void test_query_is_read(void **state)
{
	struct dns_query query;

	(void)state;
	assert_int_equal(PARSE(&query, HEAD_OPT NAME A_IN OPT4096), DNS_NOERROR);
	assert_int_equal(query.id, 0x1234);
	assert_string_equal(query.text, "www.example.test");
	assert_true(query.is_host);
	assert_int_equal(query.type, DNS_TYPE_A);
	assert_true(query.has_edns && query.dnssec_ok);
	assert_int_equal(query.udp_size, 4096);
	assert_int_equal(dns_reply_udp_max(&query), DNS_UDP_SIZE);
	assert_int_equal(PARSE(&query, HEAD NAME A_IN), DNS_NOERROR);
	assert_false(query.has_edns);
	assert_int_equal(dns_reply_udp_max(&query), DNS_UDP_MIN);
}

static const struct bad {
	const char *why;
	const char *bytes;
	size_t len;
	enum dns_rcode rcode;
} bad[] = {
#define BAD(why, bytes, rcode)                       \
	{                                            \
		why, bytes, sizeof(bytes) - 1, rcode \
	}
	BAD("nothing", "", DNS_DROP),
	BAD("short header", "\x12\x34\1\0\0\1\0\0\0\0\0", DNS_DROP),
	BAD("a reply", "\x12\x34\x81\x80\0\1\0\0\0\0\0\0" NAME A_IN, DNS_DROP),
	BAD("opcode", "\x12\x34\x28\x00\0\1\0\0\0\0\0\0" NAME A_IN, DNS_NOTIMP),
	BAD("no question", "\x12\x34\1\0\0\0\0\0\0\0\0\0", DNS_FORMERR),
	BAD("two questions", "\x12\x34\1\0\0\2\0\0\0\0\0\0" NAME A_IN NAME A_IN, DNS_FORMERR),
	BAD("65535 questions", "\x12\x34\1\0\xff\xff\0\0\0\0\0\0" NAME A_IN, DNS_FORMERR),
	BAD("an answer", "\x12\x34\1\0\0\1\0\1\0\0\0\0" NAME A_IN, DNS_FORMERR),
	BAD("an authority", "\x12\x34\1\0\0\1\0\0\0\1\0\0" NAME A_IN, DNS_FORMERR),
	BAD("cut off", "\x12\x34\3\0\0\1\0\0\0\0\0\0" NAME A_IN, DNS_FORMERR),
	BAD("bytes left over", HEAD NAME A_IN "x", DNS_FORMERR),
	BAD("name without end", HEAD "\3www", DNS_FORMERR),
	BAD("label over the end", HEAD "\77www", DNS_FORMERR),
	BAD("no type", HEAD NAME "\0\1\0", DNS_FORMERR),
	BAD("pointer to itself", HEAD "\xc0\x0c" A_IN, DNS_FORMERR),
	BAD("pointer forwards", HEAD "\xc0\x12" A_IN "\0\0", DNS_FORMERR),
	BAD("pointer to the label before", HEAD "\3www\xc0\x0c" A_IN, DNS_FORMERR),
	BAD("pointer into the header", HEAD "\xc0\x04" A_IN, DNS_FORMERR),
	BAD("half a pointer", HEAD "\xc0", DNS_FORMERR),
	BAD("label type 01",
		HEAD "\x41"
		     "a\0" A_IN,
		DNS_FORMERR),
	BAD("label type 10",
		HEAD "\x81"
		     "a\0" A_IN,
		DNS_FORMERR),
	BAD("type 0", HEAD NAME "\0\0\0\1", DNS_FORMERR),
	BAD("type OPT", HEAD NAME "\0\x29\0\1", DNS_FORMERR),
	BAD("class CHAOS", HEAD NAME "\0\x10\0\3", DNS_REFUSED),
	BAD("class ANY", HEAD NAME "\0\1\0\xff", DNS_REFUSED),
	BAD("transfer", HEAD NAME "\0\xfc\0\1", DNS_REFUSED),
	BAD("OPT missing", HEAD_OPT NAME A_IN, DNS_FORMERR),
	BAD("OPT unannounced", HEAD NAME A_IN OPT4096, DNS_FORMERR),
	BAD("two OPT", "\x12\x34\1\0\0\1\0\0\0\0\0\2" NAME A_IN OPT4096 OPT4096, DNS_FORMERR),
	BAD("OPT with a name", HEAD_OPT NAME A_IN "\1a\0\0\x29\x10\0\0\0\0\0\0\0", DNS_FORMERR),
	BAD("OPT short", HEAD_OPT NAME A_IN "\0\0\x29\x10\0\0\0\0\0\0", DNS_FORMERR),
	BAD("OPT over the end", HEAD_OPT NAME A_IN "\0\0\x29\x10\0\0\0\0\0\0\4", DNS_FORMERR),
	BAD("half an option", HEAD_OPT NAME A_IN "\0\0\x29\x10\0\0\0\0\0\0\3\0\3\0", DNS_FORMERR),
	BAD("option over the end", HEAD_OPT NAME A_IN "\0\0\x29\x10\0\0\0\0\0\0\4\0\3\0\1",
		DNS_FORMERR),
	BAD("not OPT", HEAD_OPT NAME A_IN "\0\0\xfa\x10\0\0\0\0\0\0\0", DNS_FORMERR),
	BAD("EDNS version 1", HEAD_OPT NAME A_IN "\0\0\x29\x10\0\0\1\0\0\0\0", DNS_BADVERS),
};

static void test_bad_queries_are_refused_and_answerable(void **state)
{
	uint8_t out[DNS_REPLY_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct dns_query query;
		enum dns_rcode rcode =
			dns_query_parse((const uint8_t *)bad[i].bytes, bad[i].len, &query);
		size_t len;

		if (rcode != bad[i].rcode)
			fail_msg("%s: %d instead of %d", bad[i].why, rcode, bad[i].rcode);
		if (rcode == DNS_DROP)
			continue;
		len = dns_reply_build(&query, &(struct dns_reply){ .rcode = rcode }, 512, out);
		assert_in_range(len, DNS_HEADER, 512);
		assert_int_equal(get16(out), 0x1234);
		assert_int_equal(out[3] & 15, rcode & 15);
	}
}

/* Each prefix of a good question, and each single byte changed: never more than a refusal. */
static void test_query_cut_off_anywhere_is_refused(void **state)
{
	static const char good[] = HEAD_OPT NAME A_IN OPT4096;
	struct dns_query query;

	(void)state;
	for (size_t len = 0; len + 1 < sizeof good; len++) {
		uint8_t *copy = xmemdup(good, len ? len : 1);

		assert_int_not_equal(dns_query_parse(copy, len, &query), DNS_NOERROR);
		free(copy);
	}
	for (size_t i = 0; i + 1 < sizeof good; i++)
		for (unsigned value = 0; value < 256; value++) {
			uint8_t *copy = xmemdup(good, sizeof good - 1);

			copy[i] = value;
			dns_query_parse(copy, sizeof good - 1, &query);
			free(copy);
		}
}

static void test_edns_sizes_are_bounded(void **state)
{
	struct dns_query query;

	(void)state;
	assert_int_equal(PARSE(&query, HEAD_OPT NAME A_IN "\0\0\x29\0\0\0\0\0\0\0\0"), DNS_NOERROR);
	assert_int_equal(query.udp_size, DNS_UDP_MIN);
	assert_int_equal(
		PARSE(&query, HEAD_OPT NAME A_IN "\0\0\x29\xff\xff\0\0\0\0\0\0"), DNS_NOERROR);
	assert_int_equal(dns_reply_udp_max(&query), DNS_UDP_SIZE);
	/* options are passed over: a cookie */
	assert_int_equal(PARSE(&query, HEAD_OPT NAME A_IN "\0\0\x29\4\xd0\0\0\0\0\0\x0c\0\x0a\0\x08"
							  "12345678"),
		DNS_NOERROR);
}

/* ---- names ---------------------------------------------------------------------------------- */

static void test_odd_names_are_no_host_names(void **state)
{
	struct dns_query query;

	(void)state;
	assert_int_equal(PARSE(&query, HEAD "\7a.b\0c d\4test\0" A_IN), DNS_NOERROR);
	assert_string_equal(query.text, "a\\046b\\000c\\032d.test");
	assert_false(query.is_host);
	/* the dot and the backslash inside a label are no trick: they are escaped */
	assert_int_equal(PARSE(&query, HEAD "\x0b"
					    "evil\\.good"
					    "x\4test\0" A_IN),
		DNS_NOERROR);
	assert_string_equal(query.text, "evil\\092\\046goodx.test");
	assert_false(query.is_host);
	assert_int_equal(PARSE(&query, HEAD "\4b\xc3\xbc"
					    "c\4test\0" A_IN),
		DNS_NOERROR);
	assert_false(query.is_host);
	assert_int_equal(PARSE(&query, HEAD "\0" A_IN), DNS_NOERROR);
	assert_string_equal(query.text, "");
	assert_false(query.is_host);
	assert_int_equal(PARSE(&query, HEAD "\4_tcp\x0exn--bcher-kva-\4test\0" A_IN), DNS_NOERROR);
	assert_true(query.is_host);
}

static size_t put_label(uint8_t *at, unsigned size)
{
	at[0] = size;
	memset(at + 1, 1, size);
	return 1 + size;
}

static void test_longest_name_fits_and_one_more_does_not(void **state)
{
	uint8_t message[DNS_HEADER + 300] = HEAD;
	struct dns_query query;

	(void)state;
	for (unsigned last = 61; last <= 62; last++) {
		size_t at = DNS_HEADER;

		for (int i = 0; i < 3; i++)
			at += put_label(message + at, 63);
		at += put_label(message + at, last);
		memcpy(message + at, "\0" A_IN, 5);
		assert_int_equal(dns_query_parse(message, at + 5, &query),
			last == 61 ? DNS_NOERROR : DNS_FORMERR);
		if (last == 61) {
			assert_int_equal(query.name.len, DNS_NAME_MAX);
			assert_int_equal(strlen(query.text), 250 * 4 + 3);
		}
	}
}

static void test_names_from_text(void **state)
{
	static const char *const no[] = { "", ".", "a..b", ".a", "a b", "a\\.b", "*.a", "\xc3\xbc",
		"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl.x" };
	struct dns_name name, again;
	char text[DNS_TEXT_MAX], longest[300] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		assert_false(dns_name_parse(no[i], &name));
	assert_true(dns_name_parse("WWW.Example.test.", &name));
	assert_true(dns_name_text(&name, text));
	assert_string_equal(text, "www.example.test");
	assert_true(dns_name_parse(text, &again));
	assert_true(dns_name_equal(&name, &again));
	assert_false(dns_name_equal_case(&name, &again));
	for (int i = 0; i < 126; i++)
		strcat(longest, "a.");
	strcat(longest, "b"); /* 253 bytes */
	assert_true(dns_name_parse(longest, &name));
	assert_int_equal(name.len, DNS_NAME_MAX);
	strcat(longest, "b");
	assert_false(dns_name_parse(longest, &name));
}

/* ---- replies -------------------------------------------------------------------------------- */

static void test_reply_has_the_addresses_of_its_family(void **state)
{
	const struct address addresses[] = { address_v4(BYTES(198, 18, 1, 2)),
		address_v6(BYTES(0xfd, [15] = 7)), address_v4(BYTES(198, 18, 1, 3)) };
	struct dns_reply reply = { DNS_NOERROR, 60, addresses, 3 };
	uint8_t out[DNS_REPLY_MAX];
	struct dns_query query;
	static const char a[] = "\xc0\x0c" A_IN "\0\0\0\x3c\0\4\xc6\x12\1\2"
				"\xc0\x0c" A_IN "\0\0\0\x3c\0\4\xc6\x12\1\3";
	size_t len, question = sizeof NAME - 1 + 4;

	(void)state;
	assert_int_equal(PARSE(&query, HEAD NAME A_IN), DNS_NOERROR);
	len = dns_reply_build(&query, &reply, 512, out);
	assert_memory_equal(
		out, "\x12\x34\x81\x80\0\1\0\2\0\0\0\0" NAME A_IN, DNS_HEADER + question);
	assert_int_equal(len, DNS_HEADER + question + sizeof a - 1);
	assert_memory_equal(out + DNS_HEADER + question, a, sizeof a - 1);
	assert_int_equal(PARSE(&query, HEAD NAME "\0\x1c\0\1"), DNS_NOERROR);
	len = dns_reply_build(&query, &reply, 512, out);
	assert_int_equal(get16(out + 6), 1);
	assert_int_equal(len, DNS_HEADER + question + 28);
	/* other types have no data, whatever there is */
	assert_int_equal(PARSE(&query, HEAD NAME "\0\x41\0\1"), DNS_NOERROR);
	len = dns_reply_build(&query, &reply, 512, out);
	assert_int_equal(get16(out + 6), 0);
	assert_int_equal(out[3] & 15, DNS_NOERROR);
	assert_int_equal(len, DNS_HEADER + question);
	/* nor has a refusal */
	reply.rcode = DNS_NXDOMAIN;
	assert_int_equal(PARSE(&query, HEAD NAME A_IN), DNS_NOERROR);
	len = dns_reply_build(&query, &reply, 512, out);
	assert_int_equal(len, DNS_HEADER + question);
	assert_int_equal(out[3] & 15, DNS_NXDOMAIN);
}

static void test_reply_too_long_for_udp_is_truncated(void **state)
{
	struct address addresses[DNS_ADDRESSES_MAX + 5];
	struct dns_reply reply = { DNS_NOERROR, 60, addresses, ARRAY_LEN(addresses) };
	uint8_t out[DNS_REPLY_MAX];
	struct dns_query query;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(addresses); i++)
		addresses[i] = address_v6(BYTES(0x20, 1, [15] = 1));
	assert_int_equal(PARSE(&query, HEAD NAME "\0\x1c\0\1"), DNS_NOERROR);
	dns_reply_build(&query, &reply, dns_reply_udp_max(&query), out);
	assert_int_equal(get16(out + 2) & 0x200, 0x200);
	assert_int_equal(get16(out + 6), 0);
	assert_int_equal(PARSE(&query, HEAD_OPT NAME "\0\x1c\0\1" OPT4096), DNS_NOERROR);
	dns_reply_build(&query, &reply, dns_reply_udp_max(&query), out);
	assert_int_equal(get16(out + 2) & 0x200, 0);
	assert_int_equal(get16(out + 6), DNS_ADDRESSES_MAX);
	assert_int_equal(get16(out + 10), 1);
}

static void test_bad_edns_version_is_told_in_the_opt_record(void **state)
{
	uint8_t out[DNS_REPLY_MAX];
	struct dns_query query;
	size_t len;

	(void)state;
	assert_int_equal(
		PARSE(&query, HEAD_OPT NAME A_IN "\0\0\x29\x10\0\0\1\0\0\0\0"), DNS_BADVERS);
	len = dns_reply_build(&query, &(struct dns_reply){ .rcode = DNS_BADVERS }, 512, out);
	assert_int_equal(out[3] & 15, 0);
	assert_memory_equal(out + len - 11, "\0\0\x29\4\xd0\1\0\0\0\0\0", 11);
}

/* ---- replies from above --------------------------------------------------------------------- */

static struct dns_question ask(const char *name, uint16_t type, uint8_t *out, size_t *ret_len)
{
	struct dns_question question = { .type = type };

	assert_true(dns_name_parse(name, &question.name));
	*ret_len = dns_question_build(&question, out);
	return question;
}

/* A reply to the question in message: its head and question, then records as given. */
static size_t reply_to(uint8_t *message, size_t len, const char *flags, const char *counts,
	const char *records, size_t records_len)
{
	len -= 11; /* OPT */
	memcpy(message + 2, flags, 2);
	memcpy(message + 6, counts, 6);
	memcpy(message + len, records, records_len);
	return len + records_len;
}

#define REPLY(m, len, flags, counts, records) \
	reply_to((m), (len), (flags), (counts), (records), sizeof(records) - 1)
#define OK "\x81\x80"

static void test_question_can_be_read_and_differs_each_time(void **state)
{
	uint8_t message[DNS_QUERY_MAX];
	struct dns_query query;
	unsigned ids = 0, cases = 0;
	uint16_t id = 0;
	struct dns_name name = { 0 };

	(void)state;
	for (int i = 0; i < 20; i++) {
		size_t len;
		struct dns_question question =
			ask("a-long-name.example.test", DNS_TYPE_AAAA, message, &len);

		assert_int_equal(dns_query_parse(message, len, &query), DNS_NOERROR);
		assert_string_equal(query.text, "a-long-name.example.test");
		assert_int_equal(query.type, DNS_TYPE_AAAA);
		assert_int_equal(query.udp_size, DNS_UDP_SIZE);
		ids += query.id != id;
		cases += !dns_name_equal_case(&name, &question.name);
		id = query.id;
		name = question.name;
	}
	assert_true(ids > 15 && cases > 15);
}

static void test_result_follows_aliases_in_any_order(void **state)
{
	uint8_t m[1024];
	size_t len;
	struct dns_question question = ask("a.test", DNS_TYPE_A, m, &len);
	struct dns_result result;

	(void)state;
	/* c has the address and stands first; a -> b -> c; d is nobody's business */
	len = REPLY(m, len, OK, "\0\4\0\0\0\0",
		"\1C\4test\0" A_IN "\0\0\0\x64\0\4\1\2\3\4"
		"\1b\4test\0\0\5\0\1\0\0\0\x32\0\x08\1c\4test\0"
		"\1d\4test\0" A_IN "\0\0\0\1\0\4\7\7\7\7"
		"\xc0\x0c\0\5\0\1\0\0\0\x3c\0\x08\1b\4test\0");
	assert_int_equal(dns_result_parse(m, len, &question, &result), DNS_MATCH);
	assert_int_equal(result.count, 1);
	assert_memory_equal(result.addresses[0].bytes, "\1\2\3\4", 4);
	assert_int_equal(result.ttl, 50);
}

static void test_result_with_aliases_in_a_circle_is_broken(void **state)
{
	uint8_t m[1024];
	size_t len;
	struct dns_question question = ask("a.test", DNS_TYPE_A, m, &len);
	struct dns_result result;

	(void)state;
	len = REPLY(m, len, OK, "\0\2\0\0\0\0",
		"\xc0\x0c\0\5\0\1\0\0\0\x3c\0\x08\1b\4test\0"
		"\1b\4test\0\0\5\0\1\0\0\0\x3c\0\x02\xc0\x0c");
	assert_int_equal(dns_result_parse(m, len, &question, &result), DNS_MATCH_BROKEN);
}

static void test_result_of_somebody_else_is_a_stranger(void **state)
{
	uint8_t m[1024], copy[1024];
	size_t len;
	struct dns_question question = ask("a.test", DNS_TYPE_A, m, &len);
	struct dns_result result;
	static const size_t places[] = { 0, 1, 2, 5, 13, 20,
		22 }; /* id, QR, count, name, type, class */

	(void)state;
	len = REPLY(m, len, OK, "\0\1\0\0\0\0", "\xc0\x0c" A_IN "\0\0\0\x64\0\4\1\2\3\4");
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		memcpy(copy, m, len);
		copy[places[i]] ^= places[i] == 2 ? 0x80 : 2;
		assert_int_equal(
			dns_result_parse(copy, len, &question, &result), DNS_MATCH_STRANGER);
	}
	memcpy(copy, m, len);
	copy[13] ^= 0x20;
	assert_int_equal(dns_result_parse(copy, len, &question, &result), DNS_MATCH_CASE);
	assert_int_equal(result.count, 1);
}

static void test_result_cut_off_anywhere_is_refused(void **state)
{
	uint8_t m[1024];
	size_t len;
	struct dns_question question = ask("a.test", DNS_TYPE_AAAA, m, &len);
	struct dns_result result;

	(void)state;
	len = REPLY(m, len, OK, "\0\2\0\0\0\0",
		"\xc0\x0c\0\5\0\1\0\0\0\x3c\0\x04\1b\xc0\x0e"
		"\1b\xc0\x0e\0\x1c\0\1\0\0\0\x3c\0\x10"
		"0123456789abcdef");
	assert_int_equal(dns_result_parse(m, len, &question, &result), DNS_MATCH);
	assert_int_equal(result.count, 1);
	for (size_t cut = 0; cut < len; cut++) {
		uint8_t *copy = xmemdup(m, cut ? cut : 1);
		enum dns_match match = dns_result_parse(copy, cut, &question, &result);

		assert_true(match == DNS_MATCH_STRANGER || match == DNS_MATCH_BROKEN);
		free(copy);
	}
}

static void test_negative_result_takes_the_ttl_of_its_soa(void **state)
{
	uint8_t m[1024];
	size_t len;
	struct dns_question question = ask("a.test", DNS_TYPE_A, m, &len);
	struct dns_result result;

	(void)state;
	len = REPLY(m, len, "\x81\x83", "\0\0\0\1\0\0",
		"\4test\0\0\6\0\1\0\0\0\x64\0\x16\0\0"
		"\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\x1e");
	assert_int_equal(dns_result_parse(m, len, &question, &result), DNS_MATCH);
	assert_int_equal(result.rcode, DNS_NXDOMAIN);
	assert_int_equal(result.count, 0);
	assert_int_equal(result.ttl, 30);
}

static void test_addresses_of_wrong_size_break_the_result(void **state)
{
	uint8_t m[1024];
	size_t len;
	struct dns_question question = ask("a.test", DNS_TYPE_A, m, &len);
	struct dns_result result;

	(void)state;
	len = REPLY(m, len, OK, "\0\1\0\0\0\0", "\xc0\x0c" A_IN "\0\0\0\x64\0\5\1\2\3\4\5");
	assert_int_equal(dns_result_parse(m, len, &question, &result), DNS_MATCH_BROKEN);
}

/* ---- addresses and resolv.conf -------------------------------------------------------------- */

static void test_special_addresses_are_known(void **state)
{
	static const char *const special[] = { "0.0.0.0", "10.1.2.3", "100.64.0.1",
		"100.127.255.255", "127.0.0.1", "127.255.0.9", "169.254.169.254", "172.16.0.1",
		"172.31.255.255", "192.168.1.1", "198.18.0.1", "198.19.255.255", "224.0.0.1",
		"255.255.255.255", "::", "::1", "fe80::1", "febf::1", "fec0::1", "fc00::1",
		"fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::10.0.0.1",
		"64:ff9b::a00:1", "64:ff9b::7f00:1", "2002:a00:1::1",
		"2002:7f00:1::", "2001:0:1::1", "64:ff9b:1::1", "100::1", "4000::1", "192.0.0.1",
		"192.88.99.1", "168.63.129.16", "::ffff:0:10.0.0.1", "8000::1", "1::1" };
	static const char *const public[] = { "1.1.1.1", "100.63.255.255", "100.128.0.0",
		"172.15.0.1", "172.32.0.1", "192.167.1.1", "198.17.0.1", "198.20.0.1",
		"203.0.113.7", "2001:db8::1", "2606:4700::1", "::ffff:1.1.1.1", "64:ff9b::101:101",
		"2002:101:101::1" };
	struct address address;
	char text[ADDRESS_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(special); i++) {
		assert_true(address_parse(special[i], &address));
		if (!policy_addr_special(&address))
			fail_msg("%s counts as public", special[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(public); i++) {
		assert_true(address_parse(public[i], &address));
		if (policy_addr_special(&address))
			fail_msg("%s counts as %s", public[i], policy_addr_special(&address));
		assert_string_equal(address_format(&address, text), public[i]);
	}
	assert_false(address_parse("010.0.0.1", &address));
	assert_false(address_parse("fe80::1%lo", &address));
}

static void test_resolv_conf_is_read_as_the_c_library_does(void **state)
{
	static const char text[] = "# a comment\n"
				   "nameserver 192.0.2.1\n"
				   "nameserver fe80::1%eth0\r\n"
				   "nameserver not-an-address\n"
				   "domain old.test\n"
				   "search Corp.Test. lab.test bad..name\n"
				   "options ndots:2 timeout:99 attempts:0 rotate ndots:x edns0\n"
				   "sortlist 1.2.3.4\n"
				   "nameserver 2001:db8::1 # behind";
	struct resolv_conf conf;

	(void)state;
	resolv_conf_parse(text, sizeof text - 1, &conf);
	assert_int_equal(conf.server_count, 3);
	assert_string_equal(conf.servers[1].scope, "eth0");
	assert_int_equal(conf.servers[2].address.family, 6);
	assert_int_equal(conf.search_count, 2);
	assert_string_equal(conf.search[0], "corp.test");
	assert_int_equal(conf.ndots, 2);
	assert_int_equal(conf.timeout, 30);
	assert_int_equal(conf.attempts, 1);
	assert_true(conf.rotate);
	resolv_conf_parse("", 0, &conf);
	assert_int_equal(conf.server_count, 1);
	assert_memory_equal(conf.servers[0].address.bytes, "\x7f\0\0\1", 4);
	assert_int_equal(conf.attempts, 2);
}

static void test_resolv_conf_is_bounded(void **state)
{
	struct resolv_conf conf;
	size_t len = 200 * 1024;
	char *text = xcalloc(1, len);

	(void)state;
	for (size_t at = 0; at + 21 < len; at += 21)
		memcpy(text + at, "nameserver 192.0.2.1\n", 21);
	resolv_conf_parse(text, len, &conf);
	assert_int_equal(conf.server_count, RESOLV_SERVERS_MAX);
	memset(text, 'a', len);
	memcpy(text, "search ", 7);
	resolv_conf_parse(text, len, &conf);
	assert_int_equal(conf.search_count, 0);
	random_bytes(text, len);
	resolv_conf_parse(text, len, &conf);
	free(text);
}

/* ---- figures -------------------------------------------------------------------------------- */

static void test_figure_parse_and_build(void **state)
{
	enum { ROUNDS = 200000 };
	static const char good[] = HEAD_OPT NAME A_IN OPT4096;
	struct address address = address_v4(BYTES(198, 18, 1, 2));
	struct dns_reply reply = { DNS_NOERROR, 60, &address, 1 };
	uint8_t out[DNS_REPLY_MAX];
	struct dns_query query;
	int64_t start = clock_mono_us();
	size_t sum = 0;

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		dns_query_parse((const uint8_t *)good, sizeof good - 1, &query);
		sum += dns_reply_build(&query, &reply, 1232, out);
	}
	assert_true(sum > 0);
	print_message("parse and build: %.3f us\n", (double)(clock_mono_us() - start) / ROUNDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_query_is_read),
		cmocka_unit_test(test_bad_queries_are_refused_and_answerable),
		cmocka_unit_test(test_query_cut_off_anywhere_is_refused),
		cmocka_unit_test(test_edns_sizes_are_bounded),
		cmocka_unit_test(test_odd_names_are_no_host_names),
		cmocka_unit_test(test_longest_name_fits_and_one_more_does_not),
		cmocka_unit_test(test_names_from_text),
		cmocka_unit_test(test_reply_has_the_addresses_of_its_family),
		cmocka_unit_test(test_reply_too_long_for_udp_is_truncated),
		cmocka_unit_test(test_bad_edns_version_is_told_in_the_opt_record),
		cmocka_unit_test(test_question_can_be_read_and_differs_each_time),
		cmocka_unit_test(test_result_follows_aliases_in_any_order),
		cmocka_unit_test(test_result_with_aliases_in_a_circle_is_broken),
		cmocka_unit_test(test_result_of_somebody_else_is_a_stranger),
		cmocka_unit_test(test_result_cut_off_anywhere_is_refused),
		cmocka_unit_test(test_negative_result_takes_the_ttl_of_its_soa),
		cmocka_unit_test(test_addresses_of_wrong_size_break_the_result),
		cmocka_unit_test(test_special_addresses_are_known),
		cmocka_unit_test(test_resolv_conf_is_read_as_the_c_library_does),
		cmocka_unit_test(test_resolv_conf_is_bounded),
		cmocka_unit_test(test_figure_parse_and_build),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
