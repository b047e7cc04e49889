/* proc.c - see proc.h
 *
 * Reading /proc/PID/stat never waits for the process, so box-init itself may read it. cmdline may
 * wait (it reads the process's memory), hence a worker does the listing.
 *
 * A nested box may mount something over /proc, or over files in it, whose open never returns.
 * box-init therefore opens /proc once, before any program runs, and crosses no mount below. */
#include "guest/proc.h"
#include "guest/exec.h"
#include "guest/path.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

enum {
	PROCESSES_MAX = 65536, /* looked at */
	LISTED_MAX = 500,
	COMMAND_MAX = 512,
	RECORD_MAX = 700, /* more than one wire_process takes */
	STAT_TEXT = 2048,
	KERNEL_THREAD = 0x00200000, /* PF_KTHREAD: a box with a kernel of its own sees them */
};

struct process {
	pid_t pid, parent, session;
	char state;
	char name[17];
	uint64_t ticks, start_ticks, pages;
	bool marked;
};

struct process_list {
	struct process *all;
	size_t count;
};

static int own_proc = -1;

int proc_open(struct err *err)
{
	own_proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return own_proc < 0 ? err_sys(err, errno, "open /proc") : 0;
}

void proc_keep(int fd)
{
	if (fd != own_proc)
		dup3(own_proc, fd, O_CLOEXEC);
}

void proc_execute_self(int fd, const char *const *argv)
{
	execveat(fd, "self/exe", (char *const *)argv, environ, 0);
}

static ssize_t read_small(int dir, const char *path, char *out, size_t size)
{
	_cleanup_close_ int fd =
		open_how(dir, path, O_RDONLY, 0, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS);
	ssize_t got = fd < 0 ? -1 : read(fd, out, size - 1);

	if (got >= 0)
		out[got] = '\0';
	return got;
}

/* pid (name) state ppid pgrp session ...; the name may contain anything, ')' too, so its end is
 * searched from the end. */
static bool parse_stat(char *text, struct process *ret)
{
	char *open = strchr(text, '('), *close = strrchr(text, ')');
	unsigned long user = 0, system = 0, pages = 0;
	unsigned long long start = 0;
	unsigned flags = 0;
	int parent, session;

	if (!open || !close || close < open)
		return false;
	if (sscanf(close + 1,
		    " %c %d %*d %d %*d %*d %u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d "
		    "%llu %*u %lu",
		    &ret->state, &parent, &session, &flags, &user, &system, &start, &pages) != 8 ||
		flags & KERNEL_THREAD)
		return false;
	*close = '\0';
	snprintf(ret->name, sizeof ret->name, "%.16s", open + 1);
	ret->parent = parent;
	ret->session = session;
	ret->ticks = user + system;
	ret->start_ticks = start;
	ret->pages = pages;
	return true;
}

static int list_processes(struct process_list *ret, struct err *err)
{
	int fd = openat(own_proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	size_t room = 0;

	*ret = (struct process_list){ 0 };
	if (!dir) {
		err_sys(err, errno, "read /proc of the box");
		cleanup_closep(&fd);
		return -1;
	}
	while ((entry = readdir(dir)) && ret->count < PROCESSES_MAX) {
		char path[300], text[STAT_TEXT];

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		if (ret->count == room) {
			room = MAX((size_t)64, room * 2);
			xgrow(ret->all, room);
		}
		ret->all[ret->count] = (struct process){ .pid = atoi(entry->d_name) };
		snprintf(path, sizeof path, "%s/stat", entry->d_name);
		if (read_small(dirfd(dir), path, text, sizeof text) > 0 &&
			parse_stat(text, &ret->all[ret->count]))
			ret->count++;
	}
	closedir(dir);
	return 0;
}

static struct process *find_process(const struct process_list *list, pid_t pid)
{
	/* /proc lists by rising pid. */
	size_t low = 0, high = list->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (list->all[middle].pid == pid)
			return &list->all[middle];
		if (list->all[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

/* Marks children of marked ones until none is new. The depth of the tree bounds the rounds. */
static void mark_descendants(struct process_list *list)
{
	bool again = true;

	while (again) {
		again = false;
		for (size_t i = 0; i < list->count; i++) {
			struct process *parent = find_process(list, list->all[i].parent);

			if (!list->all[i].marked && parent && parent->marked) {
				list->all[i].marked = true;
				again = true;
			}
		}
	}
}

void proc_signal_session(pid_t session, bool leader_lives, int number)
{
	struct process_list list;

	if (list_processes(&list, NULL) < 0) {
		if (leader_lives)
			kill(-session, number);
		return;
	}
	/* Its /proc entry is covered by a mount; it must be ended all the same. */
	if (leader_lives && !find_process(&list, session))
		kill(-session, number);
	/* The leader was reaped and its pid reused by another process: the session is empty. */
	if (!leader_lives && find_process(&list, session))
		list.count = 0;
	for (size_t i = 0; i < list.count; i++)
		list.all[i].marked = list.all[i].session == session ||
				     (leader_lives && list.all[i].pid == session);
	mark_descendants(&list);
	for (size_t i = 0; i < list.count; i++)
		if (list.all[i].marked && list.all[i].pid > 1 && list.all[i].pid != getpid())
			kill(list.all[i].pid, number);
	free(list.all);
}

/* ---- listing, in a worker ------------------------------------------------------------------- */

static uint64_t tick_us(void)
{
	return 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* The clock that start times of processes are told in. */
static uint64_t since_boot_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint32_t read_uid(pid_t pid)
{
	char path[32], text[STAT_TEXT];
	const char *line;

	snprintf(path, sizeof path, "%d/status", pid);
	if (read_small(own_proc, path, text, sizeof text) <= 0)
		return 0;
	line = strstr(text, "\nUid:");
	return line ? (uint32_t)strtoul(line + 5, NULL, 10) : 0;
}

static void read_command(const struct process *process, char *out)
{
	char path[32];
	ssize_t len;

	snprintf(path, sizeof path, "%d/cmdline", process->pid);
	len = read_small(own_proc, path, out, COMMAND_MAX + 1);
	while (len > 0 && out[len - 1] == '\0')
		len--;
	for (ssize_t i = 0; i < len; i++)
		if (out[i] == '\0')
			out[i] = ' ';
	if (len <= 0)
		snprintf(out, COMMAND_MAX + 1, "[%s]", process->name);
}

static const char *exec_of(const struct process_list *list, const struct process *process)
{
	/* A chain of parents is finite, but /proc is not read at one moment. */
	for (int depth = 0; process && depth < 64; depth++) {
		const char *id = exec_id_of(process->pid, process->session);

		if (id)
			return id;
		process = find_process(list, process->parent);
	}
	return "";
}

static void put_process(
	struct buf *out, const struct process_list *list, const struct process *process)
{
	char command[COMMAND_MAX + 1];

	read_command(process, command);
	wire_put_process(out, &(struct wire_process){
				      .pid = (uint32_t)process->pid,
				      .ppid = (uint32_t)process->parent,
				      .uid = read_uid(process->pid),
				      .state = process->state,
				      .rss_bytes = process->pages * (uint64_t)sysconf(_SC_PAGESIZE),
				      .cpu_us = process->ticks * tick_us(),
				      .started_us = process->start_ticks * tick_us(),
				      .exec = exec_of(list, process),
				      .command = command,
			      });
}

int proc_put_processes(struct buf *out, struct err *err)
{
	struct process_list list;
	struct buf records = BUF_INIT;
	uint32_t listed = 0, hidden = 0;

	if (proc_open(err) < 0 || list_processes(&list, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++) {
		/* The worker itself is left out. */
		if (list.all[i].pid == getpid()) {
			hidden++;
			continue;
		}
		if (listed >= LISTED_MAX || records.len + RECORD_MAX > WIRE_PAYLOAD_MAX)
			continue;
		put_process(&records, &list, &list.all[i]);
		listed++;
	}
	wire_put_u32(out, (uint32_t)list.count - hidden);
	wire_put_u32(out, listed);
	buf_add(out, buf_head(&records), records.len);
	buf_done(&records);
	free(list.all);
	return 0;
}

int proc_put_stats(struct buf *out, struct err *err)
{
	struct process_list list;
	struct process *init;
	struct wire_stats stats = { 0 };

	if (proc_open(err) < 0 || list_processes(&list, err) < 0)
		return -1;
	init = find_process(&list, getppid());
	stats.processes = (uint32_t)list.count - 1;
	if (init)
		stats.uptime_us = since_boot_us() - init->start_ticks * tick_us();
	free(list.all);
	stats.execs_running = exec_count_running();
	stats.journal_bytes = exec_journal_memory();
	wire_put_stats(out, &stats);
	return 0;
}
