/* life.c - start, stop, remove: one path in, one path out; create.c comes before it
 *
 * Each change is written as an intent before its side effects and as a fact after them:
 *
 *   create   row with intent "create" (kept) -> folder, instance -> mark in the row (safe; the fsync runs
 *            while the child sets itself up) -> box-init answers -> running (kept)
 *   start    the same from the instance on, with intent "start"
 *   stop     intent "stop" -> box-init asked, or killed -> everything gone -> stopped
 *   remove   intent "remove" -> killed if it runs -> folder renamed into the trash -> row deleted (safe)
 *
 * An intent is kept, not safe: a dead daemon finds it, and what it guards (processes, mounts, cgroups) does
 * not outlive a dead machine. recover.c reads the same words. */
#include "core/core_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "conf/conf.h"
#include "image/image.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum {
	REMOVAL_TRIES = 10,
	REMOVAL_PAUSE_MS = 500,
	FDS_OF_START = 32, /* open at once while a box is started, and some more */
};

static void replace(char **slot, const char *text)
{
	free(*slot);
	*slot = xstrdup(text);
}

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

static void on_timer(void *arg)
{
	struct box *box = arg;

	if (box->state == BOX_RUNNING)
		box_reconnect(box);
	else if (box->instance)
		instance_kill(box->instance, NULL);
	else if (box->state == BOX_REMOVING)
		box_finish_removal(box);
}

void box_timer_start(struct box *box, uint64_t ms)
{
	if (!box->timer)
		box->timer = loop_timer_new(box->yard->loop, on_timer, box);
	loop_timer_start(box->timer, ms);
}

/* ---- the end of an instance ------------------------------------------------------------------ */

void box_finish_removal(struct box *box)
{
	_cleanup_free_ char *disk = box_disk_path(box);
	struct yard *yard = box->yard;
	struct waiter *waiters, *removers;
	struct err err = ERR_INIT;
	bool gone = trash_take(yard->trash, disk, &err) == 0 &&
		    store_box_delete(yard->store, box->row.id, STORE_SAFE, &err) == 0;

	/* On a full disk the row cannot be deleted; the folder, now in the trash, soon makes room for that. */
	if (!gone && ++box->removal_tries < REMOVAL_TRIES) {
		box_set_state(box, BOX_REMOVING, "remove");
		box_timer_start(box, REMOVAL_PAUSE_MS);
		return;
	}
	waiters = steal_ptr(&box->waiters);
	removers = steal_ptr(&box->removers);
	if (!gone) {
		/* The row still says "remove": the next start of the daemon tries again. */
		log_error("cannot remove a box", kv_str("box", box->row.id), kv_err(&err));
		box->removal_tries = 0;
		box_set_state(box, BOX_STOPPED, "remove");
		tell_all(waiters, box, &err);
		tell_all(removers, box, &err);
		return;
	}
	yard_event(yard, "box.removed", box, NULL);
	err_set(&err, ERR_STATE, "box '%s' was removed meanwhile", box->row.name);
	box_free(box);
	tell_all(waiters, NULL, &err);
	tell_all(removers, NULL, NULL);
	yard_purge_step(yard);
}

void box_ended(struct box *box, const char *reason, const char *detail)
{
	/* First of all: detail may belong to the instance. */
	replace(&box->row.end_reason, reason);
	replace(&box->row.end_detail, detail);
	box_disconnect(box);
	instance_free(steal_ptr(&box->instance));
	if (box->timer)
		loop_timer_stop(box->timer);
	box->row.pid = 0;
	box->row.ended_us = clock_wall_us();
	if (box->remove_wanted || box->row.remove_on_exit) {
		/* Whoever stopped it has what he wanted. */
		if (box->state == BOX_STOPPING)
			box_tell(box, NULL);
		if (box->state != BOX_REMOVING) {
			box_set_state(box, BOX_REMOVING, "remove");
			box_save(box, STORE_KEPT);
		}
		box_finish_removal(box);
		return;
	}
	box_set_state(box, BOX_STOPPED, "");
	box_save(box, STORE_KEPT);
	yard_event(box->yard, "box.stopped", box,
		json_pack(
			"{s:s,s:s}", "reason", box->row.end_reason, "detail", box->row.end_detail));
	box_tell(box, NULL);
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

	(void)instance;
	if (box->state == BOX_CREATING || box->state == BOX_STARTING) {
		struct err err = ERR_INIT;

		err_set(&err, ERR_SYSTEM, "box '%s' ended while it was starting: %s", box->row.name,
			detail);
		box_instance_ops.on_failed(instance, &err, box);
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
	yard_event(box->yard, "limit.memory", box,
		json_pack("{s:I,s:I,s:s}", "kills", (json_int_t)kills, "limit_bytes",
			(json_int_t)box->row.memory_bytes, "detail",
			"the kernel killed a process because the box reached its memory limit"));
}

/* ---- the start of one ------------------------------------------------------------------------ */

/* A box that never ran leaves nothing; one that ran before is stopped again, with the reason. */
void box_launch_failed(struct box *box, const struct err *why)
{
	struct err err = *why;
	struct waiter *waiters = steal_ptr(&box->waiters);
	struct yard *yard = box->yard;

	if (box->spare) {
		spare_ended(box, &err);
		return;
	}
	box_disconnect(box);
	instance_free(steal_ptr(&box->instance));
	box->row.pid = 0;
	yard_event(yard, "box.failed", box, json_pack("{s:s}", "message", err.message));
	if (box->state == BOX_CREATING || box->remove_wanted) {
		tell_all(waiters, NULL, &err);
		box_finish_removal(box);
		return;
	}
	box_set_state(box, BOX_STOPPED, "");
	replace(&box->row.end_reason, "failed");
	replace(&box->row.end_detail, err.message);
	box_save(box, STORE_KEPT);
	tell_all(waiters, box, &err);
}

static void on_failed(struct instance *instance, const struct err *err, void *arg)
{
	(void)instance;
	box_launch_failed(arg, err);
}

static void on_ready(struct instance *instance, void *arg)
{
	struct box *box = arg;
	struct err err = ERR_INIT;

	(void)instance;
	if (box->remove_wanted) {
		instance_kill(box->instance, NULL);
		return;
	}
	if (box_connect(box, &err) < 0) {
		log_warn(
			"a new box-init does not answer", kv_str("box", box->row.id), kv_err(&err));
		instance_kill(box->instance, NULL);
	}
}

const struct instance_ops box_instance_ops = {
	.on_ready = on_ready,
	.on_failed = on_failed,
	.on_ended = on_ended,
	.on_oom = on_oom,
};

void box_instance_spec(
	const struct box *box, const struct image *image, char *disk, struct instance_spec *ret)
{
	*ret = (struct instance_spec){
		.id = box->row.id,
		.hostname = box->row.name,
		.rootfs = image ? image->rootfs : NULL,
		.disk = disk,
		.uid_base = UID_FIRST + box->row.uid_slot * (uint32_t)UID_RANGE,
		.limits = { box->row.cpu_milli, box->row.memory_bytes, box->row.disk_bytes,
			box->row.pids },
	};
	profile_from_name(box->row.profile, &ret->profile, NULL);
}

/* A box needs some fds for as long as it runs. The last eighth is not for more of them: without it nobody could
 * connect to remove one. */
static int check_fds(struct err *err)
{
	_cleanup_close_ int lowest = open("/", O_PATH | O_CLOEXEC);

	if (lowest >= 0 && !fd_is_scarce(lowest))
		return 0;
	err_set(err, ERR_LIMIT, "nearly all files that the daemon may have open are in use");
	return err_hint(err, "raise its LimitNOFILE (ulimit -n) and restart it; boxes run on");
}

int box_launch(struct box *box, struct err *err)
{
	_cleanup_free_ char *disk = box_disk_path(box);
	const struct image *image = images_find(box->yard->images, box->row.image, err);
	const struct instance_mark *mark;
	struct instance_spec spec;

	if (!image || check_fds(err) < 0)
		return err_wrap(err, "start box '%s'", box->row.name);
	if (mkdir(disk, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make the folder of box '%s'", box->row.name);
	box_instance_spec(box, image, disk, &spec);
	if (engine_start(box->yard->engine, &spec, &box_instance_ops, box, &box->instance, err) < 0)
		return err_wrap(err, "start box '%s'", box->row.name);
	mark = instance_get_mark(box->instance);
	box->row.pid = mark->pid;
	box->row.start_time = mark->start_time;
	replace(&box->row.boot, mark->boot);
	/* The child sets itself up on another core during this fsync. */
	if (!box->spare)
		box_save(box, STORE_SAFE);
	return 0;
}

/* ---- start, stop, remove, rename ---------------------------------------------------------------- */

static int refuse_busy(struct box *box, struct err *err)
{
	err_set(err, ERR_STATE, "box '%s' is %s", box->row.name, box_state_name(box->state));
	return err_hint(err, "wait for it, then try again");
}

void box_start(struct box *box, box_done done, void *arg)
{
	struct err err = ERR_INIT;

	if (box->state == BOX_RUNNING) {
		done(box, NULL, arg);
		return;
	}
	if (box->state == BOX_STARTING || box->state == BOX_CREATING) {
		box_wait(box, done, arg);
		return;
	}
	if (box->state != BOX_STOPPED) {
		refuse_busy(box, &err);
		done(box, &err, arg);
		return;
	}
	box_wait(box, done, arg);
	box_set_state(box, BOX_STARTING, "start");
	replace(&box->row.boot, box->yard->boot);
	box_save(box, STORE_KEPT);
	if (box_launch(box, &err) < 0)
		box_launch_failed(box, &err);
}

static void ask_shutdown(struct box *box, uint64_t grace_ms)
{
	static const struct chan_ops ops = { 0 };
	struct buf request = BUF_INIT;

	wire_put_u32(&request, (uint32_t)grace_ms);
	/* The box may be beyond asking; then the timer's kill ends it. */
	if (!grace_ms || !box->link ||
		!chan_open(box->link, WIRE_OP_SHUTDOWN, &request, &ops, NULL, NULL))
		instance_kill(box->instance, NULL);
	else
		box_timer_start(box, grace_ms + 1500);
	buf_done(&request);
}

void box_stop(struct box *box, uint64_t grace_ms, box_done done, void *arg)
{
	struct err err = ERR_INIT;

	if (box->state == BOX_STOPPED) {
		done(box, NULL, arg);
		return;
	}
	if (box->state == BOX_STOPPING) {
		box_wait(box, done, arg);
		if (!grace_ms)
			instance_kill(box->instance, NULL);
		return;
	}
	if (box->state != BOX_RUNNING) {
		refuse_busy(box, &err);
		done(box, &err, arg);
		return;
	}
	box_wait(box, done, arg);
	box_set_state(box, BOX_STOPPING, "stop");
	box_save(box, STORE_KEPT);
	ask_shutdown(box, grace_ms);
}

void box_remove(struct box *box, bool force, box_done done, void *arg)
{
	struct err err = ERR_INIT;

	if (box->state != BOX_STOPPED && box->state != BOX_REMOVING && !force) {
		err_set(&err, ERR_STATE, "box '%s' is %s", box->row.name,
			box_state_name(box->state));
		err_hint(&err, "'box stop' first, or 'box rm -f'");
		done(box, &err, arg);
		return;
	}
	wait_in(&box->removers, done, arg);
	if (box->state == BOX_REMOVING)
		return;
	if (box->state == BOX_CREATING || box->state == BOX_STARTING) {
		/* The start's own end carries on with the removal. */
		box->remove_wanted = true;
		if (box->instance)
			instance_kill(box->instance, NULL);
		return;
	}
	box->remove_wanted = true;
	box_set_state(box, BOX_REMOVING, "remove");
	box_save(box, STORE_KEPT);
	if (box->instance) {
		instance_kill(box->instance, NULL);
		box_timer_start(box, 5000);
	} else {
		box_finish_removal(box);
	}
}

int box_rename(struct box *box, const char *name, struct err *err)
{
	_cleanup_free_ char *old = xstrdup(box->row.name);
	struct box *other;

	if (name_check("box name", name, err) < 0)
		return -1;
	other = box_find(box->yard, name, NULL);
	if (other == box)
		return 0;
	if (other)
		return err_set(err, ERR_EXISTS, "there is a box '%s' already", name);
	if (box_is_busy(box))
		return refuse_busy(box, err);
	replace(&box->row.name, name);
	if (store_box_update(box->yard->store, &box->row, STORE_SAFE, err) < 0) {
		replace(&box->row.name, old);
		return err_wrap(err, "rename '%s'", old);
	}
	if (box->instance) {
		struct err why = ERR_INIT;

		if (instance_set_hostname(box->instance, name, &why) < 0)
			log_warn("the hostname stays as it was", kv_str("box", box->row.id),
				kv_err(&why));
		box_tell_name(box);
	}
	yard_event(box->yard, "box.renamed", box, json_pack("{s:s,s:s}", "from", old, "to", name));
	return 0;
}
