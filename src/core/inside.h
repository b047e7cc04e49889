/* inside.h - what a box may do to itself from inside, and how a restored one learns who it is
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

/* ---- after a restore ------------------------------------------------------------------------ */

/* Its box-init can be told who it is. False for one from before version 2 of the protocol: such a
 * box can neither be forked with its processes nor taken back until it was stopped and started.
 * Asked of a box with a link. */
bool box_can_be_told(const struct box *box);

/* To be called from on_link_ready of a box just made from another's state, before anything else is
 * asked of it. Its host name has been set already. done comes once: err NULL when it has a machine
 * id, randomness and host name of its own and its programs were told; the box must not be served
 * before. What its hooks failed at is an event, "box.hooks_failed". -1: done is not called. */
int box_tell_identity(struct box *child, const char *parent_name, unsigned index, box_done done,
	void *arg, struct err *err);
/* The same for a box that is itself again: woken, or taken back. After WIRE_RESTORED_ROLLED_BACK
 * what it had asked for is forgotten. Best effort: with an old box-init nothing is told, and done
 * comes at once. */
int box_tell_restored(
	struct box *box, enum wire_restored kind, box_done done, void *arg, struct err *err);
