/* cover_index.c - finds the rules of a policy that may cover a given one, without comparing all
 *
 * Comparing each rule with each other takes a tenth of a second in a policy of two thousand, during
 * which the daemon does nothing else. A rule that covers a name has that name or a parent domain; a
 * rule that covers an IPv4 range has a prefix of it. So rules are found by these. The other rules
 * are few, and are compared one by one. */
#include "policy/policy_internal.h"

enum { BUCKETS = 4096, NONE = UINT32_MAX };

struct cover_index {
	const struct policy *policy; /* borrowed */
	uint32_t *heads;	     /* rules by the hash of their name or range */
	uint32_t *next;
	uint32_t *loose; /* rules that have neither a name nor a range */
	size_t loose_count;
	uint64_t lengths; /* prefix lengths in use; a bit for each */
};

static size_t bucket_of_name(const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619u;
	return (hash ^ hash >> 16) % BUCKETS;
}

static size_t bucket_of_range(uint32_t base, unsigned bits)
{
	uint32_t hash = (base ^ bits) * 2654435761u;

	return (hash ^ hash >> 16) % BUCKETS;
}

static bool is_range(const struct policy_rule *rule)
{
	return rule->target == POLICY_CIDR && rule->cidr.base.family == 4;
}

static uint32_t base_of(const struct address_range *cidr, unsigned bits)
{
	const uint8_t *b = cidr->base.bytes;
	uint32_t base = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];

	return bits ? base & UINT32_MAX << (32 - bits) : 0;
}

struct cover_index *cover_index_new(const struct policy *policy)
{
	struct cover_index *index = xnew(struct cover_index);

	index->policy = policy;
	index->heads = xnewn(uint32_t, BUCKETS);
	index->next = xnewn(uint32_t, policy->count + 1);
	index->loose = xnewn(uint32_t, policy->count + 1);
	memset(index->heads, 0xff, BUCKETS * sizeof *index->heads);
	/* Backwards, so that each chain begins with the first rule. */
	for (size_t i = policy->count; i--;) {
		const struct policy_rule *rule = &policy->rules[i];
		unsigned bits = rule->cidr.bits;
		uint32_t *head;

		if (!rule->name && !is_range(rule))
			continue;
		head = &index->heads[rule->name
					     ? bucket_of_name(rule->name)
					     : bucket_of_range(base_of(&rule->cidr, bits), bits)];
		if (!rule->name)
			index->lengths |= 1ull << bits;
		index->next[i] = *head;
		*head = (uint32_t)i;
	}
	for (size_t i = 0; i < policy->count; i++)
		if (!policy->rules[i].name && !is_range(&policy->rules[i]))
			index->loose[index->loose_count++] = (uint32_t)i;
	return index;
}

void cover_index_free(struct cover_index *index)
{
	if (!index)
		return;
	free(index->heads);
	free(index->next);
	free(index->loose);
	free(index);
}

/* ---- looking -------------------------------------------------------------------------------- */

struct search {
	const struct cover_index *index;
	bool (*wanted)(const struct policy_rule *other, void *arg);
	void *arg;
	size_t found;
};

/* A rule that only shares the bucket is rejected by wanted, which compares everything. */
static void look_in(struct search *search, size_t bucket)
{
	const struct policy_rule *rules = search->index->policy->rules;

	for (uint32_t at = search->index->heads[bucket]; at != NONE && at < search->found;
		at = search->index->next[at])
		if (search->wanted(&rules[at], search->arg))
			search->found = at;
}

size_t cover_index_first(const struct cover_index *index, const struct policy_rule *rule,
	bool (*wanted)(const struct policy_rule *other, void *arg), void *arg)
{
	const struct policy *policy = index->policy;
	struct search search = { index, wanted, arg, policy->count };

	/* The name itself, then all parent domains. */
	for (const char *name = rule->name, *dot; name; name = dot ? dot + 1 : NULL) {
		dot = strchr(name, '.');
		look_in(&search, bucket_of_name(name));
	}
	for (unsigned bits = 0; is_range(rule) && bits <= rule->cidr.bits; bits++)
		if (index->lengths & 1ull << bits)
			look_in(&search, bucket_of_range(base_of(&rule->cidr, bits), bits));
	for (size_t i = 0; i < index->loose_count && index->loose[i] < search.found; i++)
		if (wanted(&policy->rules[index->loose[i]], arg))
			search.found = index->loose[i];
	return search.found;
}
