/* group.c - see group.h */
#include "guest/group.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define TREE "/group" /* in the initramfs: only box-init gets there */

enum {
	TEXT_MAX = 1024 * 1024,
	FREEZE_MS = 1000,
	DEPTH_MAX = 16,
	THREADS_MAX = 4096,
	LOOK_US = 200,
	SOON_US = 2000
};

static int box = -1;	  /* folder of /box */
static int programs = -1; /* cgroup.procs of /box/programs */
static int limits = -1;	  /* inotify on the files of events */

/* ---- making the groups ---------------------------------------------------------------------- */

/* One by one: a kernel may lack some of them. */
static void enable_controllers(const char *folder)
{
	static const char *const controllers[] = { "+cpu", "+memory", "+pids", "+io", "+cpuset",
		"+hugetlb", "+misc", "+rdma" };
	_cleanup_free_ char *path = xasprintf("%s/cgroup.subtree_control", folder);

	for (size_t i = 0; i < ARRAY_LEN(controllers); i++)
		file_poke(AT_FDCWD, path, controllers[i], NULL);
}

static void watch_limits(void)
{
	/* Kernels differ in the group where a refused fork is counted. */
	static const char *const files[] = { TREE "/box/memory.events", TREE "/box/pids.events",
		TREE "/box/programs/pids.events" };

	limits = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		inotify_add_watch(limits, files[i], IN_MODIFY);
}

int group_open(const char *path, struct err *err)
{
	if (mkdir(TREE, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make " TREE);
	if (mount("cgroup2", TREE, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return err_sys(err, errno, "mount the control groups");
	enable_controllers(TREE);
	if (mkdir(TREE "/box", 0755) < 0)
		return err_sys(err, errno, "make the box's control group");
	/* A cgroup namespace is rooted where its maker is: for a moment, that is /box. */
	if (file_poke(AT_FDCWD, TREE "/box/cgroup.procs", "0", err) < 0)
		return -1;
	if (unshare(CLONE_NEWCGROUP) < 0)
		return err_sys(err, errno, "make a namespace of control groups");
	if (file_poke(AT_FDCWD, TREE "/cgroup.procs", "0", err) < 0)
		return -1;
	if (mkdir(TREE "/box/programs", 0755) < 0)
		return err_sys(err, errno, "make the programs' control group");
	enable_controllers(TREE "/box");
	if (mount(TREE "/box", path, NULL, MS_BIND, NULL) < 0)
		return err_sys(err, errno, "show the control groups");
	box = open(TREE "/box", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	programs = open(TREE "/box/programs/cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (box < 0 || programs < 0)
		return err_sys(err, errno, "open the control groups");
	watch_limits();
	return 0;
}

void group_join(void)
{
	if (programs >= 0)
		(void)!write(programs, "0", 1);
}

/* ---- limits --------------------------------------------------------------------------------- */

int group_set_pids(uint64_t limit, struct err *err)
{
	static uint64_t now; /* as the group was made; a copy has its parent's */
	char text[32] = "max";

	if (box < 0 || limit == now)
		return 0;
	if (limit)
		snprintf(text, sizeof text, "%llu", (unsigned long long)limit);
	if (file_poke(box, "pids.max", text, err) < 0)
		return -1;
	now = limit;
	return 0;
}

int group_get_limits_watch(void)
{
	return limits;
}

/* The value of key in a file of lines "key value"; 0 when it is missing. */
static uint64_t read_value(int dir, const char *file, const char *key)
{
	_cleanup_free_ char *text = NULL;
	size_t len = strlen(key);

	if (file_read(dir, file, TEXT_MAX, &text, NULL, NULL) < 0)
		return 0;
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, len) && line[len] == ' ')
			return strtoull(line + len + 1, NULL, 10);
		if (!*line)
			break;
	}
	return 0;
}

int group_thaw(struct err *err)
{
	return box < 0 ? 0 : file_poke(box, "cgroup.freeze", "0", err);
}

/* False: they do not stand still after this time. */
static bool wait_frozen(int64_t us)
{
	int64_t end = clock_mono_us() + us;

	while (!read_value(box, "cgroup.events", "frozen")) {
		if (clock_mono_us() > end)
			return false;
		usleep(LOOK_US);
	}
	return true;
}

bool group_freeze_soon(void)
{
	return box < 0 || (file_poke(box, "cgroup.freeze", "1", NULL) == 0 && wait_frozen(SOON_US));
}

int group_freeze(struct err *err)
{
	if (box < 0)
		return 0;
	if (file_poke(box, "cgroup.freeze", "1", err) < 0)
		return -1;
	if (wait_frozen((int64_t)FREEZE_MS * 1000))
		return 0;
	group_thaw(NULL);
	return err_set(err, ERR_TIMEOUT, "programs of the box do not stand still");
}

/* ---- figures -------------------------------------------------------------------------------- */

/* Whether the thread with this number runs. One that has ended does not. */
static bool thread_runs(const char *number)
{
	char path[64], text[512];
	_cleanup_close_ int fd = -1;
	const char *name_end;
	ssize_t len;

	snprintf(path, sizeof path, "/proc/%.20s/stat", number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (len <= 0)
		return false;
	text[len] = '\0';
	name_end = strrchr(text, ')');
	return name_end && !strncmp(name_end, ") R", 3);
}

/* *left: how many more threads are checked; with more threads the box counts as running. */
static bool any_runs(int dir, unsigned depth, unsigned *left)
{
	_cleanup_free_ char *text = NULL;
	struct dirent *entry;
	bool found = false;
	DIR *list;

	if (file_read(dir, "cgroup.threads", TEXT_MAX, &text, NULL, NULL) == 0) {
		char *rest = text, *line;

		while (!found && (line = strsep(&rest, "\n")))
			found = *line && (*left ? (*left)--, thread_runs(line) : true);
	}
	list = found || depth == DEPTH_MAX ? NULL : fdopendir(fcntl(dir, F_DUPFD_CLOEXEC, 0));
	if (list)
		rewinddir(list);
	while (list && !found && (entry = readdir(list))) {
		_cleanup_close_ int below = -1;

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		below = openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		found = below >= 0 && any_runs(below, depth + 1, left);
	}
	if (list)
		closedir(list);
	return found;
}

bool group_is_running(void)
{
	unsigned left = THREADS_MAX;

	return box >= 0 && any_runs(box, 0, &left);
}

/* Adds up dir and all below it. A refused fork is counted in the group of the process that
 * forks, and in newer kernels also in that of the limit. */
static void count_all(int dir, unsigned depth, struct group_stats *ret)
{
	_cleanup_free_ char *text = NULL;
	struct dirent *entry;
	DIR *list = depth < DEPTH_MAX ? fdopendir(fcntl(dir, F_DUPFD_CLOEXEC, 0)) : NULL;

	if (file_read(dir, "cgroup.procs", TEXT_MAX, &text, NULL, NULL) == 0)
		for (const char *at = text; (at = strchr(at, '\n')); at++)
			ret->processes++;
	if (depth)
		ret->pids_refused += read_value(dir, "pids.events", "max");
	if (!list)
		return;
	rewinddir(list);
	while ((entry = readdir(list))) {
		_cleanup_close_ int below = -1;

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		below = openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (below >= 0)
			count_all(below, depth + 1, ret);
	}
	closedir(list);
}

void group_get_stats(struct group_stats *ret)
{
	_cleanup_free_ char *pids = NULL;

	*ret = (struct group_stats){ 0 };
	if (box < 0)
		return;
	if (file_read(box, "pids.current", TEXT_MAX, &pids, NULL, NULL) == 0)
		ret->threads = strtoull(pids, NULL, 10);
	count_all(box, 0, ret);
	ret->oom_kills = read_value(box, "memory.events", "oom_kill");
	ret->pids_refused = MAX(ret->pids_refused, read_value(box, "pids.events", "max"));
	ret->cpu_us = read_value(box, "cpu.stat", "usage_usec");
}
