/* engine_fake.c - the driver: instances that come up, run and end as a test says
 *
 * Whatever a real driver does in the background is done from the loop, one step at a time, so that
 * core sees the same order of calls. */
#include "engine_fake_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include "engine/groups.h"
#include "loop/loop.h"
#include "net/doors.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

bool fake_states_unusual;
bool fake_own_kernel;
char fake_image[256], fake_image_key[64];

struct fake_instance *fake_instance_of(struct instance *instance)
{
	return (struct fake_instance *)instance;
}

struct loop *fake_loop_of(const struct fake_instance *instance)
{
	return ((struct fake_engine *)instance->base.engine)->loop;
}

/* ---- the end -------------------------------------------------------------------------------- */

static void ended(void *arg)
{
	struct fake_instance *instance = arg;
	struct err err = ERR_INIT;

	if (instance->process)
		fake_process_gone(instance->process);
	if (instance->ready) {
		instance->base.events->on_ended(
			&instance->base, instance->end, "the fake ended", instance->base.arg);
		return;
	}
	err_set(&err, ERR_SYSTEM, "the fake ended before it was up");
	instance->base.events->on_failed(&instance->base, &err, instance->base.arg);
}

static void end_soon(struct fake_instance *instance, enum instance_end end)
{
	if (instance->ends)
		return;
	instance->ends = true;
	instance->end = end;
	loop_defer(fake_loop_of(instance), ended, instance);
}

void fake_end(struct fake_process *process, enum instance_end end)
{
	if (process->instance)
		end_soon(fake_instance_of(process->instance), end);
	else
		fake_process_gone(process);
}

void fake_shut_down(struct fake_process *process)
{
	fake_end(process, INSTANCE_END_EXITED);
}

static int fake_kill(struct instance *base, struct err *err)
{
	struct fake_instance *instance = fake_instance_of(base);
	enum fake_how how;

	if (instance->ends)
		return 0;
	how = fake_reach(FAKE_KILL);
	if (how == FAKE_FAIL)
		return fake_fail(FAKE_KILL, how, err);
	if (how == FAKE_OK)
		end_soon(instance, INSTANCE_END_KILLED);
	return 0;
}

/* ---- the start ------------------------------------------------------------------------------ */

static void start_failed(struct fake_instance *instance, enum fake_how how)
{
	struct err err = ERR_INIT;

	(void)fake_fail(instance->next, how, &err);
	fake_process_gone(instance->process);
	instance->ends = true;
	instance->base.events->on_failed(&instance->base, &err, instance->base.arg);
}

static void start_late(void *arg)
{
	start_failed(arg, FAKE_NEVER);
}

static void start_goes_on(void *arg)
{
	struct fake_instance *instance = arg;
	const struct instance_ops *events = instance->base.events;
	enum fake_how how;

	if (instance->ends)
		return;
	how = fake_reach(instance->next);
	if (how == FAKE_NEVER) {
		instance->limit = loop_timer_new(fake_loop_of(instance), start_late, instance);
		loop_timer_start(instance->limit, FAKE_LIMIT_MS);
		return;
	}
	if (how == FAKE_FAIL) {
		start_failed(instance, how);
		return;
	}
	if (instance->next == FAKE_READY) {
		instance->ready = instance->process->listens = true;
		events->on_ready(&instance->base, instance->base.arg);
		return;
	}
	/* Before the call: it may free the instance. */
	loop_defer(fake_loop_of(instance), start_goes_on, instance);
	if (instance->next++ == FAKE_MARKED) {
		if (events->on_marked)
			events->on_marked(&instance->base, instance->base.arg);
	} else if (events->on_going) {
		events->on_going(&instance->base, instance->base.arg);
	}
}

static struct fake_instance *instance_new(struct engine *engine, struct fake_process *process,
	const struct instance_ops *ops, void *arg)
{
	struct fake_instance *instance = xnew(struct fake_instance);

	instance->base = (struct instance){
		.engine = engine, .events = ops, .arg = arg, .mark = process->mark
	};
	instance->process = process;
	process->instance = &instance->base;
	return instance;
}

/* The disk gets what the driver keeps in it. */
static int check_spec(const struct instance_spec *spec, struct err *err)
{
	_cleanup_free_ char *upper = xasprintf("%s/upper", spec->disk);
	struct stat st;

	snprintf(fake_image, sizeof fake_image, "%s", spec->vm.image ? spec->vm.image : "");
	snprintf(fake_image_key, sizeof fake_image_key, "%s",
		spec->vm.image_key ? spec->vm.image_key : "");
	if (fake_find(spec->id))
		return err_set(err, ERR_EXISTS, "the fake has an instance '%s' already", spec->id);
	if (mkdir(upper, 0755) < 0 && errno != EEXIST)
		return err_sys(err, errno, "mkdir '%s'", upper);
	if (spec->state && fstatat(spec->state->dir, FAKE_STATE_FILE, &st, 0) < 0)
		return err_sys(err, errno, "the state has no '%s'", FAKE_STATE_FILE);
	return 0;
}

static int fake_start(struct engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg, struct instance **ret, struct err *err)
{
	struct fake_instance *instance;
	struct fake_process *process;

	if (fake_call(FAKE_START, err) < 0 || check_spec(spec, err) < 0)
		return -1;
	process = fake_process_new(spec, ((struct fake_engine *)engine)->boot, err);
	if (!process)
		return -1;
	instance = instance_new(engine, process, ops, arg);
	instance->restored = spec->state != NULL;
	instance->next = instance->restored ? FAKE_MARKED : FAKE_READY;
	loop_defer(fake_loop_of(instance), start_goes_on, instance);
	*ret = &instance->base;
	return 0;
}

static int fake_adopt(struct engine *engine, const struct instance_spec *spec,
	const struct instance_mark *mark, const struct instance_ops *ops, void *arg,
	struct instance **ret, struct err *err)
{
	struct fake_process *process = fake_find(spec->id);
	struct fake_instance *instance;

	if (fake_call(FAKE_ADOPT, err) < 0)
		return -1;
	if (!process || process->mark.pid != mark->pid)
		return err_set(err, ERR_NOT_FOUND, "the fake has no instance '%s'", spec->id);
	instance = instance_new(engine, process, ops, arg);
	instance->ready = true;
	*ret = &instance->base;
	return 0;
}

static void fake_free(struct instance *base)
{
	struct fake_instance *instance = fake_instance_of(base);

	loop_undefer(fake_loop_of(instance), ended, instance);
	loop_undefer(fake_loop_of(instance), start_goes_on, instance);
	loop_timer_free(instance->limit);
	/* What was killed ends, whether somebody looks or not. */
	if (instance->process && instance->ends)
		fake_process_gone(instance->process);
	else if (instance->process)
		instance->process->instance = NULL;
	free(instance);
}

/* ---- as it runs ----------------------------------------------------------------------------- */

static int fake_freeze(struct instance *base, bool frozen, struct err *err)
{
	struct fake_instance *instance = fake_instance_of(base);

	if (fake_call(frozen ? FAKE_FREEZE : FAKE_THAW, err) < 0)
		return -1;
	if (instance->process)
		fake_set_frozen(instance->process, frozen);
	return 0;
}

static int fake_pause(struct instance *base, struct err *err)
{
	return fake_freeze(base, true, err);
}

static int fake_connect(struct instance *base, int *ret_fd, struct err *err)
{
	struct fake_instance *instance = fake_instance_of(base);

	if (fake_call(FAKE_CONNECT, err) < 0)
		return -1;
	if (!instance->process || !instance->process->listens)
		return err_set(err, ERR_UNAVAILABLE, "the fake box-init does not listen");
	return fake_init_connect(fake_loop_of(instance), instance->process,
		engine_can(base->engine, ENGINE_OWN_KERNEL), ret_fd, err);
}

/* Furnished as those of real boxes are. */
static int make_netns(int *ret, struct err *err)
{
	static struct doors_plan *plan;
	_cleanup_close_ int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int status;

	if (!plan && doors_prepare(&plan, err) < 0)
		return -1;
	if (own < 0 || unshare(CLONE_NEWNET) < 0)
		return err_sys(err, errno, "make a network namespace");
	status = doors_furnish(plan, false, err);
	*ret = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (setns(own, CLONE_NEWNET) < 0)
		abort();
	return status;
}

static int fake_netns(struct instance *base, int *ret, struct err *err)
{
	struct fake_process *process = fake_instance_of(base)->process;

	if (fake_call(FAKE_NETNS, err) < 0)
		return -1;
	if (!process)
		return err_set(err, ERR_NOT_FOUND, "the fake has ended");
	if (process->netns < 0 && make_netns(&process->netns, err) < 0)
		return -1;
	*ret = fcntl(process->netns, F_DUPFD_CLOEXEC, 0);
	return *ret < 0 ? err_sys(err, errno, "dup") : 0;
}

static int fake_stats(struct instance *base, struct instance_stats *ret, struct err *err)
{
	(void)base;
	(void)err;
	*ret = (struct instance_stats){ .memory_bytes = 1 << 20, .processes = 1, .threads = 1 };
	return 0;
}

static int fake_set_hostname(struct instance *base, const char *hostname, struct err *err)
{
	(void)base;
	(void)hostname;
	return fake_call(FAKE_HOSTNAME, err);
}

static int fake_set_limits(struct instance *base, const struct limits *limits, struct err *err)
{
	(void)base;
	(void)limits;
	return fake_call(FAKE_LIMITS, err);
}

/* ---- the engine ----------------------------------------------------------------------------- */

static int fake_open(const struct engine_config *config, struct engine **ret, struct err *err)
{
	struct fake_engine *engine = xnew(struct fake_engine);
	_cleanup_free_ char *boot = NULL;

	if (file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &boot, NULL, err) < 0) {
		free(engine);
		return -1;
	}
	fake_capture_open();
	snprintf(engine->boot, sizeof engine->boot, "%.*s", (int)strcspn(boot, "\n"), boot);
	engine->base.ops = &engine_fake;
	engine->base.can = 1U << ENGINE_CAN_SUSPEND | 1U << ENGINE_CAN_HIBERNATE;
	if (fake_own_kernel)
		engine->base.can |= 1U << ENGINE_OWN_KERNEL;
	engine->loop = config->loop;
	engine->groups = config->groups;
	*ret = &engine->base;
	return fake_set_groups(config->groups, err);
}

static void fake_close(struct engine *engine)
{
	(void)fake_set_groups(NULL, NULL);
	free(engine);
}

static int fake_sweep(struct engine *engine, const char *id, struct err *err)
{
	struct fake_process *process = fake_find(id);

	if (fake_call(FAKE_SWEEP, err) < 0)
		return -1;
	if (process)
		fake_process_gone(process);
	return groups_sweep(((struct fake_engine *)engine)->groups, id, err);
}

static int fake_probe(struct engine *engine, json_t *checks, struct err *err)
{
	(void)engine;
	(void)checks;
	(void)err;
	return 0;
}

static json_t *fake_describe(struct engine *engine)
{
	(void)engine;
	return json_object();
}

static enum instance_scope fake_scope(struct instance *instance)
{
	(void)instance;
	return INSTANCE_SCOPE_OWN;
}

static uint64_t fake_pids_refused(struct instance *instance)
{
	(void)instance;
	return 0;
}

static size_t fake_pids(struct instance *instance, pid_t *ret, size_t max)
{
	(void)instance;
	(void)ret;
	(void)max;
	return 0;
}

static void fake_look_at_state(struct engine *engine, int dir, struct instance_state_facts *ret)
{
	(void)engine;
	(void)dir;
	*ret = (struct instance_state_facts){ .unusual = fake_states_unusual };
}

const struct engine_ops engine_fake = {
	.name = "fake",
	.open = fake_open,
	.close = fake_close,
	.probe = fake_probe,
	.describe = fake_describe,
	.memory_scope = fake_scope,
	.pids_scope = fake_scope,
	.pids_refused = fake_pids_refused,
	.pids = fake_pids,
	.look_at_state = fake_look_at_state,
	.start = fake_start,
	.adopt = fake_adopt,
	.sweep = fake_sweep,
	.connect = fake_connect,
	.kill = fake_kill,
	.stats = fake_stats,
	.set_hostname = fake_set_hostname,
	.freeze = fake_freeze,
	.pause = fake_pause,
	.set_limits = fake_set_limits,
	.netns = fake_netns,
	.free = fake_free,
	.capture = fake_capture,
	.capture_rest = fake_capture_rest,
	.capture_go_on = fake_capture_go_on,
	.capture_free = fake_capture_free,
};
