/* restore.c - starts a box from a state: a wake, a rollback or a fork
 *
 * The state must be unpacked first, and is held until the box runs. After box-init's hello it is
 * told what happened (guest/self.c): a fork gets its new identity before anybody can talk to it. */
#include "core/core_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoints.h"

void box_restore_from(struct box *box, const char *state, enum restore_kind kind)
{
	restore_done(box);
	box->restore.state = xstrdup(state);
	box->restore.kind = kind;
	box->restore.dir = -1;
	box->restore.used = snapshot_use(box->yard, state);
}

/* A state from an older version has no names. */
static json_t *read_names(const struct box *box, int dir)
{
	_cleanup_free_ char *text = NULL;
	struct err err = ERR_INIT;
	json_t *names = NULL;
	size_t len;

	if (file_read(dir, CAPTURE_NAMES_FILE, CAPTURE_NAMES_MAX, &text, &len, &err) == 0)
		names = json_parse(text, len, &err);
	if (err.kind && err.kind != ERR_NOT_FOUND)
		log_warn("addresses of names in a checkpoint cannot be read",
			kv_str("box", box->row.id), kv_err(&err));
	return names;
}

static void take_dir(struct box *box, int dir)
{
	box->restore.names = read_names(box, dir);
	box->restore.dir = dir;
	box->restore.held = true;
}

static void on_plain(int dir, const struct err *err, void *arg)
{
	struct box *box = arg;
	struct err why = ERR_INIT;

	box->restore.waits = false;
	if (err) {
		why = *err;
		if (box->restore.in_call)
			box->restore.problem = why;
		else
			box_launch_failed(box, &why);
		return;
	}
	take_dir(box, dir);
	if (!box->restore.in_call && box_launch(box, &why) < 0)
		box_launch_failed(box, &why);
}

int restore_prepare(struct box *box, bool *ret_wait, struct err *err)
{
	struct box_restore *restore = &box->restore;

	*ret_wait = false;
	if (!restore->state || restore->dir >= 0)
		return 0;
	restore->in_call = restore->waits = true;
	err_clear(&restore->problem);
	checkpoints_plain(box->yard->checkpoints, restore->state, on_plain, box);
	restore->in_call = false;
	if (restore->problem.kind) {
		*err = restore->problem;
		return err_wrap(err, "checkpoint of box '%s'", box->row.name);
	}
	*ret_wait = restore->dir < 0;
	return 0;
}

void restore_done(struct box *box)
{
	struct box_restore *restore = &box->restore;

	if (!restore->state)
		return;
	if (restore->waits)
		checkpoints_forget(box->yard->checkpoints, box);
	if (restore->dir >= 0)
		close(restore->dir);
	if (restore->held)
		checkpoints_release(box->yard->checkpoints, restore->state);
	if (restore->used)
		snapshot_unuse(box->yard, restore->state);
	free(restore->state);
	free(restore->parent);
	json_decref(restore->names);
	*restore = (struct box_restore){ .dir = -1 };
}

/* ---- the new identity ----------------------------------------------------------------------- */

static void on_greeted(struct box *box, const struct err *err, void *arg)
{
	(void)arg;
	if (err && box->restore.kind == RESTORE_WAKE && box->link_ready)
		log_warn(
			"a box was not told that it woke", kv_str("box", box->row.id), kv_err(err));
	if (!err || (box->restore.kind == RESTORE_WAKE && box->link_ready)) {
		box_came_up(box);
		return;
	}
	/* The end of the connection decides whether it is told once more. */
	if (box->link && link_is_lost(box->link))
		return;
	/* A box without its identity must not be used. */
	log_error("a restored box was not told who it is", kv_str("box", box->row.id), kv_err(err));
	box->restore.problem = *err;
	box_kill(box);
}

void restore_greet(struct box *box)
{
	struct box_restore *restore = &box->restore;
	struct err err = ERR_INIT;
	int status;

	if (restore->kind == RESTORE_FORK)
		status = box_tell_identity(
			box, restore->parent, restore->index, on_greeted, NULL, &err);
	else
		status = box_tell_restored(box,
			restore->kind == RESTORE_ROLLBACK ? WIRE_RESTORED_ROLLED_BACK
							  : WIRE_RESTORED_WOKEN,
			on_greeted, NULL, &err);
	if (status < 0)
		on_greeted(box, &err, NULL);
}
