/* trial.c - test-restores an unusual state before the captured processes are ended
 *
 *   captured, the box is frozen ─► copy its disk ─► restore beside it, up to where it would run ─►
 *   kill the copy
 *
 * A capture that cannot be restored loses a box's memory. What is known to fail is refused by the
 * capture itself; only a restore finds what is not known. It takes as long as a wake and needs the
 * memory twice, so it is done only where CRIU has met something rare (file "unusual" of the state;
 * see scripts/criu-changes) and where there is room. It is not done with volumes and folders of the
 * host: the links that the capture made there for deleted files would be used up.
 *
 * The disk is ".roll-ID" and the cgroups use the other instance id of the box, as in a rollback:
 * after a crash the next daemon removes both. */
#include "core/core_internal.h"
#include "core/time/rollback_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KILL_AGAIN_MS = 5000, KILLS_MAX = 3 };

struct trial {
	struct box *box;
	char *state, *disk, *id;
	int dir; /* folder of the state, held; -1 */
	struct helper *helper;
	struct instance *instance;
	struct err err;
	bool came;		     /* the restore came as far as it should */
	struct loop_timer *patience; /* for the end of the copy */
	unsigned kills;
	int64_t started_us;
	box_done done;
	void *arg;
};

static void trial_free(struct trial *trial)
{
	struct yard *yard = trial->box->yard;

	trial->box->trial = NULL;
	helper_free(trial->helper);
	loop_timer_free(trial->patience);
	instance_free(trial->instance);
	if (trial->dir >= 0) {
		close(trial->dir);
		checkpoints_release(yard->checkpoints, trial->state);
	}
	pool_disk_discard(yard->pool, BOX_DISKS, trial->disk, NULL);
	free(trial->state);
	free(trial->disk);
	free(trial->id);
	free(trial);
}

static void finish(struct trial *trial)
{
	struct box *box = trial->box;
	struct err err = trial->err;
	box_done done = trial->done;
	void *arg = trial->arg;

	if (trial->came)
		log_info("an unusual checkpoint can be restored", kv_str("box", box->row.id),
			kv_ms("took", clock_mono_us() - trial->started_us));
	else
		log_warn("a new checkpoint cannot be restored", kv_str("box", box->row.id),
			kv_err(&err));
	if (!trial->came)
		err_wrap(&err, "what was captured could not be restored, so nothing was changed");
	trial_free(trial);
	done(box, err.kind ? &err : NULL, arg);
}

/* ---- the processes -------------------------------------------------------------------------- */

/* The box is frozen meanwhile, so the wait for the end of the copy is limited. */
static void end(void *arg)
{
	struct trial *trial = arg;
	struct err err = ERR_INIT;

	if (trial->kills++ < KILLS_MAX) {
		instance_kill(trial->instance, NULL); /* on_failed or on_ended follows */
		loop_timer_start(trial->patience, KILL_AGAIN_MS);
		return;
	}
	instance_free(steal_ptr(&trial->instance));
	if (drivers_sweep(trial->box->yard->drivers, trial->id, &err) < 0)
		log_error("what was restored for a trial does not end",
			kv_str("box", trial->box->row.id), kv_err(&err));
	finish(trial);
}

/* Everything was restored and nothing has run yet: the test has succeeded. */
static void on_going(struct instance *instance, void *arg)
{
	struct trial *trial = arg;

	(void)instance;
	trial->came = true;
	trial->patience = loop_timer_new(trial->box->yard->loop, end, trial);
	end(trial);
}

static void on_failed(struct instance *instance, const struct err *why, void *arg)
{
	struct trial *trial = arg;

	(void)instance;
	if (!trial->came)
		trial->err = *why;
	finish(trial);
}

/* The kill came after the end of the restore. */
static void on_ended(
	struct instance *instance, enum instance_end end, const char *detail, void *arg)
{
	(void)instance;
	(void)end;
	(void)detail;
	finish(arg);
}

static void on_ready(struct instance *instance, void *arg)
{
	(void)arg;
	instance_kill(instance, NULL);
}

static int restore(struct trial *trial, struct err *err)
{
	static const struct instance_ops ops = { .on_going = on_going,
		.on_failed = on_failed,
		.on_ended = on_ended,
		.on_ready = on_ready };
	const struct box_beside beside = {
		.id = trial->id,
		.disk = trial->disk,
		.state = { .dir = trial->dir },
		.ops = &ops,
		.arg = trial,
	};

	return box_start_beside(trial->box, &beside, &trial->instance, err);
}

/* ---- its disk ------------------------------------------------------------------------------- */

static int run_copy(int sock, void *arg)
{
	const struct trial *trial = arg;
	struct err err = ERR_INIT;

	if (pool_disk_copy(trial->box->yard->pool, BOX_DISKS, trial->box->row.id, BOX_DISKS,
		    trial->disk, NULL, POOL_BUDGET_SAME, &err) == 0)
		return 0;
	send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return 1;
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct trial *trial = arg;

	if (len == sizeof trial->err)
		memcpy(&trial->err, message, len);
}

static void on_copied(int code, void *arg)
{
	struct trial *trial = arg;

	trial->helper = NULL;
	if (code != 0 && !trial->err.kind)
		err_set(&trial->err, ERR_UNAVAILABLE, "the copy of its disk was interrupted");
	if (trial->err.kind || restore(trial, &trial->err) < 0)
		finish(trial);
}

/* ---- the start ------------------------------------------------------------------------------ */

static void on_plain(int dir, const struct err *err, void *arg)
{
	if (!err)
		((struct trial *)arg)->dir = dir;
}

static bool is_unusual(const struct trial *trial)
{
	struct engine *engine;

	return trial->dir >= 0 && box_engine(trial->box, &engine, NULL) == 0 &&
	       engine_look_at_state(engine, trial->dir).unusual;
}

static bool has_room(const struct trial *trial, uint64_t processes)
{
	uint64_t plain, packed;

	checkpoints_sizes(trial->box->yard->checkpoints, trial->state, &plain, &packed);
	return !box_has_mounts(trial->box) && box_fits_twice(trial->box, plain, processes) &&
	       pool_check_room(trial->box->yard->pool, 0, NULL) == 0;
}

bool trial_start(struct box *box, const char *state, uint64_t processes, box_done done, void *arg)
{
	static const struct helper_ops ops = {
		.run = run_copy, .on_message = on_message, .on_exit = on_copied, .light = true
	};
	struct trial *trial = xnew(struct trial);
	struct err err = ERR_INIT;

	*trial = (struct trial){ .box = box,
		.state = xstrdup(state),
		.disk = xasprintf(ROLL_DISK_PREFIX "%s", box->row.id),
		.id = xasprintf("%s%s", box->row.id, box->second ? "" : SECOND_SUFFIX),
		.dir = -1,
		.started_us = clock_mono_us(),
		.done = done,
		.arg = arg };
	box->trial = trial;
	/* The state was just written, so the callback comes at once. */
	checkpoints_plain(box->yard->checkpoints, state, on_plain, trial);
	checkpoints_forget(box->yard->checkpoints, trial);
	if (!is_unusual(trial)) {
		trial_free(trial);
		return false;
	}
	if (!has_room(trial, processes)) {
		log_info(
			"an unusual checkpoint is not tried: there is no room for it twice, or it has "
			"mounts",
			kv_str("box", box->row.id));
		trial_free(trial);
		return false;
	}
	if (helper_start(box->yard->loop, &ops, trial, NULL, 0, &trial->helper, &err) == 0)
		return true;
	log_warn("an unusual checkpoint is not tried", kv_str("box", box->row.id), kv_err(&err));
	trial_free(trial);
	return false;
}

void trial_cancel(struct box *box)
{
	struct trial *trial = box->trial;
	_cleanup_free_ char *id = NULL;

	if (!trial)
		return;
	id = steal_ptr(&trial->id);
	if (trial->instance)
		instance_kill(trial->instance, NULL);
	trial_free(trial);
	if (!box->yard->closing)
		drivers_sweep(box->yard->drivers, id, NULL);
}
