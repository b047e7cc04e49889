/* policy.h - what a box may reach: rules in, a flow in, a verdict and the rule that decided out
 *
 * Pure code: no files, no sockets, no clock. docs/policy.md describes the language for people.
 *
 *   text --policy_parse--> struct policy --policy_compile--> struct policy_matcher
 *   --policy_match--> verdict
 *
 * A policy is the document: what somebody wrote, in its normal form. A matcher is a policy together
 * with what the machine knows (hosts of package managers, the host's own addresses), made for
 * asking quickly.
 *
 * How a verdict is found, in this order; the first that applies decides:
 *   1. a name that is no proper host name: denied
 *   2. SNI or Host differs from the name that was resolved: denied
 *   3. a deny rule fits: denied
 *   4. the address is one that nobody may reach (loopback, link-local, metadata, this host, ...):
 *      denied
 *   5. an allow rule fits: allowed; the first one in the file lends its limits. A rule with a name
 *      does not lead to private addresses, unless dns.allow_private says so for that name
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

/* Lower case, one trailing dot taken off, into out (POLICY_NAME_SIZE bytes). NULL when it is a host
 * name as DNS has them; else what is wrong with it: "has an empty label". A-labels (xn--) stay as
 * they are. */
const char *policy_name_normalise(const char *text, char *out);

int policy_addr_parse(const char *text, struct address *ret, struct err *err);
/* "10.0.0.0/8", "2001:db8::/32" or an address alone. Bits behind the prefix must be 0. */
int policy_cidr_parse(const char *text, struct address_range *ret, struct err *err);
/* The IPv4 address that hides in an IPv6 one (mapped, compatible, NAT64, 6to4); others as they
 * are. */
struct address policy_addr_normalise(const struct address *addr);

/* How far an address is closed by itself, whatever rules say. */
enum policy_closed {
	POLICY_PUBLIC,	/* not at all */
	POLICY_PRIVATE, /* closed, unless a rule names a private range */
	POLICY_NEVER,	/* closed for everybody */
};

/* addr must be normalised. *ret_what is "loopback", "private", ...; NULL for a public address. */
enum policy_closed policy_addr_closed(const struct address *addr, const char **ret_what);
/* Why a name of the public internet must not lead there: "private", "loopback", "link-local", ...;
 * NULL for a public address. Need not be normalised. */
const char *policy_addr_special(const struct address *addr);

/* ---- rules ---------------------------------------------------------------------------------- */

enum policy_protocol { POLICY_TCP = 1, POLICY_UDP = 2 }; /* flags */

enum policy_target {
	POLICY_NAME,	 /* github.com */
	POLICY_WILDCARD, /* *.example.com: everything below it, not itself */
	POLICY_CIDR,
	POLICY_BOX, /* another box; name is NAME.box */
	POLICY_ANY, /* preset open: every name and every public address */
	POLICY_TARGET_COUNT
};

/* Where a rule was written. */
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
	uint64_t bytes;	      /* budget; of a rule: for each destination it leads to */
};

struct policy_rule {
	enum policy_target target;
	bool deny;
	unsigned protocols; /* enum policy_protocol, never 0 */
	char *name;	    /* owned; normalised, without "*."; NULL for cidr and any */
	struct address_range cidr;
	struct policy_ports *ports; /* owned; sorted, apart from each other; none: every port */
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
	POLICY_NOTIFY, /* the limit holds, and it is told */
	POLICY_PAUSE,  /* the box is frozen too */
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

/* YAML or JSON. ERR_INVALID with the first error, its line and column; report (may be NULL) gets
 * all errors, and the warnings of policy_check. *ret is only written when there was no error. */
int policy_parse(const char *text, size_t len, struct policy **ret, struct policy_report *report,
	struct err *err);
/* Conflicts are errors; rules that never decide anything, or do less than they seem to, are
 * warnings. */
void policy_check(const struct policy *policy, struct policy_report *report);

/* Adds a rule written as on the command line: NAME|*.NAME|CIDR [:PORTS] [/tcp|/udp]. ERR_INVALID,
 * also when a rule says the opposite. */
int policy_add_flag(struct policy *policy, bool deny, const char *text, struct err *err);
/* Adds NAME[:PORTS][/tcp|/udp] of another box. */
int policy_add_box(struct policy *policy, const char *text, struct err *err);
/* Takes away the allow rules for a name and a few ports, without more conditions or limits, that
 * the matcher's policy allows already. */
struct policy_matcher;
void policy_drop_allowed(struct policy *policy, const struct policy_matcher *matcher);
/* Merges more into base: its preset and its limits where they are given, all rules of both. What
 * more denies is no longer allowed by the same rule of base. A new policy. Fails with ERR_INVALID
 * when more allows what base denies, ERR_TOO_LARGE when there are too many rules. */
int policy_merge(
	const struct policy *base, const struct policy *more, struct policy **ret, struct err *err);

/* The normal form: parses to the same policy again. New reference; policy_text gives one line. */
json_t *policy_json(const struct policy *policy);
char *policy_text(const struct policy *policy);
/* Whether both say the same, wherever it was written. */
bool policy_is_same(const struct policy *a, const struct policy *b);

/* "github.com:443/tcp", "[2001:db8::/32]:80", "every public destination". Yours to free. */
char *policy_rule_text(const struct policy_rule *rule);
/* "allow #2 (line 7)", "preset #1". Yours to free. */
char *policy_rule_place(const struct policy_rule *rule);

/* ---- asking --------------------------------------------------------------------------------- */

/* Facts about the machine. Borrowed; NULL lists are empty. */
struct policy_world {
	/* NAME[:PORTS], found in an image: what is no plain name is left out. */
	const char *const *package_hosts;
	/* Addresses or ranges that are this host, its gateway, its boxes: nobody may reach them. */
	const char *const *host_ranges;
};

enum policy_flow_kind {
	/* a question for name; with an address: whether this answer may be given */
	POLICY_FLOW_DNS,
	POLICY_FLOW_TCP,
	POLICY_FLOW_UDP,
	POLICY_FLOW_HTTP, /* a request on a connection that carries plain HTTP */
	POLICY_FLOW_KIND_COUNT
};

/* All text is borrowed and may be anything: it comes from inside a box. NULL is as good as "". */
struct policy_flow {
	enum policy_flow_kind kind;
	const char *name; /* the name that was resolved; "": an address was dialled */
	struct address
		addr; /* where it leads; family 0: not known yet, ask again before dialling */
	uint16_t port;
	const char *method;
	const char *path; /* as in the request line, with or without the query */
	const char *seen; /* SNI or Host, without the port; "": not seen yet */
};

enum policy_reason {
	POLICY_BY_RULE,
	POLICY_BY_DEFAULT,  /* no rule fits */
	POLICY_BY_NAME,	    /* no proper name */
	POLICY_BY_MISMATCH, /* SNI or Host is not the name */
	POLICY_BY_RANGE,    /* the address is closed by itself */
	POLICY_REASON_COUNT
};

struct policy_verdict {
	bool allowed;
	/* Allowed as far as can be seen: the connection must turn out to be plain HTTP, and each
	 * request is asked for again, as POLICY_FLOW_HTTP. */
	bool needs_http;
	enum policy_reason reason;
	const struct policy_rule
		*rule; /* that decided; NULL: none did. Borrowed from the matcher */
	/* denied by default: an allow rule with this destination, but not this port, ... */
	const struct policy_rule *near;
	const char *what; /* by name: what is wrong with it; by range: "loopback", ... */
};

struct policy_matcher;

/* Copies policy and what it needs of world. ERR_INVALID when a host range is none. */
int policy_compile(const struct policy *policy, const struct policy_world *world,
	struct policy_matcher **ret, struct err *err);
void policy_matcher_free(struct policy_matcher *matcher);
DEFINE_CLEANUP(policy_matcher_free, struct policy_matcher)

/* The policy with the rules of its preset behind its own; borrowed. */
const struct policy *policy_matcher_policy(const struct policy_matcher *matcher);

struct policy_verdict policy_match(
	const struct policy_matcher *matcher, const struct policy_flow *flow);

/* One sentence: what was asked, what came of it, by which rule. Yours to free. */
char *policy_explain(const struct policy_flow *flow, const struct policy_verdict *verdict);
/* The same as JSON; new reference. */
json_t *policy_explain_json(const struct policy_flow *flow, const struct policy_verdict *verdict);

/* ---- comparing ------------------------------------------------------------------------------ */

enum policy_change {
	POLICY_SAME,	 /* both lead to the same destinations */
	POLICY_TIGHTER,	 /* whatever the new one allows, the old one did */
	POLICY_WIDER,	 /* the other way round */
	POLICY_DIFFERENT /* neither can be shown */
};

/* What becomes possible and impossible; limits do not count. Careful: tighter is said only when it
 * can be shown rule by rule. *ret_rule (may be NULL) is a rule of either that shows why it is not
 * tighter. */
enum policy_change policy_compare(const struct policy_matcher *old_one,
	const struct policy_matcher *new_one, const struct policy_rule **ret_rule);
