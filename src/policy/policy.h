/* policy.h - what a box may reach: rules and a flow in, a verdict and the rule that decided out
 *
 * Pure code: no files, no sockets, no clock. docs/policy.md describes the language for people.
 *
 *   text --policy_parse--> struct policy --policy_compile--> struct policy_matcher
 *   --policy_match--> verdict
 *
 * A policy is the document: what somebody wrote, in its normal form. A matcher is a policy together
 * with facts about the machine (hosts of package managers, the host's own addresses), built for
 * fast lookups.
 *
 * How a verdict is found; the first step that applies decides:
 *   1. the name is not a proper host name: denied
 *   2. SNI or Host differs from the name that was resolved: denied
 *   3. a deny rule matches: denied
 *   4. the address is one that no box may reach (loopback, link-local, metadata, this host, ...):
 *      denied
 *   5. an allow rule matches: allowed; the limits of the first one in the file apply. A rule with a
 *      name does not lead to private addresses, unless dns.allow_private says so for that name
 *   6. denied */
#pragma once
#include "base/address.h"
#include "base/buf.h"
#include "base/err.h"
#include <jansson.h>

enum {
	POLICY_VERSION = 1,
	POLICY_SIZE_MAX = 512 * 1024, /* bytes of text, of the normal form too */
	POLICY_RULES_MAX = 2000,
	POLICY_PORTS_MAX = 32, /* ranges in one rule */
	POLICY_PATHS_MAX = 32, /* paths or methods in one rule */
	POLICY_PATH_LEN_MAX = 255,
	POLICY_NOTE_MAX = 200,
	POLICY_HOSTS_MAX = 256, /* package hosts and host ranges taken from outside */
	POLICY_NAME_SIZE = 256, /* room for a name of 253 bytes and its end */
	POLICY_ADDR_SIZE = 48,	/* room for an address as text */
	POLICY_PROBLEMS_MAX = 100,
};

/* ---- names and addresses -------------------------------------------------------------------- */

/* Writes the name in lower case without a trailing dot into out (POLICY_NAME_SIZE bytes). Returns
 * NULL when it is a valid host name, else what is wrong with it: "has an empty label". A-labels
 * (xn--) stay as they are. */
const char *policy_name_normalise(const char *text, char *out);

int policy_addr_parse(const char *text, struct address *ret, struct err *err);
/* "10.0.0.0/8", "2001:db8::/32" or a single address. Bits after the prefix must be 0. */
int policy_cidr_parse(const char *text, struct address_range *ret, struct err *err);
/* The IPv4 address inside an IPv6 one (mapped, compatible, NAT64, 6to4); other addresses
 * unchanged. */
struct address policy_addr_normalise(const struct address *addr);

/* Whether an address is closed regardless of most rules. */
enum policy_closed {
	POLICY_PUBLIC,	/* open */
	POLICY_PRIVATE, /* closed, unless a rule names a private range */
	POLICY_NEVER,	/* closed, whatever rules say */
};

/* addr must be normalised. *ret_what is "loopback", "private", ...; NULL for a public address. */
enum policy_closed policy_addr_closed(const struct address *addr, const char **ret_what);
/* Why a public name must not resolve to it: "private", "loopback", "link-local", ...; NULL for a
 * public address. Need not be normalised. */
const char *policy_addr_special(const struct address *addr);

/* ---- rules ---------------------------------------------------------------------------------- */

enum policy_protocol { POLICY_TCP = 1, POLICY_UDP = 2 }; /* flags */

enum policy_target {
	POLICY_NAME,	 /* github.com */
	POLICY_WILDCARD, /* *.example.com: every name below example.com, not itself */
	POLICY_CIDR,
	POLICY_BOX, /* another box; name is NAME.box */
	POLICY_ANY, /* preset open: every name and every public address */
	POLICY_TARGET_COUNT
};

/* The list in which a rule was written. */
enum policy_list {
	POLICY_LIST_ALLOW,
	POLICY_LIST_DENY,
	POLICY_LIST_DOMAINS,
	POLICY_LIST_BOXES,
	POLICY_LIST_FLAG,
	POLICY_LIST_PRESET,
	POLICY_LIST_COUNT
};

struct policy_ports {
	uint16_t low, high;
};

/* 0 means no limit. */
struct policy_limits {
	uint64_t rate;	      /* bytes a second, both directions together */
	uint64_t connections; /* at once */
	uint64_t bytes;	      /* budget; in a rule: for each destination it matches */
};

struct policy_rule {
	enum policy_target target;
	bool deny;
	unsigned protocols; /* enum policy_protocol, never 0 */
	char *name;	    /* owned; normalised, without "*."; NULL for cidr and any */
	struct address_range cidr;
	struct policy_ports *ports; /* owned; sorted, not overlapping; none: every port */
	size_t port_count;
	char **methods; /* owned strv, upper case, sorted; NULL: all */
	char **paths;	/* owned strv, sorted; NULL: all */
	struct policy_limits limits;
	char *note; /* owned; NULL: none */
	enum policy_list list;
	unsigned number;       /* in its list, from 1 */
	unsigned line, column; /* in the text; 0: not from a text */
};

enum policy_preset {
	POLICY_NONE,	 /* nothing but the rules */
	POLICY_PACKAGES, /* and the hosts of the image's package managers */
	POLICY_DEV,	 /* and the common git hosts */
	POLICY_OPEN,	 /* every name, every public address */
	POLICY_PRESET_COUNT
};

enum policy_on_limit {
	POLICY_NOTIFY, /* the limit applies, and an event is raised */
	POLICY_PAUSE,  /* the box is suspended too */
	POLICY_STOP,   /* the box is stopped too */
	POLICY_ON_LIMIT_COUNT
};

struct policy {
	enum policy_preset preset;
	struct policy_rule *rules; /* owned; in the order of the text */
	size_t count;
	struct policy_limits limits; /* of the whole box */
	enum policy_on_limit on_limit;
	struct policy_rule *allow_private; /* owned; names that may resolve into private ranges */
	size_t private_count;
	unsigned set; /* enum policy_key: keys that were written; for policy_merge */
};

enum policy_key {
	POLICY_KEY_PRESET = 1,
	POLICY_KEY_ON_LIMIT = 2,
};

struct policy *policy_new(void); /* preset none, no rules: everything is denied */
struct policy *policy_copy(const struct policy *policy);
void policy_free(struct policy *policy);
DEFINE_CLEANUP(policy_free, struct policy)

const char *policy_preset_name(enum policy_preset preset);
/* For people: one sentence. */
const char *policy_preset_text(enum policy_preset preset);
int policy_preset_parse(const char *text, enum policy_preset *ret, struct err *err);
const char *policy_on_limit_name(enum policy_on_limit on_limit);

/* ---- reading and writing -------------------------------------------------------------------- */

struct policy_problem {
	bool is_error; /* else a warning */
	unsigned line, column;
	char text[256];
};

struct policy_report {
	struct policy_problem *problems; /* owned; at most POLICY_PROBLEMS_MAX */
	size_t count;
	size_t errors;
};

#define POLICY_REPORT_INIT \
	{                  \
		0          \
	}
void policy_report_done(struct policy_report *report);

/* Parses YAML or JSON. Fails with ERR_INVALID and the first error, its line and column; report (may
 * be NULL) gets all errors, and the warnings of policy_check. *ret is only written when there was
 * no error. */
int policy_parse(const char *text, size_t len, struct policy **ret, struct policy_report *report,
	struct err *err);
/* Reports conflicts as errors; rules that never decide anything, or do less than they seem to, as
 * warnings. */
void policy_check(const struct policy *policy, struct policy_report *report);

/* Adds a rule written as on the command line: NAME|*.NAME|CIDR [:PORTS] [/tcp|/udp]. Fails with
 * ERR_INVALID, also when another rule says the opposite. */
int policy_add_flag(struct policy *policy, bool deny, const char *text, struct err *err);
/* Adds a rule for another box: NAME[:PORTS][/tcp|/udp]. */
int policy_add_box(struct policy *policy, const char *text, struct err *err);
/* Removes the allow rules for a name and a few ports, without other conditions or limits, that the
 * matcher's policy allows already. */
struct policy_matcher;
void policy_drop_allowed(struct policy *policy, const struct policy_matcher *matcher);
/* Makes a new policy from base with more over it: preset and limits of more where they are given,
 * the rules of both. An allow rule of base that more denies is removed. Fails with ERR_INVALID when
 * more allows what base denies, with ERR_TOO_LARGE when there are too many rules. */
int policy_merge(
	const struct policy *base, const struct policy *more, struct policy **ret, struct err *err);

/* The normal form, which parses to the same policy. New reference; policy_text gives one line. */
json_t *policy_json(const struct policy *policy);
char *policy_text(const struct policy *policy);
/* Whether both mean the same, however they were written. */
bool policy_is_same(const struct policy *a, const struct policy *b);

/* "github.com:443/tcp", "[2001:db8::/32]:80", "every public destination". Yours to free. */
char *policy_rule_text(const struct policy_rule *rule);
/* "allow #2 (line 7)", "preset #1". Yours to free. */
char *policy_rule_place(const struct policy_rule *rule);

/* ---- deciding ------------------------------------------------------------------------------- */

/* Facts about the machine. Borrowed; NULL lists are empty. */
struct policy_world {
	/* NAME[:PORTS], found in an image: entries that are not plain names are ignored. */
	const char *const *package_hosts;
	/* Addresses or ranges of this host, its gateway, its boxes: no box may reach them. */
	const char *const *host_ranges;
};

enum policy_flow_kind {
	/* a DNS query for name; with an address: whether this answer may be given */
	POLICY_FLOW_DNS,
	POLICY_FLOW_TCP,
	POLICY_FLOW_UDP,
	POLICY_FLOW_HTTP, /* a request on a connection that carries plain HTTP */
	POLICY_FLOW_KIND_COUNT
};

/* All text is borrowed and may be anything, because it comes from inside a box. NULL is the same as
 * "". */
struct policy_flow {
	enum policy_flow_kind kind;
	const char *name; /* the name that was resolved; "": an address was dialled */
	struct address
		addr; /* the destination; family 0: not known yet, ask again before connecting */
	uint16_t port;
	const char *method;
	const char *path; /* as in the request line, with or without the query */
	const char *seen; /* SNI or Host, without the port; "": not seen yet */
};

enum policy_reason {
	POLICY_BY_RULE,
	POLICY_BY_DEFAULT,  /* no rule matches */
	POLICY_BY_NAME,	    /* not a proper name */
	POLICY_BY_MISMATCH, /* SNI or Host is not the name */
	POLICY_BY_RANGE,    /* the address is closed by default */
	POLICY_REASON_COUNT
};

struct policy_verdict {
	bool allowed;
	/* Allowed so far: the connection must turn out to be plain HTTP, and each of its requests
	 * is decided again, as POLICY_FLOW_HTTP. */
	bool needs_http;
	enum policy_reason reason;
	const struct policy_rule
		*rule; /* the rule that decided; NULL: none. Borrowed from the matcher */
	/* denied by default: an allow rule with this destination, but not this port, ... */
	const struct policy_rule *near;
	const char *what; /* by name: what is wrong with it; by range: "loopback", ... */
};

struct policy_matcher;

/* Copies policy and what it needs of world. Fails with ERR_INVALID when a host range is not
 * valid. */
int policy_compile(const struct policy *policy, const struct policy_world *world,
	struct policy_matcher **ret, struct err *err);
void policy_matcher_free(struct policy_matcher *matcher);
DEFINE_CLEANUP(policy_matcher_free, struct policy_matcher)

/* The policy followed by the rules of its preset; borrowed. */
const struct policy *policy_matcher_policy(const struct policy_matcher *matcher);

struct policy_verdict policy_match(
	const struct policy_matcher *matcher, const struct policy_flow *flow);

/* One sentence: the flow, the verdict, the rule. Yours to free. */
char *policy_explain(const struct policy_flow *flow, const struct policy_verdict *verdict);
/* The same as JSON; new reference. */
json_t *policy_explain_json(const struct policy_flow *flow, const struct policy_verdict *verdict);

/* ---- comparing ------------------------------------------------------------------------------ */

enum policy_change {
	POLICY_SAME,	 /* both allow the same destinations */
	POLICY_TIGHTER,	 /* the old policy allowed everything that the new one allows */
	POLICY_WIDER,	 /* the new policy allows everything that the old one allowed */
	POLICY_DIFFERENT /* neither can be proved */
};

/* Compares what becomes possible and impossible; limits do not count. Says tighter only when it can
 * be proved rule by rule. *ret_rule (may be NULL) is a rule of either policy that shows why it is
 * not tighter. */
enum policy_change policy_compare(const struct policy_matcher *old_one,
	const struct policy_matcher *new_one, const struct policy_rule **ret_rule);
