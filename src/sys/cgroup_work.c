/* cgroup_work.c - a group for work that is done for a box outside it
 *
 * The program that captures a box cannot be in the box's group, which is frozen meanwhile. A group
 * beside it limits its CPU time, in the hierarchy that has the CPU controller and in no other: the
 * memory it needs to write files is not the box's. */
#include "sys/cgroup_internal.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int cgroup_work_open(struct cgroup_tree *tree, const char *id, uint64_t cpu_milli,
	struct cgroup_join *ret, int *ret_v2, struct err *err)
{
	const struct cgroup_hierarchy *cpu = cgroup_find(tree, CGROUP_CPU);
	const struct cgroup_limits limits = { .cpu_milli = cpu_milli };
	char path[256];
	int fd;

	ret->count = 0;
	*ret_v2 = -1;
	if (!cpu)
		return 0; /* then the box has no CPU limit either */
	if (mkdirat(cpu->dir, id, 0755) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make cgroup '%s' in '%s'", id, cpu->mount);
	if (cgroup_limits_write(tree, id, &limits, false, err) < 0)
		return -1;
	snprintf(path, sizeof path, "%s%s", id, cpu->v2 ? "" : "/tasks");
	fd = openat(cpu->dir, path,
		cpu->v2 ? O_RDONLY | O_DIRECTORY | O_CLOEXEC : O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "open cgroup '%s' in '%s'", id, cpu->mount);
	if (cpu->v2)
		*ret_v2 = fd;
	else
		ret->fds[ret->count++] = fd;
	return 0;
}
