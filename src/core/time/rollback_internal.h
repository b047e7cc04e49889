/* rollback_internal.h - what the two files of rollback share */
#pragma once
#include "core/core_internal.h"
#include "core/time/timeline.h"

struct rolling {
	struct operation op;
	struct box *box;
	struct yard *yard;
	char *wanted; /* id of the target */
	char *from;   /* id of the snapshot of the present, or NULL */
	char *disk;   /* ".roll-ID": the target's disk, ready to be put in place */
	bool used;    /* the target is held meanwhile */
	bool disk_only, forget, from_inside;
	bool was_suspended;
	bool adopted;	       /* the hibernated state became the snapshot of the present */
	bool returning;	       /* the target did not come up: going back to the present */
	struct helper *helper; /* copies the target's disk, beside the capture */
	bool copied, captured;
	struct err err;
	struct err failure; /* why it goes back */
	int64_t started_us;
	json_done done;
	void *arg;

	/* rollback_ahead.c */
	bool ahead;		  /* box->instance is the target, being made */
	struct instance *present; /* frozen meanwhile; NULL: it does not run, or no longer */
	struct link *link;	  /* to the present */
	bool link_ready;
	bool switched;		     /* the target has the network of the box */
	bool committed;		     /* the present is being killed; its disk is ".past-ID" */
	bool came_up;		     /* everything is done except the end of the present */
	struct loop_timer *patience; /* for the end of the present */
	unsigned kills;
};

/* ---- rollback.c */
void rolling_finish(struct rolling *rolling, const struct err *err); /* frees it */
/* The box is as it was, in state BOX_ROLLING_BACK: it goes on. Frees rolling. */
void rolling_give_up(struct rolling *rolling, const struct err *why);

/* ---- rollback_ahead.c: functions of its table too */
const char *ahead_disk(struct operation *op);
void ahead_ready(struct operation *op, struct box *box);
bool ahead_commit(struct operation *op, struct box *box);
bool ahead_lost_link(struct operation *op, struct link *link);
bool ahead_is_possible(struct rolling *rolling);
void ahead_begin(struct rolling *rolling);
/* The target did not come up. False: the box is to be removed, and nothing of it runs. */
bool ahead_failed(struct rolling *rolling, const struct err *why);
void ahead_cancel(struct rolling *rolling, const struct err *why); /* the daemon ends */
