/* target.c - destinations as people write them
 *
 *   github.com   *.internal.example:443   10.1.0.0/16:5432/tcp   [2001:db8::/32]:80,8000-8099
 *   dns.example:53/udp
 *
 * The end is read first: "/tcp" or "/udp", then ":PORTS", and what is left is a name or a range. An
 * IPv6 range with ports stands in brackets, as in URLs. */
#include "policy/policy_internal.h"
#include "base/text.h"

enum { TARGET_LEN_MAX = 600 };

/* ---- ports and protocols -------------------------------------------------------------------- */

static int parse_port(const char *text, size_t len, uint16_t *ret, struct err *err)
{
	char digits[8] = "";
	uint64_t port = 0;

	if (len < sizeof digits)
		memcpy(digits, text, len);
	if (parse_u64("port", digits, 1, 65535, &port, NULL) < 0 || digits[0] == '0')
		return err_set(
			err, ERR_INVALID, "'%.*s' is not a port", (int)MIN(len, (size_t)40), text);
	*ret = (uint16_t)port;
	return 0;
}

static int parse_range(const char *text, size_t len, struct policy_ports *ret, struct err *err)
{
	const char *dash = memchr(text, '-', len);
	size_t first = dash ? (size_t)(dash - text) : len;

	if (parse_port(text, first, &ret->low, err) < 0)
		return -1;
	ret->high = ret->low;
	if (dash && parse_port(dash + 1, len - first - 1, &ret->high, err) < 0)
		return -1;
	if (ret->high < ret->low)
		return err_set(err, ERR_INVALID, "ports %u-%u: the first is higher than the last",
			ret->low, ret->high);
	return 0;
}

/* Keeps the list sorted and joins adjacent ranges. */
static int add_range(struct policy_rule *rule, struct policy_ports range, struct err *err)
{
	size_t from = 0, to;

	while (from < rule->port_count && rule->ports[from].high + 1 < range.low)
		from++;
	for (to = from; to < rule->port_count && rule->ports[to].low <= range.high + 1; to++) {
		range.low = MIN(range.low, rule->ports[to].low);
		range.high = MAX(range.high, rule->ports[to].high);
	}
	if (from == to && rule->port_count == POLICY_PORTS_MAX)
		return err_set(err, ERR_INVALID, "more than %d ports or ranges of ports",
			POLICY_PORTS_MAX);
	if (from == to)
		xgrow(rule->ports, rule->port_count + 1);
	memmove(rule->ports + from + 1, rule->ports + to,
		(rule->port_count - to) * sizeof *rule->ports);
	rule->port_count = rule->port_count - (to - from) + 1;
	rule->ports[from] = range;
	return 0;
}

int target_add_ports(const char *text, struct policy_rule *rule, struct err *err)
{
	for (;;) {
		size_t len = strcspn(text, ",");
		struct policy_ports range = { 0 };

		if (parse_range(text, len, &range, err) < 0 || add_range(rule, range, err) < 0)
			return -1;
		if (!text[len])
			return 0;
		text += len + 1;
	}
}

int target_add_protocol(const char *text, struct policy_rule *rule, struct err *err)
{
	if (!strcmp(text, "tcp"))
		rule->protocols |= POLICY_TCP;
	else if (!strcmp(text, "udp"))
		rule->protocols |= POLICY_UDP;
	else
		return err_set(err, ERR_INVALID, "protocol '%.40s' must be tcp or udp", text);
	return 0;
}

void target_print_ports(const struct policy_rule *rule, struct buf *out)
{
	for (size_t i = 0; i < rule->port_count; i++) {
		buf_addf(out, "%s%u", i ? "," : "", rule->ports[i].low);
		if (rule->ports[i].high > rule->ports[i].low)
			buf_addf(out, "-%u", rule->ports[i].high);
	}
}

/* ---- names and ranges ----------------------------------------------------------------------- */

int target_parse_name(const char *text, struct policy_rule *rule, struct err *err)
{
	bool wildcard = text_has_prefix(text, "*.");
	const char *name = wildcard ? text + 2 : text;
	char normal[POLICY_NAME_SIZE];
	const char *problem;

	if (!strcmp(text, "*") || !strcmp(text, "*.")) {
		err_set(err, ERR_INVALID, "'*' would match everything");
		return err_hint(err, "use the preset open for that (--net open)");
	}
	if (strchr(name, '*')) {
		err_set(err, ERR_INVALID, "'%.80s': '*' must be the whole first label", text);
		return err_hint(err, "*.example.com is every name below example.com");
	}
	problem = policy_name_normalise(name, normal);
	if (problem)
		return err_set(err, ERR_INVALID, "name '%.80s' %s", text, problem);
	if (!strcmp(normal, "box") || name_is_below(normal, "box")) {
		err_set(err, ERR_INVALID, "'%.80s': names that end in .box are other boxes", text);
		return err_hint(err, "list them under boxes:");
	}
	free(rule->name);
	rule->name = xstrdup(normal);
	rule->target = wildcard ? POLICY_WILDCARD : POLICY_NAME;
	return 0;
}

int target_parse_cidr(const char *text, struct policy_rule *rule, struct err *err)
{
	if (policy_cidr_parse(text, &rule->cidr, err) < 0)
		return -1;
	rule->target = POLICY_CIDR;
	return 0;
}

/* Cuts "/tcp" and then ":PORTS" off the end of text. */
static int cut_protocol(char *text, struct policy_rule *rule, struct err *err)
{
	char *slash = strrchr(text, '/');

	/* A number after the slash is a prefix length. */
	if (!slash || (slash[1] >= '0' && slash[1] <= '9'))
		return 0;
	if (target_add_protocol(slash + 1, rule, NULL) < 0) {
		err_set(err, ERR_INVALID, "'%.80s': after '/' comes tcp or udp", text);
		return err_hint(err, "paths of HTTP are for policy files: name, ports, paths");
	}
	*slash = '\0';
	return 0;
}

static int cut_ports(char *text, struct policy_rule *rule, struct err *err)
{
	char *colon = strrchr(text, ':');

	if (!colon)
		return 0;
	*colon = '\0';
	if (strchr(text, ':')) {
		err_set(err, ERR_INVALID, "'%.80s:%.20s' is not a destination", text, colon + 1);
		return err_hint(err, "an IPv6 range with ports is written [2001:db8::/32]:443");
	}
	return target_add_ports(colon + 1, rule, err);
}

static int parse_bracketed(char *text, struct policy_rule *rule, struct err *err)
{
	char *end = strchr(text, ']');

	if (!end || !strchr(text, ':') || strchr(text, ':') > end)
		return err_set(err, ERR_INVALID, "'%.80s': brackets hold an IPv6 range", text);
	*end = '\0';
	if (target_parse_cidr(text + 1, rule, err) < 0)
		return -1;
	if (!end[1])
		return 0;
	if (end[1] != ':')
		return err_set(err, ERR_INVALID, "after ']' comes ':' and ports");
	return target_add_ports(end + 2, rule, err);
}

/* An IPv6 address or range without brackets, and so without ports. */
static bool is_bare_v6(const char *text)
{
	size_t len = strcspn(text, "/");
	char host[POLICY_ADDR_SIZE];
	struct address addr;

	if (len >= sizeof host || strchr(text + len, ':'))
		return false;
	memcpy(host, text, len);
	host[len] = '\0';
	return policy_addr_parse(host, &addr, NULL) == 0 && addr.family == 6;
}

static bool looks_like_range(const char *text)
{
	return strchr(text, '/') || !text[strspn(text, "0123456789.")];
}

int target_parse(const char *text, struct policy_rule *rule, struct err *err)
{
	char copy[TARGET_LEN_MAX + 1];

	if (strlen(text) > TARGET_LEN_MAX)
		return err_set(
			err, ERR_INVALID, "a destination of more than %d bytes", TARGET_LEN_MAX);
	if (strstr(text, "://")) {
		err_set(err, ERR_INVALID, "'%.80s' is a URL", text);
		return err_hint(err, "write the host and its port: example.com:443");
	}
	strcpy(copy, text);
	if (cut_protocol(copy, rule, err) < 0)
		return -1;
	if (copy[0] == '[')
		return parse_bracketed(copy, rule, err);
	if (is_bare_v6(copy))
		return target_parse_cidr(copy, rule, err);
	if (cut_ports(copy, rule, err) < 0)
		return -1;
	return looks_like_range(copy) ? target_parse_cidr(copy, rule, err)
				      : target_parse_name(copy, rule, err);
}

int target_parse_box(const char *text, struct policy_rule *rule, struct err *err)
{
	char copy[TARGET_LEN_MAX + 1];
	size_t len;

	if (strlen(text) > TARGET_LEN_MAX)
		return err_set(err, ERR_INVALID, "a name of more than %d bytes", TARGET_LEN_MAX);
	strcpy(copy, text);
	if (cut_protocol(copy, rule, err) < 0 || cut_ports(copy, rule, err) < 0)
		return -1;
	len = strlen(copy);
	if (len > 4 && !strcmp(copy + len - 4, ".box"))
		copy[len - 4] = '\0';
	if (name_check("box", copy, err) < 0)
		return -1;
	rule->name = xasprintf("%s.box", copy);
	rule->target = POLICY_BOX;
	return 0;
}

/* Takes ownership of rule. */
static int add_written(struct policy *policy, struct policy_rule *rule, struct err *err)
{
	const char *never =
		!rule->deny && rule->target == POLICY_CIDR ? cidr_never(&rule->cidr) : NULL;
	_cleanup_free_ char *text = NULL;

	rule_finish(rule);
	if (!never && rule_find_mirror(policy, rule, err) == 0)
		return policy_add_rule(policy, rule, err);
	text = policy_rule_text(rule);
	if (never)
		err_set(err, ERR_INVALID, "%.200s is %s: no box reaches it", text, never);
	rule_done(rule);
	return -1;
}

int policy_add_flag(struct policy *policy, bool deny, const char *text, struct err *err)
{
	struct policy_rule rule = { .deny = deny, .list = POLICY_LIST_FLAG };

	if (target_parse(text, &rule, err) == 0)
		return add_written(policy, &rule, err);
	rule_done(&rule);
	return -1;
}

int policy_add_box(struct policy *policy, const char *text, struct err *err)
{
	struct policy_rule rule = { .list = POLICY_LIST_BOXES };

	if (target_parse_box(text, &rule, err) == 0)
		return add_written(policy, &rule, err);
	rule_done(&rule);
	return -1;
}
