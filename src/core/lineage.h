/* inside.h - what a box may do to itself from inside
 *
 * `box` in a box reaches the daemon through box-init (guest/self.h). It may look at its own box,
 * fork it, snapshot it, take it back, and use and remove the boxes forked from it: those whose
 * chain of origins leads to it, and nothing else. How deep, how many and how often is set from
 * outside. All of it binds the ancestors too: what a box may have, its forks cannot multiply.
 *
 * Every request is an event, "inside.VERB". */
#pragma once
#include "core/box.h"

struct inside_limits {
	bool off;	/* nothing may be asked from inside */
	uint64_t depth; /* forks of forks; 1: children only; 0: none */
	uint64_t count; /* boxes alive below it at once */
	uint64_t rate;	/* forks, snapshots and rollbacks a minute */
};

/* What holds for the box now: its own, else the configured ones. */
struct inside_limits box_inside_limits(const struct box *box);
json_t *box_inside_json(const struct box *box); /* {"enabled","depth","count","rate"} */
/* As asked for: {"depth":2,"count":4,"rate":10}, each optional, false (off), true or null (as
 * configured). *ret_text: how a row keeps it (fork_limits); yours. */
int inside_limits_read(json_t *given, char **ret_text, struct err *err);
int box_set_inside(struct box *box, json_t *given, struct err *err);
