/* groups.h - the cgroups of all instances, whichever driver runs them
 *
 * The limits of all instances together, and of the instances of one tree, do not depend on how a
 * box is isolated, so they are handled here; drivers get the groups when they are opened. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"
#include "sys/cgroup.h"

struct groups;

/* name: of the cgroups of this daemon. limits: of all instances together; 0: none,
 * ENGINE_LIMIT_AUTO: a value that leaves the machine enough for itself. */
struct groups_config {
	const char *name;
	uint64_t memory_bytes, pids;
};
int groups_open(const struct groups_config *config, struct groups **ret, struct err *err);
void groups_close(struct groups *groups); /* accepts NULL */

/* The limits of all instances together, and their usage; the disk values are 0. */
struct limits groups_get_limits(const struct groups *groups);
struct instance_stats groups_stats(const struct groups *groups);

/* Sets the limits of all running instances of a tree together; 0 means unlimited. Fails with
 * ERR_STATE, without a change, when more memory is in use than the new limit; does nothing when
 * none runs. */
int groups_set_tree_limits(
	struct groups *groups, const char *tree, const struct limits *limits, struct err *err);
/* Forks refused at the limit of the tree, in total, where the kernel counts them there. */
uint64_t groups_tree_pids_refused(struct groups *groups, const char *tree);
/* The usage of a tree. Fails with ERR_NOT_FOUND when none of its instances runs. */
int groups_tree_stats(
	struct groups *groups, const char *tree, struct instance_stats *ret, struct err *err);

/* Ids of all instances that left a cgroup, for finding orphans. New array of strings. */
json_t *groups_leftovers(struct groups *groups);

/* ---- for drivers ---------------------------------------------------------------------------- */

struct cgroup_tree *groups_get_cgroups(struct groups *groups);
char *groups_id(const struct instance_spec *spec); /* name of an instance's cgroup; yours */
/* Makes an instance's cgroup with its limits, and its tree's before it. */
int groups_make(struct groups *groups, const struct instance_spec *spec, struct err *err);
int groups_instance_stats(
	struct groups *groups, const char *group, struct instance_stats *ret, struct err *err);
/* Which limit above an instance was reached; call it right after that. */
enum instance_scope groups_scope(
	struct groups *groups, const char *group, enum cgroup_controller controller);
struct cgroup_limits groups_limits(const struct limits *limits);
/* Kills what is in an instance's cgroups and removes them. */
int groups_sweep(struct groups *groups, const char *id, struct err *err);

/* A tree may have this many processes more than its limit: the processes that capture and restore
 * an instance run in its cgroups. */
enum { GROUPS_PIDS_MORE = 64 };
/* Suffix of an instance id: the cgroup of processes that work for it from outside. They end by
 * themselves; killing them could take processes of the box along. */
#define GROUPS_WORK_SUFFIX "-work"
