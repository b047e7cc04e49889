/* test_policy_text.c - policies as people write them: what is read, what is refused and where, what
 * comes back */
#include "policy/policy.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>

static struct policy *parse(const char *text)
{
	struct policy *policy = NULL;
	struct err err = ERR_INIT;

	if (policy_parse(text, strlen(text), &policy, NULL, &err) < 0)
		fail_msg("%s", err.message);
	return policy;
}

static void test_policy_refuses_with_line_and_column(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{ "", "line 1, column 1: the text is empty" },
		{ "- a", "line 1, column 1: a policy must be a map" },
		{ "alow: []", "line 1, column 1: unknown key 'alow' in a policy" },
		{ "version: 2", "line 1, column 10: version must be 1" },
		{ "preset: all",
			"line 1, column 9: preset 'all' must be none, packages, dev or open" },
		{ "allow:\n  - a.example\n  - '*'",
			"line 3, column 5: '*' would match everything; use "
			"the preset open for that (--net open)" },
		{ "allow: ['a.*.example']", "line 1, column 9: 'a.*.example': '*' must be the "
					    "whole first label; *.example.com is every name below "
					    "example.com" },
		{ "allow: ['f*.example']", "line 1, column 9: 'f*.example': '*' must be" },
		{ "allow: [a_b.example, -a.example]",
			"line 1, column 22: name '-a.example' has a label that begins" },
		{ "allow: ['b\xc3\xbc"
		  "cher.example']",
			"line 1, column 9: name 'b\xc3\xbc"
			"cher.example' has letters outside of ASCII" },
		{ "allow: [\"a\\0b.example\"]", "line 1, column 9: a text with a NUL in it" },
		{ "allow: [\"\\e[31m.example\"]",
			"line 1, column 9: name '?[31m.example' has a character" },
		{ "allow: [a..b]", "line 1, column 9: name 'a..b' has an empty label" },
		{ "allow: [localhost]",
			"line 1, column 9: name 'localhost' means the machine itself" },
		{ "allow: [a.box]",
			"line 1, column 9: 'a.box': names that end in .box are other boxes" },
		{ "allow: ['https://a.example/']",
			"line 1, column 9: 'https://a.example/' is a URL" },
		{ "allow: [a.example/x]",
			"line 1, column 9: 'a.example/x': after '/' comes tcp or udp" },
		{ "allow: ['a.example:0']", "line 1, column 9: '0' is not a port" },
		{ "allow: ['a.example:65536']", "line 1, column 9: '65536' is not a port" },
		{ "allow: ['a.example:90-80']",
			"line 1, column 9: ports 90-80: the first is higher" },
		{ "allow: ['a.example:']", "line 1, column 9: '' is not a port" },
		{ "allow: [10.0.0.1/8]",
			"line 1, column 9: '10.0.0.1/8' has bits set after its prefix; "
			"write 10.0.0.0/8, or the address alone" },
		{ "allow: [10.0.0.0/33]", "line 1, column 9: '10.0.0.0/33': the prefix must be" },
		{ "allow: [10.0.0]", "line 1, column 9: '10.0.0' is not an address range" },
		{ "allow: ['::ffff:10.0.0.0/104']", "line 1, column 9: '::ffff:10.0.0.0/104' is an "
						    "IPv4 address inside an IPv6 address" },
		{ "allow: ['2001:db8::/32:443']",
			"line 1, column 9: '2001:db8::/32:443' is not a "
			"destination; an IPv6 range with ports is written" },
		{ "allow: [127.0.0.1]",
			"line 1, column 9: this range is loopback: no box reaches it" },
		{ "allow: [169.254.169.254/32]", "line 1, column 9: this range is metadata" },
		{ "allow: ['4000::/8']", "line 1, column 9: this range is reserved" },
		{ "allow:\n- {name: a.example, cidr: 10.0.0.0/8}",
			"line 2, column 27: a rule has either a name or a cidr" },
		{ "allow:\n- {ports: 80}", "line 2, column 3: a rule needs a name or a cidr" },
		{ "allow:\n- {name: a.example, colour: red}",
			"line 2, column 21: unknown key 'colour' in a rule" },
		{ "allow:\n- {name: a.example, name: b.example}",
			"line 2, column 21: key 'name' a second time" },
		{ "allow: [{name: a.example, ports: []}]",
			"line 1, column 34: an empty list of ports" },
		{ "allow: [{name: a.example, protocol: icmp}]",
			"line 1, column 37: protocol 'icmp' must be tcp or udp" },
		{ "allow: [{name: a.example, protocol: udp, paths: [/]}]",
			"line 1, column 9: methods and paths are for tcp" },
		{ "allow: [{name: a.example, paths: [x]}]",
			"line 1, column 35: 'x' is not a path" },
		{ "allow: [{name: a.example, paths: [/a/../b]}]",
			"line 1, column 35: '/a/../b' is not" },
		{ "allow: [{name: a.example, methods: ['G T']}]",
			"line 1, column 37: 'G T' is not a method" },
		{ "allow: [{name: a.example, rate: fast}]",
			"line 1, column 33: rate 'fast' must be" },
		{ "allow: [{name: a.example, bytes: 0}]",
			"line 1, column 34: bytes '0' must be a size" },
		{ "allow: [{name: a.example, note: \"a\\nb\"}]",
			"line 1, column 33: a note is one line" },
		{ "deny: [{name: a.example, rate: 1M}]",
			"line 1, column 26: 'rate' has no meaning in a deny rule" },
		{ "limits: {on_limit: shout}",
			"line 1, column 20: on_limit 'shout' must be notify" },
		{ "boxes: [Ada]", "line 1, column 9: box 'Ada' is not a valid name" },
		{ "allowed_domains: [{name: a.example}]",
			"line 1, column 19: a rule must be a text" },
		{ "allow: &x [a.example]\ndeny: *x", "line 1, column 8: anchors are not accepted" },
		{ "allow: !!seq []", "line 1, column 8: tags are not accepted" },
		{ "allow: *x", "line 1, column 8: aliases are not accepted" },
		{ "allow: [[[[[[[[[[]]]]]]]]]]", "line 1, column 15: nested too deeply" },
		{ "{[a]: b}", "line 1, column 2: a key must be a text" },
		{ "version: 1\n---\nversion: 1", "line 2, column 1: more than one document" },
		{ "allow: [a.example]\ndeny: [a.example]",
			"line 1, column 9: a.example is allowed and denied: see deny #1 (line 2)" },
		{ "{\"allow\": [\"a.example\",}", "line 1, column 24: " },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct policy *policy = NULL;
		struct err err = ERR_INIT;

		if (policy_parse(cases[i].text, strlen(cases[i].text), &policy, NULL, &err) == 0)
			fail_msg("'%s' was accepted", cases[i].text);
		assert_null(policy);
		if (strncmp(err.message, cases[i].message, strlen(cases[i].message)) != 0)
			fail_msg("'%s' gives '%s'", cases[i].text, err.message);
	}
}

static void test_policy_tells_all_errors_at_once(void **state)
{
	static const char text[] = "allow: ['*', ok.example, 'a b']\nx: 1\npreset: y\n";
	struct policy_report report = POLICY_REPORT_INIT;
	struct policy *policy = NULL;

	(void)state;
	assert_int_equal(policy_parse(text, strlen(text), &policy, &report, NULL), -1);
	assert_int_equal(report.errors, 4);
	assert_int_equal(report.problems[1].column, 26);
	assert_int_equal(report.problems[3].line, 3);
	policy_report_done(&report);
}

static void test_policy_warns(void **state)
{
	static const struct {
		const char *text, *warning; /* NULL: none */
		unsigned line;
	} cases[] = {
		{ "allow: [a.example, b.example]", NULL, 0 },
		{ "allow: [a.example]\ndeny: ['*.example']",
			"a.example is never reached: denied by deny #1 (line 2)", 1 },
		{ "allow: ['*.b.example']\ndeny: [a.b.example]", NULL, 0 },
		{ "allow:\n- '*.b.example'\n- a.b.example:443",
			"a.b.example:443 changes nothing: already in "
			"allow #1 (line 2)",
			3 },
		{ "allow:\n- '*.b.example'\n- {name: a.b.example, rate: 1M}",
			"a.b.example never applies, nor do its limits: already in allow #1 (line "
			"2)",
			3 },
		{ "allow:\n- {name: a.b.example, rate: 1M}\n- '*.b.example'", NULL, 0 },
		{ "deny: [10.0.0.0/8, 10.1.0.0/16]",
			"10.1.0.0/16 changes nothing: already in deny #1", 1 },
		{ "allow: ['*.com']", "*.com is a whole top-level domain", 1 },
		{ "allow: [0.0.0.0/0]",
			"0.0.0.0/0 does not open the private and reserved ranges in it", 1 },
		{ "dns: {allow_private: [a.example]}",
			"a.example in allow_private has no effect: no rule allows it", 1 },
		{ "limits: {on_limit: stop}", "on_limit has no effect", 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct policy_report report = POLICY_REPORT_INIT;
		_cleanup_(policy_freep) struct policy *policy = NULL;

		assert_int_equal(
			policy_parse(cases[i].text, strlen(cases[i].text), &policy, &report, NULL),
			0);
		if (report.count != (cases[i].warning ? 1 : 0))
			fail_msg("'%s' gives %zu warnings", cases[i].text, report.count);
		if (cases[i].warning) {
			assert_false(report.problems[0].is_error);
			assert_int_equal(report.problems[0].line, cases[i].line);
			if (strncmp(report.problems[0].text, cases[i].warning,
				    strlen(cases[i].warning)) != 0)
				fail_msg("'%s' gives '%s'", cases[i].text, report.problems[0].text);
		}
		policy_report_done(&report);
	}
}

static void test_policy_flags(void **state)
{
	static const struct {
		const char *text, *normal; /* NULL: refused */
	} cases[] = {
		{ "github.com", "github.com" },
		{ "GitHub.COM.", "github.com" },
		{ "*.internal.example:443", "*.internal.example:443" },
		{ "10.1.0.0/16:5432/tcp", "10.1.0.0/16:5432" },
		{ "10.1.2.3", "10.1.2.3/32" },
		{ "10.1.2.3:53/udp", "10.1.2.3/32:53/udp" },
		{ "10.1.0.0/16/udp", "10.1.0.0/16/udp" },
		{ "[2001:db8::/32]:443", "[2001:db8::/32]:443" },
		{ "[2001:db8::1]", "[2001:db8::1/128]" },
		{ "2001:db8::/32", "[2001:db8::/32]" },
		{ "2001:DB8::1/udp", "[2001:db8::1/128]/udp" },
		{ "a.example:443,80,81,8000-8100,8050-8200", "a.example:80-81,443,8000-8200" },
		{ "a.example:1-65535", "a.example:1-65535" },
		{ "a.example/udp", "a.example/udp" },
		{ "_x.a.example", "_x.a.example" },
		{ "", NULL },
		{ ":443", NULL },
		{ "/tcp", NULL },
		{ "*", NULL },
		{ "*:443", NULL },
		{ "*.", NULL },
		{ "*.*", NULL },
		{ "*a.example", NULL },
		{ "a.example:", NULL },
		{ "a.example:443:80", NULL },
		{ "a.example:+1", NULL },
		{ "a.example: 1", NULL },
		{ "a.example:080", NULL },
		{ "a.example:1-", NULL },
		{ "a.example:1,,2", NULL },
		{ "a.example/TCP", NULL },
		{ "a.example/icmp", NULL },
		{ "a.example\n", NULL },
		{ "[a.example]:443", NULL },
		{ "[10.0.0.1]:443", NULL },
		{ "[2001:db8::/32", NULL },
		{ "[2001:db8::/32]443", NULL },
		{ "[]:443", NULL },
		{ "2001:db8::/129", NULL },
		{ "fe80::1%eth0", NULL },
		{ "10.0.0.0/08", NULL },
		{ "10.0.0.0/-1", NULL },
		{ "010.0.0.1", NULL },
		{ "0x7f.1", NULL },
		{ "1.2.3", NULL },
		{ "2130706433", NULL },
		{ "127.0.0.1:80", NULL },
		{ "[::1]:80", NULL },
		{ "64:ff9b::/96", NULL },
		{ "user@a.example", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		_cleanup_(policy_freep) struct policy *policy = policy_new();
		struct err err = ERR_INIT;
		int status = policy_add_flag(policy, false, cases[i].text, &err);
		_cleanup_free_ char *text = NULL;

		if (status != (cases[i].normal ? 0 : -1))
			fail_msg("'%s': %s", cases[i].text, status ? err.message : "accepted");
		assert_int_equal(policy->count, cases[i].normal ? 1 : 0);
		if (!cases[i].normal)
			continue;
		text = policy_rule_text(&policy->rules[0]);
		assert_string_equal(text, cases[i].normal);
	}
}

static void test_policy_normal_form_comes_back(void **state)
{
	static const char written[] =
		"# for tests\nversion: 1\npreset: dev\nallowed_domains: [a.example, "
		"'*.b.example']\n"
		"allow:\n  - c.example:443\n  - name: D.example.\n    methods: [post, GET, get]\n"
		"    paths: [/v1/]\n    rate: 10M/s\n    bytes: 1.5G\n    connections: 8\n"
		"    note: \"it's \\\"quoted\\\" \xf0\x9f\x98\x80\"\n"
		"  - {cidr: '2001:db8::/32', ports: [1-2, 9], protocol: [udp, tcp]}\n"
		"deny: [e.example, 'f.example:25/tcp']\nboxes: [ada, 'web:80']\n"
		"limits: {rate: 1G, on_limit: pause}\ndns: {allow_private: ['*.b.example']}\n";
	static const char normal[] =
		"{\"version\":1,\"preset\":\"dev\",\"allow\":["
		"{\"name\":\"a.example\",\"protocol\":\"tcp\"},"
		"{\"name\":\"*.b.example\",\"protocol\":\"tcp\"},"
		"{\"name\":\"c.example\",\"ports\":[443],\"protocol\":\"tcp\"},"
		"{\"name\":\"d.example\",\"ports\":[80],\"protocol\":\"tcp\",\"methods\":[\"GET\","
		"\"POST\"],"
		"\"paths\":[\"/v1/\"],\"rate\":10485760,\"connections\":8,\"bytes\":1610612736,"
		"\"note\":\"it's \\\"quoted\\\" \xf0\x9f\x98\x80\"},"
		"{\"cidr\":\"2001:db8::/"
		"32\",\"ports\":[\"1-2\",9],\"protocol\":[\"tcp\",\"udp\"]}],"
		"\"deny\":[{\"name\":\"e.example\",\"protocol\":[\"tcp\",\"udp\"]},"
		"{\"name\":\"f.example\",\"ports\":[25],\"protocol\":\"tcp\"}],"
		"\"boxes\":[\"ada\",\"web:80\"],\"limits\":{\"rate\":1073741824,\"on_limit\":"
		"\"pause\"},"
		"\"dns\":{\"allow_private\":[\"*.b.example\"]}}";
	_cleanup_(policy_freep) struct policy *first = parse(written), *second = parse(normal);
	_cleanup_(policy_freep) struct policy *other = parse("allow: [a.example]");
	_cleanup_free_ char *text = policy_text(first), *again = policy_text(second);

	(void)state;
	assert_string_equal(text, normal);
	assert_string_equal(again, normal);
	assert_true(policy_is_same(first, second));
	assert_false(policy_is_same(first, other));
}

static void test_policy_merges(void **state)
{
	_cleanup_(policy_freep) struct policy *base =
		parse("preset: dev\nallow: [a.example, b.example]\ndeny: [c.example]\n"
		      "limits: {rate: 1M, bytes: 1G, on_limit: stop}");
	_cleanup_(policy_freep) struct policy *more = policy_new(), *ret = NULL, *wanted = NULL;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(policy_add_flag(more, false, "a.example", &err), 0);
	assert_int_equal(policy_add_flag(more, false, "d.example:443", &err), 0);
	assert_int_equal(policy_add_flag(more, true, "b.example", &err), 0);
	assert_int_equal(policy_add_flag(more, false, "b.example", &err), -1);
	assert_int_equal(policy_add_box(more, "ada", &err), 0);
	more->preset = POLICY_NONE;
	more->set = POLICY_KEY_PRESET;
	more->limits.rate = 5;
	assert_int_equal(policy_merge(base, more, &ret, &err), 0);
	wanted = parse(
		"allow: [a.example, 'd.example:443']\ndeny: [c.example, b.example]\nboxes: [ada]\n"
		"limits: {rate: 5, bytes: 1G, on_limit: stop}");
	assert_true(policy_is_same(ret, wanted));
	assert_int_equal(policy_add_flag(more, false, "c.example", &err), 0);
	policy_free(ret);
	ret = NULL;
	assert_int_equal(policy_merge(base, more, &ret, &err), -1);
	assert_string_equal(err.message, "c.example is allowed and denied: see deny #1 (line 3)");
}

static void test_policy_is_bounded(void **state)
{
	struct buf text = BUF_INIT;
	struct policy *policy = NULL;
	struct err err = ERR_INIT;

	(void)state;
	buf_add_str(&text, "allow:\n");
	for (int i = 0; i <= POLICY_RULES_MAX; i++)
		buf_addf(&text, "- h%d.example\n", i);
	assert_int_equal(policy_parse(buf_str(&text), text.len, &policy, NULL, &err), -1);
	assert_non_null(strstr(err.message, "more than 2000 rules"));
	buf_done(&text);
	memset(buf_room(&text, POLICY_SIZE_MAX + 1), ' ', POLICY_SIZE_MAX + 1);
	buf_grew(&text, POLICY_SIZE_MAX + 1);
	assert_int_equal(policy_parse(buf_str(&text), text.len, &policy, NULL, &err), -1);
	assert_non_null(strstr(err.message, "more than"));
	buf_done(&text);
	buf_add_str(&text, "x:");
	for (int i = 0; i < 200000; i++)
		buf_add_str(&text, "[");
	assert_int_equal(policy_parse(buf_str(&text), text.len, &policy, NULL, &err), -1);
	buf_done(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_refuses_with_line_and_column),
		cmocka_unit_test(test_policy_tells_all_errors_at_once),
		cmocka_unit_test(test_policy_warns),
		cmocka_unit_test(test_policy_flags),
		cmocka_unit_test(test_policy_normal_form_comes_back),
		cmocka_unit_test(test_policy_merges),
		cmocka_unit_test(test_policy_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
