/* timeline_tree.h - a time line drawn as a tree
 *
 *   SNAPSHOT           TIME                  CAUSE     KIND  …
 *   ├─ base            2026-01-02 10:00:00Z  request   full
 *   │  ├─ k3v9         2026-01-02 10:20:00Z  rollback  full      went another way from base
 *   │  └─ ⑂ eve        2026-01-02 10:25:00Z  fork                a box forked from base, or later
 *   ├─ x7k2            2026-01-02 10:30:00Z  exec      full      goes back to base
 *   └─ ● now
 *
 * What stands on one level goes back to the one above it on that level, up to the └─ that ends a
 * branch; a branch is drawn below where it begins. */
#pragma once
#include "base/json.h"
#include "cli/table.h"

struct cli;

/* timeline as the API gives it, and boxes, an array: those forked from its box are drawn. The table
 * is yours. */
struct table *timeline_tree(json_t *timeline, json_t *boxes);

/* POSTs body (consumed). The daemon finishes the work even when nobody waits: Ctrl-C says so. */
int timeline_post(struct cli *cli, const char *path, json_t *body, const char *box, json_t **ret,
	struct err *err);
/* A suffix for messages about a snapshot: " (its disk alone)", or "" when it has processes. */
const char *snapshot_extent(json_t *snapshot);
