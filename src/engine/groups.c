/* groups.c - the cgroups of all instances, whichever driver runs them */
#include "engine/groups.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include <unistd.h>

enum { SWEEP_MS = 2000 };

struct groups {
	struct cgroup_tree *cgroups;
	struct limits limits; /* of all instances together */
};

/* A limit that cannot be set, because boxes of an earlier daemon already use more, is set by the
 * next daemon. */
static void bound_all(struct groups *groups, const struct groups_config *config)
{
	struct cgroup_limits limits = cgroup_machine_limits(groups->cgroups);
	struct err err = ERR_INIT;

	if (config->memory_bytes != ENGINE_LIMIT_AUTO)
		limits.memory_bytes = config->memory_bytes;
	if (config->pids != ENGINE_LIMIT_AUTO)
		limits.pids = config->pids;
	if (cgroup_limit(groups->cgroups, ".", &limits, &err) < 0) {
		log_warn("cannot set the limits of all boxes together", kv_err(&err));
		return;
	}
	groups->limits.memory_bytes = limits.memory_bytes;
	groups->limits.pids = limits.pids;
}

int groups_open(const struct groups_config *config, struct groups **ret, struct err *err)
{
	struct cgroup_tree *cgroups;
	struct groups *groups;

	if (cgroup_tree_open(config->name, &cgroups, err) < 0)
		return -1;
	groups = xnew(struct groups);
	groups->cgroups = cgroups;
	bound_all(groups, config);
	*ret = groups;
	return 0;
}

void groups_close(struct groups *groups)
{
	if (!groups)
		return;
	cgroup_tree_close(groups->cgroups);
	free(groups);
}

struct cgroup_tree *groups_get_cgroups(struct groups *groups)
{
	return groups->cgroups;
}

/* ---- figures -------------------------------------------------------------------------------- */

int groups_instance_stats(
	struct groups *groups, const char *group, struct instance_stats *ret, struct err *err)
{
	struct cgroup_stats stats;

	if (cgroup_stats(groups->cgroups, group, &stats, err) < 0)
		return -1;
	*ret = (struct instance_stats){
		.cpu_us = stats.cpu_us,
		.memory_bytes = stats.memory_bytes,
		.memory_peak_bytes = stats.memory_peak_bytes,
		.memory_held_bytes = stats.memory_held_bytes,
		.processes = stats.processes,
		.threads = stats.threads,
		.oom_kills = stats.oom_kills,
		.throttled_us = stats.throttled_us,
		.pids_refused = stats.pids_refused,
	};
	return 0;
}

struct limits groups_get_limits(const struct groups *groups)
{
	return groups->limits;
}

struct instance_stats groups_stats(const struct groups *groups)
{
	struct instance_stats stats = { 0 };

	(void)groups_instance_stats((struct groups *)groups, ".", &stats, NULL);
	return stats;
}

static char *tree_group(const char *tree)
{
	return xasprintf(CGROUP_SHARED "%s", tree);
}

int groups_tree_stats(
	struct groups *groups, const char *tree, struct instance_stats *ret, struct err *err)
{
	_cleanup_free_ char *group = tree_group(tree);

	return groups_instance_stats(groups, group, ret, err);
}

uint64_t groups_tree_pids_refused(struct groups *groups, const char *tree)
{
	_cleanup_free_ char *group = tree_group(tree);

	return cgroup_pids_refused(groups->cgroups, group);
}

/* ---- limits --------------------------------------------------------------------------------- */

struct cgroup_limits groups_limits(const struct limits *limits)
{
	return (struct cgroup_limits){
		.cpu_milli = limits->cpu_milli,
		.memory_bytes = limits->memory_bytes,
		.pids = limits->pids,
	};
}

int groups_set_tree_limits(
	struct groups *groups, const char *tree, const struct limits *limits, struct err *err)
{
	_cleanup_free_ char *group = tree_group(tree);
	struct cgroup_limits wanted = groups_limits(limits);

	if (!cgroup_exists(groups->cgroups, group))
		return 0;
	if (wanted.pids)
		wanted.pids += GROUPS_PIDS_MORE;
	return cgroup_limit(groups->cgroups, group, &wanted, err);
}

char *groups_id(const struct instance_spec *spec)
{
	return spec->tree ? xasprintf(CGROUP_SHARED "%s/%s", spec->tree, spec->id)
			  : xstrdup(spec->id);
}

/* The limits of the tree come first: on v1 a CPU quota may not exceed the one above it, and nothing
 * may run before its limits apply. */
int groups_make(struct groups *groups, const struct instance_spec *spec, struct err *err)
{
	_cleanup_free_ char *group = groups_id(spec);
	struct cgroup_limits limits = groups_limits(&spec->limits), none = { 0 };
	const struct limits *all = &spec->tree_limits;
	bool bounded = spec->tree && (all->cpu_milli || all->memory_bytes || all->pids);

	if (bounded && (cgroup_create(groups->cgroups, group, &none, err) < 0 ||
			       groups_set_tree_limits(groups, spec->tree, all, err) < 0))
		return err_wrap(err, "limits of the tree");
	return cgroup_create(groups->cgroups, group, &limits, err);
}

/* When a process ends, the usage of all groups above it falls alike, so the limit that was reached
 * is still the one with the least room. */
enum instance_scope groups_scope(
	struct groups *groups, const char *group, enum cgroup_controller controller)
{
	const char *slash = strchr(group, '/');
	_cleanup_free_ char *tree = slash ? xstrndup(group, (size_t)(slash - group)) : NULL;
	uint64_t own = cgroup_room(groups->cgroups, group, controller);
	uint64_t together = tree ? cgroup_room(groups->cgroups, tree, controller) : UINT64_MAX;
	uint64_t all = cgroup_room(groups->cgroups, ".", controller);

	if (own <= together && own <= all)
		return INSTANCE_SCOPE_OWN;
	return together <= all ? INSTANCE_SCOPE_TREE : INSTANCE_SCOPE_ALL;
}

/* ---- what is left --------------------------------------------------------------------------- */

static int sweep_group(struct cgroup_tree *cgroups, const char *group, struct err *err)
{
	int64_t deadline = clock_mono_us() + SWEEP_MS * 1000;

	if (cgroup_kill(cgroups, group, err) < 0)
		return -1;
	while (cgroup_remove(cgroups, group, err) < 0) {
		if (clock_mono_us() > deadline)
			return -1;
		usleep(2000);
		cgroup_kill(cgroups, group, NULL);
	}
	return 0;
}

int groups_sweep(struct groups *groups, const char *id, struct err *err)
{
	char group[CGROUP_ID_SIZE];

	while (cgroup_find_id(groups->cgroups, id, group))
		if (sweep_group(groups->cgroups, group, err) < 0)
			return err_wrap(err, "sweep box '%s'", id);
	return 0;
}

struct leftovers {
	struct groups *groups;
	json_t *ids;
};

static void add_leftover(const char *group, void *arg)
{
	const struct leftovers *left = arg;
	const char *slash = strrchr(group, '/');

	if (strstr(group, GROUPS_WORK_SUFFIX)) {
		cgroup_remove(left->groups->cgroups, group, NULL);
		return;
	}
	json_array_append_new(left->ids, json_string(slash ? slash + 1 : group));
}

json_t *groups_leftovers(struct groups *groups)
{
	struct leftovers left = { groups, json_array() };

	cgroup_tree_each(groups->cgroups, add_leftover, &left);
	return left.ids;
}
