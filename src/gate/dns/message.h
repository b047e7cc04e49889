/* message.h - DNS messages: queries of boxes and our replies; our own queries to upstream and
 * their replies
 *
 * Pure: bytes in, bytes out. Whatever violates the rules is refused, never guessed. A reply of
 * ours contains addresses of the requested name and nothing else: aliases are followed here, and
 * types other than A and AAAA have no data (HTTPS and SVCB records would carry address hints and
 * keys past the policy). */
#pragma once
#include "base/address.h"
#include "net/dns_name.h"

enum {
	DNS_UDP_MIN = 512,	/* accepted by a client without EDNS over UDP */
	DNS_UDP_SIZE = 1232,	/* fits one packet everywhere; our EDNS size and our maximum */
	DNS_TCP_MAX = 65535,	/* maximum of the length prefix over TCP */
	DNS_ADDRESSES_MAX = 32, /* of one reply; the rest is dropped */
	DNS_REPLY_MAX = DNS_UDP_SIZE,			    /* a reply of ours never needs more */
	DNS_QUERY_MAX = DNS_HEADER + DNS_NAME_MAX + 4 + 11, /* a question of ours */
};

enum dns_type {
	DNS_TYPE_A = 1,
	DNS_TYPE_CNAME = 5,
	DNS_TYPE_SOA = 6,
	DNS_TYPE_AAAA = 28,
	DNS_TYPE_OPT = 41,
	DNS_TYPE_SVCB = 64,
	DNS_TYPE_HTTPS = 65,
	DNS_TYPE_ANY = 255,
};

enum { DNS_CLASS_IN = 1 };

enum dns_rcode {
	DNS_DROP = -1, /* no reply: it would cause a loop */
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	DNS_BADVERS = 16,
};

/* ---- queries of boxes ----------------------------------------------------------------------- */

struct dns_query {
	uint16_t id;
	uint16_t flags; /* as sent; opcode, RD and CD are returned */
	uint16_t type;
	uint16_t class;
	struct dns_name name;	 /* as sent, case kept; len 0 when the query was not understood */
	char text[DNS_TEXT_MAX]; /* the name as text; "" without a question */
	bool is_host;		 /* the name contains only what a host name may contain */
	bool has_edns;
	bool dnssec_ok;
	uint16_t udp_size; /* what the client accepts over UDP, DNS_UDP_MIN to 65535 */
};

/* Accepts one question of class IN, no other records but one OPT, no extra bytes. Returns
 * DNS_NOERROR, or how the message is to be answered (dns_reply_build uses what is filled in by
 * then), or DNS_DROP for what is no query: too short, or a reply. */
enum dns_rcode dns_query_parse(const uint8_t *message, size_t len, struct dns_query *ret);

struct dns_reply {
	enum dns_rcode rcode;
	uint32_t ttl;			 /* of each address, seconds */
	const struct address *addresses; /* those of the other family are skipped */
	size_t count;
};

/* Writes the reply into out, at most max bytes (DNS_UDP_MIN or more); out has room for
 * DNS_REPLY_MAX. If the addresses do not fit, all are left out and the TC bit tells the client
 * to use TCP. Returns its length. */
size_t dns_reply_build(
	const struct dns_query *query, const struct dns_reply *reply, size_t max, uint8_t *out);
/* The maximum of a reply over UDP for this client, as max for dns_reply_build. */
size_t dns_reply_udp_max(const struct dns_query *query);

/* ---- our queries, and replies of upstream --------------------------------------------------- */

struct dns_question {
	uint16_t id;
	uint16_t type; /* DNS_TYPE_A or DNS_TYPE_AAAA */
	struct dns_name name;
};

/* A random id and mixed case for each. out needs DNS_QUERY_MAX bytes. Returns the length. */
size_t dns_question_build(struct dns_question *question, uint8_t *out);

enum dns_match {
	DNS_MATCH,	    /* it answers our question and is valid */
	DNS_MATCH_CASE,	    /* as DNS_MATCH, but it changed the case of the name */
	DNS_MATCH_STRANGER, /* it does not: wrong id, other question, no reply. Keep waiting. */
	DNS_MATCH_BROKEN,   /* it does, but is malformed */
};

struct dns_result {
	enum dns_rcode rcode;
	bool truncated; /* must be repeated over TCP; nothing else is set */
	uint32_t
		/* the lowest of all records used; for a negative answer that of its SOA; 0:
		 * unknown */
		ttl;
	size_t count;
	struct address addresses[DNS_ADDRESSES_MAX];
};

/* Reads a reply to question. Aliases are followed within the message, 16 at most; addresses of
 * other names are ignored. *ret is filled for DNS_MATCH and DNS_MATCH_CASE. */
enum dns_match dns_result_parse(const uint8_t *message, size_t len,
	const struct dns_question *question, struct dns_result *ret);
