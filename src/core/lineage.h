/* lineage.h - who was forked from whom, and what a box may ask for from inside
 *
 * A box may look at itself, fork itself, snapshot itself, go back, and use and remove the boxes
 * below it: those whose chain of origins leads to it, and nothing else. How deep, how many and how
 * often is set from outside. All of it binds the boxes it descends from too: what a box may have,
 * its forks cannot multiply. */
#pragma once
#include "core/box.h"

struct inside_limits {
	bool off;	/* nothing may be asked from inside */
	uint64_t depth; /* forks of forks; 1: children only; 0: none */
	uint64_t count; /* boxes alive below it at once */
	uint64_t rate;	/* forks, snapshots and rollbacks a minute */
};

/* What of the rate of a box is left. */
struct fork_rate {
	int64_t tokens; /* thousandths of what may be done */
	int64_t refill_us;
};

/* What holds for the box now: its own, else the configured ones. */
struct inside_limits box_inside_limits(const struct box *box);
json_t *box_inside_json(const struct box *box); /* {"enabled","depth","count","rate"} */
/* As asked for: {"depth":2,"count":4,"rate":10}, each optional, false (off), true or null (as
 * configured). *ret_text: how a row keeps it (fork_limits); yours. */
int inside_limits_read(json_t *given, char **ret_text, struct err *err);
int box_set_inside(struct box *box, json_t *given, struct err *err);

bool lineage_is_below(const struct box *box, const struct box *ancestor);
json_t *lineage_below(
	const struct box *box); /* an object whose keys are their ids; new reference */
/* The boxes below it, [{"id","name","state","direct":bool} …]; new reference. */
json_t *lineage_below_json(const struct box *box);
/* What a box may know of itself: nothing of the host, and nothing of other boxes but those below it
 * and the name of its origin. As docs/inside.md says; new reference. */
json_t *lineage_self_json(const struct box *box);
/* The box itself, or one it descends from, that may ask for nothing; NULL: it may. */
const struct box *lineage_forbidden_by(const struct box *box);
/* May the box have so many more forks? ERR_LIMIT. */
int lineage_check_fork(struct box *box, unsigned count, struct err *err);
/* May it do so much more now? Takes it from its rate if so; ERR_LIMIT. */
int lineage_charge(struct box *box, unsigned count, struct err *err);
