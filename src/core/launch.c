/* launch.c - an instance for a box: its disk, its state, its mounts, its limits */
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "core/tree_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "image/image.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include <fcntl.h>
#include <stdio.h>

enum { HELLO_MS = 60 * 1000 }; /* box-init of a starting box answers within this time, or never */

/* ---- what the driver is told ---------------------------------------------------------------- */

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

/* A running box needs some file descriptors. The last eighth is reserved: without it nobody could
 * connect to remove a box. */
static int check_fds(struct err *err)
{
	_cleanup_close_ int lowest = open("/", O_PATH | O_CLOEXEC);

	if (lowest >= 0 && !fd_is_scarce(lowest))
		return 0;
	err_set(err, ERR_LIMIT, "nearly all files that the daemon may have open are in use");
	return err_hint(err, "raise its LimitNOFILE (ulimit -n) and restart it; boxes run on");
}

/* An existing disk is never silently replaced by an empty one. *ret_wait: the disk is being
 * made. */
static int need_disk(struct box *box, const struct image *image, bool *ret_wait, struct err *err)
{
	struct pool *pool = box->yard->pool;
	struct engine *engine;

	*ret_wait = false;
	if (operation_disk(box) || box_has_disk(box))
		return 0;
	if (box->row.started_us) {
		err_set(err, ERR_NOT_FOUND, "the disk of box '%s' is gone", box->row.name);
		return err_hint(err, "'box rm %s' removes what is left of it", box->row.name);
	}
	if (box->restore.state) {
		*ret_wait = true;
		return pool_check_room(pool, 0, err) < 0 ? -1
							 : seed_copy(box, box->restore.state, err);
	}
	if (pool_check_room(pool, 0, err) < 0 || box_engine(box, &engine, err) < 0)
		return -1;
	/* With a kernel of its own a box has its files in one file there, and nothing of the
	 * image. */
	if (!engine_can(engine, ENGINE_OWN_KERNEL) && seed_start(box, image, ret_wait, err) < 0)
		return -1;
	if (*ret_wait)
		return 0;
	return pool_disk_make(pool, BOX_DISKS, box->row.id,
		pool_has_quota(pool) ? box_disk_guard(box, box->row.disk_bytes) : 0, err);
}

/* beside->id NULL: as box_instance_spec says; state.dir -1: a fresh start from the disk. */
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
	if (image_file_spec(box, image, &spec.vm, err) < 0) {
		box_mounts_done(mounts, spec.mount_count);
		return -1;
	}
	spec.ns.apart = image_layers_apart(box->yard->images, image);
	spec.disk = disk;
	spec.mounts = mounts;
	status = engine_start(engine, &spec, beside->ops, beside->arg, ret, err);
	image_file_done(&spec.vm);
	box_mounts_done(mounts, spec.mount_count);
	return status;
}

static int start_instance(struct box *box, const struct image *image, struct err *err)
{
	const char *ahead = operation_disk(box);
	const struct box_beside own = {
		.disk = ahead ? ahead : box->row.id,
		.state = { .dir = box->restore.state ? box->restore.dir : -1,
			.time_passes = box->restore.kind == RESTORE_WAKE },
		.ops = &box_instance_ops,
		.arg = box,
	};

	/* The count belonged to the previous instance. */
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
	err_clear(&box->restore.problem);
	if (!image || check_fds(err) < 0 || image_file_need(box, image, &wait, err) < 0 ||
		(!wait && need_disk(box, image, &wait, err) < 0))
		return err_wrap(err, "start box '%s'", box->row.name);
	if (wait)
		return 0;
	if (restore_prepare(box, &wait, err) < 0)
		return -1;
	if (wait)
		return 0;
	if (start_instance(box, image, err) < 0)
		return err_wrap(err, "start box '%s'", box->row.name);
	if (box->restore.state || operation_disk(box))
		return 0; /* on_marked follows, or operation_commit */
	box_keep_mark(box);
	/* The child sets itself up on another core during this fsync. */
	if (!box->spare)
		box_save(box, STORE_SAFE);
	return 0;
}

/* ---- it comes up, or not -------------------------------------------------------------------- */

void box_keep_mark(struct box *box)
{
	const struct instance_mark *mark = instance_get_mark(box->instance);

	box->row.pid = mark->pid;
	box->row.start_time = mark->start_time;
	text_replace(&box->row.boot, mark->boot);
}

/* The instance already runs: a failure here is no reason to end it. */
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

void box_launch_failed(struct box *box, const struct err *why)
{
	struct err err = *why;
	struct waiter *waiters;
	struct yard *yard = box->yard;

	if (box->spare) {
		spare_ended(box, &err);
		return;
	}
	if (operation_launch_failed(box, why))
		return;
	waiters = steal_ptr(&box->waiters);
	restore_done(box);
	box_let_go(box);
	yard_event(yard, "box.failed", box, json_pack("{s:s}", "message", err.message));
	if (box->state == BOX_CREATING || box->remove_wanted) {
		if (box->state == BOX_STARTING) {
			box_set_state(box, BOX_REMOVING, box_removal_intent(box));
			box_save(box, STORE_KEPT);
		}
		waiters_notify(waiters, NULL, &err);
		box_finish_removal(box);
		return;
	}
	box_set_state(box, BOX_STOPPED, INTENT_NONE);
	text_replace(&box->row.end_reason, "failed");
	text_replace(&box->row.end_detail, err.message);
	box_save(box, STORE_KEPT);
	box_forget_asker(box);
	waiters_notify(waiters, box, &err);
}
