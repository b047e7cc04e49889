/* cgroup_machine.c - what a machine can give to all groups of a tree and still be usable itself
 *
 * Memory is that of the machine, the number of processes is limited by pid_max and threads-max. In
 * a container the limits of its own group are lower, and count. */
#include "sys/cgroup_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include <fcntl.h>
#include <stdio.h>

#define MB (UINT64_C(1) << 20)

/* Keeps back an eighth, but a quarter on a small machine and a bounded amount on a large one. */
static uint64_t without_reserve(uint64_t all, uint64_t small, uint64_t most)
{
	return all - MIN(MAX(all / 8, MIN(small, all / 4)), most);
}

struct cgroup_limits cgroup_machine_share(uint64_t memory_bytes, uint64_t pids)
{
	return (struct cgroup_limits){
		.memory_bytes = without_reserve(memory_bytes, 512 * MB, 8192 * MB),
		.pids = without_reserve(pids, 2048, 32768),
	};
}

/* UINT64_MAX when it cannot be read, or is no number ("max"). */
static uint64_t number_in(int dir, const char *path)
{
	_cleanup_free_ char *text = NULL;

	if (file_read(dir, path, 64, &text, NULL, NULL) < 0 || *text < '0' || *text > '9')
		return UINT64_MAX;
	return strtoull(text, NULL, 10);
}

/* The root of a hierarchy has no such file, unless it is the root of a container. */
static uint64_t limit_above(const struct cgroup_tree *tree, enum cgroup_controller controller,
	const char *v1, const char *v2)
{
	const struct cgroup_hierarchy *hierarchy = cgroup_find(tree, controller);
	_cleanup_free_ char *path = NULL;

	if (!hierarchy)
		return UINT64_MAX;
	path = xasprintf("%s/%s", hierarchy->mount, hierarchy->v2 ? v2 : v1);
	return number_in(AT_FDCWD, path);
}

static uint64_t machine_memory(void)
{
	_cleanup_free_ char *text = NULL;
	unsigned long long kib = 0;

	if (file_read(AT_FDCWD, "/proc/meminfo", 65536, &text, NULL, NULL) < 0 ||
		sscanf(text, "MemTotal: %llu kB", &kib) != 1)
		return UINT64_MAX;
	return kib * 1024;
}

struct cgroup_limits cgroup_machine_limits(const struct cgroup_tree *tree)
{
	uint64_t memory = MIN(machine_memory(),
		limit_above(tree, CGROUP_MEMORY, "memory.limit_in_bytes", "memory.max"));
	uint64_t pids = MIN(number_in(AT_FDCWD, "/proc/sys/kernel/pid_max"),
		number_in(AT_FDCWD, "/proc/sys/kernel/threads-max"));
	struct cgroup_limits share;

	pids = MIN(pids, limit_above(tree, CGROUP_PIDS, "pids.max", "pids.max"));
	share = cgroup_machine_share(memory, pids);
	if (!cgroup_find(tree, CGROUP_MEMORY) || memory == UINT64_MAX)
		share.memory_bytes = 0;
	if (!cgroup_find(tree, CGROUP_PIDS) || pids == UINT64_MAX)
		share.pids = 0;
	return share;
}
