/* doors_rules.c - the nft rules of a box's network namespace, as bytes
 *
 * One table with three chains, the same in every box:
 *
 *   before   what leads to a door of ours is given to it (TPROXY) and marked
 *   in       marked packets and those for the box's own addresses come in; the rest is reported and
 *            refused
 *   out      what was bound to eth0 by force, which leads nowhere, is refused too; not there when
 *            the box has a kernel of its own
 *
 * A rule is a row of small expressions: load something into the register, compare it, act. They are
 * written here without a library because a child between clone and exec must send them, and because
 * there is no text to parse: a box costs one send() of some kilobytes. */
#include "net/doors_internal.h"
#include "base/special.h"
#include "net/synthetic.h"
#include <netinet/in.h> /* before the kernel's */
#include <linux/if_packet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/icmp6.h>
#include <stdlib.h>
#include <string.h>

enum {
	PRIORITY_BEFORE = -150, /* where TPROXY belongs */
	REPORTS = 200,		/* packets a second that are reported */
	ANSWERS = 200,		/* ICMP errors a second for a box with a kernel of its own */
	TYPE_IPV4 = 7,		/* as nft calls what is in a set; for people who look */
	TYPE_IPV6 = 8,
	TYPE_PROTOCOL = 12,
};

/* ---- messages ------------------------------------------------------------------------------- */

void nft_begin(struct netlink_batch *batch, unsigned type, unsigned flags, uint8_t family)
{
	struct nfgenmsg head = { .nfgen_family = family, .version = NFNETLINK_V0 };

	netlink_begin(batch, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), (uint16_t)flags, &head,
		sizeof head);
}

void nft_mark_batch(struct netlink_batch *batch, uint16_t type)
{
	struct nfgenmsg head = { .nfgen_family = AF_UNSPEC,
		.version = NFNETLINK_V0,
		.res_id = htons(NFNL_SUBSYS_NFTABLES) };

	netlink_begin(batch, type, 0, &head, sizeof head);
	netlink_end_quiet(batch);
}

static void add_table(struct netlink_batch *batch)
{
	nft_begin(batch, NFT_MSG_NEWTABLE, NLM_F_CREATE, NFPROTO_INET);
	netlink_attr_text(batch, NFTA_TABLE_NAME, DOORS_TABLE);
	netlink_end(batch);
}

/* Sets are known by a number too, while the batch that makes them is on its way. */
enum { SET_DIRECT4 = 4, SET_DIRECT6 = 6, SET_CARRIED = 1 };

static void add_set(struct netlink_batch *batch, const char *name, uint32_t id, uint32_t key_type,
	uint32_t key_len)
{
	nft_begin(batch, NFT_MSG_NEWSET, NLM_F_CREATE, NFPROTO_INET);
	netlink_attr_text(batch, NFTA_SET_TABLE, DOORS_TABLE);
	netlink_attr_text(batch, NFTA_SET_NAME, name);
	netlink_attr_be32(batch, NFTA_SET_FLAGS, id == SET_CARRIED ? 0 : NFT_SET_INTERVAL);
	netlink_attr_be32(batch, NFTA_SET_KEY_TYPE, key_type);
	netlink_attr_be32(batch, NFTA_SET_KEY_LEN, key_len);
	netlink_attr_be32(batch, NFTA_SET_ID, id);
	netlink_end(batch);
}

static void add_chain(
	struct netlink_batch *batch, const char *name, uint32_t hook, int32_t priority)
{
	size_t nest;

	nft_begin(batch, NFT_MSG_NEWCHAIN, NLM_F_CREATE, NFPROTO_INET);
	netlink_attr_text(batch, NFTA_CHAIN_TABLE, DOORS_TABLE);
	netlink_attr_text(batch, NFTA_CHAIN_NAME, name);
	nest = netlink_nest(batch, NFTA_CHAIN_HOOK);
	netlink_attr_be32(batch, NFTA_HOOK_HOOKNUM, hook);
	netlink_attr_be32(batch, NFTA_HOOK_PRIORITY, (uint32_t)priority);
	netlink_unnest(batch, nest);
	netlink_attr_text(batch, NFTA_CHAIN_TYPE, "filter");
	netlink_end(batch);
}

/* ---- expressions ---------------------------------------------------------------------------- */

struct rule {
	struct netlink_batch *batch;
	size_t expressions;
	size_t element, data; /* of the one being written */
};

static struct rule rule_begin(struct netlink_batch *batch, const char *chain)
{
	struct rule rule = { .batch = batch };

	nft_begin(batch, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, NFPROTO_INET);
	netlink_attr_text(batch, NFTA_RULE_TABLE, DOORS_TABLE);
	netlink_attr_text(batch, NFTA_RULE_CHAIN, chain);
	rule.expressions = netlink_nest(batch, NFTA_RULE_EXPRESSIONS);
	return rule;
}

static void rule_end(struct rule *rule)
{
	netlink_unnest(rule->batch, rule->expressions);
	netlink_end(rule->batch);
}

static void expr_begin(struct rule *rule, const char *name)
{
	rule->element = netlink_nest(rule->batch, NFTA_LIST_ELEM);
	netlink_attr_text(rule->batch, NFTA_EXPR_NAME, name);
	rule->data = netlink_nest(rule->batch, NFTA_EXPR_DATA);
}

static void expr_end(struct rule *rule)
{
	netlink_unnest(rule->batch, rule->data);
	netlink_unnest(rule->batch, rule->element);
}

static void put_value(struct rule *rule, uint16_t type, const void *value, size_t len)
{
	size_t nest = netlink_nest(rule->batch, type);

	netlink_attr(rule->batch, NFTA_DATA_VALUE, value, len);
	netlink_unnest(rule->batch, nest);
}

static void load_meta(struct rule *rule, uint32_t key)
{
	expr_begin(rule, "meta");
	netlink_attr_be32(rule->batch, NFTA_META_DREG, NFT_REG_1);
	netlink_attr_be32(rule->batch, NFTA_META_KEY, key);
	expr_end(rule);
}

static void load_payload(struct rule *rule, uint32_t base, uint32_t offset, uint32_t len)
{
	expr_begin(rule, "payload");
	netlink_attr_be32(rule->batch, NFTA_PAYLOAD_DREG, NFT_REG_1);
	netlink_attr_be32(rule->batch, NFTA_PAYLOAD_BASE, base);
	netlink_attr_be32(rule->batch, NFTA_PAYLOAD_OFFSET, offset);
	netlink_attr_be32(rule->batch, NFTA_PAYLOAD_LEN, len);
	expr_end(rule);
}

static void compare(struct rule *rule, uint32_t how, const void *value, size_t len)
{
	expr_begin(rule, "cmp");
	netlink_attr_be32(rule->batch, NFTA_CMP_SREG, NFT_REG_1);
	netlink_attr_be32(rule->batch, NFTA_CMP_OP, how);
	put_value(rule, NFTA_CMP_DATA, value, len);
	expr_end(rule);
}

static void match_byte(struct rule *rule, uint32_t key, uint8_t value)
{
	load_meta(rule, key);
	compare(rule, NFT_CMP_EQ, &value, 1);
}

static void match_u32(struct rule *rule, uint32_t key, uint32_t how, uint32_t value)
{
	load_meta(rule, key);
	compare(rule, how, &value, sizeof value);
}

static void load_destination(struct rule *rule, unsigned family)
{
	match_byte(rule, NFT_META_NFPROTO, family == 4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
	load_payload(rule, NFT_PAYLOAD_NETWORK_HEADER, family == 4 ? 16 : 24, family == 4 ? 4 : 16);
}

/* Keeps only the bits of a prefix; whole bytes are compared without that. */
static void match_destination(struct rule *rule, const struct address_range *range)
{
	uint8_t mask[16] = { 0 };
	static const uint8_t zeros[16];
	uint32_t len = range->base.family == 4 ? 4 : 16;

	load_destination(rule, range->base.family);
	for (unsigned i = 0; i < range->bits; i++)
		mask[i / 8] |= (uint8_t)(0x80 >> i % 8);
	if (range->bits < len * 8) {
		expr_begin(rule, "bitwise");
		netlink_attr_be32(rule->batch, NFTA_BITWISE_SREG, NFT_REG_1);
		netlink_attr_be32(rule->batch, NFTA_BITWISE_DREG, NFT_REG_1);
		netlink_attr_be32(rule->batch, NFTA_BITWISE_LEN, len);
		put_value(rule, NFTA_BITWISE_MASK, mask, len);
		put_value(rule, NFTA_BITWISE_XOR, zeros, len);
		expr_end(rule);
	}
	compare(rule, NFT_CMP_EQ, range->base.bytes, len);
}

/* What is in the register. */
static void match_set(struct rule *rule, const char *name, uint32_t id)
{
	expr_begin(rule, "lookup");
	netlink_attr_text(rule->batch, NFTA_LOOKUP_SET, name);
	netlink_attr_be32(rule->batch, NFTA_LOOKUP_SREG, NFT_REG_1);
	netlink_attr_be32(rule->batch, NFTA_LOOKUP_SET_ID, id);
	expr_end(rule);
}

static void load_value(struct rule *rule, uint32_t reg, const void *value, size_t len)
{
	expr_begin(rule, "immediate");
	netlink_attr_be32(rule->batch, NFTA_IMMEDIATE_DREG, reg);
	put_value(rule, NFTA_IMMEDIATE_DATA, value, len);
	expr_end(rule);
}

static void decide(struct rule *rule, uint32_t code)
{
	size_t data, verdict;

	expr_begin(rule, "immediate");
	netlink_attr_be32(rule->batch, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	data = netlink_nest(rule->batch, NFTA_IMMEDIATE_DATA);
	verdict = netlink_nest(rule->batch, NFTA_DATA_VERDICT);
	netlink_attr_be32(rule->batch, NFTA_VERDICT_CODE, code);
	netlink_unnest(rule->batch, verdict);
	netlink_unnest(rule->batch, data);
	expr_end(rule);
}

static void accept_it(struct rule *rule)
{
	decide(rule, NF_ACCEPT);
}

/* TPROXY finds no socket for protocols other than TCP and UDP, nor when nobody listens: the rule
 * then ends here, and the packet reaches the refusal at the end. */
static void lead_to_door(struct rule *rule, unsigned family, uint16_t port)
{
	struct address door = doors_resolver(family);
	uint16_t wire_port = htons(port);
	uint32_t mark = DOORS_MARK;

	load_value(rule, NFT_REG_2, door.bytes, family == 4 ? 4 : 16);
	load_value(rule, NFT_REG_3, &wire_port, sizeof wire_port);
	expr_begin(rule, "tproxy");
	netlink_attr_be32(
		rule->batch, NFTA_TPROXY_FAMILY, family == 4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
	netlink_attr_be32(rule->batch, NFTA_TPROXY_REG_ADDR, NFT_REG_2);
	netlink_attr_be32(rule->batch, NFTA_TPROXY_REG_PORT, NFT_REG_3);
	expr_end(rule);
	load_value(rule, NFT_REG_1, &mark, sizeof mark);
	expr_begin(rule, "meta");
	netlink_attr_be32(rule->batch, NFTA_META_KEY, NFT_META_MARK);
	netlink_attr_be32(rule->batch, NFTA_META_SREG, NFT_REG_1);
	expr_end(rule);
	accept_it(rule);
}

/* The rule holds for so many packets a second. */
static void limit_to(struct rule *rule, uint32_t rate)
{
	expr_begin(rule, "limit");
	netlink_attr_be64(rule->batch, NFTA_LIMIT_RATE, rate);
	netlink_attr_be64(rule->batch, NFTA_LIMIT_UNIT, 1);
	netlink_attr_be32(rule->batch, NFTA_LIMIT_BURST, rate);
	netlink_attr_be32(rule->batch, NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
	expr_end(rule);
}

static void report_it(struct rule *rule)
{
	uint16_t group = htons(DOORS_GROUP), threshold = htons(1);

	limit_to(rule, REPORTS);
	expr_begin(rule, "log");
	netlink_attr(rule->batch, NFTA_LOG_GROUP, &group, sizeof group);
	netlink_attr(rule->batch, NFTA_LOG_QTHRESHOLD, &threshold, sizeof threshold);
	expr_end(rule);
}

static void refuse_it(struct rule *rule, uint32_t type, uint8_t code)
{
	expr_begin(rule, "reject");
	netlink_attr_be32(rule->batch, NFTA_REJECT_TYPE, type);
	netlink_attr(rule->batch, NFTA_REJECT_ICMP_CODE, &code, 1);
	expr_end(rule);
}

/* ---- the rules ------------------------------------------------------------------------------ */

static struct address_range alone(struct address address)
{
	return (struct address_range){ address, address.family == 4 ? 32 : 128 };
}

static void accept_range(
	struct netlink_batch *batch, const char *chain, const struct address_range *to)
{
	struct rule rule = rule_begin(batch, chain);

	match_destination(&rule, to);
	accept_it(&rule);
	rule_end(&rule);
}

/* What the box says to itself. A box with a kernel of its own does that there. */
static void accept_own(struct netlink_batch *batch, const char *chain, enum doors_rules kind)
{
	static const unsigned families[] = { 4, 6 };

	for (size_t i = 0; i < ARRAY_LEN(families); i++) {
		struct address_range box = alone(doors_box(families[i]));

		accept_range(batch, chain, special_range_of(SPECIAL_LOOPBACK, families[i]));
		if (kind != DOORS_RULES_VM)
			accept_range(batch, chain, &box);
	}
}

/* Datagrams are carried only if the policy says so: otherwise QUIC is refused at once, and clients
 * fall back. */
static void match_carried(struct rule *rule)
{
	load_meta(rule, NFT_META_L4PROTO);
	match_set(rule, DOORS_CARRIED, SET_CARRIED);
}

static void lead_set(struct netlink_batch *batch, unsigned family, const char *set, uint32_t id)
{
	struct rule rule = rule_begin(batch, "before");

	load_destination(&rule, family);
	match_set(&rule, set, id);
	match_carried(&rule);
	lead_to_door(&rule, family, DOORS_PORT);
	rule_end(&rule);
}

static void lead_range(struct netlink_batch *batch, const struct address_range *to)
{
	struct rule rule = rule_begin(batch, "before");

	match_destination(&rule, to);
	match_carried(&rule);
	lead_to_door(&rule, to->base.family, DOORS_PORT);
	rule_end(&rule);
}

static void lead_questions(struct netlink_batch *batch, unsigned family)
{
	struct rule rule = rule_begin(batch, "before");
	uint16_t port = htons(DOORS_DNS_PORT);

	match_byte(&rule, NFT_META_NFPROTO, family == 4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
	load_payload(&rule, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
	compare(&rule, NFT_CMP_EQ, &port, sizeof port);
	lead_to_door(&rule, family, DOORS_DNS_PORT);
	rule_end(&rule);
}

/* Networks that a nested box makes for its containers. */
static bool is_inner(const struct special_range *special)
{
	return special->kind == SPECIAL_PRIVATE ||
	       (special->range.base.family == 6 &&
		       (special->kind == SPECIAL_LINK_LOCAL || special->kind == SPECIAL_MULTICAST));
}

/* A rule for what does not come from the box's own address, though it came by its cable. */
static struct rule forged_begin(struct netlink_batch *batch, unsigned family)
{
	struct address box = doors_box(family);
	struct rule rule = rule_begin(batch, "before");

	match_u32(&rule, NFT_META_IIF, NFT_CMP_EQ, DOORS_ETH);
	match_byte(&rule, NFT_META_NFPROTO, family == 4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
	load_payload(&rule, NFT_PAYLOAD_NETWORK_HEADER, family == 4 ? 12 : 8, family == 4 ? 4 : 16);
	compare(&rule, NFT_CMP_NEQ, box.bytes, family == 4 ? 4 : 16);
	return rule;
}

/* Root of a box with a kernel of its own sends what it likes by its cable. Packets from other
 * addresses are dropped, and reported unless any kernel sends them: to everybody on the cable
 * (DHCP, multicast groups), or to look for a neighbour from an address of the link. */
static void drop_forged(struct netlink_batch *batch, unsigned family)
{
	static const uint8_t of_link[2] = { 0xfe, 0x80 };
	struct rule rule;

	if (family == 6) {
		rule = forged_begin(batch, family);
		load_payload(&rule, NFT_PAYLOAD_NETWORK_HEADER, 8, sizeof of_link);
		compare(&rule, NFT_CMP_EQ, of_link, sizeof of_link);
		decide(&rule, NF_DROP);
		rule_end(&rule);
	}
	rule = forged_begin(batch, family);
	match_byte(&rule, NFT_META_PKTTYPE, PACKET_HOST);
	report_it(&rule);
	rule_end(&rule);
	rule = forged_begin(batch, family);
	decide(&rule, NF_DROP);
	rule_end(&rule);
}

static void write_before(struct netlink_batch *batch, enum doors_rules kind)
{
	const struct address_range *v4 = special_range_of(SPECIAL_SYNTHETIC, 4);
	const struct address_range *v6 = special_range_of(SPECIAL_SYNTHETIC, 6);
	bool nested = kind == DOORS_RULES_NESTED;

	if (kind == DOORS_RULES_VM) {
		drop_forged(batch, 4);
		drop_forged(batch, 6);
	}
	accept_own(batch, "before", kind);
	lead_set(batch, 4, DOORS_DIRECT4, SET_DIRECT4);
	lead_set(batch, 6, DOORS_DIRECT6, SET_DIRECT6);
	/* Questions to a server in a network of the box's own are left alone. */
	for (size_t i = 0; nested && i < special_range_count; i++) {
		const struct special_range *special = &special_ranges[i];

		if (is_inner(special) && !address_range_covers(&special->range, v6))
			accept_range(batch, "before", &special->range);
	}
	lead_questions(batch, 4);
	lead_questions(batch, 6);
	lead_range(batch, v4);
	lead_range(batch, v6);
}

/* cable: the box is at the end of one. Older kernels have one budget of ICMP errors for all
 * namespaces (1,000 a second); it is not spent for what loops back, but for a box at the end of a
 * cable. */
static void refuse_rest(struct netlink_batch *batch, const char *chain, bool by_device, bool cable)
{
	struct rule rule;

	for (int step = 0; step < 3; step++) {
		rule = rule_begin(batch, chain);
		if (by_device)
			match_u32(&rule, NFT_META_OIF, NFT_CMP_EQ, DOORS_ETH);
		if (step == 0) {
			report_it(&rule);
		} else if (step == 1) {
			match_byte(&rule, NFT_META_L4PROTO, IPPROTO_TCP);
			refuse_it(&rule, NFT_REJECT_TCP_RST, 0);
		} else {
			if (cable)
				limit_to(&rule, ANSWERS);
			refuse_it(
				&rule, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
		}
		rule_end(&rule);
	}
	if (cable) {
		rule = rule_begin(batch, chain);
		decide(&rule, NF_DROP);
		rule_end(&rule);
	}
}

/* Who looks for our address on the cable gets an answer (ARP does not come by here). What was for
 * everybody on it is nothing to report: every kernel says something of that kind. */
static void write_in_cable(struct netlink_batch *batch)
{
	static const uint8_t neighbours[] = { ND_NEIGHBOR_SOLICIT, ND_NEIGHBOR_ADVERT };
	static const uint8_t many[] = { PACKET_BROADCAST, PACKET_MULTICAST };
	struct rule rule;

	for (size_t i = 0; i < ARRAY_LEN(neighbours); i++) {
		rule = rule_begin(batch, "in");
		match_byte(&rule, NFT_META_L4PROTO, IPPROTO_ICMPV6);
		load_payload(&rule, NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1);
		compare(&rule, NFT_CMP_EQ, &neighbours[i], 1);
		accept_it(&rule);
		rule_end(&rule);
	}
	for (size_t i = 0; i < ARRAY_LEN(many); i++) {
		rule = rule_begin(batch, "in");
		match_byte(&rule, NFT_META_PKTTYPE, many[i]);
		decide(&rule, NF_DROP);
		rule_end(&rule);
	}
}

static void write_in(struct netlink_batch *batch, enum doors_rules kind)
{
	struct rule rule = rule_begin(batch, "in");
	bool nested = kind == DOORS_RULES_NESTED;

	match_u32(&rule, NFT_META_MARK, NFT_CMP_EQ, DOORS_MARK);
	accept_it(&rule);
	rule_end(&rule);
	accept_own(batch, "in", kind);
	if (kind == DOORS_RULES_VM)
		write_in_cable(batch);
	for (size_t i = 0; nested && i < special_range_count; i++) {
		if (!is_inner(&special_ranges[i]))
			continue;
		rule = rule_begin(batch, "in");
		match_u32(&rule, NFT_META_IIF, NFT_CMP_NEQ, DOORS_LO);
		match_destination(&rule, &special_ranges[i].range);
		accept_it(&rule);
		rule_end(&rule);
	}
	refuse_rest(batch, "in", false, kind == DOORS_RULES_VM);
}

/* ---- what is in the sets -------------------------------------------------------------------- */

/* Another range already covers it; of two equal ones the first counts. */
static bool is_covered(const struct address_range *ranges, size_t count, size_t which)
{
	for (size_t i = 0; i < count; i++)
		if (i != which && address_range_covers(&ranges[i], &ranges[which]) &&
			(i < which || ranges[i].bits < ranges[which].bits))
			return true;
	return false;
}

static void add_element(struct netlink_batch *batch, const uint8_t *key, size_t len, uint32_t flags)
{
	size_t element = netlink_nest(batch, NFTA_LIST_ELEM), nest;

	nest = netlink_nest(batch, NFTA_SET_ELEM_KEY);
	netlink_attr(batch, NFTA_DATA_VALUE, key, len);
	netlink_unnest(batch, nest);
	if (flags)
		netlink_attr_be32(batch, NFTA_SET_ELEM_FLAGS, flags);
	netlink_unnest(batch, element);
}

/* The first address after a range; false when there is none. */
static bool range_end(const struct address_range *range, uint8_t *ret, size_t len)
{
	memcpy(ret, range->base.bytes, len);
	for (unsigned bit = range->bits; bit-- > 0;) {
		uint8_t *byte = &ret[bit / 8], mask = (uint8_t)(0x80 >> bit % 8);

		*byte ^= mask;
		if (*byte & mask)
			return true;
	}
	return false;
}

static void begin_elements(
	struct netlink_batch *batch, unsigned type, unsigned flags, const char *set)
{
	nft_begin(batch, type, flags, NFPROTO_INET);
	netlink_attr_text(batch, NFTA_SET_ELEM_LIST_TABLE, DOORS_TABLE);
	netlink_attr_text(batch, NFTA_SET_ELEM_LIST_SET, set);
}

static void empty_set(struct netlink_batch *batch, const char *set)
{
	begin_elements(batch, NFT_MSG_DELSETELEM, 0, set); /* no elements: all of them */
	netlink_end(batch);
}

static void write_carried(struct netlink_batch *batch, bool udp)
{
	const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP };
	size_t nest;

	begin_elements(batch, NFT_MSG_NEWSETELEM, NLM_F_CREATE, DOORS_CARRIED);
	nest = netlink_nest(batch, NFTA_SET_ELEM_LIST_ELEMENTS);
	for (int i = 0; i <= udp; i++)
		add_element(batch, &protocols[i], 1, 0);
	netlink_unnest(batch, nest);
	netlink_end(batch);
}

/* An attribute holds 64 KiB, so many ranges come in several messages. */
static void write_family(struct netlink_batch *batch, const struct address_range *ranges,
	size_t count, unsigned family)
{
	enum { PER_MESSAGE = 256 };
	size_t len = family == 4 ? 4 : 16, at = 0, nest;
	const char *set = family == 4 ? DOORS_DIRECT4 : DOORS_DIRECT6;
	uint8_t end[16];

	empty_set(batch, set);
	while (at < count) {
		size_t written = 0;

		while (at < count &&
			(ranges[at].base.family != family || is_covered(ranges, count, at)))
			at++;
		if (at == count)
			break;
		begin_elements(batch, NFT_MSG_NEWSETELEM, NLM_F_CREATE, set);
		nest = netlink_nest(batch, NFTA_SET_ELEM_LIST_ELEMENTS);
		for (; at < count && written < PER_MESSAGE; at++) {
			if (ranges[at].base.family != family || is_covered(ranges, count, at))
				continue;
			add_element(batch, ranges[at].base.bytes, len, 0);
			if (range_end(&ranges[at], end, len))
				add_element(batch, end, len, NFT_SET_ELEM_INTERVAL_END);
			written++;
		}
		netlink_unnest(batch, nest);
		netlink_end(batch);
	}
}

void doors_aims_write(
	struct netlink_batch *batch, const struct address_range *ranges, size_t count, bool udp)
{
	nft_mark_batch(batch, NFNL_MSG_BATCH_BEGIN);
	empty_set(batch, DOORS_CARRIED);
	write_carried(batch, udp);
	write_family(batch, ranges, count, 4);
	write_family(batch, ranges, count, 6);
	nft_mark_batch(batch, NFNL_MSG_BATCH_END);
}

void doors_rules_write(struct netlink_batch *batch, enum doors_rules kind)
{
	nft_mark_batch(batch, NFNL_MSG_BATCH_BEGIN);
	add_table(batch);
	add_set(batch, DOORS_DIRECT4, SET_DIRECT4, TYPE_IPV4, 4);
	add_set(batch, DOORS_DIRECT6, SET_DIRECT6, TYPE_IPV6, 16);
	add_set(batch, DOORS_CARRIED, SET_CARRIED, TYPE_PROTOCOL, 1);
	write_carried(batch, false);
	add_chain(batch, "before", NF_INET_PRE_ROUTING, PRIORITY_BEFORE);
	add_chain(batch, "in", NF_INET_LOCAL_IN, 0);
	write_before(batch, kind);
	write_in(batch, kind);
	if (kind != DOORS_RULES_VM) { /* there eth0 leads to the box, and only we send by it */
		add_chain(batch, "out", NF_INET_LOCAL_OUT, 0);
		refuse_rest(batch, "out", true, false);
	}
	nft_mark_batch(batch, NFNL_MSG_BATCH_END);
}
