/* doors_internal.h - what the files of doors.h share */
#pragma once
#include "net/doors.h"
#include "sys/netlink.h"

#define DOORS_TABLE   "boxyard"
#define DOORS_DIRECT4 "direct4"
#define DOORS_DIRECT6 "direct6"
#define DOORS_CARRIED "carried" /* protocols */

enum {
	DOORS_LO = 1,	  /* index of lo in every new namespace */
	DOORS_ETH = 2,	  /* and of eth0, which we make */
	DOORS_MARK = 98,  /* of packets that lead to a door */
	DOORS_GROUP = 98, /* of NFLOG: what is refused */
};

/* Rules are written for one of these. */
enum doors_rules {
	DOORS_RULES_PLAIN,
	DOORS_RULES_NESTED, /* the box may make networks of its own in the namespace */
	DOORS_RULES_VM,	    /* the box is at the other end of eth0 */
	DOORS_RULES_COUNT
};

struct doors_plan {
	struct netlink_batch links;    /* of a namespace that is the box's own */
	struct netlink_batch vm_links; /* of one with a tap in it */
	struct netlink_batch rules[DOORS_RULES_COUNT];
};

/* Of both ends of a tap: ours, and the box's (DOORS_VM_MAC). */
extern const uint8_t doors_vm_mac_near[6], doors_vm_mac_box[6];

/* The addresses in the box's namespace, see synthetic_numbered. */
struct address doors_resolver(unsigned family);
struct address doors_box(unsigned family);

/* ---- doors_rules.c -------------------------------------------------------------------------- */

/* Messages to nf_tables; family: NFPROTO_*. Everything between the two marks (NFNL_MSG_BATCH_*)
 * takes effect at once, or not at all. */
void nft_begin(struct netlink_batch *batch, unsigned type, unsigned flags, uint8_t family);
void nft_mark_batch(struct netlink_batch *batch, uint16_t type);
/* All rules of a new namespace. Without IPv6 the IPv6 rules only refuse. */
void doors_rules_write(struct netlink_batch *batch, enum doors_rules kind);
/* Replaces the ranges in the sets of direct addresses, and the protocols in their set. */
void doors_aims_write(
	struct netlink_batch *batch, const struct address_range *ranges, size_t count, bool udp);

/* ---- doors_refused.c ------------------------------------------------------------------------ */

/* Opens a socket in the current namespace that reports refused packets. */
int doors_refused_open(int *ret, struct err *err);
