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

/* What is done when a box reaches a limit; the event comes in any case. */
enum on_limit { ON_LIMIT_NOTIFY, ON_LIMIT_PAUSE, ON_LIMIT_STOP, ON_LIMIT_COUNT };
const char *on_limit_name(enum on_limit policy); /* "notify" "pause" "stop" */
int on_limit_from_name(const char *name, enum on_limit *ret, struct err *err);

/* After how long without anything to do a box is put to sleep. */
struct box_sleep {
	int64_t suspend_ms;   /* BOX_SLEEP_DEFAULT: as configured; 0: never */
	int64_t hibernate_ms; /* likewise; counted from when it was suspended */
};
#define BOX_SLEEP_DEFAULT (-1)
#define BOX_SLEEP_LEAVE	  (-2) /* for box_set_sleep: as it is */
enum { BOX_SLEEP_MIN_MS = 1000 };
#define BOX_SLEEP_MAX_MS (INT64_C(366) * 86400 * 1000)

struct box_spec {
	const char *name;     /* NULL: one is made up */
	const char *owner;    /* NULL: the asker's; another only if he sees all */
	const char *image;    /* NULL: "debian" */
	const char *driver;   /* NULL: "ns" */
	const char *profile;  /* NULL: "standard" */
	struct limits limits; /* BOX_LIMIT_DEFAULT in a field: the configured default; 0: none */
	enum on_limit on_limit;
	json_t *env; /* object of strings or NULL; given to every exec */
	/* Arrays or NULL, borrowed. [{"volume":"cache","path":"/cache","read_only":false}]; a
	 * volume that is not there is made.
	 * [{"source":"/srv/data","path":"/data","read_only":false,"uid":0,"gid":0,"root":false}]: a
	 * folder of the host that mount_roots of conf allow; its owner there is uid:gid in the box.
	 * "root": one of root's may be written to. */
	json_t *volumes, *mounts;
	bool by_socket; /* asked for through the socket, by the user asked_by of this machine */
	uid_t asked_by;
	json_t *labels; /* object of strings or NULL */
	/* Array of strings or NULL: runs at once as exec "main", after the image's entrypoint.
	 * NULL: the image's own command, if it has one. */
	json_t *command;
	json_t *entrypoint; /* array of strings or NULL: instead of the image's; [] : none */
	json_t *policy;	    /* in the policy language, or NULL: the configured default; borrowed */
	/* what it may do from inside, see inside.h; NULL: as configured; borrowed */
	json_t *inside;
	bool no_main; /* the image's own command does not run */
	/* what runs as "main" waits for box_start(): something is put into the box first */
	bool hold;
	bool remove_on_exit;	       /* goes away when stopped, or when its command ends */
	const char *auto_snapshot;     /* NULL: none are taken; else as auto.h says */
	const struct box_sleep *sleep; /* NULL: as configured */
	/* What it and all that is made from inside it may use together; BOX_LIMIT_DEFAULT in a
	 * field: what it may itself. NULL: so in all. See tree.h. */
	const struct limits *tree;
	const char *
		idempotency; /* NULL or a key: the same key again gives the box made by the first */
};
#define BOX_LIMIT_DEFAULT UINT64_MAX

typedef void (*box_done)(
	struct box *box, const struct err *err, void *arg); /* err NULL: it worked */
typedef void (*json_done)(json_t *result, const struct err *err,
	void *arg); /* result borrowed; err NULL: it worked */

/* The box is running and answers when done is called. Bad specs are refused before anything
 * happens. */
void box_create(struct yard *yard, const struct box_spec *spec, box_done done, void *arg);
void box_start(struct box *box, box_done done, void *arg);
/* TERM to all, KILL after grace_ms. Stopping a stopped box is fine. */
void box_stop(struct box *box, uint64_t grace_ms, box_done done, void *arg);
/* ERR_STATE for a running box without force. box is NULL in done: it is gone. */
void box_remove(struct box *box, bool force, box_done done, void *arg);
int box_rename(struct box *box, const char *name, struct err *err);
/* The same; /workspace is kept first, see disk.h. */
void box_remove_keeping(struct box *box, bool force, box_done done, void *arg);
/* Limits of a box, running or not; BOX_LIMIT_DEFAULT in a field leaves it. on_limit NULL leaves
 * it. */
int box_set(struct box *box, const struct limits *limits, const enum on_limit *on_limit,
	struct err *err);
int box_set_sleep(struct box *box, const struct box_sleep *sleep, struct err *err);
/* Frozen in memory, and on again. Already so is fine. reason: "idle", "limit…" or whoever asked.
 * Unless it was for a limit, it goes on by itself when somebody wants something of it:
 * exec.h, files.h, box_port_connect. */
int box_suspend(struct box *box, const char *reason, struct err *err);
int box_resume(struct box *box, struct err *err);

/* By id or name; ERR_NOT_FOUND, also for one that the asker (asker.h) may not see. */
struct box *box_find(struct yard *yard, const char *id_or_name, struct err *err);
/* Names are the whole yard's: taken also by what the asker may not see. */
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
/* What its disk holds as of now; else it may be half a minute old. */
void box_refresh(struct box *box);
json_t *box_json(const struct box *box); /* as docs/api.md says; new reference */
/* cgroup figures now: {"box","name","cpu_us","memory_bytes",...}; new reference, NULL with err. */
json_t *box_stats_json(struct box *box, struct err *err);
/* The same of this moment, with what its box-init counts, unless it is suspended: "uptime_us",
 * "execs_running", "journal_bytes". */
int box_stats(struct box *box, json_done done, void *arg, struct task **ret, struct err *err);
/* {"processes":[{"pid","ppid",…}],"total"}, the first 500. */
int box_processes(struct box *box, json_done done, void *arg, struct task **ret, struct err *err);

/* Whether somebody who wants something of it gets it: it runs, or wakes. */
bool box_is_there(const struct box *box);
int box_check_there(const struct box *box, struct err *err); /* ERR_STATE when not */
/* Bytes go to and fro between it and somebody: it is not idle, and goes on if it sleeps. */
void box_is_used(struct box *box);
