/* neighbours.c - a box must not fill the machine's neighbour tables
 *
 * The kernel has one ARP and one NDP table for all networks, of 1024 entries by default
 * (gc_thresh3). A nested box makes network devices of its own, and its entries stay in these tables
 * as long as it likes: then nobody on the machine finds a new neighbour. So at every second look of
 * sockets.c two small files are read. When a table is half full, the entries of nested boxes are
 * counted (neighbours_walk.c); a box that has over a quarter of a table loses all of its
 * entries. */
#include "engine/ns/neighbours.h"
#include "engine/ns/ns_internal.h"
#include "engine/ns/sockets.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include <fcntl.h>
#include <stdio.h>

enum {
	USUAL_MOST = 1024,
	FULL_PART = 2,
	FAIR_PART = 4,
	LOOKS_TO_ALL = 3, /* looks with too many, before processes are killed */
	LOOKS_TO_END = 15,
	FORGET_US = 10 * 1000 * 1000,
};

/* Only the machine's first network namespace has these files, and the daemon may be in another:
 * then the files of PID 1 tell how full a table is, and the default size is assumed. */
static const struct {
	const char *entries, *most;
} tables[] = {
	{ "/proc/1/net/stat/arp_cache", "/proc/sys/net/ipv4/neigh/default/gc_thresh3" },
	{ "/proc/1/net/stat/ndisc_cache", "/proc/sys/net/ipv6/neigh/default/gc_thresh3" },
};

/* The second line begins with the number, in hexadecimal. */
static unsigned entries_of(const char *path)
{
	_cleanup_free_ char *text = NULL;
	const char *line;

	if (file_read(AT_FDCWD, path, 64 * 1024, &text, NULL, NULL) < 0)
		return 0;
	line = strchr(text, '\n');
	return line ? (unsigned)strtoul(line + 1, NULL, 16) : 0;
}

static unsigned number_in(const char *path)
{
	_cleanup_free_ char *text = NULL;

	return file_read(AT_FDCWD, path, 64, &text, NULL, NULL) < 0
		       ? USUAL_MOST
		       : (unsigned)strtoul(text, NULL, 10);
}

/* How many entries a box may have; 0: any number, because no table is half full, unless always. */
static unsigned fair_share(bool always)
{
	unsigned fair = 0;

	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		unsigned most = number_in(tables[i].most);

		if (most && (always || entries_of(tables[i].entries) > most / FULL_PART))
			fair = fair ? MIN(fair, most / FAIR_PART) : MAX(most / FAIR_PART, 1u);
	}
	return fair;
}

void neighbours_look(struct ns_engine *engine)
{
	bool nested = false;
	unsigned fair;

	for (struct ns_instance *one = engine->first; one && !nested; one = one->next)
		nested = one->profile == PROFILE_NESTED;
	fair = nested ? fair_share(false) : 0;
	for (struct ns_instance *one = engine->first, *next; one; one = next) {
		next = one->next;
		if (fair && one->state == NS_RUNNING && one->profile == PROFILE_NESTED &&
			!one->frozen)
			walker_ask(engine, one, fair);
	}
}

void neighbours_judge(struct ns_engine *engine, struct ns_instance *instance, unsigned number)
{
	int64_t now = clock_mono_us();

	/* They are removed by now, and the table is not full any more. */
	if (number <= fair_share(true))
		return;
	if (now - instance->neighbours_at > FORGET_US)
		instance->neighbours_over = 0;
	instance->neighbours_at = now;
	log_warn(
		"a box filled the machine's table of neighbours: those of its networks were removed",
		kv_str("box", instance->id), kv_int("number", number));
	if (++instance->neighbours_over >= LOOKS_TO_END)
		cgroup_kill(engine->cgroups, instance->group, NULL);
	else if (instance->neighbours_over >= LOOKS_TO_ALL)
		guard_kill_all(instance);
}
