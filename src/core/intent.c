/* intent.c - intents, their names, and what a new daemon does with them */
#include "core/intent.h"
#include "base/alloc.h"

static const char *const names[] = {
	[INTENT_NONE] = "",
	[INTENT_CREATE] = "create",
	[INTENT_START] = "start",
	[INTENT_STOP] = "stop",
	[INTENT_REMOVE] = "remove",
	[INTENT_REMOVE_KEEP] = "remove-keep",
	[INTENT_GONE] = "gone",
	[INTENT_FORK] = "fork",
	[INTENT_WAKE] = "wake",
	[INTENT_WOKEN] = "woken",
	[INTENT_HIBERNATE] = "hibernate",
	[INTENT_ROLLBACK] = "rollback",
	[INTENT_ROLLBACK_TO] = "rollback-to",
};
_Static_assert(ARRAY_LEN(names) == INTENT_COUNT, "every intent has a name");

/* A half-made restore looks like a running box, so it is ended and restored again. For a fork it is
 * unknown whether it already has its identity, so it is removed. */
static const struct recovery recoveries[] = {
	[INTENT_NONE] = { FATE_ADOPTED, FATE_LOST, FATE_LOST },
	[INTENT_CREATE] = { FATE_FINISHED, FATE_REMOVED, FATE_KEPT, .as_copy = FATE_REMOVED },
	[INTENT_START] = { FATE_FINISHED, FATE_LOST, FATE_LOST },
	[INTENT_STOP] = { FATE_KILLED, FATE_STOPPED, FATE_STOPPED },
	[INTENT_REMOVE] = { FATE_KILLED, FATE_REMOVED, FATE_REMOVED },
	[INTENT_REMOVE_KEEP] = { FATE_KILLED, FATE_REMOVED, FATE_REMOVED },
	[INTENT_GONE] = { FATE_KILLED, FATE_REMOVED, FATE_REMOVED },
	[INTENT_FORK] = { .always = FATE_REMOVED },
	[INTENT_WAKE] = { .always = FATE_HIBERNATED },
	[INTENT_WOKEN] = { FATE_FINISHED, FATE_LOST, FATE_LOST },
	[INTENT_HIBERNATE] = { FATE_UNTOUCHED, FATE_LOST, FATE_LOST,
		.with_state = FATE_HIBERNATED },
	[INTENT_ROLLBACK] = { FATE_UNTOUCHED, FATE_LOST, FATE_LOST, .with_state = FATE_HIBERNATED },
	[INTENT_ROLLBACK_TO] = { .always = FATE_GOES_BACK },
};
_Static_assert(ARRAY_LEN(recoveries) == INTENT_COUNT, "every intent has its recovery");

static const char *const fates[] = {
	[FATE_NONE] = "",
	[FATE_ADOPTED] = "goes on",
	[FATE_UNTOUCHED] = "goes on as before",
	[FATE_FINISHED] = "finished: running",
	[FATE_KILLED] = "killed, then as wanted",
	[FATE_STOPPED] = "stopped",
	[FATE_LOST] = "stopped, \"lost\"",
	[FATE_KEPT] = "stopped if it has a disk",
	[FATE_REMOVED] = "removed",
	[FATE_HIBERNATED] = "hibernated",
	[FATE_GOES_BACK] = "goes on to its target",
};
_Static_assert(ARRAY_LEN(fates) == FATE_COUNT, "every fate has its words");

const char *intent_name(enum intent intent)
{
	return names[intent];
}

/* An intent of a newer version, unknown here, still guards something: the box is ended. */
enum intent intent_from_name(const char *name)
{
	for (unsigned i = 0; i < INTENT_COUNT; i++)
		if (!strcmp(names[i], name))
			return i;
	return INTENT_STOP;
}

bool intent_is_removal(enum intent intent)
{
	return intent == INTENT_REMOVE || intent == INTENT_REMOVE_KEEP || intent == INTENT_GONE;
}

const struct recovery *intent_recovery(enum intent intent)
{
	return &recoveries[intent];
}

static void add_row(struct buf *out, enum intent intent)
{
	const struct recovery *row = &recoveries[intent];
	const char *name = intent ? names[intent] : "none, it ran or was suspended";

	if (row->always) {
		buf_addf(out, "| %s | %s | %s | %s | |\n", name, fates[row->always],
			fates[row->always], fates[row->always]);
		return;
	}
	buf_addf(out, "| %s | %s | %s | %s | %s%s%s%s |\n", name, fates[row->runs],
		fates[row->ended], fates[row->restarted],
		row->with_state ? "a state is on record: " : "", fates[row->with_state],
		row->as_copy ? "from processes of another, without a restart: " : "",
		fates[row->as_copy]);
}

void intent_table(struct buf *out)
{
	buf_addf(out, "| intent in the row | it still runs | it has ended | the machine was "
		      "restarted | unless |\n| --- | --- | --- | --- | --- |\n");
	for (unsigned i = 0; i < INTENT_COUNT; i++)
		add_row(out, i);
}
