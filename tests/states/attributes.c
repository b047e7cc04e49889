/* attributes.c - what a process or thread has set for itself, beside files, memory and signals
 *
 * Each attribute is set once, read back, and must read the same ever after. */
#include "tests/states/checks.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE		 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#define PR_GET_MDWE		 66
#endif

enum { PAGE = 4096, IO_WHO_PROCESS = 1, IO_CLASS = 13, IO_BEST_EFFORT = 2, UNKNOWN = -1000000 };

static char *mapped;

static long proc_read(const char *name, int base)
{
	char path[64], text[64] = "";
	int fd;

	snprintf(path, sizeof path, "/proc/self/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
		text[0] = '\0';
	close(fd);
	return *text ? strtol(text, NULL, base) : UNKNOWN;
}

static bool proc_write(const char *name, const char *text)
{
	char path[64];
	int fd;
	bool good;

	snprintf(path, sizeof path, "/proc/self/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return good;
}

/* ---- one after the other -------------------------------------------------------------------- */

static bool affinity_set(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	return sched_setaffinity(0, sizeof set, &set) == 0;
}

static long affinity_get(void)
{
	unsigned long words[16] = { 0 };

	return syscall(SYS_sched_getaffinity, 0, sizeof words, words) < 0 ? UNKNOWN
									  : (long)words[0];
}

static bool ioprio_put(void)
{
	return syscall(SYS_ioprio_set, IO_WHO_PROCESS, 0, IO_BEST_EFFORT << IO_CLASS | 6) == 0;
}

static long ioprio_read(void)
{
	return syscall(SYS_ioprio_get, IO_WHO_PROCESS, 0);
}

static bool slack_set(void)
{
	return prctl(PR_SET_TIMERSLACK, 7654321, 0, 0, 0) == 0;
}

static long slack_get(void)
{
	return prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
}

static bool core_set(void)
{
	return proc_write("coredump_filter", "0x7");
}

static long core_get(void)
{
	return proc_read("coredump_filter", 16);
}

static bool oom_set(void)
{
	return proc_write("oom_score_adj", "345");
}

static long oom_get(void)
{
	return proc_read("oom_score_adj", 10);
}

static bool dumpable_set(void)
{
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

static long dumpable_get(void)
{
	return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
}

static bool securebits_set(void)
{
	return prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS, 0, 0, 0) == 0;
}

static long securebits_get(void)
{
	return prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
}

static bool subreaper_set(void)
{
	return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

static long subreaper_get(void)
{
	int value = UNKNOWN;

	prctl(PR_GET_CHILD_SUBREAPER, &value, 0, 0, 0);
	return value;
}

static bool huge_set(void)
{
	return prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0;
}

static long huge_get(void)
{
	return prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
}

static bool no_new_code_set(void)
{
	/* Before Linux 6.3 there is none. */
	return prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) == 0 || errno == EINVAL;
}

static long no_new_code_get(void)
{
	return prctl(PR_GET_MDWE, 0, 0, 0, 0);
}

static bool persona_set(void)
{
	return personality(ADDR_NO_RANDOMIZE) != -1;
}

static long persona_get(void)
{
	return personality(0xffffffff);
}

static bool reset_set(void)
{
	return sched_setscheduler(
		       0, SCHED_BATCH | SCHED_RESET_ON_FORK, &(struct sched_param){ 0 }) == 0;
}

static long reset_get(void)
{
	return sched_getscheduler(0);
}

static bool barrier_set(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static long barrier_get(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static bool speculation_set(void)
{
	long now = prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0);

	/* Most machines leave no choice. */
	return !(now & PR_SPEC_PRCTL) ||
	       prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_DISABLE, 0, 0) == 0;
}

static long speculation_get(void)
{
	return prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0);
}

static const struct attribute {
	const char *name;
	bool (*set)(void);
	long (*get)(void);
} attributes[] = {
	{ "CPUs it is bound to", affinity_set, affinity_get },
	{ "priority of its I/O", ioprio_put, ioprio_read },
	{ "slack of its timers", slack_set, slack_get },
	{ "what goes into a core dump", core_set, core_get },
	{ "score for the memory killer", oom_set, oom_get },
	{ "securebits", securebits_set, securebits_get },
	{ "subreaper", subreaper_set, subreaper_get },
	{ "huge pages", huge_set, huge_get },
	{ "no new executable memory", no_new_code_set, no_new_code_get },
	{ "personality", persona_set, persona_get },
	{ "scheduling, reset for children", reset_set, reset_get },
	{ "memory barriers", barrier_set, barrier_get },
	{ "speculation", speculation_set, speculation_get },
	{ "dumpable", dumpable_set, dumpable_get },
};
enum { ATTRIBUTES = sizeof attributes / sizeof attributes[0] };

/* ---- memory --------------------------------------------------------------------------------- */

static const struct {
	int advice;
	const char *flag; /* in /proc/PID/smaps */
} advices[] = { { MADV_DONTFORK, "dc" }, { MADV_WIPEONFORK, "wf" }, { MADV_DONTDUMP, "dd" },
	{ MADV_SEQUENTIAL, "sr" }, { MADV_RANDOM, "rr" }, { MADV_UNMERGEABLE, "" } };
enum { ADVICES = sizeof advices / sizeof advices[0] };

/* "VmFlags: rd wr …" of the mapping that begins there. */
static bool map_has_flag(const char *at, const char *flag)
{
	char line[512], start[32], wanted[8];
	bool here = false, found = false;
	FILE *file = fopen("/proc/self/smaps", "re");

	snprintf(start, sizeof start, "%lx-", (unsigned long)at);
	snprintf(wanted, sizeof wanted, " %s", flag);
	while (file && !found && fgets(line, sizeof line, file)) {
		if (strchr("0123456789abcdef", line[0]))
			here = strncmp(line, start, strlen(start)) == 0;
		found = here && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, wanted);
	}
	if (file)
		fclose(file);
	return found;
}

/* ---- kinds ---------------------------------------------------------------------------------- */

static long values[ATTRIBUTES];
static volatile long thread_slack, thread_io;
static volatile bool thread_asked;

/* Some attributes are a thread's: this one has others than its process. */
static void *thread_main(void *unused)
{
	(void)unused;
	prctl(PR_SET_TIMERSLACK, 1234567, 0, 0, 0);
	syscall(SYS_ioprio_set, IO_WHO_PROCESS, 0, IO_BEST_EFFORT << IO_CLASS | 1);
	for (;; usleep(1000)) {
		thread_slack = slack_get();
		thread_io = ioprio_read();
		thread_asked = false;
	}
	return NULL;
}

static void thread_verify(struct check *check)
{
	thread_asked = true;
	for (int tries = 0; thread_asked && tries < 2000; tries++)
		usleep(1000);
	thread_asked = true; /* it may have read them just before */
	for (int tries = 0; thread_asked && tries < 2000; tries++)
		usleep(1000);
	errno = 0;
	must(check, !thread_asked && thread_slack == 1234567, "slack of a thread's timers: %ld",
		thread_slack);
	must(check, thread_io == (IO_BEST_EFFORT << IO_CLASS | 1),
		"priority of a thread's I/O: %ld", thread_io);
}

static void attributes_set_up(struct check *check)
{
	for (size_t i = 0; i < ATTRIBUTES; i++) {
		must(check, attributes[i].set(), "set: %s", attributes[i].name);
		values[i] = attributes[i].get();
		must(check, values[i] != UNKNOWN, "get: %s", attributes[i].name);
	}
	must(check, pthread_create(&(pthread_t){ 0 }, NULL, thread_main, NULL) == 0, "a thread");
	/* Every second page, so that none is joined with its neighbour. */
	mapped = mmap(NULL, 2 * ADVICES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < ADVICES; i++) {
		char *page = mapped + 2 * i * PAGE;

		must(check,
			mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0 &&
				madvise(page, PAGE, advices[i].advice) == 0 &&
				map_has_flag(page, advices[i].flag),
			"madvise %s", advices[i].flag);
	}
}

static void attributes_verify(struct check *check)
{
	errno = 0;
	for (size_t i = 0; i < ATTRIBUTES; i++) {
		long now = attributes[i].get();

		errno = 0;
		must(check, now == values[i], "%s: %ld, was %ld", attributes[i].name, now,
			values[i]);
	}
	thread_verify(check);
	for (size_t i = 0; i < ADVICES; i++)
		must(check, map_has_flag(mapped + 2 * i * PAGE, advices[i].flag), "madvise %s",
			advices[i].flag);
}

const struct kind kind_attributes = { "attributes", attributes_set_up, attributes_verify };
