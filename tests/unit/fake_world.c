/* fake_world.c - what the fake driver was told, and the processes that run
 *
 * The processes are those of all boxes, of this daemon and of those before. */
#include "engine_fake_internal.h"
#include "base/alloc.h"
#include "engine/groups.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* ---- steps ---------------------------------------------------------------------------------- */

enum { RULES_MAX = 8, TRACE_MAX = 4096 };

static struct {
	struct rule {
		enum fake_step step;
		unsigned nth;
		enum fake_how how;
	} rules[RULES_MAX];
	unsigned rule_count;
	unsigned reached[FAKE_STEP_COUNT];
	enum fake_step trace[TRACE_MAX];
	size_t trace_count;
	void (*on_step)(size_t index, void *arg);
	void *arg;
} told;

static const char *const step_names[] = {
	[FAKE_START] = "start",
	[FAKE_ADOPT] = "adopt",
	[FAKE_SWEEP] = "sweep",
	[FAKE_CONNECT] = "connect",
	[FAKE_NETNS] = "netns",
	[FAKE_KILL] = "kill",
	[FAKE_FREEZE] = "freeze",
	[FAKE_THAW] = "thaw",
	[FAKE_LIMITS] = "limits",
	[FAKE_HOSTNAME] = "hostname",
	[FAKE_MARKED] = "marked",
	[FAKE_GOING] = "going",
	[FAKE_READY] = "ready",
	[FAKE_CAPTURE] = "capture",
	[FAKE_REST] = "rest",
	[FAKE_COPY] = "copy",
	[FAKE_TAKEN] = "taken",
	[FAKE_DONE] = "done",
	[FAKE_HELLO] = "hello",
	[FAKE_TOLD] = "told",
	[FAKE_EXEC] = "exec",
	[FAKE_LIST] = "list",
	[FAKE_SHUTDOWN] = "shutdown",
};
_Static_assert(ARRAY_LEN(step_names) == FAKE_STEP_COUNT, "every step has a name");

const char *fake_step_name(enum fake_step step)
{
	return step_names[step];
}

const char *fake_how_name(enum fake_how how)
{
	return how == FAKE_OK ? "succeeds" : how == FAKE_FAIL ? "fails" : "never answers";
}

void fake_tell(enum fake_step step, unsigned nth, enum fake_how how)
{
	told.rules[told.rule_count++] =
		(struct rule){ step, nth ? told.reached[step] + nth : 0, how };
}

void fake_tell_nothing(void)
{
	told.rule_count = 0;
	told.trace_count = 0;
	memset(told.reached, 0, sizeof told.reached);
}

size_t fake_trace(const enum fake_step **ret)
{
	*ret = told.trace;
	return told.trace_count;
}

void fake_on_step(void (*fn)(size_t index, void *arg), void *arg)
{
	told.on_step = fn;
	told.arg = arg;
}

enum fake_how fake_reach(enum fake_step step)
{
	unsigned nth = ++told.reached[step];

	if (told.on_step)
		told.on_step(told.trace_count, told.arg);
	if (told.trace_count < TRACE_MAX)
		told.trace[told.trace_count++] = step;
	for (unsigned i = 0; i < told.rule_count; i++)
		if (told.rules[i].step == step && (!told.rules[i].nth || told.rules[i].nth == nth))
			return told.rules[i].how;
	return FAKE_OK;
}

int fake_fail(enum fake_step step, enum fake_how how, struct err *err)
{
	if (how == FAKE_NEVER)
		return err_set(err, ERR_TIMEOUT, "the fake's %s took too long", step_names[step]);
	return err_set(err, ERR_SYSTEM, "the fake's %s was told to fail", step_names[step]);
}

int fake_call(enum fake_step step, struct err *err)
{
	enum fake_how how = fake_reach(step);

	return how == FAKE_OK ? 0 : fake_fail(step, how, err);
}

/* ---- processes ------------------------------------------------------------------------------ */

static struct fake_process *processes;
static struct groups *groups;	    /* NULL: no daemon */
static pid_t last_pid = 0x40000000; /* above all that the kernel gives */

struct fake_process *fake_find(const char *id)
{
	struct fake_process *process = processes;

	while (process && strcmp(process->id, id) != 0)
		process = process->next;
	return process;
}

size_t fake_count(void)
{
	size_t count = 0;

	for (struct fake_process *process = processes; process; process = process->next)
		count++;
	return count;
}

static int make_group(const struct fake_process *process, struct err *err)
{
	const struct instance_spec spec = { .id = process->id,
		.tree = *process->tree ? process->tree : NULL };

	return groups_make(groups, &spec, err);
}

/* Groups outlive a daemon; those of a world that was set anew are made again. */
int fake_set_groups(struct groups *opened, struct err *err)
{
	char group[CGROUP_ID_SIZE];

	groups = opened;
	for (struct fake_process *process = groups ? processes : NULL; process;
		process = process->next)
		if (!cgroup_find_id(groups_get_cgroups(groups), process->id, group) &&
			make_group(process, err) < 0)
			return -1;
	return 0;
}

struct fake_process *fake_process_new(
	const struct instance_spec *spec, const char *boot, struct err *err)
{
	struct fake_process *process = xnew(struct fake_process);

	*process = (struct fake_process){ .next = processes, .netns = -1 };
	snprintf(process->id, sizeof process->id, "%s", spec->id);
	snprintf(process->tree, sizeof process->tree, "%s", spec->tree ? spec->tree : "");
	process->mark.pid = ++last_pid;
	process->mark.start_time = 1;
	snprintf(process->mark.boot, sizeof process->mark.boot, "%s", boot);
	if (make_group(process, err) < 0) {
		free(process);
		return NULL;
	}
	processes = process;
	return process;
}

static void process_free(struct fake_process *process)
{
	if (process->netns >= 0)
		close(process->netns);
	free(process);
}

void fake_process_gone(struct fake_process *process)
{
	struct fake_process **at = &processes;

	while (*at != process)
		at = &(*at)->next;
	*at = process->next;
	fake_init_hang_up(process);
	if (groups)
		(void)groups_sweep(groups, process->id, NULL);
	if (process->instance)
		fake_instance_of(process->instance)->process = NULL;
	process_free(process);
}

struct fake_process *fake_world_copy(void)
{
	struct fake_process *list = NULL;

	for (struct fake_process *process = processes; process; process = process->next) {
		struct fake_process *copy = xmemdup(process, sizeof *process);

		copy->instance = NULL;
		copy->netns = process->netns < 0 ? -1 : fcntl(process->netns, F_DUPFD_CLOEXEC, 0);
		copy->next = list;
		list = copy;
	}
	return list;
}

void fake_world_free(struct fake_process *list)
{
	while (list) {
		struct fake_process *next = list->next;

		process_free(list);
		list = next;
	}
}

void fake_world_set(struct fake_process *copy)
{
	while (processes)
		fake_process_gone(processes);
	processes = copy;
}

void fake_set_frozen(struct fake_process *process, bool frozen)
{
	process->frozen = frozen;
	fake_init_settle(process);
}
