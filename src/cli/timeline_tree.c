/* timeline_tree.c - see timeline_tree.h
 *
 * A chain is a run of snapshots, each the parent of the next; at each of them one child continues
 * the chain (the one that leads to now, else the newest), and the others begin branches, one level
 * deeper, with the boxes that were forked there. A branch that is alone on its level is a chain;
 * where there are several, each is its first snapshot with the rest one level deeper, so that the
 * last thing on a level, and nothing else, has a └─. */
#include "cli/timeline_tree.h"
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"

enum { DEPTH_MAX = 40 }; /* depth of branches that are drawn; deeper ones are drawn flat */

struct tree {
	json_t *snapshots; /* oldest first */
	json_t *boxes;
	const char *box, *position;
	size_t count;
	size_t *parent; /* index, or count: none */
	bool *to_now;	/* on the way from a root to the position */
	struct table *table;
};

static const char *id_of(const struct tree *tree, size_t index)
{
	return json_str(json_array_get(tree->snapshots, index), "id");
}

static size_t index_of(const struct tree *tree, const char *id)
{
	for (size_t i = 0; *id && i < tree->count; i++)
		if (!strcmp(id_of(tree, i), id))
			return i;
	return tree->count;
}

/* A parent that is not older would make a circle, so it is ignored. */
static void link_up(struct tree *tree)
{
	size_t at;

	for (size_t i = 0; i < tree->count; i++) {
		at = index_of(tree, json_str(json_array_get(tree->snapshots, i), "parent"));
		tree->parent[i] = at < i ? at : tree->count;
	}
	for (at = index_of(tree, tree->position); at < tree->count; at = tree->parent[at])
		tree->to_now[at] = true;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void add_empty(struct tree *tree, unsigned cells)
{
	while (cells--)
		table_add(tree->table, "");
}

static const char *corner(bool last)
{
	return last ? "└─" : "├─";
}

static void add_now(struct tree *tree, const char *prefix)
{
	table_addf(tree->table, "%s%s ● now", prefix, corner(true));
	add_empty(tree, 6);
}

static void add_size(struct tree *tree, json_t *size)
{
	char text[16];

	table_add(tree->table, json_integer_value(size) > 0
				       ? format_size((uint64_t)json_integer_value(size), text)
				       : "-");
}

/* "2026-01-02T10:00:00.123Z" to the second. */
static void add_time(struct tree *tree, const char *rfc3339)
{
	if (strlen(rfc3339) < 19)
		table_add(tree->table, "-");
	else
		table_addf(tree->table, "%.10s %.8sZ", rfc3339, rfc3339 + 11);
}

static void add_fork(struct tree *tree, const char *prefix, bool last, json_t *box)
{
	table_addf(tree->table, "%s%s ⑂ %s", prefix, corner(last), json_str(box, "name"));
	add_time(tree, json_str(box, "created_at"));
	table_add(tree->table, "fork");
	add_empty(tree, 4);
}

static void add_snapshot(struct tree *tree, const char *prefix, bool last, size_t index)
{
	json_t *snapshot = json_array_get(tree->snapshots, index);
	const char *name = json_str(snapshot, "name");
	json_t *stored = json_object_get(snapshot, "stored_bytes");

	table_addf(tree->table, "%s%s %s", prefix, corner(last),
		*name ? name : json_str(snapshot, "id"));
	add_time(tree, json_str(snapshot, "created_at"));
	table_add(tree->table, json_str(snapshot, "cause"));
	table_add(tree->table, json_str(snapshot, "kind"));
	add_size(tree,
		json_integer_value(stored) > 0 ? stored : json_object_get(snapshot, "state_bytes"));
	add_size(tree, json_object_get(snapshot, "disk_bytes"));
	table_add(tree->table, json_str(snapshot, "detail"));
}

/* ---- chains --------------------------------------------------------------------------------- */

/* Which child of index (count: of nothing) continues the chain; count: none, or now does. */
static size_t next_of(const struct tree *tree, size_t index)
{
	size_t newest = tree->count;

	if (index < tree->count && !strcmp(id_of(tree, index), tree->position))
		return tree->count;
	for (size_t i = 0; i < tree->count; i++) {
		if (tree->parent[i] != index)
			continue;
		if (tree->to_now[i])
			return i;
		newest = i;
	}
	/* Without a position, now has no parent. */
	return index == tree->count && index_of(tree, tree->position) == tree->count ? tree->count
										     : newest;
}

/* Whether box was forked from that snapshot or from the state after it. index count: from before
 * all that is kept. */
static bool is_fork_of(const struct tree *tree, json_t *box, size_t index)
{
	json_t *origin = json_object_get(box, "origin");
	const char *snapshot = json_str(origin, "snapshot");

	return !strcmp(json_str(origin, "box"), tree->box) &&
	       index_of(tree, *snapshot ? snapshot : json_str(origin, "position")) == index;
}

static void draw_chain(struct tree *tree, size_t first, const char *prefix, unsigned depth);
static void draw_branch(
	struct tree *tree, size_t first, const char *prefix, bool last, unsigned depth);

static size_t count_below(const struct tree *tree, size_t index, size_t next)
{
	size_t count = 0, i;
	json_t *box;

	for (i = 0; i < tree->count; i++)
		count += tree->parent[i] == index && i != next;
	json_array_foreach (tree->boxes, i, box)
		count += is_fork_of(tree, box, index);
	return count;
}

/* Draws what begins at index besides its chain: other snapshots, each a branch, then boxes. more:
 * something follows on this level. */
static void draw_below(
	struct tree *tree, size_t index, size_t next, const char *prefix, bool more, unsigned depth)
{
	size_t left = count_below(tree, index, next), i;
	bool alone = left == 1 && !more;
	json_t *box;

	for (i = 0; i < tree->count; i++) {
		if (tree->parent[i] != index || i == next)
			continue;
		left--;
		if (alone)
			draw_chain(tree, i, prefix, depth);
		else
			draw_branch(tree, i, prefix, !left && !more, depth);
	}
	json_array_foreach (tree->boxes, i, box)
		if (is_fork_of(tree, box, index)) {
			left--;
			add_fork(tree, prefix, !left && !more, box);
		}
}

/* One level deeper; yours. */
static char *deeper_than(const char *prefix, bool last, unsigned depth)
{
	return depth >= DEPTH_MAX ? xstrdup(prefix)
				  : xasprintf("%s%s", prefix, last ? "   " : "│  ");
}

static void draw_chain(struct tree *tree, size_t first, const char *prefix, unsigned depth)
{
	for (size_t at = first, next; at < tree->count; at = next) {
		_cleanup_free_ char *deeper = NULL;
		bool now = !strcmp(id_of(tree, at), tree->position);
		bool last;

		next = next_of(tree, at);
		last = next == tree->count && !now;
		deeper = deeper_than(prefix, last, depth);
		add_snapshot(tree, prefix, last, at);
		draw_below(tree, at, next, deeper, false, depth + 1);
		if (now)
			add_now(tree, prefix);
	}
}

static void draw_branch(
	struct tree *tree, size_t first, const char *prefix, bool last, unsigned depth)
{
	_cleanup_free_ char *deeper = deeper_than(prefix, last, depth);
	size_t next = next_of(tree, first);

	add_snapshot(tree, prefix, last, first);
	draw_below(tree, first, next, deeper, next < tree->count, depth + 1);
	draw_chain(tree, next, deeper, depth + 1);
}

struct table *timeline_tree(json_t *timeline, json_t *boxes)
{
	static const char *const heads[] = { "SNAPSHOT", "TIME", "CAUSE", "KIND", ">STORED",
		">DISK", "DETAIL", NULL };
	struct tree tree = {
		.snapshots = json_object_get(timeline, "snapshots"),
		.boxes = boxes,
		.box = json_str(timeline, "box"),
		.position = json_str(timeline, "position"),
		.table = table_new(heads),
	};
	size_t next;

	tree.count = json_array_size(tree.snapshots);
	tree.parent = xnewn(size_t, tree.count + 1);
	tree.to_now = xcalloc(tree.count + 1, sizeof *tree.to_now);
	link_up(&tree);
	next = next_of(&tree, tree.count);
	/* Draws time lines separate from the present's (its first snapshots were deleted), and
	 * boxes forked before all that is kept. */
	draw_below(&tree, tree.count, next, "", true, 0);
	if (next < tree.count)
		draw_chain(&tree, next, "", 0);
	else
		add_now(&tree, "");
	free(tree.parent);
	free(tree.to_now);
	return tree.table;
}

const char *snapshot_extent(json_t *snapshot)
{
	return !strcmp(json_str(snapshot, "kind"), "disk") ? " (its disk alone)" : "";
}
