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
	INTENT_REMOVE_KEEP, /* as INTENT_REMOVE, but its workspace is kept */
	INTENT_GONE,	    /* removed for everybody but us: remains are cleaned up */
	INTENT_FORK,
	INTENT_WAKE,
	INTENT_WOKEN, /* programs run or are about to: the hibernated state is outdated */
	INTENT_HIBERNATE,
	INTENT_ROLLBACK, /* the present has not been touched */
	/* the present is being ended: the box goes to the snapshot named in the row */
	INTENT_ROLLBACK_TO,
	INTENT_COUNT
};

const char *intent_name(enum intent intent); /* as stored in the row: "" "create" … */
enum intent intent_from_name(const char *name);
bool intent_is_removal(enum intent intent);

/* What a new daemon does with a box. */
enum fate {
	FATE_NONE,
	FATE_ADOPTED,	 /* goes on as its row says */
	FATE_UNTOUCHED,	 /* goes on as before the operation */
	FATE_FINISHED,	 /* comes up when box-init answers, else is ended */
	FATE_KILLED,	 /* is killed; then the wanted change continues */
	FATE_STOPPED,	 /* becomes stopped, as was wanted */
	FATE_LOST,	 /* becomes stopped, with the reason */
	FATE_KEPT,	 /* the same if it has a disk; else it is removed */
	FATE_REMOVED,	 /* is removed without a trace */
	FATE_HIBERNATED, /* its processes are ended; it stays hibernated */
	FATE_GOES_BACK,	 /* its processes are ended; the rollback continues */
	FATE_COUNT
};

struct recovery {
	enum fate runs;	     /* the instance still runs */
	enum fate ended;     /* it has ended, without a restart of the machine */
	enum fate restarted; /* the machine was restarted */
	/* Used instead of all three, whatever runs; FATE_NONE: not used. */
	enum fate with_state; /* the row names a hibernated state */
	enum fate as_copy;    /* it is a fork being restored, and the machine was not restarted */
	enum fate always;
};
const struct recovery *intent_recovery(enum intent intent);

void intent_table(struct buf *out); /* as Markdown */
