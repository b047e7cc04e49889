/* cgroup_internal.h - a tree as the cgroup files share it */
#pragma once
#include "sys/cgroup.h"

struct cgroup_hierarchy {
	char *mount;
	int dir; /* MOUNT/NAME */
	bool v2;
	unsigned controllers; /* the controllers this tree uses in this hierarchy */
};

struct cgroup_tree {
	char *name;
	const char *layout;
	struct cgroup_hierarchy list[CGROUP_CONTROLLER_COUNT + 1];
	size_t count;
};

/* The hierarchy in which a controller is used, or NULL. */
const struct cgroup_hierarchy *cgroup_find(
	const struct cgroup_tree *tree, enum cgroup_controller controller);
const struct cgroup_hierarchy *cgroup_find_v2(const struct cgroup_tree *tree);

int cgroup_poke(const struct cgroup_hierarchy *hierarchy, const char *id, const char *file,
	const char *text, struct err *err);
/* Reads a small file of a group without allocating. False when it cannot be read; hierarchy may be
 * NULL. */
bool cgroup_read(const struct cgroup_hierarchy *hierarchy, const char *id, const char *file,
	char *out, size_t size);
/* Reads a file that holds one number; 0 when it cannot be read. */
uint64_t cgroup_read_number(
	const struct cgroup_hierarchy *hierarchy, const char *id, const char *file);
/* The number after "key " at the start of a line; 0 when there is none. */
uint64_t cgroup_number_of_key(const char *text, const char *key);

/* cgroup_limit.c: ERR_UNSUPPORTED when a limit has no controller. */
int cgroup_limits_check(
	const struct cgroup_tree *tree, const struct cgroup_limits *limits, struct err *err);
/* lift: 0 is written as "no limit"; otherwise 0 is skipped, as for a new group. */
int cgroup_limits_write(struct cgroup_tree *tree, const char *id,
	const struct cgroup_limits *limits, bool lift, struct err *err);
