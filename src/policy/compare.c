/* compare.c - compares two policies, and a policy with open connections
 *
 * A policy allows nothing more than another if each of its allow rules is covered by an allow rule
 * of the other, and each deny rule of the other is covered by one of its own deny rules or meets
 * none of its allow rules. This may answer no where yes would be right (two rules that together
 * cover a third), never the other way round. */
#include "policy/policy_internal.h"

static bool covers_alike(const struct policy_rule *other, void *arg)
{
	const struct policy_rule *rule = arg;

	return other->deny == rule->deny && rule_covers(other, rule);
}

static bool covered_by_some(
	const struct policy *policy, const struct cover_index *index, struct policy_rule *rule)
{
	return cover_index_first(index, rule, covers_alike, rule) < policy->count;
}

static bool meets_allow(const struct policy *policy, const struct policy_rule *deny)
{
	for (size_t i = 0; i < policy->count; i++)
		if (!policy->rules[i].deny && rule_overlaps(&policy->rules[i], deny))
			return true;
	return false;
}

static const struct policy_rule *wider_private(
	const struct policy *wide, const struct policy *narrow)
{
	for (size_t i = 0; i < narrow->private_count; i++) {
		bool found = false;

		for (size_t j = 0; j < wide->private_count && !found; j++)
			found = rule_covers(&wide->allow_private[j], &narrow->allow_private[i]);
		if (!found)
			return &narrow->allow_private[i];
	}
	return NULL;
}

/* A rule that lets narrow reach something that wide does not; NULL: there is none. */
static const struct policy_rule *find_beyond(const struct policy *wide, const struct policy *narrow)
{
	_cleanup_(cover_index_freep) struct cover_index *in_wide = cover_index_new(wide),
							*in_narrow = cover_index_new(narrow);

	for (size_t i = 0; i < narrow->count; i++)
		if (!narrow->rules[i].deny && !covered_by_some(wide, in_wide, &narrow->rules[i]))
			return &narrow->rules[i];
	for (size_t i = 0; i < wide->count; i++) {
		struct policy_rule *deny = &wide->rules[i];

		if (deny->deny && !covered_by_some(narrow, in_narrow, deny) &&
			meets_allow(narrow, deny))
			return deny;
	}
	return wider_private(wide, narrow);
}

enum policy_change policy_compare(const struct policy_matcher *old_one,
	const struct policy_matcher *new_one, const struct policy_rule **ret_rule)
{
	const struct policy *before = policy_matcher_policy(old_one);
	const struct policy *after = policy_matcher_policy(new_one);
	const struct policy_rule *gained = find_beyond(before, after);
	bool lost = find_beyond(after, before) != NULL;

	if (ret_rule)
		*ret_rule = gained;
	if (!gained)
		return lost ? POLICY_TIGHTER : POLICY_SAME;
	return lost ? POLICY_DIFFERENT : POLICY_WIDER;
}
