/* audit_shares.h - a share of the audit log for each tree of boxes, so that no tree pushes out the
 * lines of others
 *
 * The log keeps a bounded number of files, so the box that writes most would decide how long all
 * lines are kept. Therefore a tree writes at most a sixteenth of a file. Its further lines go into
 * a log of its own, where it pushes out only its own lines: nothing is dropped, so a flood does not
 * hide what follows it. */
#pragma once
#include "base/err.h"
#include "base/json.h"

struct audit;
struct audit_shares;
struct loop;

/* common is borrowed, and must be closed after this. */
struct audit_shares *audit_shares_new(struct loop *loop, struct audit *common);
void audit_shares_free(struct audit_shares *shares); /* accepts NULL */
/* Adds a line of a box of that tree; takes the reference. */
void audit_shares_add(struct audit_shares *shares, const char *tree, json_t *line);
/* The log of a tree; borrowed. Fails with ERR_NOT_FOUND when it has none. */
struct audit *audit_shares_log(struct audit_shares *shares, const char *tree, struct err *err);
/* ids of trees that have a log; new reference */
json_t *audit_shares_list(const struct audit_shares *shares);
