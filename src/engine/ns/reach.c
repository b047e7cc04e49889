/* reach.c - calls into a running instance
 *
 * Everything inside is the box's to rearrange. Its socket is opened without following links,
 * checked to be a socket, and its other end must belong to the box's root: a socket the box got
 * from elsewhere, or a link to one of the host's, is refused. */
#include "engine/ns/ns_internal.h"
#include "engine/ns/timers.h"
#include "base/clock.h"
#include "base/log.h"
#include "sys/beneath.h"
#include "sys/netns.h"
#include "sys/procfd.h"
#include "wire/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { PAUSE_WAIT_US = 5000 };

/* Kept open: it stays the same socket whatever the box mounts over it, and whatever happens to the
 * pid. */
static int open_socket(struct ns_instance *instance, struct err *err)
{
	_cleanup_close_ int root = -1, fd = -1;
	char path[32];
	struct stat st;

	snprintf(path, sizeof path, "/proc/%d/root", (int)instance->base.mark.pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	/* It is alive after the open, so the pid was ours at the open as well. */
	if (root < 0 || !procfd_is_alive(instance->pidfd))
		return err_set(err, ERR_UNAVAILABLE, "the box has ended");
	if (beneath_open(root, &WIRE_SOCKET_PATH[1], O_PATH, &fd, err) < 0)
		return err_wrap(err, "socket of box-init");
	if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode))
		return err_set(
			err, ERR_PROTOCOL, "'" WIRE_SOCKET_PATH "' in the box is not a socket");
	instance->socket = steal_fd(&fd);
	return 0;
}

static int make_socket(void *arg, struct err *err)
{
	int *fd = arg;

	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return *fd < 0 ? err_sys(err, errno, "socket") : 0;
}

/* Made in the box's own network namespace: box-init's end of a connection belongs to the namespace
 * of the connecting socket, and CRIU knows only what belongs to the box's. */
static int make_socket_inside(struct instance *instance, int *ret, struct err *err)
{
	_cleanup_close_ int netns = -1;

	if (ns_netns(instance, &netns, err) < 0)
		return -1;
	return netns_call(netns, make_socket, ret, err);
}

int ns_connect(struct instance *base, int *ret_fd, struct err *err)
{
	struct ns_instance *instance = ns_instance_of(base);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;
	struct ucred peer;
	socklen_t len = sizeof peer;

	if (instance->state != NS_RUNNING)
		return err_set(err, ERR_STATE, "the box is not running");
	if (instance->socket < 0 && open_socket(instance, err) < 0)
		return -1;
	if (make_socket_inside(base, &fd, err) < 0)
		return -1;
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", instance->socket);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return err_sys(err, errno, "connect to box-init");
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return err_sys(err, errno, "ask who box-init is");
	if (peer.uid != instance->uid_base)
		return err_set(err, ERR_PROTOCOL,
			"box-init's socket is held by user %u, not by the box", peer.uid);
	*ret_fd = steal_fd(&fd);
	return 0;
}

int ns_stats(struct instance *base, struct instance_stats *ret, struct err *err)
{
	return groups_instance_stats(
		ns_engine_of(base->engine)->groups, ns_instance_of(base)->group, ret, err);
}

/* Runs between vfork and _exit: system calls only. Returns an errno. */
static int arrange(int pidfd, const char *hostname, bool forbid_users)
{
	int fd;

	if (setns(pidfd, CLONE_NEWUTS) < 0 || sethostname(hostname, strlen(hostname)) < 0)
		return errno;
	if (!forbid_users)
		return 0;
	if (setns(pidfd, CLONE_NEWUSER) < 0)
		return errno;
	fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	return fd < 0 || write(fd, "0", 1) < 0 ? errno : 0;
}

/* Runs in a short-lived process: the daemon itself never enters a box's namespace. vfork, since
 * copying the daemon's memory would take longer than the work. */
int ns_arrange(
	struct ns_instance *instance, const char *hostname, bool forbid_users, struct err *err)
{
	volatile int failed = 0;
	pid_t pid = vfork();

	if (pid == 0) {
		failed = arrange(instance->pidfd, hostname, forbid_users);
		_exit(0);
	}
	if (pid < 0)
		return err_sys(err, errno, "vfork");
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	if (failed)
		return err_sys(err, failed, "set the host name of the box");
	return 0;
}

int ns_set_hostname(struct instance *base, const char *hostname, struct err *err)
{
	return ns_arrange(ns_instance_of(base), hostname, false, err);
}

int ns_set_limits(struct instance *base, const struct limits *limits, struct err *err)
{
	struct ns_instance *instance = ns_instance_of(base);
	struct cgroup_limits wanted = groups_limits(limits);

	if (cgroup_limit(ns_engine_of(base->engine)->cgroups, instance->group, &wanted, err) < 0)
		return -1;
	instance->memory_limit = limits->memory_bytes;
	instance->cpu_limit = limits->cpu_milli;
	return 0;
}

enum instance_scope ns_memory_scope(struct instance *base)
{
	return groups_scope(
		ns_engine_of(base->engine)->groups, ns_instance_of(base)->group, CGROUP_MEMORY);
}

enum instance_scope ns_pids_scope(struct instance *base)
{
	return groups_scope(
		ns_engine_of(base->engine)->groups, ns_instance_of(base)->group, CGROUP_PIDS);
}

/* Opened by path each time, a few microseconds: an open file would be one more fd for each of
 * hundreds of boxes. */
uint64_t ns_pids_refused(struct instance *base)
{
	return cgroup_pids_refused(
		ns_engine_of(base->engine)->cgroups, ns_instance_of(base)->group);
}

int ns_netns(struct instance *base, int *ret, struct err *err)
{
	struct ns_instance *instance = ns_instance_of(base);
	_cleanup_close_ int fd = -1;
	char path[40];

	snprintf(path, sizeof path, "/proc/%d/ns/net", (int)base->mark.pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	/* It is alive after the open, as in open_socket. */
	if (fd < 0 || !procfd_is_alive(instance->pidfd))
		return err_set(err, ERR_UNAVAILABLE, "the box has ended");
	*ret = steal_fd(&fd);
	return 0;
}

size_t ns_pids(struct instance *base, pid_t *ret, size_t max)
{
	return cgroup_pids(
		ns_engine_of(base->engine)->cgroups, ns_instance_of(base)->group, ret, max);
}

int ns_freeze(struct instance *base, bool frozen, struct err *err)
{
	struct ns_instance *instance = ns_instance_of(base);

	if (instance->state != NS_RUNNING)
		return err_set(err, ERR_STATE, "the box is not running");
	ns_timers_freeze(instance, frozen);
	if (cgroup_freeze(ns_engine_of(base->engine)->cgroups, instance->group, frozen, err) < 0)
		return -1;
	instance->frozen = frozen;
	if (instance->timers && frozen)
		instance->timers->frozen_us = clock_mono_us();
	return 0;
}

int ns_pause(struct instance *base, struct err *err)
{
	struct ns_instance *instance = ns_instance_of(base);
	struct err why = ERR_INIT;

	if (instance->state != NS_RUNNING)
		return err_set(err, ERR_STATE, "the box is not running");
	ns_timers_freeze(instance, true);
	if (cgroup_freeze_try(ns_engine_of(base->engine)->cgroups, instance->group, PAUSE_WAIT_US,
		    &why) < 0 &&
		why.kind != ERR_TIMEOUT) {
		if (err)
			*err = why;
		return -1;
	}
	instance->frozen = true;
	if (instance->timers)
		instance->timers->frozen_us = clock_mono_us();
	return 0;
}

static bool same_tree(const struct ns_instance *a, const struct ns_instance *b)
{
	size_t len = strcspn(a->group, "/");

	return !strncmp(a->group, b->group, len + 1);
}

/* A tree holds while one of its instances does. But when one instance is released, whatever waits
 * at the tree's limit is released too: it may be that instance. */
static void hold_tree(struct ns_instance *instance)
{
	struct ns_engine *engine = ns_engine_of(instance->base.engine);
	const char *slash = strchr(instance->group, '/');
	_cleanup_free_ char *tree =
		slash ? xstrndup(instance->group, (size_t)(slash - instance->group)) : NULL;
	bool hold = instance->holds;
	struct err err = ERR_INIT;

	if (!tree)
		return;
	if (!hold && !cgroup_memory_waits(engine->cgroups, tree))
		for (struct ns_instance *other = engine->first; other; other = other->next)
			hold = hold || (other->holds && same_tree(instance, other));
	if (cgroup_hold(engine->cgroups, tree, CGROUP_HOLD_ITS_LIMIT, hold, &err) < 0)
		log_warn("cannot set what happens at the limit of a tree",
			kv_str("box", instance->id), kv_err(&err));
}

int ns_hold_limit(struct instance *base, bool hold, struct err *err)
{
	struct ns_instance *instance = ns_instance_of(base);
	struct cgroup_tree *cgroups = ns_engine_of(base->engine)->cgroups;

	if (cgroup_hold(cgroups, instance->group, instance->memory_limit, hold, err) < 0)
		return err_wrap(err, "set what happens at the memory limit");
	instance->holds = hold && instance->memory_limit;
	instance->memory_refused = cgroup_memory_refused(cgroups, instance->group);
	hold_tree(instance);
	return 0;
}

bool ns_memory_full(struct instance *base)
{
	struct ns_instance *instance = ns_instance_of(base);
	struct cgroup_tree *cgroups = ns_engine_of(base->engine)->cgroups;
	uint64_t refused;
	bool tight, full;

	if (!instance->holds)
		return false;
	if (cgroup_memory_waits(cgroups, instance->group))
		return true;
	refused = cgroup_memory_refused(cgroups, instance->group);
	tight = cgroup_memory_is_tight(cgroups, instance->group, instance->memory_limit);
	full = tight && refused != instance->memory_refused;
	instance->memory_refused = refused;
	/* Not every failing call is counted as refused. */
	full = full ||
	       (tight && !instance->brim_told &&
		       cgroup_memory_is_at_brim(cgroups, instance->group, instance->memory_limit));
	instance->brim_told = tight && (full || instance->brim_told);
	return full;
}
