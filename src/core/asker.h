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
#include <stdbool.h>

struct box;
struct yard;

enum { ASKER_WHO_SIZE = 96, OWNER_SIZE = 64 };

struct asker {
	char who[ASKER_WHO_SIZE]; /* for events and the audit log: "token ci" */
	char owner[OWNER_SIZE];
	bool sees_all; /* the things of all owners */
};

/* The box asks for itself: "box ada", its owner. */
void asker_of_box(struct asker *asker, const struct box *box);

/* Returns the asker before, to be put back. asker is borrowed until then; NULL: the daemon. */
const struct asker *yard_set_asker(struct yard *yard, const struct asker *asker);
const struct asker *yard_get_asker(const struct yard *yard); /* or NULL */
/* Whether what belongs to owner exists for the asker. */
bool yard_may_see(const struct yard *yard, const char *owner);
/* Whose the things are that are made now. */
const char *yard_get_owner(const struct yard *yard);
/* NULL unless the asker sees one owner's things alone: then that owner. */
const char *yard_only_owner(const struct yard *yard);
/* Its words for events: "daemon" without an asker. */
const char *yard_get_who(const struct yard *yard);

/* The asker, if there is one, began something with the box that ends later: events of the box name
 * it until box_forget_asker. */
void box_note_asker(struct box *box);
void box_forget_asker(struct box *box);
/* Who started a program of the box, for the events of its start and its end: box-init, which tells
 * of them, does not know. NULL: not known, such as after a restart of the daemon. */
void box_note_exec(struct box *box, const char *exec, const char *who);
const char *box_exec_who(const struct box *box, const char *exec);
void box_forget_exec(struct box *box, const char *exec); /* NULL: all */
