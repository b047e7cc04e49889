/* fuzz_policy.c - any bytes as a policy, as a flag and as a flow
 *
 * What parses must print, parse again to the same, merge with itself to itself, and compare as the
 * same with itself. The first byte says what the rest is. Seeds are built in, as in fuzz_http.c. */
#include "base/json.h"
#include "policy/policy.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const seeds[] = {
	"pversion: 1\npreset: dev\nallow:\n  - a.example\n  - '*.b.example:443'\n  - "
	"10.1.0.0/16:5432/tcp\n",
	"pallow:\n- name: a.example\n  ports: [80, 8000-8100]\n  protocol: [tcp, udp]\n  note: "
	"\"x\\u00e9\"\n",
	"pallow: [{name: a.example, methods: [GET], paths: [/a/, '/b/*', '/**/c']}]\ndeny: "
	"[c.example]\n",
	"p{\"version\":1,\"allow\":[{\"cidr\":\"2001:db8::/"
	"32\",\"rate\":1,\"bytes\":2,\"connections\":3}]}",
	"pallowed_domains: [a.example]\nboxes: [ada, 'web:80']\nlimits: {rate: 1M/s, on_limit: "
	"stop}\n",
	"ppreset: open\ndns: {allow_private: ['*.x.example']}\ndeny: [1.2.3.4, "
	"'[2001:db8::/48]:1-9/udp']\n",
	"f[2001:db8::/32]:443,80-90/udp",
	"f*.internal.example:443",
	"q/a/%2e%2e/b;x/..;/c?d",
	"qWWW.Example.COM.",
};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	if (seed % 64 == 0 || !size) {
		const char *text = seeds[seed / 64 % ARRAY_LEN(seeds)];

		size = MIN(strlen(text), max_size);
		memcpy(data, text, size);
	}
	return LLVMFuzzerMutate(data, size, max_size);
}

static void ask(const struct policy *policy, const char *text)
{
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher = NULL;
	struct policy_flow flow = { .name = text, .method = "GET", .path = text, .port = 80 };
	const struct policy_rule *rule;

	if (policy_compile(policy, NULL, &matcher, NULL) < 0)
		__builtin_trap();
	if (policy_compare(matcher, matcher, &rule) != POLICY_SAME || rule)
		__builtin_trap();
	for (unsigned i = 0; i < 4 * POLICY_FLOW_KIND_COUNT; i++) {
		struct policy_verdict verdict;
		_cleanup_json_ json_t *told = NULL;

		flow.kind = i % POLICY_FLOW_KIND_COUNT;
		flow.name = i & 4 ? "a.example" : text;
		flow.seen = i & 8 ? text : NULL;
		flow.addr = (struct address){ i & 4 ? 4 : 6, { (uint8_t)text[0] } };
		verdict = policy_match(matcher, &flow);
		told = policy_explain_json(&flow, &verdict);
		if (!json_is_string(json_object_get(told, "why")))
			__builtin_trap();
	}
}

static void check_policy(const struct policy *policy, const char *text)
{
	_cleanup_(policy_freep) struct policy *again = NULL, *merged = NULL;
	_cleanup_free_ char *normal = policy_text(policy), *twice = NULL;

	if (policy_parse(normal, strlen(normal), &again, NULL, NULL) < 0 ||
		!policy_is_same(policy, again))
		__builtin_trap();
	twice = policy_text(again);
	if (strcmp(normal, twice) != 0)
		__builtin_trap();
	if (policy_merge(policy, again, &merged, NULL) < 0 || merged->count != policy->count)
		__builtin_trap();
	ask(policy, text);
}

static void check_report(const struct policy_report *report, bool ok)
{
	if (ok != !report->errors || report->count > POLICY_PROBLEMS_MAX)
		__builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(policy_freep) struct policy *policy = NULL;
	_cleanup_free_ char *text = NULL;

	if (!size)
		return 0;
	text = xstrndup((const char *)data + 1, size - 1);
	if (data[0] == 'f' || data[0] == 'q') {
		policy = policy_new();
		if (data[0] == 'f' && policy_add_flag(policy, size % 2, text, NULL) == 0)
			check_policy(policy, text);
		else
			ask(policy, text);
	} else {
		struct policy_report report = POLICY_REPORT_INIT;
		/* An exact copy: reading past its end is found out. */
		_cleanup_free_ char *copy = size > 1 ? xmemdup(data + 1, size - 1) : NULL;
		int status = policy_parse(copy ? copy : "", size - 1, &policy, &report, NULL);

		check_report(&report, status == 0);
		policy_report_done(&report);
		if (status == 0)
			check_policy(policy, text);
	}
	return 0;
}
