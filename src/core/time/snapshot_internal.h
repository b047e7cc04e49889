/* snapshot_internal.h - what the files of snapshots share
 *
 *   snapshot.c         the list, rows, packing, what is told of them, the daemon's start and end
 *   snapshot_make.c    the verb: who asks for one, and when he is answered
 *   snapshot_remove.c  what goes: on request, with its box, and as time passes */
#pragma once
#include "core/core_internal.h"

enum { SNAPSHOTS_INSIDE_MAX = 100 }; /* made from inside: so many with a name, so many without */

void snapshot_unlist(struct yard *yard, struct snapshot *snapshot);
bool snapshot_is_of(const struct snapshot *snapshot, const struct box *box);
/* Its row; a write that fails is tried again. */
void snapshot_write(struct yard *yard, struct snapshot *snapshot, enum store_grade grade);
bool snapshot_is_slept_in(const struct yard *yard, const char *state);
/* Everybody who still waits for a snapshot hears err. */
void snapshot_wishes_end(struct yard *yard, const struct err *err);
