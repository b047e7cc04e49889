/* preset.c - predefined sets of rules
 *
 * A preset's rules come after those of the policy, so that limits written there take precedence.
 * The image names the hosts of package managers; the git hosts are the only names in this
 * program. */
#include "policy/policy_internal.h"

static const struct {
	const char *name, *text;
	bool packages, git, any;
} presets[] = {
	[POLICY_NONE] = { "none", "nothing but what rules allow", false, false, false },
	[POLICY_PACKAGES] = { "packages", "the hosts that the image's package managers use", true,
		false, false },
	[POLICY_DEV] = { "dev", "packages, and the common git hosts", true, true, false },
	[POLICY_OPEN] = { "open", "every name and every public address; nothing private", false,
		false, true },
};
static_assert(ARRAY_LEN(presets) == POLICY_PRESET_COUNT, "every preset has a line");

static const char *const git_hosts[] = {
	"github.com:22,80,443",
	"ssh.github.com:443",
	"api.github.com:443",
	"codeload.github.com:443",
	"raw.githubusercontent.com:443",
	"objects.githubusercontent.com:443",
	"release-assets.githubusercontent.com:443",
	"gitlab.com:22,80,443",
	"bitbucket.org:22,80,443",
	"codeberg.org:22,80,443",
	"git.sr.ht:22,80,443",
};

const char *policy_preset_name(enum policy_preset preset)
{
	return presets[preset].name;
}

const char *policy_preset_text(enum policy_preset preset)
{
	return presets[preset].text;
}

int policy_preset_parse(const char *text, enum policy_preset *ret, struct err *err)
{
	for (unsigned i = 0; i < POLICY_PRESET_COUNT; i++)
		if (!strcmp(text, presets[i].name)) {
			*ret = i;
			return 0;
		}
	return err_set(
		err, ERR_INVALID, "preset '%.40s' must be none, packages, dev or open", text);
}

static const char *const on_limit_names[] = {
	[POLICY_NOTIFY] = "notify",
	[POLICY_PAUSE] = "pause",
	[POLICY_STOP] = "stop",
};
static_assert(ARRAY_LEN(on_limit_names) == POLICY_ON_LIMIT_COUNT, "every answer has a name");

const char *policy_on_limit_name(enum policy_on_limit on_limit)
{
	return on_limit_names[on_limit];
}

static void add(struct policy *policy, struct policy_rule *rule)
{
	rule->list = POLICY_LIST_PRESET;
	rule_finish(rule);
	rule->number = policy->count && policy->rules[policy->count - 1].list == POLICY_LIST_PRESET
			       ? policy->rules[policy->count - 1].number + 1
			       : 1;
	rules_add(&policy->rules, &policy->count, rule);
}

/* An image is hostile: it may name hosts, but no ranges and no wildcards. */
static void add_package_host(struct policy *policy, const char *text)
{
	struct policy_rule rule = { 0 };

	if (target_parse(text, &rule, NULL) == 0 && rule.target == POLICY_NAME && !rule.protocols)
		add(policy, &rule);
	else
		rule_done(&rule);
}

void preset_expand(struct policy *policy, const char *const *package_hosts)
{
	struct policy_rule any = { .target = POLICY_ANY, .protocols = POLICY_TCP | POLICY_UDP };

	if (presets[policy->preset].packages)
		for (size_t i = 0; package_hosts && package_hosts[i] && i < POLICY_HOSTS_MAX; i++)
			add_package_host(policy, package_hosts[i]);
	for (size_t i = 0; presets[policy->preset].git && i < ARRAY_LEN(git_hosts); i++) {
		struct policy_rule rule = { 0 };
		int status = target_parse(git_hosts[i], &rule, NULL);

		assert(status == 0);
		(void)status;
		add(policy, &rule);
	}
	if (presets[policy->preset].any)
		add(policy, &any);
}
