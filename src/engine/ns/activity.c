/* activity.c - whether an instance does anything, and when it will */
#include "engine/ns/ns_internal.h"
#include "engine/ns/timers.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "sys/procfd.h"

int ns_activity(struct instance *base, struct instance_activity *ret, struct err *err)
{
	struct cgroup_tree *cgroups = ns_engine_of(base->engine)->cgroups;
	struct ns_instance *instance = ns_instance_of(base);

	if (instance->state != NS_RUNNING)
		return err_set(err, ERR_STATE, "the box is not running");
	*ret = (struct instance_activity){
		.cpu_us = cgroup_cpu_us(cgroups, instance->group),
		.io_bytes = cgroup_io_bytes(cgroups, instance->group),
	};
	return 0;
}

enum { FRESH_US = 100 * 1000 }; /* how long the result of a look may be used for a freeze */

/* Without a look before it, the timers of a frozen box stand still, as for any freeze on
 * request. */
void ns_timers_freeze(struct ns_instance *instance, bool frozen)
{
	if (!instance->timers)
		return;
	if (!frozen)
		timers_mend(instance->timers);
	if (!frozen || clock_mono_us() - instance->timers->looked_us > FRESH_US)
		for (unsigned i = 0; i < instance->timers->count; i++)
			instance->timers->list[i].address = 0;
}

int ns_next_timer(
	struct instance *base, int64_t quiet_since_us, struct instance_timer *ret, struct err *err)
{
	struct ns_instance *instance = ns_instance_of(base);

	if (instance->state != NS_RUNNING)
		return err_set(err, ERR_STATE, "the box is not running");
	if (!instance->timers)
		instance->timers = xnew(struct timers_memory);
	timers_look(base->mark.pid, quiet_since_us, instance->timers, ret);
	/* It is alive after the look, so the pid belonged to the box all the time. */
	if (!procfd_is_alive(instance->pidfd))
		return err_set(err, ERR_UNAVAILABLE, "the box has ended");
	return 0;
}
