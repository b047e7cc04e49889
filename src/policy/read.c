/* read.c - makes a policy from the tree of a text
 *
 * Tables name the keys; each has a function that reads its value. An error is noted with its place
 * and reading continues, so that one run reports all errors. */
#include "policy/policy_internal.h"
#include "base/text.h"
#include <stdio.h>

struct reader {
	struct policy *policy;
	struct policy_report *report;
	struct policy_rule *rule; /* the one being read */
};

struct key {
	const char *name;
	void (*read)(struct reader *reader, const struct node *value);
	bool only_allow; /* has no meaning in a deny rule */
};

enum { KEYS_MAX = 64 };

/* ---- helpers -------------------------------------------------------------------------------- */

static void complain(struct reader *reader, const struct node *node, const struct err *err)
{
	report_add(reader->report, true, node->line, node->column, "%.180s%s%.120s", err->message,
		err->hint[0] ? "; " : "", err->hint);
}

#define fail(reader, node, ...) \
	report_add((reader)->report, true, (node)->line, (node)->column, __VA_ARGS__)

/* The value as text, NULL after a complaint. */
static const char *text_of(struct reader *reader, const struct node *node, const char *what)
{
	if (node->kind == NODE_TEXT && node->text[0])
		return node->text;
	fail(reader, node, "%s must be a text", what);
	return NULL;
}

static bool is_empty(const struct node *node)
{
	return node->kind == NODE_TEXT && node->plain &&
	       (!node->text[0] || !strcmp(node->text, "~") || !strcmp(node->text, "null"));
}

static const struct key *find_key(const struct key *keys, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

static bool is_repeated(const struct node *map, size_t at)
{
	for (size_t i = 0; i < at; i += 2)
		if (!strcmp(map->items[i]->text, map->items[at]->text))
			return true;
	return false;
}

static void read_map(struct reader *reader, const struct node *map, const struct key *keys,
	size_t count, const char *what)
{
	if (map->kind != NODE_MAP) {
		fail(reader, map, "%s must be a map", what);
		return;
	}
	if (map->count > 2 * KEYS_MAX) {
		fail(reader, map, "%s has more than %d keys", what, KEYS_MAX);
		return;
	}
	for (size_t i = 0; i < map->count; i += 2) {
		const struct node *name = map->items[i], *value = map->items[i + 1];
		const struct key *key = find_key(keys, count, name->text);

		if (!key)
			fail(reader, name, "unknown key '%.40s' in %s", name->text, what);
		else if (is_repeated(map, i))
			fail(reader, name, "key '%s' a second time", key->name);
		else if (key->only_allow && reader->rule && reader->rule->deny)
			fail(reader, name, "'%s' has no meaning in a deny rule", key->name);
		else if (!is_empty(value))
			key->read(reader, value);
	}
}

/* Reads one value or a list of values, each through add. */
static void read_texts(struct reader *reader, const struct node *node, const char *what,
	int (*add)(const char *text, struct policy_rule *rule, struct err *err))
{
	const struct node *one = node;
	size_t count = node->kind == NODE_LIST ? node->count : 1;

	if (!count)
		fail(reader, node, "an empty list of %s would fit nothing", what);
	for (size_t i = 0; i < count; i++) {
		const struct node *item = node->kind == NODE_LIST ? node->items[i] : one;
		struct err err = ERR_INIT;
		const char *text = text_of(reader, item, what);

		if (text && add(text, reader->rule, &err) < 0)
			complain(reader, item, &err);
	}
}

/* ---- limits --------------------------------------------------------------------------------- */

static void read_amount(struct reader *reader, const struct node *node, const char *what,
	bool a_second, uint64_t *ret)
{
	const char *text = text_of(reader, node, what);
	char copy[32] = "";
	struct err err = ERR_INIT;

	if (!text)
		return;
	snprintf(copy, sizeof copy, "%s", text);
	if (a_second && strlen(copy) > 2 && !strcmp(copy + strlen(copy) - 2, "/s"))
		copy[strlen(copy) - 2] = '\0';
	if (strlen(text) >= sizeof copy || parse_size(what, copy, 1, INT64_MAX, ret, &err) < 0)
		fail(reader, node, "%s '%.40s' must be a size%s, like 512M or 2G", what, text,
			a_second ? " a second" : "");
}

static void read_count(struct reader *reader, const struct node *node, uint64_t *ret)
{
	const char *text = text_of(reader, node, "connections");
	struct err err = ERR_INIT;

	if (text && parse_u64("connections", text, 1, 1000000, ret, &err) < 0)
		complain(reader, node, &err);
}

static struct policy_limits *limits_of(struct reader *reader)
{
	return reader->rule ? &reader->rule->limits : &reader->policy->limits;
}

static void read_rate(struct reader *reader, const struct node *node)
{
	read_amount(reader, node, "rate", true, &limits_of(reader)->rate);
}

static void read_bytes(struct reader *reader, const struct node *node)
{
	read_amount(reader, node, "bytes", false, &limits_of(reader)->bytes);
}

static void read_connections(struct reader *reader, const struct node *node)
{
	read_count(reader, node, &limits_of(reader)->connections);
}

static void read_on_limit(struct reader *reader, const struct node *node)
{
	const char *text = text_of(reader, node, "on_limit");

	for (unsigned i = 0; text && i < POLICY_ON_LIMIT_COUNT; i++)
		if (!strcmp(text, policy_on_limit_name(i))) {
			reader->policy->on_limit = i;
			reader->policy->set |= POLICY_KEY_ON_LIMIT;
			return;
		}
	if (text)
		fail(reader, node, "on_limit '%.40s' must be notify, pause or stop", text);
}

/* ---- one rule ------------------------------------------------------------------------------- */

static bool has_target(const struct policy_rule *rule)
{
	return rule->name || rule->cidr.base.family;
}

static void read_target(struct reader *reader, const struct node *node, const char *what,
	int (*parse)(const char *text, struct policy_rule *rule, struct err *err))
{
	const char *text = text_of(reader, node, what);
	struct err err = ERR_INIT;

	if (text && has_target(reader->rule))
		fail(reader, node, "a rule has either a name or a cidr");
	else if (text && parse(text, reader->rule, &err) < 0)
		complain(reader, node, &err);
}

static void read_name(struct reader *reader, const struct node *node)
{
	read_target(reader, node, "name", target_parse_name);
}

static void read_cidr(struct reader *reader, const struct node *node)
{
	read_target(reader, node, "cidr", target_parse_cidr);
}

static void read_ports(struct reader *reader, const struct node *node)
{
	read_texts(reader, node, "ports", target_add_ports);
}

static void read_protocol(struct reader *reader, const struct node *node)
{
	read_texts(reader, node, "protocol", target_add_protocol);
}

static void read_methods(struct reader *reader, const struct node *node)
{
	read_texts(reader, node, "methods", http_add_method);
}

static void read_paths(struct reader *reader, const struct node *node)
{
	read_texts(reader, node, "paths", http_add_path);
}

/* Refuses characters that the normal form would change, or that move a terminal's cursor: C0 and C1
 * controls, line separators, the byte order mark, the last two code points of the plane. */
static bool note_is_plain(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	for (; *p; p++) {
		if (*p < ' ' || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0))
			return false;
		if (*p == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9))
			return false;
		if (*p == 0xef &&
			((p[1] == 0xbb && p[2] == 0xbf) || (p[1] == 0xbf && p[2] >= 0xbe)))
			return false;
	}
	return true;
}

static void read_note(struct reader *reader, const struct node *node)
{
	const char *text = text_of(reader, node, "note");

	if (!text)
		return;
	if (strlen(text) > POLICY_NOTE_MAX || !note_is_plain(text))
		fail(reader, node, "a note is one line of at most %d bytes", POLICY_NOTE_MAX);
	else
		reader->rule->note = xstrdup(text);
}

static const struct key rule_keys[] = {
	{ "name", read_name, false },
	{ "cidr", read_cidr, false },
	{ "ports", read_ports, false },
	{ "port", read_ports, false },
	{ "protocol", read_protocol, false },
	{ "methods", read_methods, false },
	{ "paths", read_paths, false },
	{ "rate", read_rate, true },
	{ "connections", read_connections, true },
	{ "bytes", read_bytes, true },
	{ "note", read_note, false },
};

/* Checks that the keys of a rule fit together. */
static void check_rule(struct reader *reader, const struct node *node)
{
	const struct policy_rule *rule = reader->rule;
	const char *never = rule->cidr.base.family && !rule->deny ? cidr_never(&rule->cidr) : NULL;

	if (!has_target(rule))
		fail(reader, node, "a rule needs a name or a cidr");
	if (never)
		fail(reader, node, "this range is %s: no box reaches it", never);
	if (rule_has_http(rule) && (rule->protocols & POLICY_UDP))
		fail(reader, node, "methods and paths are for tcp");
}

static void read_rule(struct reader *reader, const struct node *node, enum policy_list list)
{
	struct policy_rule rule = { .deny = list == POLICY_LIST_DENY,
		.list = list,
		.line = node->line,
		.column = node->column };
	size_t errors = reader->report->errors;
	struct err err = ERR_INIT;
	bool box = list == POLICY_LIST_BOXES;

	reader->rule = &rule;
	if (node->kind != NODE_MAP || box || list == POLICY_LIST_DOMAINS)
		read_target(reader, node, box ? "a box" : "a rule",
			box ? target_parse_box : target_parse);
	else
		read_map(reader, node, rule_keys, ARRAY_LEN(rule_keys), "a rule");
	if (errors == reader->report->errors)
		check_rule(reader, node);
	reader->rule = NULL;
	if (errors != reader->report->errors)
		rule_done(&rule);
	else if (policy_add_rule(reader->policy, &rule, &err) < 0)
		complain(reader, node, &err);
}

/* ---- lists and the top ---------------------------------------------------------------------- */

static void read_rules(
	struct reader *reader, const struct node *node, enum policy_list list, const char *what)
{
	if (node->kind != NODE_LIST) {
		fail(reader, node, "%s must be a list", what);
		return;
	}
	/* One error is enough when there are too many rules. */
	if (reader->policy->count + node->count > POLICY_RULES_MAX) {
		fail(reader, node, "more than %d rules", POLICY_RULES_MAX);
		return;
	}
	for (size_t i = 0; i < node->count; i++)
		read_rule(reader, node->items[i], list);
}

static void read_allow(struct reader *reader, const struct node *node)
{
	read_rules(reader, node, POLICY_LIST_ALLOW, "allow");
}

static void read_deny(struct reader *reader, const struct node *node)
{
	read_rules(reader, node, POLICY_LIST_DENY, "deny");
}

static void read_domains(struct reader *reader, const struct node *node)
{
	read_rules(reader, node, POLICY_LIST_DOMAINS, "allowed_domains");
}

static void read_boxes(struct reader *reader, const struct node *node)
{
	read_rules(reader, node, POLICY_LIST_BOXES, "boxes");
}

static void read_version(struct reader *reader, const struct node *node)
{
	char version[16];

	snprintf(version, sizeof version, "%d", POLICY_VERSION);
	if (node->kind != NODE_TEXT || strcmp(node->text, version) != 0)
		fail(reader, node, "version must be %s", version);
}

static void read_preset(struct reader *reader, const struct node *node)
{
	const char *text = text_of(reader, node, "preset");
	struct err err = ERR_INIT;

	if (!text)
		return;
	if (policy_preset_parse(text, &reader->policy->preset, &err) < 0)
		complain(reader, node, &err);
	reader->policy->set |= POLICY_KEY_PRESET;
}

static const struct key limit_keys[] = {
	{ "rate", read_rate, false },
	{ "connections", read_connections, false },
	{ "bytes", read_bytes, false },
	{ "on_limit", read_on_limit, false },
};

static void read_limits(struct reader *reader, const struct node *node)
{
	read_map(reader, node, limit_keys, ARRAY_LEN(limit_keys), "limits");
}

static void read_private_name(struct reader *reader, const struct node *node)
{
	struct policy_rule rule = { .line = node->line, .column = node->column };
	const char *text = text_of(reader, node, "allow_private");
	struct err err = ERR_INIT;

	if (!text)
		return;
	if (reader->policy->private_count == POLICY_RULES_MAX) {
		fail(reader, node, "more than %d names", POLICY_RULES_MAX);
	} else if (target_parse_name(text, &rule, &err) < 0) {
		complain(reader, node, &err);
	} else {
		rule_finish(&rule);
		rules_add(&reader->policy->allow_private, &reader->policy->private_count, &rule);
	}
	rule_done(&rule);
}

static void read_allow_private(struct reader *reader, const struct node *node)
{
	if (node->kind != NODE_LIST) {
		fail(reader, node, "allow_private must be a list of names");
		return;
	}
	for (size_t i = 0; i < node->count; i++)
		read_private_name(reader, node->items[i]);
}

static const struct key dns_keys[] = {
	{ "allow_private", read_allow_private, false },
};

static void read_dns(struct reader *reader, const struct node *node)
{
	read_map(reader, node, dns_keys, ARRAY_LEN(dns_keys), "dns");
}

static const struct key top_keys[] = {
	{ "version", read_version, false },
	{ "preset", read_preset, false },
	{ "allow", read_allow, false },
	{ "deny", read_deny, false },
	{ "allowed_domains", read_domains, false },
	{ "boxes", read_boxes, false },
	{ "limits", read_limits, false },
	{ "dns", read_dns, false },
};

static int first_error(const struct policy_report *report, struct err *err)
{
	for (size_t i = 0; i < report->count; i++) {
		const struct policy_problem *problem = &report->problems[i];

		if (problem->is_error)
			return err_set(err, ERR_INVALID, "line %u, column %u: %s", problem->line,
				problem->column, problem->text);
	}
	return err_set(err, ERR_INVALID, "the policy has errors");
}

static void read_text(const char *text, size_t len, struct reader *reader)
{
	_cleanup_(node_freep) struct node *root = NULL;
	struct node where = { 0 };
	struct err why = ERR_INIT;

	if (node_parse(text, len, &root, &where.line, &where.column, &why) < 0)
		complain(reader, &where, &why);
	else
		read_map(reader, root, top_keys, ARRAY_LEN(top_keys), "a policy");
	/* The normal form can be longer than the text, but not by more than this factor. */
	if (!reader->report->errors && len > POLICY_SIZE_MAX / 8 &&
		policy_check_size(reader->policy, &why) < 0)
		report_add(reader->report, true, 1, 1, "%s", why.message);
	if (!reader->report->errors)
		policy_check(reader->policy, reader->report);
}

int policy_parse(const char *text, size_t len, struct policy **ret, struct policy_report *report,
	struct err *err)
{
	_cleanup_(policy_freep) struct policy *policy = policy_new();
	struct policy_report own = POLICY_REPORT_INIT;
	struct reader reader = { .policy = policy, .report = report ? report : &own };
	size_t before = reader.report->errors;
	int status = 0;

	read_text(text, len, &reader);
	if (reader.report->errors > before)
		status = first_error(reader.report, err);
	else
		*ret = steal_ptr(&policy);
	policy_report_done(&own);
	return status;
}
