/* intent.h - what is being done to a box, as its row says it, and what a new daemon makes of it
 *
 * An intent is written before the side effects of a change and taken back after them. A daemon that
 * finds one in a row did not live to its end: recover.c does what the table says.
 * docs/lifecycle.md has the same table, printed by intent_table. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>

enum intent {
	INTENT_NONE,
	INTENT_CREATE,
	INTENT_START,
	INTENT_STOP,
	INTENT_REMOVE,
	INTENT_REMOVE_KEEP, /* and its workspace is kept */
	INTENT_GONE,	    /* removed, for everybody but us: what is left of it is cleaned up */
	INTENT_FORK,
	INTENT_WAKE,
	INTENT_WOKEN, /* its programs run, or are about to: the state it slept in is old */
	INTENT_HIBERNATE,
	INTENT_ROLLBACK,    /* its present has not been touched */
	INTENT_ROLLBACK_TO, /* its present ends: it goes on to the snapshot that the row names */
	INTENT_COUNT
};

const char *intent_name(enum intent intent); /* as in the row: "" "create" … */
enum intent intent_from_name(const char *name);
bool intent_is_removal(enum intent intent);

/* What becomes of a box. */
enum fate {
	FATE_NONE,
	FATE_ADOPTED,	 /* it goes on as its row says */
	FATE_UNTOUCHED,	 /* it goes on as it was before */
	FATE_FINISHED,	 /* it comes up when box-init answers, and ends when it does not */
	FATE_KILLED,	 /* it is killed; its end goes on with what was wanted */
	FATE_STOPPED,	 /* it is stopped, as was wanted */
	FATE_LOST,	 /* it is stopped, and says how that came */
	FATE_KEPT,	 /* the same if it has a disk; else it leaves no trace */
	FATE_REMOVED,	 /* it leaves no trace */
	FATE_HIBERNATED, /* what runs of it is ended; it sleeps in its state */
	FATE_GOES_BACK,	 /* what runs of it is ended; it goes on to its target */
	FATE_COUNT
};

struct recovery {
	enum fate runs;	     /* it still runs */
	enum fate ended;     /* it does not, though the machine was not restarted */
	enum fate restarted; /* the machine was */
	/* Instead of all three, without a look at what runs; FATE_NONE: they hold. */
	enum fate with_state; /* its row names a state that it sleeps in */
	enum fate as_copy;    /* it came from processes of another, and the machine still runs */
	enum fate always;
};
const struct recovery *intent_recovery(enum intent intent);

void intent_table(struct buf *out); /* as Markdown */
