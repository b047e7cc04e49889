/* test_policy.c - what a box may reach: tables of flows and their verdicts */
#include "policy/policy.h"
#include "base/json.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>

static struct policy_matcher *compile(const char *text, const struct policy_world *world)
{
	_cleanup_(policy_freep) struct policy *policy = NULL;
	struct policy_matcher *matcher = NULL;
	struct err err = ERR_INIT;

	if (policy_parse(text, strlen(text), &policy, NULL, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(policy_compile(policy, world, &matcher, &err), 0);
	return matcher;
}

/* "tcp example.com 443", "udp 10.0.0.1 53", "dns example.com", "dns example.com=10.0.0.1", "tcp
 * a.example=10.0.0.1 80", "http a.example 80 GET /x"; a last word "seen=..." is the SNI or Host. */
static struct policy_verdict ask(struct policy_matcher *matcher, const char *question)
{
	static char line[4096]; /* the flow is explained after this returns */
	struct policy_flow flow = { 0 };
	char *words[8] = { 0 }, *save = NULL, *equals;
	struct policy_verdict verdict;
	_cleanup_free_ char *why = NULL;
	_cleanup_json_ json_t *object = NULL;
	size_t count = 0;

	assert_true(strlen(question) < sizeof line);
	strcpy(line, question);
	for (char *word = strtok_r(line, " ", &save); word && count < 8;
		word = strtok_r(NULL, " ", &save)) {
		if (!strncmp(word, "seen=", 5))
			flow.seen = word + 5;
		else
			words[count++] = word;
	}
	assert_true(count >= 2);
	flow.kind = !strcmp(words[0], "dns")   ? POLICY_FLOW_DNS
		    : !strcmp(words[0], "tcp") ? POLICY_FLOW_TCP
		    : !strcmp(words[0], "udp") ? POLICY_FLOW_UDP
					       : POLICY_FLOW_HTTP;
	equals = strchr(words[1], '=');
	if (equals) {
		*equals = '\0';
		assert_int_equal(policy_addr_parse(equals + 1, &flow.addr, NULL), 0);
		flow.name = words[1];
	} else if (flow.kind == POLICY_FLOW_DNS ||
		   policy_addr_parse(words[1], &flow.addr, NULL) < 0) {
		flow.name = words[1];
	}
	flow.port = (uint16_t)(words[2] ? atoi(words[2]) : 0);
	flow.method = words[3];
	flow.path = words[4];
	verdict = policy_match(matcher, &flow);
	why = policy_explain(&flow, &verdict);
	object = policy_explain_json(&flow, &verdict);
	assert_string_equal(json_string_value(json_object_get(object, "why")), why);
	return verdict;
}

struct question {
	const char *flow;
	bool allowed;
};

static void ask_all(struct policy_matcher *matcher, const struct question *questions, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct policy_verdict verdict = ask(matcher, questions[i].flow);

		if (verdict.allowed != questions[i].allowed)
			fail_msg("'%s' was %s", questions[i].flow,
				verdict.allowed ? "allowed" : "denied");
	}
}

#define CHECK(text, world, ...)                                               \
	do {                                                                  \
		static const struct question questions[] = { __VA_ARGS__ };   \
		_cleanup_(policy_matcher_freep) struct policy_matcher *made = \
			compile(text, world);                                 \
		ask_all(made, questions, ARRAY_LEN(questions));               \
	} while (0)

static void test_policy_denies_everything_by_default(void **state)
{
	(void)state;
	CHECK("version: 1", NULL, { "dns example.com", false }, { "tcp example.com 443", false },
		{ "tcp 203.0.113.1 443", false }, { "udp 2001:db8::1 53", false },
		{ "http example.com 80 GET /", false });
}

static void test_policy_exact_name_is_no_suffix(void **state)
{
	(void)state;
	CHECK("allow: [example.com]", NULL, { "dns example.com", true },
		{ "dns EXAMPLE.com", true }, { "dns example.com.", true },
		{ "dns eXample.COM.", true }, { "dns example.com..", false },
		{ "dns .example.com", false }, { "dns evilexample.com", false },
		{ "dns a.example.com", false }, { "dns example.com.evil.net", false },
		{ "dns example.co", false }, { "dns example.com%00", false },
		{ "dns example.com%00.evil.net", false }, { "dns example\\.com", false },
		{ "dns ex\xc3\xa4mple.com", false }, { "dns \xd0\xb5xample.com", false },
		{ "dns xn--xample-9uf.com", false }, { "dns example.com:443", false },
		{ "dns *.example.com", false }, { "dns example,com", false },
		{ "tcp example.com 1", true }, { "tcp example.com 65535", true },
		{ "udp example.com 443", false }, { "http example.com 80 GET /any", true });
}

static void test_policy_wildcard_is_below_only(void **state)
{
	(void)state;
	CHECK("allow: ['*.example.com:443', '*.xn--bcher-kva.example']", NULL,
		{ "dns a.example.com", true }, { "dns a.b.c.example.com", true },
		{ "dns _dmarc.example.com", true }, { "dns A.Example.Com.", true },
		{ "dns example.com", false }, { "dns evilexample.com", false },
		{ "dns a.evilexample.com", false }, { "dns .example.com", false },
		{ "dns a..example.com", false }, { "dns -a.example.com", false },
		{ "tcp a.example.com 443", true }, { "tcp a.example.com 444", false },
		{ "dns www.xn--bcher-kva.example", true },
		{ "dns www.b\xc3\xbc"
		  "cher.example",
			false });
}

static void test_policy_refuses_names_over_their_lengths(void **state)
{
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher =
		compile("allow: ['*.example']", NULL);
	char label[64 + 1], flow[700];

	(void)state;
	memset(label, 'a', sizeof label);
	label[63] = '\0';
	snprintf(flow, sizeof flow, "dns %s.example", label);
	assert_true(ask(matcher, flow).allowed);
	label[63] = 'a';
	label[64] = '\0';
	snprintf(flow, sizeof flow, "dns %s.example", label);
	assert_false(ask(matcher, flow).allowed);
	label[61] = '\0'; /* 3 * 62 + 59 + 8 = 253 */
	snprintf(flow, sizeof flow, "dns %s.%s.%s.%.59s.example", label, label, label, label);
	assert_int_equal(strlen(flow), 4 + 253);
	assert_true(ask(matcher, flow).allowed);
	strcat(flow, ".");
	assert_true(ask(matcher, flow).allowed);
	snprintf(flow, sizeof flow, "dns %s.%s.%s.%.60s.example", label, label, label, label);
	assert_int_equal(ask(matcher, flow).reason, POLICY_BY_NAME);
}

static void test_policy_ports_and_protocols(void **state)
{
	(void)state;
	CHECK("allow:\n"
	      "- {name: a.example, ports: [80, 443, '8000-8099']}\n"
	      "- {name: a.example, ports: 53, protocol: [tcp, udp]}\n"
	      "- 10.1.0.0/16:5432/tcp\n"
	      "- '[2001:db8::/32]:443'\n"
	      "- 192.0.2.7/udp\n",
		NULL, { "tcp a.example 80", true }, { "tcp a.example 8050", true },
		{ "tcp a.example 8100", false }, { "udp a.example 80", false },
		{ "udp a.example 53", true }, { "tcp a.example 53", true },
		{ "tcp 10.1.2.3 5432", true }, { "tcp 10.1.2.3 5433", false },
		{ "udp 10.1.2.3 5432", false }, { "tcp 10.2.2.3 5432", false },
		{ "tcp ::ffff:10.1.2.3 5432", true }, { "tcp 64:ff9b::a01:203 5432", true },
		{ "tcp 2002:a01:203:: 5432", true }, { "tcp 2001:db8:1::1 443", true },
		{ "tcp 2001:db9::1 443", false }, { "udp 192.0.2.7 9", true },
		{ "tcp 192.0.2.7 9", false }, { "tcp 192.0.2.8 9", false });
}

static void test_policy_deny_wins(void **state)
{
	(void)state;
	CHECK("allow: ['*.example.com', 198.51.100.0/24]\n"
	      "deny: [bad.example.com, '*.low.example.com:22', 198.51.100.9, 203.0.113.0/24]\n",
		NULL, { "dns ok.example.com", true }, { "dns bad.example.com", false },
		{ "tcp bad.example.com 443", false }, { "dns x.low.example.com", true },
		{ "tcp x.low.example.com 443", true }, { "tcp x.low.example.com 22", false },
		{ "tcp 198.51.100.8 1", true }, { "tcp 198.51.100.9 1", false },
		{ "tcp ok.example.com=203.0.113.5 443", false },
		{ "tcp ok.example.com=203.0.114.5 443", true },
		{ "tcp 198.51.100.8 443 seen=bad.example.com", false },
		{ "tcp 198.51.100.8 443 seen=BAD.example.com.", false },
		{ "tcp 198.51.100.8 443 seen=other.example", true });
}

static void test_policy_seen_name_must_be_the_resolved_one(void **state)
{
	(void)state;
	CHECK("allow: [a.example, b.example, 198.51.100.0/24]", NULL,
		{ "tcp a.example 443 seen=a.example", true },
		{ "tcp a.example 443 seen=A.Example.", true },
		{ "tcp a.example 443 seen=b.example", false },
		{ "tcp a.example 443 seen=evil.example", false },
		{ "tcp a.example 443 seen=a.example%00", false },
		{ "tcp a.example=198.51.100.1 443 seen=198.51.100.1", false },
		{ "http a.example 80 GET / seen=b.example", false },
		{ "http 198.51.100.1 80 GET / seen=198.51.100.1", true },
		{ "http 198.51.100.1 80 GET / seen=198.51.100.2", false },
		{ "http 198.51.100.1 80 GET / seen=127.0.0.1", false });
}

static void test_policy_open_keeps_the_closed_closed(void **state)
{
	static const char *const host[] = { "203.0.113.77", "2001:db8:77::/64", NULL };
	static const struct policy_world world = { .host_ranges = host };

	(void)state;
	CHECK("preset: open\nboxes: [ada]", &world, { "dns anything.example", true },
		{ "tcp anything.example 25", true }, { "udp 203.0.113.1 443", true },
		{ "tcp 2001:db8::1 443", true }, { "tcp 10.0.0.1 80", false },
		{ "tcp 172.16.0.1 80", false }, { "tcp 172.31.255.255 80", false },
		{ "tcp 172.32.0.1 80", true }, { "tcp 192.168.1.1 80", false },
		{ "tcp 100.64.0.1 80", false }, { "tcp 100.128.0.1 80", true },
		{ "tcp 127.0.0.1 80", false }, { "tcp 127.255.255.255 80", false },
		{ "tcp 0.0.0.0 80", false }, { "tcp 169.254.169.254 80", false },
		{ "tcp 169.254.0.1 80", false }, { "tcp 168.63.129.16 80", false },
		{ "udp 224.0.0.251 5353", false }, { "udp 255.255.255.255 67", false },
		{ "tcp 198.18.0.1 80", false }, { "tcp ::1 80", false }, { "tcp :: 80", false },
		{ "tcp fe80::1 80", false }, { "tcp fd00:ec2::254 80", false },
		{ "tcp fd12::1 80", false }, { "udp ff02::1 80", false },
		{ "tcp ::ffff:127.0.0.1 80", false }, { "tcp ::ffff:10.0.0.1 80", false },
		{ "tcp ::10.0.0.1 80", false }, { "tcp ::ffff:0:10.0.0.1 80", false },
		{ "tcp 64:ff9b::7f00:1 80", false }, { "tcp 64:ff9b:1::7f00:1 80", false },
		{ "tcp 2002:7f00:1:: 80", false }, { "tcp 2002:a9fe:a9fe::1 80", false },
		{ "tcp 2001:0:1::1 80", false }, { "tcp 64:ff9b::cb00:7101 80", true },
		{ "tcp 192.88.99.1 80", false }, { "tcp 4000::1 80", false },
		{ "tcp 1::1 80", false }, { "tcp 9000::1 80", false }, { "tcp 3fff::1 80", true },
		{ "tcp 203.0.113.77 80", false }, { "tcp ::ffff:203.0.113.77 80", false },
		{ "tcp 2001:db8:77::5 80", false }, { "tcp 2001:db8:78::5 80", true },
		{ "tcp x.example=10.0.0.1 80", false }, { "dns x.example=10.0.0.1", false },
		{ "dns x.example=127.0.0.1", false }, { "dns x.example=::ffff:10.0.0.1", false },
		{ "dns x.example=203.0.113.9", true }, { "dns localhost", false },
		{ "dns a.localhost", false }, { "dns 127.0.0.1", false }, { "dns 0x7f.1", false },
		{ "dns 2130706433", false }, { "dns a.0x7f", false }, { "dns a.xbox", true },
		{ "dns ada.box", true }, { "dns eve.box", false }, { "dns x.ada.box", false },
		{ "tcp eve.box=203.0.113.9 80", false });
}

static void test_policy_private_ranges_are_opened_by_name_only(void **state)
{
	(void)state;
	CHECK("allow: [0.0.0.0/0, 172.16.0.0/12:443, '*.corp.example', evilcorp.example, "
	      "x.example]\n"
	      "dns: {allow_private: ['*.corp.example']}\n",
		NULL, { "tcp 203.0.113.1 80", true }, { "tcp 10.0.0.1 80", false },
		{ "tcp 127.0.0.1 80", false }, { "tcp 172.16.1.1 443", true },
		{ "tcp 172.16.1.1 80", false }, { "tcp db.corp.example=10.0.0.1 5432", true },
		{ "dns db.corp.example=10.0.0.1", true }, { "dns db.corp.example=fd12::1", true },
		{ "dns evilcorp.example=10.0.0.1", false },
		{ "dns db.corp.example=127.0.0.1", false },
		{ "dns db.corp.example=169.254.169.254", false },
		{ "dns x.example=10.0.0.1", false }, { "tcp x.example=10.0.0.1 80", false },
		{ "tcp x.example=172.16.1.1 443", true });
	CHECK("allow: ['fd12::/16']", NULL, { "tcp fd12::1 80", true },
		{ "tcp fd13::1 80", false });
}

static void test_policy_presets(void **state)
{
	static const char *const hosts[] = { "deb.example:80", "npm.example", "*.evil.example",
		"10.0.0.0/8", "*", "host/udp", "b\xc3\xbc", "", NULL };
	static const struct policy_world world = { .package_hosts = hosts };

	(void)state;
	CHECK("preset: none", &world, { "dns deb.example", false });
	CHECK("preset: packages", &world, { "tcp deb.example 80", true },
		{ "tcp deb.example 443", false }, { "tcp npm.example 443", true },
		{ "dns a.evil.example", false }, { "tcp 10.0.0.1 80", false },
		{ "dns github.com", false });
	CHECK("preset: dev\ndeny: [gitlab.com]", &world, { "tcp npm.example 443", true },
		{ "tcp github.com 22", true }, { "tcp github.com 9999", false },
		{ "dns gitlab.com", false }, { "dns evilgithub.com", false });
}

static void test_policy_methods_and_paths(void **state)
{
	(void)state;
	CHECK("allow:\n"
	      "- {name: a.example, methods: [get, HEAD], paths: [/public/, '/v*/users/*', "
	      "/exact]}\n"
	      "- {name: b.example}\n"
	      "- {name: c.example, paths: ['/**/x', /deep/*/y/]}\n"
	      "- d.example:80\n"
	      "deny:\n"
	      "- {name: b.example, paths: [/admin/, /admin]}\n"
	      "- {name: d.example, paths: [/secret/, /one]}\n"
	      "- {name: b.example, methods: [DELETE]}\n",
		NULL, { "http a.example 80 GET /public/", true },
		{ "http a.example 80 GET /public/a/b?q=../x", true },
		{ "http a.example 80 HEAD /exact?x", true },
		{ "http a.example 80 POST /public/a", false },
		{ "http a.example 80 GET /public", false },
		{ "http a.example 80 GET /exact/", false },
		{ "http a.example 80 GET /v1/users/7", true },
		{ "http a.example 80 GET /v1/users/7/x", false },
		{ "http a.example 80 GET /v1/x/users/7", false },
		{ "http a.example 80 GET /%70ublic/a", true },
		{ "http a.example 80 GET /public/a;x=1/b", true },
		{ "http a.example 80 GET /public;x=1/b", false },
		{ "http a.example 80 GET /public/a./b", false },
		{ "http a.example 80 GET /public/a%3f/b", false },
		{ "http a.example 80 GET /public/%c0%ae", false },
		{ "http b.example 80 GET /admin;a/b", false },
		{ "http b.example 80 GET /admin;a", false },
		{ "http b.example 80 GET /admin%3ba/b", false },
		{ "http b.example 80 GET /x;a/admin", true },
		{ "http b.example 80 GET /Admin/b", false },
		{ "http b.example 80 GET /ADMIN;a", false },
		{ "http b.example 80 GET /admin./b", false },
		{ "http b.example 80 GET /admin%20/b", false },
		{ "http b.example 80 GET /admin%5cb", false },
		{ "http b.example 80 GET /admin%2Fb", false },
		{ "http b.example 80 GET /admin%2fb", false },
		{ "http b.example 80 GET /x/./admin/b", false },
		{ "http b.example 80 GET //admin/b", false },
		{ "http b.example 80 GET /admin%3fx", false },
		{ "http b.example 80 GET /admin#x", false },
		{ "http b.example 80 GET /%c0%afadmin/b", false },
		{ "http b.example 80 GET /%61dmin/b", false },
		{ "http d.example 80 GET /secret", false },
		{ "http d.example 80 GET /secret/", false },
		{ "http d.example 80 GET /secret;a/b", false },
		{ "http d.example 80 GET /secrets", true },
		{ "http d.example 80 GET /one/", false }, { "http d.example 80 GET /one/x", true },
		{ "http a.example 80 GET /public/../secret", false },
		{ "http a.example 80 GET /public/%2e%2e/secret", false },
		{ "http a.example 80 GET /public/..;/secret", false },
		{ "http a.example 80 GET /public/..%2fsecret", false },
		{ "http a.example 80 GET /public/%252e%252e/secret", false },
		{ "http a.example 80 GET /public//x", false },
		{ "http a.example 80 GET /public/..\\x", false },
		{ "http a.example 80 GET /public/%00", false },
		{ "http a.example 80 GET /public/%zz", false },
		{ "http a.example 80 GET http://a.example/public/", false },
		{ "http a.example 443 GET /public/", false }, { "tcp a.example 80", true },
		{ "tcp a.example 443", false }, { "http b.example 80 GET /x", true },
		{ "http b.example 80 GET /admin", false },
		{ "http b.example 80 GET /admin/x", false },
		{ "http b.example 80 GET /%61dmin/x", false },
		{ "http b.example 80 GET /x/../admin", false },
		{ "http b.example 80 delete /x", false },
		{ "http b.example 8080 GET /admin", true }, { "http c.example 80 GET /x", false },
		{ "http c.example 80 GET /a/x", true }, { "http c.example 80 GET /a/b/x", true },
		{ "http c.example 80 PUT /deep/q/y/1/2", true },
		{ "http c.example 80 GET /deep/q/r/y/1", false });
}

static void test_policy_says_when_requests_must_be_read(void **state)
{
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher =
		compile("allow:\n- {name: a.example, paths: [/x]}\n- b.example\n"
			"- {name: c.example, ports: 80, paths: [/x]}\n- c.example:80\n"
			"deny: [{name: b.example, paths: [/y]}]",
			NULL);

	(void)state;
	assert_true(ask(matcher, "tcp a.example 80").needs_http);
	assert_true(ask(matcher, "tcp b.example 80").needs_http);
	assert_false(ask(matcher, "tcp b.example 443").needs_http);
	assert_false(ask(matcher, "tcp c.example 80").needs_http);
	assert_int_equal(ask(matcher, "tcp c.example 80").rule->number, 4);
}

static void test_policy_boxes(void **state)
{
	(void)state;
	CHECK("boxes: [ada, 'web.box:8080']\nallow: [10.0.0.0/8]\ndeny: ['192.168.0.9']", NULL,
		{ "dns ada.box", true }, { "tcp ada.box=10.0.0.5 22", true },
		{ "udp ada.box 22", false }, { "tcp web.box 8080", true },
		{ "tcp web.box 80", false }, { "dns eve.box", false },
		{ "tcp eve.box=10.0.0.6 22", false }, { "tcp ada.box=198.18.0.3 22", true },
		{ "tcp ada.box=192.168.0.9 22", false });
}

static void test_policy_names_the_rule_that_decided(void **state)
{
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher =
		compile("version: 1\nallowed_domains:\n  - a.example\nallow:\n  - name: b.example\n"
			"    port: 443\n    note: for tests\n    rate: 1M/s\n    connections: 5\n  "
			"  bytes: 2G\n"
			"deny:\n  - c.example\n",
			NULL);
	struct policy_flow flow = { .kind = POLICY_FLOW_TCP, .name = "b.example", .port = 443 };
	struct policy_verdict verdict = policy_match(matcher, &flow);
	_cleanup_free_ char *why = policy_explain(&flow, &verdict), *near = NULL, *bad = NULL;

	(void)state;
	assert_string_equal(why,
		"tcp to b.example:443 is allowed by allow #1 (line 5): b.example:443 - for tests");
	assert_int_equal(verdict.rule->limits.rate, 1 << 20);
	assert_int_equal(verdict.rule->limits.connections, 5);
	assert_int_equal(verdict.rule->limits.bytes, 2ULL << 30);
	flow.port = 80;
	verdict = policy_match(matcher, &flow);
	near = policy_explain(&flow, &verdict);
	assert_string_equal(near,
		"tcp to b.example:80 is denied: no rule allows it; allow #1 (line 5) "
		"is for b.example:443 - for tests");
	assert_int_equal(ask(matcher, "dns a.example").rule->line, 3);
	assert_int_equal(ask(matcher, "dns c.example").rule->line, 12);
	flow.name = "x\x1b[31m.example";
	verdict = policy_match(matcher, &flow);
	bad = policy_explain(&flow, &verdict);
	assert_string_equal(bad, "tcp to x?[31m.example:80 is denied: the name has a character "
				 "that no host name has");
}

static void test_policy_compares(void **state)
{
	static const struct {
		const char *before, *after;
		enum policy_change change;
	} cases[] = {
		{ "allow: [a.example]", "allow: [A.example.]", POLICY_SAME },
		{ "allow: [a.example]", "allow: ['a.example:443']", POLICY_TIGHTER },
		{ "allow: ['*.example']", "allow: [a.example, '*.b.example']", POLICY_TIGHTER },
		{ "allow: [a.example]", "allow: ['*.example']", POLICY_WIDER },
		{ "allow: [a.example]", "allow: [b.example]", POLICY_DIFFERENT },
		{ "allow: ['*.b.example']", "allow: [evilb.example]", POLICY_DIFFERENT },
		{ "allow: ['*.example']", "allow: ['*.example']\ndeny: [a.example]",
			POLICY_TIGHTER },
		{ "allow: ['*.example']\ndeny: [a.example]",
			"allow: ['*.example']\ndeny: ['a.example:1']", POLICY_WIDER },
		{ "allow: [b.example]\ndeny: [a.example]", "allow: [b.example]", POLICY_SAME },
		{ "preset: open", "preset: dev", POLICY_TIGHTER },
		{ "preset: open", "allow: [10.0.0.0/8]", POLICY_DIFFERENT },
		{ "preset: open", "preset: open\nboxes: [ada]", POLICY_WIDER },
		{ "allow: [0.0.0.0/0]", "allow: [10.0.0.0/8]", POLICY_DIFFERENT },
		{ "allow: [10.0.0.0/8]", "allow: [10.1.0.0/16]", POLICY_TIGHTER },
		{ "allow: [{name: a.example, paths: [/x/]}]",
			"allow: [{name: a.example, paths: ['/x/*']}]", POLICY_TIGHTER },
		{ "allow: [a.example]", "allow: [{name: a.example, methods: GET}]",
			POLICY_TIGHTER },
		{ "allow: [a.example]", "allow: [a.example]\ndns: {allow_private: [a.example]}",
			POLICY_WIDER },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		_cleanup_(policy_matcher_freep) struct policy_matcher *before =
			compile(cases[i].before, NULL);
		_cleanup_(policy_matcher_freep) struct policy_matcher *after =
			compile(cases[i].after, NULL);
		const struct policy_rule *rule = NULL;
		enum policy_change change = policy_compare(before, after, &rule);

		if (change != cases[i].change)
			fail_msg("'%s' to '%s' is %d", cases[i].before, cases[i].after, change);
		assert_int_equal(rule != NULL, change >= POLICY_WIDER);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_denies_everything_by_default),
		cmocka_unit_test(test_policy_exact_name_is_no_suffix),
		cmocka_unit_test(test_policy_wildcard_is_below_only),
		cmocka_unit_test(test_policy_refuses_names_over_their_lengths),
		cmocka_unit_test(test_policy_ports_and_protocols),
		cmocka_unit_test(test_policy_deny_wins),
		cmocka_unit_test(test_policy_seen_name_must_be_the_resolved_one),
		cmocka_unit_test(test_policy_open_keeps_the_closed_closed),
		cmocka_unit_test(test_policy_private_ranges_are_opened_by_name_only),
		cmocka_unit_test(test_policy_presets),
		cmocka_unit_test(test_policy_methods_and_paths),
		cmocka_unit_test(test_policy_says_when_requests_must_be_read),
		cmocka_unit_test(test_policy_boxes),
		cmocka_unit_test(test_policy_names_the_rule_that_decided),
		cmocka_unit_test(test_policy_compares),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
