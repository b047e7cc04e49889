/* states.h - what captures wrote: the processes of a box in files, plain or packed
 *
 *   BOX_HOME/states/ID/plain/…      as the driver wrote it, ready to be restored from
 *   BOX_HOME/states/ID/packed.zst   the same files, compressed, with a checksum of each; its end
 *                                   holds its own SHA-256
 *   BOX_RUN/states/ID/plain/…       on a tmpfs of the daemon's own, which ends with it: for forks
 *                                   that are made at once
 *
 * A state is in plain form, in packed form, or in both: then the plain one is a cache. What is
 * packed is safe (fsync) before it counts; a damaged one is refused, never restored. A plain form
 * that is not packed survives the daemon (not on the tmpfs) but not the machine: after a restart of
 * the machine nobody knows how much of it reached the disk, so it is removed. Whether a capture was
 * through when the daemon died is the caller's to know.
 *
 * A form is a flat folder of at most 262144 regular files, names of [A-Za-z0-9._-]. States are told
 * apart by id ([a-z0-9]+); who needs one is the caller's affair, but a plain form somebody works
 * with is held (states_hold) and not dropped under him. Everything slow happens in helper
 * processes. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct states;

/* run: where the tmpfs is mounted, in the caller's mount namespace, which is its own; NULL: none.
 * One that cannot be mounted is told in the log and done without. What a dead daemon left half
 * packed or half unpacked is removed. */
int states_open(
	struct loop *loop, const char *home, const char *run, struct states **ret, struct err *err);
/* Ends helpers; nothing is lost that was safe. Nobody is called any more. Accepts NULL. */
void states_close(struct states *states);

/* A new empty plain form; *ret_dir is its directory, yours to close. quick: on the tmpfs when need
 * bytes fit there (a quarter of the memory that is free), else on disk as without quick. ERR_LIMIT
 * when there is no room for need bytes, ERR_EXISTS. A capture that needs more than it said may meet
 * a full tmpfs: discard, and make one that is not quick. */
int states_make(struct states *states, const char *id, uint64_t need, bool quick, int *ret_dir,
	struct err *err);

typedef void (*states_done)(
	const struct err *err, void *arg); /* err NULL: it worked; always from the loop */
typedef void (*states_opened)(
	int dir, const struct err *err, void *arg); /* dir: yours; -1 with err */

/* The packed form is there and safe when done is called. The plain form stays; files added or grown
 * meanwhile (logs) are packed as they were found. Packing what is packed is fine. A failure
 * (ERR_LIMIT: disk full) leaves the plain form as it was and nothing else. One helper a state;
 * several pack beside each other, two at most. */
void states_pack(struct states *states, const char *id, states_done done, void *arg);
/* The plain form, unpacked first if need be (to the tmpfs if it fits there), and held until
 * states_release. ERR_NOT_FOUND; ERR_PROTOCOL, with a message that names the file, when it is
 * damaged; ERR_LIMIT without room. Called at once, before it returns, when the plain form is there
 * or no form at all. */
void states_plain(struct states *states, const char *id, states_opened done, void *arg);
void states_release(struct states *states, const char *id);
/* Whoever asked with arg is not called any more; a hold he was to get is released. What he asked
 * for goes on. */
void states_forget(struct states *states, const void *arg);
void states_hold(struct states *states, const char *id); /* one more */
/* Will be asked for later, perhaps after its owner has discarded it: that happens with the last
 * states_unpin, and until then it is as if it had not been discarded. False: there is none. */
bool states_pin(struct states *states, const char *id);
void states_unpin(struct states *states, const char *id);
/* Drops plain forms that nobody holds and that are packed: all but the `keep` used last, and of
 * those what is more than a 32nd of the free memory. */
void states_trim(struct states *states, unsigned keep);
void states_drop_plain(struct states *states, const char *id); /* of one, likewise */
/* Gone at once; its files when the last hold is released. What waits for it gets ERR_CANCELLED. One
 * that is not there is no error. An id is not to be used again while a hold of the old one is
 * out. */
int states_discard(struct states *states, const char *id, struct err *err);
bool states_exists(const struct states *states, const char *id);
bool states_is_packed(const struct states *states, const char *id);
bool states_is_quick(const struct states *states, const char *id); /* its plain form is in memory */
/* Bytes of each form; 0: none. Looks at the files. */
void states_sizes(
	const struct states *states, const char *id, uint64_t *ret_plain, uint64_t *ret_packed);
/* Reads all of the packed form and compares; for doctors and tests. ERR_NOT_FOUND when it is not
 * packed. */
void states_verify(struct states *states, const char *id, states_done done, void *arg);
uint64_t states_memory_available(void); /* of the machine, for everybody; 0: unknown */
/* Ids of all states, for finding those nobody needs. Calls fn with each; it may discard. */
void states_each(struct states *states, void (*fn)(const char *id, void *arg), void *arg);
