/* engine.c - the table of drivers, and the one place where what a driver cannot do is answered */
#include "engine/engine_internal.h"
#include "base/alloc.h"
#include <stdio.h>

static const struct engine_ops *const engines[] = { &engine_ns, &engine_vm, NULL };

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

static const char *const can_names[] = {
	[ENGINE_CAN_SUSPEND] = "suspend",
	[ENGINE_CAN_SLEEP] = "sleep",
	[ENGINE_CAN_HOLD] = "hold",
	[ENGINE_CAN_HIBERNATE] = "hibernate",
	[ENGINE_CAN_NEST] = "nest",
	[ENGINE_OWN_KERNEL] = "own kernel",
};
_Static_assert(ARRAY_LEN(can_names) == ENGINE_CAN_COUNT, "every capability has a name");

static int unsupported(const struct engine *engine, const char *what, struct err *err)
{
	return err_set(err, ERR_UNSUPPORTED, "driver '%s' cannot %s", engine->ops->name, what);
}

const struct engine_ops *const *engine_drivers(void)
{
	return engines;
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

const char *engine_get_name(const struct engine *engine)
{
	return engine->ops->name;
}

const char *engine_can_name(enum engine_can can)
{
	return can_names[can];
}

bool engine_can(const struct engine *engine, enum engine_can can)
{
	return engine->can & (1U << can);
}

const struct engine_extra *engine_get_extra(const struct engine *engine)
{
	return &engine->extra;
}

const char *engine_get_accelerator(const struct engine *engine)
{
	return engine->accelerator;
}

unsigned engine_get_fds(const struct engine *engine)
{
	return engine->fds;
}

const char *engine_capture_problem(const struct engine *engine)
{
	return engine->capture_problem;
}

int engine_probe(struct engine *engine, json_t *checks, struct err *err)
{
	return engine->ops->probe(engine, checks, err);
}

json_t *engine_describe(struct engine *engine)
{
	return engine->ops->describe(engine);
}

int engine_start(struct engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg, struct instance **ret, struct err *err)
{
	return engine->ops->start(engine, spec, ops, arg, ret, err);
}

int engine_adopt(struct engine *engine, const struct instance_spec *spec,
	const struct instance_mark *mark, const struct instance_ops *ops, void *arg,
	struct instance **ret, struct err *err)
{
	return engine->ops->adopt(engine, spec, mark, ops, arg, ret, err);
}

int engine_sweep(struct engine *engine, const char *id, struct err *err)
{
	return engine->ops->sweep(engine, id, err);
}

struct instance_state_facts engine_look_at_state(struct engine *engine, int dir)
{
	struct instance_state_facts facts = { 0 };

	if (engine_can(engine, ENGINE_CAN_HIBERNATE))
		engine->ops->look_at_state(engine, dir, &facts);
	return facts;
}

static int refuse_capture(const struct engine *engine, struct err *err)
{
	const char *problem = engine_capture_problem(engine);

	if (!problem)
		return unsupported(engine, "capture a box with its processes", err);
	err_set(err, ERR_UNSUPPORTED, "processes cannot be captured here: %s", problem);
	return err_hint(err, "'box doctor' says more");
}

bool instance_can(const struct instance *instance, enum engine_can can)
{
	return engine_can(instance->engine, can);
}

const struct instance_mark *instance_get_mark(const struct instance *instance)
{
	return &instance->mark;
}

int instance_connect(struct instance *instance, int *ret_fd, struct err *err)
{
	return instance->engine->ops->connect(instance, ret_fd, err);
}

int instance_kill(struct instance *instance, struct err *err)
{
	return instance->engine->ops->kill(instance, err);
}

int instance_stats(struct instance *instance, struct instance_stats *ret, struct err *err)
{
	return instance->engine->ops->stats(instance, ret, err);
}

int instance_set_hostname(struct instance *instance, const char *hostname, struct err *err)
{
	return instance->engine->ops->set_hostname(instance, hostname, err);
}

int instance_set_limits(struct instance *instance, const struct limits *limits, struct err *err)
{
	return instance->engine->ops->set_limits(instance, limits, err);
}

enum instance_scope instance_memory_scope(struct instance *instance)
{
	return instance->engine->ops->memory_scope(instance);
}

enum instance_scope instance_pids_scope(struct instance *instance)
{
	return instance->engine->ops->pids_scope(instance);
}

uint64_t instance_pids_refused(struct instance *instance)
{
	return instance->engine->ops->pids_refused(instance);
}

int instance_activity(struct instance *instance, struct instance_activity *ret, struct err *err)
{
	if (!instance_can(instance, ENGINE_CAN_SLEEP))
		return unsupported(instance->engine, "tell what a box does", err);
	return instance->engine->ops->activity(instance, ret, err);
}

int instance_next_timer(struct instance *instance, int64_t quiet_since_us,
	struct instance_timer *ret, struct err *err)
{
	if (!instance_can(instance, ENGINE_CAN_SLEEP))
		return unsupported(instance->engine, "tell the timers of a box", err);
	return instance->engine->ops->next_timer(instance, quiet_since_us, ret, err);
}

int instance_freeze(struct instance *instance, bool frozen, struct err *err)
{
	if (!instance_can(instance, ENGINE_CAN_SUSPEND))
		return unsupported(instance->engine, "freeze a box", err);
	return instance->engine->ops->freeze(instance, frozen, err);
}

int instance_pause(struct instance *instance, struct err *err)
{
	if (!instance_can(instance, ENGINE_CAN_SUSPEND))
		return unsupported(instance->engine, "freeze a box", err);
	return instance->engine->ops->pause(instance, err);
}

int instance_hold(struct instance *instance, bool hold, struct err *err)
{
	if (!instance_can(instance, ENGINE_CAN_HOLD))
		return 0;
	return instance->engine->ops->hold(instance, hold, err);
}

bool instance_memory_full(struct instance *instance)
{
	return instance_can(instance, ENGINE_CAN_HOLD) &&
	       instance->engine->ops->memory_full(instance);
}

int instance_netns(struct instance *instance, int *ret, struct err *err)
{
	return instance->engine->ops->netns(instance, ret, err);
}

size_t instance_pids(struct instance *instance, pid_t *ret, size_t max)
{
	return instance->engine->ops->pids(instance, ret, max);
}

void instance_hand_over(struct instance *instance, const struct instance_ops *ops, void *arg)
{
	instance->events = ops;
	instance->arg = arg;
}

/* Somebody waits for an answer from inside. */
struct instance_question {
	struct instance_question *next;
	struct instance *instance;
	instance_owner_fn done;
	void *arg;
};

static void question_answered(const struct instance_owner *owner, const struct err *err, void *arg)
{
	struct instance_question *question = arg, **slot = &question->instance->questions;

	while (*slot != question)
		slot = &(*slot)->next;
	*slot = question->next;
	question->done(owner, err, question->arg);
	free(question);
}

int instance_ask_owner(struct instance *instance, const struct instance_flow *flow,
	instance_owner_fn done, void *arg, struct err *err)
{
	struct instance_question *question;

	if (!instance->engine->ops->ask_owner)
		return unsupported(instance->engine, "ask a box for its processes", err);
	question = xnew(struct instance_question);
	question->instance = instance;
	question->done = done;
	question->arg = arg;
	question->next = instance->questions;
	instance->questions = question;
	if (instance->engine->ops->ask_owner(instance, flow, question_answered, question, err) == 0)
		return 0;
	instance->questions = question->next;
	free(question);
	return -1;
}

void instance_free(struct instance *instance)
{
	struct instance_question *open, *next;
	struct err err = ERR_INIT;

	if (!instance)
		return;
	open = steal_ptr(&instance->questions);
	instance->engine->ops->free(instance);
	err_set(&err, ERR_UNAVAILABLE, "the box has ended");
	for (; open; open = next) {
		next = open->next;
		open->done(NULL, &err, open->arg);
		free(open);
	}
}

int instance_capture(struct instance *instance, const struct capture_spec *spec,
	const struct capture_ops *ops, void *arg, struct capture **ret, struct err *err)
{
	if (!instance_can(instance, ENGINE_CAN_HIBERNATE))
		return refuse_capture(instance->engine, err);
	return instance->engine->ops->capture(instance, spec, ops, arg, ret, err);
}

int instance_capture_rest(struct instance *instance, int dir, struct err *err)
{
	return instance->engine->ops->capture_rest(instance, dir, err);
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
