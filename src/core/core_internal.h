/* core_internal.h - what the files of core share: a box and a yard with their fields */
#pragma once
#include "base/alloc.h"
#include "conf/conf.h"
#include "core/asker.h"
#include "core/box.h"
#include "core/drivers.h"
#include "core/limit.h"
#include "core/time/auto.h"
#include "core/time/idle.h"
#include "core/time/restore.h"
#include "core/intent.h"
#include "core/lineage.h"
#include "core/operation.h"
#include "core/yard.h"
#include "engine/groups.h"
#include "link/link.h"
#include "store/store.h"

enum {
	BOX_ID_LEN = 10,
	UID_RANGE = 131072,
	UID_FIRST = 0x40000000, /* far above what /etc/subuid hands out */
	UID_SLOTS = 8192,	/* the ids above them are shared by boxes; see engine/ns */
	STOP_GRACE_MS = 10000,
	EVENTS_KEPT = 100000,
};

#define BOX_DISKS	   "boxes"  /* folder of the boxes' disks in the pool */
#define ROLL_DISK_PREFIX   ".roll-" /* before the id of a box: the disk of a rollback's target */
#define PAST_DISK_PREFIX   ".past-" /* before the id of a box: the disk that a rollback has left */
#define IMAGE_DRIVER_LABEL "boxyard.driver" /* label of an image: its boxes have that driver */
#define SECOND_SUFFIX	   "b" /* after the id of a box: the second of its two instance ids */
#define VOLUME_DISKS	   "volumes"
#define VOLUME_DATA	   "data"

#define SNAPSHOT_DISKS "snapshots"

/* Somebody who waits until the current change of a box has ended. */
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
	bool unsaved;		   /* the row could not be written; see boxes_save_again */
	struct instance *instance; /* NULL unless it runs */
	/* the instance uses the second of the box's two instance ids; see rollback_ahead.c */
	bool second;
	char instance_id[BOX_ID_LEN + 8];
	struct link *link;	  /* NULL while box-init cannot be reached */
	struct network *net;	  /* NULL for a spare; see network_internal.h */
	struct tree *tree;	  /* NULL for a spare; see tree_internal.h */
	struct loop_timer *timer; /* see box_timer_start */
	/* runs while the main command is being started; else NULL */
	struct loop_timer *command_timer;
	unsigned reconnects;
	bool link_ready;
	struct box_wake wake;
	struct box_idle idle;
	bool spare;	     /* started ahead of need, without an owner; see spare.c */
	bool warming;	     /* a spare with its own kernel, whose first program runs */
	bool command_is_new; /* its command runs for the first time */
	bool adopted;	     /* the instance was started by an earlier daemon */
	bool catch_up;	     /* adopted: programs may have ended while no daemon ran */
	bool remove_wanted;  /* remove the box once it has stopped */
	bool put_to_bed;     /* hibernated because the daemon ends; see yard_hibernate_all */
	bool keep_wanted;    /* keep the workspace at the removal */
	unsigned removal_tries;
	unsigned kills; /* how often the timer has killed the instance */
	struct box_limits limits;
	struct seeding *seeding; /* the disk is being made; see seed.c */
	/* waits for its image as one file, see image_file.c; and for how long it is told */
	struct image_file_wait *image_wait;
	int64_t image_told_us;
	char *waits_for; /* a sentence for people: why its start takes long; NULL: it does not */
	struct keeping *keeping;     /* the workspace is being kept; see workspace.c */
	struct operation *operation; /* what the box is busy with; NULL: nothing */
	struct operation *queue;     /* operations that wait for their turn; see operation.h */
	struct capturing *capturing; /* the box is being captured; see capture.c */
	struct saving *saving;	     /* output is being kept while the box stops; see output.c */
	struct trial *trial; /* a capture of the box is test-restored beside it; see trial.c */
	struct box_restore restore;
	struct asks *asks;	 /* requests from inside the box; NULL: none yet. See ask.c */
	struct telling *telling; /* box-init is being told who it is; see identity.c */
	struct fork_rate fork_rate;
	json_t *exec_who; /* exec id → who started it; or NULL; see asker.h */
	/* who asked for the current operation, see asker.h; "": nobody */
	char asked_by[ASKER_WHO_SIZE];
	struct waiter *waiters;
	struct waiter *removers; /* those who wait for the removal */
	uint64_t events_dropped;
	struct box_auto automatic;
};

struct event_feed {
	struct yard *yard;
	event_fn fn;
	void *arg;
	struct event_feed *next;
	bool dead; /* freed while events were being delivered */
};

/* Boxes that were started ahead of need; see spare.c. */
struct spares {
	struct box *boxes[CONF_SPARES_MAX];
	size_t count;
	struct loop_timer *timer;
	struct spare_kind {
		char *image; /* id */
		char *driver;
		char *profile;
		unsigned times; /* how many times in a row it was asked for */
	} kind, other;		/* the kind that is kept, and the one asked for instead lately */
};

struct ask_ops;
/* Who answers the asks of boxes; see ask.h. */
struct ask_door {
	const struct ask_ops *ops; /* NULL: nobody */
	void *arg;
};

struct image;
struct instance_mount;
struct pool;

struct yard {
	struct loop *loop;
	const struct conf *conf;
	const struct asker *asker; /* NULL: the daemon works for itself; see asker.h */
	struct store *store;
	struct images *images;
	struct groups *groups;	 /* cgroups of all boxes */
	struct drivers *drivers; /* how boxes are isolated; see drivers.h */
	struct pool *pool;
	struct audit *audit;
	struct audit_shares *audit_shares; /* each tree's share of the audit log */
	struct networks *networks;	   /* see network.c */
	struct tree *trees;		   /* see tree.c */
	struct box **boxes;		   /* oldest first */
	size_t box_count;
	struct spares spares;
	struct ask_door ask_door;
	struct event_feed *feeds;
	unsigned feeding;
	struct loop_timer *idle;
	struct loop_timer *limit_timer, *close_timer;
	struct loop_timer *look_timer; /* owned by idle.c */
	int64_t look_spent_us;
	size_t look_first;
	struct loop_timer *wake_timer; /* owned by wake.c */
	struct woken_watch *woken_watches;
	unsigned waking_told; /* depth of calls to the woken watches */
	struct keeping *keepings;
	struct disk_stream *streams;
	struct upper *uppers;		 /* see disk/upper.c */
	struct checkpoints *checkpoints; /* NULL before it is open */
	struct snapshot **snapshots;	 /* oldest first; see snapshot.c */
	size_t snapshot_count;
	struct wish *snapshot_wishes; /* those who wait until a snapshot is safe */
	struct packing *packings;     /* snapshots being packed */
	struct forking *forkings;     /* see fork.c */
	char boot[40];
	int64_t started_us;
	json_t *ssh_info;	/* see yard_set_ssh_info; NULL: nothing */
	char last_event_at[32]; /* time of the last event of the previous daemon; see work.c */
	bool closing;
	bool going_down; /* all boxes are being hibernated: no box is woken or created any more */
	bool purged;	 /* the pool is removed too */
	void (*purge_done)(const struct err *err, void *arg);
	void *purge_arg;
	struct err purge_err;
};

/* events.c: like yard_event, in the name of who; NULL: of the asker. */
void yard_event_by(
	struct yard *yard, const char *type, struct box *box, const char *who, json_t *data);
void events_close(struct yard *yard);

/* box.c */
struct box *box_new(struct yard *yard, const struct box_row *row); /* takes the row's strings */
/* adds the box to the yard's list */
void box_list(struct box *box);
void box_free(struct box *box); /* removes it from the list and releases its handles */
void box_set_state(struct box *box, enum box_state state, enum intent intent);
/* Sets INTENT_ROLLBACK_TO and the snapshot to roll back to. */
void box_set_target(struct box *box, enum box_state state, const char *target);
void box_save(struct box *box, enum store_grade grade); /* a failure is logged, and tried again */
void boxes_save_again(struct yard *yard);		/* rows that could not be written */
bool box_is_busy(const struct box *box);
/* Whether the box is removed for everybody but us: its remains are being cleaned up. */
bool box_is_gone(const struct box *box);
/* The intent of a removal: INTENT_REMOVE_KEEP when the workspace is kept first, else
 * INTENT_REMOVE. */
enum intent box_removal_intent(const struct box *box);
/* Finds a box by id or name whoever asks: for checks that a name is free, and for work of the
 * daemon itself. NULL: there is none. */
struct box *box_lookup(struct yard *yard, const char *id_or_name);
bool box_has_disk(const struct box *box);
/* The driver named by the row. Fails with ERR_UNSUPPORTED when it does not work here. */
int box_engine(const struct box *box, struct engine **ret, struct err *err);
void text_replace(char **slot, const char *text);

/* waiters.c */
void box_wait_removal(struct box *box, box_done done, void *arg);
/* Answers and frees the waiters. */
void waiters_notify(struct waiter *waiters, struct box *box, const struct err *err);

/* life.c */
int box_refuse_busy(struct box *box, struct err *err); /* ERR_STATE; returns -1 */
void box_wait(struct box *box, box_done done, void *arg);
void box_notify(struct box *box, const struct err *err); /* answers all waiters */
void box_notify_without(
	struct box *box, const struct err *err); /* the same, with box NULL in their callbacks */
void box_notify_everybody(struct box *box, const struct err *err); /* waiters and removers */
void box_finish_removal(struct box *box);
void box_remove_now(struct box *box); /* for a box without an instance */
void box_keeping_ended(
	struct box *box, const struct err *why); /* why NULL: the workspace is safe */
/* Releases everything the daemon holds of the box's instance, which has ended or is about to. */
void box_let_go(struct box *box);
void box_ended(struct box *box, const char *reason, const char *detail);
extern const struct instance_ops box_instance_ops;
/* Fills the spec of an instance. image NULL: for an instance that already runs. The spec's disk is
 * yours to free; the rest is borrowed. */
void box_instance_spec(struct box *box, const struct image *image, struct instance_spec *ret);
/* A second instance of a box, restored from a state upon another disk. */
struct box_beside {
	const char *id;	  /* the box's other instance id */
	const char *disk; /* in BOX_DISKS */
	struct instance_state state;
	const struct instance_ops *ops;
	void *arg;
};
int box_start_beside(
	struct box *box, const struct box_beside *beside, struct instance **ret, struct err *err);
/* Whether a second instance of the box would fit for a moment, in the memory of the machine and in
 * the limits of its tree. */
bool box_fits_twice(struct box *box, uint64_t bytes, uint64_t processes);
bool box_has_mounts(const struct box *box); /* volumes or folders of the host */
void box_keep_mark(struct box *box);	    /* writes the mark of the instance into the row */
/* Each box has one timer: it reconnects a running box and kills one that takes too long to stop. */
void box_timer_start(struct box *box, uint64_t ms);
/* Kills the instance, repeatedly until it has ended. Those who wait are told ERR_TIMEOUT when that
 * takes too long. */
void box_kill(struct box *box);
/* Continues a purge after a box has been removed. */
void yard_purge_step(struct yard *yard);

/* Handles a failed start: a box that never ran is removed; one that ran before becomes stopped
 * again, with the reason. */
void box_launch_failed(struct box *box, const struct err *why);
/* Sets up the network of a new instance, then connects to box-init. */
void box_open_up(struct box *box);
/* Makes the instance of a box. A spare has no row. */
int box_launch(struct box *box, struct err *err);
/* change.c */
/* reason: "request" "touch" "timer" "network"; a literal. */
char *box_sleep_text(const char *before, const struct box_sleep *sleep); /* for the row; yours */
int box_resume_for(struct box *box, const char *reason, struct err *err);

/* change.c: tells the box, the gate and the listeners of events about its new name in the row. */
void box_renamed(struct box *box, const char *old);

/* create.c */
int limits_check(const struct limits *limits, struct err *err);
/* Stores the rows of the box and of its network: both or none. */
struct network;
int box_insert(struct yard *yard, const struct box_row *row, struct network *net,
	enum store_grade grade, struct err *err);
/* Fails with ERR_EXISTS when a box has the name, and says so when that box is another owner's. */
int box_refuse_taken(struct yard *yard, const char *name, struct err *err);
/* Picks a uid range that no box has. */
int box_pick_slot(struct yard *yard, uint32_t *ret, struct err *err);

/* spare.c */
void spares_start(struct yard *yard);
void spares_end(struct yard *yard);
/* Takes a running spare of that kind; NULL when there is none. */
struct box *spare_take(
	struct yard *yard, const char *image, const char *driver, const char *profile);
/* Whether a spare can become the box of that row. */
bool spare_fits(const struct yard *yard, const struct box_row *row);
void spare_ready(struct box *box);			  /* it is up: it waits from now on */
void spare_discard(struct box *box);			  /* a taken spare that could not be used */
void spare_ended(struct box *box, const struct err *why); /* why NULL: on request */
void spares_drop(struct yard *yard);			  /* all of them; for a purge */
void spares_check(struct yard *yard); /* called now and then: drops spares whose image is gone */
size_t spares_ready(const struct yard *yard);

/* work.c */
/* Opens a channel to box-init with a request as wire.h says. A sleeping box is woken first; the
 * channel is told when that fails. */
int box_chan_open(struct box *box, enum wire_op op, const struct buf *request,
	const struct chan_ops *ops, void *arg, struct chan **ret, struct err *err);
/* the box runs: starts its command, answers waiters, raises events */
void box_is_up(struct box *box, bool created);
extern const struct link_ops box_link_ops;
void box_tell_name(struct box *box); /* updates the host name in the box's files */
int box_connect(struct box *box, struct err *err);
/* Connects a link to box-init of an instance, as its driver does. */
int link_attach_instance(struct link *link, struct instance *instance,
	struct err *err); /* starts to connect to box-init */
void box_disconnect(struct box *box);
/* Fails all open channels with "box NAME WHAT meanwhile" before the instance ends for a while, for
 * example before a hibernation, so that no caller waits for an answer that cannot come. */
void box_hang_up(struct box *box, const char *what, const char *hint);
/* Fails all open channels with err; the programs are not touched. */
void box_fail_channels(struct box *box, const struct err *err);
void box_reconnect(struct box *box);
void box_link_failed(
	/* fails the channels that wait for the link */
	struct box *box, const struct err *err);
const struct image *box_image(const struct box *box); /* NULL when it is gone */
/* false: there is none, or it is known that it cannot start */
bool box_run_command(struct box *box);

/* rate limit: one tree of boxes cannot flood the event log */
bool box_event_allowed(struct box *box);

/* ask.c */
void asks_link_ready(struct box *box);
void asks_request(struct box *box, const struct wire_request *request);
void asks_pump(struct box *box);       /* sends answers that are waiting */
void asks_forget(struct box *box);     /* drops all requests: box-init has ended */
void asks_start_anew(struct box *box); /* the same: box-init counts from another number */
void asks_free(struct box *box);

/* identity.c - telling a restored box who it is */
void identity_drop(struct box *box); /* without a word */
/* Whether box-init of this box can be told who it is. False before version 2 of the protocol: such
 * a box cannot be forked with its processes nor rolled back until it was stopped and started. The
 * box must have a link. */
bool box_can_be_told(const struct box *box);

/* Gives a fork its identity. Call it from on_link_ready of a box restored from another box's state,
 * before any other request; its host name has been set already. done is called once: err is NULL
 * when the child has its own machine id, randomness and host name and its programs were told; the
 * box must not be used before. Hooks that fail raise the event "box.hooks_failed". When this
 * returns -1, done is not called. */
int box_tell_identity(struct box *child, const char *parent_name, unsigned index, box_done done,
	void *arg, struct err *err);
/* The same for a box that stays the same box: woken or rolled back. After WIRE_RESTORED_ROLLED_BACK
 * its earlier requests from inside are dropped. Best effort: an old box-init is told nothing, and
 * done is called at once. */
int box_tell_restored(
	struct box *box, enum wire_restored kind, box_done done, void *arg, struct err *err);

/* lineage.c - limits of a tree outlive its members */
/* child takes the place of parent: the row's text of its limits, which are at most the parent's,
 * yours; its other forks in the store; and, once that is committed, in memory. */
char *lineage_promoted_limits(const struct box *parent, const struct box *child);
int lineage_store_promotion(const struct box *parent, const struct box *child, struct err *err);
void lineage_promoted(const struct box *parent, const struct box *child);
/* Hands the forks of a removed box to the box it was forked from; they may do no more than before.
 * Call it once, while the box can still be found. */
void lineage_box_removed(struct box *box);

/* life.c: sends TERM to all programs and KILL after grace_ms; kills the box when box-init cannot be
 * asked. */
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
/* The same with another policy than the box's own. */
void box_limit_hit_as(struct box *box, const char *type, json_t *data, enum on_limit policy);

/* auto.c - starts automatic snapshots that are due; called once a second */
void auto_look(struct yard *yard);

/* mount.c - what a box sees besides its disk */
/* Checks the volumes and mounts of a spec, creates missing volumes and returns both as texts for
 * the row, which are yours. */
int box_mounts_check(struct yard *yard, const struct box_spec *spec, const char *owner,
	char **ret_volumes, char **ret_mounts, struct err *err);
/* Resolves the mounts for a start of the instance. Fails with ERR_STATE when another box may write
 * to a volume meanwhile. At most INSTANCE_MOUNTS_MAX; free with box_mounts_done. */
int box_mounts_resolve(
	struct box *box, struct instance_mount **ret, size_t *ret_count, struct err *err);
void box_mounts_done(struct instance_mount *mounts, size_t count);

/* seed.c */
/* Makes the disk of the box from its image. *ret is true when that takes time; the launch then
 * continues afterwards. */
int seed_start(struct box *box, const struct image *image, bool *ret, struct err *err);
/* The same as a full copy of a snapshot's disk. */
int seed_copy(struct box *box, const char *snapshot, struct err *err);
void seed_cancel(struct box *box); /* removes what was made; accepts a box without a seeding */

/* image_file.c */
/* The image of the box as one file, for a driver that wants one. *ret_wait: it is being made, and
 * the launch continues afterwards. */
int image_file_need(struct box *box, const struct image *image, bool *ret_wait, struct err *err);
/* What the driver is told of that file; nothing for other drivers. Free with image_file_done. */
int image_file_spec(
	struct box *box, const struct image *image, struct instance_vm *ret, struct err *err);
void image_file_done(struct instance_vm *vm);
void image_file_leave(struct box *box); /* does not wait for it any more; accepts any box */
/* Why the start of the box takes long, as an event and in its JSON; NULL: it does not any more. */
void box_tell_wait(struct box *box, const char *what);

/* disk.c */
void disk_streams_close(struct yard *yard); /* streams that nobody reads any more */
void disk_sweep_views(struct yard *yard);   /* removes snapshots held by streams of a dead daemon */

/* workspace.c */
/* Keeps /workspace of a stopped box, then continues its removal (box_finish_removal). */
int workspace_keep(struct box *box, struct err *err);
void workspaces_close(struct yard *yard);
void workspaces_sweep(struct yard *yard); /* removes workspaces that a dead daemon did not finish */

/* capture.c - writes down the state of a box */
#define CAPTURE_NAMES_FILE "names.json" /* in the folder of a state: see network_names_json */
enum { CAPTURE_NAMES_MAX = 16 * 1024 * 1024 };
struct box_capture_spec {
	const char *state;	/* id of the state to write; NULL: copy only the disk */
	const char *disk_place; /* where the copy of the disk goes; NULL: no copy */
	const char *disk;
	bool disk_apart;  /* the copy is not counted with the box's disk (pool_budget) */
	bool quick;	  /* the state is used once, at once, and thrown away */
	bool to_end;	  /* the box is killed afterwards, and its own disk goes with the state */
	bool frozen;	  /* the box is frozen already, whatever its state says */
	bool stay_frozen; /* keep the box frozen after a successful capture */
};
struct box_capture_result {
	uint64_t paused_us, processes;
	bool cancelled; /* by box_capture_cancel: the caller must not try something else instead */
};
struct box_capture_ops {
	/* The state is written, the box goes on and the state may be used. May be NULL. */
	void (*on_taken)(struct box *box, const struct box_capture_result *result, void *arg);
	/* Called exactly once; with an error too when the box is removed before the end. A failed
	 * capture leaves nothing. */
	void (*on_done)(struct box *box, const struct box_capture_result *result,
		const struct err *err, void *arg);
};
/* Captures the box. The caller must have the turn. A box that does not run has no processes: only
 * its disk is copied, and a state is refused. */
void box_capture(struct box *box, const struct box_capture_spec *spec,
	const struct box_capture_ops *ops, void *arg);
/* Estimated size of a state of the box: its memory, and some more for the description. */
uint64_t box_capture_need(struct box *box);
/* Replaces the part of a refused capture's hint that suggests a disk snapshot by this text; the
 * rest of the hint stays. */
void box_capture_hint(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void box_capture_cancel(
	/* on_done follows at once; accepts a box without a capture */
	struct box *box, const struct err *why);

/* budget.c - disk space that a tree of boxes uses, against the limit of its first box */
/* Limits the disk of a box and, when it is the tree's first, all disks of the tree. bytes 0: no
 * limit. */
int box_limit_disk(struct box *box, uint64_t bytes, struct err *err);
/* The limit of its subvolume for that limit of the box; 0: none. */
uint64_t box_disk_guard(struct box *box, uint64_t bytes);
/* After a copy was made of its disk, which keeps what the box overwrites. */
void budget_disk_copied(struct box *box);
/* ERR_INVALID with the reason when its disk cannot become that small. */
int box_check_shrink(struct box *box, uint64_t bytes, struct err *err);
/* Makes room before a box keeps need bytes more at its own request: deletes unnamed snapshots of
 * its tree, oldest first. Fails with ERR_LIMIT, figures and a hint when that is not enough. */
int budget_make_room(struct box *box, uint64_t need, struct err *err);
/* Updates the budget after states of a tree were added, removed or changed in size. box: the id of
 * one box of the tree. */
void budget_states_changed(struct yard *yard, const char *box);
/* Deletes automatic snapshots, one at a time, of a tree that has nearly used its limit. */
void budget_pressed(struct box *box);
/* The nearer limit: that of the disk itself or that of its tree. limit 0: none. */
struct pool_figures;
bool budget_nearest(const struct pool_figures *figures, uint64_t *ret_used, uint64_t *ret_limit);
int box_disk_nearest(
	struct box *box, uint64_t *ret_used, uint64_t *ret_limit, bool *ret_tree); /* now */
/* The box whose disk limit is the tree's: its first, or the oldest that is left. */
struct box *budget_get_first(const struct box *box);
/* {"used_bytes","limit_bytes","tree_bytes","states_bytes","inside_states_bytes","free_bytes"}; new
 * reference. */
json_t *box_disk_json(struct box *box);
uint64_t box_states_bytes(struct box *box); /* captured memory kept for it */

/* restore.c - starts a box from a state */
/* The box starts from this state (an id; held from now on) at its next launch. */
void box_restore_from(struct box *box, const char *state, enum restore_kind kind);
/* Unpacks the state first where necessary. *ret_wait: that takes time, and box_launch is called
 * again. */
int restore_prepare(struct box *box, bool *ret_wait, struct err *err);
void restore_done(struct box *box); /* the box runs, or never will: releases the state */
/* Tells box-init, right after its hello, who it is now. The box is up when that is answered
 * (box_came_up). */
void restore_greet(struct box *box);
void box_came_up(struct box *box); /* work.c */

/* snapshot.c */
struct snapshot {
	struct snapshot_row row;
	bool unsaved; /* the row could not be written */
	bool safe;    /* packed, or there is nothing to pack */
	bool packing;
	unsigned users; /* forks, rollbacks and starts from it in progress */
	/* discarded: it can no longer be found, and is deleted with its last user */
	bool doomed;
	bool borrowed; /* its state belongs to a box and is not deleted with it */
};
int snapshots_load(struct yard *yard, struct err *err); /* before boxes are adopted */
void snapshots_sweep(struct yard *yard); /* after that: removes unfinished and orphaned snapshots */
void snapshots_close(struct yard *yard);
/* Finds a snapshot on the time line of a box, by id or name. */
struct snapshot *snapshot_find(struct box *box, const char *which, struct err *err);
struct snapshot *snapshot_by_id(struct yard *yard, const char *id); /* NULL: none */
/* Makes a snapshot of a box that has the turn; the row says "making" first, "ready" when it was
 * taken. */
struct snapshot *snapshot_new(
	struct box *box, const char *cause, const char *detail, const char *kind);
void snapshots_save_again(struct yard *yard); /* rows that could not be written */
int snapshot_record(
	struct yard *yard, struct snapshot *snapshot, enum store_grade grade, struct err *err);
void snapshot_ready(
	struct box *box, struct snapshot *snapshot, const struct box_capture_result *result);
void snapshot_ready_of(
	struct yard *yard, struct snapshot *snapshot, const struct box_capture_result *result);
void snapshot_pack(struct yard *yard, struct snapshot *snapshot); /* in the background */
struct snapshot_spec;
/* As box_snapshot, for a caller that has the turn and keeps it. The name is not checked. */
void snapshot_in_turn(struct box *box, const struct snapshot_spec *spec, json_done done, void *arg);
typedef void (*safe_done)(const struct err *err, void *arg);
/* Makes a snapshot safe; done is called when it would survive a power cut. */
void snapshot_make_safe(struct yard *yard, struct snapshot *snapshot, safe_done done, void *arg);
void snapshot_discard(struct yard *yard, struct snapshot *snapshot); /* with state and disk */
/* Keeps state and disk of a snapshot until the matching unuse. False: there is no such snapshot. */
bool snapshot_use(struct yard *yard, const char *id);
void snapshot_unuse(struct yard *yard, const char *id);
void snapshot_forget_state(
	struct yard *yard, struct snapshot *snapshot); /* the same, but its state stays */
json_t *snapshot_json(struct yard *yard, const struct snapshot *snapshot);
void snapshot_waiters_tell(struct yard *yard, const char *id, const struct err *err);
/* deletes the time line of a removed box */
void snapshots_box_removed(struct box *box);
/* taken automatically and without a name */
bool snapshot_is_automatic(const struct snapshot *snapshot);
bool snapshot_is_from_inside(const struct snapshot *snapshot);
void snapshots_thin(struct box *box);  /* deletes automatic ones, by count and age */
char *state_id_new(struct yard *yard); /* yours */

/* golden.c - images with processes */
struct snapshot *golden_of(
	struct yard *yard, const struct image *image); /* NULL: an ordinary one */
/* the driver for boxes made from it; yours */
char *golden_driver(const struct snapshot *golden);
/* the profile for boxes made from it; yours */
char *golden_profile(const struct snapshot *golden);
/* called now and then: drops those whose image is gone */
void golden_check(struct yard *yard);

/* rollback.c: continues a rollback whose daemon died after it had ended the present. */
void rollback_recover(struct box *box);
/* Clears the reasons why running boxes could not be hibernated; called when a new daemon has found
 * all boxes. */
void hibernate_recovered(struct yard *yard);
/* trial.c: tests whether a capture of a box, which is and stays frozen, can be restored. False: no
 * test is needed, or there is no room for it, and done is not called. Otherwise done is called from
 * the loop, unless cancelled. */
bool trial_start(struct box *box, const char *state, uint64_t processes, box_done done, void *arg);
void trial_cancel(struct box *box); /* accepts a box without a trial */
/* waking.c: the instance runs and the row says "woken": the wake of a dead daemon continues. */
void wake_recover(struct box *box);
void wake_forget_state(struct box *box); /* drops the state: its programs have run since */
void forks_close(struct yard *yard);

/* names.c - "quiet-otter": easy to say, easy to type */
char *name_make_up(void);
