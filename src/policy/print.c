/* print.c - the normal form of a policy: JSON with a fixed order of keys, which parses to the same
 * policy
 *
 * A value is written only where the default would be different; the protocol is always written,
 * because its default differs between allow and deny. allowed_domains and flags become ordinary
 * allow rules. */
#include "policy/policy_internal.h"
#include "base/json.h"

static void put_limits(json_t *object, const struct policy_limits *limits)
{
	const struct {
		const char *key;
		uint64_t value;
	} all[] = { { "rate", limits->rate }, { "connections", limits->connections },
		{ "bytes", limits->bytes } };

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i].value)
			json_object_set_new(
				object, all[i].key, json_integer((json_int_t)all[i].value));
}

static void put_strings(json_t *object, const char *key, char *const *strv)
{
	json_t *list;

	if (!strv)
		return;
	list = json_array();
	for (size_t i = 0; strv[i]; i++)
		json_array_append_new(list, json_string(strv[i]));
	json_object_set_new(object, key, list);
}

static void put_ports(json_t *object, const struct policy_rule *rule)
{
	json_t *list;

	if (!rule->port_count)
		return;
	list = json_array();
	for (size_t i = 0; i < rule->port_count; i++) {
		const struct policy_ports *range = &rule->ports[i];

		json_array_append_new(list,
			range->low == range->high ? json_integer(range->low)
						  : json_sprintf("%u-%u", range->low, range->high));
	}
	json_object_set_new(object, "ports", list);
}

static json_t *protocol_json(unsigned protocols)
{
	if (protocols == (POLICY_TCP | POLICY_UDP))
		return json_pack("[ss]", "tcp", "udp");
	return json_string(protocols == POLICY_TCP ? "tcp" : "udp");
}

static json_t *name_json(const struct policy_rule *rule)
{
	return json_sprintf("%s%s", rule->target == POLICY_WILDCARD ? "*." : "", rule->name);
}

static json_t *rule_json(const struct policy_rule *rule)
{
	json_t *object = json_object();
	char addr[POLICY_ADDR_SIZE];

	if (rule->target == POLICY_CIDR)
		json_object_set_new(object, "cidr",
			json_sprintf(
				"%s/%u", address_format(&rule->cidr.base, addr), rule->cidr.bits));
	else
		json_object_set_new(object, "name", name_json(rule));
	put_ports(object, rule);
	json_object_set_new(object, "protocol", protocol_json(rule->protocols));
	put_strings(object, "methods", rule->methods);
	put_strings(object, "paths", rule->paths);
	put_limits(object, &rule->limits);
	if (rule->note)
		json_object_set_new(object, "note", json_string(rule->note));
	return object;
}

static json_t *box_json(const struct policy_rule *rule)
{
	_cleanup_free_ char *text = policy_rule_text(rule);
	size_t name = strlen(rule->name);

	/* ada.box:80 is listed as ada:80. */
	return json_sprintf("%.*s%s", (int)(name - 4), rule->name, text + name);
}

static void put_rules(
	json_t *object, const char *key, const struct policy *policy, bool deny, bool box)
{
	json_t *list = json_array();

	for (size_t i = 0; i < policy->count; i++) {
		const struct policy_rule *rule = &policy->rules[i];

		/* The rules of a preset are implied by its name. */
		if (rule->list != POLICY_LIST_PRESET && rule->deny == deny &&
			(rule->target == POLICY_BOX) == box)
			json_array_append_new(list, box ? box_json(rule) : rule_json(rule));
	}
	if (json_array_size(list))
		json_object_set(object, key, list);
	json_decref(list);
}

json_t *policy_json(const struct policy *policy)
{
	json_t *object = json_pack("{s:i, s:s}", "version", POLICY_VERSION, "preset",
		policy_preset_name(policy->preset));
	json_t *limits = json_object();

	put_rules(object, "allow", policy, false, false);
	put_rules(object, "deny", policy, true, false);
	put_rules(object, "boxes", policy, false, true);
	put_limits(limits, &policy->limits);
	if (policy->on_limit != POLICY_NOTIFY)
		json_object_set_new(
			limits, "on_limit", json_string(policy_on_limit_name(policy->on_limit)));
	if (json_object_size(limits))
		json_object_set(object, "limits", limits);
	json_decref(limits);
	if (policy->private_count) {
		json_t *names = json_array();

		for (size_t i = 0; i < policy->private_count; i++)
			json_array_append_new(names, name_json(&policy->allow_private[i]));
		json_object_set_new(object, "dns", json_pack("{s:o}", "allow_private", names));
	}
	return object;
}

int policy_check_size(const struct policy *policy, struct err *err)
{
	_cleanup_free_ char *text = policy_text(policy);

	if (strlen(text) > POLICY_SIZE_MAX)
		return err_set(err, ERR_TOO_LARGE,
			"the policy's normal form has more than %d bytes", POLICY_SIZE_MAX);
	return 0;
}

char *policy_text(const struct policy *policy)
{
	_cleanup_json_ json_t *object = policy_json(policy);

	return json_text(object);
}
