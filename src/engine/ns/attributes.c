/* attributes.c - settings of threads that CRIU does not keep
 *
 * CPU affinity, I/O priority, timer slack and the core dump filter are read and set from outside
 * while everything is frozen: one line for each thread that differs from box-init, by the number it
 * has in the box.
 *
 *   NUMBER CPUS IO-PRIORITY SLACK CORE
 *
 * None of it is worth losing a box: a setting that cannot be restored, such as a CPU that this
 * machine does not have, is left out. */
#include "engine/ns/ns_internal.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/syscall.h>

enum {
	THREADS_MAX = 8192,
	PROCESSES_MAX = 8192,
	CPU_WORDS = 16, /* 1024 CPUs */
	CPU_TEXT = CPU_WORDS * 17,
	TEXT_MAX = 1024 * 1024,
	IO_WHO_PROCESS = 1,
	IO_CLASS_SHIFT = 13,
	IO_CLASS_REAL_TIME = 1, /* no box may have it */
};

struct attributes {
	uint64_t cpus[CPU_WORDS];
	long io;
	uint64_t slack, core;
};

/* ---- one thread ----------------------------------------------------------------------------- */

static bool read_number(pid_t tid, const char *name, int base, uint64_t *ret)
{
	_cleanup_free_ char *text = NULL;
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", (int)tid, name);
	if (file_read(AT_FDCWD, path, 64, &text, NULL, NULL) < 0)
		return false;
	*ret = strtoull(text, NULL, base);
	return true;
}

/* False when the thread has ended. */
static bool attributes_get(pid_t tid, struct attributes *ret)
{
	*ret = (struct attributes){ 0 };
	if (syscall(SYS_sched_getaffinity, tid, sizeof ret->cpus, ret->cpus) < 0)
		return false;
	ret->io = syscall(SYS_ioprio_get, IO_WHO_PROCESS, tid);
	return ret->io >= 0 && read_number(tid, "timerslack_ns", 10, &ret->slack) &&
	       read_number(tid, "coredump_filter", 16, &ret->core);
}

static bool attributes_equal(const struct attributes *a, const struct attributes *b)
{
	return !memcmp(a->cpus, b->cpus, sizeof a->cpus) && a->io == b->io &&
	       a->slack == b->slack && a->core == b->core;
}

static void write_number(pid_t tid, const char *name, uint64_t value)
{
	char path[64], text[24];

	snprintf(path, sizeof path, "/proc/%d/%s", (int)tid, name);
	snprintf(text, sizeof text, "%" PRIu64, value);
	file_poke(AT_FDCWD, path, text, NULL);
}

static void attributes_set(pid_t tid, const struct attributes *to)
{
	struct attributes now;

	if (!attributes_get(tid, &now))
		return;
	if (memcmp(now.cpus, to->cpus, sizeof now.cpus) != 0)
		syscall(SYS_sched_setaffinity, tid, sizeof to->cpus, to->cpus);
	if (now.io != to->io)
		syscall(SYS_ioprio_set, IO_WHO_PROCESS, tid, to->io);
	if (now.slack != to->slack)
		write_number(tid, "timerslack_ns", to->slack);
	if (now.core != to->core)
		write_number(tid, "coredump_filter", to->core);
}

/* The thread's number in the box; 0: it has ended. */
static long number_inside(pid_t tid)
{
	_cleanup_free_ char *status = NULL;
	const char *at;
	char path[64], *end;
	long number;

	snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
	if (file_read(AT_FDCWD, path, TEXT_MAX, &status, NULL, NULL) < 0)
		return 0;
	at = strstr(status, "\nNSpid:\t");
	if (!at)
		return 0;
	number = strtol(at + strlen("\nNSpid:\t"), &end, 10);
	return *end == '\t' ? strtol(end, NULL, 10) : number;
}

/* ---- all of them ---------------------------------------------------------------------------- */

typedef void (*visit_fn)(pid_t tid, void *arg);

struct walk {
	pid_t *pids; /* found so far; the first ones are done */
	size_t count, threads;
	visit_fn visit;
	void *arg;
};

static void add_children(struct walk *walk, pid_t pid, pid_t tid)
{
	_cleanup_free_ char *text = NULL;
	char path[96], *at, *end;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)tid);
	if (file_read(AT_FDCWD, path, TEXT_MAX, &text, NULL, NULL) < 0)
		return;
	for (at = text; walk->count < PROCESSES_MAX; at = end) {
		long child = strtol(at, &end, 10);

		if (end == at || child <= 0)
			return;
		xgrow(walk->pids, walk->count + 1);
		walk->pids[walk->count++] = (pid_t)child;
	}
}

static void visit_process(struct walk *walk, pid_t pid)
{
	struct dirent *entry;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && walk->threads < THREADS_MAX && (entry = readdir(dir))) {
		pid_t tid = (pid_t)atoi(entry->d_name);

		if (tid <= 0)
			continue;
		walk->threads++;
		walk->visit(tid, walk->arg);
		add_children(walk, pid, tid);
	}
	if (dir)
		closedir(dir);
}

static void each_thread(pid_t init, visit_fn visit, void *arg)
{
	struct walk walk = { .visit = visit, .arg = arg };

	xgrow(walk.pids, 1);
	walk.pids[walk.count++] = init;
	for (size_t i = 0; i < walk.count; i++)
		visit_process(&walk, walk.pids[i]);
	free(walk.pids);
}

/* ---- saving --------------------------------------------------------------------------------- */

struct keeping {
	struct attributes usual;
	struct buf lines;
};

static void cpus_to_text(const uint64_t *cpus, char out[CPU_TEXT])
{
	size_t at = 0;

	for (size_t i = 0; i < CPU_WORDS; i++)
		at += (size_t)snprintf(
			out + at, CPU_TEXT - at, "%s%" PRIx64, i ? "," : "", cpus[i]);
}

static void keep(pid_t tid, void *arg)
{
	struct keeping *keeping = arg;
	struct attributes own;
	char cpus[CPU_TEXT], line[CPU_TEXT + 128];
	long number;
	int len;

	if (!attributes_get(tid, &own) || attributes_equal(&own, &keeping->usual))
		return;
	number = number_inside(tid);
	if (number <= 0)
		return;
	cpus_to_text(own.cpus, cpus);
	len = snprintf(line, sizeof line, "%ld %s %ld %" PRIu64 " %" PRIu64 "\n", number, cpus,
		own.io, own.slack, own.core);
	buf_add(&keeping->lines, line, (size_t)len);
}

int attributes_save(pid_t init, int dir, struct err *err)
{
	struct keeping keeping = { .lines = BUF_INIT };
	_cleanup_close_ int out = -1;
	int status = 0;

	if (!attributes_get(init, &keeping.usual))
		return 0;
	each_thread(init, keep, &keeping);
	if (keeping.lines.len) {
		out = openat(dir, STATE_ATTRIBUTES, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		status = out < 0 ? err_sys(err, errno, "make '" STATE_ATTRIBUTES "'")
				 : fd_write_all(
					   out, buf_head(&keeping.lines), keeping.lines.len, err);
	}
	buf_done(&keeping.lines);
	return status;
}

/* ---- restoring ------------------------------------------------------------------------------ */

struct setting {
	struct {
		long number;
		struct attributes attributes;
	} * lines;
	size_t count;
};

static bool line_read(const char *line, long *ret_number, struct attributes *ret)
{
	const char *at = line;
	char *end;

	*ret_number = strtol(at, &end, 10);
	for (size_t i = 0; i < CPU_WORDS; i++) {
		if (*end != (i ? ',' : ' '))
			return false;
		ret->cpus[i] = strtoull(end + 1, &end, 16);
	}
	if (*end != ' ')
		return false;
	ret->io = strtol(end + 1, &end, 10);
	if (*end != ' ')
		return false;
	ret->slack = strtoull(end + 1, &end, 10);
	if (*end != ' ')
		return false;
	ret->core = strtoull(end + 1, &end, 10);
	return *end == '\n' && *ret_number > 0 && ret->io >> IO_CLASS_SHIFT != IO_CLASS_REAL_TIME;
}

static void set_again(pid_t tid, void *arg)
{
	const struct setting *setting = arg;
	long number = number_inside(tid);

	for (size_t i = 0; i < setting->count; i++)
		if (setting->lines[i].number == number)
			attributes_set(tid, &setting->lines[i].attributes);
}

void attributes_load(pid_t init, int dir)
{
	struct setting setting = { .lines = NULL };
	_cleanup_free_ char *text = NULL;
	struct err err = ERR_INIT;

	if (file_read(dir, STATE_ATTRIBUTES, THREADS_MAX * (CPU_TEXT + 128), &text, NULL, &err) <
		0) {
		if (err.kind != ERR_NOT_FOUND)
			log_warn("what threads had set for themselves is lost", kv_err(&err));
		return;
	}
	for (char *line = text, *next; *line && setting.count < THREADS_MAX; line = next) {
		next = strchr(line, '\n');
		next = next ? next + 1 : line + strlen(line);
		xgrow(setting.lines, setting.count + 1);
		if (line_read(line, &setting.lines[setting.count].number,
			    &setting.lines[setting.count].attributes))
			setting.count++;
	}
	each_thread(init, set_again, &setting);
	free(setting.lines);
}
