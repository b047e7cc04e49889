/* timeline.h - a box in time: sleep, snapshots, rollbacks, forks
 *
 * Snapshots of a box form a tree, its time line; the present of the box descends from one of them
 * (its position). A snapshot is "full" (disk, memory, processes) or "disk". A rollback makes a
 * snapshot of the present first, so that it can be undone. A fork is a box of its own from the
 * first moment: nothing of it depends on its parent any more.
 *
 * Audit log, policy, budgets and secrets belong to the box, not to its state: a rollback does not
 * change them. */
#pragma once
#include "core/box.h"

/* ---- sleep: suspended (box.h), hibernated, stopped ------------------------------------------ */

/* Hibernates a running or suspended box: its processes are on disk, nothing is left in memory. When
 * they cannot be captured the box goes on as before, and the error says which process and why. */
void box_hibernate(struct box *box, const char *reason, box_done done, void *arg);
/* Brings a box into the state running, from suspended, hibernated or stopped. Fails with ERR_STATE
 * when it was paused at a limit: that takes box_resume_deep. */
void box_wake(struct box *box, box_done done, void *arg);
/* What 'box resume' asks for: box_resume, and also wakes a hibernated box that was paused at a
 * limit. */
void box_resume_deep(struct box *box, box_done done, void *arg);

/* ---- snapshots ------------------------------------------------------------------------------ */

struct snapshot_spec {
	const char *name;   /* NULL: none; else unique on the time line, see snapshot_name_check */
	const char *cause;  /* "request" "exec" "interval" "try" …; a literal */
	const char *detail; /* NULL: none */
	bool disk_only;	    /* leave the processes out; files may be half written */
	/* For a hibernated box: its state becomes the snapshot's, which gets the state's id. Both
	 * refer to it then: the caller removes it from the box (row.state_id) or from the snapshot
	 * (snapshot_forget_state). */
	bool adopt;
	/* call done when the snapshot would survive a power cut, not already when it is captured */
	bool wait_safe;
};
/* Fails with ERR_INVALID unless the name is valid for a box and not "now", which marks the end of
 * every time line. */
int snapshot_name_check(const char *name, struct err *err);
/* result: the snapshot as in docs/api.md:
 * {"id","box","name","cause","detail","kind","parent","created_at",
 * "processes","state_bytes","stored_bytes","disk_bytes","safe":bool,"paused_us","took_us"} */
void box_snapshot(struct box *box, const struct snapshot_spec *spec, json_done done, void *arg);
/* {"box","name","position","snapshots":[oldest first, each with "current":bool]}; new reference. */
json_t *box_timeline_json(struct box *box);
/* Deletes a snapshot, by id or name; ERR_NOT_FOUND. Its children are attached to its parent. */
int box_snapshot_remove(struct box *box, const char *snapshot, struct err *err);

/* Takes a box back to an earlier moment. snapshot NULL: the newest on the way back from now.
 * disk_only: only the disk, and the box starts afresh. result:
 * {"box":box_json,"to":snapshot,"from":snapshot of the present, or null,"took_us"}. */
struct rollback_spec {
	const char *snapshot;
	bool disk_only;
	bool forget;	  /* do not keep the present */
	bool from_inside; /* asked for by the box itself: the kept snapshot counts as its own */
};
void box_rollback(struct box *box, const struct rollback_spec *spec, json_done done, void *arg);

/* ---- forks ---------------------------------------------------------------------------------- */

enum { FORKS_MAX = 100 }; /* per call */
struct fork_spec {
	const char *snapshot; /* NULL: the present */
	json_t *names;	      /* array of strings or NULL; missing names are generated */
	unsigned count;	      /* 0: as many as names, at least one */
	json_t *env, *labels; /* added to the parent's; objects or NULL */
	json_t *policy;	      /* instead of the parent's; or NULL */
	bool disk_only;	      /* children start afresh from a copy of the disk */
	bool remove_on_exit;
	bool from_inside; /* asked for by the box itself */
};
/* result: {"children":[box_json …],"failed":[{"name","index","error":{"code","message","hint"}}
 * …],"paused_us","took_us"}; err only when no child was made. */
void box_fork(struct box *box, const struct fork_spec *spec, json_done done, void *arg);

struct promote_spec {
	bool keep_labels,
		keep_limits; /* keep the child's own limits instead of the replaced box's */
};
/* child takes over the name, URL, ports, labels, limits and the time line of the box it was forked
 * from, which becomes a snapshot on that time line and is removed. A limit that the child already
 * exceeds stays its own. result: {"box":box_json,"was":snapshot or null,"had":{"labels","limits"}};
 * had: the child's own before. */
void box_promote(struct box *child, const struct promote_spec *spec, json_done done, void *arg);

/* Makes a golden image: the box's disk and processes as they are now. result: image JSON. */
void box_save_full(struct box *box, const char *name, json_done done, void *arg);

/* ---- all boxes ------------------------------------------------------------------------------ */

/* Hibernates every running and suspended box, before the end of the daemon or of the machine; a box
 * that cannot be hibernated goes on. From here on boxes are neither created nor woken
 * (yard_check_stays). failed, borrowed: those that go on, as
 * [{"id","name","error":{"code","message","hint"}} …]. done is called once, possibly before this
 * returns. */
void yard_hibernate_all(struct yard *yard, void (*done)(json_t *failed, void *arg), void *arg);
