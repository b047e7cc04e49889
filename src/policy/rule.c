/* rule.c - rules and the policy that holds them: making, copying, comparing, formatting */
#include "policy/policy_internal.h"
#include "base/text.h"

void rule_done(struct policy_rule *rule)
{
	free(rule->name);
	free(rule->ports);
	strv_free(rule->methods);
	strv_free(rule->paths);
	free(rule->note);
	*rule = (struct policy_rule){ 0 };
}

struct policy_rule rule_copy(const struct policy_rule *rule)
{
	struct policy_rule copy = *rule;

	copy.name = xstrdup(rule->name);
	copy.ports = rule->port_count ? xmemdup(rule->ports, rule->port_count * sizeof *rule->ports)
				      : NULL;
	copy.methods = rule->methods ? strv_copy((const char *const *)rule->methods) : NULL;
	copy.paths = rule->paths ? strv_copy((const char *const *)rule->paths) : NULL;
	copy.note = xstrdup(rule->note);
	return copy;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_strv(char *const *a, char *const *b)
{
	size_t count = strv_len((const char *const *)a);

	if (count != strv_len((const char *const *)b))
		return false;
	for (size_t i = 0; i < count; i++)
		if (strcmp(a[i], b[i]) != 0)
			return false;
	return true;
}

static bool same_limits(const struct policy_limits *a, const struct policy_limits *b)
{
	return a->rate == b->rate && a->connections == b->connections && a->bytes == b->bytes;
}

bool rule_is_same(const struct policy_rule *a, const struct policy_rule *b, bool with_notes)
{
	return a->target == b->target && a->deny == b->deny && a->protocols == b->protocols &&
	       same_text(a->name, b->name) && !memcmp(&a->cidr, &b->cidr, sizeof a->cidr) &&
	       a->port_count == b->port_count &&
	       (!a->port_count || !memcmp(a->ports, b->ports, a->port_count * sizeof *a->ports)) &&
	       same_strv(a->methods, b->methods) && same_strv(a->paths, b->paths) &&
	       same_limits(&a->limits, &b->limits) && (!with_notes || same_text(a->note, b->note));
}

bool rule_has_http(const struct policy_rule *rule)
{
	return rule->methods || rule->paths;
}

bool rule_has_port(const struct policy_rule *rule, uint16_t port)
{
	for (size_t i = 0; i < rule->port_count; i++)
		if (port >= rule->ports[i].low && port <= rule->ports[i].high)
			return true;
	return !rule->port_count;
}

bool rule_is_total(const struct policy_rule *rule)
{
	return !rule->port_count && rule->protocols == (POLICY_TCP | POLICY_UDP) &&
	       !rule_has_http(rule);
}

void rule_finish(struct policy_rule *rule)
{
	/* Only plain HTTP can be inspected, and its port is 80 by default. */
	if (rule_has_http(rule) && !rule->port_count) {
		rule->ports = xnew(struct policy_ports);
		rule->ports[0] = (struct policy_ports){ 80, 80 };
		rule->port_count = 1;
	}
	if (!rule->protocols)
		rule->protocols =
			rule->deny && !rule_has_http(rule) ? POLICY_TCP | POLICY_UDP : POLICY_TCP;
	http_sort(rule);
}

/* The array doubles: it is full when the count is a power of two. */
void rules_add(struct policy_rule **rules, size_t *count, struct policy_rule *rule)
{
	if (!(*count & (*count - 1)))
		xgrow(*rules, *count ? *count * 2 : 1);
	(*rules)[(*count)++] = *rule;
	*rule = (struct policy_rule){ 0 };
}

void rules_free(struct policy_rule *rules, size_t count)
{
	for (size_t i = 0; i < count; i++)
		rule_done(&rules[i]);
	free(rules);
}

static void rules_copy(
	struct policy_rule **to, size_t *to_count, const struct policy_rule *from, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct policy_rule copy = rule_copy(&from[i]);

		rules_add(to, to_count, &copy);
	}
}

int policy_add_rule(struct policy *policy, struct policy_rule *rule, struct err *err)
{
	if (policy->count == POLICY_RULES_MAX) {
		rule_done(rule);
		return err_set(err, ERR_TOO_LARGE, "more than %d rules", POLICY_RULES_MAX);
	}
	rule_finish(rule);
	rule->number = 1;
	for (size_t i = policy->count; i--;)
		if (policy->rules[i].list == rule->list) {
			rule->number = policy->rules[i].number + 1;
			break;
		}
	rules_add(&policy->rules, &policy->count, rule);
	return 0;
}

struct policy *policy_new(void)
{
	return xnew(struct policy);
}

void policy_free(struct policy *policy)
{
	if (!policy)
		return;
	rules_free(policy->rules, policy->count);
	rules_free(policy->allow_private, policy->private_count);
	free(policy);
}

struct policy *policy_copy(const struct policy *policy)
{
	struct policy *copy = policy_new();

	*copy = *policy;
	copy->rules = copy->allow_private = NULL;
	copy->count = copy->private_count = 0;
	rules_copy(&copy->rules, &copy->count, policy->rules, policy->count);
	rules_copy(&copy->allow_private, &copy->private_count, policy->allow_private,
		policy->private_count);
	return copy;
}

/* The next rule from *at on that is in one of the three printed lists: allow, deny, boxes. */
static const struct policy_rule *next_in(
	const struct policy *policy, bool deny, bool box, size_t *at)
{
	while (*at < policy->count) {
		const struct policy_rule *rule = &policy->rules[(*at)++];

		if (rule->deny == deny && (rule->target == POLICY_BOX) == box)
			return rule;
	}
	return NULL;
}

static bool same_lists(const struct policy *a, const struct policy *b, bool deny, bool box)
{
	size_t i = 0, j = 0;

	for (;;) {
		const struct policy_rule *one = next_in(a, deny, box, &i);
		const struct policy_rule *other = next_in(b, deny, box, &j);

		if (!one || !other)
			return one == other;
		if (!rule_is_same(one, other, true))
			return false;
	}
}

bool policy_is_same(const struct policy *a, const struct policy *b)
{
	if (a->preset != b->preset || a->on_limit != b->on_limit || a->count != b->count ||
		a->private_count != b->private_count || !same_limits(&a->limits, &b->limits))
		return false;
	for (size_t i = 0; i < a->private_count; i++)
		if (!rule_is_same(&a->allow_private[i], &b->allow_private[i], true))
			return false;
	return same_lists(a, b, false, false) && same_lists(a, b, true, false) &&
	       same_lists(a, b, false, true);
}

/* ---- for people ----------------------------------------------------------------------------- */

static const char *const list_names[] = {
	[POLICY_LIST_ALLOW] = "allow",
	[POLICY_LIST_DENY] = "deny",
	[POLICY_LIST_DOMAINS] = "allowed_domains",
	[POLICY_LIST_BOXES] = "boxes",
	[POLICY_LIST_FLAG] = "flag",
	[POLICY_LIST_PRESET] = "preset",
};
static_assert(ARRAY_LEN(list_names) == POLICY_LIST_COUNT, "every list has a name");

char *policy_rule_place(const struct policy_rule *rule)
{
	if (rule->line)
		return xasprintf(
			"%s #%u (line %u)", list_names[rule->list], rule->number, rule->line);
	return xasprintf("%s #%u", list_names[rule->list], rule->number);
}

static void print_target(const struct policy_rule *rule, struct buf *out)
{
	char addr[POLICY_ADDR_SIZE];
	bool bracket = rule->target == POLICY_CIDR && rule->cidr.base.family == 6;

	switch (rule->target) {
	case POLICY_WILDCARD:
		buf_add_str(out, "*.");
		/* fall through */
	case POLICY_NAME:
	case POLICY_BOX:
		buf_add_str(out, rule->name);
		break;
	case POLICY_CIDR:
		buf_addf(out, "%s%s/%u%s", bracket ? "[" : "",
			address_format(&rule->cidr.base, addr), rule->cidr.bits,
			bracket ? "]" : "");
		break;
	default:
		buf_add_str(out, "every public destination");
	}
}

static void print_words(const char *label, char *const *words, struct buf *out)
{
	for (size_t i = 0; words && words[i]; i++)
		buf_addf(out, "%s%s", i ? "," : label, words[i]);
}

char *policy_rule_text(const struct policy_rule *rule)
{
	struct buf out = BUF_INIT;
	unsigned usual = rule->deny && !rule_has_http(rule) ? POLICY_TCP | POLICY_UDP : POLICY_TCP;
	char *text;

	print_target(rule, &out);
	if (rule->port_count) {
		buf_add_str(&out, ":");
		target_print_ports(rule, &out);
	}
	if (rule->protocols != usual)
		buf_add_str(&out, rule->protocols == POLICY_TCP	  ? "/tcp"
				  : rule->protocols == POLICY_UDP ? "/udp"
								  : "/tcp+udp");
	print_words(" ", rule->methods, &out);
	print_words(" ", rule->paths, &out);
	text = xstrdup(buf_str(&out));
	buf_done(&out);
	return text;
}
