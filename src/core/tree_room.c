/* tree_room.c - does a new box fit into its tree?
 *
 * The limits hold in any case, but at a limit the kernel makes room by killing the largest process
 * in the tree, perhaps in the box that asked. So forks from inside and restores are refused when
 * what they are known to need is more than what is left. */
#include "core/tree_internal.h"
#include "base/text.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* Tells in a hint how to raise the limits of a tree. */
static const char *raise_hint(const struct box *box, char *out, size_t size)
{
	const struct box *head = tree_get_head(box->tree, box->yard);

	snprintf(out, size, "'box set %s --tree memory=SIZE,pids=N,cpu=N' raises it%s%s%s",
		head ? head->row.name : box->row.name, head ? ", as does 'box set " : "",
		head ? head->row.name : "", head ? " --memory …' of its first box" : "");
	return out;
}

static int refuse(const struct box *box, const char *what, const char *used, const char *more,
	const char *most, struct err *err)
{
	char hint[256];

	err_set(err, ERR_LIMIT,
		"the tree of '%s' uses %s of %s of %s, and this takes about %s more", box->row.name,
		used, most, what, more);
	return err_hint(err, "%s", raise_hint(box, hint, sizeof hint));
}

int tree_check_memory(struct box *box, uint64_t more, struct err *err)
{
	struct instance_stats stats;
	uint64_t most = tree_limits(box->tree).memory_bytes;
	char used[16], wanted[16], limit[16];

	if (!most || groups_tree_stats(box->yard->groups, box->tree->row.id, &stats, NULL) < 0 ||
		stats.memory_held_bytes + more <= most)
		return 0;
	return refuse(box, "memory", format_size(stats.memory_held_bytes, used),
		format_size(more, wanted), format_size(most, limit), err);
}

static int check_processes(struct box *box, uint64_t more, struct err *err)
{
	struct instance_stats stats;
	uint64_t most = tree_limits(box->tree).pids;
	char used[24], wanted[24], limit[24];

	if (!most || groups_tree_stats(box->yard->groups, box->tree->row.id, &stats, NULL) < 0 ||
		stats.threads + more <= most)
		return 0;
	snprintf(used, sizeof used, "%llu", (unsigned long long)stats.threads);
	snprintf(wanted, sizeof wanted, "%llu", (unsigned long long)more);
	snprintf(limit, sizeof limit, "%llu", (unsigned long long)most);
	return refuse(box, "processes", used, wanted, limit, err);
}

int tree_check_fork(struct box *box, unsigned count, struct err *err)
{
	struct instance_stats stats;

	if (tree_begin(box, err) < 0)
		return -1;
	if (!box->instance || instance_stats(box->instance, &stats, NULL) < 0)
		return 0;
	if (tree_check_memory(box, stats.memory_held_bytes * count, err) < 0)
		return -1;
	return check_processes(box, stats.threads * count, err);
}

int tree_check_state(struct box *box, int state, struct err *err)
{
	struct engine *engine;
	uint64_t bytes;

	if (!tree_limits(box->tree).memory_bytes)
		return 0;
	if (box_engine(box, &engine, err) < 0)
		return -1;
	bytes = engine_look_at_state(engine, state).memory_bytes;
	return bytes ? tree_check_memory(box, bytes, err) : 0;
}
