/* life.c - start, stop, remove: one path in, one path out; create.c comes before it
 *
 * Each change is written as an intent before its side effects and as a fact after them:
 *
 *   create   row with intent "create" (kept) -> folder, instance -> mark in the row (safe; the
 *            fsync runs while the child sets itself up) -> box-init answers -> running (kept)
 *   start    the same from the instance on, with intent "start"
 *   stop     intent "stop" -> box-init asked, or killed -> everything gone -> stopped
 *   remove   intent "remove" (safe if it runs: it is answered for) -> killed -> disk renamed into
 *            the trash -> row deleted (safe); with "remove-keep" its workspace is packed away first
 *            (workspace.c)
 *
 * An intent is kept, not safe: a dead daemon finds it, and what it guards (processes, mounts,
 * cgroups) does not outlive a dead machine. recover.c reads the same words. */
#include "core/core_internal.h"
#include "core/limit.h"
#include "core/network_internal.h"
#include "core/output_internal.h"
#include "core/timeline.h"
#include "core/tree_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "image/image.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"
#include <fcntl.h>
#include <stdio.h>

enum {
	REMOVAL_TRIES = 10,
	REMOVAL_PAUSE_MS = 500,
	GATE_PATIENCE_MS = 3000,
	KILL_AGAIN_MS = 5000,
	KILLS_LATE = 4,	      /* after so many, whoever waits is told */
	HELLO_MS = 60 * 1000, /* box-init of one that starts answers by then, or never */
	FDS_OF_START = 32,    /* open at once while a box is started, and some more */
};

/* ---- those who wait ------------------------------------------------------------------------- */

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

static void tell_all(struct waiter *waiters, struct box *box, const struct err *err)
{
	while (waiters) {
		struct waiter *next = waiters->next;

		waiters->done(box, err, waiters->arg);
		free(waiters);
		waiters = next;
	}
}

void box_tell(struct box *box, const struct err *err)
{
	tell_all(steal_ptr(&box->waiters), box, err);
}

void box_tell_without(struct box *box, const struct err *err)
{
	tell_all(steal_ptr(&box->waiters), NULL, err);
}

void box_tell_everybody(struct box *box, const struct err *err)
{
	box_tell_without(box, err);
	tell_all(steal_ptr(&box->removers), NULL, err);
}

/* Everybody who waits for its end; it is tried further. */
static void tell_late(struct box *box)
{
	struct waiter *removers = steal_ptr(&box->removers);
	struct err err = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "box '%s' was killed and does not end", box->row.name);
	err_hint(&err, "something in it is stuck in the kernel; it is tried again until it ends");
	log_error("a box does not end", kv_str("box", box->row.id));
	operation_late(box, &err);
	box_tell(box, &err);
	tell_all(removers, box, &err);
}

void box_kill(struct box *box)
{
	struct err err = ERR_INIT;

	if (instance_kill(box->instance, &err) < 0)
		log_warn("a box cannot be killed", kv_str("box", box->row.id), kv_err(&err));
	box_timer_start(box, KILL_AGAIN_MS);
}

static void on_timer(void *arg)
{
	struct box *box = arg;

	if ((box->state == BOX_CREATING || box->state == BOX_STARTING) && box->link &&
		!box->link_ready && !box->beginning.problem.kind)
		err_set(&box->beginning.problem, ERR_TIMEOUT, "box-init of '%s' does not answer",
			box->row.name);
	if (box->state == BOX_RUNNING) {
		box_reconnect(box);
	} else if (box->instance) {
		box_kill(box);
		if (++box->kills % KILLS_LATE == 0)
			tell_late(box);
	} else if (box->state == BOX_REMOVING) {
		box_finish_removal(box);
	}
}

void box_timer_start(struct box *box, uint64_t ms)
{
	if (!box->timer)
		box->timer = loop_timer_new(box->yard->loop, on_timer, box);
	loop_timer_start(box->timer, ms);
}

void box_let_go(struct box *box)
{
	box_disconnect(box);
	network_detach(box);
	instance_free(steal_ptr(&box->instance));
	if (box->timer)
		loop_timer_stop(box->timer);
	box->row.pid = 0;
}

/* ---- the end of an instance ------------------------------------------------------------------ */

/* Nothing is thrown away that was to be kept: the box stays, stopped. */
static void removal_failed(struct box *box, enum intent intent, const struct err *why)
{
	struct waiter *waiters = steal_ptr(&box->waiters), *removers = steal_ptr(&box->removers);

	log_error("cannot remove a box", kv_str("box", box->row.id), kv_err(why));
	/* Nobody waits; the next start of the daemon tries again. */
	if (box_is_gone(box))
		return;
	box->removal_tries = 0;
	box->remove_wanted = box->keep_wanted = false;
	box_set_state(box, BOX_STOPPED, intent);
	box_save(box, STORE_KEPT);
	tell_all(waiters, box, why);
	tell_all(removers, box, why);
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

	/* On a full host the row cannot be deleted; the disk, now in the trash, soon makes room for
	 * that. */
	if (!gone && ++box->removal_tries < REMOVAL_TRIES) {
		box_set_state(box, BOX_REMOVING, box_is_gone(box) ? INTENT_GONE : INTENT_REMOVE);
		box_timer_start(box, REMOVAL_PAUSE_MS);
		return;
	}
	if (!gone) {
		/* The row still says "remove": the next start of the daemon tries again. */
		removal_failed(box, INTENT_REMOVE, &err);
		return;
	}
	waiters = steal_ptr(&box->waiters);
	removers = steal_ptr(&box->removers);
	if (!box_is_gone(box)) {
		inside_box_removed(box);
		yard_event(yard, "box.removed", box, NULL);
	}
	err_set(&err, ERR_STATE, "box '%s' was removed meanwhile", box->row.name);
	box_free(box);
	tell_all(waiters, NULL, &err);
	tell_all(removers, NULL, NULL);
	yard_purge_step(yard);
}

/* While the last process of a box goes, the kernel writes out what it has not written yet, for as
 * long as that takes. Whoever removes the box does not wait for it: once it is killed and its row
 * says so, safely, it is gone for everybody, its name is free, and the rest happens behind. */
static void vanish(struct box *box)
{
	struct waiter *waiters, *removers;
	struct err err = ERR_INIT;
	struct box_row hidden = box->row;
	_cleanup_free_ char *name = xasprintf(".%s", box->row.id);

	hidden.name = name; /* its own is free for others */
	hidden.idempotency = "";
	hidden.intent = (char *)intent_name(INTENT_GONE);
	inside_box_removed(box);
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
	tell_all(waiters, NULL, &err);
	tell_all(removers, NULL, NULL);
}

void box_ended(struct box *box, const char *reason, const char *detail)
{
	bool not_kept = !strcmp(reason, "lost") && *box->row.sleep_failure;
	_cleanup_free_ char *whole =
		not_kept ? xasprintf("%s; it could not be hibernated before: %s", detail,
				   box->row.sleep_failure)
			 : xstrdup(detail);
	struct err gone = ERR_INIT;

	/* First of all: detail may belong to the instance. */
	text_replace(&box->row.end_reason, reason);
	text_replace(&box->row.end_detail, whole);
	text_replace(&box->row.sleep_failure, "");
	err_set(&gone, ERR_STATE, "box '%s' ended meanwhile: %s", box->row.name,
		box->row.end_detail);
	take_cancel(box, &gone);
	output_write(box);
	inside_forget(box);
	box_let_go(box);
	box->stopped_for = NULL;
	box->row.ended_us = clock_wall_us();
	if (box->remove_wanted || box->row.remove_on_exit) {
		/* Whoever stopped it has what he wanted. */
		if (box->state == BOX_STOPPING)
			box_tell(box, NULL);
		if (box->state != BOX_REMOVING) {
			box_set_state(box, BOX_REMOVING, box_removal_intent(box));
			box_save(box, STORE_KEPT);
		}
		box_finish_removal(box);
		return;
	}
	box_set_state(box, BOX_STOPPED, INTENT_NONE);
	box_save(box, STORE_KEPT);
	yard_event(box->yard, "box.stopped", box,
		json_pack(
			"{s:s,s:s}", "reason", box->row.end_reason, "detail", box->row.end_detail));
	box_tell(box, NULL);
	box_forget_asker(box);
	box_forget_exec(box, NULL);
}

static void on_ended(
	struct instance *instance, enum instance_end end, const char *detail, void *arg)
{
	static const char *const reasons[] = {
		[INSTANCE_END_EXITED] = "exited",
		[INSTANCE_END_KILLED] = "killed",
		[INSTANCE_END_MEMORY] = "memory",
		[INSTANCE_END_UNKNOWN] = "lost",
	};
	struct box *box = arg;
	struct err gone = ERR_INIT;

	(void)instance;
	err_set(&gone, ERR_STATE, "box '%s' ended meanwhile: %s", box->row.name, detail);
	take_cancel(box, &gone);
	if (operation_ended(box))
		return;
	if (box->state == BOX_CREATING || box->state == BOX_STARTING) {
		struct err err = ERR_INIT;

		if (box->beginning.problem.kind)
			err = box->beginning.problem;
		else if (box->net && box->net->problem.kind)
			err = box->net->problem;
		else
			err_set(&err, ERR_SYSTEM, "box '%s' ended while it was starting: %s",
				box->row.name, detail);
		box_instance_ops.on_failed(instance, &err, box);
	} else if (box->state == BOX_STOPPING && box->stopped_for) {
		box_ended(box, "limit", box->stopped_for);
	} else if (box->state == BOX_STOPPING) {
		box_ended(box, "stopped", "stopped on request");
	} else {
		box_ended(box, reasons[end], detail);
	}
}

static void on_oom(struct instance *instance, uint64_t kills, void *arg)
{
	struct box *box = arg;

	(void)instance;
	box->oom_kills += kills;
	if (!box->spare)
		limit_memory(box, kills);
}

static void on_pids(struct instance *instance, void *arg)
{
	struct box *box = arg;

	(void)instance;
	if (!box->spare && box->state == BOX_RUNNING)
		limit_processes(box);
}

/* ---- the start of one ------------------------------------------------------------------------ */

/* A box that never ran leaves nothing; one that ran before is stopped again, with the reason. */
void box_launch_failed(struct box *box, const struct err *why)
{
	struct err err = *why;
	struct waiter *waiters;
	struct yard *yard = box->yard;

	if (box->spare) {
		spare_ended(box, &err);
		return;
	}
	if (operation_launch_failed(box, why) || wake_launch_failed(box, why))
		return;
	waiters = steal_ptr(&box->waiters);
	begin_done(box);
	box_let_go(box);
	yard_event(yard, "box.failed", box, json_pack("{s:s}", "message", err.message));
	if (box->state == BOX_CREATING || box->remove_wanted) {
		if (box->state == BOX_STARTING) {
			box_set_state(box, BOX_REMOVING, box_removal_intent(box));
			box_save(box, STORE_KEPT);
		}
		tell_all(waiters, NULL, &err);
		box_finish_removal(box);
		return;
	}
	box_set_state(box, BOX_STOPPED, INTENT_NONE);
	text_replace(&box->row.end_reason, "failed");
	text_replace(&box->row.end_detail, err.message);
	box_save(box, STORE_KEPT);
	box_forget_asker(box);
	tell_all(waiters, box, &err);
}

static void on_failed(struct instance *instance, const struct err *err, void *arg)
{
	(void)instance;
	box_launch_failed(arg, err);
}

/* It runs already: what cannot be done for it now is no reason to end it. */
static void open_running(struct box *box)
{
	struct err err = ERR_INIT;

	if (box->net && network_attach(box, &err) < 0)
		log_error("a box has no network", kv_str("box", box->row.id), kv_err(&err));
	box_reconnect(box);
}

void box_open_up(struct box *box)
{
	struct err err = ERR_INIT;

	if (box->timer)
		loop_timer_stop(box->timer);
	if (box->state == BOX_RUNNING) {
		open_running(box);
		return;
	}
	/* A box whose policy cannot be installed does not start. */
	if (box->net && network_attach(box, &err) < 0) {
		box_kill(box);
		return;
	}
	if (box_connect(box, &err) < 0) {
		log_warn(
			"a new box-init does not answer", kv_str("box", box->row.id), kv_err(&err));
		box_kill(box);
		return;
	}
	box_timer_start(box, HELLO_MS);
}

static void on_ready(struct instance *instance, void *arg)
{
	struct box *box = arg;

	(void)instance;
	if (box->remove_wanted) {
		box_kill(box);
		return;
	}
	operation_ready(box);
	/* It was stopped a moment ago, and what it spent until then is not told yet. */
	if (box->net && box->net->leaving) {
		box->net->waited_for = true;
		err_set(&box->net->problem, ERR_UNAVAILABLE, "the network gate does not answer");
		box_timer_start(box, GATE_PATIENCE_MS);
		return;
	}
	box_open_up(box);
}

void box_keep_mark(struct box *box)
{
	const struct instance_mark *mark = instance_get_mark(box->instance);

	box->row.pid = mark->pid;
	box->row.start_time = mark->start_time;
	text_replace(&box->row.boot, mark->boot);
}

static void on_marked(struct instance *instance, void *arg)
{
	struct box *box = arg;

	(void)instance;
	/* Until it has proved to work the row is of the present. */
	if (operation_disk(box))
		return;
	box_keep_mark(box);
	box_save(box, STORE_KEPT);
}

/* From here on its disk changes. Memory of before must never go on upon it, whatever happens. */
static void on_going(struct instance *instance, void *arg)
{
	struct box *box = arg;

	(void)instance;
	if (box->beginning.kind != BEGIN_WAKE)
		return;
	box_set_state(box, BOX_STARTING, INTENT_WOKEN);
	box_save(box, STORE_SAFE);
}

/* Its memory is as good as before. */
static void on_held(struct instance *instance, void *arg)
{
	struct box *box = arg;

	(void)instance;
	if (box->intent != INTENT_WOKEN)
		return;
	box_set_state(box, BOX_STARTING, INTENT_WAKE);
	box_save(box, STORE_SAFE);
}

const struct instance_ops box_instance_ops = {
	.on_ready = on_ready,
	.on_failed = on_failed,
	.on_ended = on_ended,
	.on_oom = on_oom,
	.on_pids = on_pids,
	.on_marked = on_marked,
	.on_going = on_going,
	.on_held = on_held,
};

void box_instance_spec(struct box *box, const struct image *image, struct instance_spec *ret)
{
	snprintf(box->instance_id, sizeof box->instance_id, "%.*s%s", BOX_ID_LEN + 4, box->row.id,
		box->second ? SECOND_SUFFIX : "");
	*ret = (struct instance_spec){
		.id = box->instance_id,
		.tree = box_get_tree(box),
		.hostname = box->row.name,
		.ns.layers = image ? (const char *const *)image->layers : NULL,
		.ns.uid_base = UID_FIRST + box->row.uid_slot * (uint32_t)UID_RANGE,
		.limits = { box->row.cpu_milli, box->row.memory_bytes, box->row.disk_bytes,
			box->row.pids },
	};
	if (box->tree) {
		ret->limits = tree_bound(box, &ret->limits);
		ret->tree_limits = tree_limits(box->tree);
	}
	profile_from_name(box->row.profile, &ret->ns.profile, NULL);
}

/* A box needs some fds for as long as it runs. The last eighth is not for more of them: without it
 * nobody could connect to remove one. */
static int check_fds(struct err *err)
{
	_cleanup_close_ int lowest = open("/", O_PATH | O_CLOEXEC);

	if (lowest >= 0 && !fd_is_scarce(lowest))
		return 0;
	err_set(err, ERR_LIMIT, "nearly all files that the daemon may have open are in use");
	return err_hint(err, "raise its LimitNOFILE (ulimit -n) and restart it; boxes run on");
}

/* A disk that was there once is never replaced by an empty one without a word. *ret_wait: it is
 * being made. */
static int need_disk(struct box *box, const struct image *image, bool *ret_wait, struct err *err)
{
	struct pool *pool = box->yard->pool;

	*ret_wait = false;
	if (operation_disk(box) || box_has_disk(box))
		return 0;
	if (box->row.started_us) {
		err_set(err, ERR_NOT_FOUND, "the disk of box '%s' is gone", box->row.name);
		return err_hint(err, "'box rm %s' removes what is left of it", box->row.name);
	}
	if (box->beginning.state) {
		*ret_wait = true;
		return pool_check_room(pool, 0, err) < 0
			       ? -1
			       : seed_copy(box, box->beginning.state, err);
	}
	if (pool_check_room(pool, 0, err) < 0 || seed_start(box, image, ret_wait, err) < 0)
		return -1;
	if (*ret_wait)
		return 0;
	return pool_disk_make(
		pool, BOX_DISKS, box->row.id, pool_has_quota(pool) ? box->row.disk_bytes : 0, err);
}

/* Layers that are no snapshots of disks. On a native pool they are on the file system of the disks
 * all the same. */
static size_t count_apart(const struct pool *pool, const struct image *image)
{
	_cleanup_free_ char *saved = xasprintf("%s/layers/", pool_get_path(pool));
	size_t count = 0;

	if (pool_get_kind(pool) != POOL_NATIVE)
		return 0;
	for (char **layer = image->layers; *layer; layer++)
		count = text_has_prefix(*layer, saved) ? 0 : count + 1;
	return count;
}

/* beside->id NULL: as box_instance_spec says; state.dir -1: from its disk. */
static int make_instance(struct box *box, const struct image *image,
	const struct box_beside *beside, struct instance **ret, struct err *err)
{
	_cleanup_free_ char *disk = pool_disk_path(box->yard->pool, BOX_DISKS, beside->disk);
	struct instance_mount *mounts = NULL;
	struct instance_spec spec;
	struct engine *engine;
	int status;

	box_instance_spec(box, image, &spec);
	if (beside->id)
		spec.id = beside->id;
	if (beside->state.dir >= 0)
		spec.state = &beside->state;
	if (spec.state && box->tree && tree_check_state(box, spec.state->dir, err) < 0)
		return -1;
	if (box_engine(box, &engine, err) < 0 ||
		box_mounts_resolve(box, &mounts, &spec.mount_count, err) < 0)
		return -1;
	spec.ns.apart = count_apart(box->yard->pool, image);
	spec.disk = disk;
	spec.mounts = mounts;
	status = engine_start(engine, &spec, beside->ops, beside->arg, ret, err);
	box_mounts_done(mounts, spec.mount_count);
	return status;
}

static int start_instance(struct box *box, const struct image *image, struct err *err)
{
	const char *ahead = operation_disk(box);
	const struct box_beside own = {
		.disk = ahead ? ahead : box->row.id,
		.state = { .dir = box->beginning.state ? box->beginning.dir : -1,
			.time_passes = box->beginning.kind == BEGIN_WAKE },
		.ops = &box_instance_ops,
		.arg = box,
	};

	/* That of the instance before it. */
	box->kills = 0;
	if (box->timer)
		loop_timer_stop(box->timer);
	return make_instance(box, image, &own, &box->instance, err);
}

int box_start_beside(
	struct box *box, const struct box_beside *beside, struct instance **ret, struct err *err)
{
	const struct image *image = images_get(box->yard->images, box->row.image, err);

	if (!image || check_fds(err) < 0)
		return -1;
	return make_instance(box, image, beside, ret, err);
}

int box_launch(struct box *box, struct err *err)
{
	const struct image *image = images_get(box->yard->images, box->row.image, err);
	bool wait = false;

	if (box->net)
		err_clear(&box->net->problem);
	err_clear(&box->beginning.problem);
	if (!image || check_fds(err) < 0 || need_disk(box, image, &wait, err) < 0)
		return err_wrap(err, "start box '%s'", box->row.name);
	if (wait)
		return 0;
	if (begin_prepare(box, &wait, err) < 0)
		return -1;
	if (wait)
		return 0;
	if (start_instance(box, image, err) < 0)
		return err_wrap(err, "start box '%s'", box->row.name);
	if (box->beginning.state || operation_disk(box))
		return 0; /* on_marked follows, or operation_commit */
	box_keep_mark(box);
	/* The child sets itself up on another core during this fsync. */
	if (!box->spare)
		box_save(box, STORE_SAFE);
	return 0;
}

/* ---- start, stop, remove, rename ------------------------------------------------------------ */

int box_refuse_busy(struct box *box, struct err *err)
{
	err_set(err, ERR_STATE, "box '%s' is %s", box->row.name, box_state_name(box->state));
	return err_hint(err, "wait for it, then try again");
}

/* Somebody who waits for his turn with a box. */
struct caller {
	struct operation op;
	uint64_t grace_ms;
	box_done done;
	void *arg;
};

static void queue_caller(struct box *box, const struct operation_ops *ops, uint64_t grace_ms,
	box_done done, void *arg)
{
	struct caller *caller = xnew(struct caller);

	*caller = (struct caller){ { .ops = ops }, grace_ms, done, arg };
	operation_queue(box, &caller->op);
}

static void nobody(struct box *box, const struct err *err, void *arg)
{
	(void)box;
	(void)err;
	(void)arg;
}

static void start_now(struct box *box, box_done done, void *arg)
{
	struct err err = ERR_INIT;

	if (yard_check_stays(box->yard, &err) < 0) {
		done(box, &err, arg);
		return;
	}
	box_wait(box, done, arg);
	box->row.held = false;
	box_set_state(box, BOX_STARTING, INTENT_START);
	text_replace(&box->row.boot, box->yard->boot);
	box_save(box, STORE_KEPT);
	if (box_launch(box, &err) < 0)
		box_launch_failed(box, &err);
}

static void begin_start(struct operation *op, struct box *box, const struct err *gone)
{
	_cleanup_free_ struct caller *caller = (struct caller *)op;

	if (!box) {
		caller->done(NULL, gone, caller->arg);
		return;
	}
	operation_end(box);
	if (box->state == BOX_STOPPED)
		start_now(box, caller->done, caller->arg);
	else
		box_start(box, caller->done, caller->arg);
}

static const struct operation_ops start_ops = { .name = "start", .begin = begin_start };

void box_start(struct box *box, box_done done, void *arg)
{
	struct err err = ERR_INIT;

	if (box->state == BOX_RUNNING && box->row.held) {
		box->row.held = false;
		box_save(box, STORE_KEPT);
		box_wait(box, done, arg);
		if (!box_run_command(box))
			box_tell(box, NULL);
		return;
	}
	if (box->state == BOX_RUNNING) {
		done(box, NULL, arg);
		return;
	}
	if (box->state == BOX_STARTING || box->state == BOX_CREATING) {
		box_wait(box, done, arg);
		return;
	}
	if (box->state == BOX_SUSPENDED || box->state == BOX_HIBERNATED) {
		box_wake(box, done, arg);
		return;
	}
	if (box->state != BOX_STOPPED) {
		box_refuse_busy(box, &err);
		done(box, &err, arg);
		return;
	}
	/* Its disk is being copied, and that is to be of one moment. */
	if (operation_is_on(box))
		queue_caller(box, &start_ops, 0, done, arg);
	else
		start_now(box, done, arg);
}

void box_ask_shutdown(struct box *box, uint64_t grace_ms)
{
	static const struct chan_ops ops = { 0 };
	struct buf request = BUF_INIT;

	wire_put_u32(&request, (uint32_t)grace_ms);
	/* The box may be beyond asking; then the timer's kill ends it. */
	if (!grace_ms || !box->link ||
		!chan_open(box->link, WIRE_OP_SHUTDOWN, &request, &ops, NULL, NULL))
		box_kill(box);
	else
		box_timer_start(box, grace_ms + 1500);
	buf_done(&request);
}

/* A hibernated box has nothing that could be asked to end. */
static void give_processes_up(struct box *box)
{
	_cleanup_free_ char *state = xstrdup(box->row.state_id);

	text_replace(&box->row.state_id, "");
	text_replace(&box->row.end_reason, "stopped");
	text_replace(&box->row.end_detail, "stopped on request while it was hibernated");
	box->row.ended_us = clock_wall_us();
	box_set_state(box, BOX_STOPPED, INTENT_NONE);
	box_save(box, STORE_SAFE);
	checkpoints_discard(box->yard->checkpoints, state, NULL);
	yard_event(box->yard, "box.stopped", box,
		json_pack(
			"{s:s,s:s}", "reason", box->row.end_reason, "detail", box->row.end_detail));
}

static void stop_now(struct box *box, uint64_t grace_ms, box_done done, void *arg)
{
	struct err err = ERR_INIT;
	bool asks = grace_ms || box->state == BOX_RUNNING; /* one that stands still says nothing */

	if (box->state == BOX_STOPPED) {
		done(box, NULL, arg);
		return;
	}
	if (box->state == BOX_STOPPING) {
		box_wait(box, done, arg);
		if (!grace_ms)
			box_kill(box);
		return;
	}
	if (box->state == BOX_HIBERNATED) {
		give_processes_up(box);
		done(box, NULL, arg);
		return;
	}
	/* Its programs are asked to end, so they must run. */
	if (box->state == BOX_SUSPENDED && grace_ms && box_resume(box, &err) < 0) {
		done(box, &err, arg);
		return;
	}
	if (box->state != BOX_RUNNING && box->state != BOX_SUSPENDED) {
		box_refuse_busy(box, &err);
		done(box, &err, arg);
		return;
	}
	box_wait(box, done, arg);
	box_set_state(box, BOX_STOPPING, INTENT_STOP);
	box_save(box, STORE_KEPT);
	if (!asks || !output_save(box, grace_ms))
		box_ask_shutdown(box, grace_ms);
}

static void begin_stop(struct operation *op, struct box *box, const struct err *gone)
{
	_cleanup_free_ struct caller *caller = (struct caller *)op;

	if (!box) {
		caller->done(NULL, gone, caller->arg);
		return;
	}
	operation_end(box);
	stop_now(box, caller->grace_ms, caller->done, caller->arg);
}

static const struct operation_ops stop_ops = { .name = "stop", .begin = begin_stop };

/* Programs that stand still, being written down, cannot be asked to end; they can be killed. What
 * is between two states is waited for in any case. */
static bool stop_waits(const struct box *box, uint64_t grace_ms)
{
	switch (box->state) {
	case BOX_RUNNING:
	case BOX_SUSPENDED:
		return operation_is_on(box) && grace_ms;
	case BOX_HIBERNATING:
	case BOX_ROLLING_BACK:
		return true;
	case BOX_STARTING:
		return operation_is_on(box);
	default:
		return false;
	}
}

void box_stop(struct box *box, uint64_t grace_ms, box_done done, void *arg)
{
	if (!done)
		done = nobody;
	if (stop_waits(box, grace_ms))
		queue_caller(box, &stop_ops, grace_ms, done, arg);
	else
		stop_now(box, grace_ms, done, arg);
}

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
	wait_in(&box->removers, done, arg);
	if (box->state == BOX_REMOVING)
		return;
	if (box->state == BOX_CREATING || box->state == BOX_STARTING) {
		/* The start's own end carries on with the removal. */
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
