/* guard.c - resources that all boxes and the machine share: terminals and open files
 *
 * The kernel has one limit of pseudo-terminals and one of open files for the whole machine. A box's
 * own /dev/pts has a limit, but root of a nested box can mount others without one; open files are
 * limited per process, not per box. So once a second two small files are read. When most of a limit
 * is used, the box with the most, if that is more than any box needs, loses its process with the
 * most, and again until there is enough. */
#include "engine/ns/ns_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "loop/loop.h"
#include "sys/cgroup.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
	LOOK_MS = 1000,
	PIDS_LOOKED_AT = 4096, /* per box */
	FDS_LOOKED_AT = 20000, /* per process */
	TERMINALS_FAIR = 256,  /* per box */
	FILES_PART = 16,       /* a box with less than this part is left alone */
};

static uint64_t number_in(const char *path)
{
	_cleanup_free_ char *text = NULL;

	return file_read(AT_FDCWD, path, 256, &text, NULL, NULL) == 0 ? strtoull(text, NULL, 10)
								      : 0;
}

/* "ALLOCATED 0 MOST" */
static uint64_t files_most(void)
{
	_cleanup_free_ char *text = NULL;
	unsigned long long used, most;

	if (file_read(AT_FDCWD, "/proc/sys/fs/file-nr", 256, &text, NULL, NULL) < 0 ||
		sscanf(text, "%llu %*u %llu", &used, &most) != 2)
		return 0;
	return most;
}

/* Without those that the kernel reserves for the machine's own /dev/pts. */
static uint64_t terminals_most(void)
{
	uint64_t most = number_in("/proc/sys/kernel/pty/max");
	uint64_t kept = number_in("/proc/sys/kernel/pty/reserve");

	return most > kept ? most - kept : 0;
}

/* Since 6.2 the kernel reports the number as the size of the folder; before that they are
 * counted. */
uint64_t guard_count_fds(pid_t pid)
{
	uint64_t count = 0;
	struct stat st;
	char path[32];
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	if (stat(path, &st) == 0 && st.st_size > 0)
		return (uint64_t)st.st_size;
	dir = opendir(path);
	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

static uint64_t count_terminals(pid_t pid)
{
	uint64_t count = 0;
	unsigned looked = 0;
	struct dirent *entry;
	struct stat st;
	char path[32];
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)) && looked++ < FDS_LOOKED_AT)
		count += fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && S_ISCHR(st.st_mode) &&
			 st.st_rdev == makedev(5, 2);
	if (dir)
		closedir(dir);
	return count;
}

/* Never kills box-init, which would end the box. */
bool guard_kill_largest(struct ns_instance *instance, uint64_t (*count_of)(pid_t pid))
{
	struct cgroup_tree *tree = ns_engine_of(instance->base.engine)->cgroups;
	pid_t *pids = xcalloc(PIDS_LOOKED_AT, sizeof *pids), who = 0;
	size_t count = cgroup_pids_below(tree, instance->group, pids, PIDS_LOOKED_AT);
	uint64_t most = 0;

	for (size_t i = 0; i < MIN(count, (size_t)PIDS_LOOKED_AT); i++) {
		uint64_t has = pids[i] == instance->base.mark.pid ? 0 : count_of(pids[i]);

		if (has > most) {
			most = has;
			who = pids[i];
		}
	}
	free(pids);
	/* A pid that was reused outside the box is not in the group. */
	return who && cgroup_holds(tree, instance->group, who) && kill(who, SIGKILL) == 0;
}

bool guard_kill_all(struct ns_instance *instance)
{
	struct cgroup_tree *tree = ns_engine_of(instance->base.engine)->cgroups;
	pid_t *pids = xcalloc(PIDS_LOOKED_AT, sizeof *pids);
	size_t count = cgroup_pids_below(tree, instance->group, pids, PIDS_LOOKED_AT);
	bool any = false;

	for (size_t i = 0; i < MIN(count, (size_t)PIDS_LOOKED_AT); i++)
		if (pids[i] != instance->base.mark.pid &&
			cgroup_holds(tree, instance->group, pids[i]))
			any |= kill(pids[i], SIGKILL) == 0;
	free(pids);
	return any;
}

static uint64_t count_in(struct ns_instance *instance, uint64_t (*count_of)(pid_t pid))
{
	struct cgroup_tree *tree = ns_engine_of(instance->base.engine)->cgroups;
	pid_t *pids = xcalloc(PIDS_LOOKED_AT, sizeof *pids);
	size_t count = cgroup_pids_below(tree, instance->group, pids, PIDS_LOOKED_AT);
	uint64_t sum = 0;

	for (size_t i = 0; i < MIN(count, (size_t)PIDS_LOOKED_AT); i++)
		sum += count_of(pids[i]);
	free(pids);
	return sum;
}

void guard_take_back(
	struct ns_engine *engine, const char *what, uint64_t fair, uint64_t (*count_of)(pid_t pid))
{
	struct ns_instance *greedy = NULL;
	uint64_t most = fair;

	for (struct ns_instance *one = engine->first; one; one = one->next) {
		uint64_t has = one->state == NS_RUNNING ? count_in(one, count_of) : 0;

		if (has > most) {
			most = has;
			greedy = one;
		}
	}
	if (!greedy || !guard_kill_largest(greedy, count_of))
		return;
	log_warn("a box used most of what the machine has: its largest process was killed",
		kv_str("box", greedy->id), kv_str("what", what), kv_int("number", (int64_t)most));
}

bool guard_is_scarce(uint64_t used, uint64_t most)
{
	return most && used > most - most / 4;
}

static void look(void *arg)
{
	struct ns_engine *engine = arg;
	uint64_t files = files_most();

	if (guard_is_scarce(number_in("/proc/sys/kernel/pty/nr"), terminals_most()))
		guard_take_back(engine, "terminals", TERMINALS_FAIR, count_terminals);
	if (guard_is_scarce(number_in("/proc/sys/fs/file-nr"), files))
		guard_take_back(engine, "open files", files / FILES_PART, guard_count_fds);
	loop_timer_start(engine->guard_timer, LOOK_MS);
}

void guard_open(struct ns_engine *engine)
{
	engine->guard_timer = loop_timer_new(engine->loop, look, engine);
	loop_timer_start(engine->guard_timer, LOOK_MS);
}
