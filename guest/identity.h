/* identity.h - gives a restored box its identity
 *
 * A fork gets its own machine id, host name and randomness, and its programs a chance to renew
 * theirs: executables in /etc/boxyard/fork.d run, in the order of their names, with BOX_EVENT=fork
 * BOX_NAME BOX_ID BOX_PARENT and BOX_FORK_INDEX. A box that was woken or rolled back gets
 * randomness, and /etc/boxyard/restore.d runs with BOX_EVENT=wake or rollback. Each program has
 * HOOK_MS, all of them HOOKS_MS; only then does the daemon serve the box.
 *
 * Askers that wait in self.h are answered when it is done. */
#pragma once
#include "wire/wire.h"

struct channel;

enum {
	HOOKS_MAX = 32,
	HOOK_MS = 5000,
	HOOKS_MS = 25000,
};

int identity_open(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
int identity_open_restored(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);

/* ---- identity_run.c: the part that may block, in a process of its own ----------------------- */

struct identity_job {
	bool fork;
	const char *event; /* "fork" "wake" "rollback" */
	char name[64], id[64], parent[64];
	uint32_t index;
	uint8_t seed[WIRE_SEED];
	char root[256]; /* prefix of all paths, for tests. "-": no file is touched */
};

struct identity_result {
	struct err err; /* kind set: the box has no identity of its own */
	uint32_t ran, failed;
	char failure[201];
};

void identity_run(const struct identity_job *job, struct identity_result *ret);
/* Of a VM: identity_run would touch plain files on the box's own disk alone and run no program, so
 * box-init can do it itself. A process more is what takes longest in a copy whose processor is
 * emulated: none of its code has run there yet. A box that puts something else there meanwhile
 * delays itself. Does not block. */
bool identity_is_quick(const struct identity_job *job);

/* Of a VM that is a new box: a machine id of its own, and SSH keys if its image has some, which are
 * made in the background; the old ones are gone when this returns. A fork of a VM gets new keys
 * too, by identity_run. May block. */
int identity_make(struct err *err);
