/* exec_time.c - the time limit of a program whose box stands still
 *
 * The limit is kept inside the box, by box-init, which ends the program. No time passes there while
 * the box is suspended, so whoever waits for the program would wait for as long: he is told. The
 * program is ended when its box goes on. */
#include "api/api_internal.h"
#include "loop/loop.h"

enum { LATE_MS = 1000 }; /* a running box tells the end of a time limit well within */

static void on_timer(void *arg)
{
	struct exec_time *time = arg;
	struct box *box = box_find(time->yard, time->box, NULL);
	struct err err = ERR_INIT;

	if (!box) /* who waits hears that otherwise */
		return;
	if (box_get_state(box) == BOX_RUNNING) {
		loop_timer_start(time->timer, LATE_MS);
		return;
	}
	err_set(&err, ERR_TIMEOUT, "the program reached its time limit; box '%s' is %s",
		box_get_name(box), box_state_name(box_get_state(box)));
	err_hint(&err, "it is ended when the box goes on: 'box resume %s'", box_get_name(box));
	time->on_over(&err, time->arg);
}

void exec_time_start(struct exec_time *time, struct yard *yard, const struct box *box, uint64_t ms)
{
	if (!ms || time->timer)
		return;
	time->yard = yard;
	snprintf(time->box, sizeof time->box, "%s", box_get_id(box));
	time->timer = loop_timer_new(yard_get_loop(yard), on_timer, time);
	loop_timer_start(time->timer, ms + LATE_MS);
}

void exec_time_stop(struct exec_time *time)
{
	loop_timer_free(steal_ptr(&time->timer));
}
