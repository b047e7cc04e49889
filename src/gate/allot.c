/* allot.c - what is left of rules with limits
 *
 * The limits of a rule apply to each destination that it leads to: a name, or an address. Each flow
 * has the allotment of its rule and destination, also where the rule has no limits yet: it may get
 * some while the flow lives. Allotments are identified by the rule's text, so a spent budget stays
 * spent when the policy is replaced, and over restarts. What was not spent needs no memory. */
#include "base/alloc.h"
#include "gate/gate_internal.h"

static void allotment_free(struct guest *guest, struct allotment *allotment)
{
	name_table_remove(&guest->allotments, &allotment->node);
	free(allotment->rule);
	free(allotment->destination);
	free(allotment->key);
	free(allotment);
}

void allot_free_all(struct guest *guest)
{
	for (size_t i = 0; i < guest->allotments.bucket_count; i++)
		while (guest->allotments.buckets[i])
			allotment_free(guest, (struct allotment *)guest->allotments.buckets[i]);
	name_table_done(&guest->allotments);
}

/* Takes rule. NULL when there is no room for one more: the box loses no budget by that. */
static struct allotment *get(struct guest *guest, char *rule, const char *destination)
{
	_cleanup_free_ char *own_rule = rule, *key = xasprintf("%s %s", destination, rule);
	struct allotment *allotment =
		(struct allotment *)name_table_find(&guest->allotments, key, 0);

	if (allotment || guest->allotments.count >= ALLOTMENTS_MAX)
		return allotment;
	allotment = xnew(struct allotment);
	allotment->rule = steal_ptr(&own_rule);
	allotment->destination = xstrdup(destination);
	allotment->key = steal_ptr(&key);
	name_table_add(&guest->allotments, &allotment->node, allotment->key, 0);
	return allotment;
}

void allot_limits(struct allotment *allotment, const struct policy_limits *limits)
{
	allotment->quota.rate = limits->rate;
	allotment->quota.budget = limits->bytes;
	allotment->quota.connections = limits->connections;
}

struct allotment *allot_take(
	struct guest *guest, const struct policy_rule *rule, const char *destination)
{
	struct allotment *allotment = get(guest, gate_rule_text(rule), destination);

	if (!allotment)
		return NULL;
	allotment->users++;
	allot_limits(allotment, &rule->limits);
	return allotment;
}

void allot_release(struct guest *guest, struct allotment *allotment)
{
	if (--allotment->users == 0 && !(allotment->quota.budget && allotment->quota.spent))
		allotment_free(guest, allotment);
}

json_t *allot_save(const struct guest *guest)
{
	json_t *rules = json_array();

	for (size_t i = 0; i < guest->allotments.bucket_count; i++)
		for (const struct named *node = guest->allotments.buckets[i]; node;
			node = node->chain) {
			const struct allotment *allotment = (const struct allotment *)node;

			if (allotment->quota.budget && allotment->quota.spent)
				json_array_append_new(rules,
					json_pack("{s:s, s:s, s:I}", "rule", allotment->rule,
						"destination", allotment->destination, "bytes",
						(json_int_t)allotment->quota.spent));
		}
	return json_pack("{s:I, s:o}", "box", (json_int_t)guest->quota.spent, "rules", rules);
}

void allot_load(struct guest *guest, json_t *saved)
{
	json_t *item;
	size_t i;

	guest->quota.spent = guest->ticked =
		(uint64_t)json_integer_value(json_object_get(saved, "box"));
	json_array_foreach (json_object_get(saved, "rules"), i, item) {
		const char *rule = json_string_value(json_object_get(item, "rule"));
		const char *destination = json_string_value(json_object_get(item, "destination"));
		struct allotment *allotment =
			rule && destination ? get(guest, xstrdup(rule), destination) : NULL;

		if (!allotment)
			continue;
		allotment->quota.spent = allotment->ticked =
			(uint64_t)json_integer_value(json_object_get(item, "bytes"));
		allotment->quota.budget =
			allotment->quota.spent; /* when the rule is used again, its value then */
	}
}

/* Whether at least 95 % of the rate was used in the last second: then the rate slows the box
 * down. */
static bool rate_was_reached(const struct quota *quota, uint64_t *ticked)
{
	uint64_t passed = quota->spent - *ticked;

	*ticked = quota->spent;
	return quota->rate && passed >= quota->rate - quota->rate / 20;
}

void allot_tick(struct guest *guest)
{
	if (rate_was_reached(&guest->quota, &guest->ticked))
		guest_limit_reached(guest, LIMIT_RATE, NULL);
	for (size_t i = 0; i < guest->allotments.bucket_count; i++)
		for (struct named *node = guest->allotments.buckets[i]; node; node = node->chain) {
			struct allotment *allotment = (struct allotment *)node;

			if (rate_was_reached(&allotment->quota, &allotment->ticked))
				guest_limit_reached(guest, LIMIT_RATE, allotment);
		}
}
