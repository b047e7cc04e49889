/* tree.h - boxes that came out of one box from inside, and what they may use together
 *
 * A tree is a box that somebody made from outside, and all boxes that were made from inside it: its
 * forks, their forks, and so on. What the first one may use, all of them together may use: whoever
 * gives out something that is scarce (memory, processes, disk space, connections, lines of a log)
 * counts by tree, not by box. A box that nobody forked from inside is a tree of its own, and so is
 * a fork that was made from outside.
 *
 * The limits of a tree are those of its head, its first box, and follow them, unless they were
 * given to the tree itself. A promoted fork of the tree is its head from then on. When the head is
 * removed, tree and limits stay as they are. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct box;
struct limits;

/* The id of the tree a box belongs to: that of its first box. Borrowed; it stays the same while the
 * box lives. */
const char *box_get_tree(const struct box *box);
bool box_is_akin(const struct box *box, const struct box *other); /* both belong to one tree */

/* {"id","head":name or null,"boxes":N,"limits":{"cpu","memory","pids"}}; new reference. */
json_t *box_tree_json(const struct box *box);
/* Sets the limits of the tree itself, independent of its head: BOX_LIMIT_DEFAULT in a field leaves
 * it, 0 means unlimited; the disk limit is ignored. given NULL: follow the head again. Fails with
 * ERR_STATE as box_set does. */
int box_set_tree(struct box *box, const struct limits *given, struct err *err);
