/* policy.c - the policy of a box: shown, replaced, explained, watched */
#include "api/api_internal.h"
#include "conf/conf.h"
#include "core/boxnet/network.h"

/* ---- requests to the gate ------------------------------------------------------------------- */

static void later_gone(struct http_request *request, void *arg)
{
	struct later *later = arg;

	(void)request;
	later->request = NULL;
}

struct later *later_new(struct call *call)
{
	struct later *later = xnew(struct later);

	later->request = call->request;
	http_request_on_gone(call->request, later_gone, later);
	return later;
}

struct http_request *later_end(struct later *later)
{
	struct http_request *request = later->request;

	json_decref(later->value);
	free(later);
	return request;
}

/* ---- a box's policy ------------------------------------------------------------------------- */

void api_policy_show(struct call *call)
{
	struct box *box = call_box(call);

	if (box)
		call_json(call, 200, box_policy_json(box));
}

int input_policy(json_t *policy, struct err *err)
{
	if (json_is_object(policy) || json_is_string(policy))
		return 0;
	return err_set(err, ERR_INVALID, "'policy' must be an object or a text");
}

void api_policy_set(struct call *call)
{
	json_int_t if_version = 0;
	bool add = false;
	const struct json_key keys[] = {
		{ "if_version", JSON_WANT_INT, &if_version, false },
		{ "add", JSON_WANT_BOOL, &add, false },
	};
	struct box *box = call_box(call);
	_cleanup_json_ json_t *policy = NULL;
	struct err err = ERR_INIT;

	if (!box)
		return;
	policy = input_take(call->body, "policy");
	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		input_policy(policy, &err) < 0 ||
		(add ? box_policy_add : box_policy_set)(
			box, policy, (uint64_t)if_version, call_who(call), &err) < 0)
		return call_error(call, &err);
	call_json(call, 200, box_policy_json(box));
}

/* ---- explain -------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	enum policy_flow_kind kind;
} flow_kinds[] = {
	{ "dns", POLICY_FLOW_DNS },
	{ "tcp", POLICY_FLOW_TCP },
	{ "udp", POLICY_FLOW_UDP },
	{ "http", POLICY_FLOW_HTTP },
};

/* Missing parts follow from the others: a method or a path means HTTP, no port means a DNS
 * lookup. */
static int read_kind(const char *text, struct policy_flow *flow, struct err *err)
{
	if (!text) {
		flow->kind = flow->method || flow->path ? POLICY_FLOW_HTTP
			     : flow->port		? POLICY_FLOW_TCP
							: POLICY_FLOW_DNS;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(flow_kinds); i++)
		if (!strcmp(text, flow_kinds[i].name)) {
			flow->kind = flow_kinds[i].kind;
			return 0;
		}
	return err_set(err, ERR_INVALID, "'kind' must be dns, tcp, udp or http");
}

static int read_flow(json_t *body, struct policy_flow *flow, struct err *err)
{
	const char *kind = NULL, *address = NULL;
	json_int_t port = 0;
	const struct json_key keys[] = {
		{ "kind", JSON_WANT_STRING, &kind, false },
		{ "name", JSON_WANT_STRING, &flow->name, false },
		{ "address", JSON_WANT_STRING, &address, false },
		{ "port", JSON_WANT_INT, &port, false },
		{ "method", JSON_WANT_STRING, &flow->method, false },
		{ "path", JSON_WANT_STRING, &flow->path, false },
		{ "seen", JSON_WANT_STRING, &flow->seen, false },
	};

	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0)
		return -1;
	if (address && policy_addr_parse(address, &flow->addr, err) < 0)
		return -1;
	if (port > 65535)
		return err_set(err, ERR_INVALID, "'port' is at most 65535");
	flow->port = (uint16_t)port;
	if (!flow->name && !address)
		return err_set(err, ERR_INVALID, "'name' or 'address' is needed");
	if (read_kind(kind, flow, err) < 0)
		return -1;
	if (flow->kind == POLICY_FLOW_HTTP && !flow->port)
		flow->port = 80;
	if (flow->kind == POLICY_FLOW_HTTP && !flow->method)
		flow->method = "GET";
	if (flow->kind == POLICY_FLOW_HTTP && !flow->path)
		flow->path = "/";
	if (flow->kind == POLICY_FLOW_DNS && !flow->name)
		return err_set(err, ERR_INVALID, "'port' is needed with an address");
	return 0;
}

void api_policy_explain(struct call *call)
{
	struct policy_flow flow = { 0 };
	struct box *box = call_box(call);
	struct err err = ERR_INIT;
	json_t *answer;

	if (!box)
		return;
	if (read_flow(call->body, &flow, &err) < 0 ||
		!(answer = box_policy_explain(box, &flow, &err)))
		return call_error(call, &err);
	call_json(call, 200, answer);
}

/* ---- watch mode ----------------------------------------------------------------------------- */

void api_policy_record(struct call *call)
{
	bool on = true;
	const struct json_key keys[] = { { "on", JSON_WANT_BOOL, &on, true } };
	struct box *box = call_box(call);
	struct err err = ERR_INIT;

	if (!box)
		return;
	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		box_policy_record(box, on, call_who(call), &err) < 0)
		return call_error(call, &err);
	call_json(call, 200, box_policy_json(box));
}

static void on_proposal(void *arg, json_t *proposal, const struct err *err)
{
	struct http_request *request = later_end(arg);

	if (!request)
		return;
	if (err)
		http_reply_error(request, err);
	else
		http_reply_json(request, 200, json_incref(proposal));
}

void api_policy_proposal(struct call *call)
{
	struct box *box = call_box(call);

	if (box)
		box_policy_proposal(box, on_proposal, later_new(call));
}

/* ---- the language --------------------------------------------------------------------------- */

static json_t *problems_json(const struct policy_report *report)
{
	json_t *list = json_array();

	for (size_t i = 0; i < report->count; i++) {
		const struct policy_problem *problem = &report->problems[i];

		json_array_append_new(
			list, json_pack("{s:b,s:i,s:i,s:o}", "error", problem->is_error, "line",
				      (int)problem->line, "column", (int)problem->column, "text",
				      json_from_box(problem->text)));
	}
	return list;
}

void api_policy_check(struct call *call)
{
	const char *text = NULL;
	const struct json_key keys[] = { { "text", JSON_WANT_STRING, &text, true } };
	_cleanup_(policy_freep) struct policy *policy = NULL;
	struct policy_report report = POLICY_REPORT_INIT;
	struct err err = ERR_INIT;

	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0)
		return call_error(call, &err);
	policy_parse(text, strlen(text), &policy, &report, NULL);
	call_json(call, 200,
		json_pack("{s:b,s:I,s:I,s:o,s:o}", "ok", report.errors == 0, "errors",
			(json_int_t)report.errors, "warnings",
			(json_int_t)(report.count - MIN(report.count, report.errors)), "problems",
			problems_json(&report), "policy",
			policy ? policy_json(policy) : json_null()));
	policy_report_done(&report);
}

static json_t *preset_rules(enum policy_preset preset)
{
	_cleanup_(policy_freep) struct policy *policy = policy_new();
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher = NULL;
	const struct policy_world world = { 0 };
	json_t *list = json_array();
	const struct policy *whole;

	policy->preset = preset;
	if (policy_compile(policy, &world, &matcher, NULL) < 0)
		return list;
	whole = policy_matcher_policy(matcher);
	for (size_t i = 0; i < whole->count; i++) {
		_cleanup_free_ char *text = policy_rule_text(&whole->rules[i]);

		json_array_append_new(list, json_string(text));
	}
	return list;
}

void api_policy_presets(struct call *call)
{
	const char *configured = yard_get_conf(call->yard)->default_policy;
	json_t *list, *policy;
	struct err err = ERR_INIT;

	policy = yard_default_policy(call->yard, &err);
	if (!policy)
		return call_error(call, &err);
	list = json_array();

	for (unsigned i = 0; i < POLICY_PRESET_COUNT; i++)
		json_array_append_new(
			list, json_pack("{s:s,s:s,s:o,s:b}", "name", policy_preset_name(i), "text",
				      policy_preset_text(i), "rules", preset_rules(i), "default",
				      !strcmp(configured, policy_preset_name(i))));
	call_json(call, 200, json_pack("{s:o,s:o}", "presets", list, "default", policy));
}
