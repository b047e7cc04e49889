/* wake.c - callers of a sleeping box wait while it wakes
 *
 * A suspended box is resumed at once, within the call. Waking a hibernated box takes time, so
 * callers wait meanwhile: channels on a link without a connection (box->wake.link; box_connect
 * attaches it), connections to its ports in their pipes and backends. All are told together, by
 * the woken_watches. The wake begins from a timer with no delay: it may fail at once, and must
 * not call back into a caller that is still asking.
 *
 * While the daemon hibernates all boxes before its end, sleeping boxes stay asleep.
 *
 * A stopped box stays stopped. A box paused at a limit is woken only by 'box resume': otherwise
 * the limit would have no effect. */
#include "core/core_internal.h"
#include "core/time/idle.h"
#include "core/limit.h"
#include "core/boxnet/network_internal.h"
#include "core/boxnet/port_internal.h"
#include "core/time/timeline.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"

enum { TRIES_MAX = 3 };

bool box_is_paused(const struct box *box)
{
	/* Earlier versions stored just "limit". */
	return text_has_prefix(box->row.asleep_for, "limit");
}

json_t *box_asleep_for_json(const struct box *box)
{
	if (box_is_paused(box))
		return json_string("limit");
	return *box->row.asleep_for ? json_string(box->row.asleep_for) : json_null();
}

/* Whether the box is entering or leaving hibernation; callers wait for the end of that. */
static bool is_between(const struct box *box)
{
	return box->state == BOX_HIBERNATING || box->state == BOX_ROLLING_BACK ||
	       (box->state == BOX_STARTING && operation_is_on(box));
}

bool box_wakes(const struct box *box)
{
	if (box_is_gone(box) || box->remove_wanted)
		return false;
	if (box->yard->going_down)
		return box->state == BOX_RUNNING;
	if (box->state == BOX_SUSPENDED || box->state == BOX_HIBERNATED)
		return !box_is_paused(box);
	return box->state == BOX_RUNNING || is_between(box);
}

int box_refuse_touch(const struct box *box, struct err *err)
{
	if (box->state != BOX_STOPPED && yard_check_stays(box->yard, err) < 0)
		return -1;
	if (box->state == BOX_SUSPENDED || box->state == BOX_HIBERNATED)
		return box_refuse_paused(box, err);
	err_set(err, ERR_STATE, "box '%s' is %s, not running", box->row.name,
		box_state_name(box->state));
	if (box->state == BOX_STOPPED)
		err_hint(err, "'box start %s' starts it", box->row.name);
	return -1;
}

int box_touch(struct box *box, struct err *err)
{
	if (!box_wakes(box))
		return box_refuse_touch(box, err);
	if (box->state == BOX_SUSPENDED && box_resume_for(box, "touch", err) < 0)
		return -1;
	if (box->state == BOX_RUNNING) {
		idle_awake(box);
		return 0;
	}
	if (!box->wake.wanted) {
		box->wake.wanted = true;
		loop_timer_start(box->yard->wake_timer, 0);
	}
	return 1;
}

bool box_is_there(const struct box *box)
{
	return box_wakes(box);
}

int box_check_there(const struct box *box, struct err *err)
{
	return box_wakes(box) ? 0 : box_refuse_touch(box, err);
}

void box_is_used(struct box *box)
{
	struct err err = ERR_INIT;

	(void)box_touch(box, &err);
}

struct link *box_waiting_link(struct box *box)
{
	/* Connected and about to be marked as running: callers that come now use this connection,
	 * because no other will be made. */
	if (box->state == BOX_STARTING && box->link)
		return box->link;
	if (!box->wake.link)
		box->wake.link = link_new(box->yard->loop, -1, &box_link_ops, box);
	return box->wake.link;
}

/* ---- front doors that watch ----------------------------------------------------------------- */

struct woken_watch {
	struct yard *yard;
	woken_fn fn;
	void *arg;
	struct woken_watch *next;
	bool dead; /* freed while watches were being called */
};

struct woken_watch *woken_watch_new(struct yard *yard, woken_fn fn, void *arg)
{
	struct woken_watch *watch = xnew(struct woken_watch), **end = &yard->woken_watches;

	*watch = (struct woken_watch){ .yard = yard, .fn = fn, .arg = arg };
	while (*end)
		end = &(*end)->next;
	*end = watch;
	return watch;
}

static void sweep_watches(struct yard *yard)
{
	for (struct woken_watch **at = &yard->woken_watches; *at;) {
		struct woken_watch *watch = *at;

		if (!watch->dead) {
			at = &watch->next;
			continue;
		}
		*at = watch->next;
		free(watch);
	}
}

void woken_watch_free(struct woken_watch *watch)
{
	if (!watch)
		return;
	watch->dead = true;
	if (!watch->yard->waking_told)
		sweep_watches(watch->yard);
}

static void tell_watches(struct box *box, const struct err *err)
{
	struct yard *yard = box->yard;

	yard->waking_told++;
	for (struct woken_watch *watch = yard->woken_watches; watch; watch = watch->next)
		if (!watch->dead)
			watch->fn(box, err, watch->arg);
	if (--yard->waking_told == 0)
		sweep_watches(yard);
}

/* ---- waking --------------------------------------------------------------------------------- */

/* Answers all who waited. err NULL: the box runs. */
static void told(struct box *box, const struct err *err)
{
	struct err why = ERR_INIT;

	box->wake.wanted = box->wake.begun = false;
	box->wake.tries = 0;
	/* The box runs, but no new connection was made since they came. */
	if (!err && box->wake.link) {
		err_set(&why, ERR_UNAVAILABLE, "box-init of '%s' does not answer", box->row.name);
		link_fail(box->wake.link, &why);
	} else if (box->wake.link) {
		link_fail(box->wake.link, err);
	}
	port_listeners_woken(box, !err);
	networks_box_woken(box, err);
	tell_watches(box, err);
}

static void on_settled(struct box *box, const struct err *err, void *arg)
{
	struct err why = ERR_INIT;

	(void)arg;
	if (!box)
		return; /* wake_done has answered them */
	if (box->state == BOX_RUNNING) {
		told(box, NULL);
	} else if (box_wakes(box) && ++box->wake.tries < TRIES_MAX) {
		box->wake.begun = false;
		loop_timer_start(box->yard->wake_timer, 0);
	} else if (err) {
		why = *err;
		told(box, &why);
	} else {
		box_refuse_touch(box, &why);
		told(box, &why);
	}
}

static void on_woken(struct box *box, const struct err *err, void *arg)
{
	struct err why = ERR_INIT;

	(void)arg;
	if (!box)
		return;
	if (err) {
		log_warn("a box cannot be woken", kv_str("box", box->row.id), kv_err(err));
		why = *err;
	}
	told(box, err ? &why : NULL);
}

static void begin(struct box *box)
{
	struct err err = ERR_INIT;

	if (box->state == BOX_RUNNING) {
		told(box, NULL);
	} else if (!box_wakes(box)) {
		box_refuse_touch(box, &err);
		told(box, &err);
	} else if (is_between(box)) {
		box_wait(box, on_settled, NULL);
	} else {
		box_wake(box, on_woken, NULL);
	}
}

/* A callback may create or remove boxes, so the list is searched from its start until nothing is
 * left. */
static void on_timer(void *arg)
{
	struct yard *yard = arg;

	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];

		if (!box->wake.wanted || box->wake.begun)
			continue;
		box->wake.begun = true;
		begin(box);
		i = (size_t)-1;
	}
}

void wake_open(struct yard *yard)
{
	yard->wake_timer = loop_timer_new(yard->loop, on_timer, yard);
}

void wake_close(struct yard *yard)
{
	loop_timer_free(yard->wake_timer);
	yard->wake_timer = NULL;
}

void wake_done(struct box *box)
{
	struct err err = ERR_INIT;

	if (box->wake.link) {
		err_set(&err, ERR_STATE, "box '%s' was removed meanwhile", box->row.name);
		link_fail(box->wake.link, &err);
	}
	if (!box->wake.wanted)
		return;
	box->wake.wanted = false;
	err_set(&err, ERR_STATE, "box '%s' was removed meanwhile", box->row.name);
	networks_box_woken(box, &err);
	tell_watches(box, &err);
}
