/* names.c - the DNS questions of a box: the policy's verdict, and a log line for each
 *
 * A name that some rule allows gets a synthetic address, the others do not exist. No question
 * leaves the machine here: allowed names are resolved when something connects to them. */
#include "base/alloc.h"
#include "gate/gate_internal.h"
#include <stdio.h>

static struct policy_verdict judge(const struct tenant *tenant, const char *name)
{
	return policy_match(
		tenant->matcher, &(struct policy_flow){ .kind = POLICY_FLOW_DNS, .name = name });
}

static enum dns_verdict decide(void *arg, const char *name, uint16_t type)
{
	struct tenant *tenant = arg;

	(void)type;
	return judge(tenant, name).allowed ? DNS_SYNTHETIC : DNS_DENY_NXDOMAIN;
}

bool names_may_be_private(const struct tenant *tenant, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < tenant->policy->private_count; i++) {
		const struct policy_rule *rule = &tenant->policy->allow_private[i];
		size_t rule_len = strlen(rule->name);

		if (rule->target == POLICY_NAME
				? !strcmp(rule->name, name)
				: len > rule_len + 1 && name[len - rule_len - 1] == '.' &&
					  !strcmp(name + len - rule_len, rule->name))
			return true;
	}
	return false;
}

static const char *type_text(uint16_t type, char out[16])
{
	static const struct {
		uint16_t type;
		const char *text;
	} known[] = { { DNS_TYPE_A, "A" }, { DNS_TYPE_AAAA, "AAAA" }, { DNS_TYPE_HTTPS, "HTTPS" },
		{ DNS_TYPE_SVCB, "SVCB" }, { 12, "PTR" }, { 15, "MX" }, { 16, "TXT" },
		{ 33, "SRV" }, { 2, "NS" }, { DNS_TYPE_SOA, "SOA" }, { DNS_TYPE_CNAME, "CNAME" },
		{ DNS_TYPE_ANY, "ANY" } };

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (known[i].type == type)
			return known[i].text;
	snprintf(out, 16, "TYPE%u", type);
	return out;
}

static void note(void *arg, const struct dns_event *question)
{
	struct tenant *tenant = arg;
	bool allowed = question->verdict == DNS_SYNTHETIC;
	char key[EVENT_KEY_MAX], type[16], reason[EVENT_TEXT_MAX];
	struct policy_verdict verdict;
	json_t *event;

	tenant->questions++;
	tenant->changed = true;
	tenant_check_reserved(tenant);
	if (allowed)
		record_question(tenant, question->name);
	else
		tenant->refused++;
	snprintf(key, sizeof key, "dns %d %u %.400s", question->verdict, question->type,
		question->name);
	if (event_is_repeated(tenant, key))
		return;
	event = json_pack("{s:s, s:s, s:s, s:s, s:i}", "type", "dns", "verdict",
		allowed ? "allowed" : "refused", "qtype", type_text(question->type, type),
		"protocol", question->tcp ? "tcp" : "udp", "answers", (int)question->addresses);
	if (*question->name)
		json_object_set_new(event, "name", event_text(question->name));
	if (question->verdict == DNS_MALFORMED) {
		json_object_set_new(event, "reason", json_string("not a question for a host name"));
	} else if (question->verdict == DNS_LIMITED) {
		json_object_set_new(event, "reason", json_string("too many questions"));
	} else {
		verdict = judge(tenant, question->name);
		event_put_rule(event, verdict.rule);
		if (!verdict.allowed)
			json_object_set_new(
				event, "reason", event_text(event_reason(&verdict, "", reason)));
		else if (question->rcode == DNS_SERVFAIL)
			json_object_set_new(
				event, "reason", json_string("no address is left for it"));
	}
	event_send_first(tenant, key, event);
}

const struct dns_server_ops names_ops = { .decide = decide, .log = note };
