/* limit.c - what happens when a box reaches a limit
 *
 * The limits themselves are the kernel's: a write or a fork that goes too far fails inside, a process is killed
 * for memory. Here it is noticed and told, and the box's policy is carried out. Memory tells by itself
 * (instance_ops.on_oom). Disk and processes are looked at once a second: btrfs tells nobody when it refuses a
 * write, so a disk counts as full when less than FULL_WITHIN of it is left; the event comes once, and again
 * only after a tenth was freed in between. */
#include "core/core_internal.h"
#include "base/log.h"
#include "loop/loop.h"
#include "pool/pool.h"

enum {
	LOOK_MS = 1000,
	FULL_WITHIN = 256 * 1024, /* a limit is hardly ever reached to the byte */
};

static void carry_out(struct box *box, const char *type)
{
	enum on_limit policy = ON_LIMIT_NOTIFY;
	struct err err = ERR_INIT;

	on_limit_from_name(box->row.on_limit, &policy, NULL);
	if (policy == ON_LIMIT_NOTIFY || box->state != BOX_RUNNING)
		return;
	if (policy == ON_LIMIT_STOP) {
		box->stopped_for = type;
		box_stop(box, STOP_GRACE_MS, NULL, NULL);
	} else if (box_suspend(box, type, &err) < 0) {
		log_warn("a box at its limit cannot be paused", kv_str("box", box->row.id),
			kv_err(&err));
	}
}

void box_limit_hit(struct box *box, const char *type, json_t *data)
{
	json_object_set_new(data, "policy", json_string(box->row.on_limit));
	yard_event(box->yard, type, box, data);
	carry_out(box, type);
}

static struct box *box_by_id(struct yard *yard, const char *id)
{
	for (size_t i = 0; i < yard->box_count; i++)
		if (!strcmp(yard->boxes[i]->row.id, id))
			return yard->boxes[i];
	return NULL;
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

static void look(void *arg)
{
	struct yard *yard = arg;
	struct err err = ERR_INIT;

	if (pool_usage_each(yard->pool, look_at_disk, yard, &err) < 0)
		log_warn("cannot read the quotas", kv_err(&err));
	for (size_t i = 0; i < yard->box_count; i++)
		if (yard->boxes[i]->state == BOX_RUNNING && yard->boxes[i]->instance)
			look_at_processes(yard->boxes[i]);
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
