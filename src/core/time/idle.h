/* idle.h - boxes that do nothing are put to sleep, and wake when somebody wants something of them
 *
 *   idle.c   once a second: what does each running box do? Those that do nothing for long enough
 *            are suspended, later hibernated. A timer inside that falls due wakes them.
 *   wake.c   touching: exec, files, requests to ports; whoever wants something of a sleeping box
 *            waits while it wakes. */
#pragma once
#include "core/box.h"

struct loop_timer;

/* What is known of a box's doings; of this daemon's time. Times are clock_mono_us. */
struct box_idle {
	int64_t active_us; /* last seen doing something */
	int64_t cpu_us_at; /* its CPU time was last seen to rise */
	int64_t looked_us; /* last look */
	int64_t again_us;  /* no need to look at its timers before */
	int64_t asleep_us; /* suspended since */
	int64_t pid;	   /* of the instance all this is about */
	uint64_t cpu_us, io_bytes, traffic;
	char busy[112];			   /* why it is not idle, for people; "": it is */
	struct instance_timer timer;	   /* of the last look at them */
	struct loop_timer *wake;	   /* when a timer inside is due; NULL: never was one */
	uint64_t suspend_ms, hibernate_ms; /* 0: never */
	bool settings_known;
};

/* ---- idle.c --------------------------------------------------------------------------------- */

void idle_open(struct yard *yard);
void idle_close(struct yard *yard);
void idle_done(struct box *box); /* it goes */
/* It was resumed, woken, or went to sleep: counts from here. */
void idle_awake(struct box *box);
void idle_asleep(struct box *box);
/* Set anew in the row. */
void idle_settings_changed(struct box *box);
json_t *idle_json(const struct box *box); /* for box_json; new reference */
/* The gate told figures of its network: it did something. inbound: bytes came for it. */
void idle_network(struct box *box, bool inbound);

/* ---- wake.c --------------------------------------------------------------------------------- */

/* Somebody wants something of it, which counts as activity. 0: it runs. 1: it is being woken, see
 * box_woken. -1: it does not run and is not woken by this: stopped, paused because of a limit, or
 * the daemon is going down. */
int box_touch(struct box *box, struct err *err);
/* Whether a touch makes it run, if it does not. */
bool box_wakes(const struct box *box);
int box_refuse_touch(const struct box *box, struct err *err); /* why not; -1 */
/* It reached a limit and sleeps because of that, however deep: it is nobody's to wake but by 'box
 * resume'. */
bool box_is_paused(const struct box *box);
/* For channels opened before there is a link: waits for it. */
struct link *box_waiting_link(struct box *box);
void wake_open(struct yard *yard);
void wake_close(struct yard *yard);
/* Nobody waits for it any more: it goes. */
void wake_done(struct box *box);
