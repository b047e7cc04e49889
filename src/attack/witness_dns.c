/* witness_dns.c - the names of the test internet, and their server
 *
 * Every address in the world answers DNS: a box that reached a server other than its own would
 * get an answer. */
#include "attack/witness_internal.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
	DNS_A = 1,
	DNS_CNAME = 5,
	DNS_TXT = 16,
	DNS_AAAA = 28,
	DNS_HTTPS = 65,
	ANSWER_MAX = 512,
	TURNS = 4
};

/* Addresses are separated by blanks; "|" parts answers that are given in turn; "=NAME" is an
 * alias. */
static struct {
	const char *name;
	const char *answers;
	unsigned asked;
} zone[] = {
	{ "allowed.test", "203.0.113.10 2001:db8::10", 0 },
	{ "shared.test", "203.0.113.10 2001:db8::10", 0 }, /* the same host, another name */
	{ "api.test", "203.0.113.11", 0 },
	{ "secret.test", "203.0.113.30", 0 },
	{ "neighbour.test", "203.0.113.20", 0 },
	{ "private.test", "10.0.0.1", 0 },
	{ "lan.test", "192.168.1.1", 0 },
	{ "cgnat.test", "100.64.0.1", 0 },
	{ "loopback.test", "127.0.0.1", 0 },
	{ "zero.test", "0.0.0.0", 0 },
	{ "metadata.test", "169.254.169.254", 0 },
	{ "host.test", "192.0.2.2", 0 },
	{ "hostlan.test", "10.77.0.2", 0 },
	{ "synthetic.test", "198.18.0.1", 0 },
	{ "loopback6.test", "::1", 0 },
	{ "private6.test", "fd00::1", 0 },
	{ "linklocal6.test", "fe80::1", 0 },
	{ "mapped.test", "::ffff:127.0.0.1", 0 },
	{ "nat64.test", "64:ff9b::a00:1", 0 },
	{ "host6.test", "2001:db8:77::2", 0 },
	{ "alias.test", "=private.test", 0 },
	{ "mixed.test", "203.0.113.12 10.0.0.1", 0 },
	{ "flip.test", "203.0.113.12 | 10.0.0.1", 0 },
	{ "flop.test", "10.0.0.1 | 203.0.113.12", 0 },
};

/* Names outside the zone belong to an attacker who waits for data. */
#define ANYBODY "203.0.113.66 2001:db8::66"

static bool read_name(const uint8_t *message, size_t len, size_t *at, char *out, size_t size)
{
	size_t used = 0;

	while (*at < len && message[*at]) {
		size_t label = message[*at];

		if (label > 63 || *at + 1 + label >= len || used + label + 2 > size)
			return false;
		if (used)
			out[used++] = '.';
		for (size_t i = 0; i < label; i++) {
			uint8_t c = message[*at + 1 + i];

			out[used++] = (char)(c > 0x20 && c < 0x7f ? c : '?');
		}
		*at += 1 + label;
	}
	out[used] = '\0';
	(*at)++;
	return *at + 4 <= len;
}

static const char *look_up(const char *name, bool count, unsigned *ret_turn)
{
	*ret_turn = 0;
	for (size_t i = 0; i < ARRAY_LEN(zone); i++)
		if (!strcasecmp(zone[i].name, name)) {
			*ret_turn = zone[i].asked;
			zone[i].asked += count;
			return zone[i].answers;
		}
	return ANYBODY;
}

static void put_record(struct buf *out, unsigned type, const void *data, size_t len)
{
	const uint8_t head[] = { 0xc0, 12, 0, (uint8_t)type, 0, 1, 0, 0, 0, 0, (uint8_t)(len >> 8),
		(uint8_t)len };

	buf_add(out, head, sizeof head); /* TTL 0 */
	buf_add(out, data, len);
}

static unsigned put_addresses(struct buf *out, unsigned type, const char *answers, unsigned turn)
{
	char text[256], *rest = text, *word, *turns[TURNS];
	unsigned count = 0, parts = 0;

	snprintf(text, sizeof text, "%s", answers);
	while (parts < TURNS && (word = strsep(&rest, "|")))
		turns[parts++] = word;
	rest = turns[parts ? turn % parts : 0];
	while ((word = strsep(&rest, " "))) {
		bool is_v6 = strchr(word, ':') != NULL;
		uint8_t bytes[16];

		if (!*word || (type != DNS_A && type != DNS_AAAA) || is_v6 != (type == DNS_AAAA) ||
			inet_pton(is_v6 ? AF_INET6 : AF_INET, word, bytes) != 1)
			continue;
		put_record(out, type, bytes, is_v6 ? 16 : 4);
		count++;
	}
	return count;
}

static unsigned put_answers(struct buf *out, unsigned type, const char *name)
{
	unsigned turn, count = 0;
	const char *answers = look_up(name, type == DNS_A, &turn);

	if (type == DNS_TXT) {
		put_record(out, DNS_TXT, "\4evil", 5);
		return 1;
	}
	if (type == DNS_HTTPS) {
		put_record(out, DNS_HTTPS, "\0\1\0\0\4\0\4\n\0\0\1",
			11); /* an address hint: 10.0.0.1 */
		return 1;
	}
	if (*answers ==
		'=') { /* alias.test CNAME private.test, and its address under the same name */
		put_record(out, DNS_CNAME, "\7private\4test", 14);
		count = 1;
		answers = look_up(answers + 1, false, &turn);
	}
	return count + put_addresses(out, type, answers, turn);
}

size_t dns_answer(
	struct record *record, const uint8_t *question, size_t len, uint8_t *out, size_t max)
{
	static const char *const names[] = {
		[DNS_A] = "A", [DNS_AAAA] = "AAAA", [DNS_TXT] = "TXT", [DNS_HTTPS] = "HTTPS"
	};
	char name[300];
	struct buf answer = BUF_INIT;
	size_t at = 12, used;
	unsigned type, count;

	if (len < 17 || question[2] & 0x80 || !read_name(question, len, &at, name, sizeof name)) {
		record_add(record, "dns ? broken");
		return 0;
	}
	type = (unsigned)(question[at] << 8 | question[at + 1]);
	if (type < ARRAY_LEN(names) && names[type])
		record_add(record, "dns %s %s", names[type], name);
	else
		record_add(record, "dns %u %s", type, name);
	buf_add(&answer, question, at + 4);
	count = put_answers(&answer, type, name);
	memcpy(buf_head(&answer) + 2, "\x81\x80\0\1\0\0\0\0\0\0", 10);
	buf_head(&answer)[7] = (uint8_t)count;
	used = MIN(answer.len, max);
	memcpy(out, buf_head(&answer), used);
	buf_done(&answer);
	return used;
}
