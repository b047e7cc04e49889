/* life.c - what happens to an instance
 *
 *   STARTING ──control socket closed by an exec──▶ RUNNING ──process gone──▶ ENDING ──▶ on_ended
 *       └──────error reported, process gone, or 10 s──────────────────────────▶ ENDING ──▶
 *       on_failed
 *
 * The control socket is close-on-exec: its end without a message means that box-init was executed.
 * PID 1 of a pid namespace can be waited for only after all others in it are dead, so its pidfd
 * alone tells that nothing runs any more. ENDING lasts until the cgroups are removed, which the
 * kernel may refuse for a moment; a timer retries. A callback is always the last thing a function
 * does, because it may free the instance. */
#include "engine/ns/ns_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include "sys/procfd.h"
#include "sys/procstat.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	REMOVE_RETRY_MS = 5,
	REMOVE_GIVE_UP_US = 5 * 1000 * 1000,
	STATUS_WAIT_US = 50 * 1000, /* for a parent other than us to reap */
	ADOPT_TRIES = 250,
	ADOPT_PAUSE_US = 2000,
	OOM_RECHECK_MS = 50, /* the event comes before the kernel counts the kill */
	OOM_RECENT_US = 2 * 1000 * 1000,
};

static struct ns_engine *engine_of(struct ns_instance *instance)
{
	return ns_engine_of(instance->base.engine);
}

struct ns_instance *ns_instance_new(struct ns_engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg)
{
	struct ns_instance *instance = xnew(struct ns_instance);

	instance->base = (struct instance){ .engine = &engine->base, .events = ops, .arg = arg };
	instance->id = xstrdup(spec->id);
	instance->group = groups_id(spec);
	instance->uid_base = spec->ns.uid_base;
	instance->profile = spec->ns.profile;
	instance->memory_limit = spec->limits.memory_bytes;
	instance->cpu_limit = spec->limits.cpu_milli;
	instance->pidfd = instance->control = instance->socket = instance->oom_fd =
		instance->oom_wd = instance->pids_wd = -1;
	instance->next = engine->first;
	if (engine->first)
		engine->first->prev = instance;
	engine->first = instance;
	return instance;
}

static void drop_watch(struct loop_fd **watch, int *fd)
{
	loop_fd_free(*watch);
	*watch = NULL;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void drop_oom_watch(struct ns_instance *instance)
{
	if (instance->oom_wd >= 0)
		inotify_rm_watch(engine_of(instance)->inotify, instance->oom_wd);
	if (instance->pids_wd >= 0)
		inotify_rm_watch(engine_of(instance)->inotify, instance->pids_wd);
	instance->oom_wd = instance->pids_wd = -1;
	drop_watch(&instance->oom_watch, &instance->oom_fd);
	loop_timer_free(instance->oom_timer);
	instance->oom_timer = NULL;
}

void ns_free(struct instance *base)
{
	struct ns_instance *instance = ns_instance_of(base);

	restoring_forget(instance);
	*(instance->prev ? &instance->prev->next : &engine_of(instance)->first) = instance->next;
	if (instance->next)
		instance->next->prev = instance->prev;
	drop_oom_watch(instance);
	drop_watch(&instance->control_watch, &instance->control);
	drop_watch(&instance->pidfd_watch, &instance->pidfd);
	if (instance->socket >= 0)
		close(instance->socket);
	loop_timer_free(instance->timer);
	free(instance->timers);
	free(instance->stopped);
	free(instance->id);
	free(instance->group);
	free(instance);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Kills not reported yet. */
static uint64_t take_oom_kills(struct ns_instance *instance)
{
	uint64_t now = cgroup_oom_kills(engine_of(instance)->cgroups, instance->group);
	uint64_t fresh = now > instance->oom_seen ? now - instance->oom_seen : 0;

	if (fresh)
		instance->oom_at = clock_mono_us();
	instance->oom_seen += fresh;
	return fresh;
}

static void report_oom(struct ns_instance *instance)
{
	bool runs = instance->state == NS_RUNNING;
	uint64_t kills = runs ? take_oom_kills(instance) : 0;

	if ((kills || (runs && ns_memory_full(&instance->base))) && instance->base.events->on_oom)
		instance->base.events->on_oom(&instance->base, kills, instance->base.arg);
}

static void oom_later(void *arg)
{
	report_oom(arg);
}

static void oom_noticed(struct ns_instance *instance)
{
	if (!instance->oom_timer)
		instance->oom_timer =
			loop_timer_new(engine_of(instance)->loop, oom_later, instance);
	loop_timer_start(instance->oom_timer, OOM_RECHECK_MS);
	report_oom(instance);
}

static void oom_event(void *arg, unsigned ready)
{
	struct ns_instance *instance = arg;
	uint64_t count;

	(void)ready;
	if (read(instance->oom_fd, &count, sizeof count) < 0) {
		/* A spurious wakeup. */
		return;
	}
	oom_noticed(instance);
}

static void noticed(struct ns_instance *instance, const struct inotify_event *event)
{
	int *wd = event->wd == instance->oom_wd ? &instance->oom_wd : &instance->pids_wd;

	if (event->mask & IN_IGNORED)
		*wd = -1;
	else if (wd == &instance->oom_wd)
		oom_noticed(instance);
	else if (instance->state == NS_RUNNING && instance->base.events->on_pids)
		instance->base.events->on_pids(&instance->base, instance->base.arg);
}

void ns_inotify_ready(void *arg, unsigned ready)
{
	struct ns_engine *engine = arg;
	char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t got = read(engine->inotify, events, sizeof events);

	(void)ready;
	for (ssize_t at = 0; at < got;) {
		const struct inotify_event *event = (const void *)(events + at);
		struct ns_instance *instance = engine->first;

		while (instance && instance->oom_wd != event->wd && instance->pids_wd != event->wd)
			instance = instance->next;
		if (instance)
			noticed(instance, event);
		at += (ssize_t)(sizeof *event + event->len);
	}
}

static void watch_oom(struct ns_instance *instance)
{
	struct ns_engine *engine = engine_of(instance);
	struct err err = ERR_INIT;

	if (cgroup_oom_watch(engine->cgroups, instance->group, engine->inotify, &instance->oom_fd,
		    &instance->oom_wd, &err) < 0)
		log_warn("memory kills will not be noticed", kv_str("box", instance->id),
			kv_err(&err));
	/* Without it, refused forks are noticed at the next look. */
	instance->pids_wd = cgroup_pids_watch(engine->cgroups, instance->group, engine->inotify);
	if (instance->oom_fd >= 0)
		instance->oom_watch =
			loop_fd_new(engine->loop, instance->oom_fd, LOOP_READ, oom_event, instance);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void finish(struct ns_instance *instance)
{
	const struct instance_ops *events = instance->base.events;
	struct err failure = instance->failure;

	if (failure.kind)
		events->on_failed(&instance->base, &failure, instance->base.arg);
	else
		events->on_ended(
			&instance->base, instance->end, instance->detail, instance->base.arg);
}

static void clean_up(void *arg)
{
	struct ns_instance *instance = arg;
	struct err err = ERR_INIT;

	if (cgroup_remove(engine_of(instance)->cgroups, instance->group, &err) < 0) {
		if (clock_mono_us() - instance->ended_at < REMOVE_GIVE_UP_US) {
			/* A process of the host may have been put into the group. */
			cgroup_kill(engine_of(instance)->cgroups, instance->group, NULL);
			loop_timer_start(instance->timer, REMOVE_RETRY_MS);
			return;
		}
		log_warn("cgroup is left behind", kv_str("box", instance->id), kv_err(&err));
	}
	finish(instance);
}

/* PID 1 got SIGKILL, not from us, and the kernel has just counted a kill for memory. */
static bool fell_to_memory(struct ns_instance *instance, enum procfd_status status, int value)
{
	if (status == PROCFD_EXITED || (status == PROCFD_SIGNALED && value != SIGKILL) ||
		instance->kill_asked)
		return false;
	return instance->oom_at && clock_mono_us() - instance->oom_at < OOM_RECENT_US;
}

static void describe_end(struct ns_instance *instance, enum procfd_status status, int value)
{
	char *out = instance->detail;
	size_t size = sizeof instance->detail;
	char limit[16];

	if (fell_to_memory(instance, status, value)) {
		instance->end = INSTANCE_END_MEMORY;
		if (instance->memory_limit)
			snprintf(out, size, "memory limit of %s reached",
				format_size(instance->memory_limit, limit));
		else
			snprintf(out, size, "the host ran out of memory");
	} else if (status == PROCFD_EXITED) {
		instance->end = INSTANCE_END_EXITED;
		if (value == 0)
			snprintf(out, size, "shut down");
		else
			snprintf(out, size, "box-init exited with code %d", value);
	} else if (status == PROCFD_SIGNALED) {
		instance->end = INSTANCE_END_KILLED;
		if (instance->kill_asked)
			snprintf(out, size, "killed");
		else
			snprintf(out, size, "box-init was killed by signal %d", value);
	} else {
		instance->end = instance->kill_asked ? INSTANCE_END_KILLED : INSTANCE_END_UNKNOWN;
		snprintf(out, size, "%s",
			instance->kill_asked ? "killed" : "it ended while nobody could look");
	}
}

/* Why the start failed when the process ended: the child's own message, ours, or its exit
 * status. */
static void describe_failure(struct ns_instance *instance)
{
	struct err *failure = &instance->failure;

	if (failure->kind)
		return;
	if (instance->control >= 0 &&
		recv(instance->control, failure, sizeof *failure, MSG_DONTWAIT) ==
			(ssize_t)sizeof *failure &&
		failure->kind)
		return;
	err_clear(failure);
	if (instance->kill_asked) {
		err_set(failure, ERR_CANCELLED, "killed while it was starting");
	} else {
		err_set(failure, instance->end == INSTANCE_END_MEMORY ? ERR_LIMIT : ERR_SYSTEM,
			"it ended while it was starting: %s", instance->detail);
		if (instance->end == INSTANCE_END_MEMORY)
			err_hint(failure, "give the box more memory");
	}
}

static void process_gone(struct ns_instance *instance, enum procfd_status status, int value)
{
	bool was_running = instance->state == NS_RUNNING;
	uint64_t kills = take_oom_kills(instance);

	instance->ended_at = clock_mono_us();
	describe_end(instance, status, value);
	if (!was_running)
		describe_failure(instance);
	instance->state = NS_ENDING;
	drop_oom_watch(instance);
	drop_watch(&instance->control_watch, &instance->control);
	drop_watch(&instance->pidfd_watch, &instance->pidfd);
	loop_timer_free(instance->timer);
	instance->timer = loop_timer_new(engine_of(instance)->loop, clean_up, instance);
	if (kills && was_running && instance->base.events->on_oom) {
		loop_timer_start(instance->timer, 0);
		instance->base.events->on_oom(&instance->base, kills, instance->base.arg);
		return;
	}
	clean_up(instance);
}

static void wait_for_status(void *arg);

static void process_event(void *arg, unsigned ready)
{
	struct ns_instance *instance = arg;
	int value;
	enum procfd_status status = procfd_reap(instance->pidfd, &value);

	(void)ready;
	if (status == PROCFD_RUNNING)
		return;
	if (status == PROCFD_GONE && !instance->ended_at)
		instance->ended_at = clock_mono_us();
	if (status == PROCFD_GONE && clock_mono_us() - instance->ended_at < STATUS_WAIT_US) {
		/* Its parent, which is not us, has not reaped it yet; the status is available after
		 * that. */
		loop_fd_set(instance->pidfd_watch, 0);
		loop_timer_free(instance->timer);
		instance->timer =
			loop_timer_new(engine_of(instance)->loop, wait_for_status, instance);
		loop_timer_start(instance->timer, REMOVE_RETRY_MS);
		return;
	}
	process_gone(instance, status, value);
}

static void wait_for_status(void *arg)
{
	process_event(arg, LOOP_READ);
}

/* ---- the beginning -------------------------------------------------------------------------- */

static void give_up_start(struct ns_instance *instance)
{
	loop_timer_stop(instance->timer);
	cgroup_kill(engine_of(instance)->cgroups, instance->group, NULL);
	procfd_kill(instance->pidfd, SIGKILL, NULL); /* process_event follows */
}

static void start_too_long(void *arg)
{
	struct ns_instance *instance = arg;

	err_set(&instance->failure, ERR_TIMEOUT, "the box did not come up within %d s",
		NS_START_MS / 1000);
	give_up_start(instance);
}

static void control_event(void *arg, unsigned ready)
{
	struct ns_instance *instance = arg;
	struct err story = ERR_INIT;
	ssize_t got = recv(instance->control, &story, sizeof story, MSG_DONTWAIT);
	bool executed = false;

	(void)ready;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	loop_fd_set(instance->control_watch, 0);
	if (got == (ssize_t)sizeof story && story.kind && !instance->failure.kind)
		instance->failure = story;
	if (instance->failure.kind) {
		give_up_start(instance);
		return;
	}
	/* Killed before it was ready: process_event reports that the start failed. */
	if (instance->kill_asked)
		return;
	/* A process closes its files a moment before its pidfd reports its end. */
	if (procstat_has_execed(instance->base.mark.pid, &executed, NULL) < 0 || !executed)
		return; /* closed by its end, not by its exec; process_event handles that */
	instance->state = NS_RUNNING;
	loop_timer_free(instance->timer);
	instance->timer = NULL;
	drop_watch(&instance->control_watch, &instance->control);
	instance->base.events->on_ready(&instance->base, instance->base.arg);
}

void ns_instance_watch(struct ns_instance *instance)
{
	struct loop *loop = engine_of(instance)->loop;

	instance->pidfd_watch =
		loop_fd_new(loop, instance->pidfd, LOOP_READ, process_event, instance);
	watch_oom(instance);
	if (instance->control < 0) {
		instance->state = NS_RUNNING;
		return;
	}
	instance->state = NS_STARTING;
	instance->control_watch =
		loop_fd_new(loop, instance->control, LOOP_READ, control_event, instance);
	instance->timer = loop_timer_new(loop, start_too_long, instance);
	loop_timer_start(instance->timer, NS_START_MS);
}

void ns_instance_fail(struct ns_instance *instance, const struct err *why)
{
	struct loop *loop = engine_of(instance)->loop;

	if (!instance->failure.kind)
		instance->failure = *why;
	instance->ended_at = clock_mono_us();
	instance->state = NS_ENDING;
	drop_oom_watch(instance);
	drop_watch(&instance->pidfd_watch, &instance->pidfd);
	loop_timer_free(instance->timer);
	instance->timer = loop_timer_new(loop, clean_up, instance);
	cgroup_kill(engine_of(instance)->cgroups, instance->group, NULL);
	loop_timer_start(instance->timer, 0);
}

/* ---- requests of the daemon ----------------------------------------------------------------- */

int ns_kill(struct instance *base, struct err *err)
{
	struct ns_instance *instance = ns_instance_of(base);

	if (instance->state == NS_ENDING)
		return 0;
	instance->kill_asked = true;
	/* The group first: should PID 1 be slow to die, nothing else in the box runs meanwhile. */
	if (cgroup_kill(engine_of(instance)->cgroups, instance->group, err) < 0)
		return -1;
	return instance->pidfd < 0 ? 0 : procfd_kill(instance->pidfd, SIGKILL, err);
}

/* A process restored by CRIU never called exec, but runs our program all the same. */
static bool runs_init(pid_t pid)
{
	char path[32], exe[sizeof GUEST_INIT + 16] = "";

	snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	return readlink(path, exe, sizeof exe - 1) > 0 && text_has_prefix(exe, GUEST_INIT);
}

/* A daemon may have died during a start: a process that is not box-init yet soon is, or ends. */
static bool becomes_init(pid_t pid, int pidfd)
{
	bool executed = false;

	for (int tries = 0; tries < ADOPT_TRIES && procfd_is_alive(pidfd); tries++) {
		if (procstat_has_execed(pid, &executed, NULL) < 0 || executed)
			break;
		executed = runs_init(pid);
		if (executed)
			break;
		usleep(ADOPT_PAUSE_US);
	}
	return executed && procfd_is_alive(pidfd);
}

/* Checks that the process at this pid is the box that was started: same boot, same start time,
 * checked while a pidfd holds it; in this box's group, with this box's ids. */
static int check_mark(struct ns_engine *engine, const struct instance_spec *spec,
	const struct instance_mark *mark, const char *group, int *ret_pidfd, struct err *err)
{
	_cleanup_close_ int pidfd = -1;
	uint64_t start_time;
	uint32_t base, count;

	if (strcmp(mark->boot, engine->boot) != 0)
		return err_set(err, ERR_NOT_FOUND, "box '%s' ran before the machine was started",
			spec->id);
	if (mark->pid > 1 && procfd_open(mark->pid, &pidfd, err) < 0 && err->kind != ERR_NOT_FOUND)
		return -1;
	if (pidfd < 0 || procstat_start_time(mark->pid, &start_time, err) < 0 ||
		start_time != mark->start_time || !procfd_is_alive(pidfd))
		return err_set(err, ERR_NOT_FOUND, "box '%s' no longer runs", spec->id);
	if (!cgroup_holds(engine->cgroups, group, mark->pid))
		return err_set(err, ERR_NOT_FOUND, "process %d is not in the cgroup of box '%s'",
			(int)mark->pid, spec->id);
	if (procstat_uid_map(mark->pid, &base, &count, err) < 0)
		return -1;
	if (base != spec->ns.uid_base || count != NS_IDS)
		return err_set(err, ERR_NOT_FOUND, "process %d has not the user ids of box '%s'",
			(int)mark->pid, spec->id);
	if (!becomes_init(mark->pid, pidfd))
		return err_set(err, ERR_NOT_FOUND, "box '%s' never came up", spec->id);
	*ret_pidfd = steal_fd(&pidfd);
	return 0;
}

enum { THAW_SOON_MS = 20, THAWS_SOON = 100, THAW_LATER_MS = 500, THAWS_LATER = 240 };

/* A CRIU that a dead daemon left in the middle of a capture undoes its work, ends and leaves the
 * box frozen as it found it. Nobody reports when; boxes that should run are thawed repeatedly for a
 * while. */
static void thaw_adopted(void *arg)
{
	struct ns_engine *engine = arg;

	for (struct ns_instance *i = engine->first; i; i = i->next)
		if (i->adopted && i->state == NS_RUNNING && !i->frozen && !i->capture)
			(void)cgroup_freeze(engine->cgroups, i->group, false, NULL);
	engine->thaw_count++;
	if (engine->thaw_count < THAWS_SOON + THAWS_LATER)
		loop_timer_start(engine->thaw_timer,
			engine->thaw_count < THAWS_SOON ? THAW_SOON_MS : THAW_LATER_MS);
}

int ns_adopt(struct engine *base, const struct instance_spec *spec,
	const struct instance_mark *mark, const struct instance_ops *ops, void *arg,
	struct instance **ret, struct err *err)
{
	struct ns_engine *engine = ns_engine_of(base);
	_cleanup_free_ char *group = groups_id(spec);
	struct ns_instance *instance;
	int pidfd = -1;

	/* An instance from before there were trees has no group above its own. */
	if (!cgroup_holds(engine->cgroups, group, mark->pid)) {
		free(group);
		group = xstrdup(spec->id);
	}
	if (check_mark(engine, spec, mark, group, &pidfd, err) < 0)
		return -1;
	instance = ns_instance_new(engine, spec, ops, arg);
	instance->base.mark = *mark;
	instance->pidfd = pidfd;
	free(instance->group);
	instance->group = steal_ptr(&group);
	instance->oom_seen = cgroup_oom_kills(engine->cgroups, instance->group);
	ns_instance_watch(instance);
	/* A daemon that died during a capture may have left the network held; usually there is
	 * nothing to release. */
	(void)ns_net_hold(engine, mark->pid, false, NULL);
	instance->adopted = true;
	if (!engine->thaw_timer) {
		engine->thaw_timer = loop_timer_new(engine->loop, thaw_adopted, engine);
		loop_timer_start(engine->thaw_timer, THAW_SOON_MS);
	}
	*ret = &instance->base;
	return 0;
}
