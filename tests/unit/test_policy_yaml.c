/* test_policy_yaml.c - a policy shown as YAML is the same policy when it is read again */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "cli/cli.h"
#include "cli/policy_text.h"
#include <stdio.h>

static struct policy *parse(const char *text)
{
	struct policy *policy = NULL;
	struct err err = ERR_INIT;

	if (policy_parse(text, strlen(text), &policy, NULL, &err) < 0)
		fail_msg("%s in:\n%s", err.message, text);
	return policy;
}

/* Yours to free. */
static char *yaml_of(const struct policy *policy)
{
	_cleanup_json_ json_t *normal = policy_json(policy);

	return policy_yaml(normal);
}

static char *round_trip(const char *text)
{
	_cleanup_(policy_freep) struct policy *policy = parse(text), *again = NULL;
	char *yaml = yaml_of(policy);

	again = parse(yaml);
	if (!policy_is_same(policy, again))
		fail_msg("not the same:\n%s\n%s", text, yaml);
	return yaml;
}

static void test_policy_yaml_is_short_where_it_can_be(void **state)
{
	_cleanup_free_ char *yaml = round_trip(
		"preset: dev\n"
		"allow: [github.com, '*.example.com:443', '10.1.0.0/16:5432', "
		"'[2001:db8::/32]:80,8000-8099',\n"
		"  '2001:db8::/32', 'dns.example:53/udp']\n"
		"deny: [a.example.com, 'b.example.com:80/tcp']\nboxes: [database, 'web:8080']\n");

	(void)state;
	assert_string_equal(yaml, "version: 1\npreset: dev\nallow:\n"
				  "  - github.com\n"
				  "  - \"*.example.com:443\"\n"
				  "  - 10.1.0.0/16:5432\n"
				  "  - \"[2001:db8::/32]:80,8000-8099\"\n"
				  "  - 2001:db8::/32\n"
				  "  - dns.example:53/udp\n"
				  "deny:\n  - a.example.com\n  - b.example.com:80/tcp\n"
				  "boxes: [database, \"web:8080\"]\n");
}

static void test_policy_yaml_has_everything(void **state)
{
	_cleanup_free_ char *yaml = round_trip(
		"allow:\n"
		"  - name: api.example.com\n    ports: [80, 8000-8099]\n    methods: [GET, HEAD]\n"
		"    paths: [/v1/, \"/users/*/avatar\", '/a:b', '/x,y']\n    rate: 2M/s\n    "
		"connections: 8\n"
		"    bytes: 1G\n    note: \"read: only # \\\"now\\\"\"\n"
		"  - {name: both.example.com, protocol: [tcp, udp]}\n"
		"  - {name: odd.example.com, rate: 1500, note: 'null'}\n"
		"deny:\n  - {name: api.example.com, ports: 80, methods: [GET], paths: "
		"[/v1/secret]}\n"
		"limits: {rate: 20M, connections: 1024, bytes: 50G, on_limit: pause}\n"
		"dns: {allow_private: ['*.example.com', both.example.com]}\n");

	(void)state;
	assert_non_null(strstr(yaml, "    rate: 2M\n"));
	assert_non_null(strstr(yaml, "  connections: 1024\n"));
}

static void test_policy_yaml_of_nothing(void **state)
{
	_cleanup_free_ char *yaml = round_trip("preset: none\n");

	(void)state;
	assert_string_equal(yaml, "version: 1\npreset: none\n");
}

/* Notes may have any characters. */
static void test_policy_yaml_random_notes(void **state)
{
	static const char *const pieces[] = { ": ", "#", " ", "'", "\"", "\\", "-", "[", "]", "{",
		"}", "&", "*", "!", "|", ">", "%", "@", "`", "\xc3\xa9", "\xf0\x9f\x93\xa6", "null",
		"~", "a", "1" };
	unsigned seed = 5;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		_cleanup_json_ json_t *rule = json_pack("{s:s}", "name", "a.example.com");
		_cleanup_json_ json_t *given = NULL;
		_cleanup_free_ char *text = NULL, *yaml = NULL;
		struct buf note = BUF_INIT;

		buf_add_str(&note, "x");
		for (int i = rand_r(&seed) % 8; i > 0; i--)
			buf_add_str(&note, pieces[(size_t)rand_r(&seed) % ARRAY_LEN(pieces)]);
		json_object_set_new(rule, "note", json_string(buf_str(&note)));
		given = json_pack("{s:[O]}", "allow", rule);
		text = json_dumps(given, 0);
		yaml = round_trip(text);
		buf_done(&note);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_yaml_is_short_where_it_can_be),
		cmocka_unit_test(test_policy_yaml_has_everything),
		cmocka_unit_test(test_policy_yaml_of_nothing),
		cmocka_unit_test(test_policy_yaml_random_notes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
