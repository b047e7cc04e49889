/* allot.c - what is left of rules with limits
 *
 * The limits of a rule apply to each destination that it leads to: a name, or an address. Each flow
 * has the allotment of its rule and destination, also where the rule has no limits yet: it may get
 * some while the flow lives. Allotments are identified by the rule's text, so a spent budget stays
 * spent when the policy is replaced, and over restarts. What was not spent needs no memory. */
#include "base/alloc.h"
#include "gate/gate_internal.h"

static void allotment_free(struct tenant *tenant, struct allotment *allotment)
{
	name_table_remove(&tenant->allotments, &allotment->node);
	free(allotment->rule);
	free(allotment->destination);
	free(allotment->key);
	free(allotment);
}

void allot_free_all(struct tenant *tenant)
{
	for (size_t i = 0; i < tenant->allotments.bucket_count; i++)
		while (tenant->allotments.buckets[i])
			allotment_free(tenant, (struct allotment *)tenant->allotments.buckets[i]);
	name_table_done(&tenant->allotments);
}

/* Takes rule. NULL when there is no room for one more: the box loses no budget by that. */
static struct allotment *get(struct tenant *tenant, char *rule, const char *destination)
{
	_cleanup_free_ char *own_rule = rule, *key = xasprintf("%s %s", destination, rule);
	struct allotment *allotment =
		(struct allotment *)name_table_find(&tenant->allotments, key, 0);

	if (allotment || tenant->allotments.count >= ALLOTMENTS_MAX)
		return allotment;
	allotment = xnew(struct allotment);
	allotment->rule = steal_ptr(&own_rule);
	allotment->destination = xstrdup(destination);
	allotment->key = steal_ptr(&key);
	name_table_add(&tenant->allotments, &allotment->node, allotment->key, 0);
	return allotment;
}

void allot_limits(struct allotment *allotment, const struct policy_limits *limits)
{
	allotment->quota.rate = limits->rate;
	allotment->quota.budget = limits->bytes;
	allotment->quota.connections = limits->connections;
}

struct allotment *allot_take(
	struct tenant *tenant, const struct policy_rule *rule, const char *destination)
{
	struct allotment *allotment = get(tenant, gate_rule_text(rule), destination);

	if (!allotment)
		return NULL;
	allotment->users++;
	allot_limits(allotment, &rule->limits);
	return allotment;
}

void allot_release(struct tenant *tenant, struct allotment *allotment)
{
	if (--allotment->users == 0 && !(allotment->quota.budget && allotment->quota.spent))
		allotment_free(tenant, allotment);
}

json_t *allot_save(const struct tenant *tenant)
{
	json_t *rules = json_array();

	for (size_t i = 0; i < tenant->allotments.bucket_count; i++)
		for (const struct named *node = tenant->allotments.buckets[i]; node;
			node = node->chain) {
			const struct allotment *allotment = (const struct allotment *)node;

			if (allotment->quota.budget && allotment->quota.spent)
				json_array_append_new(rules,
					json_pack("{s:s, s:s, s:I}", "rule", allotment->rule,
						"destination", allotment->destination, "bytes",
						(json_int_t)allotment->quota.spent));
		}
	return json_pack("{s:I, s:o}", "box", (json_int_t)tenant->quota.spent, "rules", rules);
}

void allot_load(struct tenant *tenant, json_t *saved)
{
	json_t *item;
	size_t i;

	tenant->quota.spent = tenant->ticked =
		(uint64_t)json_integer_value(json_object_get(saved, "box"));
	json_array_foreach (json_object_get(saved, "rules"), i, item) {
		const char *rule = json_string_value(json_object_get(item, "rule"));
		const char *destination = json_string_value(json_object_get(item, "destination"));
		struct allotment *allotment =
			rule && destination ? get(tenant, xstrdup(rule), destination) : NULL;

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

void allot_tick(struct tenant *tenant)
{
	if (rate_was_reached(&tenant->quota, &tenant->ticked))
		tenant_limit_reached(tenant, LIMIT_RATE, NULL);
	for (size_t i = 0; i < tenant->allotments.bucket_count; i++)
		for (struct named *node = tenant->allotments.buckets[i]; node; node = node->chain) {
			struct allotment *allotment = (struct allotment *)node;

			if (rate_was_reached(&allotment->quota, &allotment->ticked))
				tenant_limit_reached(tenant, LIMIT_RATE, allotment);
		}
}
