/* auto.h - snapshots that are taken by themselves: before each program, or now and then
 *
 * A box says when: "off", "exec" (before each program that is started from outside) or
 * "interval=300" (seconds between them, as long as the box does something). What cannot be captured
 * whole is kept as a disk-only snapshot; when that fails too, the box goes on without, and an event
 * snapshot.failed says why. */
#pragma once
#include "core/box.h"

enum auto_kind { AUTO_OFF, AUTO_EXEC, AUTO_INTERVAL };

struct auto_snapshot {
	enum auto_kind kind;
	uint64_t interval_s; /* AUTO_INTERVAL */
};

enum { AUTO_INTERVAL_MIN_S = 10, AUTO_INTERVAL_MAX_S = 30 * 86400 };

/* "off", "exec", "interval=300" or "interval=5m"; whole seconds from 10 s to 30 days. "" is off. */
int auto_snapshot_parse(const char *text, struct auto_snapshot *ret, struct err *err);
/* As rows keep it; yours. */
char *auto_snapshot_text(const struct auto_snapshot *when);

/* From now on; text as above. */
int box_set_auto_snapshot(struct box *box, const char *text, struct err *err);
