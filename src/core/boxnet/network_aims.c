/* network_aims.c - which traffic of a box is led to the gate, according to its policy
 *
 * Names always are, by their synthetic addresses. Real addresses and datagrams only where some rule
 * could allow them: the box's own namespace refuses the rest at once, at no cost for the gate. */
#include "core/boxnet/network_internal.h"
#include "base/alloc.h"
#include <string.h>

/* All public addresses: everything outside the ranges that are always closed. */
static const struct {
	const char *base;
	uint8_t bits;
} public_ranges[] = {
	{ "1.0.0.0", 8 },
	{ "2.0.0.0", 7 },
	{ "4.0.0.0", 6 },
	{ "8.0.0.0", 7 },
	{ "11.0.0.0", 8 },
	{ "12.0.0.0", 6 },
	{ "16.0.0.0", 4 },
	{ "32.0.0.0", 3 },
	{ "64.0.0.0", 3 },
	{ "96.0.0.0", 6 },
	{ "100.0.0.0", 10 },
	{ "100.128.0.0", 9 },
	{ "101.0.0.0", 8 },
	{ "102.0.0.0", 7 },
	{ "104.0.0.0", 5 },
	{ "112.0.0.0", 5 },
	{ "120.0.0.0", 6 },
	{ "124.0.0.0", 7 },
	{ "126.0.0.0", 8 },
	{ "128.0.0.0", 3 },
	{ "160.0.0.0", 5 },
	{ "168.0.0.0", 8 },
	{ "169.0.0.0", 9 },
	{ "169.128.0.0", 10 },
	{ "169.192.0.0", 11 },
	{ "169.224.0.0", 12 },
	{ "169.240.0.0", 13 },
	{ "169.248.0.0", 14 },
	{ "169.252.0.0", 15 },
	{ "169.255.0.0", 16 },
	{ "170.0.0.0", 7 },
	{ "172.0.0.0", 12 },
	{ "172.32.0.0", 11 },
	{ "172.64.0.0", 10 },
	{ "172.128.0.0", 9 },
	{ "173.0.0.0", 8 },
	{ "174.0.0.0", 7 },
	{ "176.0.0.0", 4 },
	{ "192.0.1.0", 24 },
	{ "192.0.2.0", 23 },
	{ "192.0.4.0", 22 },
	{ "192.0.8.0", 21 },
	{ "192.0.16.0", 20 },
	{ "192.0.32.0", 19 },
	{ "192.0.64.0", 18 },
	{ "192.0.128.0", 17 },
	{ "192.1.0.0", 16 },
	{ "192.2.0.0", 15 },
	{ "192.4.0.0", 14 },
	{ "192.8.0.0", 13 },
	{ "192.16.0.0", 12 },
	{ "192.32.0.0", 11 },
	{ "192.64.0.0", 10 },
	{ "192.128.0.0", 11 },
	{ "192.160.0.0", 13 },
	{ "192.169.0.0", 16 },
	{ "192.170.0.0", 15 },
	{ "192.172.0.0", 14 },
	{ "192.176.0.0", 12 },
	{ "192.192.0.0", 10 },
	{ "193.0.0.0", 8 },
	{ "194.0.0.0", 7 },
	{ "196.0.0.0", 7 },
	{ "198.0.0.0", 12 },
	{ "198.16.0.0", 15 },
	{ "198.20.0.0", 14 },
	{ "198.24.0.0", 13 },
	{ "198.32.0.0", 11 },
	{ "198.64.0.0", 10 },
	{ "198.128.0.0", 9 },
	{ "199.0.0.0", 8 },
	{ "200.0.0.0", 5 },
	{ "208.0.0.0", 4 },
	{ "2000::", 3 },
};

static void add_range(struct doors_range **list, size_t *count, const struct policy_cidr *cidr)
{
	xgrow(*list, *count + 1);
	(*list)[(*count)++] = (struct doors_range){ .base = cidr->base, .bits = cidr->bits };
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
	struct doors_range *ranges = NULL;
	size_t count = 0;
	int status;

	for (size_t i = 0; i < net->policy->count; i++)
		if (net->policy->rules[i].target == POLICY_CIDR && !net->policy->rules[i].deny)
			add_range(&ranges, &count, &net->policy->rules[i].cidr);
	for (size_t i = 0; sees_everything(net) && i < ARRAY_LEN(public_ranges); i++) {
		struct policy_cidr cidr = { .bits = public_ranges[i].bits };

		if (policy_addr_parse(public_ranges[i].base, &cidr.base, NULL) == 0)
			add_range(&ranges, &count, &cidr);
	}
	status = doors_set_aims(net->netns, ranges, count, carries_udp(net), err);
	free(ranges);
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
