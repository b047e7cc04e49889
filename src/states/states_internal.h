/* states_internal.h - what the files of this folder share */
#pragma once
#include "base/alloc.h"
#include "states/states.h"
#include <sys/types.h>

struct helper;
struct job;

enum {
	STATE_ID_MAX = 64,
	STATE_FILES_MAX = 1 << 18, /* five or so a process */
	STATE_NAME_MAX = 100,
	SUFFIX_LEN = 12, /* of what is being removed */
	BUCKETS = 256,
	PACKERS_MAX = 2,   /* at a time */
	UNPACKERS_MAX = 4, /* somebody waits for each */
};
#define STATE_FILE_MAX	(UINT64_C(1) << 42)
#define STATE_TOTAL_MAX (UINT64_C(1) << 44)

#define PLAIN_NAME	"plain"
#define PLAIN_TMP_NAME	"plain.tmp"
#define PACKED_NAME	"packed.zst"
#define PACKED_TMP_NAME "packed.zst.tmp"

/* ---- the packed form: format.c (names and bounds), pack.c, unpack.c
 * ------------------------------------
 *
 * A zstd stream, so that `zstd -d` shows what is in it: first a frame with the list of the files,
 * then a frame for each file, all with the checksum zstd has (XXH64), then a skippable frame with
 * length and SHA-256 of all that came before. */

struct state_file {
	char name[STATE_NAME_MAX + 1];
	uint64_t size;
};

struct state_list {
	struct state_file *files; /* names rising */
	size_t count;
	uint64_t total; /* bytes */
};

bool state_name_is_good(const char *name, size_t len);
void state_list_done(struct state_list *list);
/* The regular files of a directory. ERR_INVALID, by name, when anything else is in it. */
int state_list_scan(int dir, struct state_list *ret, struct err *err);

struct buf;
void state_list_put(struct buf *out, const char *id, const struct state_list *list);
enum { STATE_LIST_BYTES_MAX = 64 + STATE_ID_MAX + STATE_FILES_MAX * (STATE_NAME_MAX + 9) };
/* Of the state id; says what is wrong in *ret_why, a literal, and returns -1. */
int state_list_get(const uint8_t *data, size_t len, const char *id, struct state_list *ret,
	const char **ret_why);

enum { STATE_TRAILER_SIZE = 8 + 8 + 71 };
/* digest: "sha256:…" */
void state_trailer_put(uint8_t out[STATE_TRAILER_SIZE], uint64_t length, const char *digest);

/* Writes what lies in the directory plain to fd; no sync. *ret_bytes: written. */
int state_pack(int plain, const char *id, int fd, uint64_t *ret_bytes, struct err *err);

struct state_source {
	/* Up to len bytes; 0 at the end, -1 on error. */
	ssize_t (*read)(void *arg, void *data, size_t len, struct err *err);
	void *arg;
};
struct state_place {
	/* An empty directory that has room for total bytes, borrowed; -1 on error. */
	int (*open)(void *arg, uint64_t total, struct err *err);
	void *arg;
};
/* Makes the files; place NULL: makes none, only looks. Everything is verified, at last the sum over
 * all of it: until this returns 0 nothing that was made may be used. */
int state_unpack(const struct state_source *source, const char *id, const struct state_place *place,
	struct err *err);
/* ---- the states: states.c ------------------------------------------------------------------- */

enum plain_place { PLAIN_NONE, PLAIN_DISK, PLAIN_QUICK };

struct state {
	struct state *next; /* in its bucket */
	char id[STATE_ID_MAX + 1];
	enum plain_place plain;
	bool packed;
	bool gone; /* discarded; its files are called .gone-SUFFIX until nobody needs them */
	char suffix[SUFFIX_LEN + 1];
	uint64_t promised; /* a quick one: bytes its capture may write */
	unsigned holds;
	unsigned pins;
	bool doomed;	     /* to be discarded with its last pin */
	uint64_t used;	     /* when, by states->clock */
	struct job *running; /* a helper works on it */
};

/* Somebody to be called from the loop, when all is decided. */
struct answer {
	struct answer *next;
	states_done done;
	states_opened opened; /* one of the two, or none: he was forgotten */
	void *arg;
	struct err err; /* kind ERR_NONE: it worked */
	int dir;
	struct state *held; /* with dir */
};

struct states {
	struct loop *loop;
	int top;	 /* BOX_HOME/states */
	int quick;	 /* the tmpfs; -1: none */
	int quick_mount; /* and the mount itself */
	char *run;	 /* where it is; NULL: none */
	struct state *buckets[BUCKETS];
	uint64_t clock;
	struct job *jobs; /* in the order they were asked for */
	unsigned packing, unpacking;
	struct answer *answers, **answers_end; /* decided, not told yet */
	struct helper *sweeper;
	bool sweep_again;
};

bool state_id_is_good(const char *id);
struct state *state_add(struct states *states, const char *id);
/* Not those that are gone; NULL. */
struct state *state_find(const struct states *states, const char *id);
int state_open_plain(const struct states *states, const struct state *state, struct err *err);
void state_touch(struct states *states, struct state *state);
/* Forgets a gone state that nobody needs any more, and has its files removed. */
void state_settle(struct states *states, struct state *state);
/* With the quick states there are, and what they may still write, no more than a quarter of the
 * memory that would be free without them. */
bool state_fits_in_memory(const struct states *states, uint64_t need);
uint64_t state_disk_room(int fd); /* on the disk it lies on, less what is kept for others */
int state_check_disk(const struct states *states, uint64_t need, struct err *err);
/* ---- helpers: work.c ------------------------------------------------------------------------ */

enum job_kind { JOB_PACK, JOB_UNPACK, JOB_VERIFY };

/* Takes answer. One that is under way already serves it too. */
void job_ask(struct states *states, struct state *state, enum job_kind kind, struct answer *answer);
/* The state is gone: its jobs end, and their answers say so. */
void job_cancel(struct states *states, struct state *state);
void job_close_all(struct states *states);

/* err NULL: as it stands in the answer. Called from the loop, soon. */
void answer_send(struct states *states, struct answer *answer, const struct err *err);
void answer_close_all(struct states *states);

/* ---- what is to be removed: sweep.c --------------------------------------------------------- */

/* Renames it out of the way, first. dir is states->top or states->quick. A missing one is no
 * error. */
int sweep_take(int dir, const char *name, struct err *err);
void sweep(struct states *states); /* removes what was taken, in a helper */
void sweep_close(struct states *states);
#define TRASH_PREFIX ".trash-"
#define GONE_PREFIX  ".gone-"
