/* cgroup_limit.c - what a group may use
 *
 * Limits are written to the hierarchy that has the controller: one table has the file and format
 * for each version. Memory comes first: it is the only limit that can be refused while a group is
 * in use, and then nothing has changed yet. v1 tries to reclaim memory and answers EBUSY when it
 * cannot. v2 would kill instead, so memory is reclaimed before the limit is written. */
#include "sys/cgroup_internal.h"
#include "base/alloc.h"
#include "base/text.h"
#include <errno.h>
#include <stdio.h>

struct limit_file {
	bool v2;
	enum cgroup_controller controller;
	size_t field; /* offset in struct cgroup_limits */
	const char *file;
	const char *format;
	const char *lifted;
	uint64_t scale;
	uint64_t lowest;
	bool optional; /* not every kernel has the file */
	bool attempt;  /* a failure is ignored */
	uint64_t part; /* the value is divided by this; 0: not divided */
};

/* CPU quotas are microseconds of a 100 ms period, the default of a new group. New groups have
 * memory.oom.group = 0: the kernel kills one process, not the box. memory.memsw may never be the
 * lower one of the two, so it is written before and after: the first write works when limits rise,
 * the second when they fall. v1 counts memory of TCP and UDP sockets separately, and only where it
 * is limited: boxes get an eighth of their memory for it in addition (v2 counts it as memory). A
 * group that holds more than a lowered limit keeps the one it had. */
enum { SOCKETS_PART = 8, SOCKETS_LOWEST = 16 << 20 };
#define FIELD(name) offsetof(struct cgroup_limits, name)
static const struct limit_file limit_files[] = {
	{ false, CGROUP_MEMORY, FIELD(memory_bytes), "memory.memsw.limit_in_bytes", "%llu", "-1", 1,
		0, true, true, 0 },
	{ false, CGROUP_MEMORY, FIELD(memory_bytes), "memory.limit_in_bytes", "%llu", "-1", 1, 0,
		false, false, 0 },
	{ false, CGROUP_MEMORY, FIELD(memory_bytes), "memory.memsw.limit_in_bytes", "%llu", "-1", 1,
		0, true, false, 0 },
	{ false, CGROUP_MEMORY, FIELD(memory_bytes), "memory.kmem.tcp.limit_in_bytes", "%llu", "-1",
		1, SOCKETS_LOWEST, true, true, SOCKETS_PART },
	{ false, CGROUP_CPU, FIELD(cpu_milli), "cpu.cfs_quota_us", "%llu", "-1", 100, 1000, false,
		false, 0 },
	{ false, CGROUP_PIDS, FIELD(pids), "pids.max", "%llu", "max", 1, 0, false, false, 0 },
	{ true, CGROUP_MEMORY, FIELD(memory_bytes), "memory.max", "%llu", "max", 1, 0, false, false,
		0 },
	{ true, CGROUP_MEMORY, FIELD(memory_bytes), "memory.swap.max", "0", "max", 1, 0, true,
		false, 0 },
	{ true, CGROUP_CPU, FIELD(cpu_milli), "cpu.max", "%llu 100000", "max 100000", 100, 1000,
		false, false, 0 },
	{ true, CGROUP_PIDS, FIELD(pids), "pids.max", "%llu", "max", 1, 0, false, false, 0 },
};

static const struct {
	enum cgroup_controller controller;
	size_t field;
} limit_needs[] = {
	{ CGROUP_CPU, FIELD(cpu_milli) },
	{ CGROUP_MEMORY, FIELD(memory_bytes) },
	{ CGROUP_PIDS, FIELD(pids) },
};

static uint64_t limit_value(const struct cgroup_limits *limits, size_t field)
{
	return *(const uint64_t *)((const char *)limits + field);
}

static void format_limit(const struct limit_file *row, uint64_t value, char *out, size_t size)
{
	if (!value) {
		snprintf(out, size, "%s", row->lifted);
		return;
	}
	value = MIN(value, UINT64_MAX / row->scale) * row->scale / MAX(row->part, 1u);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
	snprintf(out, size, row->format, (unsigned long long)MAX(value, row->lowest));
#pragma GCC diagnostic pop
}

static uint64_t memory_used(const struct cgroup_hierarchy *memory, const char *id)
{
	return cgroup_read_number(
		memory, id, memory->v2 ? "memory.current" : "memory.usage_in_bytes");
}

static int too_small(uint64_t used, uint64_t wanted, struct err *err)
{
	char have[16], want[16];

	err_set(err, ERR_STATE, "%s of memory are in use, more than the new limit of %s",
		format_size(used, have), format_size(wanted, want));
	return err_hint(err, "end a program that uses memory first, or stop and start the box");
}

int cgroup_limits_check(
	const struct cgroup_tree *tree, const struct cgroup_limits *limits, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(limit_needs); i++)
		if (limit_value(limits, limit_needs[i].field) &&
			!cgroup_find(tree, limit_needs[i].controller)) {
			const char *name = cgroup_controller_name(limit_needs[i].controller);

			err_set(err, ERR_UNSUPPORTED,
				"this machine cannot limit %s: no cgroup controller", name);
			return err_hint(err,
				"leave the limit out (0), or enable the '%s' controller", name);
		}
	return 0;
}

static int write_limit(const struct cgroup_hierarchy *hierarchy, const char *id,
	const struct limit_file *row, uint64_t value, struct err *err)
{
	struct err why = ERR_INIT;
	char text[64];

	format_limit(row, value, text, sizeof text);
	if (cgroup_poke(hierarchy, id, row->file, text, &why) == 0 || row->attempt)
		return 0;
	if (row->optional && why.errno_value == ENOENT)
		return 0;
	if (row->controller == CGROUP_MEMORY && why.errno_value == EBUSY)
		return too_small(memory_used(hierarchy, id), value, err);
	if (err)
		*err = why;
	return err_wrap(err, "set the %s limit", cgroup_controller_name(row->controller));
}

int cgroup_limits_write(struct cgroup_tree *tree, const char *id,
	const struct cgroup_limits *limits, bool lift, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(limit_files); i++) {
		const struct limit_file *row = &limit_files[i];
		const struct cgroup_hierarchy *hierarchy = cgroup_find(tree, row->controller);
		uint64_t value = limit_value(limits, row->field);

		if (!hierarchy || hierarchy->v2 != row->v2 || (!value && !lift))
			continue;
		if (write_limit(hierarchy, id, row, value, err) < 0)
			return -1;
	}
	return 0;
}

static int make_room(struct cgroup_tree *tree, const char *id, uint64_t wanted, struct err *err)
{
	const struct cgroup_hierarchy *memory = cgroup_find(tree, CGROUP_MEMORY);
	uint64_t used;
	char text[32];

	if (!wanted || !memory || !memory->v2)
		return 0;
	used = memory_used(memory, id);
	if (used <= wanted)
		return 0;
	snprintf(text, sizeof text, "%llu", (unsigned long long)(used - wanted));
	cgroup_poke(memory, id, "memory.reclaim", text, NULL); /* only what is left then counts */
	used = memory_used(memory, id);
	return used <= wanted ? 0 : too_small(used, wanted, err);
}

int cgroup_limit(struct cgroup_tree *tree, const char *id, const struct cgroup_limits *limits,
	struct err *err)
{
	if (cgroup_limits_check(tree, limits, err) < 0 ||
		make_room(tree, id, limits->memory_bytes, err) < 0)
		return -1;
	return cgroup_limits_write(tree, id, limits, true, err);
}
