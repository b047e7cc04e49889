/* limit.c - what happens when a box reaches a limit
 *
 * The limits themselves are the kernel's: a write or a fork that goes too far fails inside, a process is killed
 * for memory. Here it is noticed and told, and the box's policy is carried out. Memory tells by itself
 * (instance_ops.on_oom). Disk and processes are looked at once a second: btrfs tells nobody when it refuses a
 * write, so a disk counts as full when less than FULL_WITHIN of it is left; the event comes once, and again
 * only after a tenth was freed in between.
 *
 * A box whose programs are deep in the kernel, writing, cannot be paused at once; it is tried again, and not too
 * often, because each try holds up the daemon for as long as a second. */
#include "core/core_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "loop/loop.h"
#include "pool/pool.h"

enum {
	LOOK_MS = 1000,
	FULL_WITHIN = 256 * 1024, /* a limit is hardly ever reached to the byte */
	PAUSE_AGAIN_US = 4 * 1000 * 1000,
};

static void carry_out(struct box *box, const char *type, enum on_limit policy)
{
	struct err err = ERR_INIT;

	if (box->pause_due && clock_mono_us() < box->pause_not_before_us)
		return;
	box->pause_due = NULL;
	/* One that sleeps does not wake by itself any more. */
	if (policy == ON_LIMIT_PAUSE && box->state == BOX_SUSPENDED) {
		text_replace(&box->row.asleep_for, "limit");
		idle_asleep(box);
		box_save(box, STORE_KEPT);
	}
	if (policy == ON_LIMIT_NOTIFY || box->state != BOX_RUNNING)
		return;
	/* Told already, it waits for its turn. */
	if (policy == ON_LIMIT_STOP && box->stopped_for && box->in_turn)
		return;
	if (policy == ON_LIMIT_STOP) {
		box->stopped_for = type;
		box_stop(box, STOP_GRACE_MS, NULL, NULL);
	} else if (box_suspend(box, type, &err) < 0) {
		log_warn("a box at its limit cannot be paused yet", kv_str("box", box->row.id),
			kv_err(&err));
		box->pause_due = type;
		box->pause_not_before_us = clock_mono_us() + PAUSE_AGAIN_US;
	}
}

void box_limit_hit_as(struct box *box, const char *type, json_t *data, enum on_limit policy)
{
	json_object_set_new(data, "policy", json_string(on_limit_name(policy)));
	yard_event(box->yard, type, box, data);
	carry_out(box, type, policy);
}

void box_limit_hit(struct box *box, const char *type, json_t *data)
{
	enum on_limit policy = ON_LIMIT_NOTIFY;

	on_limit_from_name(box->row.on_limit, &policy, NULL);
	box_limit_hit_as(box, type, data, policy);
}

/* All boxes by id: each disk of the pool is looked for among them, every second. */
struct boxes_by_id {
	struct box **list;
	size_t count;
};

static int compare_ids(const void *a, const void *b)
{
	return strcmp((*(struct box *const *)a)->row.id, (*(struct box *const *)b)->row.id);
}

static int compare_id(const void *id, const void *box)
{
	return strcmp(id, (*(struct box *const *)box)->row.id);
}

static struct box *box_by_id(const struct boxes_by_id *all, const char *id)
{
	struct box **found =
		all->count ? bsearch(id, all->list, all->count, sizeof *all->list, compare_id)
			   : NULL;

	return found ? *found : NULL;
}

/* A tenth of a small disk is less than what is left of a large one when it counts as full. */
static uint64_t full_from(uint64_t limit)
{
	return limit - MIN((uint64_t)FULL_WITHIN, limit / 20);
}

static void look_at_disk(
	const char *place, const char *id, uint64_t used, uint64_t limit, void *arg)
{
	struct box *box = strcmp(place, BOX_DISKS) ? NULL : box_by_id(arg, id);

	if (!box)
		return;
	box->disk_used = used;
	if (!limit || used < limit - limit / 10)
		box->disk_full = false;
	if (!limit || used < full_from(limit) || box->disk_full)
		return;
	box->disk_full = true;
	box_limit_hit(box, "limit.disk",
		json_pack("{s:I,s:I,s:s}", "used_bytes", (json_int_t)used, "limit_bytes",
			(json_int_t)limit, "detail",
			"the box has filled its disk: writes fail with 'Disk quota exceeded'"));
}

static void look_at_processes(struct box *box)
{
	uint64_t refused = instance_pids_refused(box->instance);
	uint64_t more = refused - box->pids_refused;

	/* It starts from zero again with each instance. */
	if (refused < box->pids_refused)
		more = refused;
	box->pids_refused = refused;
	if (more)
		box_limit_hit(box, "limit.pids",
			json_pack("{s:I,s:I,s:s}", "refused", (json_int_t)more, "limit",
				(json_int_t)box->row.pids, "detail",
				"the box could not start a process because it reached its limit"));
}

static void look_at_disks(struct yard *yard)
{
	struct boxes_by_id all = { .count = yard->box_count };
	struct err err = ERR_INIT;

	if (!all.count)
		return;
	all.list = xmemdup(yard->boxes, all.count * sizeof *all.list);
	qsort(all.list, all.count, sizeof *all.list, compare_ids);
	if (pool_usage_each(yard->pool, look_at_disk, &all, &err) < 0)
		log_warn("cannot read the quotas", kv_err(&err));
	free(all.list);
}

static void look(void *arg)
{
	struct yard *yard = arg;

	look_at_disks(yard);
	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];

		if (box->pause_due)
			carry_out(box, box->pause_due, ON_LIMIT_PAUSE);
		if (box->state == BOX_RUNNING && box->instance)
			look_at_processes(box);
	}
	auto_look(yard);
	loop_timer_start(yard->limit_timer, LOOK_MS);
}

void limits_open(struct yard *yard)
{
	yard->limit_timer = loop_timer_new(yard->loop, look, yard);
	loop_timer_start(yard->limit_timer, LOOK_MS);
}

void limits_close(struct yard *yard)
{
	loop_timer_free(yard->limit_timer);
	yard->limit_timer = NULL;
}
