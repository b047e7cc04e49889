/* test_policy_random.c - the matcher against the plainest code there is, over random policies; and
 * how long it takes */
#include "base/clock.h"
#include "policy/policy.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>

enum { POLICIES = 3000, FLOWS = 100 };

static uint64_t seed = 0x9e3779b97f4a7c15;

static unsigned pick(unsigned below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed >> 33) % below;
}

/* ---- random things from a small world, so that they meet ------------------------------------ */

static const char *random_name(char *out)
{
	static const char *const labels[] = { "a", "b", "aa", "x-y" };
	unsigned depth = 1 + pick(3);

	out[0] = '\0';
	for (unsigned i = 0; i < depth; i++) {
		strcat(out, labels[pick(ARRAY_LEN(labels))]);
		strcat(out, ".");
	}
	return strcat(out, pick(2) ? "one" : "two");
}

static const char *random_addr(char *out)
{
	static const char *const some[] = { "10.0.0.1", "10.0.1.1", "10.1.1.1", "203.0.113.1",
		"203.0.113.130", "203.0.112.1", "127.0.0.1", "169.254.169.254", "2001:db8::1",
		"2001:db8:1::1", "fd00::1", "::1", "::ffff:10.0.0.1", "2002:cb00:7101::1",
		"64:ff9b::a00:101", "100.100.100.200", "192.168.3.4" };

	return strcpy(out, some[pick(ARRAY_LEN(some))]);
}

static const char *random_target(char *out)
{
	static const char *const ranges[] = { "10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32",
		"203.0.112.0/23", "203.0.113.0/25", "0.0.0.0/0", "2001:db8::/32", "2001:db8::/48",
		"::/0", "fd00::/8", "192.168.0.0/16", "128.0.0.0/1" };
	char name[64];

	switch (pick(3)) {
	case 0:
		sprintf(out, "cidr: '%s'", ranges[pick(ARRAY_LEN(ranges))]);
		break;
	case 1:
		sprintf(out, "name: '*.%s'", random_name(name));
		break;
	default:
		sprintf(out, "name: '%s'", random_name(name));
	}
	return out;
}

static void random_rule(struct buf *out)
{
	static const char *const ports[] = { "", "", ", ports: 80", ", ports: [80, 443]",
		", ports: '1-100'", ", ports: 53" };
	static const char *const protocols[] = { "", "", ", protocol: tcp", ", protocol: udp",
		", protocol: [tcp, udp]" };
	static const char *const requests[] = { ", methods: GET", ", paths: [/x/, /y]",
		", paths: '/*/z'", ", methods: [GET, PUT], paths: /x/" };
	char target[100];

	buf_addf(out, "- {%s%s", random_target(target), ports[pick(ARRAY_LEN(ports))]);
	if (pick(4))
		buf_add_str(out, protocols[pick(ARRAY_LEN(protocols))]);
	else
		buf_add_str(out, requests[pick(ARRAY_LEN(requests))]);
	buf_add_str(out, "}\n");
}

/* NULL when it has a conflict. */
static struct policy_matcher *random_policy(void)
{
	static const char *const presets[] = { "none", "none", "none", "dev", "open" };
	static const char *const host[] = { "203.0.113.130", NULL };
	static const struct policy_world world = { .host_ranges = host };
	unsigned allow = pick(12), deny = pick(5);
	_cleanup_(policy_freep) struct policy *policy = NULL;
	struct policy_matcher *matcher = NULL;
	struct buf text = BUF_INIT;
	int status;

	buf_addf(&text, "preset: %s\nboxes: [ada]\nallow:\n", presets[pick(ARRAY_LEN(presets))]);
	for (unsigned i = 0; i < allow; i++)
		random_rule(&text);
	buf_add_str(&text, "deny:\n");
	for (unsigned i = 0; i < deny; i++)
		random_rule(&text);
	if (pick(2))
		buf_add_str(&text, "dns: {allow_private: ['*.one', a.two]}\n");
	status = policy_parse(buf_str(&text), text.len, &policy, NULL, NULL);
	buf_done(&text);
	if (status == 0)
		assert_int_equal(policy_compile(policy, &world, &matcher, NULL), 0);
	return matcher;
}

struct question {
	struct policy_flow flow;
	char name[64], seen[64];
};

static void random_question(struct question *question)
{
	static const uint16_t ports[] = { 80, 443, 53, 22 };
	static const char *const methods[] = { "GET", "POST" };
	static const char *const paths[] = { "/x/1", "/y", "/q/z", "/", "/x/../y", "/%78/1" };
	char addr[64];

	*question = (struct question){ 0 };
	question->flow.kind = pick(POLICY_FLOW_KIND_COUNT);
	if (pick(3))
		question->flow.name = pick(10) ? random_name(question->name) : "ada.box";
	if (!question->flow.name || pick(2))
		policy_addr_parse(random_addr(addr), &question->flow.addr, NULL);
	question->flow.port = ports[pick(ARRAY_LEN(ports))];
	question->flow.method = methods[pick(ARRAY_LEN(methods))];
	question->flow.path = paths[pick(ARRAY_LEN(paths))];
	if (!question->flow.name && !pick(4) && question->flow.kind != POLICY_FLOW_DNS)
		question->flow.seen = random_name(question->seen);
}

/* ---- the plainest code ---------------------------------------------------------------------- */

static bool plain_below(const char *name, const char *parent)
{
	char tail[80];

	snprintf(tail, sizeof tail, ".%s", parent);
	return strlen(name) > strlen(tail) && !strcmp(name + strlen(name) - strlen(tail), tail);
}

static bool plain_named(const struct policy_rule *rule, const char *name)
{
	if (!name)
		return false;
	if (rule->target == POLICY_WILDCARD)
		return plain_below(name, rule->name);
	if (rule->target == POLICY_NAME || rule->target == POLICY_BOX)
		return !strcmp(name, rule->name);
	return rule->target == POLICY_ANY && !plain_below(name, "box");
}

static bool plain_path(const struct policy_rule *rule, const char *path)
{
	const char *real = !strcmp(path, "/%78/1") ? "/x/1" : path;

	if (!rule->paths)
		return true;
	if (strstr(path, "/../"))
		return rule->deny;
	for (size_t i = 0; rule->paths[i]; i++)
		if ((!strcmp(rule->paths[i], "/x/") && !strncmp(real, "/x/", 3)) ||
			(!strcmp(rule->paths[i], "/y") && !strcmp(real, "/y")) ||
			(!strcmp(rule->paths[i], "/*/z") && !strcmp(real, "/q/z")))
			return true;
	return false;
}

static bool plain_request(const struct policy_rule *rule, const struct policy_flow *flow)
{
	bool method = !rule->methods;

	for (size_t i = 0; rule->methods && rule->methods[i]; i++)
		method = method || !strcmp(rule->methods[i], flow->method);
	return method && plain_path(rule, flow->path);
}

/* 0: no, 1: yes, 2: if the request fits. */
static int plain_fits(const struct policy_rule *rule, const struct policy_flow *flow)
{
	unsigned protocol = flow->kind == POLICY_FLOW_UDP ? POLICY_UDP : POLICY_TCP;
	bool port = !rule->port_count;

	if (flow->kind == POLICY_FLOW_DNS)
		return !rule->deny || (!rule->port_count && rule->protocols == 3 &&
					      !rule->methods && !rule->paths);
	for (size_t i = 0; i < rule->port_count; i++)
		port = port ||
		       (flow->port >= rule->ports[i].low && flow->port <= rule->ports[i].high);
	if (!port || !(rule->protocols & protocol))
		return 0;
	if (!rule->methods && !rule->paths)
		return 1;
	return flow->kind == POLICY_FLOW_HTTP ? plain_request(rule, flow) : 2;
}

struct plain {
	bool allowed, needs_http;
	const struct policy_rule *rule;
};

static bool plain_reaches(const struct policy *policy, const struct policy_rule *rule,
	const struct policy_flow *flow, const struct address *addr)
{
	const char *what;
	bool closed = addr->family && policy_addr_closed(addr, &what) == POLICY_PRIVATE;
	bool in =
		rule->target == POLICY_CIDR && addr->family && address_range_has(&rule->cidr, addr);
	bool excused = rule->target == POLICY_BOX,
	     box = flow->name && plain_below(flow->name, "box");

	if (rule->deny)
		return in || plain_named(rule, flow->name) || plain_named(rule, flow->seen);
	for (size_t i = 0; flow->name && i < policy->private_count; i++)
		excused = excused || plain_named(&policy->allow_private[i], flow->name);
	if (rule->target == POLICY_ANY && !flow->name && addr->family)
		return !closed;
	if (rule->target ==
		POLICY_CIDR) /* private ranges are /8 or longer here, 0/0 and ::/0 are not */
		return in && flow->kind != POLICY_FLOW_DNS && !box &&
		       (!closed || rule->cidr.bits >= 8);
	return plain_named(rule, flow->name) && (!closed || excused);
}

static struct plain plain_match(const struct policy *policy, const struct policy_flow *flow)
{
	struct address addr = policy_addr_normalise(&flow->addr);
	const struct policy_rule *deny = NULL, *yes = NULL, *perhaps = NULL;
	bool deny_http = false, never, host;
	const char *what;

	if (flow->kind == POLICY_FLOW_DNS && !flow->name)
		return (struct plain){ 0 };
	for (size_t i = policy->count; i--;) {
		const struct policy_rule *rule = &policy->rules[i];
		int fits = plain_fits(rule, flow);

		if (!fits || !plain_reaches(policy, rule, flow, &addr))
			continue;
		if (rule->deny && fits == 1)
			deny = rule;
		else if (rule->deny)
			deny_http = true;
		else if (fits == 1)
			yes = rule;
		else
			perhaps = rule;
	}
	host = addr.family == 4 && !memcmp(addr.bytes, (uint8_t[]){ 203, 0, 113, 130 }, 4);
	never = addr.family && (host || policy_addr_closed(&addr, &what) == POLICY_NEVER) &&
		!(flow->name && plain_below(flow->name, "box"));
	if (deny)
		return (struct plain){ false, false, deny };
	if (never || (!yes && !perhaps))
		return (struct plain){ 0 };
	return (struct plain){ true, yes ? deny_http : true, yes ? yes : perhaps };
}

static void test_policy_match_is_brute_force(void **state)
{
	unsigned policies = 0, allowed = 0, by_deny = 0;

	(void)state;
	for (int i = 0; i < POLICIES; i++) {
		_cleanup_(policy_matcher_freep) struct policy_matcher *matcher = random_policy();

		for (int j = 0; matcher && j < FLOWS; j++) {
			struct question question;
			struct plain plain;
			struct policy_verdict verdict;

			random_question(&question);
			plain = plain_match(policy_matcher_policy(matcher), &question.flow);
			verdict = policy_match(matcher, &question.flow);
			if (verdict.allowed != plain.allowed || verdict.rule != plain.rule ||
				verdict.needs_http != plain.needs_http) {
				_cleanup_free_ char *text =
					policy_text(policy_matcher_policy(matcher));
				_cleanup_free_ char *why = policy_explain(&question.flow, &verdict);

				fail_msg("%s\n%s\nplain: %d", text, why, plain.allowed);
			}
			allowed += verdict.allowed;
			by_deny += verdict.rule && !verdict.allowed;
		}
		policies += matcher != NULL;
	}
	print_message("%u policies, %u flows allowed, %u denied by a rule, of %u\n", policies,
		allowed, by_deny, policies * FLOWS);
	assert_true(policies > POLICIES / 2 && allowed > policies && by_deny > policies);
}

static void test_policy_tighter_allows_nothing_new(void **state)
{
	unsigned shown = 0;

	(void)state;
	for (int i = 0; i < POLICIES; i++) {
		_cleanup_(policy_matcher_freep) struct policy_matcher *one = random_policy();
		_cleanup_(policy_matcher_freep) struct policy_matcher *other = random_policy();

		if (!one || !other || policy_compare(one, other, NULL) > POLICY_TIGHTER)
			continue;
		shown++;
		for (int j = 0; j < FLOWS; j++) {
			struct question question;
			struct policy_verdict before, after;

			random_question(&question);
			before = policy_match(one, &question.flow);
			after = policy_match(other, &question.flow);
			if (after.allowed &&
				(!before.allowed ||
					(before.needs_http && !after.needs_http &&
						question.flow.kind != POLICY_FLOW_HTTP))) {
				_cleanup_free_ char *old_text =
					policy_text(policy_matcher_policy(one));
				_cleanup_free_ char *new_text =
					policy_text(policy_matcher_policy(other));
				_cleanup_free_ char *why = policy_explain(&question.flow, &after);

				fail_msg("%s\n%s\n%s", old_text, new_text, why);
			}
		}
	}
	print_message("%u pairs were tighter or the same\n", shown);
	assert_true(shown > 20);
}

static void test_policy_normal_form_of_any_policy(void **state)
{
	(void)state;
	for (int i = 0; i < POLICIES; i++) {
		_cleanup_(policy_matcher_freep) struct policy_matcher *matcher = random_policy();
		_cleanup_(policy_freep) struct policy *again = NULL;
		_cleanup_free_ char *text = NULL, *twice = NULL;

		if (!matcher)
			continue;
		text = policy_text(policy_matcher_policy(matcher));
		assert_int_equal(policy_parse(text, strlen(text), &again, NULL, NULL), 0);
		twice = policy_text(again);
		assert_string_equal(text, twice);
	}
}

/* ---- time ----------------------------------------------------------------------------------- */

static void measure(const char *what, const struct policy_matcher *matcher, struct policy_flow flow)
{
	enum { ROUNDS = 100000 };
	int64_t start = clock_mono_us();
	unsigned allowed = 0;

	for (int i = 0; i < ROUNDS; i++) {
		__asm__ volatile("" : : "r"(&flow) : "memory");
		allowed += policy_match(matcher, &flow).allowed;
	}
	print_message("%-34s %6.0f ns  %s\n", what,
		(double)(clock_mono_us() - start) * 1000 / ROUNDS, allowed ? "allowed" : "denied");
}

static void test_policy_match_takes(void **state)
{
	static char long_name[254], labels[254];
	_cleanup_(policy_freep) struct policy *policy = policy_new();
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher = NULL;
	struct address v4, v6;
	char text[100];

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		switch (i % 4) {
		case 0:
			sprintf(text, "host%u.example.com:443", i);
			break;
		case 1:
			sprintf(text, "*.zone%u.example.net", i);
			break;
		case 2:
			sprintf(text, "2001:db8:%x::/%u", i, 48 + i % 80);
			break;
		default:
			sprintf(text, "192.%u.%u.0/24:443", i / 250 + 10, i % 250);
		}
		assert_int_equal(policy_add_flag(policy, i % 10 == 9, text, NULL), 0);
	}
	assert_int_equal(policy_compile(policy, NULL, &matcher, NULL), 0);
	policy_addr_parse("192.11.2.7", &v4, NULL);
	policy_addr_parse("2001:db8:ffff::1", &v6, NULL);
	memset(long_name, 'a', 253);
	for (size_t i = 63; i < 253; i += 64)
		long_name[i] = '.';
	for (size_t i = 0; i < 253; i++)
		labels[i] = i % 2 ? '.' : 'a';
	measure("exact name", matcher,
		(struct policy_flow){ POLICY_FLOW_TCP, "host4.example.com", { 0 }, 443, 0, 0, 0 });
	measure("exact name, address, SNI", matcher,
		(struct policy_flow){
			POLICY_FLOW_TCP, "host4.example.com", v4, 443, 0, 0, "host4.example.com" });
	measure("wildcard", matcher,
		(struct policy_flow){
			POLICY_FLOW_DNS, "a.b.zone1.example.net", { 0 }, 0, 0, 0, 0 });
	measure("unknown name", matcher,
		(struct policy_flow){
			POLICY_FLOW_DNS, "www.unknown.example.org", { 0 }, 0, 0, 0, 0 });
	measure("unknown name of 253 bytes", matcher,
		(struct policy_flow){ POLICY_FLOW_DNS, long_name, { 0 }, 0, 0, 0, 0 });
	measure("unknown name of 127 labels", matcher,
		(struct policy_flow){ POLICY_FLOW_DNS, labels, { 0 }, 0, 0, 0, 0 });
	measure("IPv4 address", matcher,
		(struct policy_flow){ POLICY_FLOW_TCP, "", v4, 443, 0, 0, 0 });
	measure("IPv6 address, 40 prefix lengths", matcher,
		(struct policy_flow){ POLICY_FLOW_TCP, "", v6, 443, 0, 0, 0 });
}

/* The worst policy: a thousand rules for one name. */
static void test_policy_match_of_one_name_takes(void **state)
{
	_cleanup_(policy_freep) struct policy *policy = policy_new();
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher = NULL;
	char text[100];

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		sprintf(text, "a.example:%u", 1000 + 2 * i);
		assert_int_equal(policy_add_flag(policy, false, text, NULL), 0);
	}
	assert_int_equal(policy_compile(policy, NULL, &matcher, NULL), 0);
	measure("1000 rules for one name", matcher,
		(struct policy_flow){ POLICY_FLOW_TCP, "a.example", { 0 }, 2998, 0, 0, 0 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_match_is_brute_force),
		cmocka_unit_test(test_policy_tighter_allows_nothing_new),
		cmocka_unit_test(test_policy_normal_form_of_any_policy),
		cmocka_unit_test(test_policy_match_takes),
		cmocka_unit_test(test_policy_match_of_one_name_takes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
