/* engine.c - the table of drivers and the one place where a missing function is answered */
#include "engine/engine_internal.h"
#include "base/alloc.h"
#include <stdio.h>

static const struct engine_ops *const engines[] = { &engine_ns, NULL };

static const char *const profile_names[] = {
	[PROFILE_STANDARD] = "standard",
	[PROFILE_NESTED] = "nested",
};
_Static_assert(ARRAY_LEN(profile_names) == PROFILE_COUNT, "every profile has a name");

const char *profile_name(enum profile profile)
{
	return profile_names[profile];
}

int profile_from_name(const char *name, enum profile *ret, struct err *err)
{
	for (unsigned i = 0; i < PROFILE_COUNT; i++)
		if (!strcmp(profile_names[i], name)) {
			*ret = i;
			return 0;
		}
	return err_set(err, ERR_INVALID, "unknown profile '%.40s': standard or nested", name);
}

static int unsupported(const struct engine *engine, const char *what, struct err *err)
{
	return err_set(err, ERR_UNSUPPORTED, "driver '%s' cannot %s", engine->ops->name, what);
}

const struct engine_ops *const *engine_drivers(void)
{
	return engines;
}

const struct engine_ops *engine_by_name(const struct engine_ops *const *drivers, const char *name)
{
	for (; *drivers; drivers++)
		if (!strcmp((*drivers)->name, name))
			return *drivers;
	return NULL;
}

int engine_open(const struct engine_ops *ops, const struct engine_config *config,
	struct engine **ret, struct err *err)
{
	if (ops->open(config, ret, err) < 0)
		return err_wrap(err, "driver '%s'", ops->name);
	return 0;
}

void engine_close(struct engine *engine)
{
	if (engine)
		engine->ops->close(engine);
}

int engine_probe(struct engine *engine, json_t *checks, struct err *err)
{
	if (!engine->ops->probe)
		return unsupported(engine, "probe the machine", err);
	return engine->ops->probe(engine, checks, err);
}

json_t *engine_describe(struct engine *engine)
{
	return engine->ops->describe ? engine->ops->describe(engine) : json_object();
}

int engine_start(struct engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg, struct instance **ret, struct err *err)
{
	if (!engine->ops->start)
		return unsupported(engine, "start boxes", err);
	return engine->ops->start(engine, spec, ops, arg, ret, err);
}

int engine_adopt(struct engine *engine, const struct instance_spec *spec,
	const struct instance_mark *mark, const struct instance_ops *ops, void *arg,
	struct instance **ret, struct err *err)
{
	if (!engine->ops->adopt)
		return unsupported(engine, "adopt running boxes", err);
	return engine->ops->adopt(engine, spec, mark, ops, arg, ret, err);
}

int engine_sweep(struct engine *engine, const char *id, struct err *err)
{
	if (!engine->ops->sweep)
		return unsupported(engine, "clean up", err);
	return engine->ops->sweep(engine, id, err);
}

const struct instance_mark *instance_get_mark(const struct instance *instance)
{
	return &instance->mark;
}

int instance_connect(struct instance *instance, int *ret_fd, struct err *err)
{
	if (!instance->engine->ops->connect)
		return unsupported(instance->engine, "connect to box-init", err);
	return instance->engine->ops->connect(instance, ret_fd, err);
}

int instance_kill(struct instance *instance, struct err *err)
{
	if (!instance->engine->ops->kill)
		return unsupported(instance->engine, "kill a box", err);
	return instance->engine->ops->kill(instance, err);
}

int instance_stats(struct instance *instance, struct instance_stats *ret, struct err *err)
{
	if (!instance->engine->ops->stats)
		return unsupported(instance->engine, "tell figures", err);
	return instance->engine->ops->stats(instance, ret, err);
}

int instance_set_hostname(struct instance *instance, const char *hostname, struct err *err)
{
	if (!instance->engine->ops->set_hostname)
		return unsupported(instance->engine, "rename a running box", err);
	return instance->engine->ops->set_hostname(instance, hostname, err);
}

int instance_set_limits(struct instance *instance, const struct limits *limits, struct err *err)
{
	if (!instance->engine->ops->set_limits)
		return unsupported(instance->engine, "limit a running box", err);
	return instance->engine->ops->set_limits(instance, limits, err);
}

enum instance_scope instance_memory_scope(struct instance *instance)
{
	const struct engine_ops *ops = instance->engine->ops;

	return ops->memory_scope ? ops->memory_scope(instance) : INSTANCE_SCOPE_OWN;
}

enum instance_scope instance_pids_scope(struct instance *instance)
{
	const struct engine_ops *ops = instance->engine->ops;

	return ops->pids_scope ? ops->pids_scope(instance) : INSTANCE_SCOPE_OWN;
}

uint64_t instance_pids_refused(struct instance *instance)
{
	const struct engine_ops *ops = instance->engine->ops;

	return ops->pids_refused ? ops->pids_refused(instance) : 0;
}

int instance_activity(struct instance *instance, struct instance_activity *ret, struct err *err)
{
	if (!instance->engine->ops->activity)
		return unsupported(instance->engine, "tell what a box does", err);
	return instance->engine->ops->activity(instance, ret, err);
}

int instance_next_timer(struct instance *instance, int64_t quiet_since_us,
	struct instance_timer *ret, struct err *err)
{
	if (!instance->engine->ops->next_timer)
		return unsupported(instance->engine, "tell the timers of a box", err);
	return instance->engine->ops->next_timer(instance, quiet_since_us, ret, err);
}

int instance_freeze(struct instance *instance, bool frozen, struct err *err)
{
	if (!instance->engine->ops->freeze)
		return unsupported(instance->engine, "freeze a box", err);
	return instance->engine->ops->freeze(instance, frozen, err);
}

int instance_pause(struct instance *instance, struct err *err)
{
	if (!instance->engine->ops->pause)
		return instance_freeze(instance, true, err);
	return instance->engine->ops->pause(instance, err);
}

int instance_hold(struct instance *instance, bool hold, struct err *err)
{
	const struct engine_ops *ops = instance->engine->ops;

	return ops->hold ? ops->hold(instance, hold, err) : 0;
}

bool instance_memory_full(struct instance *instance)
{
	const struct engine_ops *ops = instance->engine->ops;

	return ops->memory_full && ops->memory_full(instance);
}

int instance_netns(struct instance *instance, int *ret, struct err *err)
{
	if (!instance->engine->ops->netns)
		return unsupported(instance->engine, "lead into a box's network", err);
	return instance->engine->ops->netns(instance, ret, err);
}

size_t instance_pids(struct instance *instance, pid_t *ret, size_t max)
{
	return instance->engine->ops->pids ? instance->engine->ops->pids(instance, ret, max) : 0;
}

void instance_hand_over(struct instance *instance, const struct instance_ops *ops, void *arg)
{
	instance->events = ops;
	instance->arg = arg;
}

void instance_free(struct instance *instance)
{
	if (instance)
		instance->engine->ops->free(instance);
}

int instance_capture(struct instance *instance, const struct capture_spec *spec,
	const struct capture_ops *ops, void *arg, struct capture **ret, struct err *err)
{
	if (!instance->engine->ops->capture)
		return unsupported(instance->engine, "capture a box with its processes", err);
	return instance->engine->ops->capture(instance, spec, ops, arg, ret, err);
}

int instance_capture_rest(struct instance *instance, int dir, struct err *err)
{
	const struct engine_ops *ops = instance->engine->ops;

	return ops->capture_rest ? ops->capture_rest(instance, dir, err) : 0;
}

void capture_go_on(struct capture *capture, const struct err *failed)
{
	capture->engine->ops->capture_go_on(capture, failed);
}

void capture_free(struct capture *capture)
{
	if (capture)
		capture->engine->ops->capture_free(capture);
}
