/* idle.c - boxes that do nothing are put to sleep; see docs/sleep.md
 *
 * Once a second each running box is looked at: whether somebody waits for something in it, what
 * came and went over its link and its network, its CPU time. That is one small file read a box.
 * Only of one that has done nothing for long enough are the timers looked for, which costs some
 * microseconds a thread; when one is due soon the box stays awake, and it is not asked again for a
 * while.
 *
 *     running ──(suspend_ms idle, no timer within suspend_ms)──> suspended ──(hibernate_ms)──>
 *     hibernated
 *        ^───────────(a timer inside is due, a touch)───────────────┘ <──────(a touch)────────────┘
 *
 * Timers of a hibernated box wake it as well: row.wake_us says when. */
#include "core/core_internal.h"
#include "core/time/timeline.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include <stdio.h>

enum {
	LOOK_MS = 1000,
	BUSY_PERCENT = 1,   /* of one CPU */
	WAKE_EARLY_MS = 15, /* timers are known only to a tick of the kernel's clock */
	/* the box could not be frozen: wait this long before the next attempt */
	REFUSED_US = 60 * 1000 * 1000,
	/* time for reading timers, of all boxes together, per second */
	SPENT_MAX_US = 20 * 1000,
	SPENT_PART = 200, /* and 1/200 of the time for each box */
	AGAIN_MIN_US = 1000 * 1000,
	AGAIN_MAX_US = 5 * 1000 * 1000,
};

/* ---- settings ------------------------------------------------------------------------------- */

static uint64_t setting(const json_t *kept, const char *key, uint64_t configured)
{
	json_t *value = json_object_get(kept, key);

	return json_is_integer(value) && json_integer_value(value) >= 0
		       ? (uint64_t)json_integer_value(value)
		       : configured;
}

void idle_settings_changed(struct box *box)
{
	const char *text = box->row.sleep ? box->row.sleep : "";
	_cleanup_json_ json_t *kept = *text ? json_loads(text, 0, NULL) : NULL;
	struct box_idle *idle = &box->idle;

	idle->suspend_ms = setting(kept, "suspend_ms", box->yard->conf->idle_suspend_ms);
	idle->hibernate_ms = setting(kept, "hibernate_ms", box->yard->conf->idle_hibernate_ms);
	idle->settings_known = true;
	idle->again_us = 0;
}

/* ---- awake and asleep ----------------------------------------------------------------------- */

void idle_awake(struct box *box)
{
	struct box_idle *idle = &box->idle;

	idle->active_us = clock_mono_us();
	if (box->state != BOX_RUNNING)
		return;
	if (idle->asleep_us)
		idle->timer = (struct instance_timer){ 0 };
	idle->asleep_us = 0;
	box->row.wake_us = 0;
	if (idle->wake)
		loop_timer_stop(idle->wake);
}

static void wake_by_timer(void *arg)
{
	struct box *box = arg;
	struct err err = ERR_INIT;

	/* The next daemon starts this timer again. */
	if (strcmp(box->row.asleep_for, "idle") || box->yard->going_down)
		return;
	if (box->state == BOX_SUSPENDED && box_resume_for(box, "timer", &err) < 0) {
		log_warn("a box whose timer is due cannot be resumed", kv_str("box", box->row.id),
			kv_err(&err));
		loop_timer_start(box->idle.wake, 1000);
	} else if (box->state == BOX_HIBERNATED || box->state == BOX_HIBERNATING) {
		(void)box_touch(box, &err);
	}
}

/* Also called after a start of the daemon. */
static void wait_for_timer(struct box *box)
{
	struct box_idle *idle = &box->idle;
	int64_t left_ms = (box->row.wake_us - clock_wall_us()) / 1000 - WAKE_EARLY_MS;

	if (!box->row.wake_us) {
		if (idle->wake)
			loop_timer_stop(idle->wake);
		return;
	}
	if (!idle->wake)
		idle->wake = loop_timer_new(box->yard->loop, wake_by_timer, box);
	loop_timer_start(idle->wake, (uint64_t)MAX(left_ms, 0));
}

void idle_asleep(struct box *box)
{
	box->idle.asleep_us = clock_mono_us();
	/* A box that was suspended on request does not wake by a timer. */
	if (strcmp(box->row.asleep_for, "idle"))
		box->row.wake_us = 0;
	wait_for_timer(box);
}

void idle_done(struct box *box)
{
	loop_timer_free(steal_ptr(&box->idle.wake));
}

void idle_network(struct box *box, bool inbound)
{
	struct err err = ERR_INIT;

	if (box->state == BOX_RUNNING) {
		idle_awake(box);
		snprintf(box->idle.busy, sizeof box->idle.busy, "network traffic");
	} else if (inbound && box->state == BOX_SUSPENDED && !strcmp(box->row.asleep_for, "idle") &&
		   !box->yard->going_down && box_resume_for(box, "network", &err) < 0) {
		log_warn("a box for which data came cannot be resumed", kv_str("box", box->row.id),
			kv_err(&err));
	}
}

/* ---- looking at boxes ----------------------------------------------------------------------- */

/* "node (pid 17)"; or a text without a name when the process is not known. */
static void name_process(const struct instance_timer *timer, char *out, size_t size)
{
	if (timer->pid)
		snprintf(out, size, "%s (pid %d)", timer->comm, (int)timer->pid);
	else
		snprintf(out, size, "it");
}

/* Whether the box does something now; idle.busy gets the reason. */
static bool is_busy(struct box *box, const struct instance_activity *now, int64_t passed_us)
{
	struct box_idle *idle = &box->idle;
	uint64_t traffic = box->link ? link_traffic(box->link) : 0;
	int64_t cpu_us = (int64_t)(now->cpu_us - idle->cpu_us);
	unsigned work = box->link ? link_open_work(box->link) : 0;
	bool busy = true;

	if (work)
		snprintf(idle->busy, sizeof idle->busy,
			work == 1 ? "%u program or request is attached"
				  : "%u programs or requests are attached",
			work);
	else if (cpu_us * 100 > passed_us * BUSY_PERCENT)
		snprintf(idle->busy, sizeof idle->busy, "uses %lld%% cpu",
			(long long)(cpu_us * 100 / MAX(passed_us, 1)));
	else if (traffic != idle->traffic)
		snprintf(idle->busy, sizeof idle->busy, "input or output of its programs");
	else if (now->io_bytes != idle->io_bytes)
		snprintf(idle->busy, sizeof idle->busy, "reads or writes its disk");
	else
		busy = false;
	idle->traffic = traffic;
	return busy;
}

/* Whether something inside keeps the box awake: it is busy, or a timer is due soon. */
static bool timers_keep_awake(struct box *box, int64_t now)
{
	struct box_idle *idle = &box->idle;
	struct instance_timer *timer = &idle->timer;
	struct err err = ERR_INIT;
	char who[40];

	if (instance_next_timer(box->instance, idle->cpu_us_at, timer, &err) < 0) {
		snprintf(idle->busy, sizeof idle->busy, "its timers cannot be seen");
		return true;
	}
	name_process(timer, who, sizeof who);
	switch (timer->kind) {
	case INSTANCE_TIMER_NONE:
		return false;
	case INSTANCE_TIMER_AT:
		if (timer->at_us - now >= (int64_t)idle->suspend_ms * 1000)
			return false;
		snprintf(idle->busy, sizeof idle->busy, "a timer of %s is due in %lld ms (%s)", who,
			(long long)MAX((timer->at_us - now) / 1000, 0), timer->call);
		return true;
	case INSTANCE_TIMER_UNKNOWN:
		snprintf(
			idle->busy, sizeof idle->busy, "%s may have a timer: %s", who, timer->call);
		return true;
	case INSTANCE_TIMER_BUSY:
		snprintf(idle->busy, sizeof idle->busy, "%s %s", who, timer->call);
		return true;
	}
	return true;
}

static void put_to_sleep(struct box *box, int64_t now)
{
	struct box_idle *idle = &box->idle;
	struct err err = ERR_INIT;

	box->row.wake_us = idle->timer.kind == INSTANCE_TIMER_AT
				   ? clock_wall_us() + (idle->timer.at_us - now)
				   : 0;
	if (box_suspend(box, "idle", &err) == 0)
		return;
	box->row.wake_us = 0;
	idle->again_us = now + REFUSED_US;
	log_warn("an idle box cannot be suspended", kv_str("box", box->row.id), kv_err(&err));
}

static void look_at_running(struct box *box)
{
	struct box_idle *idle = &box->idle;
	struct instance_activity activity;
	int64_t now = clock_mono_us(), spent_us;
	bool awake;

	if (!instance_can(box->instance, ENGINE_CAN_SLEEP)) {
		snprintf(idle->busy, sizeof idle->busy,
			"driver '%s' cannot tell when a box is idle", box->row.driver);
		return;
	}
	if (instance_activity(box->instance, &activity, NULL) < 0)
		return;
	if (!idle->settings_known)
		idle_settings_changed(box);
	if (idle->pid != box->row.pid) {
		/* A new instance: counting starts here. */
		idle->pid = box->row.pid;
		idle->active_us = idle->cpu_us_at = now;
		idle->timer = (struct instance_timer){ 0 };
		idle->traffic = box->link ? link_traffic(box->link) : 0;
	} else if (is_busy(box, &activity, now - idle->looked_us)) {
		idle->active_us = now;
		idle->again_us = 0;
	} else if (now - idle->active_us > LOOK_MS * 1000 && now >= idle->again_us) {
		idle->busy[0] = '\0';
	}
	if (activity.cpu_us != idle->cpu_us)
		idle->cpu_us_at = now;
	idle->cpu_us = activity.cpu_us;
	idle->io_bytes = activity.io_bytes;
	idle->looked_us = now;
	if (!idle->suspend_ms || now - idle->active_us < (int64_t)idle->suspend_ms * 1000 ||
		now < idle->again_us || !box->link_ready || operation_is_on(box) ||
		box->yard->look_spent_us > SPENT_MAX_US)
		return;
	awake = timers_keep_awake(box, now);
	spent_us = clock_mono_us() - now;
	box->yard->look_spent_us += spent_us;
	if (awake)
		idle->again_us = now + spent_us * SPENT_PART +
				 MIN(MAX((int64_t)idle->suspend_ms * 1000 / 8, AGAIN_MIN_US),
					 (int64_t)AGAIN_MAX_US);
	else
		put_to_sleep(box, now);
}

static void on_hibernated(struct box *box, const struct err *err, void *arg)
{
	(void)arg;
	if (box && err) {
		if (err->kind != ERR_UNSUPPORTED)
			log_warn("an idle box cannot be hibernated", kv_str("box", box->row.id),
				kv_err(err));
		/* The box stays suspended; hibernation is tried again after the same time. */
		box->idle.asleep_us = clock_mono_us();
	}
}

static void look_at_suspended(struct box *box)
{
	struct box_idle *idle = &box->idle;
	int64_t now = clock_mono_us();

	if (!idle->settings_known)
		idle_settings_changed(box);
	if (strcmp(box->row.asleep_for, "idle") || !idle->hibernate_ms)
		return;
	if (!idle->asleep_us) {
		/* It was suspended by an earlier daemon. */
		idle->asleep_us = now;
		wait_for_timer(box);
	}
	/* A relative sleep would be late after a hibernation, and for a box suspended by an earlier
	 * daemon the kind of timer is unknown. Such a box stays in memory until the timer is
	 * due. */
	if (box->row.wake_us && (idle->timer.span || idle->timer.kind == INSTANCE_TIMER_NONE))
		return;
	if (now - idle->asleep_us >= (int64_t)idle->hibernate_ms * 1000 && !operation_is_on(box))
		box_hibernate(box, "idle", on_hibernated, NULL);
}

static void look(void *arg)
{
	struct yard *yard = arg;

	yard->look_spent_us = 0;
	/* Start with another box each time, so that the time budget is shared. */
	yard->look_first++;
	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[(yard->look_first + i) % yard->box_count];

		if (box_is_gone(box) || box->remove_wanted || yard->closing || yard->going_down)
			continue;
		if (box->state == BOX_RUNNING && box->instance)
			look_at_running(box);
		else if (box->state == BOX_SUSPENDED)
			look_at_suspended(box);
	}
	loop_timer_start(yard->look_timer, LOOK_MS);
}

void idle_open(struct yard *yard)
{
	yard->look_timer = loop_timer_new(yard->loop, look, yard);
	loop_timer_start(yard->look_timer, LOOK_MS);
	/* Keep the timers of sleeping boxes running. */
	for (size_t i = 0; i < yard->box_count; i++)
		if (yard->boxes[i]->state == BOX_SUSPENDED ||
			yard->boxes[i]->state == BOX_HIBERNATED)
			idle_asleep(yard->boxes[i]);
}

void idle_close(struct yard *yard)
{
	loop_timer_free(yard->look_timer);
	yard->look_timer = NULL;
}

/* ---- information ---------------------------------------------------------------------------- */

static json_t *moment_json(int64_t wall_us)
{
	char text[CLOCK_RFC3339_MAX];

	return json_string(clock_rfc3339(wall_us, text));
}

static json_t *timer_json(const struct box *box, int64_t now)
{
	const struct instance_timer *timer = &box->idle.timer;
	int64_t at_us = box->row.wake_us;

	if (!at_us && timer->kind == INSTANCE_TIMER_AT && timer->at_us > now)
		at_us = clock_wall_us() + timer->at_us - now;
	if (!at_us)
		return json_null();
	return json_pack("{s:o,s:s,s:I,s:s}", "at", moment_json(at_us), "process", timer->comm,
		"pid", (json_int_t)timer->pid, "call", timer->call);
}

json_t *idle_json(const struct box *box)
{
	const struct box_idle *idle = &box->idle;
	bool asleep = box->state == BOX_SUSPENDED || box->state == BOX_HIBERNATED;
	int64_t now = clock_mono_us(), since_us = 0;
	json_t *json = json_object();

	if (!idle->settings_known)
		idle_settings_changed((struct box *)box);
	if (idle->active_us && (asleep || box->state == BOX_RUNNING))
		since_us = idle->active_us;
	json_object_set_new(json, "since",
		since_us ? moment_json(clock_wall_us() - (now - since_us)) : json_null());
	json_object_set_new(
		json, "for_ms", since_us ? json_integer((now - since_us) / 1000) : json_null());
	json_object_set_new(json, "busy",
		box->state == BOX_RUNNING && *idle->busy ? json_string(idle->busy) : json_null());
	json_object_set_new(json, "asleep_for", asleep ? box_asleep_for_json(box) : json_null());
	json_object_set_new(json, "suspend_ms", json_integer((json_int_t)idle->suspend_ms));
	json_object_set_new(json, "hibernate_ms", json_integer((json_int_t)idle->hibernate_ms));
	json_object_set_new(json, "next_timer", timer_json(box, now));
	return json;
}
