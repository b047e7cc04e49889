/* match.c - decides on a flow
 *
 * One hash table holds all destinations: names, wildcards by what follows "*.", and ranges by their
 * prefix. Rules with the same destination are chained in the order of the file. A name is hashed
 * from its end, so that one pass over it gives the hash of every parent domain; an address is
 * looked up once for each prefix length that some rule has. All rules found are compared with the
 * flow, and the first of each kind is kept: see policy.h for the order. */
#include "policy/policy_internal.h"

enum { NO_RULE = UINT32_MAX };

struct slot {
	uint64_t hash;
	uint32_t first; /* rule, or NO_RULE: free */
};

/* For each rule, the next one with its destination; and enough to skip it without reading the
 * rule. */
struct link {
	uint32_t next;
	uint16_t low, high; /* all its ports are between these */
	uint8_t protocols;
	bool deny;
};

struct policy_matcher {
	struct policy *policy; /* with the rules of its preset */
	struct slot *slots;    /* a power of two, half of them free */
	size_t mask;
	struct link *links;
	uint8_t bits[2][129]; /* lengths of prefixes in use, v4 and v6 */
	size_t bits_count[2];
	unsigned wild_labels; /* labels of the longest wildcard: longer parent domains are not
			       * looked up */
	const struct policy_rule *any; /* preset open */
	struct address_range *host;
	size_t host_count;
};

/* ---- the table ------------------------------------------------------------------------------ */

static const uint64_t HASH_START = 0xcbf29ce484222325, HASH_PRIME = 0x100000001b3;

static inline uint64_t hash_byte(uint64_t hash, uint8_t byte)
{
	return (hash ^ byte) * HASH_PRIME;
}

/* The low bits choose the slot, and the low bits of a product depend only on the low bits of its
 * factors. */
static inline uint64_t hash_end(uint64_t hash, uint8_t kind)
{
	hash = hash_byte(hash, kind);
	return hash ^ hash >> 32;
}

static uint64_t hash_cidr(const struct address *addr, unsigned bits)
{
	uint64_t hash = hash_byte(HASH_START, (uint8_t)(bits + (addr->family == 4 ? 0 : 64)));

	for (unsigned i = 0; i < (bits + 7) / 8; i++) {
		unsigned rest = bits - 8 * i;

		hash = hash_byte(hash,
			rest >= 8 ? addr->bytes[i] : addr->bytes[i] & (uint8_t)(0xff00 >> rest));
	}
	return hash_end(hash, POLICY_CIDR);
}

static uint8_t kind_of(const struct policy_rule *rule)
{
	return rule->target == POLICY_BOX ? POLICY_NAME : (uint8_t)rule->target;
}

static uint64_t hash_rule(const struct policy_rule *rule)
{
	uint64_t hash = HASH_START;

	if (rule->target == POLICY_CIDR)
		return hash_cidr(&rule->cidr.base, rule->cidr.bits);
	for (size_t i = strlen(rule->name); i--;)
		hash = hash_byte(hash, (uint8_t)rule->name[i]);
	return hash_end(hash, kind_of(rule));
}

static bool same_target(const struct policy_rule *a, const struct policy_rule *b)
{
	if (kind_of(a) != kind_of(b))
		return false;
	return a->target == POLICY_CIDR ? !memcmp(&a->cidr, &b->cidr, sizeof a->cidr)
					: !strcmp(a->name, b->name);
}

static void use_bits(struct policy_matcher *matcher, const struct address_range *cidr)
{
	unsigned family = cidr->base.family == 6;

	for (size_t i = 0; i < matcher->bits_count[family]; i++)
		if (matcher->bits[family][i] == cidr->bits)
			return;
	matcher->bits[family][matcher->bits_count[family]++] = cidr->bits;
}

static unsigned count_labels(const char *name)
{
	unsigned count = 1;

	for (; *name; name++)
		count += *name == '.';
	return count;
}

static void index_rule(struct policy_matcher *matcher, uint32_t number)
{
	const struct policy_rule *rules = matcher->policy->rules, *rule = &rules[number];
	uint64_t hash;
	size_t at;

	if (rule->target == POLICY_ANY) {
		matcher->any = rule;
		return;
	}
	if (rule->target == POLICY_CIDR)
		use_bits(matcher, &rule->cidr);
	if (rule->target == POLICY_WILDCARD)
		matcher->wild_labels = MAX(matcher->wild_labels, count_labels(rule->name));
	hash = hash_rule(rule);
	at = hash & matcher->mask;
	while (matcher->slots[at].first != NO_RULE &&
		!(matcher->slots[at].hash == hash &&
			same_target(&rules[matcher->slots[at].first], rule)))
		at = (at + 1) & matcher->mask;
	matcher->links[number] = (struct link){
		.next = matcher->slots[at].first,
		.low = rule->port_count ? rule->ports[0].low : 0,
		.high = rule->port_count ? rule->ports[rule->port_count - 1].high : UINT16_MAX,
		.protocols = (uint8_t)rule->protocols,
		.deny = rule->deny,
	};
	matcher->slots[at] = (struct slot){ hash, number };
}

static void build_index(struct policy_matcher *matcher)
{
	size_t count = matcher->policy->count, size = 16;

	while (size < 2 * count)
		size *= 2;
	matcher->slots = xnewn(struct slot, size);
	matcher->mask = size - 1;
	matcher->links = xnewn(struct link, count + 1);
	for (size_t i = 0; i < size; i++)
		matcher->slots[i].first = NO_RULE;
	/* Backwards, because each rule is put at the head of its chain. */
	for (size_t i = count; i--;)
		index_rule(matcher, (uint32_t)i);
}

/* ---- comparing rules with a flow ------------------------------------------------------------ */

struct asked {
	const struct policy_matcher *matcher;
	const struct policy_flow *flow;
	const char *name; /* normalised, or "" */
	size_t name_len;
	struct address addr; /* normalised */
	enum policy_closed closed;
	const char *closed_what;
	bool private_name; /* this name may lead to private addresses */
	unsigned protocol;
	const char *path;			     /* normalised; NULL: can be read in two ways */
	uint32_t deny, deny_http, allow, allow_http; /* the first rule of each kind */
	uint32_t near;
	bool was_closed; /* an allow rule matches, except for the address */
};

enum fit { FIT_NO, FIT_YES, FIT_PERHAPS /* if the request, not seen yet, matches too */ };

static enum fit fit_http(const struct asked *asked, const struct policy_rule *rule)
{
	const char *method = asked->flow->method ? asked->flow->method : "";

	if (!rule_has_http(rule))
		return FIT_YES;
	if (asked->flow->kind != POLICY_FLOW_HTTP)
		return FIT_PERHAPS;
	if (!http_has_method(rule, method))
		return FIT_NO;
	if (rule->paths && !asked->path)
		return rule->deny ? FIT_YES : FIT_NO;
	return !rule->paths || http_has_path(rule, asked->path) ? FIT_YES : FIT_NO;
}

static enum fit fit_rule(const struct asked *asked, const struct policy_rule *rule)
{
	if (asked->flow->kind == POLICY_FLOW_DNS)
		return !rule->deny || rule_is_total(rule) ? FIT_YES : FIT_NO;
	if (!(rule->protocols & asked->protocol) || !rule_has_port(rule, asked->flow->port))
		return FIT_NO;
	return fit_http(asked, rule);
}

/* Whether this rule may lead to the address. */
static bool is_open(const struct asked *asked, const struct policy_rule *rule)
{
	if (asked->closed == POLICY_PUBLIC || rule->deny || rule->target == POLICY_BOX)
		return true;
	if (rule->target == POLICY_CIDR)
		return cidr_is_private(&rule->cidr);
	return asked->private_name;
}

static void keep_first(uint32_t *best, uint32_t number)
{
	if (number < *best)
		*best = number;
}

static void weigh(struct asked *asked, uint32_t number)
{
	const struct policy_rule *rule = &asked->matcher->policy->rules[number];
	enum fit fit = fit_rule(asked, rule);

	if (fit == FIT_NO) {
		if (!rule->deny)
			keep_first(&asked->near, number);
	} else if (!is_open(asked, rule)) {
		asked->was_closed = true;
	} else if (rule->deny) {
		keep_first(fit == FIT_YES ? &asked->deny : &asked->deny_http, number);
	} else {
		keep_first(fit == FIT_YES ? &asked->allow : &asked->allow_http, number);
	}
}

static uint32_t find_name(
	const struct policy_matcher *matcher, uint64_t hash, uint8_t kind, const char *name)
{
	hash = hash_end(hash, kind);
	for (size_t at = hash & matcher->mask; matcher->slots[at].first != NO_RULE;
		at = (at + 1) & matcher->mask) {
		const struct policy_rule *rule = &matcher->policy->rules[matcher->slots[at].first];

		if (matcher->slots[at].hash == hash && kind_of(rule) == kind &&
			!strcmp(rule->name, name))
			return matcher->slots[at].first;
	}
	return NO_RULE;
}

static bool is_far(const struct asked *asked, const struct link *link)
{
	uint16_t port = asked->flow->port;

	return asked->flow->kind != POLICY_FLOW_DNS &&
	       (port < link->low || port > link->high || !(link->protocols & asked->protocol));
}

static void weigh_chain(struct asked *asked, uint32_t number, bool only_deny)
{
	const struct link *links = asked->matcher->links;

	for (; number != NO_RULE; number = links[number].next) {
		if (only_deny && !links[number].deny)
			continue;
		if (!is_far(asked, &links[number]))
			weigh(asked, number);
		else if (!links[number].deny)
			keep_first(&asked->near, number);
	}
}

static void weigh_name(struct asked *asked, const char *name, size_t len, bool only_deny)
{
	unsigned labels = asked->matcher->wild_labels;
	uint64_t hash = HASH_START;

	for (size_t i = len; i--;) {
		if (name[i] == '.' && labels && labels--)
			weigh_chain(asked,
				find_name(asked->matcher, hash, POLICY_WILDCARD, name + i + 1),
				only_deny);
		hash = hash_byte(hash, (uint8_t)name[i]);
	}
	weigh_chain(asked, find_name(asked->matcher, hash, POLICY_NAME, name), only_deny);
}

/* Another box is reached by its name, and the daemon chose its address: ranges neither close nor
 * open it. */
static bool is_box(const struct asked *asked)
{
	return asked->name_len && name_is_below(asked->name, "box");
}

static void weigh_addr(struct asked *asked)
{
	const struct policy_matcher *matcher = asked->matcher;
	unsigned family = asked->addr.family == 6;
	/* A DNS answer is not allowed by a rule for a range alone. */
	bool only_deny = asked->flow->kind == POLICY_FLOW_DNS || is_box(asked);

	for (size_t i = 0; i < matcher->bits_count[family]; i++) {
		uint64_t hash = hash_cidr(&asked->addr, matcher->bits[family][i]);
		size_t at = hash & matcher->mask;

		for (; matcher->slots[at].first != NO_RULE; at = (at + 1) & matcher->mask) {
			const struct policy_rule *rule =
				&matcher->policy->rules[matcher->slots[at].first];

			if (matcher->slots[at].hash == hash && rule->target == POLICY_CIDR &&
				rule->cidr.bits == matcher->bits[family][i] &&
				address_range_has(&rule->cidr, &asked->addr)) {
				weigh_chain(asked, matcher->slots[at].first, only_deny);
				break;
			}
		}
	}
}

static bool may_be_private(const struct policy *policy, const char *name)
{
	for (size_t i = 0; i < policy->private_count; i++) {
		const struct policy_rule *rule = &policy->allow_private[i];

		if (rule->target == POLICY_NAME ? !strcmp(rule->name, name)
						: name_is_below(name, rule->name))
			return true;
	}
	return false;
}

static void look_at_addr(struct asked *asked)
{
	const struct policy_matcher *matcher = asked->matcher;

	if (!asked->addr.family)
		return;
	asked->addr = policy_addr_normalise(&asked->addr);
	asked->closed = policy_addr_closed(&asked->addr, &asked->closed_what);
	for (size_t i = 0; i < matcher->host_count; i++)
		if (asked->closed != POLICY_NEVER &&
			address_range_has(&matcher->host[i], &asked->addr)) {
			asked->closed = POLICY_NEVER;
			asked->closed_what = "this host";
		}
	if (asked->closed == POLICY_PRIVATE)
		asked->private_name =
			asked->name_len && may_be_private(matcher->policy, asked->name);
}

/* ---- the verdict ---------------------------------------------------------------------------- */

static struct policy_verdict denied(enum policy_reason reason, const char *what)
{
	return (struct policy_verdict){ .reason = reason, .what = what };
}

static struct policy_verdict by_rule(const struct asked *asked, uint32_t number, bool needs_http)
{
	const struct policy_rule *rule = &asked->matcher->policy->rules[number];

	return (struct policy_verdict){
		.allowed = !rule->deny, .needs_http = needs_http, .rule = rule
	};
}

static struct policy_verdict decide(struct asked *asked)
{
	struct policy_verdict verdict;

	if (asked->deny != NO_RULE)
		return by_rule(asked, asked->deny, false);
	if (asked->closed == POLICY_NEVER && !is_box(asked))
		return denied(POLICY_BY_RANGE, asked->closed_what);
	if (asked->allow != NO_RULE)
		return by_rule(asked, asked->allow, asked->deny_http != NO_RULE);
	if (asked->allow_http != NO_RULE)
		return by_rule(asked, asked->allow_http, true);
	if (asked->was_closed ||
		(asked->closed == POLICY_PRIVATE && asked->near == NO_RULE && !is_box(asked)))
		return denied(POLICY_BY_RANGE, asked->closed_what);
	verdict = denied(POLICY_BY_DEFAULT, NULL);
	if (asked->near != NO_RULE)
		verdict.near = &asked->matcher->policy->rules[asked->near];
	return verdict;
}

/* The name in SNI or Host must be the resolved name; where an address was dialled, it may be that
 * address or any name that is not denied. Returns the reason to refuse, or POLICY_BY_RULE. */
static enum policy_reason look_at_seen(struct asked *asked, char *normal, const char **ret_what)
{
	const char *seen = asked->flow->seen;
	struct address addr;

	if (!seen || !*seen)
		return POLICY_BY_RULE;
	if (policy_addr_parse(seen, &addr, NULL) == 0) {
		addr = policy_addr_normalise(&addr);
		return !asked->name_len && !memcmp(&addr, &asked->addr, sizeof addr)
			       ? POLICY_BY_RULE
			       : POLICY_BY_MISMATCH;
	}
	*ret_what = policy_name_normalise(seen, normal);
	if (*ret_what)
		return POLICY_BY_NAME;
	if (asked->name_len)
		return strcmp(normal, asked->name) ? POLICY_BY_MISMATCH : POLICY_BY_RULE;
	weigh_name(asked, normal, strlen(normal), true);
	return POLICY_BY_RULE;
}

struct policy_verdict policy_match(
	const struct policy_matcher *matcher, const struct policy_flow *flow)
{
	char name[POLICY_NAME_SIZE] = "", seen[POLICY_NAME_SIZE], path[HTTP_PATH_SIZE];
	struct asked asked = { .matcher = matcher,
		.flow = flow,
		.name = name,
		.addr = flow->addr,
		.protocol = flow->kind == POLICY_FLOW_UDP ? POLICY_UDP : POLICY_TCP,
		.deny = NO_RULE,
		.deny_http = NO_RULE,
		.allow = NO_RULE,
		.allow_http = NO_RULE,
		.near = NO_RULE };
	const char *what = NULL;
	enum policy_reason reason;

	if ((flow->name && *flow->name) || flow->kind == POLICY_FLOW_DNS) {
		what = policy_name_normalise(flow->name ? flow->name : "", name);
		if (what)
			return denied(POLICY_BY_NAME, what);
		asked.name_len = strlen(name);
	}
	look_at_addr(&asked);
	if (flow->kind == POLICY_FLOW_HTTP &&
		http_path_normalise(flow->path ? flow->path : "", path))
		asked.path = path;
	reason = look_at_seen(&asked, seen, &what);
	if (reason != POLICY_BY_RULE)
		return denied(reason, what);
	if (asked.name_len)
		weigh_name(&asked, name, asked.name_len, false);
	if (asked.addr.family)
		weigh_addr(&asked);
	if (matcher->any && !is_box(&asked) && (asked.name_len || asked.addr.family))
		weigh(&asked, (uint32_t)(matcher->any - matcher->policy->rules));
	return decide(&asked);
}

/* ---- making --------------------------------------------------------------------------------- */

static int read_host(struct policy_matcher *matcher, const char *const *ranges, struct err *err)
{
	for (size_t i = 0; ranges && ranges[i]; i++) {
		struct address_range cidr;

		if (i == POLICY_HOSTS_MAX)
			return err_set(err, ERR_TOO_LARGE, "more than %d ranges of the host",
				POLICY_HOSTS_MAX);
		if (policy_cidr_parse(ranges[i], &cidr, err) < 0)
			return err_wrap(err, "range of the host");
		xgrow(matcher->host, matcher->host_count + 1);
		matcher->host[matcher->host_count++] = cidr;
	}
	return 0;
}

int policy_compile(const struct policy *policy, const struct policy_world *world,
	struct policy_matcher **ret, struct err *err)
{
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher =
		xnew(struct policy_matcher);

	matcher->policy = policy_copy(policy);
	if (world && read_host(matcher, world->host_ranges, err) < 0)
		return -1;
	preset_expand(matcher->policy, world ? world->package_hosts : NULL);
	build_index(matcher);
	*ret = steal_ptr(&matcher);
	return 0;
}

void policy_matcher_free(struct policy_matcher *matcher)
{
	if (!matcher)
		return;
	policy_free(matcher->policy);
	free(matcher->slots);
	free(matcher->links);
	free(matcher->host);
	free(matcher);
}

const struct policy *policy_matcher_policy(const struct policy_matcher *matcher)
{
	return matcher->policy;
}
