/* cgroup_internal.h - how cgroup.c and cgroup_stats.c see a tree */
#pragma once
#include "sys/cgroup.h"

struct cgroup_hierarchy {
	char *mount;
	int dir; /* MOUNT/NAME */
	bool v2;
	unsigned controllers; /* those this tree uses here */
};

struct cgroup_tree {
	char *name;
	const char *layout;
	struct cgroup_hierarchy list[CGROUP_CONTROLLER_COUNT + 1];
	size_t count;
};

/* The hierarchy a controller is used in, or NULL. */
const struct cgroup_hierarchy *cgroup_find(
	const struct cgroup_tree *tree, enum cgroup_controller controller);
const struct cgroup_hierarchy *cgroup_find_v2(const struct cgroup_tree *tree);
