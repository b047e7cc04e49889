/* cgroup_hold.c - a group that waits at its memory limit instead of losing a process
 *
 * v1 can turn the OOM killer off: a process that needs one page more waits in the kernel until it
 * is killed, gets more memory, or the OOM killer is turned on again; an eventfd reports it. Only
 * page faults wait. A system call that needs memory (a file in /dev/shm, a fork) fails with ENOMEM
 * and reports nothing, so the group is checked from time to time.
 *
 * v2 has no such switch, but memory.high a little below the limit: a process above it is slowed
 * down more and more, and memory.events changes at once. Between the two there is time to freeze
 * the group.
 *
 * Memory that the kernel can reclaim at once (the page cache) fills every group that reads files;
 * it does not make a group full. */
#include "sys/cgroup_internal.h"
#include "base/alloc.h"
#include <errno.h>
#include <stdio.h>
#include <sys/inotify.h>

enum {
	HIGH_PART = 32,	   /* memory.high is below the limit by this part of it */
	TIGHT_PART = 64,   /* a group is full when less than this part of its limit is left */
	BRIM = 256 * 1024, /* memory is counted in steps of this size (MEMCG_CHARGE_BATCH) */
	STAT_MAX = 8192,
};

static uint64_t high_of(uint64_t limit)
{
	return limit - limit / HIGH_PART;
}

int cgroup_hold(
	struct cgroup_tree *tree, const char *id, uint64_t limit, bool hold, struct err *err)
{
	const struct cgroup_hierarchy *memory = cgroup_find(tree, CGROUP_MEMORY);
	char text[32];

	if (!memory)
		return 0;
	if (limit == CGROUP_HOLD_ITS_LIMIT)
		limit = cgroup_read_number(memory, id,
			memory->v2 ? "memory.max" : "memory.limit_in_bytes"); /* "max" is 0 */
	hold = hold && limit;
	if (!memory->v2)
		return cgroup_poke(memory, id, "memory.oom_control", hold ? "1" : "0", err);
	snprintf(text, sizeof text, "%llu", (unsigned long long)high_of(limit));
	return cgroup_poke(memory, id, "memory.high", hold ? text : "max", err);
}

/* Memory that the kernel could not reclaim. */
static uint64_t held_v1(const struct cgroup_hierarchy *memory, const char *id)
{
	uint64_t used = cgroup_read_number(memory, id, "memory.usage_in_bytes"), files = 0;
	char stat[STAT_MAX];

	if (cgroup_read(memory, id, "memory.stat", stat, sizeof stat))
		files = cgroup_number_of_key(stat, "total_inactive_file") +
			cgroup_number_of_key(stat, "total_active_file");
	return used - MIN(used, files);
}

static uint64_t held_v2(const struct cgroup_hierarchy *memory, const char *id)
{
	uint64_t used = cgroup_read_number(memory, id, "memory.current"), spare = 0;
	char stat[STAT_MAX];

	if (cgroup_read(memory, id, "memory.stat", stat, sizeof stat))
		spare = cgroup_number_of_key(stat, "inactive_file") +
			cgroup_number_of_key(stat, "active_file") +
			cgroup_number_of_key(stat, "slab_reclaimable");
	return used - MIN(used, spare);
}

/* Reads the long file only when it can matter. */
static bool holds(const struct cgroup_hierarchy *memory, const char *id, uint64_t least)
{
	const char *usage = memory->v2 ? "memory.current" : "memory.usage_in_bytes";

	return cgroup_read_number(memory, id, usage) >= least &&
	       (memory->v2 ? held_v2(memory, id) : held_v1(memory, id)) >= least;
}

uint64_t cgroup_memory_refused(struct cgroup_tree *tree, const char *id)
{
	const struct cgroup_hierarchy *memory = cgroup_find(tree, CGROUP_MEMORY);
	char text[1024];

	if (!memory)
		return 0;
	if (!memory->v2)
		return cgroup_read_number(memory, id, "memory.failcnt") +
		       cgroup_read_number(memory, id, "memory.memsw.failcnt");
	if (!cgroup_read(memory, id, "memory.events", text, sizeof text))
		return 0;
	return cgroup_number_of_key(text, "high") + cgroup_number_of_key(text, "max");
}

bool cgroup_memory_waits(struct cgroup_tree *tree, const char *id)
{
	const struct cgroup_hierarchy *memory = cgroup_find(tree, CGROUP_MEMORY);
	char text[128];

	return memory && !memory->v2 &&
	       cgroup_read(memory, id, "memory.oom_control", text, sizeof text) &&
	       cgroup_number_of_key(text, "under_oom") == 1;
}

bool cgroup_memory_is_tight(struct cgroup_tree *tree, const char *id, uint64_t limit)
{
	const struct cgroup_hierarchy *memory = cgroup_find(tree, CGROUP_MEMORY);

	if (!memory || !limit)
		return false;
	return holds(memory, id, (memory->v2 ? high_of(limit) : limit) - limit / TIGHT_PART);
}

bool cgroup_memory_is_at_brim(struct cgroup_tree *tree, const char *id, uint64_t limit)
{
	const struct cgroup_hierarchy *memory = cgroup_find(tree, CGROUP_MEMORY);

	return memory && !memory->v2 && limit > BRIM && holds(memory, id, limit - BRIM);
}

int cgroup_pids_watch(struct cgroup_tree *tree, const char *id, int inotify_fd)
{
	const struct cgroup_hierarchy *pids = cgroup_find(tree, CGROUP_PIDS);
	char path[320];

	if (!pids)
		return -1;
	snprintf(path, sizeof path, "/proc/self/fd/%d/%s/pids.events", pids->dir, id);
	return inotify_add_watch(inotify_fd, path, IN_MODIFY);
}
