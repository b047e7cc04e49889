/* checkpoints_internal.h - what the files of this folder share */
#pragma once
#include "base/alloc.h"
#include "checkpoint/checkpoints.h"
#include <sys/types.h>

struct helper;
struct job;

enum {
	CHECKPOINT_ID_MAX = 64,
	CHECKPOINT_FILES_MAX = 1 << 18, /* about five per process */
	CHECKPOINT_NAME_MAX = 100,
	SUFFIX_LEN = 12, /* of the name of a checkpoint being removed */
	BUCKETS = 256,
	PACKERS_MAX = 2,   /* at a time */
	UNPACKERS_MAX = 4, /* a caller waits for each */
};
#define CHECKPOINT_FILE_MAX  (UINT64_C(1) << 42)
#define CHECKPOINT_TOTAL_MAX (UINT64_C(1) << 44)

#define PLAIN_NAME	"plain"
#define PLAIN_TMP_NAME	"plain.tmp"
#define SHARED_NAME	"shared"
#define PACKED_NAME	"packed.zst"
#define PACKED_TMP_NAME "packed.zst.tmp"

/* ---- the packed form: format.c (names and bounds), pack.c, unpack.c
 * ------------------------------------
 *
 * A zstd stream, so that `zstd -d` shows what is in it: first a frame with the list of the files,
 * then a frame for each file, all with the checksum zstd has (XXH64), then a skippable frame with
 * length and SHA-256 of all that came before. */

struct checkpoint_file {
	char name[CHECKPOINT_NAME_MAX + 1];
	uint64_t size;
};

struct checkpoint_list {
	struct checkpoint_file *files; /* sorted by name */
	size_t count;
	uint64_t total; /* bytes */
};

bool checkpoint_name_is_good(const char *name, size_t len);
void checkpoint_list_done(struct checkpoint_list *list);
/* Lists the regular files of a directory. ERR_INVALID, with the name, when anything else is in
 * it. */
int checkpoint_list_scan(int dir, struct checkpoint_list *ret, struct err *err);

struct buf;
void checkpoint_list_put(struct buf *out, const char *id, const struct checkpoint_list *list);
enum {
	CHECKPOINT_LIST_BYTES_MAX =
		64 + CHECKPOINT_ID_MAX + CHECKPOINT_FILES_MAX * (CHECKPOINT_NAME_MAX + 9)
};
/* Parses the list of the checkpoint id; on failure sets *ret_why, a literal, and returns -1. */
int checkpoint_list_get(const uint8_t *data, size_t len, const char *id,
	struct checkpoint_list *ret, const char **ret_why);

enum { CHECKPOINT_TRAILER_SIZE = 8 + 8 + 71 };
/* digest: "sha256:…" */
void checkpoint_trailer_put(
	uint8_t out[CHECKPOINT_TRAILER_SIZE], uint64_t length, const char *digest);

/* Writes the files of the directory plain to fd, without a sync. *ret_bytes: written. */
int checkpoint_pack(int plain, const char *id, int fd, uint64_t *ret_bytes, struct err *err);

struct checkpoint_source {
	/* Reads up to len bytes; 0 at the end, -1 on error. */
	ssize_t (*read)(void *arg, void *data, size_t len, struct err *err);
	void *arg;
};
struct checkpoint_place {
	/* Returns an empty directory that has room for total bytes, borrowed; -1 on error. */
	int (*open)(void *arg, uint64_t total, struct err *err);
	void *arg;
};
/* Makes the files; place NULL: only verifies. Everything is verified, the digest of the whole
 * file last: until this returns 0, none of the files may be used. */
int checkpoint_unpack(const struct checkpoint_source *source, const char *id,
	const struct checkpoint_place *place, struct err *err);
/* ---- the checkpoints: checkpoints.c ---------------------------------------------------------- */

enum plain_place { PLAIN_NONE, PLAIN_DISK, PLAIN_QUICK };

struct checkpoint {
	struct checkpoint *next; /* in its bucket */
	char id[CHECKPOINT_ID_MAX + 1];
	enum plain_place plain;
	bool packed;
	bool gone; /* discarded; its files are called .gone-SUFFIX until nobody uses them */
	char suffix[SUFFIX_LEN + 1];
	uint64_t promised; /* of a quick one: bytes its capture may write */
	unsigned holds;
	unsigned pins;
	bool doomed;	     /* discarded with its last pin */
	uint64_t used;	     /* time of the last use, by checkpoints->clock */
	struct job *running; /* the helper that works on it */
};

/* A callback that waits to be called from the loop. */
struct answer {
	struct answer *next;
	checkpoints_done done;
	checkpoints_opened opened; /* one of the two, or none: it was cancelled */
	void *arg;
	struct err err; /* kind ERR_NONE: it worked */
	int dir;
	struct checkpoint *held; /* with dir */
};

struct checkpoints {
	struct loop *loop;
	int top;	 /* BOX_HOME/states */
	int quick;	 /* the tmpfs; -1: none */
	int quick_mount; /* the mount of it */
	char *run;	 /* where it is; NULL: none */
	struct checkpoint *buckets[BUCKETS];
	uint64_t clock;
	struct job *jobs; /* in the order of the requests */
	unsigned packing, unpacking;
	struct answer *answers, **answers_end; /* ready, not called yet */
	struct helper *sweeper;
	bool sweep_again;
};

bool checkpoint_id_is_good(const char *id);
struct checkpoint *checkpoint_add(struct checkpoints *checkpoints, const char *id);
/* Finds a checkpoint that is not gone, or NULL. */
struct checkpoint *checkpoint_find(const struct checkpoints *checkpoints, const char *id);
int checkpoint_open_plain(const struct checkpoints *checkpoints,
	const struct checkpoint *checkpoint, struct err *err);
void checkpoint_touch(struct checkpoints *checkpoints, struct checkpoint *checkpoint);
/* Frees a gone checkpoint that nobody uses any more, and has its files removed. */
void checkpoint_settle(struct checkpoints *checkpoints, struct checkpoint *checkpoint);
/* True if need bytes, together with the quick checkpoints and what they may still write, take no
 * more than a quarter of the memory that would be free without them. */
bool checkpoint_fits_in_memory(const struct checkpoints *checkpoints, uint64_t need);
uint64_t checkpoint_disk_room(int fd); /* bytes free on its disk, without the reserve for others */
int checkpoint_check_disk(const struct checkpoints *checkpoints, uint64_t need, struct err *err);
/* ---- helpers: work.c ------------------------------------------------------------------------ */

enum job_kind { JOB_PACK, JOB_UNPACK, JOB_VERIFY };

/* Starts a job, or joins one of the same kind that is running. Takes answer. */
void job_ask(struct checkpoints *checkpoints, struct checkpoint *checkpoint, enum job_kind kind,
	struct answer *answer);
/* Cancels the jobs of a discarded checkpoint; their callers get ERR_CANCELLED. */
void job_cancel(struct checkpoints *checkpoints, struct checkpoint *checkpoint);
void job_close_all(struct checkpoints *checkpoints);

/* Calls the callback from the loop, soon. err NULL: with the error in answer. */
void answer_send(struct checkpoints *checkpoints, struct answer *answer, const struct err *err);
void answer_close_all(struct checkpoints *checkpoints);

/* ---- sweep.c: removal of files -------------------------------------------------------------- */

/* Renames it to a name that sweep() removes. dir is checkpoints->top or checkpoints->quick. A
 * missing one is no error. */
int sweep_take(int dir, const char *name, struct err *err);
void sweep(struct checkpoints *checkpoints); /* removes what was renamed, in a helper */
void sweep_close(struct checkpoints *checkpoints);
#define TRASH_PREFIX ".trash-"
#define GONE_PREFIX  ".gone-"
