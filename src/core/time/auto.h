/* auto.h - automatic snapshots: before each program, or at an interval
 *
 * A box's setting is "off", "exec" (before each program started from outside) or "interval=300"
 * (seconds between snapshots, while the box does something). What cannot be captured with its
 * processes is kept as a disk-only snapshot; when that fails too, the box goes on without one, and
 * the event snapshot.failed says why. */
#pragma once
#include "core/box.h"

enum auto_kind { AUTO_OFF, AUTO_EXEC, AUTO_INTERVAL };

struct auto_snapshot {
	enum auto_kind kind;
	uint64_t interval_s; /* AUTO_INTERVAL */
};

/* The automatic snapshots of a box, as far as this daemon knows. */
struct box_auto {
	int64_t due_us;	     /* monotonic, of the next one; 0: not known yet */
	uint64_t cpu_us;     /* CPU time at the last one */
	struct attempt *now; /* the one in progress, or NULL */
};

enum { AUTO_INTERVAL_MIN_S = 10, AUTO_INTERVAL_MAX_S = 30 * 86400 };

/* Parses "off", "exec", "interval=300" or "interval=5m"; whole seconds from 10 s to 30 days. "" is
 * off. */
int auto_snapshot_parse(const char *text, struct auto_snapshot *ret, struct err *err);
/* The text for the row; yours. */
char *auto_snapshot_text(const struct auto_snapshot *when);

/* Changes the setting from now on; text as above. */
int box_set_auto_snapshot(struct box *box, const char *text, struct err *err);
