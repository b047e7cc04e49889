/* start.c - the daemon's half of a start
 *
 * Everything that needs the host's privileges happens inside ns_start, which takes about a
 * millisecond: cgroups, the clone (by the spawner), id maps, the layers seen through the child's
 * own user namespace, the overlay. The child works beside it and waits twice: for its id maps, and
 * for its root. Once ns_start has returned the daemon is no longer needed: a start goes on to its
 * end even if it dies. */
#include "engine/ns/ns_internal.h"
#include "base/file.h"
#include "loop/loop.h"
#include "sys/fdpass.h"
#include "sys/idmap.h"
#include "sys/mountfd.h"
#include "sys/procfd.h"
#include "sys/procstat.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct start {
	struct ns_engine *engine;
	const struct instance_spec *spec;
	char *group; /* its cgroup */
	int disk;
	int control; /* the daemon's end */
	int pidfd;
	pid_t pid;
	struct ns_plan plan;
	struct cgroup_join join;
	int gifts[NS_FDS_MAX]; /* what the child gets, as enum ns_fd says */
	struct layers layers;  /* what the overlay is made from */
};

static int make_dirs(int parent, const char *const *names, struct err *err)
{
	for (; *names; names++)
		if (mkdirat(parent, *names, 0755) < 0 && errno != EEXIST)
			return err_sys(err, errno, "make '%s' on the box's disk", *names);
	return 0;
}

int ns_open_disk(const struct instance_spec *spec, int *ret, struct err *err)
{
	static const char *const always[] = { "upper", "work", NULL };
	static const char *const nested[] = { "containers", "containers/containers",
		"containers/docker", NULL };
	_cleanup_close_ int upper = -1, disk = -1;

	disk = open(spec->disk, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (disk < 0)
		return err_sys(err, errno, "open the box's disk '%s'", spec->disk);
	if (make_dirs(disk, always, err) < 0)
		return -1;
	if (spec->ns.profile == PROFILE_NESTED && make_dirs(disk, nested, err) < 0)
		return -1;
	upper = openat(disk, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (upper < 0)
		return err_sys(err, errno, "open the box's layer");
	/* A restored box's files stay as its processes know them. */
	if (!spec->state && guest_heal(upper, err) < 0)
		return -1;
	*ret = steal_fd(&disk);
	return 0;
}

int ns_make_cgroups(struct ns_engine *engine, const struct instance_spec *spec, bool delegate,
	struct cgroup_join *ret, struct err *err)
{
	_cleanup_free_ char *group = groups_id(spec);

	if (groups_make(engine->groups, spec, err) < 0)
		return -1;
	if (delegate && cgroup_delegate(engine->cgroups, group, spec->ns.uid_base, err) < 0)
		return -1;
	return cgroup_join_open(engine->cgroups, group, ret, err);
}

enum cgroup_view ns_cgroup_view(const struct ns_engine *engine, enum profile profile)
{
	const struct cgroup_tree *tree = engine->cgroups;

	if (profile == PROFILE_NESTED && cgroup_tree_has_v2(tree))
		return CGROUP_VIEW_OWN;
	/* Programs adapt themselves to the limits they find there. */
	return strcmp(cgroup_tree_layout(tree), "v2") ? CGROUP_VIEW_NONE : CGROUP_VIEW_READ_ONLY;
}

static int ask_for_child(struct start *start, struct err *err)
{
	struct ns_plan *plan = &start->plan;
	int pair[2], status;

	plan->cgroup_view = ns_cgroup_view(start->engine, start->spec->ns.profile);
	if (cgroup_open_v2(start->engine->cgroups, start->group, &plan->cgroup, err) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	start->control = pair[0];
	plan->control = pair[1];
	status = spawner_ask(start->engine, plan, err);
	close(pair[1]); /* the child's copy must be the only one: its end reports the exec */
	return status;
}

/* A child that has already died has left its reason in the socket: that is not an error of
 * sending. */
static int tell(struct start *start, const void *words, size_t len, const int *fds, size_t count,
	struct err *err)
{
	if (fdpass_send(start->control, words, len, fds, count, 0) < 0 && errno != EPIPE &&
		errno != ECONNRESET)
		return err_sys(err, errno, "speak to the new box");
	return 0;
}

static int tell_mapped(struct start *start, struct err *err)
{
	static const char word = NS_WORD_MAPPED;

	return tell(start, &word, 1, start->join.fds, start->join.count, err);
}

static int tell_root(struct start *start, struct err *err)
{
	const struct instance_spec *spec = start->spec;
	size_t count = ns_fds_fixed(spec->ns.profile) + spec->mount_count, len = 1;
	char words[1 + MOUNT_TARGETS_MAX];

	words[0] = NS_WORD_ROOT;
	for (size_t i = 0; i < spec->mount_count; i++)
		len += (size_t)snprintf(
			       words + len, sizeof words - len, "%s", spec->mounts[i].target) +
		       1;
	return tell(start, words, len, start->gifts, count, err);
}

static int make_root(struct start *start, int userns, struct err *err)
{
	struct layers_spec spec = {
		.image = start->spec->ns.layers,
		.apart = start->spec->ns.apart,
		.disk = start->disk,
		.userns = userns,
		.guest = start->engine->guest.layer,
	};

	if (layers_open(start->engine, &spec, &start->layers, err) < 0)
		return -1;
	return layers_stack(start->engine, &start->layers, start->spec->ns.uid_base,
		&start->gifts[NS_FD_ROOT], err);
}

/* Not id-mapped: in the box the files belong to nobody, so that root of a nested box, who may make
 * the mount writable, still cannot write to what all boxes share. */
int ns_make_bin(int bin, int *ret, struct err *err)
{
	if (mount_clone(bin, "", ret, err) < 0)
		return -1;
	return mount_set(*ret, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
}

/* On the host, disks lie on a mount with noexec and nosuid; in a box both are the box's own affair.
 * Device nodes never work. */
int ns_make_containers(const struct instance_spec *spec, int disk, int userns, int *ret_containers,
	int *ret_docker, struct err *err)
{
	const struct idmap_view view = {
		.userns = userns,
		.set = MOUNT_ATTR_NODEV,
		.clear = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
	};

	if (spec->ns.profile != PROFILE_NESTED)
		return 0;
	if (idmap_clone_tree(disk, "containers/containers", &view, ret_containers, err) < 0)
		return -1;
	return idmap_clone_tree(disk, "containers/docker", &view, ret_docker, err);
}

static int make_gifts(struct start *start, struct err *err)
{
	_cleanup_close_ int userns = -1;

	if (idmap_open(start->pid, &userns, err) < 0)
		return -1;
	if (make_root(start, userns, err) < 0)
		return err_wrap(err, "root file system");
	if (ns_make_bin(start->engine->guest.bin, &start->gifts[NS_FD_BIN], err) < 0)
		return err_wrap(err, "box-init");
	if (ns_make_containers(start->spec, start->disk, userns, &start->gifts[NS_FD_CONTAINERS],
		    &start->gifts[NS_FD_DOCKER], err) < 0)
		return err_wrap(err, "containers of the box");
	return mounts_open(start->engine, start->spec, userns,
		start->gifts + ns_fds_fixed(start->spec->ns.profile), err);
}

/* A daemon that is protected from the OOM killer does not pass that on. We write it, not the child,
 * so that the box cannot go back below it. Best effort: on failure the box is as protected as we
 * are. */
static void reset_oom_score(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
	file_poke(AT_FDCWD, path, "0", NULL);
}

static int guide_child(struct start *start, struct err *err)
{
	const struct idmap_extent extents[] = NS_EXTENTS(start->spec->ns.uid_base);

	if (start->engine->oom_score_adj)
		reset_oom_score(start->pid);
	if (idmap_write(start->pid, extents, NS_EXTENT_COUNT, err) < 0)
		return -1;
	if (tell_mapped(start, err) < 0)
		return -1;
	if (make_gifts(start, err) < 0)
		return -1;
	return tell_root(start, err);
}

/* Our own failure may only be a consequence of the child's, which is then reported instead. */
static void prefer_childs_story(struct start *start, struct err *err)
{
	struct err story;

	if (start->control < 0)
		return;
	if (recv(start->control, &story, sizeof story, MSG_DONTWAIT) == (ssize_t)sizeof story &&
		err)
		*err = story;
}

static void end_child(struct start *start)
{
	struct pollfd poller = { .fd = start->pidfd, .events = POLLIN };
	int ignored;

	if (start->pidfd >= 0) {
		procfd_kill(start->pidfd, SIGKILL, NULL);
		poll(&poller, 1, NS_SWEEP_MS);
		procfd_reap(start->pidfd, &ignored);
	}
	cgroup_kill(start->engine->cgroups, start->group, NULL);
	for (int tries = 0;
		tries < 20 && cgroup_remove(start->engine->cgroups, start->group, NULL) < 0;
		tries++)
		usleep(1000);
}

static int hand_over(struct start *start, const struct instance_ops *ops, void *arg,
	struct instance **ret, struct err *err)
{
	struct ns_instance *instance;
	uint64_t start_time;

	if (procstat_start_time(start->pid, &start_time, err) < 0)
		return -1;
	instance = ns_instance_new(start->engine, start->spec, ops, arg);
	instance->base.mark.pid = start->pid;
	memcpy(instance->base.mark.boot, start->engine->boot, sizeof instance->base.mark.boot);
	instance->pidfd = start->pidfd;
	instance->control = start->control;
	instance->base.mark.start_time = start_time;
	ns_instance_watch(instance);
	start->pidfd = start->control = -1;
	*ret = &instance->base;
	return 0;
}

static void close_set(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void let_go(struct start *start)
{
	cgroup_join_done(&start->join);
	close_set(start->plan.cgroup);
	for (unsigned i = 0; i < NS_FDS_MAX; i++)
		close_set(start->gifts[i]);
	layers_close(start->engine, &start->layers);
	close_set(start->control);
	close_set(start->pidfd);
	close_set(start->disk);
	free(start->group);
}

/* Between the request and the answer the cgroups and the disk are prepared: the child, born
 * directly in the v2 group, is busy with its network for longer than that. */
static int prepare(struct start *start, struct err *err)
{
	if (ns_make_cgroups(start->engine, start->spec, start->plan.cgroup_view == CGROUP_VIEW_OWN,
		    &start->join, err) < 0)
		return -1;
	return ns_open_disk(start->spec, &start->disk, err);
}

static int run(struct start *start, struct err *err)
{
	int prepared;

	if (ask_for_child(start, err) < 0)
		return -1;
	prepared = prepare(start, err);
	if (prepared < 0)
		err = NULL; /* the child is fetched only to be ended; the first error counts */
	if (spawner_answer(start->engine, &start->pid, err) < 0 ||
		procfd_open(start->pid, &start->pidfd, err) < 0)
		return -1;
	return prepared < 0 ? -1 : guide_child(start, err);
}

int ns_start(struct engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg, struct instance **ret, struct err *err)
{
	struct start start = {
		.engine = ns_engine_of(engine),
		.spec = spec,
		.disk = -1,
		.control = -1,
		.pidfd = -1,
		.plan = { .owner = spec->ns.uid_base,
			.profile = spec->ns.profile,
			.control = -1,
			.cgroup = -1 },
	};
	int status;

	if (strlen(spec->hostname) >= sizeof start.plan.hostname)
		return err_set(err, ERR_INVALID, "host name '%.80s' is too long", spec->hostname);
	if (mounts_check(spec, err) < 0)
		return err_wrap(err, "start box '%s'", spec->id);
	if (spec->state)
		return ns_restore(start.engine, spec, ops, arg, ret, err);
	strcpy(start.plan.hostname, spec->hostname);
	start.group = groups_id(spec);
	memset(start.gifts, 0xff, sizeof start.gifts);
	layers_init(&start.layers);
	status = run(&start, err);
	if (status == 0)
		status = hand_over(&start, ops, arg, ret, err);
	if (status < 0) {
		prefer_childs_story(&start, err);
		end_child(&start);
		err_wrap(err, "start box '%s'", spec->id);
	}
	let_go(&start);
	return status;
}
