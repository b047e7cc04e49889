/* reach.c - calls into a running instance
 *
 * A suspended VM is a QEMU whose cgroup is frozen: no instruction of it runs, but its clocks go
 * on, as with processes that share the kernel. What only box-init knows (processes, memory,
 * timers) is requested when core asks; core gets the last answer. */
#include "engine/vm/vm_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	ASK_US = 800 * 1000,	     /* older figures are requested again */
	TIMERS_US = 3 * 1000 * 1000, /* older timers are not used */
	PAUSE_WAIT_US = 5000,
};

int vm_connect(struct instance *base, int *ret_fd, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);

	if (instance->state != VM_RUNNING)
		return err_set(err, ERR_STATE, "the box is not running");
	return qemu_connect(instance->dir, QEMU_SOCKET_LINK, ret_fd, err);
}

void vm_take_stats(struct vm_instance *instance, const struct control_stats *stats)
{
	const struct instance_ops *events = instance->base.events;
	uint64_t kills = 0, refused = 0;

	/* The counters of a new box start at 0, those of a restored one at their old values. */
	if (instance->stats.answered_at || !(instance->restored || instance->adopted)) {
		kills = stats->oom_kills - MIN(stats->oom_kills, instance->stats.last.oom_kills);
		refused = stats->pids_refused -
			  MIN(stats->pids_refused, instance->stats.last.pids_refused);
	}
	instance->stats.last = *stats;
	instance->stats.answered_at = clock_mono_us();
	if (refused && events->on_pids)
		events->on_pids(&instance->base, instance->base.arg);
	if (kills && events->on_oom)
		events->on_oom(&instance->base, kills, instance->base.arg);
}

static void on_stats(const struct control_stats *stats, const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	instance->stats.asked = false;
	if (!err)
		vm_take_stats(instance, stats);
}

void vm_ask_stats(struct vm_instance *instance)
{
	int64_t now = clock_mono_us();

	if (instance->state != VM_RUNNING || instance->frozen || instance->capture ||
		!instance->control || !control_is_ready(instance->control) ||
		instance->stats.asked || now - instance->stats.asked_at < ASK_US)
		return;
	instance->stats.asked = true;
	instance->stats.asked_at = now;
	control_stats(instance->control, on_stats, instance);
}

int vm_stats(struct instance *base, struct instance_stats *ret, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);
	const struct control_stats *inside = &instance->stats.last;

	if (groups_instance_stats(vm_engine_by(instance)->groups, instance->group, ret, err) < 0)
		return -1;
	vm_ask_stats(instance);
	if (!instance->stats.answered_at)
		return 0;
	ret->processes = inside->processes;
	ret->threads = inside->threads;
	ret->oom_kills = inside->oom_kills;
	ret->pids_refused = inside->pids_refused;
	ret->memory_bytes = inside->memory_total - MIN(inside->memory_total, inside->memory_free);
	/* QEMU's memory is known at once, the guest's own figure is up to a second old: the
	 * larger one decides whether a copy fits. */
	ret->memory_held_bytes = MAX(ret->memory_held_bytes,
		inside->memory_total - MIN(inside->memory_total, inside->memory_available));
	ret->memory_peak_bytes = MAX(ret->memory_bytes, instance->stats.peak);
	instance->stats.peak = ret->memory_peak_bytes;
	return 0;
}

static void on_named(const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	if (err)
		log_warn("a VM did not take its name", kv_str("box", instance->id), kv_err(err));
}

int vm_set_hostname(struct instance *base, const char *hostname, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);

	if (strlen(hostname) > CONTROL_NAME_MAX)
		return err_set(err, ERR_INVALID, "host name '%.80s' is too long", hostname);
	free(instance->hostname);
	instance->hostname = xstrdup(hostname);
	if (instance->control)
		control_set_hostname(instance->control, hostname, on_named, instance);
	return 0;
}

uint64_t vm_pids_refused(struct instance *base)
{
	struct vm_instance *instance = vm_instance_of(base);

	vm_ask_stats(instance);
	return instance->stats.last.pids_refused;
}

int vm_activity(struct instance *base, struct instance_activity *ret, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);

	(void)err;
	vm_ask_stats(instance);
	ret->cpu_us = instance->stats.last.cpu_us;
	ret->io_bytes = instance->stats.last.io_bytes;
	return 0;
}

static void on_timers(const struct control_timer *timer, const struct err *err, void *arg)
{
	static const enum instance_timer_kind kinds[] = {
		[CONTROL_TIMER_NONE] = INSTANCE_TIMER_NONE,
		[CONTROL_TIMER_AT] = INSTANCE_TIMER_AT,
		[CONTROL_TIMER_BUSY] = INSTANCE_TIMER_BUSY,
		[CONTROL_TIMER_UNKNOWN] = INSTANCE_TIMER_UNKNOWN,
	};
	struct vm_instance *instance = arg;
	struct instance_timer *last = &instance->timers.last;
	int64_t now = clock_mono_us();

	instance->timers.asked = false;
	if (err)
		return;
	*last = (struct instance_timer){ .kind = kinds[timer->kind], .pid = (pid_t)timer->pid };
	last->at_us = now + (int64_t)MIN(timer->in_ns / 1000, (uint64_t)INSTANCE_TIMER_FURTHEST_US);
	if (last->kind == INSTANCE_TIMER_AT && last->at_us - now >= INSTANCE_TIMER_FURTHEST_US)
		last->kind = INSTANCE_TIMER_NONE;
	snprintf(last->comm, sizeof last->comm, "%s", timer->comm);
	snprintf(last->call, sizeof last->call, "%s", timer->call);
	instance->timers.answered_at = now;
}

int vm_next_timer(
	struct instance *base, int64_t quiet_since_us, struct instance_timer *ret, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);
	int64_t now = clock_mono_us();

	if (instance->state != VM_RUNNING || !instance->control)
		return err_set(err, ERR_STATE, "the box does not answer");
	if (instance->timers.answered_at && now - instance->timers.answered_at < TIMERS_US &&
		instance->timers.answered_at >= quiet_since_us) {
		*ret = instance->timers.last;
		return 0;
	}
	if (!instance->timers.asked) {
		instance->timers.asked = true;
		control_timers(instance->control, on_timers, instance);
	}
	*ret = (struct instance_timer){ .kind = INSTANCE_TIMER_BUSY };
	snprintf(ret->call, sizeof ret->call, "is being asked for its timers");
	return 0;
}

static void set_frozen(struct vm_instance *instance, bool frozen)
{
	instance->frozen = frozen;
	instance->timers.answered_at = 0;
	if (instance->control)
		control_pause(instance->control, frozen);
}

int vm_freeze(struct instance *base, bool frozen, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);

	if (instance->state != VM_RUNNING)
		return err_set(err, ERR_STATE, "the box is not running");
	if (cgroup_freeze(vm_engine_by(instance)->cgroups, instance->group, frozen, err) < 0)
		return -1;
	set_frozen(instance, frozen);
	if (!frozen && !instance->capture)
		vm_let_go(instance);
	return 0;
}

int vm_pause(struct instance *base, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);
	struct err why = ERR_INIT;

	if (instance->state != VM_RUNNING)
		return err_set(err, ERR_STATE, "the box is not running");
	if (cgroup_freeze_try(
		    vm_engine_by(instance)->cgroups, instance->group, PAUSE_WAIT_US, &why) < 0 &&
		why.kind != ERR_TIMEOUT) {
		if (err)
			*err = why;
		return -1;
	}
	set_frozen(instance, true);
	return 0;
}

static void on_limited(const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	if (err)
		log_warn("a VM did not take its limit of processes", kv_str("box", instance->id),
			kv_err(err));
}

int vm_set_limits(struct instance *base, const struct limits *limits, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);
	struct cgroup_limits wanted = { .cpu_milli = limits->cpu_milli,
		.memory_bytes = vm_memory_of(vm_engine_by(instance), instance->manifest.ram_bytes,
			instance->manifest.cpus),
		.pids = VM_PIDS };

	if (limits->memory_bytes != instance->limits.memory_bytes &&
		vm_ram_of(limits) != instance->manifest.ram_bytes) {
		err_set(err, ERR_UNSUPPORTED,
			"a box with its own kernel has the memory it was started with");
		return err_hint(err,
			"change it while the box is stopped: 'box stop', 'box set --memory', 'box start'");
	}
	if (cgroup_limit(vm_engine_by(instance)->cgroups, instance->group, &wanted, err) < 0)
		return -1;
	if (limits->pids != instance->limits.pids && instance->control)
		control_limit(instance->control, limits->pids, on_limited, instance);
	instance->limits = *limits;
	return 0;
}

enum instance_scope vm_memory_scope(struct instance *base)
{
	(void)base; /* the guest's kernel had no more memory */
	return INSTANCE_SCOPE_OWN;
}

enum instance_scope vm_pids_scope(struct instance *base)
{
	(void)base;
	return INSTANCE_SCOPE_OWN;
}

int vm_netns(struct instance *base, int *ret, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);
	_cleanup_close_ int fd = -1;
	char path[40];

	if (!instance->qemu)
		return err_set(err, ERR_UNAVAILABLE, "the box has ended");
	snprintf(path, sizeof path, "/proc/%d/ns/net", (int)base->mark.pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, ERR_UNAVAILABLE, "the box has ended");
	*ret = steal_fd(&fd);
	return 0;
}

/* ---- owners of connections ------------------------------------------------------------------ */

struct owner_question {
	struct owner_question *next;
	struct vm_instance *instance;
	instance_owner_fn done;
	void *arg;
};

static void forget(struct owner_question *question)
{
	struct owner_question **at = &question->instance->questions;

	while (*at != question)
		at = &(*at)->next;
	*at = question->next;
	free(question);
}

void vm_forget_questions(struct vm_instance *instance)
{
	while (instance->questions)
		forget(instance->questions);
}

static void on_who(const struct control_who *who, const struct err *err, void *arg)
{
	struct owner_question *question = arg;
	instance_owner_fn done = question->done;
	void *done_arg = question->arg;
	struct instance_owner owner = { 0 };

	forget(question);
	if (!err)
		owner = (struct instance_owner){ who->pid, who->uid,
			*who->command ? who->command : who->comm };
	done(err ? NULL : &owner, err, done_arg);
}

int vm_ask_owner(struct instance *base, const struct instance_flow *flow, instance_owner_fn done,
	void *arg, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);
	struct control_flow wanted = { .protocol = flow->protocol,
		.family = flow->from.family,
		.from_port = flow->from_port,
		.to_port = flow->to_port };
	struct owner_question *question;

	if (instance->state != VM_RUNNING || instance->frozen || !instance->control)
		return err_set(err, ERR_STATE, "the box does not answer");
	memcpy(wanted.from, flow->from.bytes, sizeof wanted.from);
	memcpy(wanted.to, flow->to.bytes, sizeof wanted.to);
	question = xnew(struct owner_question);
	*question = (struct owner_question){ instance->questions, instance, done, arg };
	instance->questions = question;
	control_who(instance->control, &wanted, on_who, question);
	return 0;
}

size_t vm_pids(struct instance *base, pid_t *ret, size_t max)
{
	return cgroup_pids(
		vm_engine_of(base->engine)->cgroups, vm_instance_of(base)->group, ret, max);
}
