/* sockets.c - what sockets hold and no cgroup counts
 *
 * Messages that wait in netlink, raw and ping sockets are on no account of the kernel's, on v1 and
 * v2 alike: each socket may hold some hundred kilobytes, and a box can have tens of thousands. TCP
 * and UDP are counted (see cgroup_limit.c), unix sockets too; packet sockets are refused. But v1
 * lets TCP grow over its limit, by the first message of each of many connections, and packets that
 * come back with their time of sending (SO_TIMESTAMPING) wait in UDP sockets on no account. So a
 * few times a second the tables of those kinds are added up in the network namespaces of each box
 * that runs and has a limit of memory. One that holds more than its share loses the process with
 * the most descriptors, as it would to the kernel's own memory killer. That one may be a decoy, or
 * one of many that hold the same sockets: a box that holds as much some looks later loses all its
 * processes, and at last box-init too.
 *
 * A box with few sockets costs one small file a look; one that is frozen costs nothing. In a nested
 * box every namespace is looked at in which a process stands. */
#include "engine/ns/ns_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "loop/loop.h"
#include "sys/cgroup.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	LOOK_MS = 200,
	FEW = 24,		      /* sockets of a box with not much in it */
	TABLE_MAX = 16 * 1024 * 1024, /* bytes read of one table */
	PIDS_LOOKED_AT = 1024,
	NAMESPACES_MAX = 64, /* of a nested box */
	PART = 8,	     /* of the box's memory */
	LEAST = 16 * 1024 * 1024,
	COUNTED_SHARES = 2, /* of what the kernel should have refused itself */
	LOOKS_TO_ALL = 3,   /* in a row with too much */
	LOOKS_TO_END = 15,
};

static const struct {
	const char *file;
	unsigned column; /* from 0; "SENT:RECEIVED" in hexadecimal, or one decimal number */
	bool hexadecimal;
	bool counted; /* what is in them should be on an account */
} tables[] = {
	{ "netlink", 4, false, false },
	{ "raw", 4, true, false },
	{ "raw6", 4, true, false },
	{ "icmp", 4, true, false },
	{ "icmp6", 4, true, false },
	{ "udp", 4, true, true },
	{ "udp6", 4, true, true },
	{ "udplite", 4, true, true },
	{ "udplite6", 4, true, true },
};

struct held {
	uint64_t uncounted, counted;
};

static uint64_t value_of(const char *line, unsigned column, bool hexadecimal)
{
	const char *at = line + strspn(line, " ");
	char *end;
	uint64_t sum;

	for (; column && *at && *at != '\n'; column--) {
		at += strcspn(at, " \n");
		at += strspn(at, " ");
	}
	if (*at == '\n') /* it would be looked for in the next line */
		return 0;
	if (!hexadecimal)
		return strtoull(at, NULL, 10);
	sum = strtoull(at, &end, 16);
	return *end == ':' ? sum + strtoull(end + 1, NULL, 16) : 0;
}

uint64_t sockets_add_up(const char *table, unsigned column, bool hexadecimal)
{
	uint64_t sum = 0;

	/* The first line has the names. */
	for (const char *line = strchr(table, '\n'); line && *++line; line = strchr(line, '\n'))
		sum += value_of(line, column, hexadecimal);
	return sum;
}

static bool has_many(pid_t pid)
{
	_cleanup_free_ char *text = NULL;
	char path[40];
	unsigned used;

	snprintf(path, sizeof path, "/proc/%d/net/sockstat", (int)pid);
	if (file_read(AT_FDCWD, path, 4096, &text, NULL, NULL) < 0)
		return false;
	return sscanf(text, "sockets: used %u", &used) == 1 && used > FEW;
}

static void add_held_in(pid_t pid, struct held *held)
{
	char path[40];

	if (!has_many(pid))
		return;
	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		_cleanup_free_ char *text = NULL;
		uint64_t *sum = tables[i].counted ? &held->counted : &held->uncounted;
		struct err err;

		snprintf(path, sizeof path, "/proc/%d/net/%s", (int)pid, tables[i].file);
		if (file_read(AT_FDCWD, path, TABLE_MAX, &text, NULL, &err) == 0)
			*sum += sockets_add_up(text, tables[i].column, tables[i].hexadecimal);
		else if (err.kind == ERR_TOO_LARGE)
			*sum = UINT64_MAX /
			       2; /* a hundred thousand sockets are too much, whatever they hold */
	}
}

/* Each namespace once, by its number. */
static void add_held_in_all(const pid_t *pids, size_t count, struct held *held)
{
	ino_t seen[NAMESPACES_MAX];
	size_t known = 0;

	for (size_t i = 0; i < count && known < NAMESPACES_MAX; i++) {
		bool again = false;
		struct stat st;
		char path[40];

		snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pids[i]);
		if (stat(path, &st) < 0)
			continue;
		for (size_t k = 0; k < known && !again; k++)
			again = seen[k] == st.st_ino;
		if (again)
			continue;
		seen[known++] = st.st_ino;
		add_held_in(pids[i], held);
	}
}

static bool take_back(struct ns_engine *engine, struct ns_instance *instance)
{
	if (instance->sockets_over >= LOOKS_TO_END)
		return cgroup_kill(engine->cgroups, instance->group, NULL) == 0;
	if (instance->sockets_over >= LOOKS_TO_ALL)
		return guard_kill_all(instance);
	return guard_kill_largest(instance, guard_count_fds);
}

static void look_at(struct ns_engine *engine, struct ns_instance *instance)
{
	uint64_t allowed = MAX(instance->memory_limit / PART, (uint64_t)LEAST);
	struct held held = { 0 };
	pid_t pids[PIDS_LOOKED_AT];
	size_t count;

	if (instance->profile == PROFILE_NESTED) {
		count = cgroup_pids_below(engine->cgroups, instance->group, pids, PIDS_LOOKED_AT);
		add_held_in_all(pids, MIN(count, (size_t)PIDS_LOOKED_AT), &held);
	} else {
		add_held_in(instance->base.mark.pid, &held);
	}
	held.counted = MAX(held.counted, cgroup_socket_bytes(engine->cgroups, instance->group));
	if (held.uncounted <= allowed && held.counted <= allowed * COUNTED_SHARES) {
		instance->sockets_over = 0;
		return;
	}
	instance->sockets_over++;
	log_warn("sockets of a box hold more than their share of its memory",
		kv_str("box", instance->id),
		kv_int("bytes", (int64_t)MAX(held.uncounted, held.counted)));
	if (take_back(engine, instance) && instance->base.events->on_oom)
		instance->base.events->on_oom(&instance->base, 1, instance->base.arg);
}

static void look(void *arg)
{
	struct ns_engine *engine = arg;

	for (struct ns_instance *instance = engine->first, *next; instance; instance = next) {
		next = instance->next; /* it may end by what is told */
		if (instance->state == NS_RUNNING && instance->memory_limit && !instance->frozen)
			look_at(engine, instance);
	}
	loop_timer_start(engine->sockets_timer, LOOK_MS);
}

void sockets_open(struct ns_engine *engine)
{
	engine->sockets_timer = loop_timer_new(engine->loop, look, engine);
	loop_timer_start(engine->sockets_timer, LOOK_MS);
}
