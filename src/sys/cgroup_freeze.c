/* cgroup_freeze.c - freezes the processes of a group
 *
 * v2 reports in cgroup.events when all have stopped, and wakes whoever polls that file; but not
 * twice within 10 ms, so a group that was just thawed is also read in between. v1 has to be read
 * again and again, and retries only when it is read. A process deep in the kernel may take long;
 * when one has not stopped in time, that is an error and all processes are thawed: nothing is left
 * half frozen. */
#include "sys/cgroup_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

enum { BOUND_US = 1000 * 1000, ASK_AGAIN_US = 500, ASK_FIRST_US = 100, ASK_LAST_US = 4000 };

static int too_long(const char *id, bool frozen, struct err *err)
{
	return err_set(err, ERR_TIMEOUT, "the processes of '%s' did not %s in time", id,
		frozen ? "stop" : "go on");
}

/* pread from the start: that is what arms the next poll. */
static bool is_frozen_v2(int events)
{
	char text[128];
	ssize_t got = pread(events, text, sizeof text - 1, 0);

	text[MAX(got, 0)] = '\0';
	return cgroup_number_of_key(text, "frozen") == 1;
}

static int wait_v2(int events, const char *id, bool frozen, int64_t bound_us, struct err *err)
{
	struct pollfd poller = { .fd = events, .events = POLLPRI };
	int64_t deadline = clock_mono_us() + bound_us, patience_us = ASK_FIRST_US;

	while (is_frozen_v2(events) != frozen) {
		struct timespec wait = { .tv_nsec = patience_us * 1000 };

		if (clock_mono_us() >= deadline)
			return too_long(id, frozen, err);
		ppoll(&poller, 1, &wait, NULL);
		patience_us = MIN(patience_us * 2, ASK_LAST_US);
	}
	return 0;
}

static int freeze_v2(const struct cgroup_hierarchy *v2, const char *id, bool frozen,
	int64_t bound_us, struct err *err)
{
	_cleanup_close_ int events = -1;
	char path[256];

	snprintf(path, sizeof path, "%s/cgroup.events", id);
	events = openat(v2->dir, path, O_RDONLY | O_CLOEXEC);
	if (events < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (cgroup_poke(v2, id, "cgroup.freeze", frozen ? "1" : "0", err) < 0)
		return -1;
	return wait_v2(events, id, frozen, bound_us, err);
}

static int freeze_v1(const struct cgroup_hierarchy *freezer, const char *id, bool frozen,
	int64_t bound_us, struct err *err)
{
	const char *want = frozen ? "FROZEN" : "THAWED";
	int64_t deadline = clock_mono_us() + bound_us;
	char text[32];

	if (cgroup_poke(freezer, id, "freezer.state", want, err) < 0)
		return -1;
	while (cgroup_read(freezer, id, "freezer.state", text, sizeof text) &&
		strncmp(text, want, strlen(want)) != 0) {
		if (clock_mono_us() > deadline)
			return too_long(id, frozen, err);
		usleep(ASK_AGAIN_US);
	}
	return 0;
}

static int freeze(
	struct cgroup_tree *tree, const char *id, bool frozen, int64_t bound_us, struct err *err)
{
	const struct cgroup_hierarchy *v2 = cgroup_find_v2(tree);
	const struct cgroup_hierarchy *freezer = cgroup_find(tree, CGROUP_FREEZER);

	if (!v2 && !freezer) {
		err_set(err, ERR_UNSUPPORTED, "this machine cannot freeze processes");
		return err_hint(err, "mount -t cgroup2 none /sys/fs/cgroup/unified");
	}
	return v2 ? freeze_v2(v2, id, frozen, bound_us, err)
		  : freeze_v1(freezer, id, frozen, bound_us, err);
}

int cgroup_freeze(struct cgroup_tree *tree, const char *id, bool frozen, struct err *err)
{
	int status = freeze(tree, id, frozen, BOUND_US, err);

	if (status < 0 && frozen)
		freeze(tree, id, false, 0, NULL);
	return status;
}

int cgroup_freeze_try(struct cgroup_tree *tree, const char *id, int64_t bound_us, struct err *err)
{
	return freeze(tree, id, true, bound_us, err);
}

char *cgroup_freezer_path(const struct cgroup_tree *tree, const char *id)
{
	const struct cgroup_hierarchy *v2 = cgroup_find_v2(tree);
	const struct cgroup_hierarchy *freezer = cgroup_find(tree, CGROUP_FREEZER);
	const struct cgroup_hierarchy *used = v2 ? v2 : freezer;

	return used ? xasprintf("%s/%s/%s", used->mount, tree->name, id) : NULL;
}
