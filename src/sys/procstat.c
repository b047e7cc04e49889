/* procstat.c - see procstat.h */
#include "sys/procstat.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAT_FLAGS = 9, STAT_START_TIME = 22 };
enum { FLAG_FORKED_NO_EXEC = 0x40 }; /* PF_FORKNOEXEC of the kernel */

static int read_small(const char *path, char *out, size_t size, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;
	int saved;

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	got = read(fd, out, size - 1);
	saved = errno;
	close(fd);
	if (got < 0)
		return err_sys(err, saved, "read '%s'", path);
	out[got] = '\0';
	return 0;
}

static int read_field(pid_t pid, int number, uint64_t *ret, struct err *err)
{
	char path[32], text[1024];
	char *at;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (read_small(path, text, sizeof text, err) < 0)
		return -1;
	/* The process chooses its command name, which may hold spaces and brackets: fields are
	 * counted from the last bracket. The next field is the third. */
	at = strrchr(text, ')');
	for (int field = 2; at && field < number; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return err_set(err, ERR_SYSTEM, "'%s' has too few fields", path);
	*ret = strtoull(at + 1, NULL, 10);
	return 0;
}

int procstat_start_time(pid_t pid, uint64_t *ret, struct err *err)
{
	return read_field(pid, STAT_START_TIME, ret, err);
}

bool procstat_is_stopped(pid_t pid)
{
	char path[32], text[1024];
	const char *at;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (read_small(path, text, sizeof text, NULL) < 0)
		return false;
	at = strrchr(text, ')');
	return at && !strncmp(at, ") T", 3);
}

int procstat_has_execed(pid_t pid, bool *ret, struct err *err)
{
	uint64_t flags;

	if (read_field(pid, STAT_FLAGS, &flags, err) < 0)
		return -1;
	*ret = !(flags & FLAG_FORKED_NO_EXEC);
	return 0;
}

int procstat_boot_id(char ret[BOOT_ID_SIZE], struct err *err)
{
	if (read_small("/proc/sys/kernel/random/boot_id", ret, BOOT_ID_SIZE, err) < 0)
		return -1;
	ret[strcspn(ret, "\n")] = '\0';
	return 0;
}

int procstat_uid_map(pid_t pid, uint32_t *ret_base, uint32_t *ret_count, struct err *err)
{
	char path[32], text[256];
	unsigned inside, base, count;

	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	if (read_small(path, text, sizeof text, err) < 0)
		return -1;
	if (sscanf(text, "%u %u %u", &inside, &base, &count) != 3 || inside != 0)
		return err_set(err, ERR_STATE, "process %d has no user id map from 0", (int)pid);
	*ret_base = base;
	*ret_count = count;
	return 0;
}

int procstat_has_ids(pid_t pid, uint32_t first, bool *ret, struct err *err)
{
	char path[32], text[512];
	unsigned inside, base, count;

	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	if (read_small(path, text, sizeof text, err) < 0)
		return -1;
	*ret = false;
	for (const char *line = text; line && *line;
		line = strchr(line, '\n'), line += line != NULL)
		if (sscanf(line, "%u %u %u", &inside, &base, &count) == 3 && inside == first)
			*ret = true;
	return 0;
}
