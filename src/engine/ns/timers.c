/* timers.c - when will a sleeping process tree run by itself? See timers.h
 *
 * A thread runs again by itself when a time-out ends. The kernel shows which system call it sleeps
 * in, with the arguments (/proc/PID/task/TID/syscall); the time-out is one of them, or lies in its
 * memory. Where it is relative, it counts from when the thread fell asleep: se.exec_start in
 * /proc/PID/task/TID/sched is the moment it last ran, on a clock of the processor it ran on. Those
 * clocks leave out what a hypervisor took away and drift apart without bound, so ours is read on
 * that same processor: we move there for a moment (40 us), once a second at most for each. Timers
 * that are files tell what is left of them (/proc/PID/fdinfo). POSIX timers are listed without
 * their times, and what alarm() and setitimer() set is not shown at all.
 *
 * A thread that runs, or waits for a disk, is busy; then nothing else matters. */
#include "engine/ns/timers.h"
#include "base/alloc.h"
#include "base/clock.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
	THREADS_MAX = 2048, /* per box; examining more would delay the daemon */
	FILES_MAX = 8192,
	PENDING_MAX = 2048,
	CLOCK_FRESH_US = 1000 * 1000, /* how long a measurement of a processor's clock is valid */
};

struct look {
	pid_t root;
	int64_t now_us, quiet_since_us;
	int64_t monotonic_offset_us, boottime_offset_us; /* from the box's clocks to ours */
	pid_t pending[PENDING_MAX];			 /* processes still to be examined */
	unsigned pending_count;
	unsigned threads, files;
	struct timers_memory *before, after;
	struct instance_timer *ret;
	bool done; /* nothing found later can matter more */
};

struct thread {
	pid_t pid, tid;
	int dir; /* /proc/PID/task/TID */
	long call;
	uint64_t args[6];
};

/* ---- small files of /proc ------------------------------------------------------------------- */

static ssize_t read_at(int dir, const char *name, char *out, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t got;

	if (fd < 0)
		return -1;
	got = read(fd, out, size - 1);
	close(fd);
	out[got < 0 ? 0 : got] = '\0';
	return got;
}

/* "se.exec_start   :    995821.413912"; 0: missing. */
static double exec_start_ms(int dir, const char *name)
{
	char text[1024];
	const char *at;

	if (read_at(dir, name, text, sizeof text) <= 0)
		return 0;
	at = strstr(text, "\nse.exec_start");
	at = at ? strchr(at, ':') : NULL;
	return at ? strtod(at + 1, NULL) : 0;
}

/* The processor a thread is on, or was on last; -1: unknown. Field 39, counted from after the name
 * in parentheses, which may contain any characters. */
static int processor_of(int dir)
{
	char text[1024];
	const char *at;

	if (read_at(dir, "stat", text, sizeof text) <= 0 || !(at = strrchr(text, ')')))
		return -1;
	for (int field = 2; at && field < 39; field++)
		at = strchr(at + 1, ' ');
	return at ? atoi(at) : -1;
}

/* How far the clock of se.exec_start is ahead of CLOCK_MONOTONIC on a processor. False: unknown,
 * for example where we may not run there. */
static bool processor_clock(int processor, int64_t *ret)
{
	static struct known {
		int64_t ahead_us, at_us;
	} known[CPU_SETSIZE];
	cpu_set_t ours, there;
	double ran_ms;
	int64_t now = clock_mono_us();

	if (processor < 0 || processor >= CPU_SETSIZE)
		return false;
	if (!known[processor].at_us || now - known[processor].at_us > CLOCK_FRESH_US) {
		CPU_ZERO(&there);
		CPU_SET(processor, &there);
		if (sched_getaffinity(0, sizeof ours, &ours) < 0 ||
			sched_setaffinity(0, sizeof there, &there) < 0)
			return false;
		ran_ms = exec_start_ms(AT_FDCWD, "/proc/self/sched");
		now = clock_mono_us();
		sched_setaffinity(0, sizeof ours, &ours);
		if (ran_ms <= 0)
			return false;
		known[processor] = (struct known){ (int64_t)(ran_ms * 1000) - now, now };
	}
	*ret = known[processor].ahead_us;
	return true;
}

static int64_t offset_of(const char *text, const char *clock)
{
	const char *at = strstr(text, clock);
	long long seconds, nanoseconds;

	if (!at || sscanf(at + strlen(clock), " %lld %lld", &seconds, &nanoseconds) != 2 ||
		seconds < -(1LL << 40) || seconds > 1LL << 40)
		return 0;
	return seconds * 1000000 + nanoseconds / 1000;
}

static void read_offsets(struct look *look, int dir)
{
	char text[256];

	if (read_at(dir, "timens_offsets", text, sizeof text) <= 0)
		return;
	look->monotonic_offset_us = offset_of(text, "monotonic");
	look->boottime_offset_us = offset_of(text, "boottime");
}

/* ---- what was found ------------------------------------------------------------------------- */

/* For people; the box chooses its processes' names. */
static void tell_process(struct look *look, int dir, pid_t pid)
{
	char text[2048], *at;

	look->ret->pid = pid;
	snprintf(look->ret->comm, sizeof look->ret->comm, "?");
	if (read_at(dir, "comm", text, 17) > 0) {
		text[strcspn(text, "\n")] = '\0';
		for (at = text; *at; at++)
			if (*at < ' ' || *at > '~')
				*at = '?';
		snprintf(look->ret->comm, sizeof look->ret->comm, "%.15s", text);
	}
	/* The second number is the pid inside the box; a nested pid namespace adds a further
	 * one. */
	if (read_at(dir, "status", text, sizeof text) > 0 && (at = strstr(text, "\nNSpid:"))) {
		long outside, inside;

		if (sscanf(at + 7, "%ld %ld", &outside, &inside) == 2)
			look->ret->pid = (pid_t)inside;
	}
}

static void found_other(
	struct look *look, int dir, pid_t pid, enum instance_timer_kind kind, const char *what)
{
	/* Busy is more certain than unknown. */
	if (look->ret->kind == INSTANCE_TIMER_BUSY ||
		(look->ret->kind == INSTANCE_TIMER_UNKNOWN && kind == INSTANCE_TIMER_UNKNOWN))
		return;
	look->ret->kind = kind;
	look->ret->at_us = 0;
	look->done = kind == INSTANCE_TIMER_BUSY;
	snprintf(look->ret->call, sizeof look->ret->call, "%s", what);
	tell_process(look, dir, pid);
}

static void found_at(
	struct look *look, int dir, pid_t pid, int64_t at_us, const char *call, bool span)
{
	look->ret->span |= span && at_us <= look->now_us + INSTANCE_TIMER_FURTHEST_US;
	if (look->ret->kind != INSTANCE_TIMER_NONE && look->ret->kind != INSTANCE_TIMER_AT)
		return;
	/* What is further away counts as never. */
	if (at_us > look->now_us + INSTANCE_TIMER_FURTHEST_US ||
		(look->ret->kind == INSTANCE_TIMER_AT && look->ret->at_us <= at_us))
		return;
	look->ret->kind = INSTANCE_TIMER_AT;
	look->ret->at_us = at_us;
	snprintf(look->ret->call, sizeof look->ret->call, "%s", call);
	tell_process(look, dir, pid);
}

static void too_many(struct look *look, const char *what)
{
	look->ret->kind = INSTANCE_TIMER_UNKNOWN;
	look->ret->pid = 0;
	look->ret->comm[0] = '\0';
	snprintf(look->ret->call, sizeof look->ret->call, "%s", what);
	look->done = true;
}

/* ---- time-outs of system calls -------------------------------------------------------------- */

enum form { MILLISECONDS, TIMESPEC, TIMEVAL, CLOCK_SLEEP, FUTEX, FUTEX_V, UNTIL_REALTIME, URING };

/* How an interrupted call continues: not at all, as restart_syscall, or again with the remaining
 * time in its memory. */
enum again { ENDS, RENAMED, ANEW };

/* arg: which argument is the time-out. */
static const struct call {
	long number;
	const char *name;
	enum form form;
	unsigned arg;
	enum again again;
} calls[] = {
#ifdef SYS_epoll_wait
	{ SYS_epoll_wait, "epoll_wait", MILLISECONDS, 3, ENDS },
#endif
#ifdef SYS_poll
	{ SYS_poll, "poll", MILLISECONDS, 2, RENAMED },
#endif
#ifdef SYS_select
	{ SYS_select, "select", TIMEVAL, 4, ANEW },
#endif
	{ SYS_epoll_pwait, "epoll_pwait", MILLISECONDS, 3, ENDS },
#ifdef SYS_epoll_pwait2
	{ SYS_epoll_pwait2, "epoll_pwait2", TIMESPEC, 3, ENDS },
#endif
	{ SYS_ppoll, "ppoll", TIMESPEC, 2, ANEW },
	{ SYS_pselect6, "pselect6", TIMESPEC, 4, ANEW },
	{ SYS_nanosleep, "nanosleep", TIMESPEC, 0, RENAMED },
	{ SYS_clock_nanosleep, "clock_nanosleep", CLOCK_SLEEP, 2, RENAMED },
	{ SYS_futex, "futex", FUTEX, 3, RENAMED },
#ifdef SYS_futex_waitv
	{ SYS_futex_waitv, "futex_waitv", FUTEX_V, 3, ENDS },
#endif
	{ SYS_rt_sigtimedwait, "sigtimedwait", TIMESPEC, 2, ENDS },
	{ SYS_semtimedop, "semtimedop", TIMESPEC, 3, ENDS },
	{ SYS_io_getevents, "io_getevents", TIMESPEC, 4, ENDS },
#ifdef SYS_io_pgetevents
	{ SYS_io_pgetevents, "io_pgetevents", TIMESPEC, 4, ENDS },
#endif
	{ SYS_recvmmsg, "recvmmsg", TIMESPEC, 4, ENDS },
	{ SYS_mq_timedreceive, "mq_timedreceive", UNTIL_REALTIME, 4, ENDS },
	{ SYS_mq_timedsend, "mq_timedsend", UNTIL_REALTIME, 4, ENDS },
#ifdef SYS_io_uring_enter
	{ SYS_io_uring_enter, "io_uring", URING, 0, ENDS },
#endif
};

enum {
	OP_FUTEX_WAIT = 0,
	OP_FUTEX_LOCK_PI = 6,
	OP_FUTEX_WAIT_BITSET = 9,
	OP_FUTEX_WAIT_REQUEUE_PI = 11,
	OP_FUTEX_LOCK_PI2 = 13,
	OP_FUTEX_COMMAND = 127,
	OP_FUTEX_REALTIME = 256,
};

static int64_t clock_us(clockid_t clock)
{
	struct timespec now;

	if (clock_gettime(clock, &now) < 0)
		return 0;
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* In microseconds. False: it cannot be read, or is not a valid time. */
static bool read_time(const struct thread *thread, uint64_t address, bool timeval, int64_t *ret)
{
	int64_t pair[2];
	struct iovec here = { pair, sizeof pair };
	struct iovec there = { (void *)(uintptr_t)address, sizeof pair };

	if (process_vm_readv(thread->tid, &here, 1, &there, 1, 0) != sizeof pair || pair[0] < 0 ||
		pair[1] < 0 || pair[1] >= 1000000000)
		return false;
	*ret = MIN(pair[0], (int64_t)1 << 40) * 1000000 + (timeval ? pair[1] : pair[1] / 1000);
	return true;
}

/* Converts a moment on one of the box's clocks to our CLOCK_MONOTONIC. */
static int64_t moment_of(const struct look *look, clockid_t clock, int64_t at_us)
{
	switch (clock) {
	case CLOCK_MONOTONIC:
		return at_us - look->monotonic_offset_us;
	case CLOCK_BOOTTIME:
	case CLOCK_BOOTTIME_ALARM:
		return at_us - look->boottime_offset_us - clock_us(CLOCK_BOOTTIME) +
		       clock_us(CLOCK_MONOTONIC);
	case CLOCK_TAI:
		return at_us - clock_us(CLOCK_TAI) + clock_us(CLOCK_MONOTONIC);
	default:
		return at_us - clock_us(CLOCK_REALTIME) + clock_us(CLOCK_MONOTONIC);
	}
}

static int64_t asleep_since(const struct look *look, const struct thread *thread)
{
	double ran_ms = exec_start_ms(thread->dir, "sched");
	int64_t ahead_us;

	if (ran_ms <= 0 || !processor_clock(processor_of(thread->dir), &ahead_us))
		return look->quiet_since_us;
	return MIN((int64_t)(ran_ms * 1000) - ahead_us, look->quiet_since_us);
}

enum answer { NEVER, AT, CANNOT_TELL };

static enum answer until(const struct look *look, const struct thread *thread, clockid_t clock,
	uint64_t address, int64_t *ret)
{
	int64_t at_us;

	if (!address)
		return NEVER;
	if (!read_time(thread, address, false, &at_us))
		return CANNOT_TELL;
	*ret = moment_of(look, clock, at_us);
	return AT;
}

static enum answer after(const struct look *look, const struct thread *thread, uint64_t address,
	bool timeval, int64_t *ret)
{
	int64_t span_us;

	if (!address)
		return NEVER;
	if (!read_time(thread, address, timeval, &span_us))
		return CANNOT_TELL;
	*ret = asleep_since(look, thread) + span_us;
	return AT;
}

static enum answer futex(const struct look *look, const struct thread *thread, int64_t *ret)
{
	uint64_t op = thread->args[1];

	switch (op & OP_FUTEX_COMMAND) {
	case OP_FUTEX_WAIT:
		return after(look, thread, thread->args[3], false, ret);
	case OP_FUTEX_LOCK_PI:
		return until(look, thread, CLOCK_REALTIME, thread->args[3], ret);
	case OP_FUTEX_WAIT_BITSET:
	case OP_FUTEX_WAIT_REQUEUE_PI:
	case OP_FUTEX_LOCK_PI2:
		return until(look, thread,
			op & OP_FUTEX_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC, thread->args[3],
			ret);
	default:
		return NEVER;
	}
}

static enum answer timeout_of(
	const struct look *look, const struct thread *thread, const struct call *call, int64_t *ret)
{
	uint64_t given = thread->args[call->arg];

	switch (call->form) {
	case MILLISECONDS:
		if ((int32_t)given < 0)
			return NEVER;
		*ret = asleep_since(look, thread) + (int64_t)(int32_t)given * 1000;
		return AT;
	case TIMESPEC:
		return after(look, thread, given, false, ret);
	case TIMEVAL:
		return after(look, thread, given, true, ret);
	case CLOCK_SLEEP:
		if (thread->args[1] & TIMER_ABSTIME)
			return until(look, thread, (clockid_t)thread->args[0], given, ret);
		return after(look, thread, given, false, ret);
	case FUTEX:
		return futex(look, thread, ret);
	case FUTEX_V:
		return until(look, thread, (clockid_t)thread->args[4], given, ret);
	case UNTIL_REALTIME:
		return until(look, thread, CLOCK_REALTIME, given, ret);
	case URING:
		break;
	}
	return CANNOT_TELL;
}

static void remember(
	struct look *look, const struct thread *thread, const struct call *call, int64_t at_us)
{
	struct timers_memory *after = &look->after;

	if (after->count == TIMERS_REMEMBERED)
		return;
	after->list[after->count++] = (struct timers_call){
		.tid = thread->tid,
		.at_us = at_us,
		.call = thread->call,
		.address = call && call->again == ANEW ? thread->args[call->arg] : 0,
		.timeval = call && call->form == TIMEVAL,
	};
}

/* The arguments are still those of the original call, but its number is lost. */
static void look_at_restarted(struct look *look, const struct thread *thread)
{
	char where[64];

	for (unsigned i = 0; i < look->before->count; i++)
		if (look->before->list[i].tid == thread->tid && !look->before->list[i].address) {
			int64_t at_us = look->before->list[i].at_us;

			remember(look, thread, NULL, at_us);
			found_at(look, thread->dir, thread->pid, at_us, "sleep", true);
			return;
		}
	/* Only poll() without a time-out is restarted and waits for ever. */
	if (read_at(thread->dir, "wchan", where, sizeof where) > 0 && strstr(where, "poll") &&
		(int32_t)thread->args[2] < 0)
		return;
	found_other(look, thread->dir, thread->pid, INSTANCE_TIMER_UNKNOWN,
		"sleeps in a call that was interrupted");
}

/* After a restore, poll and similar calls return to programs that read the clock. A sleep is often
 * begun again by its program, with its full time, and a call that restarts by itself has what was
 * left then. */
static bool is_span(const struct thread *thread, const struct call *call)
{
	return call->again == ANEW || (call->form == TIMESPEC && call->again == RENAMED) ||
	       (call->form == CLOCK_SLEEP && !(thread->args[1] & TIMER_ABSTIME));
}

static void look_at_call(struct look *look, const struct thread *thread)
{
	int64_t at_us = 0;

	if (thread->call == SYS_restart_syscall)
		return look_at_restarted(look, thread);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		if (calls[i].number != thread->call)
			continue;
		switch (timeout_of(look, thread, &calls[i], &at_us)) {
		case NEVER:
			return;
		case AT:
			if (calls[i].again != ENDS)
				remember(look, thread, &calls[i], at_us);
			return found_at(look, thread->dir, thread->pid, at_us, calls[i].name,
				is_span(thread, &calls[i]));
		case CANNOT_TELL:
			return found_other(look, thread->dir, thread->pid, INSTANCE_TIMER_UNKNOWN,
				calls[i].name);
		}
	}
}

/* ---- threads, files, processes -------------------------------------------------------------- */

/* The letter after the name in parentheses, which may contain any characters. */
static char state_of(int dir)
{
	char text[256];
	const char *end;

	if (read_at(dir, "stat", text, sizeof text) <= 0 || !(end = strrchr(text, ')')) ||
		end[1] != ' ')
		return 'X';
	return end[2];
}

/* "NR 0xA 0xB 0xC 0xD 0xE 0xF 0xSP 0xPC"; false: it is in no call. */
static bool call_of(struct thread *thread)
{
	char text[256];
	unsigned long long args[6];

	if (read_at(thread->dir, "syscall", text, sizeof text) <= 0 ||
		sscanf(text, "%ld %llx %llx %llx %llx %llx %llx", &thread->call, &args[0], &args[1],
			&args[2], &args[3], &args[4], &args[5]) != 7)
		return false;
	for (int i = 0; i < 6; i++)
		thread->args[i] = args[i];
	return true;
}

/* The kernel returns a page at a time. */
static size_t read_children(int dir, char *out, size_t size)
{
	int fd = openat(dir, "children", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	size_t len = 0;
	ssize_t got;

	while (fd >= 0 && len < size - 1 && (got = read(fd, out + len, size - 1 - len)) > 0)
		len += (size_t)got;
	if (fd >= 0)
		close(fd);
	out[len] = '\0';
	return len;
}

static void add_children(struct look *look, int dir)
{
	char text[32768], *at = text, *end;

	if (read_children(dir, text, sizeof text) == sizeof text - 1)
		return too_many(look, "has too many processes to look at");
	for (long pid; (pid = strtol(at, &end, 10)) > 0 && end != at; at = end) {
		if (look->pending_count == PENDING_MAX)
			return too_many(look, "has too many processes to look at");
		look->pending[look->pending_count++] = (pid_t)pid;
	}
}

static void look_at_thread(struct look *look, struct thread *thread)
{
	switch (state_of(thread->dir)) {
	case 'R':
		return found_other(
			look, thread->dir, thread->pid, INSTANCE_TIMER_BUSY, "is running");
	case 'D':
		return found_other(look, thread->dir, thread->pid, INSTANCE_TIMER_BUSY,
			"waits for the kernel (disk)");
	case 'S':
		if (call_of(thread))
			look_at_call(look, thread);
		break;
	default:
		break; /* stopped or dead */
	}
}

static void look_at_threads(struct look *look, int process, pid_t pid)
{
	int list = openat(process, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list < 0 ? NULL : fdopendir(list);
	struct dirent *entry;

	if (!dir) {
		if (list >= 0)
			close(list);
		return;
	}
	while (!look->done && (entry = readdir(dir))) {
		struct thread thread = { .pid = pid, .tid = (pid_t)atoi(entry->d_name) };

		if (thread.tid <= 0)
			continue;
		if (++look->threads > THREADS_MAX) {
			too_many(look, "has too many threads to look at");
			break;
		}
		thread.dir = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (thread.dir < 0)
			continue;
		look_at_thread(look, &thread);
		if (!look->done)
			add_children(look, thread.dir);
		close(thread.dir);
	}
	closedir(dir);
}

static void look_at_timerfd(struct look *look, int process, pid_t pid, const char *fd)
{
	char path[32], text[512];
	const char *at;
	long long seconds, nanoseconds;

	snprintf(path, sizeof path, "fdinfo/%.20s", fd);
	if (read_at(process, path, text, sizeof text) <= 0 || !(at = strstr(text, "it_value:")) ||
		sscanf(at, "it_value: (%lld, %lld)", &seconds, &nanoseconds) != 2 || seconds < 0 ||
		nanoseconds < 0 || (!seconds && !nanoseconds))
		return;
	found_at(look, process, pid,
		look->now_us + MIN(seconds, 1LL << 40) * 1000000 + nanoseconds / 1000, "timerfd",
		false);
}

static void look_at_files(struct look *look, int process, pid_t pid)
{
	static const char timerfd[] = "anon_inode:[timerfd]";
	int list = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list < 0 ? NULL : fdopendir(list);
	struct dirent *entry;

	if (!dir) {
		if (list >= 0)
			close(list);
		return;
	}
	while (!look->done && (entry = readdir(dir))) {
		char target[32];
		ssize_t len;

		if (entry->d_name[0] == '.')
			continue;
		if (++look->files > FILES_MAX) {
			too_many(look, "has too many files open to look at");
			break;
		}
		len = readlinkat(dirfd(dir), entry->d_name, target, sizeof target);
		if (len == sizeof timerfd - 1 && !memcmp(target, timerfd, sizeof timerfd - 1))
			look_at_timerfd(look, process, pid, entry->d_name);
	}
	closedir(dir);
}

static void look_at_process(struct look *look, pid_t pid)
{
	char path[32], text[64];
	int process;

	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	process = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (process < 0)
		return;
	if (pid == look->root)
		read_offsets(look, process);
	look_at_threads(look, process, pid);
	if (!look->done)
		look_at_files(look, process, pid);
	if (!look->done && read_at(process, "timers", text, sizeof text) > 0)
		found_other(look, process, pid, INSTANCE_TIMER_UNKNOWN, "has POSIX timers");
	close(process);
}

void timers_look(pid_t root, int64_t quiet_since_us, struct timers_memory *memory,
	struct instance_timer *ret)
{
	struct look *look = xnew(struct look);

	*ret = (struct instance_timer){ .kind = INSTANCE_TIMER_NONE };
	look->root = root;
	look->ret = ret;
	look->before = memory;
	look->now_us = clock_mono_us();
	look->quiet_since_us = MIN(quiet_since_us, look->now_us);
	look->pending[look->pending_count++] = root;
	while (look->pending_count && !look->done)
		look_at_process(look, look->pending[--look->pending_count]);
	look->after.looked_us = look->now_us;
	*memory = look->after;
	free(look);
}

static bool sleeps_in(const struct timers_call *call)
{
	struct thread thread = { .tid = call->tid };
	char path[32];
	bool same = false;

	snprintf(path, sizeof path, "/proc/%d", (int)call->tid);
	thread.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (thread.dir < 0)
		return false;
	if (call_of(&thread) && thread.call == call->call)
		for (size_t i = 0; i < ARRAY_LEN(calls); i++)
			same |= calls[i].number == call->call &&
				thread.args[calls[i].arg] == call->address;
	close(thread.dir);
	return same;
}

void timers_mend(const struct timers_memory *memory)
{
	int64_t asleep_us = clock_mono_us() - memory->frozen_us;

	for (unsigned i = 0; i < memory->count; i++) {
		const struct timers_call *call = &memory->list[i];
		const struct thread thread = { .tid = call->tid };
		int64_t left_us, pair[2];
		struct iovec here = { pair, sizeof pair };
		struct iovec there = { (void *)(uintptr_t)call->address, sizeof pair };

		if (!call->address || !sleeps_in(call) ||
			!read_time(&thread, call->address, call->timeval, &left_us))
			continue;
		left_us = MAX(left_us - asleep_us, 0);
		pair[0] = left_us / 1000000;
		pair[1] = left_us % 1000000 * (call->timeval ? 1 : 1000);
		(void)!process_vm_writev(call->tid, &here, 1, &there, 1, 0);
	}
}
