/* checkpoints.h - the processes of captured boxes as files, plain or packed
 *
 *   BOX_HOME/states/ID/plain/…      as the driver wrote it, ready to be restored
 *   BOX_HOME/states/ID/packed.zst   the same files, compressed, with a checksum of each; its end
 *                                   holds its own SHA-256
 *   BOX_HOME/states/ID/shared/…     hard links to files that several checkpoints share (layers of
 *                                   memory); a driver reads them in place, and a file is needed as
 *                                   long as one checkpoint has a link to it
 *   BOX_RUN/states/ID/plain/…       on a tmpfs of the daemon, which ends with it: for forks that
 *                                   are made at once
 *
 * A checkpoint has a plain form, a packed form, or both: then the plain one is a cache. A packed
 * form counts only after its fsync; a damaged one is refused, never restored. A plain form
 * without a packed one survives the daemon (not on the tmpfs) but not a restart of the machine:
 * then nobody knows how much of it reached the disk, so it is removed. The caller must know
 * whether a capture was complete when the daemon died.
 *
 * A form is a flat folder of at most 262144 regular files with names of [A-Za-z0-9._-]. A
 * checkpoint has an id ([a-z0-9]+). The caller knows who needs it, but a plain form in use is
 * held (checkpoints_hold) and not removed meanwhile. Everything slow happens in helper
 * processes. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct checkpoints;

/* run: where the tmpfs is mounted, in the caller's own mount namespace; NULL: none. If it cannot
 * be mounted, that is logged and there is none. What a dead daemon left half packed or half
 * unpacked is removed. */
int checkpoints_open(struct loop *loop, const char *home, const char *run, struct checkpoints **ret,
	struct err *err);
/* Kills helpers; nothing that was on disk is lost. No callback afterwards. Accepts NULL. */
void checkpoints_close(struct checkpoints *checkpoints);

/* Makes a new empty plain form; *ret_dir is its directory, yours to close. quick: on the tmpfs
 * when need bytes fit there (a quarter of the free memory), else on disk as without quick.
 * ERR_LIMIT when there is no room for need bytes, ERR_EXISTS. A capture that needs more than it
 * said may find the tmpfs full: discard, and make one that is not quick. */
int checkpoints_make(struct checkpoints *checkpoints, const char *id, uint64_t need, bool quick,
	int *ret_dir, struct err *err);

/* Opens the folder of a checkpoint's shared files, made if it is missing; yours to close. The
 * checkpoint must not be quick. Packing syncs these files too, but neither copies nor checks
 * them. */
int checkpoints_open_shared(
	struct checkpoints *checkpoints, const char *id, int *ret, struct err *err);

typedef void (*checkpoints_done)(
	const struct err *err, void *arg); /* err NULL: it worked; always from the loop */
typedef void (*checkpoints_opened)(
	int dir, const struct err *err, void *arg); /* dir: yours; -1 with err */

/* When done is called, the packed form exists and is on disk. The plain form stays; files added
 * or grown meanwhile (logs) are packed as they were found. Packing a packed checkpoint is
 * allowed. A failure (ERR_LIMIT: disk full) leaves the plain form as it was and nothing else.
 * One helper per checkpoint, at most two at a time. */
void checkpoints_pack(
	struct checkpoints *checkpoints, const char *id, checkpoints_done done, void *arg);
/* Opens the plain form, unpacks it first if needed (to the tmpfs if it fits there), and holds it
 * until checkpoints_release. ERR_NOT_FOUND; ERR_PROTOCOL, with a message that names the file,
 * when it is damaged; ERR_LIMIT without room. Calls back before it returns when the plain form
 * exists or there is no form at all. */
void checkpoints_plain(
	struct checkpoints *checkpoints, const char *id, checkpoints_opened done, void *arg);
void checkpoints_release(struct checkpoints *checkpoints, const char *id);
/* Cancels the callbacks of arg; a hold that was to be given is released. The work itself goes
 * on. */
void checkpoints_forget(struct checkpoints *checkpoints, const void *arg);
void checkpoints_hold(struct checkpoints *checkpoints, const char *id); /* adds a hold */
/* Pins a checkpoint that will be needed later. A discard of a pinned checkpoint is delayed until
 * its last checkpoints_unpin. False: there is no such checkpoint. */
bool checkpoints_pin(struct checkpoints *checkpoints, const char *id);
void checkpoints_unpin(struct checkpoints *checkpoints, const char *id);
/* Removes plain forms that are packed and not held: all but the `keep` used last, and of those
 * what exceeds a 32nd of the free memory. */
void checkpoints_trim(struct checkpoints *checkpoints, unsigned keep);
void checkpoints_drop_plain(struct checkpoints *checkpoints, const char *id); /* the same for one */
/* Removes the checkpoint from the table at once, and its files when the last hold is released.
 * Callers that wait for it get ERR_CANCELLED. A missing one is no error. An id must not be used
 * again while a hold of the old one exists. */
int checkpoints_discard(struct checkpoints *checkpoints, const char *id, struct err *err);
bool checkpoints_exists(const struct checkpoints *checkpoints, const char *id);
bool checkpoints_is_packed(const struct checkpoints *checkpoints, const char *id);
bool checkpoints_is_quick(
	const struct checkpoints *checkpoints, const char *id); /* its plain form is on the tmpfs */
/* Bytes of each form; 0: none. Reads the folders. Shared files count for the plain form, or for
 * the packed one if there is no other. */
void checkpoints_sizes(const struct checkpoints *checkpoints, const char *id, uint64_t *ret_plain,
	uint64_t *ret_packed);
/* Reads and checks all of the packed form; for doctors and tests. ERR_NOT_FOUND when it is not
 * packed. */
void checkpoints_verify(
	struct checkpoints *checkpoints, const char *id, checkpoints_done done, void *arg);
uint64_t checkpoints_memory_available(void); /* free memory of the machine; 0: unknown */
/* Calls fn with the id of each checkpoint; fn may discard it. */
void checkpoints_each(
	struct checkpoints *checkpoints, void (*fn)(const char *id, void *arg), void *arg);
