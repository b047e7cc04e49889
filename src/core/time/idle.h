/* idle.h - puts idle boxes to sleep, and wakes them on access
 *
 *   idle.c   checks once a second what each running box does. Boxes that are idle for long enough
 *            are suspended, later hibernated. A timer inside that falls due wakes them.
 *   wake.c   access: exec, files, requests to ports; whoever uses a sleeping box waits while it
 *            wakes. */
#pragma once
#include "core/box.h"

struct link;
struct loop_timer;

/* What this daemon knows of a box's activity. Times are clock_mono_us. */
struct box_idle {
	int64_t active_us; /* last activity */
	int64_t cpu_us_at; /* last rise of the CPU time */
	int64_t looked_us; /* last look */
	int64_t again_us;  /* timers need not be read before this time */
	int64_t asleep_us; /* suspended since */
	int64_t pid;	   /* pid of the instance that all this is about */
	uint64_t cpu_us, io_bytes, traffic;
	char busy[112];		     /* why the box is not idle, for people; "": it is idle */
	struct instance_timer timer; /* as of the last time they were read */
	/* fires when a timer inside is due; NULL: there never was one */
	struct loop_timer *wake;
	uint64_t suspend_ms, hibernate_ms; /* 0: never */
	bool settings_known;
};

/* Those who wait for a box to wake; see wake.c. */
struct box_wake {
	struct link *link; /* holds channels opened meanwhile; NULL: none */
	bool wanted;	   /* somebody waits */
	bool begun;	   /* those who wait are told when it ends */
	unsigned tries;
};

/* ---- idle.c --------------------------------------------------------------------------------- */

void idle_open(struct yard *yard);
void idle_close(struct yard *yard);
void idle_done(struct box *box); /* the box is being freed */
/* The box was resumed, woken or put to sleep: idle time counts from here. */
void idle_awake(struct box *box);
void idle_asleep(struct box *box);
/* The setting in the row has changed. */
void idle_settings_changed(struct box *box);
json_t *idle_json(const struct box *box); /* for box_json; new reference */
/* The gate reported traffic of the box, which counts as activity. inbound: bytes came for it. */
void idle_network(struct box *box, bool inbound);

/* ---- wake.c --------------------------------------------------------------------------------- */

/* Tells that somebody uses the box, which counts as activity. 0: it runs. 1: it is being woken,
 * and every woken_watch is called afterwards. -1: it does not run and is not woken by this:
 * stopped, paused at a limit, or the daemon is shutting down. */
int box_touch(struct box *box, struct err *err);
/* Whether box_touch would wake the box. */
bool box_wakes(const struct box *box);
/* why box_touch does not wake it; returns -1 */
int box_refuse_touch(const struct box *box, struct err *err);
/* Whether the box sleeps because it reached a limit, suspended or hibernated: only 'box resume'
 * wakes it. */
bool box_is_paused(const struct box *box);
/* The link for channels opened before box-init is connected; they wait on it. */
struct link *box_waiting_link(struct box *box);
void wake_open(struct yard *yard);
void wake_close(struct yard *yard);
/* Nobody waits for the box any more: it is being freed. */
void wake_done(struct box *box);
