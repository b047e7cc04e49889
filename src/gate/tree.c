/* tree.c - what boxes of one tree share at the gate; see gate_internal.h */
#include "base/alloc.h"
#include "base/clock.h"
#include "gate/gate_internal.h"

struct tree *tree_join(struct process *process, const char *id)
{
	struct tree *tree = (struct tree *)name_table_find(&process->trees, id, 0);

	if (!tree) {
		tree = xnew(struct tree);
		tree->id = xstrdup(id);
		tree->events_filled_at = clock_mono_us();
		tree->events_saved_us = INT32_MAX; /* full; limited later to its size */
		name_table_add(&process->trees, &tree->node, tree->id, 0);
	}
	tree->tenants++;
	return tree;
}

void tree_leave(struct process *process, struct tree *tree)
{
	if (!tree)
		return;
	if (--tree->tenants) {
		tree_set_rate(process, tree);
		return;
	}
	name_table_remove(&process->trees, &tree->node);
	free(tree->id);
	free(tree);
}

void tree_set_rate(struct process *process, struct tree *tree)
{
	uint64_t highest = 0;

	for (struct named *node = process->tenants.oldest; node; node = node->newer) {
		const struct tenant *tenant = (const struct tenant *)node;

		if (tenant->tree != tree)
			continue;
		if (!tenant->quota.rate) {
			highest = 0;
			break;
		}
		highest = MAX(highest, tenant->quota.rate);
	}
	tree->quota.rate = highest;
}
