/* pool.h - where the disks of boxes, images and volumes live
 *
 * BOX_HOME/pool is a folder nobody but root enters, on btrfs where that can be had:
 *
 *   native   BOX_HOME lies on btrfs: the pool is a subvolume of it
 *   loop     BOX_HOME/pool.img, a sparse file with btrfs in it, through a loop device (direct I/O,
 *            discard)
 *   folder   a plain folder: no quota, snapshots are copies
 *
 * It is mounted in the daemon's own mount namespace, nosuid, nodev, noexec. A loop device and its
 * file system live as long as somebody uses them: running boxes keep them while no daemon does, the
 * next daemon finds the device by its file and mounts the same file system again.
 *
 *   pool/boxes/ID  pool/volumes/NAME  pool/layers/ID  pool/snapshots/ID   a subvolume (or folder)
 *                                                                         each
 *   pool/spares/…    empty subvolumes, made ahead        pool/trash/…   on its way out
 *   pool/views/…     snapshots to be read and thrown away
 *   pool/images/…  pool/workspaces/…                     plain folders, kept by others
 *
 * Disks are named by a place and an id ("boxes", "k3v9…"), never by a path from outside. Nothing
 * here blocks for long unless it says so. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct pool;

enum pool_kind { POOL_NATIVE, POOL_LOOP, POOL_FOLDER, POOL_KIND_COUNT };
const char *pool_kind_name(enum pool_kind kind); /* "native" "loop" "folder" */

struct pool_config {
	struct loop *loop;
	const char *home; /* BOX_HOME */
	/* "auto" "native" "loop" "folder"; anything but auto fails rather than falls back */
	const char *mode;
	uint64_t size;	   /* of a new loop file; 0: see pool.c */
	uint64_t size_max; /* growth by itself ends here; 0: what the host can back */
	unsigned spares;   /* empty disks kept ready */
	/* Told from the loop when the pool or the host runs full ("pool", "host"), and when that is
	 * over. May be NULL. */
	void (*on_full)(const char *what, bool full, const char *detail, void *arg);
	void *arg;
};

/* The caller is in a mount namespace of its own. What an earlier daemon left in spares and trash is
 * taken over. */
int pool_open(const struct pool_config *config, struct pool **ret, struct err *err);
void pool_close(struct pool *pool); /* what uses the pool goes on; accepts NULL */
/* As pool_close, and everything is gone: nothing uses the pool any more. May block. */
int pool_destroy(struct pool *pool, struct err *err);

const char *pool_get_path(const struct pool *pool); /* absolute: BOX_HOME/pool */
enum pool_kind pool_get_kind(const struct pool *pool);
bool pool_has_quota(const struct pool *pool);
/* {"kind","path","quota":"simple|full|none","total_bytes","used_bytes","free_bytes","file_bytes",
 * "host_free_bytes","size_max_bytes","spares","trash","full":bool,"why"}; new reference. file_bytes
 * is what the loop file really takes. */
json_t *pool_json(struct pool *pool);
/* Adds checks for `doctor`: {"name","ok","detail","hint","required"}. */
void pool_probe(struct pool *pool, json_t *checks);
/* ERR_LIMIT, with figures and a hint, when there is no room for another disk (or for need bytes).
 * Starts to grow the pool when it is nearly full. Cheap: a statfs. */
int pool_check_room(struct pool *pool, uint64_t need, struct err *err);
/* Space on the disk of BOX_HOME that may still be used outside the pool, without the pool's
 * reserve, so that boxes are not stopped by it. Cheap: a statfs. For helpers too. */
int pool_host_left(const struct pool *pool, uint64_t *ret, struct err *err);

/* ---- disks ----------------------------------------------------------------------------------- */

char *pool_disk_path(const struct pool *pool, const char *place, const char *id); /* yours */
bool pool_disk_exists(const struct pool *pool, const char *place, const char *id);
/* An empty one, mode 0755, owned by root, in a budget of its own with the same limit; a spare if
 * there is one. limit 0: none. ERR_EXISTS. */
int pool_disk_make(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err);
/* 0: none. ERR_UNSUPPORTED without quota. */
int pool_disk_limit(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err);
/* Gone from its place at once; its data goes in the background. A disk that is not there is no
 * error. */
int pool_disk_discard(struct pool *pool, const char *place, const char *id, struct err *err);
int pool_disk_rename(
	struct pool *pool, const char *place, const char *id, const char *new_id, struct err *err);

/* Bytes written by the disk that are still in use, and its limit (0: none); the same of its budget.
 * Two searches of the quota tree for all. Without quota fn is never called. */
struct pool_figures {
	uint64_t used, limit;
	uint64_t budget_used, budget_limit;
};
typedef void (*pool_usage_fn)(
	const char *place, const char *id, const struct pool_figures *figures, void *arg);
int pool_usage_each(struct pool *pool, pool_usage_fn fn, void *arg, struct err *err);
int pool_usage(struct pool *pool, const char *place, const char *id, uint64_t *ret_used,
	uint64_t *ret_limit, struct err *err); /* ERR_UNSUPPORTED without quota */

/* Disks made for one owner are counted together, in a budget: see pool_disk_copy. Its limit holds
 * beside those of the disks; 0: none. What its disks, those that were removed included, have
 * written and somebody still keeps. Both are asked for by any disk in it. ERR_UNSUPPORTED without
 * quota. */
int pool_budget_limit(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err);
int pool_budget_usage(struct pool *pool, const char *place, const char *id, uint64_t *ret_used,
	uint64_t *ret_limit, struct err *err);

/* ---- for helper processes: these block ------------------------------------------------------ */

enum pool_budget {
	/* the copy is its source's owner's: a snapshot, the disk that replaces it */
	POOL_BUDGET_SAME,
	POOL_BUDGET_OWN,  /* somebody else's: it begins at nothing, without a limit */
	POOL_BUDGET_NONE, /* nobody writes to it */
};
/* The state from has now, writable, under a new name. A snapshot on btrfs (as long as it takes to
 * write what is dirty), else a copy (of only, when not NULL: the one folder of it that is
 * wanted). */
int pool_disk_copy(const struct pool *pool, const char *place, const char *id, const char *to_place,
	const char *to_id, const char *only, enum pool_budget budget, struct err *err);
int pool_sync(const struct pool *pool, struct err *err); /* all that was written is safe */
/* An empty disk without spares or counting, for helpers. */
int pool_disk_make_here(
	const struct pool *pool, const char *place, const char *id, struct err *err);
int pool_disk_destroy_here(
	const struct pool *pool, const char *place, const char *id, struct err *err);

/* ---- the pool as a whole -------------------------------------------------------------------- */

/* bytes 0: a step. ERR_UNSUPPORTED but for a loop; ERR_LIMIT when the host cannot back it. Survives
 * a daemon killed in between: the next one goes on. done is called once, from the loop. */
typedef void (*pool_done)(const struct err *err, void *arg);
void pool_grow(struct pool *pool, uint64_t bytes, pool_done done, void *arg);
/* Reads everything and verifies checksums. ERR_STATE when one runs; ERR_UNSUPPORTED for a
 * folder. */
struct pool_scrub_ops {
	void (*on_progress)(uint64_t done, uint64_t total, uint64_t errors, void *arg);
	void (*on_done)(
		uint64_t errors, const struct err *err, void *arg); /* err NULL: it went through */
};
int pool_scrub_start(
	struct pool *pool, const struct pool_scrub_ops *ops, void *arg, struct err *err);
void pool_scrub_cancel(struct pool *pool); /* no callback afterwards */
bool pool_trash_is_empty(struct pool *pool);
