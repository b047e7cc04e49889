/* pool_internal.h - what the files of this folder share */
#pragma once
#include "base/alloc.h"
#include "base/err.h"
#include "pool/pool.h"
#include <sys/stat.h>
#include <sys/types.h>

struct helper;
struct loop_timer;
struct loop_fd;

#define MIB		  (UINT64_C(1) << 20)
#define GIB		  (UINT64_C(1) << 30)
#define QUOTA_LEVEL_SHIFT 48 /* a quota group's number is level << 48 | id */
/* The level of budgets. Nobody else uses so high a level: on a shared file system they are
 * recognised by it. */
#define QUOTA_BUDGET_LEVEL 66

enum pool_quota { POOL_QUOTA_NONE, POOL_QUOTA_SIMPLE, POOL_QUOTA_FULL, POOL_QUOTA_COUNT };

enum { POOL_SPARES_MAX = 64, POOL_NAME_LEN = 16 };

struct pool {
	struct loop *loop;
	enum pool_kind kind;
	enum pool_quota quota;
	char *home, *path;
	char *image;   /* HOME/pool.img */
	char *reserve; /* HOME/pool.reserve */
	int root;      /* the pool's own directory, for statfs and ioctls; helpers go by path */
	int device;    /* N of /dev/loopN; -1: none */
	bool direct_io;
	uint64_t root_id; /* id of the subvolume that holds the places */
	uint64_t group;	  /* quota group of all disks, see watch.c; 0: none */
	char fsid[37];
	uint64_t size_max;
	char note[256]; /* why this kind and not a better one; may be empty */

	/* disk.c */
	unsigned spares_wanted;
	char spares[POOL_SPARES_MAX][POOL_NAME_LEN + 1];
	unsigned spare_count;
	struct loop_timer *spare_timer;

	/* trash.c */
	struct loop_timer *trash_timer;
	pid_t trash_helper; /* 0: none */
	int trash_pidfd;
	struct loop_fd *trash_watch;
	bool trash_more; /* something came while the helper ran */

	/* watch.c, grow.c */
	struct loop_timer *watch_timer;
	void (*on_full)(const char *what, bool full, const char *detail, void *arg);
	void *arg;
	bool host_full, pool_full;
	char full_detail[160];
	uint64_t group_limit; /* as last set; 0: none */
	uint64_t group_room;  /* how much that limit left to write */
	bool cannot_grow;     /* the last automatic growth failed */
	struct helper *growing;
	struct grow_answer *answers;
	uint64_t grow_target;
	struct err grow_err;
	pool_done grow_done; /* NULL: it grows by itself */
	void *grow_arg;
	int64_t grow_not_before_us;

	struct pool_scrub *scrub;
};

/* ---- btrfs.c: typed ioctls ------------------------------------------------------------------ */

bool btrfs_is(int fd);	      /* on btrfs */
bool btrfs_is_subvol(int fd); /* fd is the root of a subvolume */
/* Quota groups that a new subvolume joins; 0: none. */
struct btrfs_groups {
	uint64_t all, budget;
};
int btrfs_subvol_create(
	int dirfd, const char *name, const struct btrfs_groups *groups, struct err *err);
int btrfs_subvol_snapshot(int dirfd, const char *name, int source,
	const struct btrfs_groups *groups, struct err *err);
/* Destroys the subvolume with all subvolumes in it, however deep. Blocks, the longer the more
 * there are. */
int btrfs_subvol_destroy(int dirfd, const char *name, struct err *err);
int btrfs_subvol_id(int fd, uint64_t *ret, struct err *err);
int btrfs_fsid(int fd, char ret[37], struct err *err);
/* Size of the file system on its device 1. */
int btrfs_device_size(int fd, uint64_t *ret_size, struct err *err);
int btrfs_resize_to_device(int fd, struct err *err); /* blocks */
void btrfs_start_commit(int fd);
/* Moves all metadata into new chunks of the usual size. Blocks. */
void btrfs_renew_metadata(int fd);

struct btrfs_item {
	uint64_t objectid, offset;
	uint32_t type;
	const void *data; /* not aligned */
	uint32_t len;
};
struct btrfs_range { /* keys from the first to the last, in tree order */
	uint64_t tree, first_objectid, last_objectid, first_offset, last_offset;
	uint32_t first_type, last_type;
};
/* fn returns false to end the search. */
typedef bool (*btrfs_item_fn)(const struct btrfs_item *item, void *arg);
int btrfs_search(
	int fd, const struct btrfs_range *range, btrfs_item_fn fn, void *arg, struct err *err);

/* ---- loopdev.c: loop devices ---------------------------------------------------------------- */

/* Finds and opens the device bound to the whole of this file; *ret_number -1 and *ret -1: there
 * is none. */
int loopdev_find(const char *path, int *ret_number, int *ret, struct err *err);
/* Binds a free device to the file. The device unbinds itself when nobody has it open any more. */
int loopdev_attach(
	const char *path, int *ret_number, int *ret, bool *ret_direct_io, struct err *err);
int loopdev_open(int number, int *ret, struct err *err);
bool loopdev_has_direct_io(int fd);
bool loopdev_works(char *why, size_t size); /* can this machine have loop devices at all? */

/* ---- loopfile.c: pool.img ------------------------------------------------------------------- */

int loopfile_make(struct pool *pool, uint64_t size, struct err *err);
int loopfile_mount(struct pool *pool, struct err *err);
/* Gives device and file system the size of the file. Blocks; in helpers too. */
int loopfile_spread(const struct pool *pool, struct err *err);
/* A new file system has next to no room for metadata; this gives it a normal chunk before data
 * can take all space. */
void loopfile_settle(const struct pool *pool);
/* does this machine have everything a loop pool needs? */
bool loopfile_can(char *why, size_t size);

/* ---- kind.c: the kinds ---------------------------------------------------------------------- */

/* Mounts the pool at pool->path. size: of a new loop file, or 0. */
int kind_open(struct pool *pool, const char *mode, uint64_t size, struct err *err);
int kind_destroy(const struct pool *pool, struct err *err); /* blocks */

/* ---- host.c: space on the host's disk ------------------------------------------------------- */

struct host_room {
	uint64_t total, free;	       /* as for a user without privileges */
	uint64_t keep;		       /* never given to boxes */
	uint64_t file_size, file_held; /* pool.img: its length, and the space it takes */
};
int host_room_read(const struct pool *pool, struct host_room *ret, struct err *err);
/* The largest size pool.img may have. */
uint64_t host_room_backs(const struct host_room *room);
/* How many bytes may still be written before the host's disk is full. */
uint64_t host_room_left(const struct pool *pool, const struct host_room *room);
/* A file of allocated blocks, deleted when the host's disk is full so that btrfs can still
 * write. */
void host_reserve_make(const struct pool *pool);
void host_reserve_give_up(const struct pool *pool);

/* ---- quota.c -------------------------------------------------------------------------------- */

/* Uses existing quotas or turns them on. Having none is no error. */
void quota_open(struct pool *pool);
const char *quota_name(enum pool_quota quota);
/* outside: a folder of the pool that is in no disk; fd: in the disk. limit 0: none. */
int quota_limit_disk(int outside, int fd, uint64_t limit, struct err *err);
int quota_limit(int outside, uint64_t group, uint64_t limit, struct err *err);
int quota_figures(const struct pool *pool, uint64_t group, uint64_t *ret_used, uint64_t *ret_limit,
	struct err *err);
/* ERR_UNSUPPORTED for a plain folder. */
int quota_open_disk(
	const struct pool *pool, const char *place, const char *id, int *ret, struct err *err);
int quota_limit_group(struct pool *pool, uint64_t limit, struct err *err);
int quota_group_used(const struct pool *pool, uint64_t *ret, struct err *err);
/* Removes quota groups of subvolumes that no longer exist. */
void quota_sweep(const struct pool *pool);

/* ---- budget.c: disks that are counted together ---------------------------------------------- */

/* The budget of the subvolume that contains fd; 0: it has none, or there are no quotas. */
int budget_of(const struct pool *pool, int fd, uint64_t *ret, struct err *err);
/* As budget_of, but makes a budget if there is none. outside: as for quota_limit_disk. */
int budget_need(const struct pool *pool, int outside, int fd, uint64_t *ret, struct err *err);
int budget_need_at(const struct pool *pool, int dirfd, const char *name, struct err *err);

/* ---- disk.c, trash.c, watch.c, grow.c, scrub.c, treecopy.c ---------------------------------- */

int places_make(struct pool *pool, struct err *err);
int places_sweep(struct pool *pool, struct err *err); /* unfinished copies of a dead daemon */
/* Destroys every disk in root, and the places that are subvolumes. */
int places_empty(const struct pool *pool, int root, struct err *err);
int place_open(const struct pool *pool, const char *place, int *ret, struct err *err);
void spares_open(struct pool *pool);
/* Destroys a disk or a plain tree, synchronously. */
int disk_destroy_at(const struct pool *pool, int dirfd, const char *name, struct err *err);

void trash_open(struct pool *pool);
void trash_close(struct pool *pool);
int trash_take(struct pool *pool, int dirfd, const char *name, struct err *err);
unsigned trash_count(const struct pool *pool);

void watch_open(struct pool *pool);
void watch_close(struct pool *pool);

struct pool_space {
	uint64_t total, free, used;
};
int pool_space_read(const struct pool *pool, struct pool_space *ret, struct err *err);
/* Free space below this makes the pool grow. */
uint64_t pool_grow_below(const struct pool_space *space);
/* Grows by a step if that is possible; errors are only logged. */
void grow_by_itself(struct pool *pool);
void grow_close(struct pool *pool);
/* With less free space than this, nothing new is started. */
uint64_t pool_margin(const struct pool_space *space);
void spares_refill(struct pool *pool);

/* Copies everything in the directory from into the empty directory to, with all attributes. */
int tree_copy(int from, int to, struct err *err);
