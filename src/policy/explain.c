/* explain.c - explains a verdict: one sentence for people, an object for programs
 *
 *   tcp to github.com:443 is allowed by allow #1 (line 3): github.com:22,443
 *   tcp to github.com:80 is denied: no rule allows it; allow #1 (line 3) is for github.com:22,443
 *
 * Names and paths come from inside a box: bytes that are not plain ASCII are shown as '?'. */
#include "policy/policy_internal.h"

static const char *const kind_names[] = {
	[POLICY_FLOW_DNS] = "dns",
	[POLICY_FLOW_TCP] = "tcp",
	[POLICY_FLOW_UDP] = "udp",
	[POLICY_FLOW_HTTP] = "http",
};
static_assert(ARRAY_LEN(kind_names) == POLICY_FLOW_KIND_COUNT, "every kind has a name");

static const char *const reason_names[] = {
	[POLICY_BY_RULE] = "rule",
	[POLICY_BY_DEFAULT] = "default",
	[POLICY_BY_NAME] = "name",
	[POLICY_BY_MISMATCH] = "mismatch",
	[POLICY_BY_RANGE] = "range",
};
static_assert(ARRAY_LEN(reason_names) == POLICY_REASON_COUNT, "every reason has a name");

enum { SHOWN_MAX = 300 };

/* Hostile text, made safe to print; out needs SHOWN_MAX + 1 bytes. */
static const char *shown(const char *text, char *out)
{
	size_t i = 0;

	for (; text && text[i] && i < SHOWN_MAX; i++)
		out[i] = text[i] > ' ' && text[i] <= '~' ? text[i] : '?';
	out[i] = '\0';
	return out;
}

static void tell_flow(const struct policy_flow *flow, struct buf *out)
{
	char text[SHOWN_MAX + 1], addr[POLICY_ADDR_SIZE];
	bool named = flow->name && *flow->name, six = flow->addr.family == 6;

	address_format(&flow->addr, addr);
	if (flow->kind == POLICY_FLOW_DNS) {
		buf_addf(out, "the name %s", shown(flow->name, text));
		if (flow->addr.family)
			buf_addf(out, " as %s", addr);
		return;
	}
	if (flow->kind == POLICY_FLOW_HTTP) {
		buf_addf(out, "%s ", shown(flow->method, text));
		buf_addf(out, "%s at ", shown(flow->path, text));
	} else {
		buf_addf(out, "%s to ", kind_names[flow->kind]);
	}
	if (named)
		buf_addf(out, "%s:%u", shown(flow->name, text), flow->port);
	else
		buf_addf(out, "%s%s%s:%u", six ? "[" : "", addr, six ? "]" : "", flow->port);
	if (named && flow->addr.family)
		buf_addf(out, " (%s)", addr);
}

static void tell_rule(
	const char *before, const struct policy_rule *rule, const char *between, struct buf *out)
{
	_cleanup_free_ char *text = policy_rule_text(rule), *place = policy_rule_place(rule);

	buf_addf(out, "%s%s%s%s", before, place, between, text);
	if (rule->note)
		buf_addf(out, " - %s", rule->note);
}

static void tell_default(const struct policy_verdict *verdict, struct buf *out)
{
	buf_add_str(out, " is denied: no rule allows it");
	if (verdict->near)
		tell_rule("; ", verdict->near, " is for ", out);
}

static void tell_verdict(
	const struct policy_flow *flow, const struct policy_verdict *verdict, struct buf *out)
{
	char text[SHOWN_MAX + 1];

	switch (verdict->reason) {
	case POLICY_BY_RULE:
		tell_rule(verdict->allowed ? " is allowed by " : " is denied by ", verdict->rule,
			": ", out);
		if (verdict->needs_http)
			buf_add_str(out, "; it must be plain HTTP, and each request is checked");
		return;
	case POLICY_BY_NAME:
		buf_addf(out, " is denied: the name %s", verdict->what);
		return;
	case POLICY_BY_MISMATCH:
		buf_addf(out, " is denied: it asks for %s", shown(flow->seen, text));
		return;
	case POLICY_BY_RANGE:
		buf_addf(out, " is denied: the address is closed (%s)", verdict->what);
		return;
	default:
		tell_default(verdict, out);
	}
}

char *policy_explain(const struct policy_flow *flow, const struct policy_verdict *verdict)
{
	struct buf out = BUF_INIT;
	char *text;

	tell_flow(flow, &out);
	tell_verdict(flow, verdict, &out);
	text = xstrdup(buf_str(&out));
	buf_done(&out);
	return text;
}

static void put_rule(json_t *object, const char *key, const struct policy_rule *rule)
{
	_cleanup_free_ char *text = NULL, *place = NULL;
	json_t *value;

	if (!rule)
		return;
	text = policy_rule_text(rule);
	place = policy_rule_place(rule);
	value = json_pack("{s:s, s:s, s:i}", "place", place, "rule", text, "line", (int)rule->line);
	if (rule->note)
		json_object_set_new(value, "note", json_string(rule->note));
	json_object_set_new(object, key, value);
}

json_t *policy_explain_json(const struct policy_flow *flow, const struct policy_verdict *verdict)
{
	_cleanup_free_ char *sentence = policy_explain(flow, verdict);
	char text[SHOWN_MAX + 1], addr[POLICY_ADDR_SIZE];
	json_t *object = json_pack("{s:s, s:s, s:b, s:s, s:s}", "kind", kind_names[flow->kind],
		"verdict", verdict->allowed ? "allow" : "deny", "needs_http", verdict->needs_http,
		"reason", reason_names[verdict->reason], "why", sentence);

	if (flow->name && *flow->name)
		json_object_set_new(object, "name", json_string(shown(flow->name, text)));
	if (flow->addr.family)
		json_object_set_new(
			object, "address", json_string(address_format(&flow->addr, addr)));
	if (flow->kind != POLICY_FLOW_DNS)
		json_object_set_new(object, "port", json_integer(flow->port));
	if (verdict->what)
		json_object_set_new(object, "what", json_string(verdict->what));
	put_rule(object, "rule", verdict->rule);
	put_rule(object, "near", verdict->near);
	return object;
}
