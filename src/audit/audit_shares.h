/* audit_shares.h - a share of the audit log for each tree of boxes, so that none pushes the lines
 * of others out
 *
 * The log keeps so many files; whoever writes most would decide how long everybody's lines are
 * kept. So a tree writes a sixteenth of a file at most. What it has to say beyond that goes into a
 * log of its own, where it pushes out nobody but itself: nothing is left unsaid, so a flood does
 * not hide what follows it. */
#pragma once
#include "base/err.h"
#include "base/json.h"

struct audit;
struct audit_shares;
struct loop;

/* common is borrowed, and closed after this. */
struct audit_shares *audit_shares_new(struct loop *loop, struct audit *common);
void audit_shares_free(struct audit_shares *shares); /* accepts NULL */
/* A line of a box of that tree; takes the reference. */
void audit_shares_add(struct audit_shares *shares, const char *tree, json_t *line);
/* The log of a tree; borrowed. ERR_NOT_FOUND when it has none. */
struct audit *audit_shares_log(struct audit_shares *shares, const char *tree, struct err *err);
json_t *audit_shares_list(const struct audit_shares *shares); /* ids of trees that have one; new */
