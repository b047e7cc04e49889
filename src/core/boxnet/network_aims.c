/* network_aims.c - which traffic of a box is led to the gate, according to its policy
 *
 * Names always are, by their synthetic addresses. Real addresses and datagrams only where some rule
 * could allow them: the box's own namespace refuses the rest at once, at no cost for the gate. */
#include "core/boxnet/network_internal.h"
#include "base/alloc.h"
#include "base/special.h"
#include <string.h>

struct aims {
	struct address_range *ranges;
	size_t count;
};

static void add_range(struct aims *aims, const struct address_range *range)
{
	xgrow(aims->ranges, aims->count + 1);
	aims->ranges[aims->count++] = *range;
}

/* Single hosts and small ranges are not cut out: the gate refuses them. */
static bool is_large(const struct address_range *range)
{
	return range->bits <= (range->base.family == 4 ? 24 : 16);
}

/* Adds all of range that is public: it is halved until each part is special as a whole or not at
 * all. */
static void add_public(struct aims *aims, const struct address_range *range)
{
	bool mixed = false;
	struct address_range half = { range->base, range->bits + 1 };

	for (size_t i = 0; i < special_range_count; i++) {
		const struct address_range *special = &special_ranges[i].range;

		if (!is_large(special))
			continue;
		if (address_range_covers(special, range))
			return;
		mixed |= address_range_covers(range, special);
	}
	if (!mixed)
		return add_range(aims, range);
	add_public(aims, &half);
	half.base.bytes[range->bits / 8] |= (uint8_t)(0x80 >> range->bits % 8);
	add_public(aims, &half);
}

static bool sees_everything(const struct network *net)
{
	return net->policy->preset == POLICY_OPEN || net->recording;
}

static bool carries_udp(const struct network *net)
{
	for (size_t i = 0; i < net->policy->count; i++)
		if (!net->policy->rules[i].deny && net->policy->rules[i].protocols & POLICY_UDP)
			return true;
	return sees_everything(net);
}

/* Leads to the gate all real addresses that some rule allows. */
int network_set_aims(struct network *net, struct err *err)
{
	struct aims aims = { 0 };
	int status;

	for (size_t i = 0; i < net->policy->count; i++)
		if (net->policy->rules[i].target == POLICY_CIDR && !net->policy->rules[i].deny)
			add_range(&aims, &net->policy->rules[i].cidr);
	if (sees_everything(net)) {
		add_public(&aims, &(struct address_range){ .base.family = 4 });
		add_public(&aims, &(struct address_range){ .base.family = 6 });
	}
	status = doors_set_aims(net->netns, aims.ranges, aims.count, carries_udp(net), err);
	free(aims.ranges);
	return status;
}

/* Whether the policy needs more than what a new namespace has. */
bool network_has_aims(const struct network *net)
{
	for (size_t i = 0; i < net->policy->count; i++)
		if (net->policy->rules[i].target == POLICY_CIDR && !net->policy->rules[i].deny)
			return true;
	return carries_udp(net);
}
