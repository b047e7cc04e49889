/* box.h - the verbs over a box
 *
 * Verbs that take time answer through `done`, exactly once, possibly before they return. A box
 * pointer is valid until the call stack that got it unwinds to the loop; keep ids, not pointers. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"
#include "core/task.h"

struct box;
struct yard;

enum box_state {
	BOX_CREATING,
	BOX_STARTING,
	BOX_RUNNING,
	BOX_SUSPENDED, /* frozen in memory */
	BOX_HIBERNATING,
	BOX_HIBERNATED, /* on disk, processes and all; see timeline.h */
	BOX_ROLLING_BACK,
	BOX_STOPPING,
	BOX_STOPPED,
	BOX_REMOVING,
	BOX_STATE_COUNT
};
const char *box_state_name(enum box_state state);

/* What happens when a box reaches a limit. The event is raised in every case. */
enum on_limit { ON_LIMIT_NOTIFY, ON_LIMIT_PAUSE, ON_LIMIT_STOP, ON_LIMIT_COUNT };
const char *on_limit_name(enum on_limit policy); /* "notify" "pause" "stop" */
int on_limit_from_name(const char *name, enum on_limit *ret, struct err *err);

/* How long a box must be idle before it is put to sleep. */
struct box_sleep {
	int64_t suspend_ms;   /* BOX_SLEEP_DEFAULT: as configured; 0: never */
	int64_t hibernate_ms; /* likewise; counted from the suspension */
};
#define BOX_SLEEP_DEFAULT (-1)
#define BOX_SLEEP_LEAVE	  (-2) /* for box_set_sleep: no change */
enum { BOX_SLEEP_MIN_MS = 1000 };
#define BOX_SLEEP_MAX_MS (INT64_C(366) * 86400 * 1000)

struct box_spec {
	const char *name;     /* NULL: a generated name */
	const char *owner;    /* NULL: the asker's; another owner only if the asker sees all */
	const char *image;    /* NULL: "debian" */
	const char *driver;   /* NULL: "ns" */
	const char *profile;  /* NULL: "standard" */
	struct limits limits; /* BOX_LIMIT_DEFAULT in a field: the configured default; 0: none */
	enum on_limit on_limit;
	json_t *env; /* object of strings or NULL; given to every exec */
	/* Arrays or NULL, borrowed. volumes:
	 * [{"volume":"cache","path":"/cache","read_only":false}]; a missing volume is created.
	 * mounts:
	 * [{"source":"/srv/data","path":"/data","read_only":false,"uid":0,"gid":0,"root":false}]: a
	 * folder of the host that the setting mount_roots allows; its owner on the host appears as
	 * uid:gid in the box. "root": a folder that belongs to root may be written to. */
	json_t *volumes, *mounts;
	bool by_socket; /* asked for through the Unix socket, by the local user asked_by */
	uid_t asked_by;
	json_t *labels; /* object of strings or NULL */
	/* Array of strings or NULL: runs as exec "main" when the box starts, after the image's
	 * entrypoint. NULL: the image's own command, if it has one. */
	json_t *command;
	json_t *entrypoint; /* array of strings or NULL: replaces the image's; [] : none */
	json_t *policy;	    /* in the policy language, or NULL: the configured default; borrowed */
	/* what the box may do from inside, see inside.h; NULL: as configured; borrowed */
	json_t *inside;
	bool no_main; /* do not run the image's own command */
	/* the main program waits for box_start(): the caller first puts something into the box */
	bool hold;
	bool remove_on_exit;	       /* remove the box when it stops or its command ends */
	const char *auto_snapshot;     /* NULL: no automatic snapshots; else as auto.h says */
	const struct box_sleep *sleep; /* NULL: as configured */
	/* What the box and all boxes made from inside it may use together. BOX_LIMIT_DEFAULT in a
	 * field: the limit of the box itself. NULL: that for all fields. See tree.h. */
	const struct limits *tree;
	const char *
		/* NULL, or a key: the same key again returns the box made by the first call */
		idempotency;
};
#define BOX_LIMIT_DEFAULT UINT64_MAX

typedef void (*box_done)(
	struct box *box, const struct err *err, void *arg); /* err NULL: it worked */
typedef void (*json_done)(json_t *result, const struct err *err,
	void *arg); /* result borrowed; err NULL: it worked */

/* done is called when the box runs and box-init answers. A bad spec is refused before anything
 * happens. */
void box_create(struct yard *yard, const struct box_spec *spec, box_done done, void *arg);
void box_start(struct box *box, box_done done, void *arg);
/* Sends TERM to all programs, and KILL after grace_ms. Stopping a stopped box succeeds. */
void box_stop(struct box *box, uint64_t grace_ms, box_done done, void *arg);
/* Fails with ERR_STATE for a running box without force. box is NULL in done: the box no longer
 * exists. */
void box_remove(struct box *box, bool force, box_done done, void *arg);
int box_rename(struct box *box, const char *name, struct err *err);
/* The same, but keeps /workspace first; see disk.h. */
void box_remove_keeping(struct box *box, bool force, box_done done, void *arg);
/* Sets the limits of a box, running or not. BOX_LIMIT_DEFAULT in a field and NULL for on_limit
 * leave the old value. */
int box_set(struct box *box, const struct limits *limits, const enum on_limit *on_limit,
	struct err *err);
int box_set_sleep(struct box *box, const struct box_sleep *sleep, struct err *err);
/* Freezes a running box in memory; box_resume lets it go on. Both succeed when the box is already
 * in that state. reason: "idle", "limit…" or who asked. Unless it was suspended for a limit, a box
 * resumes by itself on access: exec.h, files.h, box_port_connect. */
int box_suspend(struct box *box, const char *reason, struct err *err);
int box_resume(struct box *box, struct err *err);

/* Finds a box by id or name. Fails with ERR_NOT_FOUND, also for a box that the asker (asker.h) may
 * not see. */
struct box *box_find(struct yard *yard, const char *id_or_name, struct err *err);
/* Names are unique in the whole yard, including boxes that the asker may not see. */
bool box_name_is_taken(struct yard *yard, const char *name);
/* Calls fn for each box the asker may see, oldest first, until it returns false. fn must not create
 * or remove boxes. */
void box_each(struct yard *yard, bool (*fn)(struct box *box, void *arg), void *arg);

const char *box_get_id(const struct box *box);
const char *box_get_name(const struct box *box);
const char *box_get_owner(const struct box *box);
enum box_state box_get_state(const struct box *box);
struct yard *box_get_yard(const struct box *box);
bool box_has_label(const struct box *box, const char *key_value); /* "key=value" or "key" */
/* Reads the disk usage of the box now; otherwise it may be half a minute old. */
void box_refresh(struct box *box);
json_t *box_json(const struct box *box); /* as docs/api.md says; new reference */
/* The current cgroup figures: {"box","name","cpu_us","memory_bytes",...}; new reference, NULL with
 * err. */
json_t *box_stats_json(struct box *box, struct err *err);
/* The same, with box-init's own figures "uptime_us", "execs_running", "journal_bytes" unless the
 * box is suspended. */
int box_stats(struct box *box, json_done done, void *arg, struct task **ret, struct err *err);
/* {"processes":[{"pid","ppid",…}],"total"}, at most 500 processes. */
int box_processes(struct box *box, json_done done, void *arg, struct task **ret, struct err *err);

/* Whether the box can serve a request: it runs, or can be woken. */
bool box_is_there(const struct box *box);
int box_check_there(const struct box *box, struct err *err); /* ERR_STATE when not */
/* Tells that bytes pass between the box and a client: the box is not idle, and wakes if it
 * sleeps. */
void box_is_used(struct box *box);
