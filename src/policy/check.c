/* check.c - finds mistakes in a valid policy: conflicts, rules that never decide, surprises
 *
 * The same destination in allow and deny is an error: one of them is a mistake, and nobody can tell
 * which. Everything else is a warning, because it is safe: deny wins. */
#include "policy/policy_internal.h"
#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>

/* Quoted text may have been cut within a character, or contain terminal control characters. */
static void make_printable(char *text)
{
	bool whole = text_is_utf8(text, strlen(text));

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < ' ' || c == 0x7f || (c >= 0x80 && !whole))
			*text = '?';
	}
}

void report_add(struct policy_report *report, bool is_error, unsigned line, unsigned column,
	const char *fmt, ...)
{
	struct policy_problem *problem;
	va_list args;

	report->errors += is_error;
	if (report->count == POLICY_PROBLEMS_MAX)
		return;
	if (!report->problems)
		report->problems = xnewn(struct policy_problem, POLICY_PROBLEMS_MAX);
	problem = &report->problems[report->count++];
	*problem = (struct policy_problem){ .is_error = is_error, .line = line, .column = column };
	va_start(args, fmt);
	vsnprintf(problem->text, sizeof problem->text, fmt, args);
	va_end(args);
	make_printable(problem->text);
}

void policy_report_done(struct policy_report *report)
{
	free(report->problems);
	*report = (struct policy_report)POLICY_REPORT_INIT;
}

static void tell(struct policy_report *report, bool is_error, const struct policy_rule *rule,
	const char *what, const struct policy_rule *other)
{
	_cleanup_free_ char *text = policy_rule_text(rule);
	_cleanup_free_ char *place = other ? policy_rule_place(other) : xstrdup("");

	report_add(report, is_error, rule->line, rule->column, "%.120s %s%s%s", text, what,
		other ? " " : "", place);
}

/* Whether other denies what rule allows, or already says the same. */
static bool makes_idle(const struct policy_rule *other, void *arg)
{
	const struct policy_rule *rule = arg;
	bool denies = !rule->deny && other->deny;
	bool repeats = other < rule && rule->deny == other->deny;

	return (denies || repeats) && rule_covers(other, rule);
}

/* Reports the first problem of rule i; one is enough. */
static void check_rule(const struct policy *policy, const struct cover_index *index, size_t i,
	struct policy_report *report)
{
	const struct policy_rule *rule = &policy->rules[i], *other;
	bool limited = rule->limits.rate || rule->limits.connections || rule->limits.bytes, mirror;
	size_t found = cover_index_first(index, rule, makes_idle, &policy->rules[i]);

	if (found == policy->count)
		return;
	other = &policy->rules[found];
	mirror = rule_is_mirror(rule, other);
	if (!rule->deny && other->deny)
		tell(report, mirror, rule,
			mirror ? "is allowed and denied: see" : "is never reached: denied by",
			other);
	else
		tell(report, false, rule,
			limited ? "never applies, nor do its limits: already in"
				: "changes nothing: already in",
			other);
}

static void check_width(const struct policy_rule *rule, struct policy_report *report)
{
	if (rule->deny)
		return;
	if (rule->target == POLICY_WILDCARD && !strchr(rule->name, '.'))
		tell(report, false, rule, "is a whole top-level domain", NULL);
	if (rule->target == POLICY_CIDR && cidr_has_closed(&rule->cidr))
		tell(report, false, rule, "does not open the private and reserved ranges in it",
			NULL);
}

/* A name in dns.allow_private that no rule allows to resolve. */
static void check_private(
	const struct policy *policy, const struct policy_rule *name, struct policy_report *report)
{
	if (policy->preset != POLICY_NONE)
		return;
	for (size_t i = 0; i < policy->count; i++) {
		const struct policy_rule *rule = &policy->rules[i];
		bool named = rule->target == POLICY_NAME || rule->target == POLICY_WILDCARD;

		if (!rule->deny && named &&
			(!strcmp(rule->name, name->name) || name_is_below(rule->name, name->name) ||
				name_is_below(name->name, rule->name)))
			return;
	}
	tell(report, false, name, "in allow_private has no effect: no rule allows it", NULL);
}

void policy_check(const struct policy *policy, struct policy_report *report)
{
	_cleanup_(cover_index_freep) struct cover_index *index = cover_index_new(policy);

	for (size_t i = 0; i < policy->count; i++) {
		check_rule(policy, index, i, report);
		check_width(&policy->rules[i], report);
	}
	for (size_t i = 0; i < policy->private_count; i++)
		check_private(policy, &policy->allow_private[i], report);
	if (policy->on_limit != POLICY_NOTIFY && !policy->limits.bytes && !policy->limits.rate &&
		!policy->limits.connections)
		report_add(report, false, 0, 0, "on_limit has no effect: limits are not set");
}
