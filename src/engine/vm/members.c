/* members.c - QEMU processes started ahead of need
 *
 * One function, settle, compares requests with members: requests get ready members, oldest
 * first; as many are started as requests wait for; and when no request waits and it has been
 * quiet for a moment, members are started one after the other, up to `count` for each machine in
 * use. It runs from the loop after every change, never inside a caller.
 *
 * Folders of members are called member-XXXXXXXX and contain a file `mark` that identifies the
 * process, so that the next daemon finds what was left; a taken member is renamed. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/vm/members_internal.h"
#include "loop/loop.h"
#include "net/doors.h"
#include "sys/cgroup.h"
#include <stdio.h>

enum {
	QUIET_MS = 150,	  /* after a take: the new box needs the CPUs */
	RETRY_MS = 5000,  /* after a failed start without a request */
	SWEEP_MS = 60000, /* how often unused ones are looked for */
};

struct waiting {
	struct waiting *next;
	struct members *members;
	struct qemu_machine machine; /* its program is a copy */
	struct member parts;
	bool ready;
};

struct members_take {
	struct members_take *next;
	struct members *members;
	struct qemu_machine machine; /* likewise */
	members_taken done;
	void *arg;
};

struct use {
	struct qemu_machine machine; /* likewise; program NULL: the row is free */
	int64_t last_us;
};

struct members {
	struct members_config config;
	char *run, *preload;
	struct waiting *first; /* oldest first */
	struct members_take *takes;
	struct use uses[MEMBERS_MACHINES_MAX];
	struct loop_timer *refill, *sweep;
	int64_t quiet_until;
};

static void settle(void *arg);

static void settle_soon(struct members *members)
{
	loop_undefer(members->config.loop, settle, members);
	loop_defer(members->config.loop, settle, members);
}

static bool is_same(const struct qemu_machine *a, const struct qemu_machine *b)
{
	return a->program && b->program && strcmp(a->program, b->program) == 0 &&
	       a->kvm == b->kvm && a->ram_bytes == b->ram_bytes && a->cpus == b->cpus;
}

static struct qemu_machine machine_copy(const struct qemu_machine *machine)
{
	struct qemu_machine copy = *machine;

	copy.program = xstrdup(machine->program);
	return copy;
}

static void machine_done(struct qemu_machine *machine)
{
	free((char *)machine->program);
	machine->program = NULL;
}

/* ---- members -------------------------------------------------------------------------------- */

static void unlink_waiting(struct waiting *waiting)
{
	struct waiting **at = &waiting->members->first;

	while (*at != waiting)
		at = &(*at)->next;
	*at = waiting->next;
}

/* Its process has ended or belongs to the caller; it is in no list any more. */
static void waiting_free(struct waiting *waiting)
{
	if (waiting->parts.qemu) {
		qemu_remove_dir(qemu_get_dir(waiting->parts.qemu));
		qemu_free(waiting->parts.qemu);
	}
	if (waiting->parts.netns >= 0)
		close(waiting->parts.netns);
	if (waiting->parts.ram >= 0)
		close(waiting->parts.ram);
	machine_done(&waiting->machine);
	free(waiting);
}

static void on_ready(struct qemu *qemu, void *arg)
{
	struct waiting *waiting = arg;

	(void)qemu;
	waiting->ready = true;
	settle_soon(waiting->members);
}

static struct members_take *first_take(struct members *members, const struct qemu_machine *machine)
{
	for (struct members_take *take = members->takes; take; take = take->next)
		if (is_same(&take->machine, machine))
			return take;
	return NULL;
}

static void take_end(struct members_take *take, const struct member *member, const struct err *err);

static void fail_one(
	struct members *members, const struct qemu_machine *machine, const struct err *err)
{
	struct members_take *take = first_take(members, machine);

	members->quiet_until = clock_mono_us() + RETRY_MS * INT64_C(1000);
	settle_soon(members);
	if (take) {
		take_end(take, NULL, err);
		return;
	}
	log_warn("no QEMU can be started ahead of need", kv_err(err));
}

static void on_ended(struct qemu *qemu, const struct qemu_end *end, void *arg)
{
	struct waiting *waiting = arg;
	struct members *members = waiting->members;
	struct qemu_machine machine = machine_copy(&waiting->machine);
	bool was_ready = waiting->ready;
	struct err err = end->err;

	(void)qemu;
	unlink_waiting(waiting);
	waiting_free(waiting);
	if (!err.kind)
		err_set(&err, ERR_UNAVAILABLE, "QEMU ended while it waited");
	if (was_ready)
		settle_soon(members);
	else
		fail_one(members, &machine, &err);
	machine_done(&machine);
}

static const struct qemu_ops waiting_ops = { .on_ready = on_ready, .on_ended = on_ended };

static int join_group(
	struct members *members, struct cgroup_join *join, int *ret_v2, struct err *err)
{
	static const struct cgroup_limits none = { 0 };
	struct cgroup_tree *tree;

	if (!members->config.groups)
		return 0;
	tree = groups_get_cgroups(members->config.groups);
	if (!cgroup_exists(tree, MEMBERS_GROUP) &&
		cgroup_create(tree, MEMBERS_GROUP, &none, err) < 0)
		return -1;
	if (cgroup_open_v2(tree, MEMBERS_GROUP, ret_v2, err) < 0)
		return -1;
	return cgroup_join_open(tree, MEMBERS_GROUP, join, err);
}

static int spawn(struct members *members, struct waiting *waiting, struct err *err)
{
	_cleanup_free_ char *dir = NULL;
	_cleanup_close_ int tap = -1, v2 = -1;
	struct cgroup_join join = { .count = 0 };
	struct qemu_spec spec = { .machine = &waiting->machine, .image = -1, .disk = -1 };
	char id[9];
	int status;

	random_id(id, 8);
	dir = xasprintf("%s/" MEMBERS_PREFIX "%s", members->run, id);
	if (members->config.doors &&
		doors_make_vm(members->config.doors, &waiting->parts.netns, &tap, err) < 0)
		return -1;
	if (join_group(members, &join, &v2, err) < 0)
		return -1;
	spec.dir = dir;
	spec.netns = waiting->parts.netns;
	spec.tap = tap;
	spec.preload = members->preload;
	spec.join = members->config.groups ? &join : NULL;
	spec.cgroup = v2;
	status = qemu_spawn(
		members->config.loop, &spec, &waiting_ops, waiting, &waiting->parts.qemu, err);
	cgroup_join_done(&join);
	if (status < 0)
		return -1;
	members_write_mark(waiting->parts.qemu);
	return members->preload ? qemu_connect(dir, QEMU_SOCKET_RAM, &waiting->parts.ram, err) : 0;
}

static int start_one(struct members *members, const struct qemu_machine *machine, struct err *err)
{
	struct waiting *waiting = xnew(struct waiting), **at = &members->first;

	*waiting = (struct waiting){ .members = members,
		.machine = machine_copy(machine),
		.parts = { .netns = -1, .ram = -1 } };
	while (*at)
		at = &(*at)->next;
	*at = waiting;
	if (spawn(members, waiting, err) == 0)
		return 0;
	if (waiting->parts.qemu) {
		qemu_kill(waiting->parts.qemu); /* freed when it has ended */
		return -1;
	}
	unlink_waiting(waiting);
	waiting_free(waiting);
	return -1;
}

/* ---- requests ------------------------------------------------------------------------------- */

static void take_free(struct members_take *take)
{
	machine_done(&take->machine);
	free(take);
}

static void take_unlink(struct members_take *take)
{
	struct members_take **at = &take->members->takes;

	while (*at != take)
		at = &(*at)->next;
	*at = take->next;
}

static void take_end(struct members_take *take, const struct member *member, const struct err *err)
{
	members_taken done = take->done;
	void *arg = take->arg;

	take_unlink(take);
	take_free(take);
	done(member, err, arg);
}

static void hand_over(struct members_take *take, struct waiting *waiting)
{
	struct member parts = waiting->parts;
	struct members *members = take->members;
	_cleanup_free_ char *mark = xasprintf("%s/" MEMBERS_MARK, qemu_get_dir(parts.qemu));

	unlink(mark);
	waiting->parts = (struct member){ .netns = -1, .ram = -1 };
	unlink_waiting(waiting);
	waiting_free(waiting);
	members->quiet_until = clock_mono_us() + QUIET_MS * INT64_C(1000);
	settle_soon(members);
	take_end(take, &parts, NULL);
}

static unsigned count_of(
	const struct members *members, const struct qemu_machine *machine, bool ready_only)
{
	unsigned count = 0;

	for (const struct waiting *waiting = members->first; waiting; waiting = waiting->next)
		count += is_same(&waiting->machine, machine) && (waiting->ready || !ready_only);
	return count;
}

static unsigned takes_of(const struct members *members, const struct qemu_machine *machine)
{
	unsigned count = 0;

	for (const struct members_take *take = members->takes; take; take = take->next)
		count += is_same(&take->machine, machine);
	return count;
}

static unsigned count_all(const struct members *members)
{
	unsigned count = 0;

	for (const struct waiting *waiting = members->first; waiting; waiting = waiting->next)
		count++;
	return count;
}

/* True: a request was served, and everything may have changed. */
static bool serve_one(struct members *members)
{
	for (struct waiting *waiting = members->first; waiting; waiting = waiting->next) {
		struct members_take *take =
			waiting->ready ? first_take(members, &waiting->machine) : NULL;

		if (take) {
			hand_over(take, waiting);
			return true;
		}
	}
	return false;
}

/* True: a member was started, or a request failed because none can be. */
static bool start_for_takers(struct members *members)
{
	struct err err = ERR_INIT;

	for (struct members_take *take = members->takes; take; take = take->next) {
		if (count_of(members, &take->machine, false) >= takes_of(members, &take->machine) ||
			count_all(members) >= MEMBERS_MAX)
			continue;
		if (start_one(members, &take->machine, &err) < 0)
			take_end(take, NULL, &err);
		return true;
	}
	return false;
}

/* One at a time, and only when it is quiet. */
static void refill_one(struct members *members)
{
	int64_t now = clock_mono_us();
	struct err err = ERR_INIT;

	for (size_t i = 0; i < MEMBERS_MACHINES_MAX; i++) {
		const struct qemu_machine *machine = &members->uses[i].machine;
		unsigned have;

		if (!machine->program)
			continue;
		have = count_of(members, machine, false);
		if (have >= members->config.count || have > count_of(members, machine, true) ||
			count_all(members) >= MEMBERS_MAX)
			continue;
		if (now < members->quiet_until) {
			loop_timer_start(
				members->refill, (uint64_t)(members->quiet_until - now) / 1000 + 1);
			return;
		}
		if (start_one(members, machine, &err) < 0)
			fail_one(members, machine, &err);
		return;
	}
}

static void settle(void *arg)
{
	struct members *members = arg;

	if (serve_one(members) || start_for_takers(members)) {
		settle_soon(members);
		return;
	}
	if (!members->takes)
		refill_one(members);
}

/* ---- machines in use ------------------------------------------------------------------------ */

static void end_of_machine(struct members *members, const struct qemu_machine *machine)
{
	if (first_take(members, machine))
		return;
	for (struct waiting *waiting = members->first; waiting; waiting = waiting->next)
		if (is_same(&waiting->machine, machine))
			qemu_kill(waiting->parts.qemu);
}

static void forget_use(struct members *members, struct use *use)
{
	struct qemu_machine machine = use->machine;

	use->machine.program = NULL;
	end_of_machine(members, &machine);
	machine_done(&machine);
}

/* A new machine replaces the one that was unused longest. */
static void note_use(struct members *members, const struct qemu_machine *machine)
{
	struct use *place = &members->uses[0];

	for (size_t i = 0; i < MEMBERS_MACHINES_MAX; i++) {
		struct use *use = &members->uses[i];

		if (is_same(&use->machine, machine)) {
			use->last_us = clock_mono_us();
			return;
		}
		if (!use->machine.program ||
			(place->machine.program && use->last_us < place->last_us))
			place = use;
	}
	if (place->machine.program)
		forget_use(members, place);
	*place = (struct use){ machine_copy(machine), clock_mono_us() };
}

static void sweep_unused(void *arg)
{
	struct members *members = arg;
	int64_t oldest = clock_mono_us() - MEMBERS_UNUSED_MS * INT64_C(1000);

	for (size_t i = 0; i < MEMBERS_MACHINES_MAX; i++)
		if (members->uses[i].machine.program && members->uses[i].last_us < oldest)
			forget_use(members, &members->uses[i]);
	loop_timer_start(members->sweep, SWEEP_MS);
}

void members_take(struct members *members, const struct qemu_machine *machine, members_taken done,
	void *arg, struct members_take **ret)
{
	struct members_take *take = xnew(struct members_take), **at = &members->takes;

	*take = (struct members_take){
		.members = members, .machine = machine_copy(machine), .done = done, .arg = arg
	};
	while (*at)
		at = &(*at)->next;
	*at = take;
	note_use(members, machine);
	settle_soon(members);
	*ret = take;
}

void members_cancel(struct members_take *take)
{
	if (!take)
		return;
	take_unlink(take);
	take_free(take);
}

void members_prepare(struct members *members, const struct qemu_machine *machine)
{
	note_use(members, machine);
	settle_soon(members);
}

unsigned members_ready(const struct members *members, const struct qemu_machine *machine)
{
	return count_of(members, machine, true);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_refill(void *arg)
{
	settle_soon(arg);
}

int members_open(const struct members_config *config, struct members **ret, struct err *err)
{
	struct members *members;

	if (dir_make_all(config->run, 0700, err) < 0)
		return err_wrap(err, "waiting QEMUs");
	members_sweep(config->run);
	members = xnew(struct members);
	members->config = *config;
	/* Takers need places too. */
	members->config.count = MIN(config->count, MEMBERS_MAX / 2);
	members->run = xstrdup(config->run);
	members->preload = xstrdup(config->preload);
	members->refill = loop_timer_new(config->loop, on_refill, members);
	members->sweep = loop_timer_new(config->loop, sweep_unused, members);
	loop_timer_start(members->sweep, SWEEP_MS);
	*ret = members;
	return 0;
}

void members_close(struct members *members)
{
	if (!members)
		return;
	loop_undefer(members->config.loop, settle, members);
	for (struct waiting *waiting = members->first; waiting; waiting = waiting->next)
		qemu_kill(waiting->parts.qemu);
	for (struct waiting *waiting = members->first, *next; waiting; waiting = next) {
		next = waiting->next;
		qemu_wait_end(waiting->parts.qemu);
		waiting_free(waiting);
	}
	for (struct members_take *take = members->takes, *next; take; take = next) {
		next = take->next;
		take_free(take);
	}
	for (size_t i = 0; i < MEMBERS_MACHINES_MAX; i++)
		machine_done(&members->uses[i].machine);
	loop_timer_free(members->refill);
	loop_timer_free(members->sweep);
	if (members->config.groups)
		cgroup_remove(groups_get_cgroups(members->config.groups), MEMBERS_GROUP, NULL);
	free(members->run);
	free(members->preload);
	free(members);
}
