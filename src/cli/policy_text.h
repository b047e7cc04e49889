/* policy_text.h - policies on the command line: from files and flags, and as text to read and
 * edit */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "policy/policy.h"

struct cli;

/* The normal form as people write it, which parses to the same policy. Yours to free. */
char *policy_yaml(json_t *normal);

/* The text of a file ("-": stdin), yours to free. */
int policy_read_text(const char *file, char **ret, struct err *err);
/* `FILE:LINE:COLUMN: error: …` for each problem, on out. */
void policy_print_problems(const char *file, const struct policy_report *report, FILE *out);
/* Parses a text and prints warnings and errors on stderr; the returned error says how many there
 * are. */
int policy_read(
	struct cli *cli, const char *file, const char *text, struct policy **ret, struct err *err);

/* Whether --net, --allow, --deny or --peer was given. */
bool policy_has_flags(const struct cli *cli);
/* Adds those flags to base (NULL: an empty policy). *ret is a new policy. */
int policy_read_flags(
	struct cli *cli, const struct policy *base, struct policy **ret, struct err *err);
/* For `box new`: puts --policy and the flags above into body as JSON; nothing when none is
 * given. */
int policy_read_new(struct cli *cli, json_t *body, struct err *err);
/* The same for a fork of box: --allow and the like add to that box's policy, and --policy may be a
 * preset. */
int policy_read_fork(struct cli *cli, const char *box, json_t *body, struct err *err);
