/* checkpoints.h - what captures wrote: the processes of a box in files, plain or packed
 *
 *   BOX_HOME/states/ID/plain/…      as the driver wrote it, ready to be restored from
 *   BOX_HOME/states/ID/packed.zst   the same files, compressed, with a checksum of each; its end
 *                                   holds its own SHA-256
 *   BOX_HOME/states/ID/shared/…     hard links to files that several checkpoints have together
 *                                   (layers of memory); a driver reads them where they lie, and
 *                                   as long as one checkpoint has a link the file is needed
 *   BOX_RUN/states/ID/plain/…       on a tmpfs of the daemon's own, which ends with it: for forks
 *                                   that are made at once
 *
 * A checkpoint is in plain form, in packed form, or in both: then the plain one is a cache. What is
 * packed is safe (fsync) before it counts; a damaged one is refused, never restored. A plain form
 * that is not packed survives the daemon (not on the tmpfs) but not the machine: after a restart of
 * the machine nobody knows how much of it reached the disk, so it is removed. Whether a capture was
 * through when the daemon died is the caller's to know.
 *
 * A form is a flat folder of at most 262144 regular files, names of [A-Za-z0-9._-]. Checkpoints are
 * told apart by id ([a-z0-9]+); who needs one is the caller's affair, but a plain form somebody
 * works with is held (checkpoints_hold) and not dropped under him. Everything slow happens in
 * helper processes. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct checkpoints;

/* run: where the tmpfs is mounted, in the caller's mount namespace, which is its own; NULL: none.
 * One that cannot be mounted is told in the log and done without. What a dead daemon left half
 * packed or half unpacked is removed. */
int checkpoints_open(struct loop *loop, const char *home, const char *run, struct checkpoints **ret,
	struct err *err);
/* Ends helpers; nothing is lost that was safe. Nobody is called any more. Accepts NULL. */
void checkpoints_close(struct checkpoints *checkpoints);

/* A new empty plain form; *ret_dir is its directory, yours to close. quick: on the tmpfs when need
 * bytes fit there (a quarter of the memory that is free), else on disk as without quick. ERR_LIMIT
 * when there is no room for need bytes, ERR_EXISTS. A capture that needs more than it said may meet
 * a full tmpfs: discard, and make one that is not quick. */
int checkpoints_make(struct checkpoints *checkpoints, const char *id, uint64_t need, bool quick,
	int *ret_dir, struct err *err);

/* The folder of a checkpoint's shared files, made if it is missing; yours to close. The checkpoint
 * must not be quick. Packing makes these files safe too, but neither copies nor checks them. */
int checkpoints_open_shared(
	struct checkpoints *checkpoints, const char *id, int *ret, struct err *err);

typedef void (*checkpoints_done)(
	const struct err *err, void *arg); /* err NULL: it worked; always from the loop */
typedef void (*checkpoints_opened)(
	int dir, const struct err *err, void *arg); /* dir: yours; -1 with err */

/* The packed form is there and safe when done is called. The plain form stays; files added or grown
 * meanwhile (logs) are packed as they were found. Packing what is packed is fine. A failure
 * (ERR_LIMIT: disk full) leaves the plain form as it was and nothing else. One helper a checkpoint;
 * several pack beside each other, two at most. */
void checkpoints_pack(
	struct checkpoints *checkpoints, const char *id, checkpoints_done done, void *arg);
/* The plain form, unpacked first if need be (to the tmpfs if it fits there), and held until
 * checkpoints_release. ERR_NOT_FOUND; ERR_PROTOCOL, with a message that names the file, when it is
 * damaged; ERR_LIMIT without room. Called at once, before it returns, when the plain form is there
 * or no form at all. */
void checkpoints_plain(
	struct checkpoints *checkpoints, const char *id, checkpoints_opened done, void *arg);
void checkpoints_release(struct checkpoints *checkpoints, const char *id);
/* Cancels the callbacks of arg; a hold that was to be given is released. The work itself goes
 * on. */
void checkpoints_forget(struct checkpoints *checkpoints, const void *arg);
void checkpoints_hold(struct checkpoints *checkpoints, const char *id); /* one more */
/* Will be asked for later, perhaps after its owner has discarded it: that happens with the last
 * checkpoints_unpin, and until then it is as if it had not been discarded. False: there is none. */
bool checkpoints_pin(struct checkpoints *checkpoints, const char *id);
void checkpoints_unpin(struct checkpoints *checkpoints, const char *id);
/* Drops plain forms that nobody holds and that are packed: all but the `keep` used last, and of
 * those what is more than a 32nd of the free memory. */
void checkpoints_trim(struct checkpoints *checkpoints, unsigned keep);
void checkpoints_drop_plain(struct checkpoints *checkpoints, const char *id); /* of one, likewise */
/* Gone at once; its files when the last hold is released. What waits for it gets ERR_CANCELLED. One
 * that is not there is no error. An id is not to be used again while a hold of the old one is
 * out. */
int checkpoints_discard(struct checkpoints *checkpoints, const char *id, struct err *err);
bool checkpoints_exists(const struct checkpoints *checkpoints, const char *id);
bool checkpoints_is_packed(const struct checkpoints *checkpoints, const char *id);
bool checkpoints_is_quick(
	const struct checkpoints *checkpoints, const char *id); /* its plain form is in memory */
/* Bytes of each form; 0: none. Looks at the files. What shared files take counts for the plain
 * form, or for the packed one where there is no other. */
void checkpoints_sizes(const struct checkpoints *checkpoints, const char *id, uint64_t *ret_plain,
	uint64_t *ret_packed);
/* Reads all of the packed form and compares; for doctors and tests. ERR_NOT_FOUND when it is not
 * packed. */
void checkpoints_verify(
	struct checkpoints *checkpoints, const char *id, checkpoints_done done, void *arg);
uint64_t checkpoints_memory_available(void); /* of the machine, for everybody; 0: unknown */
/* Ids of all checkpoints, for finding those nobody needs. Calls fn with each; it may discard. */
void checkpoints_each(
	struct checkpoints *checkpoints, void (*fn)(const char *id, void *arg), void *arg);
