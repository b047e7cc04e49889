/* core_internal.h - what the files of core share: a box and a yard with their fields */
#pragma once
#include "base/alloc.h"
#include "conf/conf.h"
#include "core/asker.h"
#include "core/box.h"
#include "core/drivers.h"
#include "core/time/idle.h"
#include "core/intent.h"
#include "core/operation.h"
#include "core/yard.h"
#include "engine/groups.h"
#include "link/link.h"
#include "store/store.h"

enum {
	BOX_ID_LEN = 10,
	UID_RANGE = 131072,
	UID_FIRST = 0x40000000, /* far above what /etc/subuid hands out */
	UID_SLOTS = 8192,	/* above them are ids that boxes share; see engine/ns */
	STOP_GRACE_MS = 10000,
	EVENTS_KEPT = 100000,
};

#define BOX_DISKS	 "boxes"  /* where they are in the pool */
#define ROLL_DISK_PREFIX ".roll-" /* before the id of a box: the disk it goes back to */
#define PAST_DISK_PREFIX ".past-" /* and the one it has left */
#define SECOND_SUFFIX	 "b"	  /* after the id of a box: the second id of instances */
#define VOLUME_DISKS	 "volumes"
#define VOLUME_DATA	 "data"

#define SNAPSHOT_DISKS "snapshots"

/* Somebody waiting for a box to reach the end of what is being done to it. */
struct waiter {
	box_done done;
	void *arg;
	struct waiter *next;
};

struct box {
	struct yard *yard;
	struct box_row row; /* what the store has, kept in step with it */
	enum box_state state;
	enum intent intent;
	struct instance *instance; /* NULL unless it runs */
	bool second; /* the instance has the second of its two ids; see rollback_ahead.c */
	char instance_id[BOX_ID_LEN + 8];
	struct link *link;	  /* NULL while box-init cannot be reached */
	struct link *waiting;	  /* for a connection: channels opened while it wakes; see wake.c */
	struct network *net;	  /* NULL for a spare; see network_internal.h */
	struct tree *tree;	  /* NULL for a spare; see tree_internal.h */
	struct loop_timer *timer; /* see box_timer_start */
	struct loop_timer *command_timer; /* its command is being started; or NULL */
	unsigned reconnects;
	bool link_ready;
	bool wake_wanted; /* somebody waits for it to wake */
	bool wake_begun;  /* and hears when that has ended */
	unsigned wake_tries;
	struct box_idle idle;
	bool spare;	     /* started ahead, nobody's yet; see spare.c */
	bool command_is_new; /* its command runs for the first time */
	bool adopted;	     /* its instance is older than this daemon */
	bool catch_up;	     /* adopted: programs may have ended while nobody watched */
	bool remove_wanted;  /* removal goes on once it has stopped */
	bool put_to_bed;     /* for the end of the daemon; see yard_hibernate_all */
	bool keep_wanted;    /* and its workspace is kept */
	unsigned removal_tries;
	unsigned kills;		 /* of its instance, by the timer */
	uint64_t oom_kills;	 /* since this start */
	uint64_t disk_used;	 /* as it was a second ago; see limit.c */
	uint64_t tree_used;	 /* of all disks of its tree, likewise; see budget.c */
	bool disk_full;		 /* its event was raised, and it has not made room since */
	uint64_t pids_refused;	 /* as far as told */
	const char *stopped_for; /* the limit whose policy stops it, or NULL; a literal */
	bool holds;		 /* at its limit of memory; see limit.c */
	/* when it went on at its limit of memory: the kernel may kill, once; 0: no */
	int64_t let_kill_us;
	uint64_t disk_seen;	     /* at the last close look */
	int64_t disk_changed_us;     /* when that was another figure than before */
	int64_t look_us;	     /* when the next one is due */
	struct seeding *seeding;     /* its disk is being made; see seed.c */
	struct keeping *keeping;     /* its workspace is being kept; see workspace.c */
	struct operation *operation; /* what it is busy with; NULL: nothing */
	struct operation *queue;     /* and what comes after that; see operation.h */
	struct capturing *capturing; /* its state is being written; see capture.c */
	struct saving *saving;	     /* its output is being kept while it stops; see output.c */
	struct trial *trial; /* what was captured of it is restored beside it; see trial.c */
	struct box_restore { /* how it comes to life, when from a state; see restore.c */
		char *state; /* id, held; NULL: it starts anew */
		int dir;     /* its plain form; -1: not there yet */
		enum restore_kind {
			RESTORE_NONE,
			RESTORE_WAKE,
			RESTORE_ROLLBACK,
			RESTORE_FORK
		} kind;
		char *parent;	/* RESTORE_FORK: name of the box it is a fork of */
		unsigned index; /* and the how manieth */
		bool waits;	/* for the plain form */
		bool in_call, held;
		bool used; /* it is that of a snapshot, which does not go meanwhile */
		/* that had addresses when it was captured; NULL: not known, or taken */
		json_t *names;
		struct err problem;
	} restore;
	struct inside *inside; /* what it asked for from inside; NULL: nothing yet. See inside.c */
	json_t *exec_who;      /* of its programs, by id; or NULL; see asker.h */
	char asked_by[ASKER_WHO_SIZE]; /* what it is busy with, see asker.h; "": nobody */
	struct waiter *waiters;
	struct waiter *removers; /* those who wait for it to be gone */
	uint64_t events_dropped;
	/* monotonic, of the next automatic snapshot; 0: not known yet; see auto.c */
	int64_t auto_due_us;
	uint64_t auto_cpu_us;	  /* CPU time at the last one */
	struct attempt *auto_now; /* the one being taken, or NULL */
};

struct event_feed {
	struct yard *yard;
	event_fn fn;
	void *arg;
	struct event_feed *next;
	bool dead; /* freed while events were being handed out */
};

struct image;
struct instance_mount;
struct pool;

struct yard {
	struct loop *loop;
	const struct conf *conf;
	const struct asker *asker; /* or NULL: it works for itself; see asker.h */
	struct store *store;
	struct images *images;
	struct groups *groups;	 /* cgroups of all boxes */
	struct drivers *drivers; /* how boxes are isolated; see drivers.h */
	struct pool *pool;
	struct audit *audit;
	struct audit_shares *audit_shares; /* of it, for each tree */
	struct networks *networks;	   /* see network.c */
	struct tree *trees;		   /* see tree.c */
	struct box **boxes;		   /* oldest first */
	size_t box_count;
	struct box *spares[CONF_SPARES_MAX];
	size_t spare_count;
	struct loop_timer *spare_timer;
	struct spare_kind {
		char *image; /* id */
		char *driver;
		char *profile;
		unsigned times;	  /* asked for in a row */
	} spare_kind, other_kind; /* what is kept, and what was asked for instead lately */
	struct event_feed *feeds;
	unsigned feeding;
	struct loop_timer *idle;
	struct loop_timer *limit_timer, *close_timer;
	struct loop_timer *look_timer; /* idle.c's */
	int64_t look_spent_us;
	size_t look_first;
	struct loop_timer *wake_timer; /* wake.c's */
	struct woken_watch *woken_watches;
	unsigned waking_told; /* watches are being told */
	struct keeping *keepings;
	struct disk_stream *streams;
	struct checkpoints *checkpoints; /* NULL before it is open */
	struct snapshot **snapshots;	 /* oldest first; see snapshot.c */
	size_t snapshot_count;
	struct wish *snapshot_wishes; /* who waits until one is safe */
	struct packing *packings;     /* of snapshots */
	struct forking *forkings;     /* see fork.c */
	char boot[40];
	int64_t started_us;
	char last_event_at[32]; /* of the daemon before this one; see work.c */
	bool closing;
	bool going_down; /* all boxes are being hibernated: none is woken or made any more */
	bool purged;	 /* the pool goes too */
	void (*purge_done)(const struct err *err, void *arg);
	void *purge_arg;
	struct err purge_err;
};

static inline const char *json_get_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* events.c: yard_event in the name of who; NULL: of whoever asks. */
void yard_event_by(
	struct yard *yard, const char *type, struct box *box, const char *who, json_t *data);

/* box.c */
struct box *box_new(struct yard *yard, const struct box_row *row); /* takes the row's strings */
void box_list(struct box *box);					   /* into the list of boxes */
void box_free(struct box *box); /* out of the list, handles let go */
void box_set_state(struct box *box, enum box_state state, enum intent intent);
/* The same with INTENT_ROLLBACK_TO and the snapshot it goes to. */
void box_set_target(struct box *box, enum box_state state, const char *target);
void box_save(struct box *box, enum store_grade grade); /* logs a failure: the daemon goes on */
bool box_is_busy(const struct box *box);
/* Removed for everybody but us: what is left of it is being cleaned up. */
bool box_is_gone(const struct box *box);
/* What its row says of its removal: its workspace is kept first, or not. */
enum intent box_removal_intent(const struct box *box);
/* By id or name, whoever asks: for names that must be free, and for what the daemon does by itself.
 * NULL: there is none. */
struct box *box_lookup(struct yard *yard, const char *id_or_name);
bool box_has_disk(const struct box *box);
/* The driver of its row. ERR_UNSUPPORTED when it does not work here. */
int box_engine(const struct box *box, struct engine **ret, struct err *err);
void text_replace(char **slot, const char *text);

/* waiters.c */
void box_wait_removal(struct box *box, box_done done, void *arg);
/* Answers and frees them. */
void waiters_notify(struct waiter *waiters, struct box *box, const struct err *err);

/* life.c */
int box_refuse_busy(struct box *box, struct err *err); /* -1 */
void box_wait(struct box *box, box_done done, void *arg);
void box_notify(struct box *box, const struct err *err); /* answers all waiters */
void box_notify_without(
	struct box *box, const struct err *err); /* the same, as if there were no box */
void box_notify_everybody(struct box *box, const struct err *err); /* removers too */
void box_finish_removal(struct box *box);
void box_remove_now(struct box *box); /* one that has no instance, and never had or lost it */
void box_keeping_ended(
	struct box *box, const struct err *why); /* why NULL: its workspace is safe */
/* Its instance is gone, or goes: nothing of it is held any more. */
void box_let_go(struct box *box);
void box_ended(struct box *box, const char *reason, const char *detail);
extern const struct instance_ops box_instance_ops;
/* image NULL: for an instance that runs already. The spec's disk is yours to free; the rest is
 * borrowed. */
void box_instance_spec(struct box *box, const struct image *image, struct instance_spec *ret);
/* One more instance of a box, from a state, upon another of its disks. */
struct box_beside {
	const char *id;	  /* the other of the two that its instances have */
	const char *disk; /* in BOX_DISKS */
	struct instance_state state;
	const struct instance_ops *ops;
	void *arg;
};
int box_start_beside(
	struct box *box, const struct box_beside *beside, struct instance **ret, struct err *err);
/* Is there room for so much more of it for a moment: of the machine's memory, and of what its tree
 * may have together? */
bool box_fits_twice(struct box *box, uint64_t bytes, uint64_t processes);
bool box_has_mounts(const struct box *box); /* volumes, or folders of the host */
void box_keep_mark(struct box *box);	    /* of its instance, in the row */
/* One timer a box: reconnects a running one, ends the patience with a stopping one. */
void box_timer_start(struct box *box, uint64_t ms);
/* Kills its instance, again and again until it has ended. Whoever waits for that is told
 * ERR_TIMEOUT when it takes too long. */
void box_kill(struct box *box);
/* Goes on with a purge when a box has gone. */
void yard_purge_step(struct yard *yard);

/* A box that never ran leaves nothing; one that ran before is stopped again, with the reason. */
void box_launch_failed(struct box *box, const struct err *why);
/* Its instance is there: its network, then box-init. */
void box_open_up(struct box *box);
/* Makes the instance of a box. A spare is not recorded. */
int box_launch(struct box *box, struct err *err);
/* change.c */
/* reason: "request" "touch" "timer" "network"; a literal. */
char *box_sleep_text(const char *before, const struct box_sleep *sleep); /* for the row; yours */
int box_resume_for(struct box *box, const char *reason, struct err *err);

/* create.c */
int limits_check(const struct limits *limits, struct err *err);
/* The row and its network's: both or none. */
struct network;
int box_insert(struct yard *yard, const struct box_row *row, struct network *net,
	enum store_grade grade, struct err *err);
/* ERR_EXISTS when a box has the name; says plainly when it is another owner's. */
int box_refuse_taken(struct yard *yard, const char *name, struct err *err);
/* A uid range nobody has. */
int box_pick_slot(struct yard *yard, uint32_t *ret, struct err *err);

/* spare.c */
void spares_start(struct yard *yard);
void spares_end(struct yard *yard);
/* A spare of that kind, out of the pool and running; NULL when there is none. */
struct box *spare_take(
	struct yard *yard, const char *image, const char *driver, const char *profile);
void spare_discard(struct box *box);			  /* taken, but of no use */
void spare_ended(struct box *box, const struct err *why); /* why NULL: on request */
void spares_drop(struct yard *yard);			  /* all; for a purge */
void spares_check(struct yard *yard); /* now and then: is their image still there? */
size_t spares_ready(const struct yard *yard);

/* work.c */
/* Asks box-init for something: request as wire.h says. A box that sleeps is woken for it; the
 * channel hears when that fails. */
int box_chan_open(struct box *box, enum wire_op op, const struct buf *request,
	const struct chan_ops *ops, void *arg, struct chan **ret, struct err *err);
void box_is_up(struct box *box, bool created); /* it runs: its command, those who wait, events */
extern const struct link_ops box_link_ops;
void box_tell_name(struct box *box);		   /* files inside follow the host name */
int box_connect(struct box *box, struct err *err); /* starts a link to box-init */
void box_disconnect(struct box *box);
/* Of one that is about to end for a while: who waits for something of it hears that it did what it
 * says. */
void box_hang_up(struct box *box, const char *what, const char *hint);
/* All who wait for something of it get err; its programs are not touched. */
void box_fail_channels(struct box *box, const struct err *err);
void box_reconnect(struct box *box);
void box_link_failed(
	struct box *box, const struct err *err);      /* whoever waits for its link is told */
const struct image *box_image(const struct box *box); /* NULL when it is gone */
bool box_run_command(struct box *box); /* false: there is none, or it is known not to start */

bool box_event_allowed(struct box *box); /* a tree of boxes cannot flood the event log */

/* inside.c */
void inside_link_ready(struct box *box);
void inside_request(struct box *box, const struct wire_request *request);
void inside_pump(struct box *box);   /* answers that wait go on */
void inside_forget(struct box *box); /* what it had asked for; its box-init is another or gone */
void inside_free(struct box *box);

/* inside_tell.c - how a restored box learns who it is */
/* Its box-init can be told who it is. False for one from before version 2 of the protocol: such a
 * box can neither be forked with its processes nor taken back until it was stopped and started.
 * Asked of a box with a link. */
bool box_can_be_told(const struct box *box);

/* To be called from on_link_ready of a box just made from another's state, before anything else is
 * asked of it. Its host name has been set already. done comes once: err NULL when it has a machine
 * id, randomness and host name of its own and its programs were told; the box must not be served
 * before. What its hooks failed at is an event, "box.hooks_failed". -1: done is not called. */
int box_tell_identity(struct box *child, const char *parent_name, unsigned index, box_done done,
	void *arg, struct err *err);
/* The same for a box that is itself again: woken, or taken back. After WIRE_RESTORED_ROLLED_BACK
 * what it had asked for is forgotten. Best effort: with an old box-init nothing is told, and done
 * comes at once. */
int box_tell_restored(
	struct box *box, enum wire_restored kind, box_done done, void *arg, struct err *err);

/* inside_limits.c - the limits of a tree outlive its members */
/* child takes the place of parent, with the forks and at most the limits it had; its own row is the
 * caller's to store. */
int inside_promoted(struct box *parent, struct box *child, struct err *err);
/* Its forks become those of the box it was forked from itself, and may do no more than before. To
 * be called once, while it can still be found. */
void inside_box_removed(struct box *box);

/* life.c: TERM to all, KILL after that; kills it when it cannot be asked. */
void box_ask_shutdown(struct box *box, uint64_t grace_ms);

/* recover.c */
int yard_recover(struct yard *yard, struct err *err);

/* "request" "idle" "limit" "shutdown", or null; new reference. */
json_t *box_asleep_for_json(const struct box *box);

/* limit.c - what happens when a box reaches a limit */
void limits_open(struct yard *yard);
void limits_close(struct yard *yard);
void box_limit_hit(
	struct box *box, const char *type, json_t *data); /* type: a literal; takes data */
/* By a policy that is not the box's own for its limits. */
void box_limit_hit_as(struct box *box, const char *type, json_t *data, enum on_limit policy);

/* auto.c - automatic snapshots that are due; once a second */
void auto_look(struct yard *yard);

/* mount.c - what a box sees besides its disk */
/* Checks volumes and mounts as asked for, makes volumes that are missing, and tells how rows keep
 * them; both texts are yours. */
int box_mounts_check(struct yard *yard, const struct box_spec *spec, const char *owner,
	char **ret_volumes, char **ret_mounts, struct err *err);
/* What the driver is told at a start; another box may write to the volume meanwhile: ERR_STATE. At
 * most INSTANCE_MOUNTS_MAX; box_mounts_done frees. */
int box_mounts_resolve(
	struct box *box, struct instance_mount **ret, size_t *ret_count, struct err *err);
void box_mounts_done(struct instance_mount *mounts, size_t count);

/* seed.c */
/* *ret: a disk of the box is being made from its image, and its launch goes on after that. */
int seed_start(struct box *box, const struct image *image, bool *ret, struct err *err);
/* The same as a copy of a snapshot's disk, whole. */
int seed_copy(struct box *box, const char *snapshot, struct err *err);
void seed_cancel(struct box *box); /* nothing is left of it; for a box without one too */

/* disk.c */
void disk_streams_close(struct yard *yard); /* those nobody reads any more */
void disk_sweep_views(struct yard *yard);   /* snapshots that a dead daemon's streams held */

/* workspace.c */
/* Keeps /workspace of a box that is stopped, then goes on with its removal (box_finish_removal). */
int workspace_keep(struct box *box, struct err *err);
void workspaces_close(struct yard *yard);
void workspaces_sweep(struct yard *yard); /* what a dead daemon had not kept to the end */

/* capture.c - the state of a box as it is now, written down */
#define CAPTURE_NAMES_FILE "names.json" /* of a state: see network_names_json */
enum { CAPTURE_NAMES_MAX = 16 * 1024 * 1024 };
struct box_capture_spec {
	const char *state;	/* id of the state its processes go into; NULL: the disk alone */
	const char *disk_place; /* and where a copy of its disk goes; NULL: nowhere */
	const char *disk;
	bool disk_apart;  /* the copy is somebody else's, and not counted with it (pool_budget) */
	bool quick;	  /* the state is used at once and thrown away */
	bool to_end;	  /* the box is killed afterwards, and its own disk goes with the state */
	bool frozen;	  /* it is frozen already, whatever its state says */
	bool stay_frozen; /* afterwards, when it worked */
};
struct box_capture_result {
	uint64_t paused_us, processes;
	bool cancelled; /* by box_capture_cancel: nothing is to be tried instead */
};
struct box_capture_ops {
	/* It is written, and the box goes on; may be used from now on. May be NULL. */
	void (*on_taken)(struct box *box, const struct box_capture_result *result, void *arg);
	/* Exactly once, unless the box goes before (then with an error as well). Nothing is left
	 * when it failed. */
	void (*on_done)(struct box *box, const struct box_capture_result *result,
		const struct err *err, void *arg);
};
/* The caller has the turn. A box that does not run has no processes: its disk alone is copied, and
 * a state is refused. */
void box_capture(struct box *box, const struct box_capture_spec *spec,
	const struct box_capture_ops *ops, void *arg);
/* Bytes a state of it would take: its memory, and some more for what describes it. */
uint64_t box_capture_need(struct box *box);
/* Of a capture that was refused: what it hints at besides stays, and instead of the disk's snapshot
 * it hints at this. */
void box_capture_hint(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void box_capture_cancel(
	struct box *box, const struct err *why); /* on_done follows at once; accepts one without */

/* budget.c - what a tree of boxes keeps, against the limit of its first one */
/* Of the disk of a box, and of all disks of its tree when it is the tree's first. bytes 0: none. */
int box_limit_disk(struct box *box, uint64_t bytes, struct err *err);
/* Before a box keeps need bytes more because it asked for them itself: what its tree keeps without
 * a name goes, the oldest first. ERR_LIMIT, with figures and a hint, when that is not enough. */
int budget_make_room(struct box *box, uint64_t need, struct err *err);
/* States of the boxes of a tree have come, gone or changed in size. box: the id of one. */
void budget_states_changed(struct yard *yard, const char *box);
/* What automatic snapshots of a tree that has nearly used its limit hold back is given up, one at a
 * time. */
void budget_pressed(struct box *box);
/* Whichever limit is nearer: a disk's own, or that of its tree. limit 0: none. */
struct pool_figures;
bool budget_nearest(const struct pool_figures *figures, uint64_t *ret_used, uint64_t *ret_limit);
int box_disk_nearest(
	struct box *box, uint64_t *ret_used, uint64_t *ret_limit, bool *ret_tree); /* now */
/* Whose limit of disk is the tree's: the first box, or the oldest that is left of it. */
struct box *budget_get_first(const struct box *box);
/* {"used_bytes","limit_bytes","tree_bytes","states_bytes","inside_states_bytes","free_bytes"}; new
 * reference. */
json_t *box_disk_json(struct box *box);
uint64_t box_states_bytes(struct box *box); /* captured memory kept of it */

/* restore.c - a box from a state */
/* Box begins from a state (id; it is held from now on) the next time it is launched. */
void box_restore_from(struct box *box, const char *state, enum restore_kind kind);
/* Its plain form is needed first: *ret_wait: it is on its way, and box_launch is called again. */
int restore_prepare(struct box *box, bool *ret_wait, struct err *err);
void restore_done(struct box *box); /* it runs, or never will: lets go */
/* Right after box-init has said hello: who it is now. The box is up when that is answered
 * (box_came_up). */
void restore_greet(struct box *box);
void box_came_up(struct box *box); /* work.c */

/* snapshot.c */
struct snapshot {
	struct snapshot_row row;
	bool safe; /* packed, or there is nothing to pack */
	bool packing;
	unsigned users; /* forks, rollbacks and starts from it that are under way */
	bool doomed;	/* discarded: nobody finds it any more, and it goes with its last user */
	bool borrowed;	/* and its state, which is a box's own, stays */
};
int snapshots_load(struct yard *yard, struct err *err); /* before boxes are adopted */
void snapshots_sweep(struct yard *yard); /* after: what is half made or nobody's goes */
void snapshots_close(struct yard *yard);
/* On the time line of a box, by id or name. */
struct snapshot *snapshot_find(struct box *box, const char *which, struct err *err);
struct snapshot *snapshot_by_id(struct yard *yard, const char *id); /* NULL: none */
/* Of a box that has the turn; row "making" first, "ready" when taken. */
struct snapshot *snapshot_new(
	struct box *box, const char *cause, const char *detail, const char *kind);
int snapshot_record(
	struct yard *yard, struct snapshot *snapshot, enum store_grade grade, struct err *err);
void snapshot_ready(
	struct box *box, struct snapshot *snapshot, const struct box_capture_result *result);
void snapshot_ready_of(
	struct yard *yard, struct snapshot *snapshot, const struct box_capture_result *result);
void snapshot_pack(struct yard *yard, struct snapshot *snapshot); /* in the background */
typedef void (*safe_done)(const struct err *err, void *arg);
/* Of one that is neither safe nor on its way; done when it would survive a power cut. */
void snapshot_make_safe(struct yard *yard, struct snapshot *snapshot, safe_done done, void *arg);
void snapshot_discard(struct yard *yard, struct snapshot *snapshot); /* with state and disk */
/* State and disk stay until as many unuses. False: there is no such snapshot. */
bool snapshot_use(struct yard *yard, const char *id);
void snapshot_unuse(struct yard *yard, const char *id);
void snapshot_forget_state(
	struct yard *yard, struct snapshot *snapshot); /* the same, but its state stays */
json_t *snapshot_json(struct yard *yard, const struct snapshot *snapshot);
void snapshot_waiters_tell(struct yard *yard, const char *id, const struct err *err);
void snapshots_box_removed(struct box *box);		     /* its time line goes with it */
bool snapshot_is_automatic(const struct snapshot *snapshot); /* without a name, by itself */
bool snapshot_is_from_inside(const struct snapshot *snapshot);
void snapshots_thin(struct box *box);  /* automatic ones, by count and age */
char *state_id_new(struct yard *yard); /* yours */

/* golden.c - images with processes */
struct snapshot *golden_of(
	struct yard *yard, const struct image *image); /* NULL: an ordinary one */
char *golden_driver(const struct snapshot *golden);    /* of boxes made of it; yours */
char *golden_profile(const struct snapshot *golden);   /* of boxes made of it; yours */
void golden_check(struct yard *yard);		       /* now and then: of images that are gone */

/* rollback.c: a daemon died after the present was ended for it: it goes on. */
void rollback_recover(struct box *box);
/* A new daemon has found all boxes: of those that run it is not said any more why they could not be
 * hibernated. */
void hibernate_recovered(struct yard *yard);
/* trial.c: is what was captured of a box that stands still, and goes on doing so, restorable?
 * False: it is nothing unusual, or there is no room to try it; done is not called. Else done hears,
 * not from inside the call, unless cancelled. */
bool trial_start(struct box *box, const char *state, uint64_t processes, box_done done, void *arg);
void trial_cancel(struct box *box); /* accepts one without */
bool wake_launch_failed(struct box *box, const struct err *why);
void wake_forget_state(struct box *box); /* its programs have run since */
void forks_close(struct yard *yard);

/* names.c - "quiet-otter": easy to say, easy to type */
char *name_make_up(void);
