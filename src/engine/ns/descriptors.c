/* descriptors.c - see descriptors.h */
#include "engine/ns/descriptors.h"
#include "base/alloc.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PIDFD_OF_THREAD O_EXCL /* PIDFD_THREAD, Linux 6.9 */
enum { LINK_LEN = 64 };

struct walk {
	const struct descriptors_ops *ops;
	void *arg;
	unsigned looked;
	bool cut; /* not everything was examined */
};

static void walk_table(struct walk *walk, const char *path, int pidfd)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && !walk->cut && (entry = readdir(dir))) {
		char name[LINK_LEN];
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, name, sizeof name - 1);
		int fd;

		walk->cut = ++walk->looked >= DESCRIPTORS_MAX;
		name[MAX(len, 0)] = '\0';
		if (!walk->ops->wants(name, walk->arg))
			continue;
		fd = (int)syscall(SYS_pidfd_getfd, pidfd, atoi(entry->d_name), 0);
		if (fd < 0)
			continue;
		walk->ops->found(fd, walk->arg);
		close(fd);
	}
	if (dir)
		closedir(dir);
}

static void walk_thread(struct walk *walk, pid_t pid, pid_t thread)
{
	char path[64];
	int pidfd = (int)syscall(SYS_pidfd_open, thread, thread == pid ? 0 : PIDFD_OF_THREAD);

	if (pidfd < 0) {
		/* Before Linux 6.9 the fd table of a single thread cannot be read. */
		walk->cut |= errno == EINVAL;
		return;
	}
	snprintf(path, sizeof path, "/proc/%d/task/%d/fd", (int)pid, (int)thread);
	walk_table(walk, path, pidfd);
	close(pidfd);
}

static bool share_table(pid_t one, pid_t other)
{
	return syscall(SYS_kcmp, one, other, KCMP_FILES, 0, 0) == 0;
}

/* The link count of the folder is the number of threads plus two. */
static void walk_process(struct walk *walk, pid_t pid)
{
	pid_t last = pid;
	struct dirent *entry;
	struct stat st;
	char path[32];
	DIR *dir;

	walk_thread(walk, pid, pid);
	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	if (stat(path, &st) < 0 || st.st_nlink <= 3)
		return;
	dir = opendir(path);
	while (dir && !walk->cut && (entry = readdir(dir))) {
		pid_t thread = (pid_t)atoi(entry->d_name);

		if (thread <= 0 || thread == pid || share_table(last, thread))
			continue;
		walk_thread(walk, pid, thread);
		last = thread;
	}
	if (dir)
		closedir(dir);
}

bool descriptors_each(const pid_t *pids, size_t count, const struct descriptors_ops *ops, void *arg)
{
	struct walk walk = { .ops = ops, .arg = arg };

	for (size_t i = 0; i < count && !walk.cut; i++)
		walk_process(&walk, pids[i]);
	return !walk.cut;
}
