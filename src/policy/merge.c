/* merge.c - puts one policy over another: flags over a file, a file over a default */
#include "policy/policy_internal.h"

enum { PORTS_ASKED = 64 }; /* ports of a range that are checked one by one */

static void merge_limit(uint64_t *limit, uint64_t more)
{
	if (more)
		*limit = more;
}

static bool has_rule(const struct policy *policy, const struct policy_rule *rule)
{
	for (size_t i = 0; i < policy->count; i++)
		if (rule_is_same(&policy->rules[i], rule, false))
			return true;
	return false;
}

/* A deny rule on top removes the same allow rule below. The other way round deny would win, as
 * everywhere, and the allow rule could never apply: that is an error. */
static void drop_mirrors(struct policy *policy, const struct policy_rule *deny)
{
	size_t kept = 0;

	for (size_t i = 0; i < policy->count; i++) {
		if (rule_is_mirror(&policy->rules[i], deny)) {
			rule_done(&policy->rules[i]);
			continue;
		}
		if (kept != i) {
			policy->rules[kept] = policy->rules[i];
			policy->rules[i] = (struct policy_rule){ 0 };
		}
		kept++;
	}
	policy->count = kept;
}

/* ---- what is allowed already ---------------------------------------------------------------- */

static bool allows(
	const struct policy_matcher *matcher, const struct policy_rule *rule, unsigned port)
{
	struct policy_flow flow = { .name = rule->name, .port = (uint16_t)port };

	flow.kind = POLICY_FLOW_TCP;
	if ((rule->protocols & POLICY_TCP) && !policy_match(matcher, &flow).allowed)
		return false;
	flow.kind = POLICY_FLOW_UDP;
	return !(rule->protocols & POLICY_UDP) || policy_match(matcher, &flow).allowed;
}

static bool is_allowed_already(const struct policy_matcher *matcher, const struct policy_rule *rule)
{
	if (rule->deny || rule->target != POLICY_NAME || !rule->port_count || rule->methods ||
		rule->paths || rule->limits.rate || rule->limits.connections || rule->limits.bytes)
		return false;
	for (size_t i = 0; i < rule->port_count; i++) {
		if (rule->ports[i].high - rule->ports[i].low >= PORTS_ASKED)
			return false;
		for (unsigned port = rule->ports[i].low; port <= rule->ports[i].high; port++)
			if (!allows(matcher, rule, port))
				return false;
	}
	return true;
}

void policy_drop_allowed(struct policy *policy, const struct policy_matcher *matcher)
{
	size_t kept = 0;

	for (size_t i = 0; i < policy->count; i++) {
		struct policy_rule rule = policy->rules[i];

		policy->rules[i] = (struct policy_rule){ 0 };
		if (is_allowed_already(matcher, &rule))
			rule_done(&rule);
		else
			policy->rules[kept++] = rule;
	}
	policy->count = kept;
}

/* ---- merging -------------------------------------------------------------------------------- */

static int merge_rules(struct policy *policy, const struct policy *more, struct err *err)
{
	for (size_t i = 0; i < more->count; i++)
		drop_mirrors(policy, &more->rules[i]);
	for (size_t i = 0; i < more->count; i++) {
		struct policy_rule copy;

		if (has_rule(policy, &more->rules[i]))
			continue;
		if (rule_find_mirror(policy, &more->rules[i], err) < 0)
			return -1;
		copy = rule_copy(&more->rules[i]);
		if (policy_add_rule(policy, &copy, err) < 0)
			return -1;
	}
	return 0;
}

static int merge_private(struct policy *policy, const struct policy *more, struct err *err)
{
	for (size_t i = 0; i < more->private_count; i++) {
		const struct policy_rule *name = &more->allow_private[i];
		struct policy_rule copy;
		bool known = false;

		for (size_t j = 0; j < policy->private_count && !known; j++)
			known = rule_is_same(&policy->allow_private[j], name, false);
		if (known)
			continue;
		if (policy->private_count == POLICY_RULES_MAX)
			return err_set(err, ERR_TOO_LARGE, "more than %d names in allow_private",
				POLICY_RULES_MAX);
		copy = rule_copy(name);
		rules_add(&policy->allow_private, &policy->private_count, &copy);
	}
	return 0;
}

int policy_merge(
	const struct policy *base, const struct policy *more, struct policy **ret, struct err *err)
{
	_cleanup_(policy_freep) struct policy *policy = policy_copy(base);

	if (more->set & POLICY_KEY_PRESET)
		policy->preset = more->preset;
	if (more->set & POLICY_KEY_ON_LIMIT)
		policy->on_limit = more->on_limit;
	policy->set |= more->set;
	merge_limit(&policy->limits.rate, more->limits.rate);
	merge_limit(&policy->limits.connections, more->limits.connections);
	merge_limit(&policy->limits.bytes, more->limits.bytes);
	if (merge_rules(policy, more, err) < 0 || merge_private(policy, more, err) < 0 ||
		policy_check_size(policy, err) < 0)
		return -1;
	*ret = steal_ptr(&policy);
	return 0;
}
