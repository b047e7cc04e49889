/* members_sweep.c - ends waiting QEMU processes of an earlier daemon */
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/vm/members_internal.h"
#include "sys/procfd.h"
#include "sys/procstat.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

enum { END_MS = 3000 };

void members_write_mark(const struct qemu *qemu)
{
	struct qemu_mark mark = qemu_get_mark(qemu);
	_cleanup_free_ char *path = xasprintf("%s/" MEMBERS_MARK, qemu_get_dir(qemu));
	char text[96], boot[BOOT_ID_SIZE] = "";
	struct err err = ERR_INIT;

	procstat_boot_id(boot, NULL);
	snprintf(text, sizeof text, "%d %llu %s\n", (int)mark.pid,
		(unsigned long long)mark.start_time, boot);
	if (file_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, &err) < 0)
		log_warn("a waiting QEMU has no mark", kv_err(&err));
}

static bool read_mark(int dir, const char *name, struct qemu_mark *ret)
{
	_cleanup_free_ char *path = xasprintf("%s/" MEMBERS_MARK, name), *text = NULL;
	char boot[BOOT_ID_SIZE] = "", of[BOOT_ID_SIZE] = "";
	unsigned long long start_time;
	int pid;

	if (file_read(dir, path, 256, &text, NULL, NULL) < 0 || procstat_boot_id(boot, NULL) < 0)
		return false;
	if (sscanf(text, "%d %llu %39s", &pid, &start_time, of) != 3 || strcmp(of, boot) != 0)
		return false;
	*ret = (struct qemu_mark){ pid, start_time };
	return pid > 1;
}

/* Uses a pidfd opened before its start time is checked, so that it is never another process with
 * the same pid. */
static void end_process(const struct qemu_mark *mark)
{
	_cleanup_close_ int pidfd = -1;
	struct pollfd p = { .events = POLLIN };
	uint64_t start_time;

	if (procfd_open(mark->pid, &pidfd, NULL) < 0 ||
		procstat_start_time(mark->pid, &start_time, NULL) < 0 ||
		start_time != mark->start_time)
		return;
	procfd_kill(pidfd, SIGKILL, NULL);
	p.fd = pidfd;
	poll(&p, 1, END_MS);
}

void members_sweep(const char *run)
{
	DIR *dir = opendir(run);
	struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		struct qemu_mark mark;
		struct err err = ERR_INIT;

		if (!text_has_prefix(entry->d_name, MEMBERS_PREFIX))
			continue;
		if (read_mark(dirfd(dir), entry->d_name, &mark))
			end_process(&mark);
		if (tree_remove(dirfd(dir), entry->d_name, &err) < 0)
			log_warn("what a waiting QEMU left stays", kv_err(&err));
	}
	closedir(dir);
}
