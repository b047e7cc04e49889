/* checkpoints_internal.h - what the files of this folder share */
#pragma once
#include "base/alloc.h"
#include "checkpoint/checkpoints.h"
#include <sys/types.h>

struct helper;
struct job;

enum {
	CHECKPOINT_ID_MAX = 64,
	CHECKPOINT_FILES_MAX = 1 << 18, /* five or so a process */
	CHECKPOINT_NAME_MAX = 100,
	SUFFIX_LEN = 12, /* of what is being removed */
	BUCKETS = 256,
	PACKERS_MAX = 2,   /* at a time */
	UNPACKERS_MAX = 4, /* somebody waits for each */
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
	struct checkpoint_file *files; /* names rising */
	size_t count;
	uint64_t total; /* bytes */
};

bool checkpoint_name_is_good(const char *name, size_t len);
void checkpoint_list_done(struct checkpoint_list *list);
/* The regular files of a directory. ERR_INVALID, by name, when anything else is in it. */
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

/* Writes what lies in the directory plain to fd; no sync. *ret_bytes: written. */
int checkpoint_pack(int plain, const char *id, int fd, uint64_t *ret_bytes, struct err *err);

struct checkpoint_source {
	/* Up to len bytes; 0 at the end, -1 on error. */
	ssize_t (*read)(void *arg, void *data, size_t len, struct err *err);
	void *arg;
};
struct checkpoint_place {
	/* An empty directory that has room for total bytes, borrowed; -1 on error. */
	int (*open)(void *arg, uint64_t total, struct err *err);
	void *arg;
};
/* Makes the files; place NULL: makes none, only looks. Everything is verified, at last the sum over
 * all of it: until this returns 0 nothing that was made may be used. */
int checkpoint_unpack(const struct checkpoint_source *source, const char *id,
	const struct checkpoint_place *place, struct err *err);
/* ---- the checkpoints: checkpoints.c ---------------------------------------------------------- */

enum plain_place { PLAIN_NONE, PLAIN_DISK, PLAIN_QUICK };

struct checkpoint {
	struct checkpoint *next; /* in its bucket */
	char id[CHECKPOINT_ID_MAX + 1];
	enum plain_place plain;
	bool packed;
	bool gone; /* discarded; its files are called .gone-SUFFIX until nobody needs them */
	char suffix[SUFFIX_LEN + 1];
	uint64_t promised; /* a quick one: bytes its capture may write */
	unsigned holds;
	unsigned pins;
	bool doomed;	     /* to be discarded with its last pin */
	uint64_t used;	     /* when, by checkpoints->clock */
	struct job *running; /* a helper works on it */
};

/* A callback to call from the loop, when everything is decided. */
struct answer {
	struct answer *next;
	checkpoints_done done;
	checkpoints_opened opened; /* one of the two, or none: he was forgotten */
	void *arg;
	struct err err; /* kind ERR_NONE: it worked */
	int dir;
	struct checkpoint *held; /* with dir */
};

struct checkpoints {
	struct loop *loop;
	int top;	 /* BOX_HOME/states */
	int quick;	 /* the tmpfs; -1: none */
	int quick_mount; /* and the mount itself */
	char *run;	 /* where it is; NULL: none */
	struct checkpoint *buckets[BUCKETS];
	uint64_t clock;
	struct job *jobs; /* in the order they were asked for */
	unsigned packing, unpacking;
	struct answer *answers, **answers_end; /* decided, not told yet */
	struct helper *sweeper;
	bool sweep_again;
};

bool checkpoint_id_is_good(const char *id);
struct checkpoint *checkpoint_add(struct checkpoints *checkpoints, const char *id);
/* Not those that are gone; NULL. */
struct checkpoint *checkpoint_find(const struct checkpoints *checkpoints, const char *id);
int checkpoint_open_plain(const struct checkpoints *checkpoints,
	const struct checkpoint *checkpoint, struct err *err);
void checkpoint_touch(struct checkpoints *checkpoints, struct checkpoint *checkpoint);
/* Forgets a gone checkpoint that nobody needs any more, and has its files removed. */
void checkpoint_settle(struct checkpoints *checkpoints, struct checkpoint *checkpoint);
/* With the quick checkpoints there are, and what they may still write, no more than a quarter of
 * the memory that would be free without them. */
bool checkpoint_fits_in_memory(const struct checkpoints *checkpoints, uint64_t need);
uint64_t checkpoint_disk_room(int fd); /* on the disk it lies on, less what is kept for others */
int checkpoint_check_disk(const struct checkpoints *checkpoints, uint64_t need, struct err *err);
/* ---- helpers: work.c ------------------------------------------------------------------------ */

enum job_kind { JOB_PACK, JOB_UNPACK, JOB_VERIFY };

/* Takes answer. One that is under way already serves it too. */
void job_ask(struct checkpoints *checkpoints, struct checkpoint *checkpoint, enum job_kind kind,
	struct answer *answer);
/* The checkpoint is gone: its jobs end, and their answers say so. */
void job_cancel(struct checkpoints *checkpoints, struct checkpoint *checkpoint);
void job_close_all(struct checkpoints *checkpoints);

/* err NULL: as it stands in the answer. Called from the loop, soon. */
void answer_send(struct checkpoints *checkpoints, struct answer *answer, const struct err *err);
void answer_close_all(struct checkpoints *checkpoints);

/* ---- what is to be removed: sweep.c --------------------------------------------------------- */

/* Renames it out of the way, first. dir is checkpoints->top or checkpoints->quick. A missing one is
 * no error. */
int sweep_take(int dir, const char *name, struct err *err);
void sweep(struct checkpoints *checkpoints); /* removes what was taken, in a helper */
void sweep_close(struct checkpoints *checkpoints);
#define TRASH_PREFIX ".trash-"
#define GONE_PREFIX  ".gone-"
