/* turn.c - what takes or replaces the state of a box is done one at a time
 *
 * A snapshot, a fork, a rollback, a hibernation: each has the box to itself. Who comes meanwhile
 * waits in line; whoever waits is told when the box is removed. */
#include "core/core_internal.h"
#include "base/alloc.h"
#include "loop/loop.h"
#include <stdio.h>

enum { TURNS_MAX = 64 };

struct turn {
	turn_fn fn;
	void *arg;
	char asked_by[ASKER_WHO_SIZE];
	struct turn *next;
};

void box_take_turn(struct box *box, turn_fn fn, void *arg)
{
	struct turn **end = &box->turns;
	struct err err = ERR_INIT;
	unsigned count = 0;

	if (!box->in_turn) {
		box->in_turn = true;
		box_note_asker(box);
		fn(box, NULL, arg);
		return;
	}
	for (; *end; end = &(*end)->next)
		count++;
	if (count >= TURNS_MAX) {
		err_set(&err, ERR_STATE, "box '%s' has %u snapshots, forks or the like to be done",
			box->row.name, count);
		err_hint(&err, "wait for them, then try again");
		fn(NULL, &err, arg);
		return;
	}
	*end = xnew(struct turn);
	**end = (struct turn){ .fn = fn, .arg = arg };
	if (box->yard->asker)
		snprintf((*end)->asked_by, ASKER_WHO_SIZE, "%s", box->yard->asker->who);
}

static void next_turn(void *arg)
{
	struct box *box = arg;
	struct turn *turn = box->turns;
	turn_fn fn = turn->fn;
	void *fn_arg = turn->arg;

	box->turns = turn->next;
	snprintf(box->asked_by, sizeof box->asked_by, "%s", turn->asked_by);
	free(turn);
	fn(box, NULL, fn_arg);
}

/* From the loop: whoever ends his turn is often in the middle of a change of the box. */
void box_end_turn(struct box *box)
{
	box_forget_asker(box);
	if (box->turns)
		loop_defer(box->yard->loop, next_turn, box);
	else
		box->in_turn = false;
}

void box_drop_turns(struct box *box)
{
	struct err err = ERR_INIT;

	loop_undefer(box->yard->loop, next_turn, box);
	err_set(&err, ERR_STATE, "box '%s' was removed meanwhile", box->row.name);
	while (box->turns) {
		struct turn *turn = box->turns;

		box->turns = turn->next;
		turn->fn(NULL, &err, turn->arg);
		free(turn);
	}
}
