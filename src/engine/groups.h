/* groups.h - the cgroups of all instances, whichever driver runs them
 *
 * Limits of all instances together and of the instances of one tree do not depend on how a box is
 * isolated, so they are set and asked for here; drivers get the groups at their opening. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"
#include "sys/cgroup.h"

struct groups;

/* name: of the cgroups of this daemon. Limits of all instances together; 0: none,
 * ENGINE_LIMIT_AUTO: what leaves the machine enough for itself. */
struct groups_config {
	const char *name;
	uint64_t memory_bytes, pids;
};
int groups_open(const struct groups_config *config, struct groups **ret, struct err *err);
void groups_close(struct groups *groups); /* accepts NULL */

/* What all instances may use together, as it was set, and what they do; the disk's are 0. */
struct limits groups_get_limits(const struct groups *groups);
struct instance_stats groups_stats(const struct groups *groups);

/* Of all running instances of a tree together; 0 lifts a limit. ERR_STATE, and nothing has changed,
 * when more memory is in use than it would be allowed; nothing happens when none runs. */
int groups_set_tree_limits(
	struct groups *groups, const char *tree, const struct limits *limits, struct err *err);
/* Forks refused for the limit of the tree, ever, where the kernel counts them there. */
uint64_t groups_tree_pids_refused(struct groups *groups, const char *tree);
/* What they use together. ERR_NOT_FOUND when none runs. */
int groups_tree_stats(
	struct groups *groups, const char *tree, struct instance_stats *ret, struct err *err);

/* Ids of all instances that have left a group, for finding orphans. New array of strings. */
json_t *groups_leftovers(struct groups *groups);

/* ---- for drivers ---------------------------------------------------------------------------- */

struct cgroup_tree *groups_get_cgroups(struct groups *groups);
char *groups_id(const struct instance_spec *spec); /* of an instance's cgroup; yours */
/* An instance's cgroup with its limits; its tree's is made before. */
int groups_make(struct groups *groups, const struct instance_spec *spec, struct err *err);
int groups_instance_stats(
	struct groups *groups, const char *group, struct instance_stats *ret, struct err *err);
/* Right after an instance ran into a limit: which of those above it was it? */
enum instance_scope groups_scope(
	struct groups *groups, const char *group, enum cgroup_controller controller);
struct cgroup_limits groups_limits(const struct limits *limits);
/* Kills what is in an instance's groups and removes them. */
int groups_sweep(struct groups *groups, const char *id, struct err *err);

/* A tree may have so many processes more than its limit: what captures and restores an instance is
 * in its groups as long as it works. */
enum { GROUPS_PIDS_MORE = 64 };
/* After the id of an instance: the group of what works for it from outside. It ends by itself;
 * killed, it could take processes of the box along. */
#define GROUPS_WORK_SUFFIX "-work"
