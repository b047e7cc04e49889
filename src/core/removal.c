/* removal.c - a box goes: its instance, its disk, its row
 *
 *   remove   intent "remove" (safe if it runs: it is answered for) -> killed -> disk renamed into
 *            the trash -> row deleted (safe); with "remove-keep" its workspace is packed away first
 *            (workspace.c) */
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "core/output_internal.h"
#include "base/log.h"
#include "pool/pool.h"

enum { REMOVAL_TRIES = 10, REMOVAL_PAUSE_MS = 500 };

/* ---- the end of it -------------------------------------------------------------------------- */

/* The workspace could not be kept: the box stays, stopped, and nothing is deleted. */
static void removal_failed(struct box *box, enum intent intent, const struct err *why)
{
	struct waiter *waiters = steal_ptr(&box->waiters), *removers = steal_ptr(&box->removers);

	log_error("cannot remove a box", kv_str("box", box->row.id), kv_err(why));
	/* Nobody waits; the next daemon tries again. */
	if (box_is_gone(box))
		return;
	box->removal_tries = 0;
	box->remove_wanted = box->keep_wanted = false;
	box_set_state(box, BOX_STOPPED, intent);
	box_save(box, STORE_KEPT);
	waiters_notify(waiters, box, why);
	waiters_notify(removers, box, why);
}

void box_keeping_ended(struct box *box, const struct err *why)
{
	if (why) {
		removal_failed(box, INTENT_NONE, why);
		return;
	}
	box_set_state(box, BOX_REMOVING, INTENT_REMOVE);
	box_save(box, STORE_SAFE);
	box_finish_removal(box);
}

enum intent box_removal_intent(const struct box *box)
{
	return box->keep_wanted ? INTENT_REMOVE_KEEP : INTENT_REMOVE;
}

void box_finish_removal(struct box *box)
{
	struct yard *yard = box->yard;
	struct waiter *waiters, *removers;
	struct err err = ERR_INIT;
	bool gone;

	if (box->intent == INTENT_REMOVE_KEEP) {
		if (workspace_keep(box, &err) < 0)
			removal_failed(box, INTENT_NONE, &err);
		return;
	}
	snapshots_box_removed(box);
	output_remove(box);
	gone = pool_disk_discard(yard->pool, BOX_DISKS, box->row.id, &err) == 0 &&
	       store_box_delete(yard->store, box->row.id, STORE_SAFE, &err) == 0;

	/* On a full host the row cannot be deleted; the disk, now in the trash, will soon make
	 * room. */
	if (!gone && ++box->removal_tries < REMOVAL_TRIES) {
		box_set_state(box, BOX_REMOVING, box_is_gone(box) ? INTENT_GONE : INTENT_REMOVE);
		box_timer_start(box, REMOVAL_PAUSE_MS);
		return;
	}
	if (!gone) {
		/* The row still says "remove": the next daemon tries again. */
		removal_failed(box, INTENT_REMOVE, &err);
		return;
	}
	waiters = steal_ptr(&box->waiters);
	removers = steal_ptr(&box->removers);
	if (!box_is_gone(box)) {
		lineage_box_removed(box);
		yard_event(yard, "box.removed", box, NULL);
	}
	err_set(&err, ERR_STATE, "box '%s' was removed meanwhile", box->row.name);
	box_free(box);
	waiters_notify(waiters, NULL, &err);
	waiters_notify(removers, NULL, NULL);
	yard_purge_step(yard);
}

/* When the last process of a box ends, the kernel writes out its dirty pages, which may take long.
 * The caller does not wait for that: once the box is killed and its row says so, safely, the box is
 * removed for everybody, its name is free, and the rest happens in the background. */
static void vanish(struct box *box)
{
	struct waiter *waiters, *removers;
	struct err err = ERR_INIT;
	struct box_row hidden = box->row;
	_cleanup_free_ char *name = xasprintf(".%s", box->row.id);

	hidden.name = name; /* frees the name for others */
	hidden.idempotency = "";
	hidden.intent = (char *)intent_name(INTENT_GONE);
	lineage_box_removed(box);
	if (store_box_update(box->yard->store, &hidden, STORE_SAFE, &err) < 0)
		return;
	yard_event(box->yard, "box.removed", box, NULL);
	err_set(&err, ERR_STATE, "box '%s' was removed meanwhile", box->row.name);
	text_replace(&box->row.name, name);
	text_replace(&box->row.idempotency, "");
	box_set_state(box, BOX_REMOVING, INTENT_GONE);
	box_disconnect(box);
	network_detach(box);
	waiters = steal_ptr(&box->waiters);
	removers = steal_ptr(&box->removers);
	waiters_notify(waiters, NULL, &err);
	waiters_notify(removers, NULL, NULL);
}

void box_remove_now(struct box *box)
{
	box_set_state(box, BOX_REMOVING, INTENT_REMOVE);
	box_finish_removal(box);
}

/* ---- the wish ------------------------------------------------------------------------------- */

static void remove_with(struct box *box, bool force, enum intent intent, box_done done, void *arg)
{
	struct err err = ERR_INIT;

	if (box->state != BOX_STOPPED && box->state != BOX_REMOVING && !force) {
		err_set(&err, ERR_STATE, "box '%s' is %s", box->row.name,
			box_state_name(box->state));
		err_hint(&err, "'box stop' first, or 'box rm -f'");
		done(box, &err, arg);
		return;
	}
	box_note_asker(box);
	box_wait_removal(box, done, arg);
	if (box->state == BOX_REMOVING)
		return;
	if (box->state == BOX_CREATING || box->state == BOX_STARTING) {
		/* The end of the start continues with the removal. */
		box->remove_wanted = true;
		box->keep_wanted |= intent == INTENT_REMOVE_KEEP;
		if (box->instance)
			box_kill(box);
		return;
	}
	box->remove_wanted = true;
	box_set_state(box, BOX_REMOVING, intent);
	if (!box->instance) {
		box_save(box, STORE_KEPT);
		box_finish_removal(box);
		return;
	}
	box_kill(box);
	if (intent == INTENT_REMOVE_KEEP)
		box_save(box, STORE_KEPT);
	else
		vanish(box);
}

void box_remove(struct box *box, bool force, box_done done, void *arg)
{
	remove_with(box, force, INTENT_REMOVE, done, arg);
}

void box_remove_keeping(struct box *box, bool force, box_done done, void *arg)
{
	remove_with(box, force, INTENT_REMOVE_KEEP, done, arg);
}
