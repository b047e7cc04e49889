/* begin.c - a box from a state: woken, taken back, or a fork
 *
 * The state's plain form is needed first, which may have to be unpacked; it is held until the box
 * runs. When box-init has said hello it is told what happened to it (guest/self.c): a fork gets its
 * new identity before anybody can talk to it. */
#include "core/core_internal.h"
#include "core/inside.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoints.h"

void box_begin_from(struct box *box, const char *state, enum begin_kind kind)
{
	begin_done(box);
	box->beginning.state = xstrdup(state);
	box->beginning.kind = kind;
	box->beginning.dir = -1;
	box->beginning.used = snapshot_use(box->yard, state);
}

/* A state of before captures kept them has none. */
static json_t *read_names(const struct box *box, int dir)
{
	_cleanup_free_ char *text = NULL;
	struct err err = ERR_INIT;
	json_t *names = NULL;
	size_t len;

	if (file_read(dir, TAKE_NAMES_FILE, TAKE_NAMES_MAX, &text, &len, &err) == 0)
		names = json_parse(text, len, &err);
	if (err.kind && err.kind != ERR_NOT_FOUND)
		log_warn("addresses of names in a state cannot be read", kv_str("box", box->row.id),
			kv_err(&err));
	return names;
}

static void take_dir(struct box *box, int dir)
{
	box->beginning.names = read_names(box, dir);
	box->beginning.dir = dir;
	box->beginning.held = true;
}

static void on_plain(int dir, const struct err *err, void *arg)
{
	struct box *box = arg;
	struct err why = ERR_INIT;

	box->beginning.waits = false;
	if (err) {
		why = *err;
		if (box->beginning.in_call)
			box->beginning.problem = why;
		else
			box_launch_failed(box, &why);
		return;
	}
	take_dir(box, dir);
	if (!box->beginning.in_call && box_launch(box, &why) < 0)
		box_launch_failed(box, &why);
}

int begin_prepare(struct box *box, bool *ret_wait, struct err *err)
{
	struct beginning *beginning = &box->beginning;

	*ret_wait = false;
	if (!beginning->state || beginning->dir >= 0)
		return 0;
	beginning->in_call = beginning->waits = true;
	err_clear(&beginning->problem);
	checkpoints_plain(box->yard->checkpoints, beginning->state, on_plain, box);
	beginning->in_call = false;
	if (beginning->problem.kind) {
		*err = beginning->problem;
		return err_wrap(err, "state of box '%s'", box->row.name);
	}
	*ret_wait = beginning->dir < 0;
	return 0;
}

void begin_done(struct box *box)
{
	struct beginning *beginning = &box->beginning;

	if (!beginning->state)
		return;
	if (beginning->waits)
		checkpoints_forget(box->yard->checkpoints, box);
	if (beginning->dir >= 0)
		close(beginning->dir);
	if (beginning->held)
		checkpoints_release(box->yard->checkpoints, beginning->state);
	if (beginning->used)
		snapshot_unuse(box->yard, beginning->state);
	free(beginning->state);
	free(beginning->parent);
	json_decref(beginning->names);
	*beginning = (struct beginning){ .dir = -1 };
}

/* ---- who it is now -------------------------------------------------------------------------- */

static void on_greeted(struct box *box, const struct err *err, void *arg)
{
	(void)arg;
	if (err && box->beginning.kind == BEGIN_WAKE && box->link_ready)
		log_warn(
			"a box was not told that it woke", kv_str("box", box->row.id), kv_err(err));
	if (!err || (box->beginning.kind == BEGIN_WAKE && box->link_ready)) {
		box_came_up(box);
		return;
	}
	/* One that does not know who it is, is not served. */
	log_error("a restored box was not told who it is", kv_str("box", box->row.id), kv_err(err));
	box->beginning.problem = *err;
	box_kill(box);
}

void begin_greet(struct box *box)
{
	struct beginning *beginning = &box->beginning;
	struct err err = ERR_INIT;
	int status;

	if (beginning->kind == BEGIN_FORK)
		status = box_tell_identity(
			box, beginning->parent, beginning->index, on_greeted, NULL, &err);
	else
		status = box_tell_restored(box,
			beginning->kind == BEGIN_ROLLBACK ? WIRE_RESTORED_ROLLED_BACK
							  : WIRE_RESTORED_WOKEN,
			on_greeted, NULL, &err);
	if (status < 0)
		on_greeted(box, &err, NULL);
}
