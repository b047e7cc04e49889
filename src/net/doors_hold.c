/* doors_hold.c - stops everything that is sent in a network namespace for a while
 *
 * While connections are restored one by one, a packet of the first for one that does not exist yet
 * would be answered by a reset. And while they are captured one by one, data that moves from a
 * socket to one captured before is in neither. So a separate table with one chain drops what
 * sockets of the box send; when it is removed, TCP retransmits what was dropped. Our own sockets in
 * the namespace are let through: they are not captured or restored. */
#include "net/doors_internal.h"
#include <netinet/in.h> /* before the kernel's */
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

#define HOLD_TABLE "boxyard-hold"
enum {
	PRIORITY_FIRST = -1000,
	/* Sockets of a user that the box's user namespace does not know: our own. The box's own
	 * user of this number is let through as well. */
	STRANGER = 65534,
	/* CRIU's own packets, with which it recreates half-closed connections */
	CRIU_MARK = 0xc114,
};

static void add_chain(struct netlink_batch *batch)
{
	size_t nest;

	nft_begin(batch, NFT_MSG_NEWCHAIN, NLM_F_CREATE, NFPROTO_INET);
	netlink_attr_text(batch, NFTA_CHAIN_TABLE, HOLD_TABLE);
	netlink_attr_text(batch, NFTA_CHAIN_NAME, "out");
	nest = netlink_nest(batch, NFTA_CHAIN_HOOK);
	netlink_attr_be32(batch, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
	netlink_attr_be32(batch, NFTA_HOOK_PRIORITY, (uint32_t)PRIORITY_FIRST);
	netlink_unnest(batch, nest);
	netlink_attr_text(batch, NFTA_CHAIN_TYPE, "filter");
	netlink_end(batch);
}

static size_t begin_expr(struct netlink_batch *batch, const char *name, size_t *ret_data)
{
	size_t element = netlink_nest(batch, NFTA_LIST_ELEM);

	netlink_attr_text(batch, NFTA_EXPR_NAME, name);
	*ret_data = netlink_nest(batch, NFTA_EXPR_DATA);
	return element;
}

static void end_expr(struct netlink_batch *batch, size_t element, size_t data)
{
	netlink_unnest(batch, data);
	netlink_unnest(batch, element);
}

static void add_meta(struct netlink_batch *batch, uint32_t key)
{
	size_t data, element = begin_expr(batch, "meta", &data);

	netlink_attr_be32(batch, NFTA_META_DREG, NFT_REG_1);
	netlink_attr_be32(batch, NFTA_META_KEY, key);
	end_expr(batch, element, data);
}

/* value as the register has it */
static void add_compare(struct netlink_batch *batch, uint32_t op, uint32_t value)
{
	size_t data, element = begin_expr(batch, "cmp", &data), nest;

	netlink_attr_be32(batch, NFTA_CMP_SREG, NFT_REG_1);
	netlink_attr_be32(batch, NFTA_CMP_OP, op);
	nest = netlink_nest(batch, NFTA_CMP_DATA);
	netlink_attr(batch, NFTA_DATA_VALUE, &value, sizeof value);
	netlink_unnest(batch, nest);
	end_expr(batch, element, data);
}

static size_t begin_rule(struct netlink_batch *batch)
{
	nft_begin(batch, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, NFPROTO_INET);
	netlink_attr_text(batch, NFTA_RULE_TABLE, HOLD_TABLE);
	netlink_attr_text(batch, NFTA_RULE_CHAIN, "out");
	return netlink_nest(batch, NFTA_RULE_EXPRESSIONS);
}

static void end_rule(struct netlink_batch *batch, size_t expressions, uint32_t code)
{
	size_t data, element = begin_expr(batch, "immediate", &data), nest, verdict;

	netlink_attr_be32(batch, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	nest = netlink_nest(batch, NFTA_IMMEDIATE_DATA);
	verdict = netlink_nest(batch, NFTA_DATA_VERDICT);
	netlink_attr_be32(batch, NFTA_VERDICT_CODE, code);
	netlink_unnest(batch, verdict);
	netlink_unnest(batch, nest);
	end_expr(batch, element, data);
	netlink_unnest(batch, expressions);
	netlink_end(batch);
}

/* meta mark CRIU_MARK accept; meta skuid != STRANGER drop */
static void add_rules(struct netlink_batch *batch)
{
	size_t rule = begin_rule(batch);

	add_meta(batch, NFT_META_MARK);
	add_compare(batch, NFT_CMP_EQ, CRIU_MARK);
	end_rule(batch, rule, NF_ACCEPT);
	rule = begin_rule(batch);
	add_meta(batch, NFT_META_SKUID);
	add_compare(batch, NFT_CMP_NEQ, STRANGER);
	end_rule(batch, rule, NF_DROP);
}

int doors_hold(bool hold, int *ret_fd, struct err *err)
{
	struct netlink_batch batch = NETLINK_BATCH_INIT;
	int status;

	*ret_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	if (*ret_fd < 0)
		return err_sys(err, errno, "netlink socket");
	nft_mark_batch(&batch, NFNL_MSG_BATCH_BEGIN);
	nft_begin(&batch, hold ? NFT_MSG_NEWTABLE : NFT_MSG_DELTABLE, hold ? NLM_F_CREATE : 0,
		NFPROTO_INET);
	netlink_attr_text(&batch, NFTA_TABLE_NAME, HOLD_TABLE);
	netlink_end(&batch);
	if (hold) {
		add_chain(&batch);
		add_rules(&batch);
	}
	nft_mark_batch(&batch, NFNL_MSG_BATCH_END);
	status = netlink_send_by(*ret_fd, &batch, err);
	netlink_batch_done(&batch);
	return status < 0 ? err_wrap(err, "hold the network of the box") : 0;
}
