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
	/* "auto" "native" "loop" "folder"; anything but auto fails instead of falling back */
	const char *mode;
	uint64_t size;	   /* of a new loop file; 0: see pool.c */
	uint64_t size_max; /* automatic growth ends here; 0: as much as the host can back */
	unsigned spares;   /* empty disks kept ready */
	/* Called from the loop when the pool or the host's disk becomes full ("pool", "host"),
	 * and when that is over. May be NULL. */
	void (*on_full)(const char *what, bool full, const char *detail, void *arg);
	void *arg;
};

/* The caller has a mount namespace of its own. Spares and trash of an earlier daemon are taken
 * over. */
int pool_open(const struct pool_config *config, struct pool **ret, struct err *err);
void pool_close(struct pool *pool); /* boxes that use the pool keep it; accepts NULL */
/* As pool_close, and deletes the pool: nothing may use it any more. May block. */
int pool_destroy(struct pool *pool, struct err *err);

const char *pool_get_path(const struct pool *pool); /* absolute: BOX_HOME/pool */
enum pool_kind pool_get_kind(const struct pool *pool);
bool pool_has_quota(const struct pool *pool);
/*
 * {"kind","path","quota":"simple|full|none","total_bytes","used_bytes","free_bytes","file_bytes","host_free_bytes","size_max_bytes","spares","trash","full":bool,"why"};
 * new reference. file_bytes is the space that the loop file takes on the host. */
json_t *pool_json(struct pool *pool);
/* Adds checks for `doctor`: {"name","ok","detail","hint","required"}. */
void pool_probe(struct pool *pool, json_t *checks);
/* ERR_LIMIT, with figures and a hint, when there is no room for another disk (or for need
 * bytes). Starts to grow the pool when it is nearly full. Cheap: a statfs. */
int pool_check_room(struct pool *pool, uint64_t need, struct err *err);
/* Bytes on the disk of BOX_HOME that may still be used outside the pool. The pool's reserve is
 * not included, so that images cannot stop boxes. Cheap: a statfs. For helpers too. */
int pool_host_left(const struct pool *pool, uint64_t *ret, struct err *err);

/* ---- disks ----------------------------------------------------------------------------------- */

char *pool_disk_path(const struct pool *pool, const char *place, const char *id); /* yours */
bool pool_disk_exists(const struct pool *pool, const char *place, const char *id);
/* Makes an empty disk, mode 0755, owned by root, in a budget of its own with the same limit;
 * uses a spare if there is one. limit 0: none. ERR_EXISTS. */
int pool_disk_make(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err);
/* limit 0: none. ERR_UNSUPPORTED without quota. */
int pool_disk_limit(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err);
/* Renames the disk away at once; its data is deleted in the background. A missing disk is no
 * error. */
int pool_disk_discard(struct pool *pool, const char *place, const char *id, struct err *err);
int pool_disk_rename(
	struct pool *pool, const char *place, const char *id, const char *new_id, struct err *err);

/* Bytes that the disk has written and that are still in use, with its limit (0: none), and the
 * same for its budget. Two searches of the quota tree give all disks. Without quota fn is never
 * called. */
struct pool_figures {
	uint64_t used, limit;
	uint64_t budget_used, budget_limit;
};
typedef void (*pool_usage_fn)(
	const char *place, const char *id, const struct pool_figures *figures, void *arg);
int pool_usage_each(struct pool *pool, pool_usage_fn fn, void *arg, struct err *err);
int pool_usage(struct pool *pool, const char *place, const char *id, uint64_t *ret_used,
	uint64_t *ret_limit, struct err *err); /* ERR_UNSUPPORTED without quota */

/* Disks of one owner are counted together, in a budget: see pool_disk_copy. The limit of a
 * budget applies in addition to those of its disks; 0: none. Its usage is what its disks,
 * removed ones included, have written and something still refers to. A budget is named by any
 * disk in it. ERR_UNSUPPORTED without quota. */
int pool_budget_limit(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err);
int pool_budget_usage(struct pool *pool, const char *place, const char *id, uint64_t *ret_used,
	uint64_t *ret_limit, struct err *err);

/* ---- for helper processes: these block ------------------------------------------------------ */

enum pool_budget {
	/* the copy belongs to the owner of its source: a snapshot, or the disk that replaces it */
	POOL_BUDGET_SAME,
	/* the copy belongs to somebody else: its budget starts at zero, without a limit */
	POOL_BUDGET_OWN,
	POOL_BUDGET_NONE, /* nobody writes to it */
};
/* Makes a writable copy of from under a new name. On btrfs this is a snapshot (takes as long as
 * writing the dirty pages), else a copy (if only is not NULL, of that one folder). */
int pool_disk_copy(const struct pool *pool, const char *place, const char *id, const char *to_place,
	const char *to_id, const char *only, enum pool_budget budget, struct err *err);
int pool_sync(const struct pool *pool, struct err *err); /* returns when all data is on disk */
/* Makes an empty disk without spares and quota, for helpers. */
int pool_disk_make_here(
	const struct pool *pool, const char *place, const char *id, struct err *err);
int pool_disk_destroy_here(
	const struct pool *pool, const char *place, const char *id, struct err *err);

/* ---- the pool as a whole -------------------------------------------------------------------- */

/* Grows the pool. bytes 0: one step. ERR_UNSUPPORTED unless it is a loop; ERR_LIMIT when the
 * host cannot back it. If the daemon is killed meanwhile, the next one continues. done is called
 * once, from the loop. */
typedef void (*pool_done)(const struct err *err, void *arg);
void pool_grow(struct pool *pool, uint64_t bytes, pool_done done, void *arg);
/* Reads everything and verifies checksums. ERR_STATE when a scrub runs; ERR_UNSUPPORTED for a
 * folder. */
struct pool_scrub_ops {
	void (*on_progress)(uint64_t done, uint64_t total, uint64_t errors, void *arg);
	void (*on_done)(
		uint64_t errors, const struct err *err, void *arg); /* err NULL: it finished */
};
int pool_scrub_start(
	struct pool *pool, const struct pool_scrub_ops *ops, void *arg, struct err *err);
void pool_scrub_cancel(struct pool *pool); /* no callback afterwards */
bool pool_trash_is_empty(struct pool *pool);
