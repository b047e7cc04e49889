/* control_look.c - see control.h; everything here is read from the kernel and never waits */
#include "guest/control.h"
#include "base/file.h"
#include "guest/group.h"
#include <fcntl.h>
#include <stdio.h>

enum { TEXT_MAX = 1024 * 1024, SECTOR = 512 };

static char *read_text(const char *path)
{
	char *text = NULL;

	if (file_read(AT_FDCWD, path, TEXT_MAX, &text, NULL, NULL) < 0)
		return xstrdup("");
	return text;
}

/* ---- figures -------------------------------------------------------------------------------- */

static uint64_t meminfo(const char *text, const char *key)
{
	const char *line = strstr(text, key);

	return line ? strtoull(line + strlen(key), NULL, 10) * 1024 : 0;
}

static uint64_t disk_bytes(const char *path)
{
	_cleanup_free_ char *text = read_text(path);
	unsigned long long in = 0, out = 0;

	if (sscanf(text, "%*u %*u %llu %*u %*u %*u %llu", &in, &out) != 2)
		return 0;
	return (in + out) * SECTOR;
}

static uint64_t number_in(const char *path)
{
	_cleanup_free_ char *text = read_text(path);

	return strtoull(text, NULL, 10);
}

void control_look_stats(struct control_stats *ret)
{
	_cleanup_free_ char *memory = read_text("/proc/meminfo");
	struct group_stats group;

	group_get_stats(&group);
	*ret = (struct control_stats){
		.memory_total = meminfo(memory, "MemTotal:"),
		.memory_free = meminfo(memory, "MemFree:"),
		.memory_available = meminfo(memory, "MemAvailable:"),
		.processes = group.processes,
		.threads = group.threads,
		.oom_kills = group.oom_kills,
		.pids_refused = group.pids_refused,
		.cpu_us = group.cpu_us,
		.io_bytes = disk_bytes("/sys/block/vda/stat") + disk_bytes("/sys/block/vdb/stat"),
		.net_bytes = number_in("/sys/class/net/eth0/statistics/rx_bytes") +
			     number_in("/sys/class/net/eth0/statistics/tx_bytes"),
	};
}

/* ---- timers --------------------------------------------------------------------------------- */

/* Timer functions that wake a program; all others belong to the kernel. */
static const struct {
	const char *function, *call;
} wakers[] = {
	{ "hrtimer_wakeup", "sleep" },
	{ "timerfd_tmrproc", "timerfd" },
	{ "it_real_fn", "alarm" },
	{ "posix_timer_fn", "timer" },
	{ "alarmtimer_fired", "alarm" },
	{ "io_timeout_fn", "io_uring" },
	{ "io_link_timeout_fn", "io_uring" },
};

static const char *call_of(const char *line)
{
	for (size_t i = 0; i < ARRAY_LEN(wakers); i++) {
		size_t len = strlen(wakers[i].function);
		const char *at = strstr(line, wakers[i].function);

		if (at && (at[len] == ',' || at[len] == '\0' || at[len] == ' '))
			return wakers[i].call;
	}
	return NULL;
}

/* now at N nsecs
 *   .offset:     N nsecs                      of the clock that follows, against CLOCK_MONOTONIC
 *  #0: <...>, FUNCTION, S:01
 *  # expires at FROM-TO nsecs [in ... nsecs] */
void control_read_timers(const char *text, bool running, struct control_timer *ret)
{
	_cleanup_free_ char *copy = xstrdup(text);
	char *rest = copy, *line;
	long long now = 0, offset = 0, value, until;
	const char *call = NULL;
	bool read_any = false;

	*ret = (struct control_timer){ .call = "", .comm = "" };
	while ((line = strsep(&rest, "\n"))) {
		if (sscanf(line, "now at %lld nsecs", &value) == 1) {
			now = value;
			read_any = true;
		} else if (sscanf(line, " .offset: %lld nsecs", &value) == 1) {
			offset = value;
		} else if (!strncmp(line, " #", 2) && strchr(line, '<')) {
			call = call_of(line);
		} else if (call && sscanf(line, " # expires at %*d-%lld nsecs", &until) == 1) {
			long long left = MAX(until - offset - now, 0);

			if (ret->kind != CONTROL_TIMER_AT || (uint64_t)left < ret->in_ns)
				*ret = (struct control_timer){ CONTROL_TIMER_AT, (uint64_t)left,
					call, "", 0 };
			call = NULL;
		}
	}
	if (running)
		*ret = (struct control_timer){
			.kind = CONTROL_TIMER_BUSY, .call = "running", .comm = ""
		};
	else if (!read_any)
		ret->kind = CONTROL_TIMER_UNKNOWN;
}

void control_look_timer(struct control_timer *ret)
{
	_cleanup_free_ char *load = read_text("/proc/loadavg");
	_cleanup_free_ char *timers = read_text("/proc/timer_list");
	unsigned running = 0;

	/* We are one of the running ones; others may be kernel threads. */
	if (sscanf(load, "%*f %*f %*f %u/", &running) == 1 && running <= 1)
		running = 0;
	control_read_timers(timers, running && group_is_running(), ret);
}
