/* sockets.c - limits the memory that sockets hold and no cgroup counts
 *
 * Messages waiting in netlink, raw and ping sockets are charged to nobody, on v1 and v2 alike: each
 * socket may hold some hundred kilobytes, and a box can have tens of thousands. TCP and UDP are
 * charged (see cgroup_limit.c), Unix sockets too; packet sockets are refused. But v1 lets TCP
 * exceed its limit, by the first message of each of many connections, and packets that return with
 * their time of sending (SO_TIMESTAMPING) wait in TCP and UDP sockets uncharged. So a few times a
 * second the tables of those kinds are added up in the network namespaces of each running box with
 * a memory limit, and where tables do not tell enough, the sockets themselves are asked (see
 * socket_walk.c). A box that holds more than its share loses the process with the most descriptors,
 * as it would to the OOM killer. That process may be a decoy, or one of many that hold the same
 * sockets: a box that holds as much some looks later loses all its processes, and at last box-init
 * too.
 *
 * A fifth of a second is long: raw queues take gigabytes a second. So tables are read more often
 * while that costs little, some fifty times a second where few boxes run.
 *
 * A box with few sockets costs one small file per look; a frozen box costs nothing. In a nested box
 * every namespace with a process is examined, and every socket is asked. */
#include "engine/ns/neighbours.h"
#include "engine/ns/ns_internal.h"
#include "engine/ns/sockets.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "loop/loop.h"
#include "sys/cgroup.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	LOOK_MS = 200,
	SOONEST_MS = 20, /* until the next look, when this one cost little */
	REST = 50,	 /* times the duration of the look */
	IN_ANY = 13,	 /* sockets of the gate and of box-init in an unused network */
	FEW = 3,	 /* further sockets that are not examined */
	UNTOLD_ANY = 4,	 /* part of IN_ANY */
	UNTOLD_FEW = 8,	 /* are asked only at some looks */
	UNTOLD_LOOKS = 10,
	PIDS_LOOKED_AT = WALK_PIDS_MAX,
	NAMESPACES_MAX = 512, /* per nested box */
	PART = 8,	      /* share of the box's memory */
	LEAST = 16 * 1024 * 1024,
	COUNTED_SHARES = 2, /* for what the kernel should have refused itself */
	LOOKS_TO_ALL = 3,   /* looks in a row with too much */
	LOOKS_TO_END = 15,
};

/* How many sockets of a box's network hold no more than the smallest share: those that always
 * exist, and a few with the largest buffers that the machine allows (SO_RCVBUF takes them
 * twice). */
static unsigned few_sockets(void)
{
	_cleanup_free_ char *text = NULL;
	uint64_t largest;

	if (file_read(AT_FDCWD, "/proc/sys/net/core/rmem_max", 64, &text, NULL, NULL) < 0)
		return 0;
	largest = 2 * strtoull(text, NULL, 10);
	return IN_ANY + (largest ? (unsigned)MIN((uint64_t)LEAST / largest, (uint64_t)FEW) : FEW);
}

/* Examines each namespace once, by its inode. Too many namespaces or processes count as too much,
 * whatever they hold. */
static unsigned add_all_tables(
	struct ns_engine *engine, struct ns_instance *instance, struct held *held)
{
	unsigned untold = 0;
	pid_t *pids = xcalloc(PIDS_LOOKED_AT, sizeof *pids);
	size_t count = cgroup_pids_below(engine->cgroups, instance->group, pids, PIDS_LOOKED_AT),
	       known = 0;
	ino_t seen[NAMESPACES_MAX];
	bool full = count > PIDS_LOOKED_AT;

	for (size_t i = 0; i < count && !full; i++) {
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
		full = known == NAMESPACES_MAX;
		if (!full)
			seen[known++] = st.st_ino;
		untold += socket_tables_add(pids[i], engine->sockets.few, held);
	}
	if (full)
		held->uncounted = HELD_TOO_MUCH;
	free(pids);
	return untold;
}

static bool take_back(struct ns_engine *engine, struct ns_instance *instance)
{
	if (instance->sockets_over >= LOOKS_TO_END)
		return cgroup_kill(engine->cgroups, instance->group, NULL) == 0;
	if (instance->sockets_over >= LOOKS_TO_ALL)
		return guard_kill_all(instance);
	return guard_kill_largest(instance, guard_count_fds);
}

/* True: the box holds too much, and was punished. */
static bool judge(struct ns_engine *engine, struct ns_instance *instance, struct held held)
{
	uint64_t allowed = MAX(instance->memory_limit / PART, (uint64_t)LEAST);

	if (held.uncounted <= allowed && held.counted <= allowed * COUNTED_SHARES)
		return false;
	instance->sockets_over++;
	log_warn("sockets of a box hold more than their share of its memory",
		kv_str("box", instance->id),
		kv_int("bytes", (int64_t)MAX(held.uncounted, held.counted)));
	if (take_back(engine, instance) && instance->base.events->on_oom)
		instance->base.events->on_oom(&instance->base, 1, instance->base.arg);
	return true;
}

static void on_walked(struct ns_engine *engine, struct ns_instance *instance, struct held held,
	const unsigned *neighbours)
{
	if (neighbours)
		neighbours_judge(engine, instance, *neighbours);
	else if (instance->state == NS_RUNNING && !judge(engine, instance, held))
		instance->sockets_over = 0;
}

/* Whether the tables do not tell enough. Between full looks, only where much is missing from
 * them. */
static bool is_to_be_asked(
	const struct ns_engine *engine, const struct ns_instance *instance, unsigned untold)
{
	if (untold > UNTOLD_FEW)
		return true;
	if (engine->sockets.in_between)
		return false;
	return instance->profile == PROFILE_NESTED ||
	       (untold > UNTOLD_ANY &&
		       (instance->sockets_over || engine->sockets.looks % UNTOLD_LOOKS == 0));
}

static void look_at(struct ns_engine *engine, struct ns_instance *instance)
{
	struct held held = { 0 };
	unsigned untold;

	if (instance->profile == PROFILE_NESTED)
		untold = add_all_tables(engine, instance, &held);
	else
		untold = socket_tables_add(instance->base.mark.pid, engine->sockets.few, &held);
	held.counted = MAX(held.counted, cgroup_socket_bytes(engine->cgroups, instance->group));
	if (judge(engine, instance, held))
		return;
	if (is_to_be_asked(engine, instance, untold))
		walker_ask(engine, instance, 0);
	else
		instance->sockets_over = 0;
}

/* Between full looks, a box that just lost a process has time to release what it held. */
static bool is_looked_at(const struct ns_engine *engine, const struct ns_instance *instance)
{
	return instance->state == NS_RUNNING && instance->memory_limit && !instance->frozen &&
	       !(engine->sockets.in_between && instance->sockets_over);
}

static void look(void *arg)
{
	struct ns_engine *engine = arg;
	int64_t since = clock_mono_us(), next_ms;

	engine->sockets.in_between = since < engine->sockets.last + LOOK_MS * INT64_C(1000);
	engine->sockets.few = few_sockets();
	if (!engine->sockets.in_between) {
		engine->sockets.last = since;
		/* Every second look: there is one request per box, and sockets need their turn
		 * too. */
		if (engine->sockets.looks++ % 2 == 0)
			neighbours_look(engine);
	}
	next_ms = LOOK_MS;
	for (struct ns_instance *instance = engine->first, *next; instance; instance = next) {
		next = instance->next; /* it may end by the following call */
		if (!is_looked_at(engine, instance))
			continue;
		next_ms = SOONEST_MS;
		look_at(engine, instance);
	}
	next_ms = MAX(next_ms, REST * (clock_mono_us() - since) / 1000);
	loop_timer_start(engine->sockets.timer, (uint64_t)MIN(next_ms, (int64_t)LOOK_MS));
}

void sockets_open(struct ns_engine *engine)
{
	walker_open(engine, on_walked);
	engine->sockets.timer = loop_timer_new(engine->loop, look, engine);
	loop_timer_start(engine->sockets.timer, LOOK_MS);
}

void sockets_close(struct ns_engine *engine)
{
	loop_timer_free(engine->sockets.timer);
	walker_close(engine);
}
