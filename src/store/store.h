/* store.h - the state that survives the daemon: SQLite in WAL mode in BOX_HOME/state.db
 *
 * Every call is one transaction unless it is between store_begin and store_commit. There are two
 * grades of durability: STORE_KEPT survives the daemon's death at any moment (written to the WAL,
 * no fsync); STORE_SAFE also survives power loss (fsync). An intent needs STORE_KEPT only: what it
 * guards (processes, mounts, cgroups) does not outlive the machine. Rows are plain structs; strings
 * in them belong to the row. */
#pragma once
#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct store;
/* The default owner, and the owner of everything that older versions made. */
#define OWNER_LOCAL "local"
enum store_grade { STORE_KEPT, STORE_SAFE };

/* Opens or creates the database, migrates it and takes the lock of the home. Fails with ERR_STATE
 * when another daemon has the lock (the message names its pid), with ERR_UNSUPPORTED when the
 * schema is newer than this program. */
int store_open(const char *home, struct store **ret, struct err *err);
void store_close(struct store *store); /* accepts NULL */
DEFINE_CLEANUP(store_close, struct store)

int store_begin(struct store *store, struct err *err);
int store_commit(struct store *store, enum store_grade grade, struct err *err);
void store_rollback(struct store *store);
/* Called from time to time while the daemon is idle: moves recent writes from the WAL into the
 * database, which takes some milliseconds. Costs nothing when there is little to move. */
void store_idle(struct store *store);

/* ---- boxes ---------------------------------------------------------------------------------- */

struct box_row {
	char *id;
	char *name;
	char *state; /* its state: "creating" "running" "stopped" "removing" ... see core/box.h */
	/* what is being done to it; see core/intent.h */
	char *intent;
	char *image; /* image id */
	char *image_name;
	char *driver;
	char *profile;
	uint64_t cpu_milli, memory_bytes, disk_bytes, pids;
	char *env;    /* JSON object */
	char *labels; /* JSON object */
	bool remove_on_exit;
	char *command; /* JSON array or "": the command given with `new -- CMD` */
	uint32_t uid_slot;
	int64_t created_us, started_us, ended_us; /* wall clock; 0: never */
	char *end_reason; /* "" "stopped" "exited" "killed" "memory" "limit" "lost" "failed" */
	char *end_detail;
	int64_t pid; /* with start_time and boot: the process of the running instance; 0: none */
	uint64_t start_time;
	char *boot;
	char *idempotency; /* key given at creation, or "" */
	char *on_limit;	   /* "notify" "pause" "stop" */
	char *volumes;	   /* JSON array, see box_spec */
	char *mounts;	   /* JSON array, see box_spec */
	/* JSON array or "": the main program that really runs, with the image's entrypoint */
	char *main;
	char *sleep;	     /* JSON {"suspend_ms":N,"hibernate_ms":N}, 0: never; "": the configured
		      * default */
	char *auto_snapshot; /* "" (the configured default) "off" "exec" "interval=SECONDS" */
	char *fork_limits;   /* JSON, what the box may do from inside; "": the configured default */
	char *origin_box;    /* id of the box it was forked from, or "" */
	char *origin_snapshot; /* id of the snapshot it was forked from, or "": from the running
			        * box */
	char *position;	       /* the snapshot its present state descends from, or "" */
	char *state_id;	       /* of a hibernated box: the id of its checkpoint; or "" */
	char *asleep_for;      /* why it sleeps: "" "request" "idle" "limit.memory"… "shutdown" */
	int64_t wake_us;       /* wall clock when the next timer inside is due while it sleeps; 0:
			      * none */
	uint64_t generation;   /* how many forks lie between it and a box that was made by hand */
	/* id of the tree it belongs to, see core/tree.h; "": its own, named by its id */
	char *tree;
	char *origin_position; /* the position of the origin box when it was forked, or "" */
	char *owner;	       /* whose it is: OWNER_LOCAL or a name */
	char *target;	       /* the snapshot a rollback is going to, or "" */
	char *sleep_failure;   /* of a running box: why it was not hibernated when the daemon ended,
			        * or "" */
	bool held;	       /* made with hold, and not started yet */
};

void box_row_done(struct box_row *row);
struct box_row box_row_copy(const struct box_row *row); /* a deep copy; yours */
/* Fails with ERR_EXISTS when the id, the name or the slot is taken, or the idempotency key with the
 * same owner. */
int store_box_insert(
	struct store *store, const struct box_row *row, enum store_grade grade, struct err *err);
int store_box_update(
	struct store *store, const struct box_row *row, enum store_grade grade, struct err *err);
int store_box_delete(struct store *store, const char *id, enum store_grade grade, struct err *err);
/* Calls fn for each row, oldest first; the row is borrowed. fn returning -1 stops with that
 * error. */
int store_box_each(struct store *store,
	int (*fn)(const struct box_row *row, void *arg, struct err *err), void *arg,
	struct err *err);

/* ---- trees: of boxes that were made from inside, see core/tree.h ---------------------------- */

enum tree_given { TREE_CPU = 1, TREE_MEMORY = 2, TREE_PIDS = 4 };
struct tree_row {
	char *id;
	char *head; /* id of the box whose limits the tree has, or "": that box is gone */
	uint64_t cpu_milli, memory_bytes, pids;
	uint32_t given; /* bits of enum tree_given: limits set for the tree itself, not taken from
			 * its head */
};

void tree_row_done(struct tree_row *row);
/* Inserts or replaces the whole row. */
int store_tree_put(
	struct store *store, const struct tree_row *row, enum store_grade grade, struct err *err);
int store_tree_delete(struct store *store, const char *id, struct err *err); /* STORE_KEPT */
/* fn may take strings out of the row, but must not use the store. */
int store_tree_each(struct store *store, void (*fn)(struct tree_row *row, void *arg), void *arg,
	struct err *err);

/* ---- snapshots ------------------------------------------------------------------------------ */

struct snapshot_row {
	char *id;     /* [a-z0-9]+; the checkpoint and the disk in the pool have the same id */
	char *box;    /* id of the box whose time line it is on; "": of an image (`save --full`) */
	char *name;   /* given by a user, unique on a time line; or "" */
	char *parent; /* the snapshot before it, or "" */
	char *cause;  /* "request" "exec" "interval" "rollback" "try" "promote" "inside" "image" */
	char *detail; /* for people: the command that followed, or where it was rolled back to; or
		       * "" */
	char *kind;   /* "full": disk and processes; "disk" */
	char *status; /* "making" until it is complete, then "ready" */
	int64_t created_us;
	uint64_t processes;
	uint64_t plain_bytes;  /* of the processes' state */
	uint64_t stored_bytes; /* size when packed; 0: not packed (yet) */
	char *image;	       /* id of the image below the disk */
	char *image_name;
	char *config; /* JSON: the settings of the box, to make one from it; see
		       * core/time/snapshot.c */
};

void snapshot_row_done(struct snapshot_row *row);
struct snapshot_row snapshot_row_copy(const struct snapshot_row *row); /* yours */
/* Inserts or replaces the whole row. ERR_EXISTS when the name is taken on that time line. */
int store_snapshot_put(struct store *store, const struct snapshot_row *row, enum store_grade grade,
	struct err *err);
int store_snapshot_delete(
	struct store *store, const char *id, enum store_grade grade, struct err *err);
/* Oldest first; the row is borrowed. fn returning -1 stops with that error. */
int store_snapshot_each(struct store *store,
	int (*fn)(const struct snapshot_row *row, void *arg, struct err *err), void *arg,
	struct err *err);

/* ---- events --------------------------------------------------------------------------------- */

struct event_row {
	const char *type;
	const char *box_id, *box_name, *tree; /* NULL for an event of no box */
	const char *owner;		      /* who may read it; NULL: OWNER_LOCAL */
	const char *who;		      /* who asked for it: "token ci"; NULL: unknown */
	json_t *data;			      /* or NULL; not consumed */
	int64_t at_us;
};
/* Which events are read; a NULL field matches all. */
struct event_filter {
	const char *box_id;
	const char *owner;
};

/* Appends an event; *ret_offset is its offset (rising by one). All reads see it at once. It is
 * STORE_KEPT after the next store_settle or other write, whichever comes first: call store_settle
 * before waiting for anything. */
int store_event_add(
	struct store *store, const struct event_row *event, uint64_t *ret_offset, struct err *err);
bool store_is_gathering(const struct store *store); /* there are events that are not settled yet */
void store_settle(struct store *store);
/* At most limit events with offset >= since as
 * [{"offset","at","type","box","box_name","owner","who","data"}]. filter NULL: all. New
 * reference. */
json_t *store_event_list(struct store *store, uint64_t since, const struct event_filter *filter,
	unsigned limit, struct err *err);
/* Finds the newest events, at most wanted: how many there are, and the offset of the first. */
int store_event_tail(struct store *store, const struct event_filter *filter, uint64_t wanted,
	uint64_t *ret_count, uint64_t *ret_first, struct err *err);
/* The offset from which on no event is missing, and the offset of the next event. */
int store_event_range(
	struct store *store, uint64_t *ret_oldest, uint64_t *ret_next, struct err *err);
/* How many events from since on are no longer kept. */
int store_event_missing(struct store *store, uint64_t since, uint64_t *ret, struct err *err);
/* Keeps about keep events: the newest half, whoever caused them, and of the older ones a share for
 * each tree that has boxes, one for events of no box, and one for all removed boxes together. So no
 * box pushes out the events of others. Cheap when there is nothing to do. */
int store_event_trim(struct store *store, uint64_t keep, struct err *err);

/* ---- tokens --------------------------------------------------------------------------------- */

enum scope {
	SCOPE_READ = 1,	  /* see what exists and its state; wakes no box */
	SCOPE_EXEC = 2,	  /* run programs in boxes */
	SCOPE_CREATE = 4, /* make and change boxes, images, volumes and their limits */
	SCOPE_ADMIN = 8,  /* everything, tokens and the daemon included */
	SCOPE_FILES = 16, /* read what boxes contain and print */
	SCOPE_ALL = 31
};
/* "files or exec"; borrowed, until the next call. */
const char *scopes_text(unsigned scopes);

struct token_row {
	char *id;
	char *name;
	char *owner; /* the owner whose things it sees */
	unsigned scopes;
	int64_t created_us, expires_us, last_used_us; /* wall clock; expires_us 0: never */
};

/* Makes a token "box_<32 random base62>"; only its SHA-256 is stored. Reads name, owner (NULL:
 * OWNER_LOCAL), scopes and expires_us of spec. *ret_secret is shown once; yours. *ret_row:
 * {"id","name","owner","scopes":[...],"created_at","expires_at","last_used_at"}. */
int store_token_create(struct store *store, const struct token_row *spec, char **ret_secret,
	json_t **ret_row, struct err *err);
json_t *store_token_list(struct store *store, struct err *err);
int store_token_revoke(struct store *store, const char *id_or_name, struct err *err);
/* Finds the token of a secret; fails with ERR_UNAUTHORIZED when it is unknown or expired. Compares
 * in constant time. *ret is borrowed, valid until a token is made or revoked. */
int store_token_check(
	struct store *store, const char *secret, const struct token_row **ret, struct err *err);
/* Finds a token by its id; NULL: there is none, or it has expired. Borrowed as above. */
const struct token_row *store_token_get(const struct store *store, const char *id);
int scopes_from_names(json_t *names, unsigned *ret, struct err *err);

/* ---- keys of SSH logins ---------------------------------------------------------------------- */

/* What a key or a certificate may be kept from, beyond its scopes. */
enum key_restriction {
	KEY_NO_PTY = 1,
	KEY_NO_FORWARDING = 2, /* -L, -D, -R */
	KEY_NO_AGENT = 4,      /* -A */
	KEY_NO_X11 = 8,
	KEY_RESTRICT = 15
};

struct key_row {
	char *id;
	char *name;
	char *owner;	     /* whose things it sees */
	char *fingerprint;   /* "SHA256:…": of key */
	char *type;	     /* "ssh-ed25519" */
	char *key;	     /* the public key in SSH wire format, as base64: "AAAA…" */
	uint32_t scopes;     /* enum scope */
	char *box;	     /* name of the only box it may use; "": all of its owner */
	char *sources;	     /* addresses it may come from, "192.0.2.0/24,!192.0.2.7"; "": any */
	uint32_t restricted; /* enum key_restriction */
	char *comment;
	int64_t created_us, expires_us, last_used_us; /* wall clock; expires_us 0: never */
};

void key_row_done(struct key_row *row);
json_t *key_row_json(const struct key_row *row); /* as store_key_list has it; new reference */
/* Of spec, all but id, created_us and last_used_us is read; what is in it was checked before.
 * ERR_EXISTS when the name or the key is there already, ERR_LIMIT when there are KEYS_MAX.
 * *ret_row as store_key_list has it. */
enum { KEYS_MAX = 10000 };
int store_key_add(
	struct store *store, const struct key_row *spec, json_t **ret_row, struct err *err);
/* [{"id","name","owner","fingerprint","type","key","role","box","from","restricted":[…],"comment",
 * "created_at","expires_at","last_used_at"}]; new reference. */
json_t *store_key_list(struct store *store, struct err *err);
/* By id, name or fingerprint. ERR_NOT_FOUND. *ret_row: what was removed. */
int store_key_remove(
	struct store *store, const char *id_or_name, json_t **ret_row, struct err *err);
/* By fingerprint, or by id; ERR_NOT_FOUND: there is none. Expired ones are found. *ret is yours. */
int store_key_find(
	struct store *store, const char *fingerprint, struct key_row *ret, struct err *err);
int store_key_get(struct store *store, const char *id, struct key_row *ret, struct err *err);
/* Now; precise to a minute. */
void store_key_used(struct store *store, const struct key_row *key);
/* "read" "files" "exec" "create" "admin": each has the scopes of those before it. */
int role_from_name(const char *name, unsigned *ret_scopes, struct err *err);
const char *role_name(unsigned scopes);
/* "pty" "port-forwarding" "agent-forwarding" "X11-forwarding"; 0: none of them. */
unsigned key_restriction_from_name(const char *name);

/* ---- owners of volumes ---------------------------------------------------------------------- */

/* The volumes themselves are in the pool; a volume without a row belongs to OWNER_LOCAL.
 * STORE_SAFE. */
int store_volume_put(struct store *store, const char *name, const char *owner, struct err *err);
int store_volume_delete(struct store *store, const char *name, struct err *err);
char *store_volume_owner(struct store *store, const char *name); /* yours */

/* ---- networks: what is kept of a box's network ---------------------------------------------- */

struct network_row {
	char *box;	  /* id */
	char *policy;	  /* normal form, JSON */
	uint64_t version; /* of the policy, from 1 */
	int64_t changed_us;
	char *package_hosts; /* JSON array of strings */
	char *names;	     /* JSON, as the gate saved it; "" : none */
	char *spent;	     /* JSON, budgets used; "" : none */
	char *ports;	     /* JSON array, see core/boxnet/network.h; "" : none */
	char *meters;	     /* JSON, see core/boxnet/network.h; "" : none */
	bool recording;
};
void network_row_done(struct network_row *row);
/* Inserts or replaces the whole row. */
int store_network_put(struct store *store, const struct network_row *row, enum store_grade grade,
	struct err *err);
/* Fails with ERR_NOT_FOUND when the box has none (it was made before boxes had networks). */
int store_network_get(
	struct store *store, const char *box, struct network_row *ret, struct err *err);
/* Updates only some columns, cheaply; NULL leaves one unchanged. Always STORE_KEPT. */
int store_network_update(struct store *store, const char *box, const char *names, const char *spent,
	const char *meters, struct err *err);
/* Rows are deleted with their box (ON DELETE CASCADE or by store_box_delete). */
