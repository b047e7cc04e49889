/* memory.c - memory of the daemon and of the host, as the kernel reports it */
#include "bench/bench_internal.h"
#include "base/file.h"
#include "base/text.h"
#include <fcntl.h>
#include <stdio.h>

enum { LOOKS = 9, LOOKS_MS = 1000 };

/* Finds "Cached:" and not "SwapCached:". */
static const char *find_line(const char *text, const char *key)
{
	_cleanup_free_ char *start = xasprintf("\n%s", key);
	const char *found = strstr(text, start);

	return found ? found + 1 : NULL;
}

/* The number after key in a /proc file of `Key:  N kB` lines, in MiB. */
static int proc_mib(const char *path, const char *key, double *ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	const char *line;

	if (file_read(AT_FDCWD, path, 64 * 1024, &text, NULL, err) < 0)
		return -1;
	line = text_has_prefix(text, key) ? text : find_line(text, key);
	if (!line)
		return err_set(err, ERR_PROTOCOL, "'%s' does not tell %s", path, key);
	*ret = strtod(line + strlen(key), NULL) / 1024.0;
	return 0;
}

int bench_memory_of(pid_t pid, double *ret, struct err *err)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	return proc_mib(path, "VmRSS:", ret, err);
}

int bench_memory_own(pid_t pid, double *ret, struct err *err)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
	return proc_mib(path, "Anonymous:", ret, err);
}

int bench_memory_available(double *ret, struct err *err)
{
	double looks[LOOKS];

	for (size_t i = 0; i < LOOKS; i++) {
		double now;
		size_t at = i;

		usleep(LOOKS_MS * 1000 / LOOKS);
		if (proc_mib("/proc/meminfo", "MemAvailable:", &now, err) < 0)
			return -1;
		for (; at > 0 && looks[at - 1] > now; at--)
			looks[at] = looks[at - 1];
		looks[at] = now;
	}
	*ret = looks[LOOKS / 2];
	return 0;
}

int bench_memory_cached(double *ret, struct err *err)
{
	return proc_mib("/proc/meminfo", "Cached:", ret, err);
}
