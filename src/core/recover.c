/* recover.c - the daemon starts: what runs is adopted, what was half done is finished or undone
 *
 * What becomes of a box is in the table of intent.c; here it is done. Then orphans: cgroups and
 * folders of boxes no row knows. */
#include "core/core_internal.h"
#include "core/limit.h"
#include "core/boxnet/network_internal.h"
#include "core/output_internal.h"
#include "core/tree_internal.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include <dirent.h>
#include <sys/resource.h>

/* File descriptors for the link and the network namespace of a box, besides those of its driver. */
enum { FDS_PER_BOX = 2, FDS_OF_DAEMON = 64 };
enum { HELLO_MS = 10 * 1000 }; /* a half-started box answers within this time, or never */

static int load_row(const struct box_row *row, void *arg, struct err *err)
{
	struct box_row copy = box_row_copy(row);
	struct box *box = box_new(arg, &copy);

	if (network_load(box, err) < 0)
		return err_wrap(err, "network of box '%s'", box->row.name);
	return 0;
}

/* 1: the box runs and was adopted; 0: it does not run; -1: it cannot be determined for lack of
 * resources, so leave it alone. */
static int adopt(struct box *box, struct err *err)
{
	_cleanup_free_ char *disk = pool_disk_path(box->yard->pool, BOX_DISKS, box->row.id);
	struct instance_mark mark = { .pid = (pid_t)box->row.pid,
		.start_time = box->row.start_time };
	struct instance_spec spec;
	struct engine *engine;

	if (!box->row.pid || strcmp(box->row.boot, box->yard->boot))
		return 0;
	if (box_engine(box, &engine, err) < 0)
		return err_wrap(err, "take over box '%s'", box->row.name);
	memcpy(mark.boot, box->row.boot, strnlen(box->row.boot, sizeof mark.boot - 1));
	/* The instance has one of two ids, depending on the number of rollbacks. */
	for (int i = 0; i < 2; i++) {
		box->second = i == 1;
		box_instance_spec(box, NULL, &spec);
		spec.disk = disk;
		if (engine_adopt(
			    engine, &spec, &mark, &box_instance_ops, box, &box->instance, err) == 0)
			return 1;
		if (err->kind != ERR_NOT_FOUND)
			break;
	}
	box->second = false;
	if (err->kind == ERR_LIMIT)
		return err_wrap(err, "take over box '%s'", box->row.name);
	if (err->kind != ERR_NOT_FOUND)
		log_warn("a box cannot be taken over and is ended", kv_str("box", box->row.id),
			kv_err(err));
	return 0;
}

/* Removes remains of both instance ids. */
static void sweep(struct box *box)
{
	_cleanup_free_ char *second = xasprintf("%s" SECOND_SUFFIX, box->row.id);
	struct err err = ERR_INIT;

	if (drivers_sweep(box->yard->drivers, box->row.id, &err) < 0 ||
		drivers_sweep(box->yard->drivers, second, &err) < 0)
		log_warn("parts of a box were not removed", kv_str("box", box->row.id),
			kv_err(&err));
}

static bool is_same_boot(const struct box *box)
{
	return !strcmp(box->row.boot, box->yard->boot);
}

/* The fate by the intent alone; FATE_NONE: it depends on what runs. */
static enum fate find_fate(const struct box *box)
{
	const struct recovery *recovery = intent_recovery(box->intent);

	if (recovery->always)
		return recovery->always;
	if (*box->row.state_id && recovery->with_state)
		return recovery->with_state;
	if (*box->row.origin_snapshot && is_same_boot(box))
		return recovery->as_copy;
	return FATE_NONE;
}

/* Ends processes that are half restored or no longer needed. True: there is nothing to adopt. */
static bool end_half(struct box *box)
{
	enum fate fate = find_fate(box);

	if (!fate)
		return false;
	sweep(box);
	box->row.pid = 0;
	if (fate == FATE_HIBERNATED) {
		box_set_state(box, BOX_HIBERNATED, INTENT_NONE);
		box_save(box, STORE_KEPT);
	} else if (fate == FATE_GOES_BACK) {
		rollback_recover(box);
	} else {
		box_remove_now(box);
	}
	return true;
}

/* Kills the instance; the wanted change continues with its end. */
static void kill_adopted(struct box *box)
{
	box->remove_wanted = intent_is_removal(box->intent);
	box->state = box->remove_wanted ? BOX_REMOVING : BOX_STOPPING;
	box_kill(box);
}

/* The daemon may have died halfway through the start; only box-init's answer tells. */
static void finish_start(struct box *box)
{
	struct err err = ERR_INIT;

	/* The box may be told twice that it woke; that does no harm. */
	if (box->intent == INTENT_WOKEN)
		wake_recover(box);
	box_timer_start(box, HELLO_MS);
	box->state = box->intent == INTENT_CREATE ? BOX_CREATING : BOX_STARTING;
	if (box_connect(box, &err) < 0)
		box_kill(box);
}

static int freeze_as_recorded(struct box *box, struct err *err)
{
	if (box->state == BOX_SUSPENDED && box_is_paused(box))
		return instance_pause(box->instance, err);
	return instance_freeze(box->instance, box->state == BOX_SUSPENDED, err);
}

/* The daemon may have died between freezing the box and storing the state. */
static void go_on_as_recorded(struct box *box)
{
	struct err err = ERR_INIT;

	if (freeze_as_recorded(box, &err) < 0 && err.kind != ERR_UNSUPPORTED)
		log_warn("cannot freeze or thaw a box as its state says",
			kv_str("box", box->row.id), kv_err(&err));
	err_clear(&err);
	/* A frozen box-init does not answer. */
	if (box->state == BOX_SUSPENDED)
		return;
	box_set_state(box, BOX_RUNNING, INTENT_NONE);
	if (box_connect(box, &err) < 0)
		box_timer_start(box, 20);
}

/* Continues a box whose instance runs and was adopted. */
static void go_on(struct box *box)
{
	enum fate fate = intent_recovery(box->intent)->runs;
	struct err err = ERR_INIT;

	box->catch_up = box->adopted = true;
	box->limits.pids_refused = instance_pids_refused(box->instance); /* already reported */
	limit_arm(box);
	if (fate == FATE_KILLED) {
		kill_adopted(box);
		return;
	}
	network_adopt(box);
	if (network_attach(box, &err) < 0)
		log_error("a box has no network", kv_str("box", box->row.id), kv_err(&err));
	if (fate == FATE_UNTOUCHED) {
		box_set_state(box, *box->row.asleep_for ? BOX_SUSPENDED : BOX_RUNNING, INTENT_NONE);
		box_save(box, STORE_KEPT);
	}
	if (fate == FATE_FINISHED)
		finish_start(box);
	else
		go_on_as_recorded(box);
}

static bool was_up(const struct box *box)
{
	return !strcmp(box->row.state, "running") || !strcmp(box->row.state, "suspended") ||
	       box->intent == INTENT_START || box->intent == INTENT_WOKEN ||
	       box->intent == INTENT_HIBERNATE || box->intent == INTENT_ROLLBACK;
}

/* The instance is gone; sweep what it left. */
static void clean_up(struct box *box)
{
	const struct recovery *recovery = intent_recovery(box->intent);
	enum fate fate = is_same_boot(box) ? recovery->ended : recovery->restarted;
	const char *detail = is_same_boot(box) ? "it ended while no daemon was watching"
					       : "the machine restarted";

	if (box->intent == INTENT_WOKEN)
		wake_forget_state(box);
	sweep(box);
	box->row.pid = 0;
	if (fate == FATE_KEPT)
		fate = box_has_disk(box) ? FATE_LOST : FATE_REMOVED;
	if (was_up(box) && box->row.remove_on_exit)
		fate = FATE_REMOVED;
	if (fate == FATE_REMOVED) {
		box_set_state(box, BOX_REMOVING,
			intent_is_removal(box->intent) ? box->intent : INTENT_REMOVE);
		box_finish_removal(box);
	} else if (was_up(box) || box->intent) {
		box->row.remove_on_exit = false;
		box_ended(box, fate == FATE_STOPPED ? "stopped" : "lost", detail);
	}
}

/* By id alone: a name may look like some other box's id. */
static bool id_is_known(const struct yard *yard, const char *id)
{
	for (size_t i = 0; i < yard->box_count; i++)
		if (!strcmp(yard->boxes[i]->row.id, id))
			return true;
	return false;
}

/* Whether id is the current one of a box's two instance ids. */
static bool instance_is_known(const struct yard *yard, const char *id)
{
	for (size_t i = 0; i < yard->box_count; i++) {
		const struct box *box = yard->boxes[i];

		if (text_has_prefix(id, box->row.id) &&
			!strcmp(id + strlen(box->row.id), box->second ? SECOND_SUFFIX : ""))
			return true;
	}
	return false;
}

/* A box being rolled back has the target's disk beside its own. */
static bool disk_is_known(const struct yard *yard, const char *name)
{
	if (!text_has_prefix(name, ROLL_DISK_PREFIX))
		return id_is_known(yard, name);
	for (size_t i = 0; i < yard->box_count; i++)
		if (!strcmp(yard->boxes[i]->row.id, name + strlen(ROLL_DISK_PREFIX)))
			return operation_is_on(yard->boxes[i]);
	return false;
}

static void sweep_disks(struct yard *yard)
{
	_cleanup_free_ char *boxes = xasprintf("%s/%s", pool_get_path(yard->pool), BOX_DISKS);
	DIR *dir = opendir(boxes);
	struct err err = ERR_INIT;
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
			!disk_is_known(yard, entry->d_name) &&
			pool_disk_discard(yard->pool, BOX_DISKS, entry->d_name, &err) < 0)
			log_warn("a disk without a box was not removed",
				kv_str("box", entry->d_name), kv_err(&err));
	if (dir)
		closedir(dir);
}

static void sweep_orphans(struct yard *yard)
{
	_cleanup_json_ json_t *left = groups_leftovers(yard->groups);
	struct err err = ERR_INIT;
	size_t i;
	json_t *id;

	json_array_foreach (left, i, id)
		if (!instance_is_known(yard, json_string_value(id)) &&
			drivers_sweep(yard->drivers, json_string_value(id), &err) < 0)
			log_warn("an instance without a box was not removed",
				kv_str("box", json_string_value(id)), kv_err(&err));
	sweep_disks(yard);
	output_sweep(yard);
	disk_sweep_views(yard);
}

/* Without enough file descriptors, running boxes would be taken for ended, and killed. */
static int check_fds(const struct yard *yard, struct err *err)
{
	struct rlimit files;
	size_t running = 0, need;

	for (size_t i = 0; i < yard->box_count; i++)
		running += yard->boxes[i]->row.pid && !strcmp(yard->boxes[i]->row.boot, yard->boot);
	need = FDS_OF_DAEMON + running * (FDS_PER_BOX + drivers_fds(yard->drivers));
	if (!running || getrlimit(RLIMIT_NOFILE, &files) < 0 || need <= files.rlim_cur)
		return 0;
	err_set(err, ERR_LIMIT, "%zu boxes run; that takes %zu open files, and %llu are allowed",
		running, need, (unsigned long long)files.rlim_cur);
	return err_hint(err, "raise LimitNOFILE (ulimit -n); the boxes run on meanwhile");
}

/* Earlier versions gave boxes uid ranges that are shared now. A running box keeps its range until
 * it ends. */
static void move_slots(struct yard *yard)
{
	struct err err = ERR_INIT;

	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];

		if (box->row.uid_slot < UID_SLOTS || box->instance)
			continue;
		if (box_pick_slot(yard, &box->row.uid_slot, &err) < 0)
			log_warn("a box keeps user ids that others have too",
				kv_str("box", box->row.id), kv_err(&err));
		else
			box_save(box, STORE_KEPT);
	}
}

int yard_recover(struct yard *yard, struct err *err)
{
	size_t count;
	struct box **boxes;
	int ret = 0;

	if (trees_load(yard, err) < 0 || store_box_each(yard->store, load_row, yard, err) < 0)
		return err_wrap(err, "read the boxes");
	trees_loaded(yard);
	if (check_fds(yard, err) < 0)
		return -1;
	workspaces_sweep(yard); /* before any workspace is kept */
	count = yard->box_count;
	boxes = xmemdup(yard->boxes, count * sizeof *boxes);
	for (size_t i = 0; i < count && ret >= 0; i++) {
		ports_box_added(boxes[i]);
		if (end_half(boxes[i]))
			continue;
		ret = adopt(boxes[i], err);
		if (ret > 0)
			go_on(boxes[i]);
		else if (ret == 0)
			clean_up(boxes[i]);
	}
	free(boxes);
	if (ret < 0)
		return -1;
	move_slots(yard);
	sweep_orphans(yard);
	return 0;
}
