/* ram.h - the memory of VM boxes: immutable layers, and private pages over them
 *
 *   BOX_HOME/memory/ID        a layer: a sparse file of the RAM's size, each page at its offset
 *   BOX_HOME/memory/ID.map    which extents of it count, with checksums, and its own checksum
 *
 * A running box is a private mapping of a *stack* of layers plus the pages it has written since
 * (anonymous memory of QEMU). A stack is a list of layer ids, bottom to top; if two layers have
 * a page, the upper one counts; a page in no layer is zero. The empty stack is a machine whose
 * memory is all zero. A layer is never written again: create, fork, wake and rollback are the
 * same operation, mapping a stack.
 *
 * Capture of a running box:   ram_pass_start .. on_ready, stop the guest, ram_pass_last .. on_done,
 *                             ram_link_add (its written pages are in the new layer now, and their
 *                             memory is free again), continue the guest.
 * A box from a stack:         ram_link_map, before the device state is loaded.
 * A template:                 booted in QEMU's own RAM, then captured with `whole`.
 *
 * A small library that is loaded into QEMU (preload/) does the mapping and registering, on a
 * listening socket that survives the daemon. What comes from that socket may come from an
 * attacker. All passes, checks and merges happen in helper processes; every callback comes from
 * the loop, never from within the call that was given it. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct loop;
struct ram_store;
struct ram_link;
struct ram_pass;

enum {
	RAM_ID_LEN = 16, /* [a-z][a-z0-9]{15} */
	/* A stack with more layers, or more pieces than the next, should be merged. */
	RAM_LAYERS_WANTED = 16,
	RAM_PIECES_WANTED = 4000,
	RAM_LAYERS_MAX = 256,	/* more are refused */
	RAM_PIECES_MAX = 30000, /* likewise: each is a mapping of QEMU, which may have 65530 */
};

#define RAM_BYTES_MAX (UINT64_C(64) << 30)

/* ---- the store ------------------------------------------------------------------------------- */

/* home: BOX_HOME; the folder is made, and what a dead daemon left half written is removed. */
int ram_store_open(struct loop *loop, const char *home, struct ram_store **ret, struct err *err);
/* Ends merges, checks and passes; no callback afterwards. Accepts NULL. */
void ram_store_close(struct ram_store *store);

bool ram_id_is_valid(const char *id);
bool ram_store_has(const struct ram_store *store, const char *id);
/* Checks that all layers exist, with the right size and valid maps; their data is not read. */
int ram_store_check(struct ram_store *store, const char *const *stack, struct err *err);
/* The size of a layer on disk; 0: there is none. */
uint64_t ram_store_bytes(const struct ram_store *store, const char *id);
/* Held layers are not removed: running boxes and operations hold them. Holds are counted; each
 * has one release. NULL is an empty stack. */
void ram_store_hold(struct ram_store *store, const char *const *stack);
void ram_store_release(struct ram_store *store, const char *const *stack);
/* Removes all layers that are neither in `used` (NULL-terminated, any order, duplicates allowed)
 * nor held. Boxes that have mapped a removed layer keep it by their mapping. */
void ram_store_keep(struct ram_store *store, const char *const *used);

typedef void (*ram_done)(const struct err *err, void *arg); /* err NULL: it worked */
/* When done is called, all layers of the stack are on disk (fsync). */
void ram_store_sync(struct ram_store *store, const char *const *stack, ram_done done, void *arg);
/* Reads all data of the stack's layers and compares checksums: ERR_PROTOCOL, with a message that
 * names the layer, when one is damaged; ERR_NOT_FOUND when one is missing. For layers read from
 * disk (wake, rollback), not for a fork right after its capture. */
void ram_store_verify(struct ram_store *store, const char *const *stack, ram_done done, void *arg);

bool ram_store_wants_merge(struct ram_store *store, const char *const *stack);
/* Makes a stack with the same content in fewer layers: the upper ones become one new layer;
 * large lower ones stay. All old files stay for others that use them. *stack is yours
 * (strv_free) and held once for you; NULL with err. */
typedef void (*ram_merged)(char **stack, const struct err *err, void *arg);
void ram_store_merge(struct ram_store *store, const char *const *stack, ram_merged done, void *arg);
/* Cancels the callbacks of arg; the work itself ends or continues. */
void ram_store_forget(struct ram_store *store, const void *arg);

/* ---- the library in QEMU --------------------------------------------------------------------- */

/* Writes the library to run/box-ram.so (0555). *ret_path is yours: LD_PRELOAD of QEMU. */
int ram_library_write(const char *run, char **ret_path, struct err *err);
/* The environment variable with the number of the inherited listening socket. The library
 * removes this and LD_PRELOAD from the environment. */
#define RAM_LIBRARY_VARIABLE "BOX_RAM_FD"
/* Makes a listening socket for the library (SOCK_SEQPACKET, unlike QEMU's own), close-on-exec;
 * ram_connect connects to it, at once or not at all. A process that nobody connects to within 60
 * s ends. */
int ram_listen(const char *path, int *ret, struct err *err);
int ram_connect(const char *path, int *ret, struct err *err);

/* A connection to the library of a QEMU. There is one at a time: the next one waits. */
typedef void (*ram_lost)(struct ram_link *link, const struct err *err, void *arg);
/* Takes a connected socket. QEMU must have started (QMP answers): the first time its RAM is
 * found in /proc/PID/maps, as its only shared mapping of ram_bytes bytes; later daemons are told
 * by the library. A library that violates the protocol or does not answer within 30 s is lost:
 * all pending calls get the error, then on_lost is called once. on_lost may free the link. */
struct ram_link *ram_link_new(
	struct loop *loop, int fd, pid_t pid, uint64_t ram_bytes, ram_lost on_lost, void *arg);
void ram_link_free(struct ram_link *link); /* nobody is called any more; accepts NULL */
/* Until this is sent, QEMU ends with the connection: it was a waiting one that nobody took.
 * Afterwards it outlives its daemons. */
void ram_link_keep(struct ram_link *link, ram_done done, void *arg);
/* Maps this stack as the RAM of a machine that has not run or is stopped. Layers are checked
 * (size, map), their data is not. ERR_PROTOCOL names a damaged layer, ERR_NOT_FOUND a missing
 * one; ERR_LIMIT: too many layers or pieces, use ram_store_merge. After a failure before
 * anything was sent the machine is unchanged; after ERR_UNAVAILABLE it must be ended. */
void ram_link_map(struct ram_link *link, struct ram_store *store, const char *const *stack,
	ram_done done, void *arg);
/* Drops the private copies of what the top layer of the stack contains, in a machine that has
 * been stopped since the last pass: its memory is the layer's from now on. If there are many
 * mappings already, the whole stack is mapped again. */
void ram_link_add(struct ram_link *link, struct ram_store *store, const char *const *stack,
	ram_done done, void *arg);

/* ---- passes ---------------------------------------------------------------------------------- */

struct ram_pass_spec {
	struct ram_link *link;
	/* The machine was booted and no stack was ever mapped into it: its RAM is QEMU's own
	 * file, and the last pass copies all of it. stack is NULL then. */
	bool whole;
	int pidfd; /* of QEMU; borrowed until the end */
	const char *const *stack;
	int disk; /* the box's disk file: fdatasync and a commit of its file system before on_ready;
		   * -1: none; borrowed for the call */
};

struct ram_pass_result {
	const char *layer;	    /* the new one; NULL: nothing was written since the stack */
	const char *const *stack;   /* old stack and new layer; held once for you */
	uint64_t bytes, last_bytes; /* in the new layer; copied by the last pass */
	unsigned extents;
	/* duration of the passes while the guest runs; of the last one */
	uint64_t live_us, last_us;
	/* false: not supported by this kernel; the last pass copied everything */
	bool precopy;
};

struct ram_pass_ops {
	/* The guest ran until now. Stop it, then call ram_pass_last. */
	void (*on_ready)(struct ram_pass *pass, void *arg);
	/* Called once, at the end; then free it. With err (ERR_LIMIT: disk full,
	 * ERR_UNAVAILABLE: QEMU has ended) result is NULL, nothing is left and the guest may
	 * continue. */
	void (*on_done)(struct ram_pass *pass, const struct ram_pass_result *result,
		const struct err *err, void *arg);
};

/* Starts to copy what the guest of link has written since stack. One at a time per link. */
int ram_pass_start(struct ram_store *store, const struct ram_pass_spec *spec,
	const struct ram_pass_ops *ops, void *arg, struct ram_pass **ret, struct err *err);
void ram_pass_last(struct ram_pass *pass); /* the guest is stopped, and stays so until on_done */
/* Cancels it if it has not ended; nothing is left. No callback. Accepts NULL. Call it before its
 * link is freed, and best when the guest continues: then the library ends the write protection. */
void ram_pass_free(struct ram_pass *pass);
