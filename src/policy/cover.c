/* cover.c - compares two rules: does one include the other, can they meet?
 *
 * Both answers are wrong in one direction only. rule_covers says yes only when each part of one
 * rule includes that part of the other; rule_overlaps says no only when some part shows that they
 * cannot meet. */
#include "policy/policy_internal.h"

static bool target_covers(const struct policy_rule *wide, const struct policy_rule *narrow)
{
	bool named = narrow->target == POLICY_NAME || narrow->target == POLICY_WILDCARD;

	switch (wide->target) {
	case POLICY_NAME:
	case POLICY_BOX:
		return narrow->target == wide->target && !strcmp(wide->name, narrow->name);
	case POLICY_WILDCARD:
		return named &&
		       ((narrow->target == POLICY_WILDCARD && !strcmp(wide->name, narrow->name)) ||
			       name_is_below(narrow->name, wide->name));
	case POLICY_CIDR:
		/* A wide range does not open the private ranges in it; a rule for a private range
		 * does. */
		return narrow->target == POLICY_CIDR &&
		       address_range_covers(&wide->cidr, &narrow->cidr) &&
		       (wide->deny || !cidr_is_private(&narrow->cidr) ||
			       cidr_is_private(&wide->cidr));
	default:
		return named || narrow->target == POLICY_ANY ||
		       (narrow->target == POLICY_CIDR && !cidr_is_private(&narrow->cidr));
	}
}

static bool ports_cover(const struct policy_rule *wide, const struct policy_rule *narrow)
{
	if (!wide->port_count)
		return true;
	for (size_t i = 0; i < narrow->port_count; i++) {
		bool found = false;

		for (size_t j = 0; j < wide->port_count && !found; j++)
			found = wide->ports[j].low <= narrow->ports[i].low &&
				wide->ports[j].high >= narrow->ports[i].high;
		if (!found)
			return false;
	}
	return narrow->port_count > 0;
}

static bool http_covers(const struct policy_rule *wide, const struct policy_rule *narrow)
{
	if ((wide->methods && !narrow->methods) || (wide->paths && !narrow->paths))
		return false;
	for (size_t i = 0; wide->methods && narrow->methods[i]; i++)
		if (!http_has_method(wide, narrow->methods[i]))
			return false;
	for (size_t i = 0; wide->paths && narrow->paths[i]; i++) {
		bool found = false;

		for (size_t j = 0; wide->paths[j] && !found; j++)
			found = http_path_covers(wide->paths[j], narrow->paths[i]);
		if (!found)
			return false;
	}
	return true;
}

bool rule_covers(const struct policy_rule *wide, const struct policy_rule *narrow)
{
	return target_covers(wide, narrow) && !(narrow->protocols & ~wide->protocols) &&
	       ports_cover(wide, narrow) && http_covers(wide, narrow);
}

static bool targets_meet(const struct policy_rule *a, const struct policy_rule *b)
{
	bool a_box = a->target == POLICY_BOX, b_box = b->target == POLICY_BOX;
	bool a_cidr = a->target == POLICY_CIDR, b_cidr = b->target == POLICY_CIDR;

	/* A name may resolve into any range, and a box has an address too. */
	if (a_cidr != b_cidr || a->target == POLICY_ANY || b->target == POLICY_ANY)
		return true;
	if (a_cidr)
		return address_range_covers(&a->cidr, &b->cidr) ||
		       address_range_covers(&b->cidr, &a->cidr);
	if (a_box != b_box)
		return false;
	return target_covers(a, b) || target_covers(b, a);
}

static bool ports_meet(const struct policy_rule *a, const struct policy_rule *b)
{
	if (!a->port_count || !b->port_count)
		return true;
	for (size_t i = 0; i < a->port_count; i++)
		for (size_t j = 0; j < b->port_count; j++)
			if (a->ports[i].low <= b->ports[j].high &&
				b->ports[j].low <= a->ports[i].high)
				return true;
	return false;
}

bool rule_overlaps(const struct policy_rule *a, const struct policy_rule *b)
{
	return (a->protocols & b->protocols) && targets_meet(a, b) && ports_meet(a, b);
}

bool rule_is_mirror(const struct policy_rule *allow, const struct policy_rule *deny)
{
	struct policy_rule twin = *deny; /* borrowed from deny, not released */

	/* Without a protocol, deny means both and allow means tcp: people read them as the same. */
	twin.deny = false;
	twin.protocols = allow->protocols;
	twin.limits = allow->limits;
	return !allow->deny && deny->deny && !(allow->protocols & ~deny->protocols) &&
	       rule_is_same(allow, &twin, false);
}

int rule_find_mirror(const struct policy *policy, const struct policy_rule *rule, struct err *err)
{
	for (size_t i = 0; i < policy->count; i++) {
		const struct policy_rule *other = &policy->rules[i];
		_cleanup_free_ char *text = NULL, *place = NULL;

		if (!rule_is_mirror(rule, other) && !rule_is_mirror(other, rule))
			continue;
		text = policy_rule_text(rule);
		place = policy_rule_place(other);
		return err_set(
			err, ERR_INVALID, "%.200s is allowed and denied: see %s", text, place);
	}
	return 0;
}
