/* timeline.h - a box in time: how deep it sleeps, its snapshots, going back, its forks
 *
 * Snapshots of a box form a tree, its time line; the box's present goes back to one of them (its
 * position). A snapshot is "full" (disk, memory, processes) or "disk". Rolling back makes a
 * snapshot of the present first, so that it can be undone. A fork is a box of its own from the
 * first moment: nothing of it depends on its parent any more.
 *
 * Audit log, policy, budgets and secrets belong to the box, not to its state: nothing here takes
 * them back. */
#pragma once
#include "core/box.h"

/* ---- sleep: suspended (box.h), hibernated, stopped ------------------------------------------ */

/* Its processes are on disk, nothing of it in memory. Of a suspended one too. When its processes
 * cannot be captured it goes on as it was, and the error says which process and why. */
void box_hibernate(struct box *box, const char *reason, box_done done, void *arg);
/* Runs when done is called, whatever it was: running, suspended, hibernated, stopped. ERR_STATE
 * when it was paused because it reached a limit: that is for box_resume_deep. */
void box_wake(struct box *box, box_done done, void *arg);
/* What 'box resume' asks for: box_resume, and one that was paused because it reached a limit goes
 * on from hibernation too. */
void box_resume_deep(struct box *box, box_done done, void *arg);

/* ---- snapshots ------------------------------------------------------------------------------ */

struct snapshot_spec {
	const char *name;   /* NULL: none; else unique on the time line, see snapshot_name_check */
	const char *cause;  /* "request" "exec" "interval" "try" …; a literal */
	const char *detail; /* NULL: none */
	bool disk_only;	    /* processes are left out; the disk as it is, files half written too */
	/* Of a hibernated box: the state it sleeps in becomes that of the snapshot, which has its
	 * id. It is both's then: the caller takes it from the box (row.state_id), or from the
	 * snapshot (snapshot_forget_state). */
	bool adopt;
	/* done is called when it would survive a power cut, else when it is captured */
	bool wait_safe;
};
/* As names of boxes are, and not "now", which is drawn at the end of every time line.
 * ERR_INVALID. */
int snapshot_name_check(const char *name, struct err *err);
/* result: the snapshot, as snapshot JSON in docs/api.md:
 * {"id","box","name","cause","detail","kind","parent","created_at",
 * "processes","state_bytes","stored_bytes","disk_bytes","safe":bool,"paused_us","took_us"} */
void box_snapshot(struct box *box, const struct snapshot_spec *spec, json_done done, void *arg);
/* {"box","name","position","snapshots":[… oldest first, each with "current":bool]}; new
 * reference. */
json_t *box_timeline_json(struct box *box);
/* By id or name; ERR_NOT_FOUND. What went back to it goes back to its parent. */
int box_snapshot_remove(struct box *box, const char *snapshot, struct err *err);

/* The same box at an earlier moment. snapshot NULL: the newest on the way back from now. disk_only:
 * its disk alone, the box starts anew. result: {"box":box_json,"to":snapshot,"from":snapshot it was
 * before, or null,"took_us"}. */
struct rollback_spec {
	const char *snapshot;
	bool disk_only;
	bool forget;	  /* the present is not kept */
	bool from_inside; /* asked for by the box itself: what is kept counts as its own */
};
void box_rollback(struct box *box, const struct rollback_spec *spec, json_done done, void *arg);

/* ---- forks ---------------------------------------------------------------------------------- */

enum { FORKS_MAX = 100 }; /* of one call */
struct fork_spec {
	const char *snapshot; /* NULL: as it is now */
	json_t *names;	      /* array of strings or NULL; fewer than count: the rest is made up */
	unsigned count;	      /* 0: as many as names, at least one */
	json_t *env, *labels; /* added to the parent's; objects or NULL */
	json_t *policy;	      /* instead of the parent's; or NULL */
	bool disk_only;	      /* children start anew from a copy of the disk */
	bool remove_on_exit;
	bool from_inside; /* asked for by the box itself */
};
/* result: {"children":[box_json …],"failed":[{"name","index","error":{"code","message","hint"}}
 * …],"paused_us","took_us"}; err only when there is no child at all. */
void box_fork(struct box *box, const struct fork_spec *spec, json_done done, void *arg);

struct promote_spec {
	bool keep_labels,
		keep_limits; /* the child's own, instead of those of the box it replaces */
};
/* child takes over the name, URL, ports, labels, limits and the time line of the box it was forked
 * from; what that was becomes a snapshot on it, and the box is removed. Limits that the child is
 * beyond already stay its own. result: {"box":box_json,"was":snapshot or
 * null,"had":{"labels","limits"}}, had: what the child's own were. */
void box_promote(struct box *child, const struct promote_spec *spec, json_done done, void *arg);

/* An image that starts with everything up: the box's disk and processes as they are now. result:
 * image JSON. */
void box_save_full(struct box *box, const char *name, json_done done, void *arg);

/* ---- all at once ---------------------------------------------------------------------------- */

/* Every running and suspended box is hibernated, for the end of the daemon or of the machine; one
 * that cannot be goes on as it was. From here on boxes are neither made nor woken
 * (yard_check_stays). failed, borrowed: those that go on, as
 * [{"id","name","error":{"code","message","hint"}} …]. Called once, possibly before it returns. */
void yard_hibernate_all(struct yard *yard, void (*done)(json_t *failed, void *arg), void *arg);
