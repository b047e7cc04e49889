/* instance.c - what the driver tells of a box's instance */
#include "core/core_internal.h"
#include "core/limit.h"
#include "core/boxnet/network_internal.h"

enum { GATE_PATIENCE_MS = 3000 };

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
	box_capture_cancel(box, &gone);
	if (operation_ended(box))
		return;
	if (box->state == BOX_CREATING || box->state == BOX_STARTING) {
		struct err err = ERR_INIT;

		if (box->restore.problem.kind)
			err = box->restore.problem;
		else if (box->net && box->net->problem.kind)
			err = box->net->problem;
		else
			err_set(&err, ERR_SYSTEM, "box '%s' ended while it was starting: %s",
				box->row.name, detail);
		box_instance_ops.on_failed(instance, &err, box);
	} else if (box->state == BOX_STOPPING && box->limits.stops) {
		box_ended(box, "limit", box->limits.stops);
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
	box->limits.oom_kills += kills;
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

static void on_waiting(struct instance *instance, const char *what, void *arg)
{
	struct box *box = arg;

	(void)instance;
	box_tell_wait(box, what);
}

static void on_failed(struct instance *instance, const struct err *err, void *arg)
{
	(void)instance;
	box_tell_wait(arg, NULL);
	box_launch_failed(arg, err);
}

static void on_ready(struct instance *instance, void *arg)
{
	struct box *box = arg;

	(void)instance;
	box_tell_wait(box, NULL);
	if (box->remove_wanted) {
		box_kill(box);
		return;
	}
	operation_ready(box);
	/* The box was stopped a moment ago, and its last traffic figures have not arrived yet. */
	if (box->net && box->net->leaving) {
		box->net->waited_for = true;
		err_set(&box->net->problem, ERR_UNAVAILABLE, "the network gate does not answer");
		box_timer_start(box, GATE_PATIENCE_MS);
		return;
	}
	box_open_up(box);
}

static void on_marked(struct instance *instance, void *arg)
{
	struct box *box = arg;

	(void)instance;
	/* Until the new instance has proved to work, the row describes the old one. */
	if (operation_disk(box))
		return;
	box_keep_mark(box);
	if (!box->spare)
		box_save(box, STORE_KEPT);
}

static void on_going(struct instance *instance, void *arg)
{
	(void)instance;
	operation_going(arg);
}

static void on_held(struct instance *instance, void *arg)
{
	(void)instance;
	operation_held(arg);
}

const struct instance_ops box_instance_ops = {
	.on_ready = on_ready,
	.on_waiting = on_waiting,
	.on_failed = on_failed,
	.on_ended = on_ended,
	.on_oom = on_oom,
	.on_pids = on_pids,
	.on_marked = on_marked,
	.on_going = on_going,
	.on_held = on_held,
};
