/* tree.h - boxes that came out of one box from inside
 *
 * A tree is a box that somebody made from outside, and all boxes that were made from inside it: its forks, their forks,
 * and so on. What the first one may use, all of them together may use: whoever gives out something that is scarce
 * (memory, processes, disk space, connections, lines of a log) counts by tree, not by box. A box that nobody forked from
 * inside is a tree of its own, and so is a fork that was made from outside. A tree keeps its id when its first box is
 * removed, or replaced by a promoted one. */
#pragma once
#include <stdbool.h>

struct box;

/* The id of the tree a box belongs to: that of its first box. Borrowed; it stays the same while the box lives. */
const char *box_get_tree(const struct box *box);
bool box_is_akin(const struct box *box, const struct box *other); /* of one tree */
