/* asker.h - for whom the yard works right now
 *
 * A front door sets the asker before it calls the verbs of core and puts the one before back when
 * they return (auth.h does both). The daemon is one thread, so there is one asker at a time. While
 * it is set
 *   - box_find, box_each, images, volumes, workspaces, events and the audit log show what its
 *     owner has, and nothing else;
 *   - what is made belongs to its owner;
 *   - every event names it.
 * Without one (timers, recovery, results that come later) the daemon works for itself and finds
 * everything. What was begun for an asker and goes on later keeps its name: box_note_asker. */
#pragma once
#include "base/err.h"
#include "base/text.h"
#include <stdbool.h>

struct box;
struct yard;

enum { ASKER_WHO_SIZE = 96, OWNER_SIZE = 64 };

struct asker {
	char who[ASKER_WHO_SIZE]; /* name used in events and in the audit log: "token ci" */
	char owner[OWNER_SIZE];
	bool sees_all; /* sees what all owners have */
	/* Not "": bound to its owner's box of this name. That box is all there is for it: no other
	 * box, no volume, workspace or image of its owner. */
	char only_box[NAME_MAX_LEN + 1];
};

/* Fills asker for a box that asks for itself: who is "box NAME", the owner is the box's owner. */
void asker_of_box(struct asker *asker, const struct box *box);

/* Sets the asker and returns the previous one, which the caller puts back. asker is borrowed until
 * then; NULL means the daemon itself. */
const struct asker *yard_set_asker(struct yard *yard, const struct asker *asker);
/* Whether the asker may see things that belong to owner; not for boxes. */
bool yard_may_see(const struct yard *yard, const char *owner);
bool yard_may_see_box(const struct yard *yard, const struct box *box);
/* The owner of things that are created now. */
const char *yard_get_owner(const struct yard *yard);
/* The only owner whose things the asker sees; NULL when the asker sees everything. */
const char *yard_only_owner(const struct yard *yard);
/* The asker's name for events; "daemon" without an asker. */
const char *yard_get_who(const struct yard *yard);

/* Remembers the asker, if there is one, while an operation of the box goes on: events of the box
 * name the asker until box_forget_asker. */
void box_note_asker(struct box *box);
void box_forget_asker(struct box *box);
/* Remembers who started a program of the box, for the events of its start and end: box-init reports
 * both but does not know who asked. box_exec_who returns NULL when that is not known, for example
 * after a restart of the daemon. */
void box_note_exec(struct box *box, const char *exec, const char *who);
const char *box_exec_who(const struct box *box, const char *exec);
void box_forget_exec(struct box *box, const char *exec); /* NULL: all */
