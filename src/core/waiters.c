/* waiters.c - those who wait until the current change of a box has ended */
#include "core/core_internal.h"

static void wait_in(struct waiter **end, box_done done, void *arg)
{
	if (!done)
		return;
	while (*end)
		end = &(*end)->next;
	*end = xnew(struct waiter);
	(*end)->done = done;
	(*end)->arg = arg;
}

void box_wait(struct box *box, box_done done, void *arg)
{
	box_note_asker(box);
	wait_in(&box->waiters, done, arg);
}

void waiters_notify(struct waiter *waiters, struct box *box, const struct err *err)
{
	while (waiters) {
		struct waiter *next = waiters->next;

		waiters->done(box, err, waiters->arg);
		free(waiters);
		waiters = next;
	}
}

void box_wait_removal(struct box *box, box_done done, void *arg)
{
	wait_in(&box->removers, done, arg);
}

void box_notify(struct box *box, const struct err *err)
{
	waiters_notify(steal_ptr(&box->waiters), box, err);
}

void box_notify_without(struct box *box, const struct err *err)
{
	waiters_notify(steal_ptr(&box->waiters), NULL, err);
}

void box_notify_everybody(struct box *box, const struct err *err)
{
	box_notify_without(box, err);
	waiters_notify(steal_ptr(&box->removers), NULL, err);
}
