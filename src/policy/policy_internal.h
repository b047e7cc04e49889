/* policy_internal.h - what the files of this folder share */
#pragma once
#include "base/strv.h"
#include "policy/policy.h"

/* ---- yaml.c: text as a tree, with places ---------------------------------------------------- */

enum node_kind { NODE_TEXT, NODE_LIST, NODE_MAP };

struct node {
	enum node_kind kind;
	unsigned line, column; /* from 1 */
	char *text;	       /* NODE_TEXT */
	bool plain;	       /* not quoted */
	struct node **items;   /* of a map: key, value, key, value; keys are texts */
	size_t count;
};

/* ERR_INVALID with the place in *ret_line and *ret_column. */
int node_parse(const char *text, size_t len, struct node **ret, unsigned *ret_line,
	unsigned *ret_column, struct err *err);
void node_free(struct node *node);
DEFINE_CLEANUP(node_free, struct node)

/* ---- rule.c --------------------------------------------------------------------------------- */

void rule_done(struct policy_rule *rule);
struct policy_rule rule_copy(const struct policy_rule *rule);
/* Both decide the same; where they were written does not count. with_notes: their notes do
 * count. */
bool rule_is_same(const struct policy_rule *a, const struct policy_rule *b, bool with_notes);
bool rule_has_http(const struct policy_rule *rule);
bool rule_has_port(const struct policy_rule *rule, uint16_t port);
/* A deny rule without exceptions: the name is not even resolved. */
bool rule_is_total(const struct policy_rule *rule);
/* Moves rule, which is empty afterwards, to the end of the list. */
void rules_add(struct policy_rule **rules, size_t *count, struct policy_rule *rule);
void rules_free(struct policy_rule *rules, size_t count);
/* Sets the defaults that were left open: the protocol, and port 80 for HTTP. */
void rule_finish(struct policy_rule *rule);
/* Adds a rule to a policy, numbered in its list. Takes rule over, also when it fails. */
int policy_add_rule(struct policy *policy, struct policy_rule *rule, struct err *err);
/* Fails with ERR_TOO_LARGE when the normal form would be too long to be parsed again. */
int policy_check_size(const struct policy *policy, struct err *err);

/* ---- target.c: destinations as people write them -------------------------------------------- */

int target_parse(const char *text, struct policy_rule *rule, struct err *err);
int target_parse_name(const char *text, struct policy_rule *rule, struct err *err);
int target_parse_cidr(const char *text, struct policy_rule *rule, struct err *err);
int target_parse_box(const char *text, struct policy_rule *rule, struct err *err);
/* Adds "80", "8000-8999", "80,443" to the ports of rule. */
int target_add_ports(const char *text, struct policy_rule *rule, struct err *err);
int target_add_protocol(const char *text, struct policy_rule *rule, struct err *err);
void target_print_ports(const struct policy_rule *rule, struct buf *out);

/* ---- http.c: methods and paths -------------------------------------------------------------- */

int http_add_method(const char *text, struct policy_rule *rule, struct err *err);
int http_add_path(const char *text, struct policy_rule *rule, struct err *err);
void http_sort(struct policy_rule *rule);

enum { HTTP_PATH_SIZE = 2048 };
/* Writes the path without query and with escapes decoded into out (HTTP_PATH_SIZE bytes). False
 * when servers could read it in more than one way. */
bool http_path_normalise(const char *path, char *out);
bool http_has_method(const struct policy_rule *rule, const char *method);
bool http_has_path(const struct policy_rule *rule, const char *normal);
bool http_path_covers(const char *wide, const char *narrow); /* patterns */

/* ---- cover.c: comparing rules --------------------------------------------------------------- */

/* Every flow that matches narrow matches wide. Says no when in doubt. */
bool rule_covers(const struct policy_rule *wide, const struct policy_rule *narrow);
/* The first rule (its index in policy->rules) that wanted accepts, of those that may cover rule;
 * policy->count: none. The policy must outlive the index. */
struct cover_index *cover_index_new(const struct policy *policy);
void cover_index_free(struct cover_index *index);
DEFINE_CLEANUP(cover_index_free, struct cover_index)
size_t cover_index_first(const struct cover_index *index, const struct policy_rule *rule,
	bool (*wanted)(const struct policy_rule *other, void *arg), void *arg);
/* Some flow may match both. Says yes when in doubt. */
bool rule_overlaps(const struct policy_rule *a, const struct policy_rule *b);
/* The same destination is allowed and denied. */
bool rule_is_mirror(const struct policy_rule *allow, const struct policy_rule *deny);
/* Fails with ERR_INVALID when a rule of policy says the opposite. */
int rule_find_mirror(const struct policy *policy, const struct policy_rule *rule, struct err *err);
/* The whole range is private, so a rule for it opens it. */
bool cidr_is_private(const struct address_range *cidr);
/* Why no address of the range is ever reachable; NULL: some are. */
const char *cidr_never(const struct address_range *cidr);
/* Some addresses in it are private or never reachable. */
bool cidr_has_closed(const struct address_range *cidr);
bool name_is_below(const char *name, const char *parent); /* a.b below b; not b below b */

/* ---- preset.c ------------------------------------------------------------------------------- */

/* Adds the rules of policy's preset. */
void preset_expand(struct policy *policy, const char *const *package_hosts);

/* ---- check.c -------------------------------------------------------------------------------- */

void report_add(struct policy_report *report, bool is_error, unsigned line, unsigned column,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));
