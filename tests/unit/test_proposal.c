/* test_proposal.c - what was seen becomes the smallest policy that allows it, as text that can be
 * read again */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "core/boxnet/proposal.h"
#include "policy/policy.h"
#include <stdio.h>

static json_t *make(const char *text)
{
	_cleanup_json_ json_t *seen = json_loads(text, 0, NULL);
	struct err err = ERR_INIT;
	json_t *proposal;

	assert_non_null(seen);
	proposal = proposal_make(seen, &err);
	if (!proposal)
		fail_msg("proposal_make: %s", err.message);
	return proposal;
}

static const char *text_of(json_t *proposal)
{
	return json_string_value(json_object_get(proposal, "text"));
}

static void expect_text(json_t *proposal, const char *wanted)
{
	if (!strstr(text_of(proposal), wanted))
		fail_msg("'%s' is not in:\n%s", wanted, text_of(proposal));
}

static struct policy *parse(json_t *proposal)
{
	const char *text = text_of(proposal);
	struct policy *policy = NULL;
	struct err err = ERR_INIT;

	if (policy_parse(text, strlen(text), &policy, NULL, &err) < 0)
		fail_msg("%s in\n%s", err.message, text);
	return policy;
}

static void test_proposal_lists_what_was_used_by_use(void **state)
{
	_cleanup_json_ json_t *proposal = make(
		"{\"since\":\"2026-01-02T03:04:05.678Z\",\"destinations\":["
		"{\"name\":\"rare.example.com\",\"port\":443,\"protocol\":\"tcp\",\"connections\":"
		"1,"
		"\"bytes_in\":10,\"bytes_out\":10},"
		"{\"name\":\"often.example.com\",\"port\":443,\"protocol\":\"tcp\",\"connections\":"
		"7,"
		"\"bytes_in\":2048,\"bytes_out\":0},"
		"{\"name\":\"OFTEN.example.com.\",\"port\":80,\"protocol\":\"tcp\",\"connections\":"
		"2},"
		"{\"name\":\"time.example.net\",\"port\":123,\"protocol\":\"udp\",\"connections\":"
		"3},"
		"{\"name\":\"asked.example.com\",\"questions\":4,\"connections\":0,\"port\":0},"
		"{\"name\":\"\",\"address\":\"2001:db8::1\",\"port\":22,\"protocol\":\"tcp\","
		"\"connections\":2}]}");
	_cleanup_(policy_freep) struct policy *policy = parse(proposal);

	(void)state;
	expect_text(proposal, "allow:\n  - often.example.com:80,443  # 9 connections, 2K\n"
			      "  - time.example.net:123/udp  # 3 connections, 0\n"
			      "  - \"[2001:db8::1]:22\"  # 2 connections, 0\n"
			      "  - rare.example.com:443  # 1 connection, 20\n");
	expect_text(proposal, "# Asked for, but never connected to:\n#   asked.example.com\n");
	assert_int_equal(policy->preset, POLICY_NONE);
	assert_int_equal(policy->count, 4);
	assert_int_equal(
		json_array_size(json_object_get(json_object_get(proposal, "policy"), "allow")), 4);
	assert_string_equal(
		json_string_value(json_object_get(proposal, "since")), "2026-01-02T03:04:05.678Z");
}

static void test_proposal_suggests_wildcards_only_in_words(void **state)
{
	_cleanup_json_ json_t *proposal =
		make("{\"destinations\":["
		     "{\"name\":\"a.cdn.example.com\",\"port\":443,\"connections\":1},"
		     "{\"name\":\"b.cdn.example.com\",\"port\":443,\"connections\":1},"
		     "{\"name\":\"c.cdn.example.com\",\"port\":443,\"connections\":1},"
		     "{\"name\":\"one.example.org\",\"port\":443,\"connections\":1}]}");
	_cleanup_(policy_freep) struct policy *policy = parse(proposal);

	(void)state;
	expect_text(proposal, "# 3 names lie below cdn.example.com; \"*.cdn.example.com\" would");
	assert_null(strstr(text_of(proposal), "below example.org"));
	for (size_t i = 0; i < policy->count; i++)
		assert_int_equal(policy->rules[i].target, POLICY_NAME);
}

/* The gate counts an attempt before it knows where the name leads. */
static void test_proposal_tells_what_was_refused(void **state)
{
	_cleanup_json_ json_t *proposal =
		make("{\"destinations\":[{\"name\":\"db.internal.example\",\"port\":5432,"
		     "\"protocol\":\"tcp\",\"connections\":1}],\"private\":["
		     "{\"name\":\"db.internal.example\",\"address\":\"10.1.2.3\",\"port\":5432,"
		     "\"protocol\":\"tcp\"}]}");
	_cleanup_(policy_freep) struct policy *policy = parse(proposal);

	(void)state;
	expect_text(proposal, "#   db.internal.example (10.1.2.3) port 5432/tcp\n");
	assert_int_equal(policy->count, 0);
}

/* Names come from inside a box: none of them may become YAML. */
static void test_proposal_hostile_names_stay_out(void **state)
{
	_cleanup_json_ json_t *proposal = make(
		"{\"destinations\":["
		"{\"name\":\"a.example.com\\npreset: open\",\"port\":443,\"connections\":1},"
		"{\"name\":\"*.example.com\",\"port\":443,\"connections\":1},"
		"{\"name\":\"\",\"address\":\"0.0.0.0/0\",\"port\":443,\"connections\":1},"
		"{\"name\":7,\"address\":[],\"port\":\"x\",\"connections\":-1},"
		"{\"name\":\"b.example.com\",\"port\":99999,\"connections\":1}],"
		"\"private\":[{\"name\":\"x\\ny\"},17,{\"address\":\"10.0.0.1\",\"port\":-1}]}");
	_cleanup_(policy_freep) struct policy *policy = parse(proposal);

	(void)state;
	assert_int_equal(policy->preset, POLICY_NONE);
	assert_int_equal(policy->count, 1);
	assert_string_equal(policy->rules[0].name, "b.example.com");
	expect_text(proposal, "# 4 more were left out");
}

static void test_proposal_is_bounded(void **state)
{
	_cleanup_json_ json_t *seen = json_pack("{s:[]}", "destinations"), *proposal = NULL;
	json_t *list = json_object_get(seen, "destinations");
	struct err err = ERR_INIT;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		char name[64];

		snprintf(name, sizeof name, "h%d.example.com", i % 2500);
		json_array_append_new(list, json_pack("{s:s,s:i,s:i}", "name", name, "port",
						    i % 60000 + 1, "connections", 1));
	}
	for (int i = 1; i < 100; i++)
		json_array_append_new(list, json_pack("{s:s,s:i,s:i}", "name", "many.example.com",
						    "port", i, "connections", 1));
	proposal = proposal_make(seen, &err);
	assert_non_null(proposal);
	assert_int_equal(
		json_array_size(json_object_get(json_object_get(proposal, "policy"), "allow")),
		1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_proposal_lists_what_was_used_by_use),
		cmocka_unit_test(test_proposal_suggests_wildcards_only_in_words),
		cmocka_unit_test(test_proposal_tells_what_was_refused),
		cmocka_unit_test(test_proposal_hostile_names_stay_out),
		cmocka_unit_test(test_proposal_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
