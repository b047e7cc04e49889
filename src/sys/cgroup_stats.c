/* cgroup_stats.c - what a group uses, and when the kernel kills in it
 *
 * v1 reports OOM kills through an eventfd registered in cgroup.event_control; v2 by a change of
 * memory.events, which inotify sees. One inotify fd serves all groups, because a user may have only
 * a few. */
#include "sys/cgroup_internal.h"
#include "base/alloc.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>

enum {
	PIDS_DEPTH_MAX = 17
}; /* how deep groups may be nested: as the owner of a delegated group
			       * may */

/* Reads small files without allocating: statistics of hundreds of groups are read every second. */
bool cgroup_read(const struct cgroup_hierarchy *hierarchy, const char *id, const char *file,
	char *out, size_t size)
{
	char path[256];
	ssize_t got;
	int fd;

	if (!hierarchy)
		return false;
	snprintf(path, sizeof path, "%s/%s", id, file);
	fd = openat(hierarchy->dir, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = read(fd, out, size - 1);
	close(fd);
	if (got < 0)
		return false;
	out[got] = '\0';
	return true;
}

uint64_t cgroup_read_number(
	const struct cgroup_hierarchy *hierarchy, const char *id, const char *file)
{
	char text[64];

	return cgroup_read(hierarchy, id, file, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

uint64_t cgroup_number_of_key(const char *text, const char *key)
{
	size_t len = strlen(key);

	while (*text) {
		if (!strncmp(text, key, len) && text[len] == ' ')
			return strtoull(text + len + 1, NULL, 10);
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	return 0;
}

static void read_cpu(struct cgroup_tree *tree, const char *id, struct cgroup_stats *ret)
{
	const struct cgroup_hierarchy *cpu = cgroup_find(tree, CGROUP_CPU);
	const struct cgroup_hierarchy *v2 = cgroup_find_v2(tree);
	char text[1024];

	if (cgroup_read(v2, id, "cpu.stat", text, sizeof text)) {
		ret->cpu_us = cgroup_number_of_key(text, "usage_usec");
		ret->throttled_us = cgroup_number_of_key(text, "throttled_usec");
	} else {
		ret->cpu_us =
			cgroup_read_number(cgroup_find(tree, CGROUP_CPUACCT), id, "cpuacct.usage") /
			1000;
	}
	if (cpu && !cpu->v2 && cgroup_read(cpu, id, "cpu.stat", text, sizeof text))
		ret->throttled_us = cgroup_number_of_key(text, "throttled_time") / 1000;
}

uint64_t cgroup_oom_kills(struct cgroup_tree *tree, const char *id)
{
	const struct cgroup_hierarchy *memory = cgroup_find(tree, CGROUP_MEMORY);
	char text[1024];

	if (!memory || !cgroup_read(memory, id, memory->v2 ? "memory.events" : "memory.oom_control",
			       text, sizeof text))
		return 0;
	return cgroup_number_of_key(text, "oom_kill");
}

uint64_t cgroup_cpu_us(struct cgroup_tree *tree, const char *id)
{
	char text[1024];

	if (cgroup_read(cgroup_find_v2(tree), id, "cpu.stat", text, sizeof text))
		return cgroup_number_of_key(text, "usage_usec");
	return cgroup_read_number(cgroup_find(tree, CGROUP_CPUACCT), id, "cpuacct.usage") / 1000;
}

uint64_t cgroup_socket_bytes(struct cgroup_tree *tree, const char *id)
{
	const struct cgroup_hierarchy *memory = cgroup_find(tree, CGROUP_MEMORY);

	if (!memory || memory->v2)
		return 0;
	return cgroup_read_number(memory, id, "memory.kmem.tcp.usage_in_bytes");
}

/* A line for each device: "8:0 rbytes=1 wbytes=2 rios=…". */
uint64_t cgroup_io_bytes(struct cgroup_tree *tree, const char *id)
{
	uint64_t sum = 0;
	char text[4096];

	if (!cgroup_read(cgroup_find_v2(tree), id, "io.stat", text, sizeof text))
		return 0;
	for (const char *at = text; (at = strstr(at, "bytes=")); at += 6)
		if (at > text && (at[-1] == 'r' || at[-1] == 'w'))
			sum += strtoull(at + 6, NULL, 10);
	return sum;
}

uint64_t cgroup_room(struct cgroup_tree *tree, const char *id, enum cgroup_controller controller)
{
	static const char *const memory[][2] = {
		{ "memory.limit_in_bytes", "memory.usage_in_bytes" },
		{ "memory.max", "memory.current" },
	};
	static const char *const pids[] = { "pids.max", "pids.current" };
	const struct cgroup_hierarchy *hierarchy = cgroup_find(tree, controller);
	const char *const *files = controller == CGROUP_PIDS ? pids : NULL;
	uint64_t limit, used;
	char text[64];

	if (!hierarchy)
		return UINT64_MAX;
	if (!files)
		files = memory[hierarchy->v2];
	/* "max" is not a number; v1 reports no memory limit as a number larger than any machine. */
	if (!cgroup_read(hierarchy, id, files[0], text, sizeof text) || *text < '0' || *text > '9')
		return UINT64_MAX;
	limit = strtoull(text, NULL, 10);
	used = cgroup_read_number(hierarchy, id, files[1]);
	return limit - MIN(used, limit);
}

/* Since Linux 6.11, v2 counts refusals by this limit separately from those of groups below it. */
uint64_t cgroup_pids_refused(struct cgroup_tree *tree, const char *id)
{
	const struct cgroup_hierarchy *pids = cgroup_find(tree, CGROUP_PIDS);
	char text[128];

	if (pids && pids->v2 && cgroup_read(pids, id, "pids.events.local", text, sizeof text))
		return cgroup_number_of_key(text, "max");
	if (cgroup_read(pids, id, "pids.events", text, sizeof text))
		return cgroup_number_of_key(text, "max");
	return 0;
}

static void read_memory(
	const struct cgroup_hierarchy *memory, const char *id, struct cgroup_stats *ret)
{
	static const char *const cached[][2] = { { "total_inactive_file", "total_active_file" },
		{ "inactive_file", "active_file" } };
	const char *const *keys = cached[memory->v2];
	char text[8192];
	uint64_t files = 0;

	ret->memory_bytes = cgroup_read_number(
		memory, id, memory->v2 ? "memory.current" : "memory.usage_in_bytes");
	ret->memory_peak_bytes = cgroup_read_number(
		memory, id, memory->v2 ? "memory.peak" : "memory.max_usage_in_bytes");
	if (cgroup_read(memory, id, "memory.stat", text, sizeof text))
		files = cgroup_number_of_key(text, keys[0]) + cgroup_number_of_key(text, keys[1]);
	ret->memory_held_bytes = ret->memory_bytes - MIN(files, ret->memory_bytes);
}

int cgroup_stats(
	struct cgroup_tree *tree, const char *id, struct cgroup_stats *ret, struct err *err)
{
	const struct cgroup_hierarchy *memory = cgroup_find(tree, CGROUP_MEMORY);
	const struct cgroup_hierarchy *pids = cgroup_find(tree, CGROUP_PIDS);
	static pid_t all[8192]; /* more are not counted */

	if (faccessat(tree->list[0].dir, id, F_OK, 0) < 0)
		return err_sys(err, errno, "cgroup '%s'", id);
	*ret = (struct cgroup_stats){ 0 };
	read_cpu(tree, id, ret);
	if (memory)
		read_memory(memory, id, ret);
	ret->processes = cgroup_pids_below(tree, id, all, ARRAY_LEN(all));
	ret->threads = pids ? cgroup_read_number(pids, id, "pids.current") : ret->processes;
	ret->oom_kills = cgroup_oom_kills(tree, id);
	ret->pids_refused = cgroup_pids_refused(tree, id);
	return 0;
}

static int watch_v1(
	const struct cgroup_hierarchy *memory, const char *id, int *ret_fd, struct err *err)
{
	_cleanup_close_ int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	_cleanup_close_ int control = -1, oom = -1;
	char path[256], text[32];

	if (event < 0)
		return err_sys(err, errno, "eventfd");
	snprintf(path, sizeof path, "%s/memory.oom_control", id);
	oom = openat(memory->dir, path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof path, "%s/cgroup.event_control", id);
	control = openat(memory->dir, path, O_WRONLY | O_CLOEXEC);
	if (oom < 0 || control < 0)
		return err_sys(err, errno, "open the memory events of '%s'", id);
	snprintf(text, sizeof text, "%d %d", event, oom);
	if (write(control, text, strlen(text)) < 0)
		return err_sys(err, errno, "watch the memory events of '%s'", id);
	*ret_fd = steal_fd(&event);
	return 0;
}

int cgroup_oom_watch(struct cgroup_tree *tree, const char *id, int inotify_fd, int *ret_fd,
	int *ret_wd, struct err *err)
{
	const struct cgroup_hierarchy *memory = cgroup_find(tree, CGROUP_MEMORY);
	char path[320];

	*ret_fd = *ret_wd = -1;
	if (!memory)
		return 0;
	if (!memory->v2)
		return watch_v1(memory, id, ret_fd, err);
	snprintf(path, sizeof path, "/proc/self/fd/%d/%s/memory.events", memory->dir, id);
	*ret_wd = inotify_add_watch(inotify_fd, path, IN_MODIFY);
	if (*ret_wd < 0)
		return err_sys(err, errno, "watch the memory events of '%s'", id);
	return 0;
}

size_t cgroup_pids(struct cgroup_tree *tree, const char *id, pid_t *ret, size_t max)
{
	static char text[16384]; /* the first part, when there are many processes */
	size_t count = 0;
	char *rest = text;

	if (!tree->count || !cgroup_read(&tree->list[0], id, "cgroup.procs", text, sizeof text))
		return 0;
	while (count < max) {
		char *end;
		long pid = strtol(rest, &end, 10);

		if (end == rest || *end != '\n')
			break;
		if (pid > 0)
			ret[count++] = (pid_t)pid;
		rest = end;
	}
	return count;
}

/* Adds the pids of one group; parses digits only, so a read may end anywhere. */
static void add_pids(int group, pid_t *ret, size_t max, size_t *count)
{
	_cleanup_close_ int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	char text[4096];
	ssize_t got;
	long pid = 0;

	while (fd >= 0 && *count <= max && (got = read(fd, text, sizeof text)) > 0)
		for (ssize_t i = 0; i < got && *count <= max; i++) {
			if (text[i] != '\n') {
				pid = pid * 10 + (text[i] - '0');
				continue;
			}
			if (pid > 0 && *count < max)
				ret[*count] = (pid_t)pid;
			*count += pid > 0;
			pid = 0;
		}
}

static void add_pids_below(
	int parent, const char *name, pid_t *ret, size_t max, size_t *count, int depth)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir;
	struct dirent *entry;

	if (fd < 0)
		return;
	add_pids(fd, ret, max, count);
	dir = fdopendir(fd);
	if (!dir)
		close(fd);
	while (dir && depth < PIDS_DEPTH_MAX && *count <= max && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			add_pids_below(fd, entry->d_name, ret, max, count, depth + 1);
	if (dir)
		closedir(dir);
}

size_t cgroup_pids_below(struct cgroup_tree *tree, const char *id, pid_t *ret, size_t max)
{
	size_t count = 0;

	if (tree->count)
		add_pids_below(tree->list[0].dir, id, ret, max, &count, 0);
	return count;
}
